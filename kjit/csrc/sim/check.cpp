// Check mode: every memory access of a kernel is watched, and errors are reported.
//
// Units are compiled with -fsanitize=thread, which inserts a call before each access; this file defines the functions
// that it calls, in place of ThreadSanitizer's. Outside of kernels they do nothing.
//
// Global memory, bounds: an access has to be inside of a tensor that the call was passed or has made, of memory from
// cudaMalloc, of a variable of the module, or of the thread's own stack. Calls that are passed raw pointers, which have
// no size, and kernels that may have read an address from a tensor of 64-bit integers, are not checked for other
// memory.
//
// Shared memory, races: each byte has a record of its last writer and of two readers since. Two accesses of different
// threads, at least one of which is a write, are ordered if both threads have synchronised in between: at a barrier of
// the block, by a warp-level operation, at an mbarrier, or by atomic operations on one word (a lock). Otherwise they
// are a race, unless both are atomic; also if both write the same value.
//
// Global memory, races, in tensors and in memory from cudaMalloc: each 4-byte word has a record of the last write and
// of one read since. Within a block the rules are those of shared memory. Blocks are unordered, unless both have used
// an atomic operation on global memory or a fence, or the launch lets blocks wait for each other. A plain and an atomic
// access are a race if the plain one writes: a plain read before a loop of atomicCAS is common and correct. So is
// writing the value that is already there: a racing write is compared after it is done, and is not reported if it
// changed nothing. And so is a read without effect: threads without work of their own read another thread's data and
// drop it. A read counts once its thread writes something. Volatile accesses are ignored.
//
// An access to the shared memory of another block of the cluster has to be in bounds, while that block is certainly
// resident. The order of such accesses is not checked.

#include <kjit_sim/memory.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <vector>

#include "fiber.h"
#include "heap.h"
#include "places.h"
#include "scheduler.h"

namespace kjit_sim {

namespace {

using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;
using std::uintptr_t;

enum class Access : uint8_t { kRead, kWrite, kAtomic };

/// Memory of a tensor, or from cudaMalloc.
struct Region {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uintptr_t data = 0;  // the first element
  bool may_hold_addresses = false;
  int argument = -1;
  const char* function = nullptr;
  char type[72] = "";
  char name[48] = "";
};

/// The notes of the exports that run on an OS thread, outermost call first.
struct Notes {
  std::vector<Region> regions;
  int depth = 0;
  bool has_unknown = false;
};
constinit thread_local Notes* notes = nullptr;

std::vector<Region> allocations;
pthread_mutex_t allocations_mutex = PTHREAD_MUTEX_INITIALIZER;

/// A recorded access to global memory.
struct GlobalStamp {
  uint32_t block;   // index
  uint32_t place;   // return address of the access, relative to the module
  uint32_t clock;   // of its thread
  uint32_t writes;  // of its thread before
  uint16_t epoch;   // since the block began, saturating
  uint16_t thread : 10;
  uint16_t bytes : 4;  // mask of the word's bytes; 0: no access
  uint16_t is_atomic : 1;
};

/// A word of global memory.
struct GlobalCell {
  GlobalStamp write;
  GlobalStamp read;  // since the write
};

/// Cells for accessible memory.
struct Shadow {
  uintptr_t begin = 0;  // whole words
  uintptr_t end = 0;
  GlobalCell* cells = nullptr;
};

/// The memory that the kernel of a launch may access, sorted.
struct Reachable {
  std::vector<Region> regions;
  bool is_all_known = false;

  std::vector<Shadow> shadows;  // of the regions, sorted and disjoint
  bool compares_blocks = false;
  // The synchronisation of each block: bit 0 an atomic operation, bit 1 a fence; atomic.
  uint8_t* meetings = nullptr;
  std::size_t blocks = 0;
  uint32_t* writes = nullptr;  // for each thread of the grid, the number of its writes; atomic
  std::size_t threads = 0;

  uint32_t& writes_of(uint64_t block, uint32_t thread) const { return writes[block * (threads / blocks) + thread]; }
};

/// A race if a write changes something, or a thread writes after its read.
struct Suspicion {
  uintptr_t word;
  uint32_t value;  // before the write
  uint32_t bytes;
  std::size_t size;
  Access access;
  uint32_t block_began;  // its first epoch
  uint32_t thread;
  const void* place;
  GlobalStamp earlier;
  bool earlier_writes;
};

/// A recorded access to shared memory.
struct Stamp {
  uint32_t epoch;  // 0: no access
  uint32_t clock;  // of its thread
  uint32_t place;  // return address of the access, relative to the module
  uint16_t thread;
  uint8_t size;
  bool is_atomic;
};

/// A byte of shared memory.
struct Cell {
  Stamp write;
  Stamp reads[2];      // since the last write
  uint32_t elsewhere;  // epoch at which the accessing block began when another block wrote; atomic
};

/// The last atomic operation of a thread.
struct AtomicUse {
  uint64_t time;
  uintptr_t address;
};

/// A word that threads wait for, and the clocks that a thread acquires from it.
struct SyncWord {
  uintptr_t address;
  std::vector<uint32_t> clocks;
};

/// A read of uninitialised shared memory. Reported once the next barrier shows that no write was merely late, which
/// would be a race.
struct UnwrittenRead {
  uintptr_t address = 0;  // 0: none
  std::size_t size;
  Access access;
  uint32_t thread;
  const void* place;
};

/// The state of the block that an OS thread runs.
struct Watch {
  Worker* worker;
  const Reachable* reachable;
  Range variables;
  uintptr_t dynamic;
  std::size_t dynamic_size;
  Cell* dynamic_cells;
  Cell* static_cells;

  // The running thread.
  uint32_t number;
  uintptr_t stack;

  UnwrittenRead unwritten;
  Suspicion late[4];  // of writes that are in progress
  uint32_t late_count;
  Suspicion readers[kMaxThreads];  // of the last read of each thread

  // The region found last, and its shadow or null.
  uintptr_t found_begin = 0, found_size = 0;
  const Shadow* found_shadow = nullptr;

