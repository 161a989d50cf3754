// Ops with pattern rowwise, for a GPU and for the CPU: those that models have, and one in which tensors of every role
// and types of every size meet.

#pragma once

#include <kjit/patterns/rowwise.h>

#include <cstdint>

namespace {

using namespace kjit;

template <typename T>
struct RmsNorm {
  using S = compute_t<T>;
  S eps;

  KJIT_MATH S term(S x) const { return x * x; }
  KJIT_MATH S row(S total, S size) const { return rsqrt(total / size + eps); }
  KJIT_MATH void element(S inverse_rms, S x, S weight, S& out) const { out = x * inverse_rms * weight; }

  static void run(TensorView x, TensorView weight, double eps, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    TensorMatcher({D}).with_device<kDevice>(device).with_dtype<T>().verify(weight, "weight");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(RmsNorm{static_cast<S>(eps)}, sizes, device, In<T>(x), PerColumn<T>(weight), Out<T>(out));
  }
};

/// Both tensors change: `residual` becomes their sum, and `x` the sum's norm.
template <typename T>
struct AddRmsNorm {
  using S = compute_t<T>;
  S eps;

  KJIT_MATH S term(S x, S residual) const { return (x + residual) * (x + residual); }
  KJIT_MATH S row(S total, S size) const { return rsqrt(total / size + eps); }
  KJIT_MATH void element(S inverse_rms, S& x, S& residual, S weight) const {
    residual += x;
    x = residual * inverse_rms * weight;
  }

  static void run(TensorView x, TensorView residual, TensorView weight, double eps) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(residual, "residual");
    TensorMatcher({D}).with_device<kDevice>(device).with_dtype<T>().verify(weight, "weight");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(AddRmsNorm{static_cast<S>(eps)}, sizes, device, Mut<T>(x), Mut<T>(residual), PerColumn<T>(weight));
  }
};

template <typename T>
struct LayerNorm {
  using S = compute_t<T>;
  struct Scaling {
    S mean, inverse_deviation;
  };
  S eps;

  KJIT_MATH Welford<S> term(S x) const { return x; }
  KJIT_MATH Scaling row(Welford<S> total, S) const { return {total.mean, rsqrt(total.variance() + eps)}; }
  KJIT_MATH void element(Scaling row, S x, S weight, S bias, S& out) const {
    out = (x - row.mean) * row.inverse_deviation * weight + bias;
  }

  static void run(TensorView x, TensorView weight, Optional<TensorView> bias, double eps, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    TensorMatcher({D}).with_device<kDevice>(device).with_dtype<T>().verify(weight, "weight");
    if (bias.has_value()) {
      TensorMatcher({D}).with_device<kDevice>(device).with_dtype<T>().verify(bias.value(), "bias");
    }
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(LayerNorm{static_cast<S>(eps)}, sizes, device, In<T>(x), PerColumn<T>(weight), OptionalPerColumn<T>(bias),
            Out<T>(out));
  }
};

template <typename T>
struct Softmax {
  using S = compute_t<T>;

  KJIT_MATH OnlineSoftmax<S> term(S x) const { return x; }
  KJIT_MATH OnlineSoftmax<S> row(OnlineSoftmax<S> total, S) const { return {total.max, 1 / total.sum}; }
  KJIT_MATH void element(OnlineSoftmax<S> row, S x, S& out) const { out = row.share(x, row.sum); }

  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(Softmax{}, sizes, device, In<T>(x), Out<T>(out));
  }
};

template <typename T>
struct LogSoftmax {
  using S = compute_t<T>;

  KJIT_MATH OnlineSoftmax<S> term(S x) const { return x; }
  KJIT_MATH S row(OnlineSoftmax<S> total, S) const { return total.log_sum(); }
  KJIT_MATH void element(S log_sum, S x, S& out) const { out = x - log_sum; }

  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(LogSoftmax{}, sizes, device, In<T>(x), Out<T>(out));
  }
};

template <typename T>
struct ArgMaxOfRow {
  using S = compute_t<T>;

  KJIT_MATH ArgMax<S> term(S x, Column column) const { return {x, column}; }
  KJIT_MATH void row(ArgMax<S> total, S, std::int64_t& out) const { out = total.index; }

  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    TensorMatcher({B}).with_device<kDevice>(device).with_dtype<std::int64_t>().verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(ArgMaxOfRow{}, sizes, device, In<T>(x), OutPerRow<std::int64_t>(out));
  }
};

template <typename T>
struct MaxOfRow {
  using S = compute_t<T>;

  KJIT_MATH Max<S> term(S x) const { return {x}; }
  KJIT_MATH void row(Max<S> total, S, S& out) const { out = total.value; }

  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    TensorMatcher({B}).with_device<kDevice>(device).with_dtype<T>().verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(MaxOfRow{}, sizes, device, In<T>(x), OutPerRow<T>(out));
  }
};

