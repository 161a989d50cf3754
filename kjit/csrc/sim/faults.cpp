// Signals of kernels. An invalid memory access, a division by zero or an abort() raises one on the OS thread that runs
// the block. Its handler aborts the block as `fail` does: it switches back to the stack that started the block, where
// the report is written. The stacks of the block's threads are abandoned as they are.
//
// Endless blocks are found by a timer for each OS thread, which counts its CPU time and sends it a signal every second
// at most: neither a debugging session nor a busy machine makes a block overdue. The handler aborts the block if that
// is safe, which it is if an instruction of the kernel itself is interrupted. Otherwise the next call of the simulator
// does, or the next signal.

#include "faults.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "places.h"
#include "signals.h"

#ifndef sigev_notify_thread_id  // its name in the manual pages
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace kjit_sim {

namespace {

constexpr double kDefaultTimeout = 120;  // seconds

pid_t this_thread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

//
// The OS threads that run blocks of this module. A table by thread id, because a handler must not access thread-local
// variables on threads that never used the module: that may allocate memory.
//

struct Entry {
  pid_t thread;  // 0: never used, -1: released
  Worker* worker;
};
constexpr int kMaxEntries = 1 << 14;
Entry entries[kMaxEntries];

int enter(Worker& w) {
  const pid_t thread = this_thread();
  for (int i = 0; i < kMaxEntries; ++i) {
    Entry& entry = entries[(thread + i) % kMaxEntries];
    pid_t found = __atomic_load_n(&entry.thread, __ATOMIC_RELAXED);
    if (found > 0 ||
        !__atomic_compare_exchange_n(&entry.thread, &found, thread, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      continue;
    }
    __atomic_store_n(&entry.worker, &w, __ATOMIC_RELEASE);
    return (thread + i) % kMaxEntries;
  }
  return -1;
}

void leave(int entry) {
  if (entry < 0) return;
  __atomic_store_n(&entries[entry].worker, nullptr, __ATOMIC_RELEASE);
  __atomic_store_n(&entries[entry].thread, -1, __ATOMIC_RELEASE);
}

/// The worker of this OS thread, if it is in a launch of this module.
Worker* running_worker() {
  const pid_t thread = this_thread();
  for (int i = 0; i < kMaxEntries; ++i) {
    const Entry& entry = entries[(thread + i) % kMaxEntries];
    const pid_t found = __atomic_load_n(&entry.thread, __ATOMIC_ACQUIRE);
    if (found == thread) return __atomic_load_n(&entry.worker, __ATOMIC_ACQUIRE);
    if (found == 0) return nullptr;
  }
  return nullptr;
}

//
// Addresses of instructions
//

/// The segments of the module's machine code.
struct Code {
  Range segments[4];
  int count = 0;

  bool has(std::uintptr_t address) const {
    for (int i = 0; i < count; ++i) {
      if (address - reinterpret_cast<std::uintptr_t>(segments[i].begin) < segments[i].size) return true;
    }
    return false;
  }
};
Code code;

void find_code() {
  if (code.count > 0) return;
  Code found;
  with_loaded_module([&](const dl_phdr_info& info) {
    for_each_segment(info, PT_LOAD, [&](Range memory, const auto& segment) {
      if ((segment.p_flags & PF_X) != 0 && found.count < 4) found.segments[found.count++] = memory;
    });
  });
  code = found;
}

struct Registers {
  std::uintptr_t instruction = 0;
  std::uintptr_t stack = 0;
  std::uintptr_t caller = 0;  // for a leaf function, its return address if it is in a register
  Fault::Access access = Fault::Access::kUnknown;
};

Registers registers_of(void* context) {
  Registers found;
  [[maybe_unused]] const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  constexpr int kPageFault = 14;
  found.instruction = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
  found.stack = static_cast<std::uintptr_t>(machine.gregs[REG_RSP]);
  if (machine.gregs[REG_TRAPNO] == kPageFault) {
    const auto error = machine.gregs[REG_ERR];
    found.access = (error & 16) != 0  ? Fault::Access::kCall
                   : (error & 2) != 0 ? Fault::Access::kWrite
                                      : Fault::Access::kRead;
  }
#elif defined(__aarch64__)
  found.instruction = machine.pc;
  found.stack = machine.sp;
  found.caller = machine.regs[30];
#endif
  return found;
}

constexpr int kMaxPlaces = sizeof(Fault::places) / sizeof(Fault::places[0]);

void add_place(Fault& fault, std::uintptr_t address) {
  if (fault.place_count < kMaxPlaces && code.has(address)) {
    fault.places[fault.place_count++] = reinterpret_cast<const void*>(address);
  }
}

/// Whether the bytes before the address look like a call.
bool is_behind_call([[maybe_unused]] std::uintptr_t address) {
#if defined(__x86_64__)
  // call rel32; call r/m64 with no displacement, one of a byte, one of four.
  const auto* const end = reinterpret_cast<const unsigned char*>(address);
  const auto is_indirect = [](const unsigned char* at) { return at[0] == 0xff && (at[1] >> 3 & 7) == 2; };
  return end[-5] == 0xe8 || is_indirect(end - 2) || is_indirect(end - 3) || is_indirect(end - 6) ||
         is_indirect(end - 7);
#else
  return true;
#endif
}

/// Finds the interrupted instruction and its callers, on an intact stack.
void unwind(Fault& fault, const Worker& w) {
  struct Walk {
    Fault& fault;
    std::uintptr_t low, size;  // of the thread's stack and the memory below it
  } walk{fault, reinterpret_cast<std::uintptr_t>(w.current->stack) - guard_bytes(), kStackBytes + guard_bytes()};
  fault.place_count = 0;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        const Walk& walk = *static_cast<const Walk*>(data);
        int is_before = 0;
        const std::uintptr_t address = _Unwind_GetIPInfo(context, &is_before);
        // The handler's own frames are on another stack.
        if (_Unwind_GetCFA(context) - walk.low <= walk.size) add_place(walk.fault, address + (is_before != 0 ? 1 : 0));
        return walk.fault.place_count < kMaxPlaces ? _URC_NO_REASON : _URC_END_OF_STACK;
      },
      &walk);
}

/// Finds the place of a fault: the instruction, if it is in the module; then values near the top of the stack that look
/// like return addresses, because a fault in a function of the C library belongs to its caller.
void find_places(Fault& fault, const Registers& registers, const Worker& w) {
  fault.place_count = 0;
  const auto given = reinterpret_cast<std::uintptr_t>(w.calls_library_at);
  if (given != 0) return add_place(fault, given);
  add_place(fault, registers.instruction + 1);
  if (fault.place_count == 0) add_place(fault, registers.caller);
  const auto low = reinterpret_cast<std::uintptr_t>(w.current->stack);
  std::uintptr_t at = registers.stack;
  if (at - low >= kStackBytes) return;
  constexpr int kMaxWords = 64;
  for (int i = 0; i < kMaxWords && at + sizeof(at) <= low + kStackBytes; ++i, at += sizeof(at)) {
    const auto word = *reinterpret_cast<const std::uintptr_t*>(at);
    if (code.has(word - 8) && is_behind_call(word)) add_place(fault, word);
  }
}

//
// Signals
//

/// Switches back to the stack that started the block.
[[noreturn]] void leave_from_handler(Worker& w, const ucontext_t& context) {
  pthread_sigmask(SIG_SETMASK, &context.uc_sigmask, nullptr);
  leave_block(w);
}

/// Handles a signal that a thread of a kernel has raised.
[[noreturn]] void take_fault(Worker& w, int signal, const siginfo_t& info, void* context) {
  Fault& fault = w.fault;
  const Registers registers = registers_of(context);
  const Thread& thread = *w.current;
  fault.kind = Fault::Kind::kSignal;
  fault.signal = signal;
  fault.code = info.si_code;
  fault.address = signal == SIGABRT ? 0 : reinterpret_cast<std::uintptr_t>(info.si_addr);
  fault.access = registers.access;
  const auto low = reinterpret_cast<std::uintptr_t>(thread.stack);
  const std::uintptr_t below = low - guard_bytes();
  fault.is_overflow = signal != SIGABRT && fault.address - below < guard_bytes();
  if (signal == SIGABRT || fault.is_overflow) {
    unwind(fault, w);
  } else {
    find_places(fault, registers, w);
  }
  fault.thread = w.current;
  w.is_inside = true;
  leave_from_handler(w, *static_cast<const ucontext_t*>(context));
}

double timeout();

void set_clock(timer_t clock, double seconds) {
  itimerspec time{};
  time.it_interval.tv_sec = static_cast<time_t>(seconds);
  time.it_interval.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  time.it_value = time.it_interval;
  timer_settime(clock, 0, &time, nullptr);
}

/// The timer of an OS thread in a launch.
struct Clock {
  Worker* worker;
  timer_t timer;
  double period;              // seconds
  std::uint64_t block;        // the block at its last expiry, by the number of blocks begun
  double seconds = 0;         // CPU time since then
  double timeout;             // 0: none
  bool is_impatient = false;  // it expires more often
};
constinit thread_local Clock clock_of_thread{};

void on_clock(Clock& clock, void* context) {
  Worker& w = *clock.worker;
  if (clock.block != w.blocks_begun) {
    clock.block = w.blocks_begun;
    clock.seconds = 0;
  } else {
    clock.seconds += clock.period;
  }
  const bool is_stopped = __atomic_load_n(&w.launch->failed, __ATOMIC_ACQUIRE);
  if (!is_stopped && (clock.timeout <= 0 || clock.seconds < clock.timeout)) return;
  if (w.current == nullptr) return;
  w.is_overdue = true;
  if (!clock.is_impatient) {
    clock.is_impatient = true;
    set_clock(clock.timer, 0.02);
  }
  const Registers registers = registers_of(context);
  if (w.is_inside || !code.has(registers.instruction)) return;
  w.fault.kind = is_stopped ? Fault::Kind::kStopped : Fault::Kind::kOverdue;
  unwind(w.fault, w);
  w.fault.thread = w.current;
  w.is_inside = true;
  leave_from_handler(w, *static_cast<const ucontext_t*>(context));
}

/// Aborts the block that a signal is about, if it is of this module; otherwise returns false.
bool take(int signal, siginfo_t* info, void* context) {
  Worker* const w = running_worker();
  if (w == nullptr) return false;
  if (signal == SIGURG) {
    const bool is_ours = info->si_code == SI_TIMER && info->si_value.sival_ptr == &clock_of_thread;
    if (is_ours) on_clock(clock_of_thread, context);
    return is_ours;
  }
  // abort() signals its own thread.
  const bool is_own = signal == SIGABRT ? info->si_code == SI_TKILL && info->si_pid == getpid() : info->si_code > 0;
  if (is_own && w->current != nullptr) take_fault(*w, signal, *info, context);
  return false;
}

double timeout() {
  const char* const text = std::getenv("KJIT_SIM_TIMEOUT");
  if (text == nullptr || *text == '\0') return kDefaultTimeout;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return *end == '\0' && value >= 0 && value < 1e9 ? value : kDefaultTimeout;
}

}  // namespace