  // Vector clocks. A barrier of the whole block, and a new block, begin an epoch; within an epoch each thread has a
  // clock that counts its synchronisations, and knows those of other threads as of then.
  uint32_t epoch;
  uint32_t first_epoch;  // of this block
  uint32_t clock[kMaxThreads];
  uint32_t of_lanes[kMaxThreads][kLanes];  // the clocks of its warp's lanes that a thread knows
  bool is_wide;                            // threads have synchronised across warps other than by a barrier of all
  std::vector<uint32_t> of_all;            // then: the clocks of all threads, one row for each
  std::vector<SyncWord> words;

  uint64_t atomic_time;
  AtomicUse atomics[kMaxThreads];

  uint32_t* known_by(uint32_t thread) { return &of_all[std::size_t{thread} * worker->threads_in_block]; }
};
constinit thread_local Watch* own_watch = nullptr;
/// `own_watch` while a block runs, otherwise null.
constinit thread_local Watch* watch = nullptr;

/// Null if memory is exhausted.
template <typename T>
T* try_map_zeros(std::size_t count) {
  void* memory =
      mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
}

template <typename T>
T* map_zeros(std::size_t count) {
  T* const memory = try_map_zeros<T>(count);
  if (memory == nullptr) std::abort();
  return memory;
}

/// Ends with the OS thread: each block of a cooperative launch has one.
struct WatchOwner {
  Watch* watch = nullptr;
  ~WatchOwner() {
    if (watch == nullptr) return;
    munmap(watch->dynamic_cells, kMaxDynamicShared * sizeof(Cell));
    munmap(watch->static_cells, (watch->variables.size + 1) * sizeof(Cell));
    watch->~Watch();
    munmap(watch, sizeof(Watch));
    own_watch = nullptr;
  }
};
thread_local WatchOwner watch_owner;

//
// Order
//

bool is_ordered(Watch& w, const Stamp& stamp) {
  if (stamp.epoch != w.epoch || stamp.thread == w.number) return true;
  if (stamp.thread / kLanes == w.number / kLanes && w.of_lanes[w.number][stamp.thread % kLanes] >= stamp.clock) {
    return true;
  }
  return w.is_wide && w.known_by(w.number)[stamp.thread] >= stamp.clock;
}

/// From now on clocks of other warps are tracked too; initially threads know those of their own warps.
void widen(Watch& w) {
  if (w.is_wide) return;
  w.is_wide = true;
  const uint32_t threads = w.worker->threads_in_block;
  w.of_all.assign(std::size_t{threads} * threads, 0);
  for (uint32_t i = 0; i < threads; ++i) {
    const uint32_t first = i / kLanes * kLanes;
    for (uint32_t j = 0; j < kLanes && first + j < threads; ++j) w.known_by(i)[first + j] = w.of_lanes[i][j];
  }
}

void join(uint32_t* into, const uint32_t* other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = into[i] > other[i] ? into[i] : other[i];
}

template <typename F>
void for_each_lane(uint32_t lanes, F&& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<uint32_t>(__builtin_ctz(lanes)));
}

void lanes_met(Worker& worker, uint32_t warp, uint32_t arrived, WarpOp) {
  Watch& w = *own_watch;
  const uint32_t first = warp * kLanes;
  alignas(64) uint32_t known[kLanes] = {};
  for_each_lane(arrived, [&](uint32_t lane) {
    uint32_t* const row = w.of_lanes[first + lane];
    row[lane] = w.clock[first + lane]++;
    join(known, row, kLanes);
  });
  for_each_lane(arrived, [&](uint32_t lane) { std::memcpy(w.of_lanes[first + lane], known, sizeof(known)); });
  if (!w.is_wide) return;
  const uint32_t threads = worker.threads_in_block;
  std::vector<uint32_t> all(threads, 0);
  for_each_lane(arrived, [&](uint32_t lane) { join(all.data(), w.known_by(first + lane), threads); });
  for_each_lane(arrived, [&](uint32_t lane) { all[first + lane] = known[lane]; });
  for_each_lane(arrived, [&](uint32_t lane) { std::copy(all.begin(), all.end(), w.known_by(first + lane)); });
}

void barrier_passed(Worker& worker, int id, uint32_t arrived);

void word_released(Worker& worker, Thread& thread, const void* address) {
  Watch& w = *own_watch;
  widen(w);
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto word = std::find_if(w.words.begin(), w.words.end(), [at](const SyncWord& each) { return each.address == at; });
  if (word == w.words.end()) word = w.words.insert(word, {at, std::vector<uint32_t>(worker.threads_in_block, 0)});
  uint32_t* const known = w.known_by(thread.number);
  known[thread.number] = w.clock[thread.number]++;
  join(word->clocks.data(), known, worker.threads_in_block);
}

void word_acquired(Worker& worker, Thread& thread, const void* address) {
  Watch& w = *own_watch;
  widen(w);
  for (const SyncWord& word : w.words) {
    if (word.address != reinterpret_cast<uintptr_t>(address)) continue;
    join(w.known_by(thread.number), word.clocks.data(), worker.threads_in_block);
  }
}

bool is_sync_word(const Watch& w, uintptr_t address) {
  return std::any_of(w.words.begin(), w.words.end(),
                     [address](const SyncWord& word) { return address - word.address < 8; });
}

/// Whether both threads have used one word with atomic operations since the earlier access.
bool met_at_atomic(const Watch& w, const Stamp& earlier) {
  const AtomicUse& theirs = w.atomics[earlier.thread];
  const AtomicUse& ours = w.atomics[w.number];
  return theirs.address == ours.address && theirs.time != 0 && ours.time > theirs.time;
}

//
// Reports
//

const char* verb(Access access) {
  return access == Access::kRead ? "reads" : access == Access::kWrite ? "writes" : "atomically updates";
}

/// "argument 2 of scale (out: float32[1000])"
void describe_region(const Region& region, char* text, std::size_t size) {
  const char* const separator = region.name[0] != '\0' && region.type[0] != '\0' ? ": " : "";
  if (region.argument >= 0) {
    std::snprintf(text, size, "argument %d of %s (%s%s%s)", region.argument + 1, region.function, region.name,
                  separator, region.type);
  } else if (region.name[0] != '\0') {
    std::snprintf(text, size, "%s (%s)", region.name, region.type);
  } else {
    std::snprintf(text, size, "%s", region.type);
  }
}

/// The distance and direction from memory at `begin`: "16 bytes past the end of"
uintptr_t describe_miss(uintptr_t at, std::size_t size, uintptr_t begin, uintptr_t end, char* text, std::size_t room) {
  if (at >= end) {
    if (at == end) {
      std::snprintf(text, room, "just past the end of");
    } else {
      std::snprintf(text, room, "%zu bytes past the end of", static_cast<std::size_t>(at - end));
    }
    return at - end;
  }
  if (at < begin) {
    std::snprintf(text, room, "%zu bytes before the start of", static_cast<std::size_t>(begin - at));
    return begin - at;
  }
  std::snprintf(text, room, "%zu of them past the end of", static_cast<std::size_t>(at + size - end));
  return 0;
}

/// "byte 12 of __shared__ tile (128 bytes)"
void describe_shared(const Watch& w, uintptr_t at, char* text, std::size_t size) {
  if (at - w.dynamic < kMaxDynamicShared) {
    std::snprintf(text, size, "byte %zu of the dynamic shared memory", static_cast<std::size_t>(at - w.dynamic));
    return;
  }
  const std::size_t offset = at - reinterpret_cast<uintptr_t>(w.variables.begin);
  const SharedVariable* const variable = this_module().shared_at(offset);
  if (variable == nullptr) {
    std::snprintf(text, size, "shared memory at 0x%zx", static_cast<std::size_t>(at));
  } else {
    std::snprintf(text, size, "byte %zu of __shared__ %s (%zu bytes)", offset - variable->begin, variable->name,
                  variable->size);
  }
}

/// Reports a pending read of uninitialised memory.
void report_unwritten(Watch& w) {
  const UnwrittenRead read = w.unwritten;
  if (read.address == 0) return;
  w.unwritten.address = 0;
  char variable[200], what[400];
  describe_shared(w, read.address, variable, sizeof(variable));
  std::snprintf(what, sizeof(what), "%s %zu bytes of uninitialised shared memory: %s", verb(read.access), read.size,
                variable);
  w.worker->current = &w.worker->threads[read.thread];
  fail_at(what, read.place);
}

/// Whether a kernel may have read an address near `at` from a tensor.
bool may_be_computed(const Reachable& reachable, uintptr_t at) {
  for (const Region& region : reachable.regions) {
    if (!region.may_hold_addresses) continue;
    const auto* const values = reinterpret_cast<const uint64_t*>(region.begin);
    const std::size_t count = std::min<std::size_t>((region.end - region.begin) / 8, 1 << 20);
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] > 1 << 20 && values[i] <= at && at - values[i] < 1u << 30) return true;
    }
  }
  return false;
}

