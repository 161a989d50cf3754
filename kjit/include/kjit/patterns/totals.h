// Totals of pattern rowwise: what the elements of a row are reduced to. `term` of the math returns that of one element.
//
//   KJIT_MATH float term(float x) const { return x * x; }                                 // a number: the sum
//   KJIT_MATH Max<float> term(float x) const { return {abs(x)}; }
//   KJIT_MATH ArgMax<float> term(float x, Column column) const { return {x, column}; }
//   KJIT_MATH OnlineSoftmax<float> term(float x) const { return {x}; }
//   KJIT_MATH Both<float, Max<float>> term(float x) const { return {x, {x}}; }            // two at once
//
// A custom total is a struct of trivially copyable members with a `combine` function. Its default value is the identity
// of `combine`, and the total of an empty row. The order of the reduction is unspecified: `combine` is associative and
// commutative, up to rounding.
//
//   struct Range {
//     float low = kHighest<float>, high = kLowest<float>;
//     KJIT_MATH Range combine(Range other) const {
//       return {other.low < low ? other.low : low, other.high > high ? other.high : high};
//     }
//   };

#pragma once

#include <kjit/patterns/operands.h>

#include <kjit/detail/unroll.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#ifndef __CUDACC__
#include <bit>
#include <cmath>
#endif

namespace kjit {

/// The index of an element in its row.
struct Column {
  std::int64_t index;

  constexpr operator std::int64_t() const { return index; }
};

/// The smallest and the largest value of a type: infinities, if it has them.
template <typename S>
inline constexpr S kLowest =
    std::numeric_limits<S>::has_infinity ? -std::numeric_limits<S>::infinity() : std::numeric_limits<S>::lowest();
template <typename S>
inline constexpr S kHighest =
    std::numeric_limits<S>::has_infinity ? std::numeric_limits<S>::infinity() : std::numeric_limits<S>::max();

// CUDA's overloaded math names, for plain C++.
#ifndef __CUDACC__
using std::abs;
using std::exp;
using std::log;
using std::sqrt;
// A template, so that the one for double that glibc declares since 2.42 takes precedence: calls are not ambiguous.
template <std::floating_point S>
S rsqrt(S x) {
  return 1 / std::sqrt(x);
}
#endif

namespace details {

/// `exp(x)` to a few ulps, in the fewest instructions, for `x` of at most 0.
template <typename S>
KJIT_MATH S exp_of_difference(S x) {
#if defined(__CUDA_ARCH__) && !KJIT_SIM
  if constexpr (std::is_same_v<S, float>) return __expf(x);
#endif
#ifdef __CUDACC__
  return ::exp(x);
#else
  if constexpr (std::is_same_v<S, float>) {
    // 2^n * e^r with |r| <= ln(2) / 2. A loop of this vectorises; one of calls of std::exp does not.
    constexpr float kRounds = 0x1.8p23f;  // added to a small number, its lowest bits are the nearest integer
    const float shifted = x * 1.44269504f + kRounds, n = shifted - kRounds;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln(2) in two parts; n times the first is exact
    const float high = ((r * (1.0f / 5040) + 1.0f / 720) * r + 1.0f / 120) * r + 1.0f / 24;  // Taylor series
    const float power = (((high * r + 1.0f / 6) * r + 0.5f) * r + 1) * r + 1;
    const float scale = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u);
    return x < -87.3f ? 0.0f : power * scale;  // below, the result is subnormal
  } else {
    return std::exp(x);
  }
#endif
}

#ifndef __CUDACC__
/// Reduces the first `kLeft` of `values` by pairwise halving, vectorised.
template <int kLeft, typename T, int kCount, typename Combine>
[[gnu::always_inline]] inline T combined_in_halves(T (&values)[kCount], const Combine& combine) {
  if constexpr (kLeft == 1) {
    return values[0];
  } else {
    constexpr int kHalf = (kLeft + 1) / 2;
    for (int i = 0; i < kLeft / 2; ++i) values[i] = combine(values[i], values[i + kHalf]);
    return combined_in_halves<kHalf>(values, combine);
  }
}
#endif

/// The sum of several values.
template <int kCount, typename S>
KJIT_MATH S sum_of(S (&values)[kCount]) {
#ifdef __CUDACC__
  S sum = values[0];
  KJIT_UNROLL
  for (int i = 1; i < kCount; ++i) sum += values[i];
  return sum;
#else
  S copies[kCount];
  for (int i = 0; i < kCount; ++i) copies[i] = values[i];
  return combined_in_halves<kCount>(copies, [](S one, S other) { return one + other; });
#endif
}

/// `a / b` to two ulps, in few instructions, for `b` of at most 2^126.
template <typename S>
KJIT_MATH S quotient(S a, S b) {
#if defined(__CUDA_ARCH__) && !KJIT_SIM
  if constexpr (std::is_same_v<S, float>) return __fdividef(a, b);
#endif
  return a / b;
}

/// Whether a total can combine several values at once.
template <typename Total>
concept CombinesAll = requires(const Total (&totals)[2]) { Total::combine_all(totals); };

}  // namespace details

