// One-time initialisation, once for a call site or once for each key at a call site, with the result kept.
//
//   const int sms = init_once([] { return count_sms(); });
//   Plan& plan = init_once(std::pair{rows, columns}, [&] { return make_plan(rows, columns); });
//   static CacheMap<int, Plan> plans;  Plan& p = plans.get_cached(device, [&] { return make_plan(device); });
//
// A factory that throws leaves nothing behind and runs again at the next call. References stay valid for the life of
// the process. A hit takes no lock.
//
// Keys are searched linearly: meant for a handful (devices, shapes of one model), not for thousands. That is also why
// this header needs neither <mutex> nor <unordered_map>, which cost more to compile than a small kernel.

#pragma once

#include <kjit/utils.h>
#include <pthread.h>

#include <concepts>
#include <type_traits>
#include <utility>

namespace kjit::host {

namespace details {

/// A mutex that reports recursive locking instead of deadlocking.
class FactoryMutex {
 public:
  FactoryMutex() noexcept = default;
  FactoryMutex(const FactoryMutex&) = delete;
  FactoryMutex& operator=(const FactoryMutex&) = delete;
  /// A `PanicError` if this thread holds it already: a factory has requested the value that it is making.
  void lock();
  void unlock() noexcept;

 private:
  pthread_mutex_t mutex_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
};

/// Holds a mutex during its lifetime; does nothing if `kThreadSafe` is false.
template <bool kThreadSafe>
class FactoryLock {
 public:
  explicit FactoryLock(FactoryMutex& mutex) : mutex_(mutex) {
    if constexpr (kThreadSafe) mutex_.lock();
  }
  ~FactoryLock() {
    if constexpr (kThreadSafe) mutex_.unlock();
  }
  FactoryLock(const FactoryLock&) = delete;
  FactoryLock& operator=(const FactoryLock&) = delete;

 private:
  FactoryMutex& mutex_;
};

/// An entry of a `CacheMap`.
template <typename Key, typename Value>
struct CacheEntry {
  CacheEntry* next;
  Key key;
  Value value;
};
template <typename Key>
struct CacheEntry<Key, void> {
  CacheEntry* next;
  Key key;
};

}  // namespace details

/// A value for each key, made by the first call that requests it. `Value` may be void: then a factory is only run once
/// for each key.
///
/// `Key` needs copying and `==`: numbers, enums, pairs, tuples, and structs with a defaulted `==` qualify. With
/// `kThreadSafe`, any number of threads may call at once; factories run under a lock, so threads that request missing
/// keys wait for each other.
template <typename Key, typename Value, bool kThreadSafe = true>
class CacheMap {
 public:
  CacheMap() = default;
  CacheMap(const CacheMap&) = delete;
  CacheMap& operator=(const CacheMap&) = delete;
  ~CacheMap() {
    while (newest_ != nullptr) delete std::exchange(newest_, newest_->next);
  }

  /// The value for `key`, made by `factory` if there is none yet.
  ///
  /// Exceptions of `factory` are passed on, and nothing is kept. A factory that calls this map again is a `PanicError`
  /// (undefined if `kThreadSafe` is false).
  template <typename Fn, typename KeyArg>
  std::add_lvalue_reference_t<Value> get_cached(const KeyArg& key, Fn&& factory) {
    Entry* entry = find(key);
    if (entry == nullptr) [[unlikely]] {
      entry = insert(key, std::forward<Fn>(factory));
    }
    if constexpr (!std::is_void_v<Value>) return entry->value;
  }

 private:
  using Entry = details::CacheEntry<Key, Value>;

  template <typename KeyArg>
  Entry* find(const KeyArg& key) const {
    // Entries are complete before they are reachable, and never change or disappear.
    for (Entry* entry = __atomic_load_n(&newest_, __ATOMIC_ACQUIRE); entry != nullptr; entry = entry->next) {
      if (entry->key == key) return entry;
    }
    return nullptr;
  }

  template <typename Fn, typename KeyArg>
  Entry* insert(const KeyArg& key, Fn&& factory) {
    const details::FactoryLock<kThreadSafe> lock(mutex_);
    Entry* entry = find(key);
    if (entry != nullptr) return entry;  // another thread was faster
    if constexpr (std::is_void_v<Value>) {
      std::forward<Fn>(factory)();
      entry = new Entry{newest_, Key(key)};
    } else {
      // The value is constructed in place, so that it need not be movable.
      entry = new Entry{newest_, Key(key), std::forward<Fn>(factory)()};
    }
    __atomic_store_n(&newest_, entry, __ATOMIC_RELEASE);
    return entry;
  }

  details::FactoryMutex mutex_;
  Entry* newest_ = nullptr;
};

/// Keys for which an action has run: `set.get_cached(key, action)` runs `action` the first time.
template <typename Key, bool kThreadSafe = true>
using CacheSet = CacheMap<Key, void, kThreadSafe>;

/// The value that `factory` returned for `key` at this call site: it runs once for each key.
///
/// Call sites are distinguished by the type of `factory`: every lambda has its own. Call sites that share a type (a
/// function pointer, `std::function`) share their values unless each has its own `Tag`. A lambda in a template is a
/// different one for each set of template arguments.
template <typename Tag = void, bool kThreadSafe = true, typename Key, std::invocable Fn>
std::add_lvalue_reference_t<std::decay_t<std::invoke_result_t<Fn>>> init_once(Key&& key, Fn&& factory) {
  static CacheMap<std::decay_t<Key>, std::decay_t<std::invoke_result_t<Fn>>, kThreadSafe> cache;
  return cache.get_cached(key, std::forward<Fn>(factory));
}

/// The value that `factory` returned at this call site: it runs once. Always thread-safe, and later calls cost one
/// load. For `Tag` see above.
template <typename Tag = void, std::invocable Fn>
std::add_lvalue_reference_t<std::decay_t<std::invoke_result_t<Fn>>> init_once(Fn&& factory) {
  using Value = std::decay_t<std::invoke_result_t<Fn>>;
  if constexpr (std::is_void_v<Value>) {
    static const bool done = (std::forward<Fn>(factory)(), true);
    static_cast<void>(done);
  } else {
    static Value value = std::forward<Fn>(factory)();
    return value;
  }
}

}  // namespace kjit::host

#ifndef KJIT_PRECOMPILED
#include <kjit/once.cpp>
#endif