constexpr uintptr_t kFarAway = uintptr_t{1} << 30;  // an access that misses a region by more does not belong to it

[[gnu::noinline]] void report_outside(Watch& w, uintptr_t at, std::size_t size, Access access, const void* place) {
  const Inside inside;
  if (is_in_heap(reinterpret_cast<const void*>(at), size)) return;
  report_unwritten(w);  // an uninitialised value may be the cause
  const Reachable& reachable = *w.reachable;
  char nearest[280] = "";
  char what[600];
  uintptr_t distance = kFarAway;
  const auto consider = [&](uintptr_t begin, uintptr_t end, const char* name) {
    char miss[64];
    const uintptr_t off = describe_miss(at, size, begin, end, miss, sizeof(miss));
    if (off >= distance) return;
    distance = off;
    std::snprintf(nearest, sizeof(nearest), "%s %s", miss, name);
  };
  for (const Region& region : reachable.regions) {
    char name[200];
    describe_region(region, name, sizeof(name));
    consider(region.begin, region.end, name);
  }
  char shared[80];
  std::snprintf(shared, sizeof(shared), "the block's %zu bytes of dynamic shared memory", w.worker->launch->smem);
  consider(w.dynamic, w.dynamic + w.worker->launch->smem, shared);
  const bool is_null = at < 1 << 16;
  if (!is_null) {
    if (!reachable.is_all_known && distance != 0) return;
    if (may_be_computed(reachable, at)) return;
  }
  std::snprintf(what, sizeof(what), "%s %zu bytes at 0x%zx, %s", verb(access), size, static_cast<std::size_t>(at),
                is_null              ? "which is at or near the null pointer"
                : nearest[0] == '\0' ? "outside of all memory of the launch"
                                     : nearest);
  fail_at(what, place);
}

[[gnu::noinline]] void report_race(Watch& w, uintptr_t at, std::size_t size, Access access, const Stamp& earlier,
                                   bool earlier_writes, const void* place) {
  if (is_sync_word(w, at) || met_at_atomic(w, earlier)) return;
  const Inside inside;
  char variable[200], there[260], what[560];
  describe_shared(w, at, variable, sizeof(variable));
  place_of(reinterpret_cast<const void*>(this_module().base + earlier.place), there, sizeof(there));
  const uint3 other = w.worker->threads[earlier.thread].index;
  std::snprintf(what, sizeof(what),
                "has a race: thread (%u, %u, %u) %s %s at %s, and with no barrier in between this thread %s %zu bytes "
                "there",
                other.x, other.y, other.z,
                earlier.is_atomic ? (earlier_writes ? "atomically updates" : "atomically reads")
                : earlier_writes  ? "writes"
                                  : "reads",
                variable, there, verb(access), size);
  fail_at(what, place);
}

//
// Global memory
//

constexpr std::size_t kMaxShadowed = std::size_t{64} << 20;  // bytes of one tensor; its records take 8 times that
constexpr uint16_t kLateEpoch = 0xffff;

/// Locks for cells, which several OS threads access.
uint8_t cell_locks[1 << 12];

class CellLock {
 public:
  explicit CellLock(uintptr_t word) : lock_(cell_locks[word / 64 % sizeof(cell_locks)]) {
    while (__atomic_test_and_set(&lock_, __ATOMIC_ACQUIRE)) sched_yield();
  }
  ~CellLock() { __atomic_clear(&lock_, __ATOMIC_RELEASE); }
  CellLock(const CellLock&) = delete;
  CellLock& operator=(const CellLock&) = delete;