/// Rows, or groups of `size` elements of a row, each with a scale of its own.
template <typename T>
struct Quantise {
  using S = compute_t<T>;

  KJIT_MATH Max<S> term(S x) const { return {abs(x)}; }
  KJIT_MATH S row(Max<S> total, S, float& scale) const {
    scale = static_cast<float>(total.value) / 448;
    return total.value > 0 ? 448 / total.value : S{0};
  }
  KJIT_MATH void element(S inverse_scale, S x, float& out) const { out = static_cast<float>(x * inverse_scale); }

  static void run(TensorView x, std::int64_t size, TensorView out, TensorView scale) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"}, groups{"groups"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<fp8_e4m3_t>().verify(out, "out");
    TensorMatcher({B, groups}).with_device<kDevice>(device).with_dtype<float>().verify(scale, "scale");
    RuntimeCheck(groups.unwrap() * size == D.unwrap(), "scale has another number of groups than x");
    const RowSizes sizes{.num_rows = B.unwrap() * groups.unwrap(), .row_size = size};
    rowwise(Quantise{}, sizes, device, In<T>(x), Out<fp8_e4m3_t>(out), OutPerRow<float>(scale));
  }
};

/// The left half of a row is the gate of the right one.
template <typename T>
struct SiluMulQuantise {
  using S = compute_t<T>;

  KJIT_MATH static S product(S gate, S up) { return gate / (1 + exp(-gate)) * up; }
  KJIT_MATH Max<S> term(S gate, S up) const { return {abs(product(gate, up))}; }
  KJIT_MATH S row(Max<S> total, S, float& scale) const {
    scale = static_cast<float>(total.value) / 448;
    return total.value > 0 ? 448 / total.value : S{0};
  }
  KJIT_MATH void element(S inverse_scale, S gate, S up, float& out) const {
    out = static_cast<float>(product(gate, up) * inverse_scale);
  }

  static void run(TensorView x, TensorView out, TensorView scale) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, halves{"2 * D"}, D{"D"};
    TensorMatcher({B, halves}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<fp8_e4m3_t>().verify(out, "out");
    TensorMatcher({B}).with_device<kDevice>(device).with_dtype<float>().verify(scale, "scale");
    const std::int64_t size = D.unwrap(), stride = halves.unwrap();
    RuntimeCheck(2 * size == stride, "the rows of x are not twice as long as those of out");
    rowwise(SiluMulQuantise{}, {.num_rows = B.unwrap(), .row_size = size}, device,
            Strided(In<T>(x), {.stride = stride}), Strided(In<T>(x), {.stride = stride, .offset = size}),
            Out<fp8_e4m3_t>(out), OutPerRow<float>(scale));
  }
};

/// Of the class that is the row's target; where the table has no such class, the loss is 0.
template <typename T>
struct CrossEntropy {
  using S = compute_t<T>;
  using Total = Both<OnlineSoftmax<S>, S>;

  KJIT_MATH Total term(S logit, std::int64_t target, Column column) const {
    return {logit, column == target ? logit : S{0}};
  }
  KJIT_MATH void row(Total total, std::int64_t size, std::int64_t target, float& loss) const {
    const bool counts = target >= 0 && target < size;
    loss = counts ? static_cast<float>(total.first.log_sum() - total.second) : 0.0f;
  }

  static void run(TensorView logits, TensorView target, TensorView loss) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, V{"V"};
    TensorMatcher({B, V}).with_device<kDevice>(device).with_dtype<T>().verify(logits, "logits");
    TensorMatcher({B}).with_device<kDevice>(device).with_dtype<std::int64_t>().verify(target, "target");
    TensorMatcher({B}).with_device<kDevice>(device).with_dtype<float>().verify(loss, "loss");
    rowwise(CrossEntropy{}, {.num_rows = B.unwrap(), .row_size = V.unwrap()}, device, In<T>(logits),
            PerRow<std::int64_t>(target), OutPerRow<float>(loss));
  }
};

/// Norms of q and k, which lie side by side with v in rows of `qkv`: of each head, and in `run_across` of all heads of
/// a row at once.
template <typename T>
struct QkNorm {
  using S = compute_t<T>;
  S eps;

  KJIT_MATH S term(S x) const { return x * x; }
  KJIT_MATH S row(S total, S size) const { return rsqrt(total / size + eps); }
  KJIT_MATH void element(S inverse_rms, S& x, S weight) const { x *= inverse_rms * weight; }

