// Runs the threads of a block on one OS thread: each on a stack of its own, switching where it waits. A thread that
// ends without having waited passes its stack on to the next one, without a switch.

#include "scheduler.h"

#include <sched.h>
#include <time.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "faults.h"
#include "places.h"
#include "pool.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace kjit_sim {

constinit thread_local Worker* worker = nullptr;
constinit thread_local unsigned looks = 0;
constinit Hooks hooks;

namespace {

std::uint32_t lane_of(const Thread& thread) {
  return thread.number % kLanes;
}
Warp& warp_of(Worker& w, const Thread& thread) {
  return w.warp[thread.number / kLanes];
}

std::uint64_t next_random(Worker& w) {  // xorshift64
  w.random ^= w.random << 13;
  w.random ^= w.random >> 7;
  w.random ^= w.random << 17;
  return w.random;
}

/// The next thread to run, or null: runnable threads before those that have not started, which keeps fewer stacks in
/// use.
Thread* pick(Worker& w, bool prefer_new = false) {
  const bool has_new = w.next_new < w.threads_in_block;
  if (has_new && w.queue_size > 0 && w.random != 0) prefer_new = next_random(w) % 2 != 0;
  if (w.queue_size == 0 || (prefer_new && has_new)) {
    return has_new ? &w.threads[w.order[w.next_new++]] : nullptr;
  }
  if (w.random != 0) {
    std::uint16_t& first = w.queue[w.queue_begin];
    std::uint16_t& other = w.queue[(w.queue_begin + next_random(w) % w.queue_size) % kMaxThreads];
    const std::uint16_t number = other;
    other = first;
    first = number;
  }
  Thread* thread = &w.threads[w.queue[w.queue_begin]];
  w.queue_begin = (w.queue_begin + 1) % kMaxThreads;
  --w.queue_size;
  return thread;
}

void set_current(Worker& w, Thread& thread) {
  thread.state = State::kRunning;
  w.current = &thread;
  threadIdx = thread.index;
  looks = 0;
  if (hooks.thread_changed != nullptr) hooks.thread_changed(w, thread);
}

void thread_main();

/// The context of a thread that is about to run; a new one gets a stack. Null if memory is exhausted.
void* context_of(Worker& w, Thread& thread) {
  if (thread.stack == nullptr) {
    thread.stack = w.stacks.take();
    if (thread.stack == nullptr) return nullptr;
    thread.context = new_context(thread.stack, &thread_main);
  }
  return thread.context;
}
constexpr const char* kNoStack = "there is no memory for the stack of another thread of the block";

/// Runs `next`; returns when `self`, which is set up as runnable or waiting, is resumed.
void switch_to(Worker& w, Thread& self, Thread& next) {
  void* const context = context_of(w, next);
  if (context == nullptr) fail(kNoStack);
  set_current(w, next);
  kjit_sim_switch(&self.context, context);
}

void free_stack(Worker& w, Thread& thread) {
  w.stacks.give_back(thread.stack);
  thread.stack = nullptr;
}

void complete_barrier(Worker& w, int id) {
  Barrier& barrier = w.barriers[id];
  const std::uint32_t arrived = barrier.arrived;
  const std::uint64_t result = std::uint64_t{arrived} << 32 | barrier.votes;
  barrier = {};
  w.pending_barriers &= ~(1u << id);
  w.idle_yields = 0;
  ++w.block_epoch;
  if (hooks.barrier_completed != nullptr) hooks.barrier_completed(w, id, arrived);
  for (std::uint32_t i = 0; i < w.threads_in_block; ++i) {
    Thread& thread = w.threads[i];
    if (thread.state != State::kBarrier || thread.barrier_id != id) continue;
    thread.result = result;
    thread.block_epoch = w.block_epoch;
    if (&thread == w.current) {
      thread.state = State::kRunning;
    } else {
      make_ready(w, thread);
    }
  }
}

/// The source lane of a shuffle: PTX ISA, "shfl.sync".
std::uint32_t source_lane(WarpOp op, std::uint32_t lane, std::uint32_t argument, std::uint32_t width) {
  const std::uint32_t segment = kLanes - width;  // bits of the lane index that select its segment
  const std::uint32_t first = lane & segment;
  const std::uint32_t last = op == WarpOp::kShuffleUp ? first : first | (~segment & (kLanes - 1));
  argument &= kLanes - 1;
  switch (op) {
    case WarpOp::kShuffleUp:
      return lane >= first + argument ? lane - argument : lane;
    case WarpOp::kShuffleDown:
      return lane + argument <= last ? lane + argument : lane;
    case WarpOp::kShuffleXor:
      return (lane ^ argument) <= last ? lane ^ argument : lane;
    default:
      return first | (argument & ~segment);
  }
}

std::uint64_t reduced(WarpOp op, std::uint64_t a, std::uint64_t b) {
  const auto x = static_cast<std::uint32_t>(a), y = static_cast<std::uint32_t>(b);
  const auto sx = static_cast<std::int32_t>(x), sy = static_cast<std::int32_t>(y);
  switch (op) {
    case WarpOp::kAddUnsigned:
      return x + y;
    case WarpOp::kMinUnsigned:
      return x < y ? x : y;
    case WarpOp::kMaxUnsigned:
      return x > y ? x : y;
    case WarpOp::kMinSigned:
      return sx < sy ? x : y;
    case WarpOp::kMaxSigned:
      return sx > sy ? x : y;
    case WarpOp::kAnd:
      return x & y;
    case WarpOp::kOr:
      return x | y;
    default:
      return x ^ y;
  }
}

template <typename F>
void for_each_lane(std::uint32_t lanes, F&& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<std::uint32_t>(__builtin_ctz(lanes)));
}