 private:
  uint8_t& lock_;
};

void add_shadows(Reachable& reachable) {
  for (const Region& region : reachable.regions) {
    const uintptr_t begin = region.begin / 4 * 4, end = (region.end + 3) / 4 * 4;
    if (begin >= end || end - begin > kMaxShadowed) continue;
    if (!reachable.shadows.empty() && begin < reachable.shadows.back().end) {
      reachable.shadows.back().end = std::max(reachable.shadows.back().end, end);
    } else {
      reachable.shadows.push_back({begin, end, nullptr});
    }
  }
  for (Shadow& shadow : reachable.shadows) shadow.cells = try_map_zeros<GlobalCell>((shadow.end - shadow.begin) / 4);
  std::erase_if(reachable.shadows, [](const Shadow& shadow) { return shadow.cells == nullptr; });
}

const Shadow* find_shadow(const Reachable& reachable, uintptr_t at) {
  const auto next = std::upper_bound(reachable.shadows.begin(), reachable.shadows.end(), at,
                                     [](uintptr_t address, const Shadow& shadow) { return address < shadow.begin; });
  if (next == reachable.shadows.begin() || at >= std::prev(next)->end) return nullptr;
  return &*std::prev(next);
}

/// Records that the running block has synchronised with others.
void meet(const Watch& w, uint8_t how) {
  if (w.reachable->meetings == nullptr) return;
  __atomic_fetch_or(&w.reachable->meetings[w.worker->block_number], how, __ATOMIC_RELAXED);
}

bool is_ordered(Watch& w, const GlobalStamp& stamp) {
  const Reachable& reachable = *w.reachable;
  const auto meetings = [&](uint64_t block) { return __atomic_load_n(&reachable.meetings[block], __ATOMIC_RELAXED); };
  const uint64_t block = w.worker->block_number;
  if (stamp.block != static_cast<uint32_t>(block)) {
    return !reachable.compares_blocks || (meetings(stamp.block) != 0 && meetings(block) != 0);
  }
  if (stamp.thread == w.number || stamp.epoch == kLateEpoch || (meetings(block) & 2) != 0) return true;
  const Stamp here{w.first_epoch + stamp.epoch, stamp.clock, stamp.place, stamp.thread, 0, stamp.is_atomic != 0};
  return is_ordered(w, here) || met_at_atomic(w, here);
}

[[noreturn, gnu::noinline]] void report_global_race(Watch& w, uintptr_t word, std::size_t size, Access access,
                                                    uint32_t thread, const GlobalStamp& earlier, bool earlier_writes,
                                                    const void* place) {
  const Inside inside;
  char where[220] = "memory", there[260], what[760];
  for (const Region& region : w.reachable->regions) {
    if (word + 3 < region.begin || word >= region.end) continue;
    describe_region(region, where, sizeof(where));
    break;
  }
  place_of(reinterpret_cast<const void*>(this_module().base + earlier.place), there, sizeof(there));
  const Launch& launch = *w.worker->launch;
  const uint3 other = w.worker->threads[earlier.thread].index;
  const bool is_same_block = earlier.block == static_cast<uint32_t>(w.worker->block_number);
  char block[80] = "";
  if (!is_same_block) {
    std::snprintf(block, sizeof(block), " of block (%u, %u, %u)", earlier.block % launch.grid.x,
                  earlier.block / launch.grid.x % launch.grid.y, earlier.block / launch.grid.x / launch.grid.y);
  }
  std::snprintf(what, sizeof(what),
                "has a race: thread (%u, %u, %u)%s %s 0x%zx in %s at %s, and with %s this thread %s %zu bytes there",
                other.x, other.y, other.z, block,
                earlier.is_atomic ? "atomically updates"
                : earlier_writes  ? "writes"
                                  : "reads",
                static_cast<std::size_t>(word), where, there,
                is_same_block ? "no barrier in between" : "nothing that orders the blocks", verb(access), size);
  w.worker->current = &w.worker->threads[thread];
  fail_at(what, place);
}

[[noreturn]] void report_global_race(Watch& w, const Suspicion& found) {
  report_global_race(w, found.word, found.size, found.access, found.thread, found.earlier, found.earlier_writes,
                     found.place);
}

/// A write that races with an earlier read or write has changed something.
void confirm(Watch& w, const Suspicion& found) {
  if (found.earlier_writes) report_global_race(w, found);
  const GlobalStamp& read = found.earlier;
  if (__atomic_load_n(&w.reachable->writes_of(read.block, read.thread), __ATOMIC_RELAXED) != read.writes) {
    report_global_race(w, found);
  }
  if (read.block == static_cast<uint32_t>(w.worker->block_number)) w.readers[read.thread] = found;
}

/// Examines what potentially racing writes have changed.
void look_at_late_writes(Watch& w) {
  const uint32_t count = w.late_count;
  w.late_count = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Suspicion late = w.late[i];
    const auto* const now = reinterpret_cast<const unsigned char*>(late.word);
    const auto* const before = reinterpret_cast<const unsigned char*>(&late.value);
    for (unsigned byte = 0; byte < 4; ++byte) {
      if ((late.bytes >> byte & 1) == 0 || now[byte] == before[byte]) continue;
      confirm(w, late);
      break;
    }
  }
}

/// The bytes of a word that an access touches, as a mask.
uint32_t bytes_of(uintptr_t word, uintptr_t at, std::size_t size) {
  const uintptr_t first = at > word ? at - word : 0;
  const uintptr_t last = std::min<uintptr_t>(at + size - word, 4);
  return ((1u << last) - 1) & ~((1u << first) - 1);
}

