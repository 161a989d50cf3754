// Calls of the functions of a row's math, for any storage of the elements, and checks of their signatures with error
// messages.
//
//   using Rules = RowMath<Math, In<T>, PerColumn<T>, Out<T>>;
//   Rules::OfTerm(), Rules::OfRow(), Rules::OfElement()      // index sequences: the tensors that a function gets
//   call_term<Rules>(math, column, slots...);                // math.term(x[i]), slots as in detail/element.h

#pragma once

#include <kjit/detail/element.h>
#include <kjit/dtype.h>
#include <kjit/patterns/operands.h>
#include <kjit/patterns/totals.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace kjit::details {

template <typename Math>
concept HasOneTerm = requires { Signature<decltype(&Math::term)>::kCount; };
template <typename Math>
concept HasOneRow = requires { Signature<decltype(&Math::row)>::kCount; };

/// Values of several types, by index: `get<1>(pack)`.
template <std::size_t kAt, typename T>
struct Leaf {
  T value;
};
template <typename Numbers, typename... Ts>
struct NumberedPack;
template <std::size_t... kAt, typename... Ts>
struct NumberedPack<std::index_sequence<kAt...>, Ts...> : Leaf<kAt, Ts>... {};
template <typename... Ts>
using Pack = NumberedPack<std::index_sequence_for<Ts...>, Ts...>;

template <std::size_t kAt, typename T>
KJIT_MATH T& get(Leaf<kAt, T>& leaf) {
  return leaf.value;
}
template <std::size_t kAt, typename T>
KJIT_MATH const T& get(const Leaf<kAt, T>& leaf) {
  return leaf.value;
}

/// The indices of the chosen ones, as an index sequence; at most `kMost` of them.
template <std::size_t kMost, bool... kIsChosen>
struct Chosen {
  struct Found {
    std::size_t numbers[sizeof...(kIsChosen)];
    std::size_t count;
  };
  static constexpr Found find() {
    Found found{};
    std::size_t number = 0;
    ((kIsChosen && found.count < kMost ? static_cast<void>(found.numbers[found.count++] = number++)
                                       : static_cast<void>(number++)),
     ...);
    return found;
  }
  static constexpr Found kFound = find();
  static constexpr std::size_t kCount = kFound.count;

  template <std::size_t... kAt>
  static std::index_sequence<kFound.numbers[kAt]...> sequence(std::index_sequence<kAt...>);
  using Sequence = decltype(sequence(std::make_index_sequence<kCount>()));
};

/// A type list without a `Column` at its end.
template <typename Before, typename After>
struct SplitColumn;
template <typename... Before>
struct SplitColumn<Types<Before...>, Types<>> {
  using Parameters = Types<Before...>;
  static constexpr bool kHasColumn = false;
};
template <typename... Before, typename Last>
  requires std::same_as<std::remove_cvref_t<Last>, Column>
struct SplitColumn<Types<Before...>, Types<Last>> {
  using Parameters = Types<Before...>;
  static constexpr bool kHasColumn = true;
};
template <typename... Before, typename First, typename... After>
struct SplitColumn<Types<Before...>, Types<First, After...>> : SplitColumn<Types<Before..., First>, Types<After...>> {};

template <typename List>
struct ListOf;
template <>
struct ListOf<Types<>> {
  using First = void;
  using Written = void;
  using Rest = Types<>;
  static constexpr std::size_t kCount = 0;
};
template <typename Head, typename... Tail>
struct ListOf<Types<Head, Tail...>> {
  using First = std::remove_cvref_t<Head>;
  using Written = Head;  // with its reference and const
  using Rest = Types<Tail...>;
  static constexpr std::size_t kCount = 1 + sizeof...(Tail);
};

/// The result of a row() that returns nothing.
struct Nothing {};

