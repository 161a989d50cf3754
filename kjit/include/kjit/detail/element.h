// Calls of the math of one element, for any storage of the elements, and diagnostics for math that does not fit.
//
//   if constexpr (check_element<Math, In<T>, Out<T>>()) {                             // else a static_assert fails
//     call_element(math, Slot<In<T>, const T>(x, i), Slot<Out<T>, T>(out, i));        // math.element(x[i], out[i])
//   }
//   }

#pragma once

#include <kjit/dtype.h>
#include <kjit/patterns/operands.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kjit::details {

/// The type in which math gets the elements of a tensor.
template <typename Operand>
using ValueOf = typename Operand::Value;

/// A tensor whose elements math takes unconverted, although they have a wider compute type: its parameter has the
/// element type.
template <typename Operand>
struct Raw : Operand {
  using Value = typename Operand::Element;

  explicit Raw(const Operand& tensor) : Operand(tensor) {}
};

/// An element of a tensor as passed to math: converted, and converted back if the tensor is written. `Stored` is its
/// type in memory, in a vector or in a stage.
template <typename Operand, typename Stored>
struct Slot {
  Stored* element;
  ValueOf<Operand> value;

  KJIT_MATH Slot(Stored* data, std::int64_t at) : element(data + at) {
    if constexpr (Operand::kIsOptional) {
      value = data == nullptr ? ValueOf<Operand>{} : value_of(data[at]);
    } else if constexpr (Operand::kIsRead) {
      value = value_of(data[at]);
    }
  }

  /// The argument for math: const if read-only.
  KJIT_MATH auto& argument() {
    if constexpr (Operand::kIsWritten) {
      return value;
    } else {
      return static_cast<const ValueOf<Operand>&>(value);
    }
  }

  KJIT_MATH void store() const {
    if constexpr (Operand::kIsWritten) *element = static_cast<Stored>(value);
  }

 private:
  KJIT_MATH static ValueOf<Operand> value_of(const Stored& stored) {
    if constexpr (std::is_same_v<ValueOf<Operand>, std::remove_const_t<Stored>>) {
      return stored;
    } else {
      return widen(stored);
    }
  }
};

/// Calls math for one element of every tensor.
template <typename Math, typename... Slots>
KJIT_MATH void call_element(const Math& math, Slots... slots) {
  math.element(slots.argument()...);
  (slots.store(), ...);
}

template <typename... Ts>
struct Types {};

/// The parameter types of a function of math.
template <typename Function>
struct Signature;
template <typename Math, typename Result, typename... Ts>
struct Signature<Result (Math::*)(Ts...)> {
  using Parameters = Types<Ts...>;
  using Returned = Result;
  static constexpr std::size_t kCount = sizeof...(Ts);
  static constexpr bool kIsConst = false;
};
template <typename Math, typename Result, typename... Ts>
struct Signature<Result (Math::*)(Ts...) const> : Signature<Result (Math::*)(Ts...)> {
  static constexpr bool kIsConst = true;
};
template <typename Result, typename... Ts>  // a static function
struct Signature<Result (*)(Ts...)> : Signature<Result (Types<>::*)(Ts...) const> {};

/// Math with a single, non-template `element`, whose parameters can be inspected.
template <typename Math>
concept HasOneElement = requires { Signature<decltype(&Math::element)>::kCount; };

/// Math whose `element` accepts the values of the tensors, in call order.
template <typename Math, typename... Operands>
concept TakesElements = requires(
    const Math& math, std::conditional_t<Operands::kIsWritten, ValueOf<Operands>, const ValueOf<Operands>>&... values) {
  math.element(values...);
};

template <typename Parameter>
concept IsResult = std::is_lvalue_reference_v<Parameter> && !std::is_const_v<std::remove_reference_t<Parameter>>;

/// The functions of math, for messages.
enum class MathFunction { kElement, kTerm, kRow };