/// The largest value; NaN if there is one.
template <typename S>
struct Max {
  S value = kLowest<S>;

  KJIT_MATH Max combine(Max other) const {
    return {other.value > value || other.value != other.value ? other.value : value};
  }
};
template <typename S>
Max(S) -> Max<S>;

/// The smallest value; NaN if there is one.
template <typename S>
struct Min {
  S value = kHighest<S>;

  KJIT_MATH Min combine(Min other) const {
    return {other.value < value || other.value != other.value ? other.value : value};
  }
};
template <typename S>
Min(S) -> Min<S>;

/// The largest value and the first index that has it, in rows of fewer than 2^31 elements; NaN counts as larger than
/// all other values.
template <typename S>
struct ArgMax {
  S value = kLowest<S>;
  std::int32_t index = kHighest<std::int32_t>;

  ArgMax() = default;
  KJIT_MATH ArgMax(S largest, std::int64_t place) : value(largest), index(static_cast<std::int32_t>(place)) {}

  KJIT_MATH ArgMax combine(ArgMax other) const {
    const bool is_nan = value != value, other_is_nan = other.value != other.value;
    const bool is_equal = other.value == value || (is_nan && other_is_nan);
    const bool is_larger = other.value > value || (other_is_nan && !is_nan);
    return is_larger || (is_equal && other.index < index) ? other : *this;
  }

  /// Several at once: first the largest value, then its index.
  template <int kCount>
  KJIT_MATH static ArgMax combine_all(const ArgMax (&terms)[kCount]) {
    ArgMax all = terms[0];
#ifdef __CUDACC__
    KJIT_UNROLL
    for (int i = 1; i < kCount; ++i) {
      all.value = terms[i].value > all.value || terms[i].value != terms[i].value ? terms[i].value : all.value;
    }
    all.index = kHighest<std::int32_t>;
    KJIT_UNROLL
    for (int i = 0; i < kCount; ++i) {  // a NaN is the largest, and equals no other value
      const bool has_it = terms[i].value == all.value || terms[i].value != terms[i].value;
      all.index = has_it && terms[i].index < all.index ? terms[i].index : all.index;
    }
#else
    S values[kCount];
    std::int32_t places[kCount];
    for (int i = 0; i < kCount; ++i) values[i] = terms[i].value;
    all.value = details::combined_in_halves<kCount>(
        values, [](S one, S other) { return other > one || other != other ? other : one; });
    for (int i = 0; i < kCount; ++i) {
      const bool has_it = terms[i].value == all.value || terms[i].value != terms[i].value;
      places[i] = has_it ? terms[i].index : kHighest<std::int32_t>;
    }
    all.index = details::combined_in_halves<kCount>(
        places, [](std::int32_t one, std::int32_t other) { return other < one ? other : one; });
#endif
    return all;
  }
};

/// The number of values, their mean, and the sum of squared differences from it (Chan, Golub and LeVeque, "Updating
/// Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).
template <typename S>
struct Welford {
  S count = 0, mean = 0, squares = 0;

  Welford() = default;
  KJIT_MATH Welford(S value) : count(1), mean(value) {}
  KJIT_MATH Welford(S number, S their_mean, S their_squares)
      : count(number), mean(their_mean), squares(their_squares) {}