/// Sets the result of each lane of a complete group.
void set_results(Worker& w, Thread* lanes, const Group& group) {
  const std::uint32_t arrived = group.arrived;
  switch (group.op) {
    case WarpOp::kSync:
      return;
    case WarpOp::kShuffle:
    case WarpOp::kShuffleUp:
    case WarpOp::kShuffleDown:
    case WarpOp::kShuffleXor:
      return for_each_lane(arrived, [&](std::uint32_t lane) {
        Thread& thread = lanes[lane];
        std::uint32_t source = source_lane(group.op, lane, thread.argument, thread.width);
        if ((arrived >> source & 1) == 0) {
          if (hooks.inactive_lane != nullptr) hooks.inactive_lane(w, thread, source);
          source = lane;
        }
        thread.result = lanes[source].value;
      });
    case WarpOp::kBallot:
    case WarpOp::kAny:
    case WarpOp::kAll:
    case WarpOp::kUni: {
      std::uint32_t votes = 0;
      for_each_lane(arrived, [&](std::uint32_t lane) { votes |= lanes[lane].value != 0 ? 1u << lane : 0; });
      const std::uint64_t result = group.op == WarpOp::kBallot ? votes
                                   : group.op == WarpOp::kAny  ? votes != 0
                                   : group.op == WarpOp::kAll  ? votes == arrived
                                                               : votes == arrived || votes == 0;
      return for_each_lane(arrived, [&](std::uint32_t lane) { lanes[lane].result = result; });
    }
    case WarpOp::kMatchAny:
    case WarpOp::kMatchAll:
      return for_each_lane(arrived, [&](std::uint32_t lane) {
        std::uint32_t same = 0;
        for_each_lane(arrived, [&](std::uint32_t other) {
          if (lanes[other].value == lanes[lane].value) same |= 1u << other;
        });
        lanes[lane].result = group.op == WarpOp::kMatchAny || same == arrived ? same : 0;
      });
    default: {
      const auto first = static_cast<std::uint32_t>(__builtin_ctz(arrived));
      std::uint64_t result = lanes[first].value;
      for_each_lane(arrived & (arrived - 1),
                    [&](std::uint32_t lane) { result = reduced(group.op, result, lanes[lane].value); });
      return for_each_lane(arrived, [&](std::uint32_t lane) { lanes[lane].result = result; });
    }
  }
}