[[gnu::noinline]] void access_global(Watch& w, const Shadow& shadow, uintptr_t at, std::size_t size, Access access,
                                     bool is_atomic, const void* place) {
  const Inside inside(*w.worker);
  GlobalStamp now{};
  now.block = static_cast<uint32_t>(w.worker->block_number);
  now.place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place) - this_module().base);
  now.clock = w.clock[w.number];
  uint32_t& writes = w.reachable->writes_of(w.worker->block_number, w.number);
  if (access != Access::kRead) {
    __atomic_fetch_add(&writes, 1, __ATOMIC_RELAXED);
    const Suspicion& found = w.readers[w.number];
    if (found.block_began == w.first_epoch) report_global_race(w, found);
  }
  now.writes = writes;
  now.epoch = static_cast<uint16_t>(std::min<uint32_t>(w.epoch - w.first_epoch, kLateEpoch));
  now.thread = static_cast<uint16_t>(w.number & (kMaxThreads - 1));
  now.is_atomic = is_atomic ? 1 : 0;
  const uintptr_t end = std::min(at + size, shadow.end);
  for (uintptr_t word = at / 4 * 4; word < end; word += 4) {
    GlobalCell& cell = shadow.cells[(word - shadow.begin) / 4];
    const uint32_t bytes = bytes_of(word, at, size);
    now.bytes = static_cast<uint16_t>(bytes & 15);
    GlobalStamp earlier{};
    bool earlier_writes = false;
    {
      const CellLock lock(word);
      const bool may_race_with_write =
          access == Access::kRead ? !is_atomic && !cell.write.is_atomic : !is_atomic || !cell.write.is_atomic;
      if ((cell.write.bytes & bytes) != 0 && may_race_with_write && !is_ordered(w, cell.write)) {
        earlier = cell.write;
        earlier_writes = true;
      } else if (access != Access::kRead && !is_atomic && (cell.read.bytes & bytes) != 0 && !is_ordered(w, cell.read)) {
        earlier = cell.read;
      }
      if (access != Access::kRead) {
        // A potentially racing write counts if it changes something, which ends the launch.
        if (earlier.bytes == 0) {
          cell.write = now;
          cell.read = {};
        }
      } else if (!is_atomic && (cell.read.bytes == 0 || is_ordered(w, cell.read))) {
        cell.read = now;
      }
    }
    if (earlier.bytes == 0) continue;
    Suspicion found{};
    found.word = word;
    found.bytes = bytes;
    found.size = size;
    found.access = access;
    found.block_began = w.first_epoch;
    found.thread = w.number;
    found.place = place;
    found.earlier = earlier;
    found.earlier_writes = earlier_writes;
    if (access == Access::kRead) {
      if (w.readers[w.number].block_began != w.first_epoch) w.readers[w.number] = found;
      continue;
    }
    if (is_atomic) report_global_race(w, found);
    if (w.late_count == sizeof(w.late) / sizeof(w.late[0])) continue;
    Suspicion& late = w.late[w.late_count++];
    late = found;
    for (unsigned byte = 0; byte < 4; ++byte) {
      if ((bytes >> byte & 1) == 0) continue;
      reinterpret_cast<unsigned char*>(&late.value)[byte] = reinterpret_cast<const unsigned char*>(word)[byte];
    }
  }
}

//
// Accesses
//

Stamp stamp_of(const Watch& w, std::size_t size, bool is_atomic, const void* place) {
  return {w.epoch,
          w.clock[w.number],
          static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place) - this_module().base),
          static_cast<uint16_t>(w.number),
          static_cast<uint8_t>(size < 255 ? size : 255),
          is_atomic};
}

void access_shared(Watch& w, Cell* cells, uintptr_t at, std::size_t size, Access access, bool is_atomic,
                   const void* place) {
  const Stamp now = stamp_of(w, size, is_atomic, place);
  for (std::size_t i = 0; i < size; ++i) {
    Cell& cell = cells[i];
    const bool is_unwritten =
        cell.write.epoch < w.first_epoch && __atomic_load_n(&cell.elsewhere, __ATOMIC_RELAXED) < w.first_epoch;
    if (access != Access::kWrite && is_unwritten && w.unwritten.address == 0) {
      w.unwritten = {at + i, size, access, w.number, place};
    }
    if (!is_ordered(w, cell.write) && !(is_atomic && cell.write.is_atomic)) {
      report_race(w, at + i, size, access, cell.write, true, place);
    }
    if (access == Access::kRead) {
      Stamp& read = cell.reads[0];
      (is_ordered(w, read) ? read : cell.reads[1]) = now;
      continue;
    }
    for (Stamp& read : cell.reads) {
      if (!is_ordered(w, read) && !(is_atomic && read.is_atomic)) {
        report_race(w, at + i, size, access, read, false, place);
      }
      read.epoch = 0;
    }
    cell.write = now;
  }
}

/// Whether the bytes at this offset of the thread-local storage belong to a block; reports accesses between
/// `__shared__` variables.
bool is_shared_variable(std::size_t offset, std::size_t size, Access access, const void* place) {
  const Module& module = this_module();
  if (module.is_own(offset)) return false;
  const SharedVariable* const variable = module.shared_at(offset);
  if (module.shared_count == 0 || (variable != nullptr && offset + size <= variable->begin + variable->size)) {
    return true;
  }
  // Between two variables: past the end of the previous one.
  const SharedVariable* before = variable;
  for (std::size_t i = 0; before == nullptr && i < module.shared_count; ++i) {
    const SharedVariable& each = module.shared[i];
    if (each.begin <= offset && offset - each.begin - each.size < 64) before = &each;
  }
  if (before == nullptr) return false;
  char miss[64], what[300];
  describe_miss(offset, size, before->begin, before->begin + before->size, miss, sizeof(miss));
  std::snprintf(what, sizeof(what), "%s %zu bytes, %s __shared__ %s (%zu bytes)", verb(access), size, miss,
                before->name, before->size);
  fail_at(what, place);
}

