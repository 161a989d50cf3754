// The simulator's inside: launches, OS threads, blocks and the threads of a block. The scheduler's parts share it, and
// a checker that watches a launch (`hooks`) reads it.

#pragma once

#include <cuda_runtime_api.h>
#include <kjit_sim/launch.h>
#include <kjit_sim/threads.h>
#include <pthread.h>

#include <cfenv>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "fiber.h"

#pragma GCC visibility push(hidden)

namespace kjit_sim {

inline constexpr std::uint32_t kMaxThreads = Stacks::kMost;
inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kBarriers = 16;
inline constexpr std::uint32_t kMaxCluster = 16;          // blocks; more than 8 have to be asked for
inline constexpr std::size_t kMaxDynamicShared = 232448;  // bytes for a block of an H200

/// How many blocks or threads a size stands for.
inline std::uint64_t count_of(const dim3& size) {
  return std::uint64_t{size.x} * size.y * size.z;
}

/// One launch of a kernel.
struct Launch {
  const void* kernel;
  Invoker invoker;
  void** parameters;
  dim3 grid;
  dim3 block;
  dim3 cluster;  // blocks of one
  std::size_t smem = 0;
  bool cooperative = false;

  std::uint64_t blocks = 0;      // in the grid
  std::uint64_t next_block = 0;  // the first that nobody has taken; atomic
  bool failed = false;           // atomic; `report` says why
  bool is_overdue = false;       // because a block does not end; set before `failed`
  char report[3000];
  void* checker = nullptr;  // what it keeps of this launch

  bool is_manned = false;  // all OS threads of blocks that may wait for each other are there
  // Cooperative launches: blocks that have not ended, and those that wait at grid_sync.
  pthread_mutex_t grid_mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t grid_moved = PTHREAD_COND_INITIALIZER;
  std::uint64_t blocks_left = 0;
  std::uint64_t blocks_waiting = 0;
  std::uint64_t grid_epoch = 0;
};

enum class State : std::uint8_t { kNew, kReady, kRunning, kBarrier, kWarp, kActiveMask, kCluster, kExited };

/// One thread of the block that runs on this OS thread.
struct Thread {
  void* context = nullptr;  // where it goes on; while it does not run
  char* stack = nullptr;    // lowest address of its stack; null before it starts and after it has ended
  uint3 index{};
  std::uint32_t number = 0;  // in the block
  State state = State::kNew;

  // What it waits for.
  const void* where = nullptr;  // the address behind the call
  WarpOp op = WarpOp::kSync;
  int barrier_id = 0;
  std::uint32_t mask = 0;
  std::uint64_t value = 0;
  std::uint32_t argument = 0;
  std::uint32_t width = 32;
  std::uint64_t result = 0;
  std::uint64_t cluster_phase = 0;  // of the cluster's barrier, whose end it has to wait for; 0: it has not arrived

  // For a checker: how often its warp and its block have synchronised with it so far.
  std::uint32_t warp_epoch = 0;
  std::uint32_t block_epoch = 0;
};

/// Lanes of a warp that wait for each other.
struct Group {
  std::uint32_t mask = 0;
  std::uint32_t arrived = 0;
  WarpOp op = WarpOp::kSync;
};

struct Warp {
  std::uint32_t alive = 0;    // lanes that exist and have not exited
  std::uint32_t pending = 0;  // groups somebody waits in
  Group groups[kLanes];       // one for each mask and operation; which are in use says `pending`
};

struct Barrier {
  std::uint32_t arrived = 0;
  std::uint32_t needed = 0;  // 0: all threads that have not exited
  std::uint32_t votes = 0;
};

struct Worker;

/// Blocks that run at the same time, each on an OS thread of its own, and reach each other's shared memory.
struct Cluster {
  dim3 dim;
  std::uint32_t blocks = 1;
  Worker* workers[kMaxCluster] = {};  // by rank