/// The group of a warp that waits in an operation with a mask; -1 if there is none.
int slot_of(const Warp& warp, WarpOp op, std::uint32_t mask) {
  int found = -1;
  for_each_lane(warp.pending, [&](std::uint32_t slot) {
    const Group& group = warp.groups[slot];
    if (group.mask == mask && group.op == op) found = static_cast<int>(slot);
  });
  return found;
}

void complete_group(Worker& w, std::uint32_t warp_number, Group& group) {
  Thread* const lanes = &w.threads[warp_number * kLanes];
  const std::uint32_t arrived = group.arrived;
  set_results(w, lanes, group);
  if (hooks.warp_completed != nullptr) hooks.warp_completed(w, warp_number, arrived, group.op);
  group.arrived = 0;
  w.idle_yields = 0;
  w.warp[warp_number].pending &= ~(1u << (&group - w.warp[warp_number].groups));
  for_each_lane(arrived, [&](std::uint32_t lane) {
    Thread& thread = lanes[lane];
    ++thread.warp_epoch;
    if (&thread == w.current) {
      thread.state = State::kRunning;
    } else {
      make_ready(w, thread);
    }
  });
}

void exit_thread(Worker& w, Thread& thread) {
  thread.state = State::kExited;
  w.idle_yields = 0;
  --w.live;
  Warp& warp = warp_of(w, thread);
  warp.alive &= ~(1u << lane_of(thread));
  if (hooks.thread_exited != nullptr) hooks.thread_exited(w, thread);
  // Lanes that wait for it need not wait any longer.
  for_each_lane(warp.pending, [&](std::uint32_t slot) {
    Group& group = warp.groups[slot];
    if (group.arrived == (group.mask & warp.alive)) complete_group(w, thread.number / kLanes, group);
  });
  for_each_lane(w.pending_barriers, [&](std::uint32_t id) {
    Barrier& barrier = w.barriers[id];
    if (barrier.needed == 0 && barrier.arrived == w.live) complete_barrier(w, static_cast<int>(id));
  });
  if (w.has_cluster_barrier) leave_cluster(w, thread);
}

void call_kernel(Worker& w) {
  const Launch& launch = *w.launch;
  char message[600];
  try {
    w.is_inside = false;
    launch.invoker(launch.kernel, launch.parameters);
    w.is_inside = true;
    return;
  } catch (const std::exception& error) {
    std::snprintf(message, sizeof(message), "an exception was thrown: %s", error.what());
  } catch (...) {
    std::snprintf(message, sizeof(message), "an exception was thrown");
  }
  fail("%s", message);
}

/// The body of a stack: runs one thread, and while no other can run, further new ones.
void thread_main() {
  Worker& w = *worker;
  for (;;) {
    Thread& self = *w.current;
    call_kernel(w);
    exit_thread(w, self);
    if (w.failed) leave_block(w);  // a hook has found an error
    Thread* const next = pick(w);
    if (next != nullptr && next->state == State::kNew) {
      next->stack = self.stack;
      self.stack = nullptr;
      set_current(w, *next);
      continue;
    }
    // This stack is not used from here on, and nothing switches back to it.
    free_stack(w, self);
    void* const context = next != nullptr ? next->context : w.main_context;
    if (next != nullptr) {
      set_current(w, *next);
    } else {
      w.current = nullptr;
    }
    void* nowhere = nullptr;
    kjit_sim_switch(&nowhere, context);
  }
}