/// An access to the shared memory of another block of the cluster.
[[gnu::noinline]] void access_peer(const Worker& worker, const Worker& peer, uintptr_t at, std::size_t size,
                                   Access access, const void* place) {
  const bool may_be_new = __atomic_load_n(&worker.cluster->phases, __ATOMIC_ACQUIRE) == 0;
  const bool has_ended = __atomic_load_n(&peer.live, __ATOMIC_ACQUIRE) == 0;
  if (may_be_new || has_ended) {
    char what[300];
    std::snprintf(what, sizeof(what), "%s %zu bytes of the shared memory of block %u of its cluster, which %s",
                  verb(access), size, peer.rank,
                  may_be_new ? "may not have started: no cluster barrier came before"
                             : "has ended: no cluster barrier kept it resident");
    fail_at(what, place);
  }
  const Watch& there = *static_cast<const Watch*>(peer.checker);
  Cell* cells = there.dynamic_cells;
  std::size_t offset = at - there.dynamic;
  if (offset < kMaxDynamicShared) {
    if (offset + size > there.dynamic_size) {
      char miss[64], what[300];
      describe_miss(at, size, there.dynamic, there.dynamic + there.dynamic_size, miss, sizeof(miss));
      std::snprintf(what, sizeof(what),
                    "%s %zu bytes, %s the %zu bytes of dynamic shared memory of block %u of its cluster", verb(access),
                    size, miss, there.dynamic_size, peer.rank);
      fail_at(what, place);
    }
  } else {
    cells = there.static_cells;
    offset = at - reinterpret_cast<uintptr_t>(there.variables.begin);
    if (!is_shared_variable(offset, size, access, place)) return;
  }
  for (std::size_t i = 0; i < size && access != Access::kRead; ++i) {
    __atomic_store_n(&cells[offset + i].elsewhere, there.first_epoch, __ATOMIC_RELAXED);
  }
}

/// The region that contains the byte, or null.
const Region* find_region(const Reachable& reachable, uintptr_t at, std::size_t size) {
  // Regions may overlap: any of those that begin at or before it.
  auto next = std::upper_bound(reachable.regions.begin(), reachable.regions.end(), at,
                               [](uintptr_t address, const Region& region) { return address < region.begin; });
  while (next != reachable.regions.begin()) {
    --next;
    if (at + size <= next->end) return &*next;
  }
  return nullptr;
}

[[gnu::noinline]] void access_elsewhere(Watch& w, uintptr_t at, std::size_t size, Access access, bool is_atomic,
                                        bool is_volatile, const void* place) {
  const uintptr_t in_dynamic = at - w.dynamic;
  if (in_dynamic < kMaxDynamicShared) {
    if (in_dynamic + size > w.dynamic_size) return report_outside(w, at, size, access, place);
    return access_shared(w, w.dynamic_cells + in_dynamic, at, size, access, is_atomic, place);
  }
  const uintptr_t in_variables = at - reinterpret_cast<uintptr_t>(w.variables.begin);
  if (in_variables < w.variables.size) {
    if (!is_shared_variable(in_variables, size, access, place)) return;
    return access_shared(w, w.static_cells + in_variables, at, size, access, is_atomic, place);
  }
  if (w.worker->cluster->blocks > 1) {
    const Worker* const peer = owner_of(*w.worker->cluster, reinterpret_cast<const void*>(at));
    if (peer != nullptr) return access_peer(*w.worker, *peer, at, size, access, place);
  }
  if (const Region* const region = find_region(*w.reachable, at, size)) {
    w.found_begin = region->begin;
    w.found_size = region->end - region->begin;
    w.found_shadow = find_shadow(*w.reachable, region->begin);
    if (w.found_shadow != nullptr && !is_volatile) {
      access_global(w, *w.found_shadow, at, size, access, is_atomic, place);
    }
    return;
  }
  const Module& module = this_module();
  for (int i = 0; i < module.segments; ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(module.data[i].begin);
    if (at - begin < module.data[i].size) return;
  }
  report_outside(w, at, size, access, place);
}

inline __attribute__((always_inline)) void check(const volatile void* address, std::size_t size, Access access,
                                                 const void* place, bool is_atomic = false, bool is_volatile = false) {
  Watch* const w = watch;
  if (w == nullptr) [[likely]] {
    return;
  }
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at - w->stack < kStackBytes) return;
  if (size == 0) return;
  if (w->late_count > 0) look_at_late_writes(*w);
  if (at - w->found_begin < w->found_size && at - w->found_begin + size <= w->found_size) {
    if (w->found_shadow == nullptr || is_volatile) return;
    return access_global(*w, *w->found_shadow, at, size, access, is_atomic, place);
  }
  access_elsewhere(*w, at, size, access, is_atomic, is_volatile, place);
}

/// Before an atomic operation.
void check_atomic(const volatile void* address, std::size_t size, Access access, const void* place) {
  Watch* const w = watch;
  if (w == nullptr) return;
  check(address, size, access, place, true);
  if (!is_shared(const_cast<const void*>(address))) meet(*w, 1);
  w->atomics[w->number] = {++w->atomic_time, reinterpret_cast<uintptr_t>(address)};
}

//
// Hooks of a launch
//