  // The barrier of all its threads. Its phases count from 1.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
  std::uint64_t phases = 0;   // that have ended; atomic
  std::uint32_t missing = 0;  // threads that have neither arrived in this phase nor exited
  std::uint32_t live = 0;     // threads that have not exited
  std::uint32_t running = 0;  // blocks that have not ended
  std::uint32_t asleep = 0;   // of those, the ones that can do nothing before this phase ends
};

struct Range {
  const char* begin = nullptr;
  std::size_t size = 0;
};

/// What ended a block, other than a call of the simulator's by one of its threads (faults.cpp).
struct Fault {
  enum class Kind : std::uint8_t {
    kNone,
    kSignal,   // an instruction that the processor could not carry out
    kOverdue,  // the block has run for too long
    kStopped,  // the launch has failed elsewhere
  };
  Kind kind = Kind::kNone;
  enum class Access : std::uint8_t { kUnknown, kRead, kWrite, kCall };
  Access access = Access::kUnknown;
  bool is_overflow = false;  // of the thread's stack
  int signal = 0;
  int code = 0;                // what the system says of the signal
  std::uintptr_t address = 0;  // of the memory
  Thread* thread = nullptr;
  const void* places[8] = {};  // in the module's code: the instruction or behind it, and where callers go on
  int place_count = 0;
};

/// An OS thread that runs blocks, one at a time.
struct Worker {
  Launch* launch = nullptr;
  uint3 block_index{};
  std::uint64_t block_number = 0;
  std::uint32_t threads_in_block = 0;
  std::uint32_t live = 0;      // threads that have not exited
  std::uint32_t next_new = 0;  // the first thread that has not started
  std::uint32_t warps = 0;
  std::uint32_t block_epoch = 0;  // barriers completed in this block
  Thread* current = nullptr;      // null outside kernels
  void* main_context = nullptr;
  void* dynamic_shared = nullptr;
  std::uint64_t random = 0;       // 0: threads run in order
  std::uint32_t idle_yields = 0;  // since a thread of the block did anything but look at memory
  std::int64_t idle_since = 0;    // in seconds of this OS thread's time
  bool failed = false;            // this block has

  // For faults.cpp. A signal handler reads and writes them.
  volatile bool is_inside = true;    // the simulator's own code runs, which has to come to its end
  volatile bool is_overdue = false;  // the block has to end
  volatile std::uint64_t blocks_begun = 0;
  Fault fault;
  const void* calls_library_at = nullptr;  // in a kernel, where one of the simulator's functions uses what it was given
  std::fenv_t floating_point{};            // how the launch rounds: a signal handler has that of new processes

  Cluster own_cluster;               // of a block without others
  Cluster* cluster = &own_cluster;   // that this block is in
  std::uint32_t rank = 0;            // of the block in it
  bool has_cluster_barrier = false;  // threads count at the cluster's barrier
  std::uint32_t cluster_waiters = 0;
  Range variables;          // the module's thread-local ones
  void* checker = nullptr;  // what it keeps of this OS thread

  Thread threads[kMaxThreads];
  std::uint16_t order[kMaxThreads];  // in which threads start
  Warp warp[kMaxThreads / kLanes];
  Barrier barriers[kBarriers];
  std::uint32_t pending_barriers = 0;
  bool is_at_grid_sync = false;

  // Threads that can go on.
  std::uint16_t queue[kMaxThreads];
  std::uint32_t queue_begin = 0;
  std::uint32_t queue_size = 0;

