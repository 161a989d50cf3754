// Internals of the simulator: launches, OS threads, blocks and threads of a block. Shared by the scheduler's parts, and
// read by a checker that watches a launch (`hooks`).

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
inline constexpr std::uint32_t kMaxCluster = 16;          // blocks; more than 8 must be requested
inline constexpr std::size_t kMaxDynamicShared = 232448;  // bytes for a block of an H200

/// The number of blocks or threads in an extent.
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
  dim3 cluster;  // blocks in a cluster
  std::size_t smem = 0;
  bool cooperative = false;

  std::uint64_t blocks = 0;      // in the grid
  std::uint64_t next_block = 0;  // the first unclaimed block; atomic
  bool failed = false;           // atomic; the cause is in `report`
  bool is_overdue = false;       // a block did not end in time; set before `failed`
  char report[3000];
  void* checker = nullptr;  // the checker's state of this launch

  bool is_manned = false;  // all OS threads of blocks that may wait for each other have started
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
  void* context = nullptr;  // saved while it does not run
  char* stack = nullptr;    // lowest address of its stack; null before it starts and after it has ended
  uint3 index{};
  std::uint32_t number = 0;  // index in the block
  State state = State::kNew;

  // What it waits for.
  const void* where = nullptr;  // the return address of the call
  WarpOp op = WarpOp::kSync;
  int barrier_id = 0;
  std::uint32_t mask = 0;
  std::uint64_t value = 0;
  std::uint32_t argument = 0;
  std::uint32_t width = 32;
  std::uint64_t result = 0;
  std::uint64_t cluster_phase = 0;  // phase of the cluster barrier whose end it waits for; 0: not arrived

  // For a checker: the number of synchronisations of its warp and its block so far.
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
  std::uint32_t pending = 0;  // groups with waiting lanes
  Group groups[kLanes];       // one for each mask and operation; `pending` marks those in use
};

struct Barrier {
  std::uint32_t arrived = 0;
  std::uint32_t needed = 0;  // 0: all threads that have not exited
  std::uint32_t votes = 0;
};

struct Worker;

/// Blocks that run at the same time, each on an OS thread of its own, and access each other's shared memory.
struct Cluster {
  dim3 dim;
  std::uint32_t blocks = 1;
  Worker* workers[kMaxCluster] = {};  // by rank

  // The barrier of all its threads. Phases are numbered from 1.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
  std::uint64_t phases = 0;   // completed; atomic
  std::uint32_t missing = 0;  // threads that have neither arrived in this phase nor exited
  std::uint32_t live = 0;     // threads that have not exited
  std::uint32_t running = 0;  // blocks that have not ended
  std::uint32_t asleep = 0;   // running blocks that cannot continue before the end of this phase
};

struct Range {
  const char* begin = nullptr;
  std::size_t size = 0;
};

/// What ended a block, other than a call of the simulator by one of its threads (faults.cpp).
struct Fault {
  enum class Kind : std::uint8_t {
    kNone,
    kSignal,   // an instruction that the processor could not execute
    kOverdue,  // the block exceeded its time
    kStopped,  // the launch has failed elsewhere
  };
  Kind kind = Kind::kNone;
  enum class Access : std::uint8_t { kUnknown, kRead, kWrite, kCall };
  Access access = Access::kUnknown;
  bool is_overflow = false;  // of the thread's stack
  int signal = 0;
  int code = 0;                // si_code of the signal
  std::uintptr_t address = 0;  // of the accessed memory
  Thread* thread = nullptr;
  const void* places[8] = {};  // in the module's code: the instruction or the address after it, and return addresses
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
  Thread* current = nullptr;      // null outside of kernels
  void* main_context = nullptr;
  void* dynamic_shared = nullptr;
  std::uint64_t random = 0;       // 0: threads run in order
  std::uint32_t idle_yields = 0;  // since a thread of the block last did more than poll
  std::int64_t idle_since = 0;    // in seconds of this OS thread's CPU time
  bool failed = false;            // of this block

  // For faults.cpp. Accessed by a signal handler.
  volatile bool is_inside = true;    // the simulator's own code runs, and must not be interrupted
  volatile bool is_overdue = false;  // the block has to end
  volatile std::uint64_t blocks_begun = 0;
  Fault fault;
  const void* calls_library_at = nullptr;  // return address, while a simulator function accesses a kernel's arguments
  std::fenv_t floating_point{};            // of the launching thread: a signal handler starts with the default