/// The roles of a tensor for the functions of a row's math.
template <typename Operand>
constexpr bool kIsOfRow = Operand::kPlace == Place::kRow;
template <typename Operand>
constexpr bool kIsOfTerm = Operand::kIsRead && !(kIsOfRow<Operand> && Operand::kIsWritten);
template <typename Operand>
constexpr bool kIsOfElement = !kIsOfRow<Operand> || !Operand::kIsWritten;
template <typename Operand>
constexpr bool kIsResultOfRow = kIsOfRow<Operand> && Operand::kIsWritten;
template <typename Operand>
constexpr bool kIsResultOfElement = !kIsOfRow<Operand> && Operand::kIsWritten;

/// The parameters and results of the math's functions. `term` gets the tensors that are read, except those with an
/// element per row that are written too; `row` those with an element per row; `element` all except those with an
/// element per row that are written. A function with fewer parameters does not get the last ones.
template <typename Math, typename... Operands>
struct RowMath {
  using Term = Signature<decltype(&Math::term)>;
  using TermSplit = SplitColumn<Types<>, typename Term::Parameters>;
  using OfTerm = typename Chosen<ListOf<typename TermSplit::Parameters>::kCount, kIsOfTerm<Operands>...>::Sequence;
  using Total = std::remove_cvref_t<typename Term::Returned>;
  static constexpr bool kTermTakesColumn = TermSplit::kHasColumn;

  /// Whether `term` gets a tensor with an element per column.
  template <std::size_t... kAt>
  static constexpr bool has_column(std::index_sequence<kAt...>) {
    constexpr bool kIsColumn[] = {Operands::kPlace == Place::kColumn...};
    return (kIsColumn[kAt] || ...);
  }
  static constexpr bool kTermReadsColumns = has_column(OfTerm());

  template <bool kHasRow, typename M>
  struct OfRowFunction {
    using Returned = Total;
    using Size = void;
    using Parameters = Types<>;
  };
  template <typename M>
  struct OfRowFunction<true, M> {
    using Row = Signature<decltype(&M::row)>;
    using AfterTotal = typename ListOf<typename Row::Parameters>::Rest;
    using Returned = std::remove_cvref_t<typename Row::Returned>;
    using Size = typename ListOf<AfterTotal>::First;
    using Parameters = typename ListOf<AfterTotal>::Rest;
  };
  using Row = OfRowFunction<HasOneRow<Math>, Math>;
  using OfRow = typename Chosen<ListOf<typename Row::Parameters>::kCount, kIsOfRow<Operands>...>::Sequence;
  using Size = typename Row::Size;
  using Returned = typename Row::Returned;
  static constexpr bool kHasRow = HasOneRow<Math>;
  static constexpr bool kReturns = !std::is_void_v<Returned>;
  using Result = std::conditional_t<kReturns, Returned, Nothing>;

  template <bool kHasElement, typename M>
  struct OfElementFunction {
    using Split = SplitColumn<Types<>, Types<>>;
    using Parameters = Types<>;
  };
  template <typename M>
  struct OfElementFunction<true, M> {
    using Split = SplitColumn<Types<>, typename Signature<decltype(&M::element)>::Parameters>;
    using Parameters =
        std::conditional_t<kReturns, typename ListOf<typename Split::Parameters>::Rest, typename Split::Parameters>;
  };
  using Element = OfElementFunction<HasOneElement<Math>, Math>;
  using OfElement = typename Chosen<ListOf<typename Element::Parameters>::kCount, kIsOfElement<Operands>...>::Sequence;
  static constexpr bool kHasElement = HasOneElement<Math>;
  static constexpr bool kElementTakesColumn = Element::Split::kHasColumn;
};

/// Calls `math.term`: the total of one element.
template <typename Rules, typename Math, typename... Slots>
KJIT_MATH typename Rules::Total call_term(const Math& math, [[maybe_unused]] std::int64_t column, Slots... slots) {
  if constexpr (Rules::kTermTakesColumn) {
    return math.term(slots.argument()..., Column{column});
  } else {
    return math.term(slots.argument()...);
  }
}