  /// The population variance; for the sample variance divide `squares` by `count - 1`.
  KJIT_MATH S variance() const { return squares / count; }

  KJIT_MATH Welford combine(Welford other) const {
    const S both = count + other.count, difference = other.mean - mean;
    const S share = both > 0 ? details::quotient(other.count, both) : S{0};
    return {both, mean + difference * share, squares + other.squares + difference * difference * count * share};
  }

  /// Several at once, with one division: first the mean of all, then the differences from it.
  template <int kCount>
  KJIT_MATH static Welford combine_all(const Welford (&terms)[kCount]) {
    S counts[kCount], sums[kCount];
    KJIT_UNROLL
    for (int i = 0; i < kCount; ++i) {
      counts[i] = terms[i].count;
      sums[i] = terms[i].count * terms[i].mean;
    }
    const S number = details::sum_of<kCount>(counts), sum = details::sum_of<kCount>(sums);
    const S middle = number > 0 ? sum / number : S{0};
    KJIT_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const S difference = terms[i].mean - middle;
      sums[i] = terms[i].squares + terms[i].count * difference * difference;
    }
    return {number, middle, details::sum_of<kCount>(sums)};
  }

  /// Over all lanes, with one division.
  template <typename Lanes>
  KJIT_MATH Welford combine_lanes(const Lanes& lanes) const {
    const S number = lanes.sum(count);
    const S middle = number > 0 ? details::quotient(lanes.sum(count * mean), number) : S{0};
    return {number, middle, lanes.sum(squares + count * (mean - middle) * (mean - middle))};
  }
};

/// The largest value, and the sum of `exp(value - max)`: softmax in one pass (Milakov and Gimelshein, "Online
/// normalizer calculation for softmax", 2018). If a row has a NaN, or consists of infinities of one sign, all results
/// computed from it are NaN, as in torch.softmax.
template <typename S>
struct OnlineSoftmax {
  S max = kLowest<S>;
  S sum = 0;

  OnlineSoftmax() = default;
  KJIT_MATH OnlineSoftmax(S value) : max(value), sum(1) {}
  KJIT_MATH OnlineSoftmax(S largest, S scaled_sum) : max(largest), sum(scaled_sum) {}

  /// The softmax of `value`: `exp(value - max) / sum`, where `inverse_sum` is `1 / sum`.
  KJIT_MATH S share(S value, S inverse_sum) const { return details::exp_of_difference(value - max) * inverse_sum; }

  /// The logarithm of the sum of `exp(value)`.
  KJIT_MATH S log_sum() const {
#ifndef __CUDACC__
    using std::log;
#endif
    return max + log(sum);
  }

  KJIT_MATH OnlineSoftmax combine(OnlineSoftmax other) const {
    const S largest = other.max > max ? other.max : max;
    return {largest, scaled(largest) + other.scaled(largest)};
  }

  /// Several at once, with one exponential for each.
  template <int kCount>
  KJIT_MATH static OnlineSoftmax combine_all(const OnlineSoftmax (&terms)[kCount]) {
#ifdef __CUDACC__
    S largest = terms[0].max;
    KJIT_UNROLL
    for (int i = 1; i < kCount; ++i) largest = terms[i].max > largest ? terms[i].max : largest;
    S sum = 0;
    KJIT_UNROLL
    for (int i = 0; i < kCount; ++i) sum += terms[i].scaled(largest);
#else
    S values[kCount];
    for (int i = 0; i < kCount; ++i) values[i] = terms[i].max;
    const S largest =
        details::combined_in_halves<kCount>(values, [](S one, S other) { return other > one ? other : one; });
    for (int i = 0; i < kCount; ++i) values[i] = terms[i].scaled(largest);
    const S sum = details::combined_in_halves<kCount>(values, [](S one, S other) { return one + other; });
#endif
    return {largest, sum};
  }

  /// Over all lanes, with one exponential for each.
  template <typename Lanes>
  KJIT_MATH OnlineSoftmax combine_lanes(const Lanes& lanes) const {
    const S largest = lanes.max(max);
    return {largest, lanes.sum(scaled(largest))};
  }