/// Resumes lanes that asked for the active mask: those of a warp at the same place. There is at least one.
bool answer_active_masks(Worker& w) {
  bool any = false;
  for (std::uint32_t i = 0; i < w.threads_in_block; ++i) {
    Thread& first = w.threads[i];
    if (first.state != State::kActiveMask) continue;
    any = true;
    const std::uint32_t end =
        (i / kLanes + 1) * kLanes < w.threads_in_block ? (i / kLanes + 1) * kLanes : w.threads_in_block;
    std::uint32_t together = 0;
    for (std::uint32_t j = i; j < end; ++j) {
      const Thread& other = w.threads[j];
      if (other.state == State::kActiveMask && other.where == first.where) together |= 1u << (j % kLanes);
    }
    for (std::uint32_t j = i; j < end; ++j) {
      if ((together >> (j % kLanes) & 1) == 0) continue;
      w.threads[j].result = together;
      make_ready(w, w.threads[j]);
    }
  }
  return any;
}

/// Threads that only poll memory may wait forever: after a long time they are considered to.
void check_patience(Worker& w) {
  constexpr std::int64_t kSeconds = 30;
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  if (w.idle_yields == 1) w.idle_since = now.tv_sec;
  if (now.tv_sec - w.idle_since < kSeconds || !has_timeout()) return;
  fail(
      "a thread has waited for %d seconds for something in memory to change, and no thread of its block did anything "
      "else (blocks that wait for each other need a cooperative launch, or a cluster)",
      static_cast<int>(kSeconds));
}

const char* name_of(WarpOp op) {
  static constexpr const char* kNames[] = {
      "__syncwarp",        "__ballot_sync",     "__any_sync",        "__all_sync",        "__uni_sync",
      "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync",  "__shfl_xor_sync",   "__match_any_sync",
      "__match_all_sync",  "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync",
      "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync"};
  return kNames[static_cast<int>(op)];
}

/// Text that grows in a fixed buffer.
struct Text {
  char* text;
  std::size_t room;
  std::size_t size = 0;

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int wrote = std::vsnprintf(text + size, room - size, format, arguments);
    va_end(arguments);
    size += static_cast<std::size_t>(wrote > 0 ? wrote : 0);
    if (size >= room) size = room - 1;
  }
};

bool waits_alike(const Thread& a, const Thread& b) {
  return a.state == b.state && a.where == b.where && (a.state != State::kWarp || (a.op == b.op && a.mask == b.mask)) &&
         (a.state != State::kBarrier || a.barrier_id == b.barrier_id);
}

/// No thread can run, and not all have ended: reports which waits for what.
void report_deadlock(Worker& w) {
  char threads[1600];
  describe_threads(w, threads, sizeof(threads));
  report(*w.launch, "no thread of block (%u, %u, %u) can go on:%s", w.block_index.x, w.block_index.y, w.block_index.z,
         threads);
}

void begin_block(Worker& w, std::uint64_t number) {
  const Launch& launch = *w.launch;
  w.block_number = number;
  const auto x = static_cast<unsigned>(number % launch.grid.x);
  const auto y = static_cast<unsigned>(number / launch.grid.x % launch.grid.y);
  const auto z = static_cast<unsigned>(number / launch.grid.x / launch.grid.y);
  w.block_index = {x, y, z};
  blockIdx = w.block_index;
  w.live = w.threads_in_block;
  w.next_new = 0;
  w.queue_begin = w.queue_size = 0;
  w.pending_barriers = 0;
  w.idle_yields = 0;
  w.block_epoch = 0;
  w.is_at_grid_sync = false;
  w.is_inside = true;
  w.is_overdue = false;
  w.fault.kind = Fault::Kind::kNone;
  w.calls_library_at = nullptr;
  w.blocks_begun = w.blocks_begun + 1;
  w.has_cluster_barrier = w.cluster->blocks > 1;
  w.cluster_waiters = 0;
  for (Barrier& barrier : w.barriers) barrier = {};
  for (std::uint32_t i = 0; i < w.threads_in_block; ++i) {
    w.threads[i].state = State::kNew;
    w.threads[i].where = nullptr;
    w.threads[i].warp_epoch = w.threads[i].block_epoch = 0;
    w.threads[i].cluster_phase = 0;
  }
  if (w.random != 0) {
    for (std::uint32_t i = w.threads_in_block; i > 1; --i) {
      const auto j = static_cast<std::uint32_t>(next_random(w) % i);
      const std::uint16_t number_of_other = w.order[j];
      w.order[j] = w.order[i - 1];
      w.order[i - 1] = number_of_other;
    }
  }
  for (std::uint32_t i = 0; i < w.warps; ++i) {
    const std::uint32_t lanes = w.threads_in_block - i * kLanes;
    w.warp[i].alive = lanes >= kLanes ? ~0u : (1u << lanes) - 1;
    for_each_lane(w.warp[i].pending, [&](std::uint32_t slot) { w.warp[i].groups[slot].arrived = 0; });
    w.warp[i].pending = 0;
  }
}

}  // namespace

