// Spreads the blocks of a launch over OS threads: those of a pool, which takes blocks in order, or one for each block
// where blocks may wait for each other.

#include "pool.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fiber.h"

namespace kjit_sim {

namespace {

constexpr int kMaxHelpers = 63;
constexpr std::uint64_t kThreadsWorthHelp = 4096;

struct Pool {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t work = PTHREAD_COND_INITIALIZER;
  pthread_cond_t done = PTHREAD_COND_INITIALIZER;
  pid_t process = 0;  // whose the helpers are: a fork leaves them behind
  int helpers = 0;    // OS threads besides the caller's
  int running = 0;    // of them, in this launch
  int wanted = 0;     // that may still join
  Launch* launch = nullptr;
  char* stacks = nullptr;

  pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;  // held while the helpers are at a launch
};
constinit Pool pool;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  return *end == '\0' ? value : otherwise;
}

int os_threads() {
  cpu_set_t cores;
  const int available = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  const auto wanted = static_cast<int>(number_from_environment("KJIT_SIM_THREADS", 0));
  const int threads = wanted > 0 ? wanted : available < 16 ? available : 16;
  return threads - 1 < kMaxHelpers ? threads : kMaxHelpers + 1;
}

std::uint64_t seed_of(std::uint64_t number) {
  const std::uint64_t seed = number_from_environment("KJIT_SIM_SEED", 0);
  return seed == 0 ? 0 : (seed + number) * 0x9e3779b97f4a7c15 | 1;
}

/// The worker of this OS thread. Pages of it that are never touched cost nothing.
Worker& this_worker() {
  if (worker == nullptr) {
    worker = new Worker;
    void* memory =
        mmap(nullptr, kMaxDynamicShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    worker->dynamic_shared = memory;
  }
  return *worker;
}

void drop_worker() {
  Worker* const w = worker;
  if (w == nullptr) return;
  pthread_mutex_lock(&pool.mutex);
  while (w->free_stacks != nullptr) {
    char* const stack = w->free_stacks;
    w->free_stacks = next_stack(stack);
    next_stack(stack) = pool.stacks;
    pool.stacks = stack;
  }
  pthread_mutex_unlock(&pool.mutex);
  munmap(w->dynamic_shared, kMaxDynamicShared);
  delete w;
  worker = nullptr;
}

void take_blocks(Launch& launch) {
  Worker& w = this_worker();
  begin_launch(w, launch, 0);
  while (!__atomic_load_n(&launch.failed, __ATOMIC_ACQUIRE)) {
    const std::uint64_t block = __atomic_fetch_add(&launch.next_block, 1, __ATOMIC_RELAXED);
    if (block >= launch.blocks) break;
    w.random = seed_of(block);
    if (!run_block(w, block)) break;
  }
}

void* help(void*) {
  pthread_mutex_lock(&pool.mutex);
  for (;;) {
    while (pool.wanted == 0) pthread_cond_wait(&pool.work, &pool.mutex);
    --pool.wanted;
    ++pool.running;
    Launch& launch = *pool.launch;
    pthread_mutex_unlock(&pool.mutex);
    take_blocks(launch);
    pthread_mutex_lock(&pool.mutex);
    if (--pool.running == 0) pthread_cond_signal(&pool.done);
  }
}

void start_helpers(int wanted) {
  if (pool.process != getpid()) {
    pool.process = getpid();
    pool.helpers = pool.running = pool.wanted = 0;
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (; pool.helpers < wanted; ++pool.helpers) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, &help, nullptr) != 0) break;
  }
  pthread_attr_destroy(&attributes);
}

void run_with_pool(Launch& launch) {
  const std::uint64_t threads = launch.blocks * launch.block.x * launch.block.y * launch.block.z;
  int helpers = threads < kThreadsWorthHelp ? 0 : os_threads() - 1;
  if (launch.blocks - 1 < static_cast<std::uint64_t>(helpers)) helpers = static_cast<int>(launch.blocks - 1);
  // A launch from another thread while the helpers are busy does without them.
  const bool has_pool = helpers > 0 && pthread_mutex_trylock(&pool.launching) == 0;
  if (has_pool) {
    pthread_mutex_lock(&pool.mutex);
    start_helpers(helpers);
    pool.launch = &launch;
    pool.wanted = helpers < pool.helpers ? helpers : pool.helpers;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
  }
  take_blocks(launch);
  if (has_pool) {
    pthread_mutex_lock(&pool.mutex);
    pool.wanted = 0;
    while (pool.running > 0) pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    pthread_mutex_unlock(&pool.launching);
  }
}

void run_one_of_all(Launch& launch) {
  Worker& w = this_worker();
  const std::uint64_t block = __atomic_fetch_add(&launch.next_block, 1, __ATOMIC_RELAXED);
  begin_launch(w, launch, seed_of(block));
  run_block(w, block);
  pthread_mutex_lock(&launch.grid_mutex);
  --launch.blocks_left;
  pthread_cond_broadcast(&launch.grid_moved);
  pthread_mutex_unlock(&launch.grid_mutex);
}

void* run_one_on_its_own(void* launch) {
  run_one_of_all(*static_cast<Launch*>(launch));
  drop_worker();
  return nullptr;
}

void run_all_at_once(Launch& launch) {
  launch.blocks_left = launch.blocks;
  const auto others = static_cast<std::size_t>(launch.blocks - 1);
  auto* const threads = static_cast<pthread_t*>(std::calloc(others + 1, sizeof(pthread_t)));
  std::size_t started = 0;
  for (; started < others; ++started) {
    if (pthread_create(&threads[started], nullptr, &run_one_on_its_own, &launch) != 0) {
      report(launch, "no OS thread could be started for block %zu of a cooperative launch", started);
      break;
    }
  }
  if (started == others) run_one_of_all(launch);
  pthread_mutex_lock(&launch.grid_mutex);
  pthread_cond_broadcast(&launch.grid_moved);
  pthread_mutex_unlock(&launch.grid_mutex);
  for (std::size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  std::free(threads);
}

}  // namespace

char* take_stacks() {
  pthread_mutex_lock(&pool.mutex);
  char* stacks = pool.stacks;
  if (stacks != nullptr) {
    pool.stacks = next_stack(stacks);
    next_stack(stacks) = nullptr;
  }
  pthread_mutex_unlock(&pool.mutex);
  if (stacks == nullptr) stacks = map_stacks(32);
  if (stacks == nullptr) throw std::bad_alloc();
  return stacks;
}

void* dynamic_shared_memory() {
  return this_worker().dynamic_shared;
}

bool run(Launch& launch) {
  launch.blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  launch.next_block = 0;
  launch.failed = false;
  launch.report[0] = '\0';
  if (launch.blocks == 0) return true;
  if (hooks.launch_begin != nullptr) hooks.launch_begin(launch);
  if (launch.cooperative) {
    run_all_at_once(launch);
  } else {
    run_with_pool(launch);
  }
  if (hooks.launch_end != nullptr) hooks.launch_end(launch);
  return !launch.failed;
}

}  // namespace kjit_sim