/// Calls `math.row`: the result of a row from its total.
template <typename Rules, typename Math, typename Index, typename... Slots>
KJIT_MATH typename Rules::Result call_row(const Math& math, const typename Rules::Total& total,
                                          [[maybe_unused]] Index row_size, Slots... slots) {
  if constexpr (!Rules::kHasRow) {
    return total;
  } else if constexpr (Rules::kReturns) {
    const typename Rules::Result result =
        math.row(total, static_cast<typename Rules::Size>(row_size), slots.argument()...);
    (slots.store(), ...);
    return result;
  } else {
    math.row(total, static_cast<typename Rules::Size>(row_size), slots.argument()...);
    (slots.store(), ...);
    return {};
  }
}

/// Calls `math.element`, after the row's total is complete.
template <typename Rules, typename Math, typename... Slots>
KJIT_MATH void call_row_element(const Math& math, [[maybe_unused]] const typename Rules::Result& of_row,
                                [[maybe_unused]] std::int64_t column, Slots... slots) {
  if constexpr (Rules::kReturns && Rules::kElementTakesColumn) {
    math.element(of_row, slots.argument()..., Column{column});
  } else if constexpr (Rules::kReturns) {
    math.element(of_row, slots.argument()...);
  } else if constexpr (Rules::kElementTakesColumn) {
    math.element(slots.argument()..., Column{column});
  } else {
    math.element(slots.argument()...);
  }
  (slots.store(), ...);
}

/// Type lists, concatenated.
template <typename... Lists>
struct Joined;
template <typename... Ts>
struct Joined<Types<Ts...>> {
  using type = Types<Ts...>;
};
template <typename... Ts, typename... Us, typename... Lists>
struct Joined<Types<Ts...>, Types<Us...>, Lists...> : Joined<Types<Ts..., Us...>, Lists...> {};
/// A tensor as a parameter of math that must have the type in which elements are computed.
template <typename Operand>
struct Computed {
  using Element = typename Operand::Value;
  using Value = typename Operand::Value;
  static constexpr bool kIsWritten = Operand::kIsWritten;
};
template <bool kIsIn, typename Operand>
using If = std::conditional_t<kIsIn, Types<Computed<Operand>>, Types<>>;

/// Whether a function can be called with the first of the tensors that it may get; the others must only be read.
template <MathFunction kFunction, int kNumber, typename... Parameters>
constexpr bool check_first_tensors(Types<Parameters...>, Types<>) {
  KJIT_CHECK_MATH(kFunction, sizeof...(Parameters) == 0,
                  "has more parameters than there are tensors for it in the call");
  return sizeof...(Parameters) == 0;
}
template <MathFunction kFunction, int kNumber, typename Operand, typename... Operands>
constexpr bool check_first_tensors(Types<>, Types<Operand, Operands...>) {
  constexpr bool kReadsAll =
      kFunction == MathFunction::kTerm || !(Operand::kIsWritten || (Operands::kIsWritten || ...));
  KJIT_CHECK_MATH(kFunction, kReadsAll, "has no parameter for an output of the call");
  return kReadsAll;
}
template <MathFunction kFunction, int kNumber, typename Parameter, typename... Parameters, typename Operand,
          typename... Operands>
constexpr bool check_first_tensors(Types<Parameter, Parameters...>, Types<Operand, Operands...>) {
  if constexpr (MathParameter<kFunction, kNumber, Parameter, Operand>::kFits) {
    return check_first_tensors<kFunction, kNumber + 1>(Types<Parameters...>(), Types<Operands...>());
  } else {
    return MathParameter<kFunction, kNumber, Parameter, Operand>::check();
  }
}