void leave_block(Worker& w) {
  w.failed = true;
  void* nowhere = nullptr;
  kjit_sim_switch(&nowhere, w.main_context);
  __builtin_unreachable();
}

void describe_threads(const Worker& w, char* buffer, std::size_t room) {
  Text text{buffer, room};
  buffer[0] = '\0';
  for (std::uint32_t i = 0; i < w.threads_in_block && text.size + 1 < room;) {
    const Thread& first = w.threads[i];
    std::uint32_t end = i + 1;
    while (end < w.threads_in_block && waits_alike(first, w.threads[end])) ++end;
    const bool is_one = end - i == 1;
    if (is_one) {
      text.add("\n  thread %u ", i);
    } else {
      text.add("\n  threads %u to %u ", i, end - 1);
    }
    const char* const plural = is_one ? "s" : "";
    switch (first.state) {
      case State::kNew:
        text.add("%s not started", is_one ? "has" : "have");
        break;
      case State::kExited:
        text.add("ended");
        break;
      case State::kRunning:
        text.add("run%s", plural);
        break;
      case State::kReady:
        text.add("could go on");
        break;
      case State::kActiveMask:
        text.add("wait%s in __activemask", plural);
        break;
      case State::kBarrier:
        if (first.barrier_id == 0) {
          text.add("wait%s at __syncthreads", plural);
        } else {
          text.add("wait%s at barrier %d", plural, first.barrier_id);
        }
        break;
      case State::kCluster:
        text.add("wait%s for the cluster", plural);
        break;
      case State::kWarp: {
        text.add("wait%s in %s(0x%08x)", plural, name_of(first.op), first.mask);
        const Warp& warp = w.warp[i / kLanes];
        const int slot = slot_of(warp, first.op, first.mask);
        const std::uint32_t missing = slot < 0 ? 0 : first.mask & warp.alive & ~warp.groups[slot].arrived;
        const char* const how = w.is_overdue ? "has not arrived" : "never arrives";
        if (missing != 0) text.add(": lane %d of the mask %s", __builtin_ctz(missing), how);
      }
    }
    if (first.state != State::kExited && first.where != nullptr) {
      char place[300];
      place_of(first.where, place, sizeof(place));
      text.add(" at %s", place);
    }
    i = end;
  }
}

void make_ready(Worker& w, Thread& thread) {
  thread.state = State::kReady;
  w.queue[(w.queue_begin + w.queue_size++) % kMaxThreads] = static_cast<std::uint16_t>(thread.number);
}

void suspend(Worker& w, Thread& self) {
  if (w.is_overdue) leave_overdue(w, self.where);
  Thread* next = pick(w);
  if (next == nullptr) {
    kjit_sim_switch(&self.context, w.main_context);
  } else {
    switch_to(w, self, *next);
  }
}