bool has_timeout() {
  return timeout() > 0;
}

LaunchGuard::LaunchGuard() {
  find_code();
  begin_signals(&take);
}

LaunchGuard::~LaunchGuard() {
  end_signals();
}

FaultGuard::FaultGuard(Worker& w) {
  std::fegetenv(&w.floating_point);
  stack_t stack{};
  stack.ss_sp = w.signal_stack;
  stack.ss_size = sizeof(w.signal_stack);
  has_stack_ = sigaltstack(&stack, &stack_before_) == 0;
  if (has_stack_) entry_ = enter(w);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kSignals) sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, &mask_before_);

  Clock& clock = clock_of_thread;
  clock = {};
  clock.worker = &w;
  clock.timeout = timeout();
  clock.period = clock.timeout > 0 && clock.timeout < 4 ? clock.timeout / 4 : 1;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGURG;
  event.sigev_value.sival_ptr = &clock;
  event.sigev_notify_thread_id = this_thread();
  has_clock_ = entry_ >= 0 && timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &clock_) == 0;
  if (has_clock_) {
    clock.timer = clock_;
    set_clock(clock_, clock.period);
  }
}

FaultGuard::~FaultGuard() {
  if (has_clock_) timer_delete(clock_);
  leave(entry_);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  if (has_stack_) sigaltstack(&stack_before_, nullptr);
}