  Cluster own_cluster;               // of a block without others
  Cluster* cluster = &own_cluster;   // that of this block
  std::uint32_t rank = 0;            // of the block in it
  bool has_cluster_barrier = false;  // threads count at the cluster's barrier
  std::uint32_t cluster_waiters = 0;
  Range variables;          // the module's thread-local variables
  void* checker = nullptr;  // the checker's state of this OS thread

  Thread threads[kMaxThreads];
  std::uint16_t order[kMaxThreads];  // the order in which threads start
  Warp warp[kMaxThreads / kLanes];
  Barrier barriers[kBarriers];
  std::uint32_t pending_barriers = 0;
  bool is_at_grid_sync = false;

  // Runnable threads.
  std::uint16_t queue[kMaxThreads];
  std::uint32_t queue_begin = 0;
  std::uint32_t queue_size = 0;

  Stacks stacks;
  alignas(16) char signal_stack[64 * 1024];  // for handlers: a thread's own stack may have overflowed
};

/// The worker of this OS thread; null before its first launch.
extern constinit thread_local Worker* worker;

/// Whether this OS thread is running a thread of a kernel.
inline bool is_in_kernel() {
  return worker != nullptr && worker->current != nullptr;
}

/// Callbacks during a launch, if set. `thread_changed` is called before a thread runs, with the builtin variables set.
/// A hook that finds an error calls `fail` (only while a thread runs) or writes the launch's report.
struct Hooks {
  void (*launch_begin)(Launch&) = nullptr;
  void (*launch_end)(Launch&) = nullptr;
  void (*block_begin)(Worker&) = nullptr;
  void (*block_end)(Worker&) = nullptr;
  void (*thread_changed)(Worker&, Thread&) = nullptr;
  void (*thread_exited)(Worker&, Thread&) = nullptr;
  /// All that wait at barrier `id` continue; some threads of the block may have exited instead.
  void (*barrier_completed)(Worker&, int id, std::uint32_t arrived) = nullptr;
  /// The lanes `arrived` of a warp have met.
  void (*warp_completed)(Worker&, std::uint32_t warp, std::uint32_t arrived, WarpOp) = nullptr;
  /// `reader` shuffles from an inactive lane.
  void (*inactive_lane)(Worker&, Thread& reader, std::uint32_t lane) = nullptr;
  /// The thread synchronises by the word at `address`, other than by a barrier or with its warp.
  void (*released)(Worker&, Thread&, const void* address) = nullptr;
  void (*acquired)(Worker&, Thread&, const void* address) = nullptr;
  /// Memory of the simulated GPU was allocated.
  void (*allocated)(const void* memory, std::size_t size) = nullptr;
  void (*freed)(const void* memory) = nullptr;
};
extern constinit Hooks hooks;

/// Runs a launch to its end. False: it failed, and its report has the cause.
bool run(Launch& launch);

/// Marks, during its lifetime, that a thread of a kernel is in the simulator's own code.
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

/// Sets the report of a launch, unless it has one.
void report(Launch& launch, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Appends to the report of a launch, if it has one and room is left.
void report_more(Launch& launch, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Aborts the block that runs on this OS thread, from the stack of one of its threads.
[[noreturn]] void leave_block(Worker& w);
/// Lists which threads of the block wait for what, and where, one line each: "\n  threads 0 to 7 wait at ...".
void describe_threads(const Worker& w, char* text, std::size_t size);

/// Makes a waiting thread runnable.
void make_ready(Worker& w, Thread& thread);
/// Runs other threads; returns when `self`, which is set up as waiting, is resumed.
void suspend(Worker& w, Thread& self);

//
// Clusters (cluster.cpp)
//

/// Called before the blocks of a cluster begin; `threads_in_block` is the same for all.
void begin_cluster(Cluster& cluster, std::uint32_t threads_in_block);
/// The running thread exits: it is no longer waited for.
void leave_cluster(Worker& w, Thread& thread);
/// Resumes threads whose phase of the cluster's barrier has ended; returns whether there are any.
bool pass_cluster_barrier(Worker& w);
/// No thread of the block can run, and some wait for the cluster: waits until they can. False: they never will.
bool await_cluster_barrier(Worker& w);
/// The block has ended or failed.
void end_in_cluster(Worker& w);

/// The module's thread-local variables on this OS thread: `__shared__` ones, and a few of the simulator.
const Range& shared_variables();

/// The worker of the cluster whose block's shared memory contains the address, or null.
const Worker* owner_of(const Cluster& cluster, const void* address);

/// Memory of the maximum size for dynamic shared memory, for this OS thread.
void* dynamic_shared_memory();

}  // namespace kjit_sim

#pragma GCC visibility pop