 private:
  /// The sum relative to `largest` instead of the maximum. 0 for an empty total, whatever `largest` is.
  KJIT_MATH S scaled(S largest) const {
    const S origin = largest == kLowest<S> ? S{0} : largest;
    return sum * details::exp_of_difference(max - origin);
  }
};

/// Two totals at once; numbers are summed.
template <typename First, typename Second>
struct Both {
  First first{};
  Second second{};

  KJIT_MATH Both combine(Both other) const;

  /// Several at once, each of the two separately.
  template <int kCount>
    requires(details::CombinesAll<First> || details::CombinesAll<Second>)
  KJIT_MATH static Both combine_all(const Both (&terms)[kCount]);

  template <typename Lanes>
  KJIT_MATH Both combine_lanes(const Lanes& lanes) const;
};

namespace details {

template <typename Total>
concept CombinesItself = requires(const Total& total) {
  { total.combine(total) } -> std::same_as<Total>;
};

/// What a row can be reduced to.
template <typename Total>
concept IsTotal = std::is_arithmetic_v<Total> || (std::is_default_constructible_v<Total> && CombinesItself<Total>);

template <typename Total>
KJIT_MATH Total combined(const Total& a, const Total& b) {
  if constexpr (std::is_arithmetic_v<Total>) {
    return static_cast<Total>(a + b);
  } else {
    return a.combine(b);
  }
}

/// Combines several: numbers in order, other totals in a tree, whose upper half the compiler can mostly fold.
template <typename Total, int kCount>
KJIT_MATH Total all_combined(const Total (&totals)[kCount]) {
  if constexpr (CombinesAll<Total>) {
    return Total::combine_all(totals);
  } else if constexpr (kCount == 1) {
    return totals[0];
  } else if constexpr (std::is_arithmetic_v<Total>) {
#ifdef __CUDACC__
    Total total = 0;
    KJIT_UNROLL
    for (int i = 0; i < kCount; ++i) total += totals[i];
    return total;
#else
    Total values[kCount];
    for (int i = 0; i < kCount; ++i) values[i] = totals[i];
    return combined_in_halves<kCount>(values, [](Total one, Total other) { return combined(one, other); });
#endif
  } else {
    constexpr int kHalf = (kCount + 1) / 2;
    Total halves[kHalf];
    KJIT_UNROLL
    for (int i = 0; i < kCount / 2; ++i) halves[i] = combined(totals[2 * i], totals[2 * i + 1]);
    if constexpr (kCount % 2 != 0) halves[kHalf - 1] = totals[kCount - 1];
    return all_combined(halves);
  }
}

/// Combines the totals of `lanes`; numbers are summed. A total may define a cheaper way than pairwise.
template <typename Total, typename Lanes>
KJIT_MATH Total combined_across(const Total& total, const Lanes& lanes) {
  if constexpr (std::is_arithmetic_v<Total>) {
    return lanes.sum(total);
  } else if constexpr (requires { total.combine_lanes(lanes); }) {
    return total.combine_lanes(lanes);
  } else {
    return lanes.combine(total);
  }
}

}  // namespace details

template <typename First, typename Second>
KJIT_MATH Both<First, Second> Both<First, Second>::combine(Both other) const {
  return {details::combined(first, other.first), details::combined(second, other.second)};
}
template <typename First, typename Second>
template <int kCount>
  requires(details::CombinesAll<First> || details::CombinesAll<Second>)
KJIT_MATH Both<First, Second> Both<First, Second>::combine_all(const Both (&terms)[kCount]) {
  First firsts[kCount];
  Second seconds[kCount];
  KJIT_UNROLL
  for (int i = 0; i < kCount; ++i) {
    firsts[i] = terms[i].first;
    seconds[i] = terms[i].second;
  }
  return {details::all_combined(firsts), details::all_combined(seconds)};
}

template <typename First, typename Second>
template <typename Lanes>
KJIT_MATH Both<First, Second> Both<First, Second>::combine_lanes(const Lanes& lanes) const {
  return {details::combined_across(first, lanes), details::combined_across(second, lanes)};
}

}  // namespace kjit
