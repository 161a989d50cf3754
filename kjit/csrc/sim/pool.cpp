// Distribution of the blocks of a launch over OS threads: those of a pool, which take blocks in order, or, if blocks
// may wait for each other, one for each block of a cluster, or of the grid.

#include "pool.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "faults.h"

namespace kjit_sim {

namespace {

constexpr int kMaxHelpers = 63;
constexpr std::uint64_t kThreadsWorthHelp = 4096;

struct Pool {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t work = PTHREAD_COND_INITIALIZER;
  pthread_cond_t done = PTHREAD_COND_INITIALIZER;
  pid_t process = 0;  // the helpers' process: a fork does not copy them
  int helpers = 0;    // OS threads besides the caller's
  int running = 0;    // helpers in this launch
  int wanted = 0;     // helpers that may still join
  Launch* launch = nullptr;

  pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;  // held while helpers work on a launch
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

/// The worker of this OS thread. Its untouched pages cost nothing.
Worker& this_worker() {
  if (worker == nullptr) {
    worker = new Worker;
    void* memory =
        mmap(nullptr, kMaxDynamicShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    worker->dynamic_shared = memory;
    worker->variables = shared_variables();
  }
  return *worker;
}

void drop_worker() {
  Worker* const w = worker;
  if (w == nullptr) return;
  munmap(w->dynamic_shared, kMaxDynamicShared);
  delete w;
  worker = nullptr;
}

void take_blocks(Launch& launch) {
  Worker& w = this_worker();
  const FaultGuard guard(w);
  begin_launch(w, launch, 0);
  while (!__atomic_load_n(&launch.failed, __ATOMIC_ACQUIRE)) {
    const std::uint64_t block = __atomic_fetch_add(&launch.next_block, 1, __ATOMIC_RELAXED);
    if (block >= launch.blocks) break;
    w.random = seed_of(block);
    if (!run_block(w, block)) break;
  }
  w.stacks.shrink();
}

/// Waits for work, with the pool's mutex held. False after a while without any.
bool await_work() {
  constexpr int kPatience = 1;  // seconds
  timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += kPatience;
  while (pool.wanted == 0) {
    if (pthread_cond_timedwait(&pool.work, &pool.mutex, &end) == ETIMEDOUT) return pool.wanted > 0;
  }
  return true;
}

/// Works on launches, and exits after a while without any: each module has a pool, and a process may load hundreds.
void* help(void*) {
  pthread_mutex_lock(&pool.mutex);
  while (await_work()) {
    --pool.wanted;
    ++pool.running;
    Launch& launch = *pool.launch;
    pthread_mutex_unlock(&pool.mutex);
    take_blocks(launch);
    pthread_mutex_lock(&pool.mutex);
    if (--pool.running == 0) pthread_cond_signal(&pool.done);
  }
  --pool.helpers;
  pthread_mutex_unlock(&pool.mutex);
  drop_worker();
  return nullptr;
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
  const std::uint64_t threads = launch.blocks * count_of(launch.block);
  int helpers = threads < kThreadsWorthHelp ? 0 : os_threads() - 1;
  if (launch.blocks - 1 < static_cast<std::uint64_t>(helpers)) helpers = static_cast<int>(launch.blocks - 1);
  // A launch from another thread while the helpers are busy runs without them.
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

/// OS threads that run the blocks of clusters, one cluster after another.
struct Team {
  Launch* launch;
  std::uint64_t first;  // the first cluster, and the distance to the next
  std::uint64_t step;
  Cluster cluster;
  pthread_barrier_t meeting;
};

struct Member {
  Team* team;
  std::uint32_t rank;
};

/// The index of the block with this rank in a cluster.
std::uint64_t block_of(const Launch& launch, std::uint64_t cluster, std::uint32_t rank) {
  const dim3& dim = launch.cluster;
  const std::uint64_t in_x = launch.grid.x / dim.x, in_y = launch.grid.y / dim.y;
  const std::uint64_t x = cluster % in_x * dim.x + rank % dim.x;
  const std::uint64_t y = cluster / in_x % in_y * dim.y + rank / dim.x % dim.y;
  const std::uint64_t z = cluster / in_x / in_y * dim.z + rank / dim.x / dim.y;
  return x + launch.grid.x * (y + launch.grid.y * z);
}

/// Waits until all OS threads of the launch have started, or one could not; returns whether all have.
bool await_all(Launch& launch) {
  pthread_mutex_lock(&launch.grid_mutex);
  while (!launch.is_manned && !launch.failed) pthread_cond_wait(&launch.grid_moved, &launch.grid_mutex);
  const bool is_manned = launch.is_manned;
  pthread_mutex_unlock(&launch.grid_mutex);
  return is_manned;
}

void run_as_member(const Member& member) {
  Team& team = *member.team;
  Launch& launch = *team.launch;
  Worker& w = this_worker();
  team.cluster.workers[member.rank] = &w;
  if (!await_all(launch)) return;
  const FaultGuard guard(w);
  begin_launch(w, launch, 0);
  w.cluster = &team.cluster;
  w.rank = member.rank;
  for (std::uint64_t cluster = team.first; cluster < launch.blocks / team.cluster.blocks; cluster += team.step) {
    if (w.rank == 0) begin_cluster(team.cluster, w.threads_in_block);
    pthread_barrier_wait(&team.meeting);
    const std::uint64_t block = block_of(launch, cluster, w.rank);
    w.random = seed_of(block);
    if (__atomic_load_n(&launch.failed, __ATOMIC_ACQUIRE)) {
      end_in_cluster(w);  // other blocks of it may have started
    } else {
      run_block(w, block);
    }
    pthread_mutex_lock(&launch.grid_mutex);
    --launch.blocks_left;
    pthread_cond_broadcast(&launch.grid_moved);
    pthread_mutex_unlock(&launch.grid_mutex);
    pthread_barrier_wait(&team.meeting);
  }
  w.cluster = &w.own_cluster;
  w.rank = 0;
  w.stacks.shrink();
}

void* run_one_on_its_own(void* member) {
  run_as_member(*static_cast<const Member*>(member));
  drop_worker();
  return nullptr;
}

/// Runs a launch whose blocks may wait for each other: a cluster launch or a cooperative one.
void run_in_teams(Launch& launch) {
  const auto size = static_cast<std::uint32_t>(count_of(launch.cluster));
  const std::uint64_t clusters = launch.blocks / size;
  std::uint64_t count = clusters;
  if (!launch.cooperative) {
    const std::uint64_t at_a_time = static_cast<std::uint64_t>(os_threads()) / size;
    count = at_a_time < 1 ? 1 : at_a_time < clusters ? at_a_time : clusters;
  }
  launch.blocks_left = launch.blocks;
  std::vector<Team> teams(count);
  std::vector<Member> members;
  for (std::uint64_t i = 0; i < count; ++i) {
    Team& team = teams[i];
    team.launch = &launch;
    team.first = i;
    team.step = count;
    team.cluster.dim = launch.cluster;
    team.cluster.blocks = size;
    pthread_barrier_init(&team.meeting, nullptr, size);
    for (std::uint32_t rank = 0; rank < size; ++rank) members.push_back({&team, rank});
  }
  std::vector<pthread_t> threads(members.size() - 1);
  std::size_t started = 0;
  for (; started < threads.size(); ++started) {
    if (pthread_create(&threads[started], nullptr, &run_one_on_its_own, &members[started + 1]) != 0) {
      report(launch, "no OS thread could be started for block %zu of those that may wait for each other", started + 1);
      break;
    }
  }
  pthread_mutex_lock(&launch.grid_mutex);
  launch.is_manned = started == threads.size();
  pthread_cond_broadcast(&launch.grid_moved);
  pthread_mutex_unlock(&launch.grid_mutex);
  if (launch.is_manned) run_as_member(members[0]);
  for (std::size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  for (Team& team : teams) pthread_barrier_destroy(&team.meeting);
}

}  // namespace

void* dynamic_shared_memory() {
  return this_worker().dynamic_shared;
}

bool run(Launch& launch) {
  launch.blocks = count_of(launch.grid);
  launch.next_block = 0;
  launch.failed = false;
  launch.report[0] = '\0';
  if (launch.blocks == 0) return true;
  const LaunchGuard guard;
  if (hooks.launch_begin != nullptr) hooks.launch_begin(launch);
  if (launch.cooperative || count_of(launch.cluster) > 1) {
    run_in_teams(launch);
  } else {
    run_with_pool(launch);
  }
  if (hooks.launch_end != nullptr) hooks.launch_end(launch);
  return !launch.failed;
}

}  // namespace kjit_sim