template <typename Math, typename... Operands>
constexpr bool check_term() {
  if constexpr (!HasOneTerm<Math>) {
    static_assert(HasOneTerm<Math>,
                  "the math has no function term(), which returns an element's part of its row's total");
    return false;
  } else {
    using Term = Signature<decltype(&Math::term)>;
    using Total = std::remove_cvref_t<typename Term::Returned>;
    using Parameters = typename SplitColumn<Types<>, typename Term::Parameters>::Parameters;
    if constexpr (!Term::kIsConst) {
      static_assert(Term::kIsConst, "term() is not const: add const after its parameters");
      return false;
    } else if constexpr (!IsTotal<Total>) {
      static_assert(IsTotal<Total>, "term() returns neither a number nor a struct with a function combine()");
      return false;
    } else {
      return check_first_tensors<MathFunction::kTerm, 1>(
          Parameters(), typename Joined<Types<>, If<kIsOfTerm<Operands>, Operands>...>::type());
    }
  }
}

template <typename Math, typename... Operands>
constexpr bool check_row() {
  if constexpr (!HasOneRow<Math>) {
    constexpr bool kHasNoResult = !(kIsResultOfRow<Operands> || ...);
    static_assert(kHasNoResult, "the math has no function row() that writes the tensors with an element for each row");
    return kHasNoResult;
  } else {
    using Row = Signature<decltype(&Math::row)>;
    using Parameters = ListOf<typename Row::Parameters>;
    using AfterTotal = ListOf<typename Parameters::Rest>;
    constexpr bool kTakesTotal = std::same_as<typename Parameters::First, typename RowMath<Math, Operands...>::Total>;
    constexpr bool kTakesSize =
        std::is_arithmetic_v<typename AfterTotal::First> && !IsResult<typename AfterTotal::Written>;
    if constexpr (!Row::kIsConst) {
      static_assert(Row::kIsConst, "row() is not const: add const after its parameters");
      return false;
    } else if constexpr (!kTakesTotal) {
      static_assert(kTakesTotal,
                    "the first parameter of row() is not the row's total, of the type that term() returns");
      return false;
    } else if constexpr (!kTakesSize) {
      static_assert(kTakesSize, "the second parameter of row() is not a number for the row's size");
      return false;
    } else {
      return check_first_tensors<MathFunction::kRow, 3>(
          typename AfterTotal::Rest(), typename Joined<Types<>, If<kIsOfRow<Operands>, Operands>...>::type());
    }
  }
}

template <typename Math, typename... Operands>
constexpr bool check_row_element() {
  constexpr bool kHasResult = (kIsResultOfElement<Operands> || ...);
  if constexpr (!HasOneElement<Math>) {
    static_assert(!kHasResult,
                  "the math has no function element() that writes the tensors with an element at each place");
    return !kHasResult;
  } else {
    using Rules = RowMath<Math, Operands...>;
    using Element = Signature<decltype(&Math::element)>;
    using Parameters = typename Rules::Element::Split::Parameters;
    constexpr bool kTakesResult =
        !Rules::kReturns || std::same_as<typename ListOf<Parameters>::First, typename Rules::Result>;
    if constexpr (!kHasResult) {
      static_assert(kHasResult,
                    "element() writes tensors with an element at each place, and the call has no such output");
      return false;
    } else if constexpr (!Element::kIsConst) {
      static_assert(Element::kIsConst, "element() is not const: add const after its parameters");
      return false;
    } else if constexpr (!kTakesResult) {
      static_assert(kTakesResult,
                    "the first parameter of element() is not the result of row(), or without row() the row's total");
      return false;
    } else {
      return check_first_tensors<MathFunction::kElement, Rules::kReturns ? 2 : 1>(
          typename Rules::Element::Parameters(),
          typename Joined<Types<>, If<kIsOfElement<Operands>, Operands>...>::type());
    }
  }
}

/// Whether the functions of a row's math can be called with the tensors' elements. If not, there is one error.
template <typename Math, typename... Operands>
constexpr bool check_rowwise() {
  if constexpr (!check_term<Math, Operands...>()) {
    return false;
  } else if constexpr (!check_row<Math, Operands...>()) {
    return false;
  } else {
    return check_row_element<Math, Operands...>();
  }
}

}  // namespace kjit::details
