// Each module has its own simulator, but signal handlers belong to the process. The first module that runs a kernel
// provides them for all, and stays in the process; the others find them through tvm-ffi's table of global functions.
//
// The handlers are installed while any kernel runs. A signal that no module claims is passed to the previous handler.
// Other code may install a handler in front of ours meanwhile, which chains to ours if it is well-behaved: then ours
// stays installed, and only passes signals on.

#include "signals.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace kjit_sim {

namespace {

/// A module that runs kernels; never freed, because a handler may be using it.
struct Module {
  Taker take = nullptr;  // atomic; null again when the module is unloaded
  Module* next = nullptr;
};

/// The state that modules share. Other versions of kjit use another name.
struct Signals {
  void (*add)(Module& module);
  void (*begin)();
  void (*end)();
};
constexpr const char kName[] = "kjit.simulator.signals.1";

//
// The module that provides the handlers
//

struct Handlers {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  int launches = 0;
  Module* modules = nullptr;  // atomic
  // The previous handlers: several, if others were installed in between.
  static constexpr int kMaxBefore = 8;
  struct sigaction before[kSignalCount][kMaxBefore];
  int count[kSignalCount] = {};  // atomic
};
Handlers handlers;

/// The nesting depth of `hand_on` on an OS thread.
struct Visit {
  pid_t thread;
  int depth;
};
constexpr int kMaxVisits = 32;
Visit visits[kMaxVisits];

pid_t this_thread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

Visit* visit_of(pid_t thread) {
  for (Visit& visit : visits) {
    if (__atomic_load_n(&visit.thread, __ATOMIC_ACQUIRE) == thread) return &visit;
  }
  for (Visit& visit : visits) {
    pid_t none = 0;
    if (__atomic_compare_exchange_n(&visit.thread, &none, thread, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      visit.depth = 0;
      return &visit;
    }
  }
  return nullptr;
}

/// As if our handler were not installed.
void hand_on(int index, siginfo_t* info, void* context) {
  const int signal = kSignals[index];
  Visit* const visit = visit_of(this_thread());
  const int depth = visit != nullptr ? visit->depth++ : 0;
  const int at = __atomic_load_n(&handlers.count[index], __ATOMIC_ACQUIRE) - 1 - depth;
  struct sigaction action{};
  if (at >= 0) action = handlers.before[index][at];
  const bool has_info = (action.sa_flags & SA_SIGINFO) != 0;
  const bool is_ignored = !has_info && action.sa_handler == SIG_IGN;
  const bool was_sent = info->si_code <= 0;
  if ((!has_info && action.sa_handler == SIG_DFL) || (is_ignored && !was_sent)) {
    if (signal != SIGURG) {  // ignored by default
      std::signal(signal, SIG_DFL);
      // A failing instruction faults again; a sent signal has to be sent again.
      if (was_sent) syscall(SYS_tgkill, getpid(), this_thread(), signal);
    }
  } else if (has_info) {
    action.sa_sigaction(signal, info, context);
  } else if (!is_ignored) {
    action.sa_handler(signal);
  }
  if (visit != nullptr && --visit->depth == 0) __atomic_store_n(&visit->thread, 0, __ATOMIC_RELEASE);
}

void handle(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  bool is_taken = false;
  for (Module* module = __atomic_load_n(&handlers.modules, __ATOMIC_ACQUIRE); module != nullptr && !is_taken;
       module = module->next) {
    const Taker take = __atomic_load_n(&module->take, __ATOMIC_ACQUIRE);
    is_taken = take != nullptr && take(signal, info, context);
  }
  if (!is_taken) {
    int index = 0;
    while (kSignals[index] != signal) ++index;
    hand_on(index, info, context);
  }
  errno = error;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &handle;
}

void add_module(Module& module) {
  pthread_mutex_lock(&handlers.mutex);
  module.next = handlers.modules;
  __atomic_store_n(&handlers.modules, &module, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&handlers.mutex);
}

void begin_launch_anywhere() {
  pthread_mutex_lock(&handlers.mutex);
  if (handlers.launches++ == 0) {
    struct sigaction ours{};
    ours.sa_sigaction = &handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    for (int i = 0; i < kSignalCount; ++i) {
      struct sigaction now;
      if (sigaction(kSignals[i], nullptr, &now) != 0 || is_ours(now) || handlers.count[i] == Handlers::kMaxBefore) {
        continue;
      }
      handlers.before[i][handlers.count[i]] = now;
      __atomic_store_n(&handlers.count[i], handlers.count[i] + 1, __ATOMIC_RELEASE);
      sigaction(kSignals[i], &ours, nullptr);
    }
  }
  pthread_mutex_unlock(&handlers.mutex);
}

void end_launch_anywhere() {
  pthread_mutex_lock(&handlers.mutex);
  if (--handlers.launches == 0) {
    for (int i = 0; i < kSignalCount; ++i) {
      struct sigaction now;
      if (sigaction(kSignals[i], nullptr, &now) != 0 || !is_ours(now)) continue;
      const int last = handlers.count[i] - 1;
      sigaction(kSignals[i], &handlers.before[i][last], nullptr);
      __atomic_store_n(&handlers.count[i], last, __ATOMIC_RELEASE);
    }
  }
  pthread_mutex_unlock(&handlers.mutex);
}

const Signals own{&add_module, &begin_launch_anywhere, &end_launch_anywhere};

/// Keeps this module loaded for the life of the process.
void pin() {
  Dl_info module;
  if (dladdr(reinterpret_cast<const void*>(&handlers), &module) != 0) {
    dlopen(module.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

//
// All modules
//

int tell(void* signals, const TVMFFIAny*, std::int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFIOpaquePtr;
  result->v_ptr = signals;
  return 0;
}

const Signals* known_signals() {
  const TVMFFIByteArray name{kName, sizeof(kName) - 1};
  TVMFFIObjectHandle function = nullptr;
  if (TVMFFIFunctionGetGlobal(&name, &function) != 0 || function == nullptr) return nullptr;
  TVMFFIAny result{};
  const int error = TVMFFIFunctionCall(function, nullptr, 0, &result);
  TVMFFIObjectDecRef(function);
  return error == 0 ? static_cast<const Signals*>(result.v_ptr) : nullptr;
}

const Signals* find_signals() {
  if (const Signals* const known = known_signals()) return known;
  const TVMFFIByteArray name{kName, sizeof(kName) - 1};
  TVMFFIObjectHandle function = nullptr;
  pin();
  if (TVMFFIFunctionCreate(const_cast<Signals*>(&own), &tell, nullptr, &function) != 0) return &own;
  const bool is_ours = TVMFFIFunctionSetGlobal(&name, function, 0) == 0;
  TVMFFIObjectDecRef(function);
  if (is_ours) return &own;
  // Another module was faster.
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error != nullptr) TVMFFIObjectDecRef(error);
  const Signals* const known = known_signals();
  return known != nullptr ? known : &own;
}

const Signals& signals() {
  static const Signals* const found = find_signals();
  return *found;
}

/// Finds them while this module is loaded: tvm-ffi's table of global functions has no lock, but the dynamic loader's
/// lock is held, so that no other module does the same.
[[gnu::constructor]] void find_at_load() {
  signals();
}

/// Registers this module with the others.
struct Membership {
  Module* module = nullptr;
  ~Membership() {
    if (module != nullptr) __atomic_store_n(&module->take, nullptr, __ATOMIC_RELEASE);
  }
};
Membership membership;
pthread_mutex_t membership_mutex = PTHREAD_MUTEX_INITIALIZER;

}  // namespace

void begin_signals(Taker take) {
  const Signals& shared = signals();
  pthread_mutex_lock(&membership_mutex);
  if (membership.module == nullptr) {
    membership.module = new (std::malloc(sizeof(Module))) Module{take};
    shared.add(*membership.module);
  }
  pthread_mutex_unlock(&membership_mutex);
  shared.begin();
}

void end_signals() {
  signals().end();
}

}  // namespace kjit_sim