  static void run(TensorView q, TensorView k, TensorView q_weight, TensorView k_weight, double eps) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, q_heads{"q_heads"}, k_heads{"k_heads"}, D{"D"};
    TensorMatcher({B, q_heads, D}).with_device<kDevice>(device).with_dtype<T>().verify(q, "q");
    TensorMatcher({B, k_heads, D}).with_device<kDevice>(device).with_dtype<T>().verify(k, "k");
    TensorMatcher matcher({D});
    matcher.with_device<kDevice>(device).with_dtype<T>();
    matcher.verify(q_weight, "q_weight").verify(k_weight, "k_weight");
    const QkNorm math{static_cast<S>(eps)};
    const std::int64_t rows = B.unwrap(), size = D.unwrap();
    rowwise(math, {.num_rows = rows * q_heads.unwrap(), .row_size = size}, device, Mut<T>(q), PerColumn<T>(q_weight));
    rowwise(math, {.num_rows = rows * k_heads.unwrap(), .row_size = size}, device, Mut<T>(k), PerColumn<T>(k_weight));
  }

  static void run_across(TensorView qkv, TensorView q_weight, TensorView k_weight, double eps) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, all{"q + k + v"}, of_q{"q"}, of_k{"k"};
    TensorMatcher({B, all}).with_device<kDevice>(device).with_dtype<T>().verify(qkv, "qkv");
    TensorMatcher({of_q}).with_device<kDevice>(device).with_dtype<T>().verify(q_weight, "q_weight");
    TensorMatcher({of_k}).with_device<kDevice>(device).with_dtype<T>().verify(k_weight, "k_weight");
    const std::int64_t rows = B.unwrap(), stride = all.unwrap(), q_size = of_q.unwrap(), k_size = of_k.unwrap();
    RuntimeCheck(q_size + k_size <= stride, "q and k do not fit into the rows of qkv");
    const QkNorm math{static_cast<S>(eps)};
    rowwise(math, {.num_rows = rows, .row_size = q_size}, device, Strided(Mut<T>(qkv), {.stride = stride}),
            PerColumn<T>(q_weight));
    const RowStride behind_q{.stride = stride, .offset = q_size};
    rowwise(math, {.num_rows = rows, .row_size = k_size}, device, Strided(Mut<T>(qkv), behind_q),
            PerColumn<T>(k_weight));
  }
};

/// A total of one's own.
struct LargestAndFirst {
  float largest = kLowest<float>;
  std::int32_t first = kHighest<std::int32_t>;  // column that is not 0
  std::int8_t odd = 0;                          // whether an odd number of them is not

  KJIT_MATH LargestAndFirst combine(LargestAndFirst other) const {
    return {other.largest > largest ? other.largest : largest, other.first < first ? other.first : first,
            static_cast<std::int8_t>(odd ^ other.odd)};
  }
};

/// Tensors of every role.
template <typename T, typename U, typename V>
struct EveryRole {
  KJIT_MATH LargestAndFirst term(compute_t<T> x, compute_t<U> y, compute_t<V> z, compute_t<T> weight,
                                 Column column) const {
    const float value =
        static_cast<float>(x) + static_cast<float>(y) + static_cast<float>(z) * static_cast<float>(weight);
    const bool is_there = value != 0;
    return {value, is_there ? static_cast<std::int32_t>(column) : kHighest<std::int32_t>, is_there};
  }
  KJIT_MATH float row(LargestAndFirst total, int size, compute_t<U> shift, compute_t<V> gate, compute_t<U>& count,
                      std::int64_t& first) const {
    first = total.first;
    count += static_cast<compute_t<U>>(total.odd);
    return total.largest + static_cast<float>(shift) + static_cast<float>(gate) + static_cast<float>(size % 2);
  }
  KJIT_MATH void element(float largest, compute_t<T> x, compute_t<U> y, compute_t<V>& z, compute_t<T> weight,
                         compute_t<U> bias, compute_t<U> shift, compute_t<V> gate, compute_t<T>& out, bool& even,
                         Column column) const {
    z = static_cast<compute_t<V>>(z + static_cast<compute_t<V>>(y) + static_cast<compute_t<V>>(gate));
    out = static_cast<compute_t<T>>(static_cast<float>(x) + static_cast<float>(weight) + static_cast<float>(bias) +
                                    largest + static_cast<float>(shift));
    even = column % 2 == 0;
  }

  static void run(TensorView x, Optional<TensorView> y, TensorView z, TensorView weight, Optional<TensorView> bias,
                  TensorView shift, Optional<TensorView> gate, TensorView count, TensorView first, TensorView out,
                  TensorView even) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    rowwise(EveryRole{}, {.num_rows = B.unwrap(), .row_size = D.unwrap()}, device, In<T>(x), OptionalIn<U>(y),
            Mut<V>(z), PerColumn<T>(weight), OptionalPerColumn<U>(bias), PerRow<U>(shift), OptionalPerRow<V>(gate),
            MutPerRow<U>(count), OutPerRow<std::int64_t>(first), Out<T>(out), Out<bool>(even));
  }
};

}  // namespace