void begin_launch(Worker& w, Launch& launch, std::uint64_t seed) {
  w.launch = &launch;
  w.failed = false;
  w.random = seed;
  w.threads_in_block = static_cast<std::uint32_t>(count_of(launch.block));
  w.warps = (w.threads_in_block + kLanes - 1) / kLanes;
  blockDim = launch.block;
  gridDim = launch.grid;
  for (std::uint32_t i = 0; i < w.threads_in_block; ++i) {
    Thread& thread = w.threads[i];
    thread.number = i;
    thread.index = {i % launch.block.x, i / launch.block.x % launch.block.y, i / launch.block.x / launch.block.y};
    w.order[i] = static_cast<std::uint16_t>(i);
  }
}

bool run_block(Worker& w, std::uint64_t number) {
  begin_block(w, number);
  if (hooks.block_begin != nullptr) hooks.block_begin(w);
  while (!w.failed) {
    Thread* const next = pick(w);
    if (next == nullptr) {
      if (w.live == 0) break;
      if (answer_active_masks(w)) continue;
      if (w.cluster_waiters > 0 && await_cluster_barrier(w)) continue;
      // If all wait for their cluster, the cause is in another block, which reports it.
      if (w.cluster_waiters < w.live) report_deadlock(w);
      w.failed = true;
      break;
    }
    void* const context = context_of(w, *next);
    if (context == nullptr) {
      report(*w.launch, kNoStack);
      w.failed = true;
      break;
    }
    set_current(w, *next);
    kjit_sim_switch(&w.main_context, context);
  }
  w.current = nullptr;
  if (w.fault.kind != Fault::Kind::kNone) report_fault(w);
  if (w.cluster->blocks > 1) end_in_cluster(w);
  if (hooks.block_end != nullptr) hooks.block_end(w);
  if (w.failed) {
    for (std::uint32_t i = 0; i < w.threads_in_block; ++i) {
      if (w.threads[i].stack != nullptr) free_stack(w, w.threads[i]);
    }
  }
  return !w.failed;
}

void report(Launch& launch, const char* format, ...) {
  pthread_mutex_lock(&launch.grid_mutex);
  if (!launch.failed) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(launch.report, sizeof(launch.report), format, arguments);
    va_end(arguments);
    __atomic_store_n(&launch.failed, true, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&launch.grid_mutex);
}

void report_more(Launch& launch, const char* format, ...) {
  pthread_mutex_lock(&launch.grid_mutex);
  const std::size_t size = std::strlen(launch.report);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(launch.report + size, sizeof(launch.report) - size, format, arguments);
  va_end(arguments);
  pthread_mutex_unlock(&launch.grid_mutex);
}

void fail(const char* format, ...) {
  if (is_in_kernel()) worker->is_inside = true;
  char message[2200];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  if (!is_in_kernel()) {
    std::fprintf(stderr, "kjit simulator: outside of a kernel: %s\n", message);
    __builtin_trap();
  }
  Worker& w = *worker;
  const uint3 thread = w.current->index;
  report(*w.launch, "%s (block (%u, %u, %u), thread (%u, %u, %u))", message, w.block_index.x, w.block_index.y,
         w.block_index.z, thread.x, thread.y, thread.z);
  leave_block(w);
}

__attribute__((noinline)) int barrier(BarrierOp op, int id, int count, int predicate) {
  Worker& w = *worker;
  const Inside inside(w);
  Thread& self = *w.current;
  if (w.is_overdue) leave_overdue(w, __builtin_return_address(0));
  Barrier& barrier = w.barriers[id];
  const auto needed = static_cast<std::uint32_t>(count);
  if (barrier.arrived == 0) {
    barrier.needed = needed;
    w.pending_barriers |= 1u << id;
  } else if (barrier.needed != needed) {
    fail("threads wait at barrier %d for %u threads and for %u", id, barrier.needed, needed);
  }
  ++barrier.arrived;
  barrier.votes += predicate != 0 ? 1 : 0;
  self.where = __builtin_return_address(0);
  self.state = State::kBarrier;
  self.barrier_id = id;
  if (barrier.arrived == (needed == 0 ? w.live : needed)) {
    complete_barrier(w, id);
  } else {
    suspend(w, self);
  }
  const auto votes = static_cast<std::uint32_t>(self.result);
  const auto arrived = static_cast<std::uint32_t>(self.result >> 32);
  switch (op) {
    case BarrierOp::kCount:
      return static_cast<int>(votes);
    case BarrierOp::kAnd:
      return votes == arrived;
    case BarrierOp::kOr:
      return votes != 0;
    default:
      return 0;
  }
}