void launch_begins(Launch& launch) {
  this_module();
  auto* const reachable = new Reachable;
  if (notes != nullptr) reachable->regions = notes->regions;
  reachable->compares_blocks = !launch.cooperative && count_of(launch.cluster) <= 1;
  reachable->blocks = launch.blocks;
  reachable->meetings = try_map_zeros<uint8_t>(launch.blocks);
  reachable->threads = launch.blocks * count_of(launch.block);
  reachable->writes = try_map_zeros<uint32_t>(reachable->threads);
  reachable->is_all_known = notes != nullptr && notes->depth > 0 && !notes->has_unknown;
  pthread_mutex_lock(&allocations_mutex);
  reachable->regions.insert(reachable->regions.end(), allocations.begin(), allocations.end());
  pthread_mutex_unlock(&allocations_mutex);
  std::sort(reachable->regions.begin(), reachable->regions.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  if (reachable->meetings != nullptr && reachable->writes != nullptr) add_shadows(*reachable);
  launch.checker = reachable;
}

void launch_ends(Launch& launch) {
  auto* const reachable = static_cast<Reachable*>(launch.checker);
  for (const Shadow& shadow : reachable->shadows) {
    munmap(shadow.cells, (shadow.end - shadow.begin) / 4 * sizeof(GlobalCell));
  }
  if (reachable->meetings != nullptr) munmap(reachable->meetings, reachable->blocks);
  if (reachable->writes != nullptr) munmap(reachable->writes, reachable->threads * sizeof(uint32_t));
  delete reachable;
}

void block_begins(Worker& worker) {
  if (own_watch == nullptr) {
    own_watch = map_zeros<Watch>(1);
    new (&own_watch->of_all) std::vector<uint32_t>;
    new (&own_watch->words) std::vector<SyncWord>;
    own_watch->variables = shared_variables();
    own_watch->dynamic_cells = map_zeros<Cell>(kMaxDynamicShared);
    own_watch->static_cells = map_zeros<Cell>(own_watch->variables.size + 1);
    for (uint32_t& clock : own_watch->clock) clock = 1;
    watch_owner.watch = own_watch;
  }
  Watch& w = *own_watch;
  w.worker = &worker;
  worker.checker = &w;
  w.reachable = static_cast<const Reachable*>(worker.launch->checker);
  w.dynamic = reinterpret_cast<uintptr_t>(worker.dynamic_shared);
  w.dynamic_size = worker.launch->smem;
  w.found_begin = w.found_size = 0;
  w.found_shadow = nullptr;
  w.late_count = 0;
  w.first_epoch = ++w.epoch;
  w.is_wide = false;
  w.words.clear();
  w.unwritten.address = 0;
  w.atomic_time = 0;
  std::memset(w.atomics, 0, worker.threads_in_block * sizeof(AtomicUse));
  watch = &w;
}

void block_ends(Worker&) {
  watch = nullptr;
}

void thread_changes(Worker&, Thread& thread) {
  own_watch->number = thread.number;
  own_watch->stack = reinterpret_cast<uintptr_t>(thread.stack);
}

void thread_exits(Worker& worker, Thread&) {
  look_at_late_writes(*own_watch);
  if (worker.live == 0) report_unwritten(*own_watch);
}

void barrier_passed(Worker& worker, int id, uint32_t arrived) {
  Watch& w = *own_watch;
  report_unwritten(w);
  look_at_late_writes(w);
  if (arrived == worker.live) {
    ++w.epoch;
    return;
  }
  widen(w);
  std::vector<uint32_t> known(worker.threads_in_block, 0);
  const auto for_each_at_barrier = [&](auto&& f) {
    for (uint32_t i = 0; i < worker.threads_in_block; ++i) {
      const Thread& thread = worker.threads[i];
      if (thread.state == State::kBarrier && thread.barrier_id == id) f(i);
    }
  };
  for_each_at_barrier([&](uint32_t i) {
    w.known_by(i)[i] = w.clock[i]++;
    join(known.data(), w.known_by(i), worker.threads_in_block);
  });
  for_each_at_barrier([&](uint32_t i) { std::copy(known.begin(), known.end(), w.known_by(i)); });
}

void lane_is_inactive(Worker& worker, Thread& reader, uint32_t lane) {
  char what[160];
  const uint32_t source = reader.number / kLanes * kLanes + lane;
  const char* const why = source >= worker.threads_in_block                ? "is not in the block"
                          : worker.threads[source].state == State::kExited ? "has ended"
                                                                           : "does not take part";
  std::snprintf(what, sizeof(what), "shuffles from lane %u of the warp (thread %u of the block), which %s", lane,
                source, why);
  worker.current = &reader;
  fail_at(what, reader.where);
}

void memory_allocated(const void* memory, std::size_t size) {
  Region region;
  region.begin = region.data = reinterpret_cast<uintptr_t>(memory);
  region.end = region.begin + size;
  region.may_hold_addresses = true;
  std::snprintf(region.type, sizeof(region.type), "memory of %zu bytes from cudaMalloc", size);
  pthread_mutex_lock(&allocations_mutex);
  allocations.push_back(region);
  pthread_mutex_unlock(&allocations_mutex);
}

void memory_freed(const void* memory) {
  pthread_mutex_lock(&allocations_mutex);
  std::erase_if(allocations, [&](const Region& region) { return region.begin == reinterpret_cast<uintptr_t>(memory); });
  pthread_mutex_unlock(&allocations_mutex);
}

__attribute__((constructor)) void set_hooks() {
  hooks.launch_begin = &launch_begins;
  hooks.launch_end = &launch_ends;
  hooks.block_begin = &block_begins;
  hooks.block_end = &block_ends;
  hooks.thread_changed = &thread_changes;
  hooks.thread_exited = &thread_exits;
  hooks.barrier_completed = &barrier_passed;
  hooks.warp_completed = &lanes_met;
  hooks.inactive_lane = &lane_is_inactive;
  hooks.released = &word_released;
  hooks.acquired = &word_acquired;
  hooks.allocated = &memory_allocated;
  hooks.freed = &memory_freed;
}

/// "float32[2, 3]", as torch prints it.
void describe_type(const DLTensor& tensor, char* text, std::size_t size) {
  const auto bits = static_cast<int>(tensor.dtype.bits) * tensor.dtype.lanes;
  static constexpr const char* kNames[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const unsigned code = tensor.dtype.code;
  int wrote = code < 6    ? std::snprintf(text, size, "%s%d[", kNames[code], bits)
              : code == 6 ? std::snprintf(text, size, "bool[")
                          : std::snprintf(text, size, "float%d[", bits);
  auto at = static_cast<std::size_t>(wrote);
  for (int i = 0; i < tensor.ndim && at + 24 < size; ++i) {
    wrote = std::snprintf(text + at, size - at, i == 0 ? "%lld" : ", %lld", static_cast<long long>(tensor.shape[i]));
    at += static_cast<std::size_t>(wrote);
  }
  std::snprintf(text + at, size - at, "]");
}

}  // namespace

void note_tensor(const DLTensor& tensor, const char* function, int index) {
  if (notes == nullptr) notes = new Notes;
  Region region;
  region.data = reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  // The lowest and the highest element relative to the first one.
  std::int64_t low = 0, high = 0, packed = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return;
    const std::int64_t stride = tensor.strides != nullptr ? tensor.strides[i] : packed;
    (stride < 0 ? low : high) += (tensor.shape[i] - 1) * stride;
    packed *= tensor.shape[i];
  }
  const std::int64_t bits = std::int64_t{tensor.dtype.bits} * tensor.dtype.lanes;
  region.begin = region.data + static_cast<uintptr_t>(low * bits / 8);
  region.end = region.data + static_cast<uintptr_t>(((high + 1) * bits + 7) / 8);
  region.may_hold_addresses = bits == 64 && (tensor.dtype.code == kDLInt || tensor.dtype.code == kDLUInt);
  region.function = function;
  region.argument = function != nullptr ? index : -1;
  if (function == nullptr) {
    // Noted at each use: an owned tensor.
    for (const Region& known : notes->regions) {
      if (known.begin == region.begin && known.end == region.end) return;
    }
  }
  describe_type(tensor, region.type, sizeof(region.type));
  notes->regions.push_back(region);
}