// A static_assert whose text begins with the name of the function.
#define KJIT_CHECK_MATH(kFunction, is_right, text)         \
  if constexpr (kFunction == MathFunction::kElement) {     \
    static_assert(is_right, "element() " text);            \
  } else if constexpr (kFunction == MathFunction::kTerm) { \
    static_assert(is_right, "term() " text);               \
  } else {                                                 \
    static_assert(is_right, "row() " text);                \
  }

/// A parameter of a function of math, numbered from 1, and its tensor.
template <MathFunction kFunction, int kNumber, typename Parameter, typename Operand>
struct MathParameter {
  using Type = std::remove_cvref_t<Parameter>;
  static constexpr bool kWrites = Operand::kIsWritten && kFunction != MathFunction::kTerm;
  static constexpr bool kHasType =
      std::same_as<Type, ValueOf<Operand>> || std::same_as<Type, typename Operand::Element>;
  static constexpr bool kFits = kHasType && IsResult<Parameter> == kWrites;

  static constexpr bool check() {
    if constexpr (kWrites && !IsResult<Parameter>) {
      KJIT_CHECK_MATH(kFunction, kFits,
                      "takes no reference for a tensor that is written: add & to the type of its parameter");
    } else if constexpr (kFunction == MathFunction::kTerm && IsResult<Parameter>) {
      static_assert(kFits, "term() takes a reference, and changes no tensor: drop & from the type of its parameter");
    } else if constexpr (!kWrites && IsResult<Parameter>) {
      KJIT_CHECK_MATH(kFunction, kFits,
                      "takes a reference, and the tensor at its position in the call is only read: In, not Mut or Out");
    } else {
      KJIT_CHECK_MATH(kFunction, kFits,
                      "takes a type other than compute_t<T>, in which elements of the tensor are computed");
    }
    return kFits;
  }
};

template <MathFunction kFunction, int kNumber>
constexpr bool check_parameters(Types<>, Types<>) {
  return true;
}
template <MathFunction kFunction, int kNumber, typename Parameter, typename... Parameters, typename Operand,
          typename... Operands>
constexpr bool check_parameters(Types<Parameter, Parameters...>, Types<Operand, Operands...>) {
  if constexpr (MathParameter<kFunction, kNumber, Parameter, Operand>::kFits) {
    return check_parameters<kFunction, kNumber + 1>(Types<Parameters...>(), Types<Operands...>());
  } else {
    return MathParameter<kFunction, kNumber, Parameter, Operand>::check();
  }
}

/// Whether `element` of the math accepts the values of the tensors. If not, a single error says why.
template <typename Math, typename... Operands>
constexpr bool check_element() {
  if constexpr (HasOneElement<Math>) {
    using Element = Signature<decltype(&Math::element)>;
    if constexpr (Element::kCount != sizeof...(Operands)) {
      static_assert(Element::kCount == sizeof...(Operands),
                    "element() takes a different number of values than the call has tensors");
      return false;
    } else if constexpr (!Element::kIsConst) {
      static_assert(Element::kIsConst, "element() is not const: add const after its parameters");
      return false;
    } else {
      return check_parameters<MathFunction::kElement, 1>(typename Element::Parameters(), Types<Operands...>());
    }
  } else {
    static_assert(TakesElements<Math, Operands...>,
                  "the math has no function element() that takes a value for each tensor in the call");
    return TakesElements<Math, Operands...>;
  }
}

/// The operands with the types that math takes their elements in, from its parameters.
template <typename Parameters, typename... Operands>
struct Bound {
  using type = Types<Operands...>;
};
template <typename... Parameters, typename... Operands>
struct Bound<Types<Parameters...>, Operands...> {
  template <typename Parameter, typename Operand>
  using AsTaken =
      std::conditional_t<std::same_as<std::remove_cvref_t<Parameter>, ValueOf<Operand>>, Operand, Raw<Operand>>;
  using type = Types<AsTaken<Parameters, Operands>...>;
};

template <typename Math>
auto parameters_of() {
  if constexpr (HasOneElement<Math>) return typename Signature<decltype(&Math::element)>::Parameters();
}

template <typename Math, typename... Operands>
using BoundOperands = typename Bound<decltype(parameters_of<Math>()), Operands...>::type;

}  // namespace kjit::details