__attribute__((noinline)) std::uint64_t warp_op(WarpOp op, std::uint32_t mask, std::uint64_t value,
                                                std::uint32_t argument, std::uint32_t width) {
  Worker& w = *worker;
  const Inside inside(w);
  Thread& self = *w.current;
  if (w.is_overdue) leave_overdue(w, __builtin_return_address(0));
  const std::uint32_t lane = lane_of(self);
  Warp& warp = warp_of(w, self);
  if ((mask >> lane & 1) == 0) {
    fail("%s with the mask 0x%08x is called by lane %u, which is not in it", name_of(op), mask, lane);
  }
  if (width == 0 || width > kLanes || (width & (width - 1)) != 0) {
    fail("%s of width %u: a width is a power of two up to 32", name_of(op), width);
  }
  int slot = slot_of(warp, op, mask);
  if (slot < 0) {
    // If two lanes would wait for each other, they wait forever.
    for_each_lane(warp.pending, [&](std::uint32_t each) {
      const Group& other = warp.groups[each];
      const std::uint32_t waiting = other.arrived & mask;
      if (waiting == 0 || (other.mask >> lane & 1) == 0) return;
      fail("lane %u calls %s(0x%08x) while lane %d of its warp waits in %s(0x%08x)", lane, name_of(op), mask,
           __builtin_ctz(waiting), name_of(other.op), other.mask);
    });
    // Each of the other waiting lanes is in one group: one is free.
    slot = __builtin_ctz(~warp.pending);
    warp.pending |= 1u << slot;
    warp.groups[slot] = {mask, 0, op};
  }
  Group& group = warp.groups[slot];
  group.arrived |= 1u << lane;
  self.op = op;
  self.mask = mask;
  self.value = value;
  self.argument = argument;
  self.width = width;
  self.where = __builtin_return_address(0);
  self.state = State::kWarp;
  if (group.arrived == (mask & warp.alive)) {
    complete_group(w, self.number / kLanes, group);
  } else {
    suspend(w, self);
  }
  return self.result;
}

__attribute__((noinline)) std::uint32_t active_mask() {
  Worker& w = *worker;
  const Inside inside(w);
  Thread& self = *w.current;
  self.where = __builtin_return_address(0);
  self.state = State::kActiveMask;
  suspend(w, self);
  return static_cast<std::uint32_t>(self.result);
}

__attribute__((noinline)) void yield() {
  if (!is_in_kernel()) return;
  Worker& w = *worker;
  const Inside inside(w);
  Thread& self = *w.current;
  self.where = __builtin_return_address(0);
  if (w.is_overdue) leave_overdue(w, self.where);
  if (__atomic_load_n(&w.launch->failed, __ATOMIC_RELAXED)) leave_block(w);  // the event it waits for may never happen
  make_ready(w, self);
  if (++w.idle_yields % (w.live + 1) == 0) {
    answer_active_masks(w);
    pass_cluster_barrier(w);
    sched_yield();  // it may be waiting for other blocks
  }
  if (w.idle_yields % 4096 == 1) check_patience(w);
  Thread* const next = pick(w, true);
  if (next == &self) return set_current(w, self);
  switch_to(w, self, *next);
}

void released(const void* address) {
  const Inside inside;
  if (hooks.released != nullptr) hooks.released(*worker, *worker->current, address);
}

