// Exports for test_once_header.py.

#include <kjit/once.h>
#include <kjit/tensor.h>

#include <thread>
#include <tuple>
#include <utility>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT

inline int next_number() {
  static int number = 0;
  return ++number;
}

/// Two call sites with the same text: each has a value of its own, which is kept.
bool one_value_for_each_place() {
  const auto first = [] { return &init_once([] { return next_number(); }); };
  const auto second = [] { return &init_once([] { return next_number(); }); };
  int* a = first();
  int* b = second();
  return a != b && *a != *b && first() == a && second() == b;
}

bool one_value_for_each_key() {
  const auto of = [](std::int64_t key) -> std::int64_t& { return init_once(key, [key] { return 10 * key; }); };
  std::int64_t& three = of(3);
  bool right = three == 30;
  for (std::int64_t key = 0; key < 100; ++key) right = right && of(key) == 10 * key;
  three = -1;  // a reference to the stored value
  return right && of(3) == -1 && &of(3) == &three;
}

struct Shape {
  std::int64_t rows, columns;
  bool operator==(const Shape&) const = default;
};

bool keys_of_several_parts() {
  int runs = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int i = 0; i < 3; ++i) {
      init_once(std::pair{i, 2.5}, [&] { return ++runs; });
      init_once(std::tuple{i, std::pair{i, true}, 'x'}, [&] { ++runs; });
      init_once(Shape{i, 4}, [&] { return ++runs; });
    }
  }
  return runs == 9;
}

bool an_action_runs_once_for_each_key() {
  int runs = 0;
  CacheSet<int> done;
  for (int i = 0; i < 10; ++i) done.get_cached(i % 3, [&] { ++runs; });
  for (int i = 0; i < 10; ++i) init_once([&] { ++runs; });
  return runs == 4;
}

bool a_factory_that_throws_is_tried_again() {
  int tries = 0;
  CacheMap<int, int> map;
  const auto fail_twice = [&] {
    if (++tries < 3) Panic("try ", tries);
    return 7;
  };
  int value = 0, caught = 0;
  for (int i = 0; i < 5; ++i) {
    try {
      value = map.get_cached(1, fail_twice);
    } catch (const PanicError&) {
      ++caught;
    }
  }
  const auto at_one_place = [&] { return init_once([&] { return fail_twice(); }); };
  tries = 0;
  for (int i = 0; i < 5; ++i) {
    try {
      value += at_one_place();
    } catch (const PanicError&) {
      ++caught;
    }
  }
  return caught == 4 && tries == 3 && value == 7 + 3 * 7;
}

struct Immovable {
  explicit Immovable(int number) : value(number) {}
  Immovable(const Immovable&) = delete;
  Immovable& operator=(const Immovable&) = delete;
  int value;
};

bool a_value_need_not_be_movable() {
  CacheMap<int, Immovable> map;
  return map.get_cached(2, [] { return Immovable(5); }).value == 5 && init_once([] { return Immovable(6); }).value == 6;
}

inline int with_function(int (*factory)()) {
  return init_once<void>(factory);
}
template <typename Tag>
int with_tag(int (*factory)()) {
  return init_once<Tag>(factory);
}

bool tags_keep_places_apart_that_share_a_type() {
  struct A {};
  struct B {};
  const auto one = [] { return 1; };
  const auto two = [] { return 2; };
  return with_function(one) == 1 && with_function(two) == 1 && with_tag<A>(two) == 2 && with_tag<B>(one) == 1;
}

void a_factory_that_asks_for_its_own_value() {
  CacheMap<int, int> map;
  map.get_cached(1, [&] { return map.get_cached(2, [] { return 3; }); });
}

bool it_may_do_without_a_lock() {
  CacheMap<int, int, false> map;
  const int nested = map.get_cached(1, [] { return 4; });
  return nested == 4 && map.get_cached(1, [] { return 5; }) == 4 && init_once<void, false>(1, [] { return 6; }) == 6;
}

/// Many threads request the same few keys at once: each factory runs once, and all threads see its value.
std::int64_t runs_among_threads(std::int64_t threads, std::int64_t keys) {
  CacheMap<std::int64_t, std::int64_t> map;
  std::int64_t runs = 0;  // written under the map's lock only
  std::int64_t wrong = 0;
  const auto work = [&] {
    for (std::int64_t repeat = 0; repeat < 50; ++repeat) {
      for (std::int64_t key = 0; key < keys; ++key) {
        const std::int64_t value = map.get_cached(key, [&] {
          ++runs;
          return key * key;
        });
        if (value != key * key) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
      }
    }
  };
  auto* workers = new std::thread[static_cast<std::size_t>(threads)];
  for (std::int64_t i = 0; i < threads; ++i) workers[i] = std::thread(work);
  for (std::int64_t i = 0; i < threads; ++i) workers[i].join();
  delete[] workers;
  return wrong == 0 ? runs : -1;
}

}  // namespace