  Stacks stacks;
  alignas(16) char signal_stack[64 * 1024];  // for handlers: a thread's own may be what has overflown
};

/// The worker of this OS thread; null where no launch has run yet.
extern constinit thread_local Worker* worker;

/// Whether a thread of a kernel runs on this OS thread now.
inline bool is_in_kernel() {
  return worker != nullptr && worker->current != nullptr;
}

/// Called at the turns of a launch where set. `thread_changed` comes before a thread runs, with the builtin variables
/// set. A hook that finds a mistake calls `fail` (only where a thread runs) or writes the launch's report.
struct Hooks {
  void (*launch_begin)(Launch&) = nullptr;
  void (*launch_end)(Launch&) = nullptr;
  void (*block_begin)(Worker&) = nullptr;
  void (*block_end)(Worker&) = nullptr;
  void (*thread_changed)(Worker&, Thread&) = nullptr;
  void (*thread_exited)(Worker&, Thread&) = nullptr;
  /// All that wait at barrier `id` go on; some threads of the block may have exited instead.
  void (*barrier_completed)(Worker&, int id, std::uint32_t arrived) = nullptr;
  /// The lanes `arrived` of a warp have met.
  void (*warp_completed)(Worker&, std::uint32_t warp, std::uint32_t arrived, WarpOp) = nullptr;
  /// `reader` shuffles from a lane that is not there.
  void (*inactive_lane)(Worker&, Thread& reader, std::uint32_t lane) = nullptr;
  /// The thread orders memory by the word at `address`, other than by a barrier or with its warp.
  void (*released)(Worker&, Thread&, const void* address) = nullptr;
  void (*acquired)(Worker&, Thread&, const void* address) = nullptr;
  /// Memory of the simulated GPU.
  void (*allocated)(const void* memory, std::size_t size) = nullptr;
  void (*freed)(const void* memory) = nullptr;
  /// Fails, with a report that the running thread does `what` ("reads ...") at a place in the code.
  void (*accuse)(const char* what, const void* place) = nullptr;
};
extern constinit Hooks hooks;

/// Runs a launch to its end. False: it failed, and its report says why.
bool run(Launch& launch);

/// While it lives, the simulator's own code runs on this OS thread, called by a thread of a kernel.
class Inside {
 public:
  Inside() : Inside(*worker) {}
  explicit Inside(Worker& w) : w_(w), was_inside_(w.is_inside) { w.is_inside = true; }
  ~Inside() { w_.is_inside = was_inside_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Worker& w_;
  bool was_inside_;
};

/// Sets the report of a launch that has none; the first one stays.
void report(Launch& launch, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Adds to the report of a launch that has one, where there is room.
void report_more(Launch& launch, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Gives up the block that runs on this OS thread, from the stack of one of its threads.
[[noreturn]] void leave_block(Worker& w);
/// Who of the block waits for what, and where: a line for each, from "\n  threads 0 to 7 wait at ...".
void describe_threads(const Worker& w, char* text, std::size_t size);

/// Lets a thread that waits go on when its turn comes.
void make_ready(Worker& w, Thread& thread);
/// Lets somebody else run; comes back when `self`, which is set up to wait, can go on.
void suspend(Worker& w, Thread& self);

//
// Clusters (cluster.cpp)
//

/// Before the blocks of a cluster begin: each of them has so many threads.
void begin_cluster(Cluster& cluster, std::uint32_t threads_in_block);
/// The running thread exits: nobody waits for it any more.
void leave_cluster(Worker& w, Thread& thread);
/// Lets threads go on whose phase of the cluster's barrier has ended; whether there are any.
bool pass_cluster_barrier(Worker& w);
/// No thread of the block can go on, and some wait for their cluster: waits until they can. False: they never will.
bool await_cluster_barrier(Worker& w);
/// The block has ended, or failed.
void end_in_cluster(Worker& w);

/// The module's thread-local variables on this OS thread: `__shared__` ones, and the simulator's own few.
const Range& shared_variables();

/// The worker of the cluster whose block has the address in its shared memory, or null.
const Worker* owner_of(const Cluster& cluster, const void* address);

/// Where the block's dynamic shared memory can be: a place of the largest size, for this OS thread.
void* dynamic_shared_memory();

}  // namespace kjit_sim

#pragma GCC visibility pop