void acquired(const void* address) {
  const Inside inside;
  if (hooks.acquired != nullptr) hooks.acquired(*worker, *worker->current, address);
}

void check_launch_bounds(std::uint64_t threads) {
  const Worker& w = *worker;
  if (w.threads_in_block <= threads) return;
  const Inside inside;
  char kernel[200];
  name_of_kernel(w.launch->kernel, kernel, sizeof(kernel));
  fail(
      "kernel %s is launched with blocks of %u threads, and its __launch_bounds__ allow %llu: a GPU refuses the launch",
      kernel, w.threads_in_block, static_cast<unsigned long long>(threads));
}

std::uint32_t lane_id() {
  return lane_of(*worker->current);
}

void* dynamic_shared() {
  return dynamic_shared_memory();
}

std::size_t dynamic_shared_size() {
  return worker->launch->smem;
}

bool is_cooperative() {
  return worker->launch->cooperative;
}

void grid_sync() {
  Worker& w = *worker;
  const Inside inside(w);
  Launch& launch = *w.launch;
  if (!launch.cooperative) fail("a grid can only synchronise in a cooperative launch");
  // First the block; then one of its threads waits for the other blocks, and the block for it.
  barrier(BarrierOp::kPlain, 0, 0, 0);
  if (!w.is_at_grid_sync) {
    w.is_at_grid_sync = true;
    pthread_mutex_lock(&launch.grid_mutex);
    const std::uint64_t epoch = launch.grid_epoch;
    ++launch.blocks_waiting;
    if (launch.blocks_waiting == launch.blocks) {
      launch.blocks_waiting = 0;
      ++launch.grid_epoch;
      pthread_cond_broadcast(&launch.grid_moved);
    }
    while (launch.grid_epoch == epoch && launch.blocks_left == launch.blocks && !launch.failed) {
      pthread_cond_wait(&launch.grid_moved, &launch.grid_mutex);
    }
    const bool passed = launch.grid_epoch != epoch;
    pthread_mutex_unlock(&launch.grid_mutex);
    if (!passed) fail("a block waits for the grid, and another block has ended without doing so");
  }
  barrier(BarrierOp::kPlain, 0, 0, 0);
  w.is_at_grid_sync = false;
}

}  // namespace kjit_sim

// Called by -fsanitize=alignment for a misaligned pointer. The layouts are those of the interface that GCC and Clang
// share: compiler-rt, ubsan_handlers.h and ubsan_value.h.
namespace {

struct TypeName {
  std::uint16_t kind, info;
  char name[1];  // in quotation marks
};

struct Misaligned {
  const char* file;
  std::uint32_t line, column;
  const TypeName* type;
  std::uint8_t log_alignment;
  std::uint8_t use;
};

}  // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(const Misaligned* found, const void* address) {
  constexpr std::uint8_t kLoad = 0, kStore = 1, kReference = 2;  // other kinds need not access the whole object
  if (!kjit_sim::is_in_kernel() || found->use > kReference) return;
  const char* const verb = found->use == kLoad ? "reads" : found->use == kStore ? "writes" : "uses";
  char what[400];
  std::snprintf(what, sizeof(what), "%s %s at the misaligned address %p, which is not a multiple of %u", verb,
                found->type->name, address, 1u << found->log_alignment);
  if (kjit_sim::hooks.launch_begin != nullptr) kjit_sim::fail_at(what, __builtin_return_address(0));
  kjit_sim::fail("%s:%u: a thread %s", found->file, found->line, what);
}

// Called by `assert`.
extern "C" void __assert_fail(const char* assertion, const char* file, unsigned line, const char* function) noexcept {
  if (kjit_sim::is_in_kernel()) {
    kjit_sim::fail("%s:%u: %s: assertion `%s' failed", file, line, function, assertion);
  }
  std::fprintf(stderr, "%s:%u: %s: assertion `%s' failed.\n", file, line, function, assertion);
  std::abort();
}