void note_name(const void* data, const char* name) {
  if (notes == nullptr) return;
  for (auto region = notes->regions.rbegin(); region != notes->regions.rend(); ++region) {
    if (region->data != reinterpret_cast<uintptr_t>(data) || region->name[0] != '\0') continue;
    std::snprintf(region->name, sizeof(region->name), "%s", name);
    return;
  }
}

void note_unknown() {
  if (notes != nullptr) notes->has_unknown = true;
}

std::size_t enter_call() {
  if (notes == nullptr) notes = new Notes;
  ++notes->depth;
  return notes->regions.size() << 1 | (notes->has_unknown ? 1 : 0);
}

void leave_call(std::size_t state) {
  --notes->depth;
  notes->regions.resize(state >> 1);
  notes->has_unknown = (state & 1) != 0;
}

}  // namespace kjit_sim

//
// The functions that instrumented code calls
//

using kjit_sim::Access;
using kjit_sim::check;
using kjit_sim::check_atomic;

#define KJIT_CALLER __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}

void* __tsan_memcpy(void* target, const void* source, std::size_t size) {
  check(source, size, Access::kRead, KJIT_CALLER);
  check(target, size, Access::kWrite, KJIT_CALLER);
  return std::memcpy(target, source, size);
}
void* __tsan_memmove(void* target, const void* source, std::size_t size) {
  check(source, size, Access::kRead, KJIT_CALLER);
  check(target, size, Access::kWrite, KJIT_CALLER);
  return std::memmove(target, source, size);
}
void* __tsan_memset(void* target, int value, std::size_t size) {
  check(target, size, Access::kWrite, KJIT_CALLER);
  return std::memset(target, value, size);
}

#define KJIT_ACCESS(name, access, size, is_volatile, ...)          \
  void __tsan_##name(void* address __VA_OPT__(, ) __VA_ARGS__) {   \
    check(address, size, access, KJIT_CALLER, false, is_volatile); \
  }
KJIT_ACCESS(read_range, Access::kRead, size, false, std::size_t size)
KJIT_ACCESS(write_range, Access::kWrite, size, false, std::size_t size)
#define KJIT_ACCESSES_OF(prefix, bytes)                                   \
  KJIT_ACCESS(prefix##read##bytes, Access::kRead, bytes, false)           \
  KJIT_ACCESS(prefix##write##bytes, Access::kWrite, bytes, false)         \
  KJIT_ACCESS(prefix##volatile_read##bytes, Access::kRead, bytes, true)   \
  KJIT_ACCESS(prefix##volatile_write##bytes, Access::kWrite, bytes, true) \
  void __tsan_##prefix##read_write##bytes(void* address) {                \
    check(address, bytes, Access::kRead, KJIT_CALLER);                    \
    check(address, bytes, Access::kWrite, KJIT_CALLER);                   \
  }
#define KJIT_ACCESSES(bytes) \
  KJIT_ACCESSES_OF(, bytes)  \
  KJIT_ACCESSES_OF(unaligned_, bytes)
KJIT_ACCESSES(1)
KJIT_ACCESSES(2)
KJIT_ACCESSES(4)
KJIT_ACCESSES(8)
KJIT_ACCESSES(16)
#undef KJIT_ACCESSES
#undef KJIT_ACCESSES_OF
#undef KJIT_ACCESS

// All are sequentially consistent, whatever order was requested.
#define KJIT_UPDATE(bits, T, name, builtin)                           \
  T __tsan_atomic##bits##_##name(volatile T* address, T value, int) { \
    check_atomic(address, sizeof(T), Access::kAtomic, KJIT_CALLER);   \
    return builtin(address, value, __ATOMIC_SEQ_CST);                 \
  }
#define KJIT_EXCHANGE(bits, T, strength)                                                                       \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile T* address, T* expected, T value, int, int) { \
    check_atomic(address, sizeof(T), Access::kAtomic, KJIT_CALLER);                                            \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
  }
#define KJIT_ATOMICS(bits, T)                                                                          \
  T __tsan_atomic##bits##_load(const volatile T* address, int) {                                       \
    check_atomic(address, sizeof(T), Access::kRead, KJIT_CALLER);                                      \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                    \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int) {                                \
    check_atomic(address, sizeof(T), Access::kWrite, KJIT_CALLER);                                     \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                \
  }                                                                                                    \
  KJIT_UPDATE(bits, T, exchange, __atomic_exchange_n)                                                  \
  KJIT_UPDATE(bits, T, fetch_add, __atomic_fetch_add)                                                  \
  KJIT_UPDATE(bits, T, fetch_sub, __atomic_fetch_sub)                                                  \
  KJIT_UPDATE(bits, T, fetch_and, __atomic_fetch_and)                                                  \
  KJIT_UPDATE(bits, T, fetch_or, __atomic_fetch_or)                                                    \
  KJIT_UPDATE(bits, T, fetch_xor, __atomic_fetch_xor)                                                  \
  KJIT_UPDATE(bits, T, fetch_nand, __atomic_fetch_nand)                                                \
  KJIT_EXCHANGE(bits, T, strong)                                                                       \
  KJIT_EXCHANGE(bits, T, weak)                                                                         \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* address, T expected, T value, int, int) {   \
    check_atomic(address, sizeof(T), Access::kAtomic, KJIT_CALLER);                                    \
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                                   \
  }
KJIT_ATOMICS(8, std::uint8_t)
KJIT_ATOMICS(16, std::uint16_t)
KJIT_ATOMICS(32, std::uint32_t)
KJIT_ATOMICS(64, std::uint64_t)
#undef KJIT_ATOMICS
#undef KJIT_EXCHANGE
#undef KJIT_UPDATE

void __tsan_atomic_thread_fence(int) {
  if (kjit_sim::watch != nullptr) kjit_sim::meet(*kjit_sim::watch, 2);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