void leave_overdue(Worker& w, const void* place) {
  Fault& fault = w.fault;
  const bool is_stopped = __atomic_load_n(&w.launch->failed, __ATOMIC_ACQUIRE);
  fault.kind = is_stopped ? Fault::Kind::kStopped : Fault::Kind::kOverdue;
  fault.places[0] = place;
  fault.place_count = 1;
  fault.thread = w.current;
  leave_block(w);
}

namespace {

/// The first place in the op's own source, if there is one.
const void* best_place(const Fault& fault) {
  char text[300];
  for (int i = 0; i < fault.place_count; ++i) {
    if (place_of(fault.places[i], text, sizeof(text))) return fault.places[i];
  }
  return fault.place_count > 0 ? fault.places[0] : nullptr;
}

const char* verb_of(Fault::Access access) {
  switch (access) {
    case Fault::Access::kRead:
      return "reads from";
    case Fault::Access::kWrite:
      return "writes to";
    case Fault::Access::kCall:
      return "calls the function at";
    default:
      return "reads or writes";
  }
}

/// The error of a thread of kernel K: "an illegal memory access: kernel K writes to ...".
void describe_signal(const Fault& fault, const char* kernel, char* text, std::size_t size) {
  const auto address = static_cast<std::size_t>(fault.address);
  constexpr std::uintptr_t kNearNull = 1 << 16;
  switch (fault.signal) {
    case SIGFPE:
      std::snprintf(text, size, "kernel %s divides an integer by zero (or the smallest one by -1)", kernel);
      return;
    case SIGILL:
      std::snprintf(text, size, "kernel %s stops at an invalid instruction (__brkpt(), a trap)", kernel);
      return;
    case SIGABRT:
      std::snprintf(text, size, "kernel %s was aborted by the C or C++ library", kernel);
      return;
    default:
      break;
  }
  if (fault.is_overflow) {
    std::snprintf(
        text, size,
        "a stack overflow: the variables of a thread of kernel %s, and the calls that it makes, need more than "
        "%zu KiB (a GPU has 512 KiB for a thread)",
        kernel, kStackBytes / 1024);
    return;
  }
  // The system reports no address for a non-canonical one, nor for a misaligned vector access, which Clang's
  // -fsanitize=alignment does not find in copies of whole classes.
  const bool is_unknown = fault.signal == SIGSEGV && fault.code == SI_KERNEL;
  char where[120];
  if (is_unknown) {
#ifdef __clang__
    std::snprintf(where, sizeof(where), "uses a vector at a misaligned address, or an invalid address");
#else
    std::snprintf(where, sizeof(where), "uses an invalid address");
#endif
  } else {
    std::snprintf(where, sizeof(where), "%s 0x%zx, %s", verb_of(fault.access), address,
                  fault.address < kNearNull   ? "which is at or near the null pointer"
                  : fault.signal == SIGBUS    ? "which is not usable memory"
                  : fault.code == SEGV_ACCERR ? "which is not accessible that way"
                                              : "which is not mapped");
  }
  std::snprintf(text, size, "an illegal memory access: kernel %s %s", kernel, where);
}

}  // namespace

void report_fault(Worker& w) {
  std::fesetenv(&w.floating_point);
  Launch& launch = *w.launch;
  const Fault& fault = w.fault;
  const uint3 block = w.block_index;
  const uint3 thread = fault.thread->index;
  char kernel[200];
  if (fault.kind == Fault::Kind::kStopped && !launch.is_overdue) return;  // the cause is reported already
  name_of_kernel(launch.kernel, kernel, sizeof(kernel));
  if (fault.kind == Fault::Kind::kSignal) {
    char what[600];
    describe_signal(fault, kernel, what, sizeof(what));
    char line[300] = "an unknown place";
    if (const void* const place = best_place(fault)) place_of(place, line, sizeof(line));
    return report(launch, "%s, at %s (block (%u, %u, %u), thread (%u, %u, %u))", what, line, block.x, block.y, block.z,
                  thread.x, thread.y, thread.z);
  }
  // The place of each thread of the block; the running one was interrupted.
  fault.thread->where = best_place(fault);
  char threads[1400];
  describe_threads(w, threads, sizeof(threads));
  if (fault.kind == Fault::Kind::kStopped) {
    return report_more(launch, "\n block (%u, %u, %u) has not ended either:%s", block.x, block.y, block.z, threads);
  }
  const std::uint64_t begun = __atomic_load_n(&launch.next_block, __ATOMIC_RELAXED);
  char others[200] = "";
  if (begun < launch.blocks && !launch.cooperative && launch.cluster.x * launch.cluster.y * launch.cluster.z <= 1) {
    std::snprintf(others, sizeof(others),
                  "\n blocks from number %llu on have not started: one that waits for a later one needs a cooperative "
                  "launch, or a cluster",
                  static_cast<unsigned long long>(begun));
  }
  launch.is_overdue = true;
  report(launch, "kernel %s does not end: block (%u, %u, %u) has run for %g seconds (KJIT_SIM_TIMEOUT)%s%s", kernel,
         block.x, block.y, block.z, timeout(), threads, others);
}

}  // namespace kjit_sim
