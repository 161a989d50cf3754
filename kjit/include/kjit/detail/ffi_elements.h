// Arguments of tvm-ffi's and the standard library's own types (`Array<Tensor>`, `std::vector<int>`, `Map<String,
// int>`), checked element by element.
//
// tvm-ffi converts them, but it accepts None as an (undefined) `Tensor`, truncates integers to the element type, and
// names neither function nor element in its errors. So each value is first checked by the rules for plain arguments,
// and only then converted.

#pragma once

#include <kjit/ffi.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tvm::ffi {
class MapObj;
class DictObj;
}  // namespace tvm::ffi

namespace kjit::ffi_details {

/// Types that kjit checks itself.
template <typename T>
concept Plain = std::integral<T> || std::floating_point<T> || std::same_as<T, host::TensorView> ||
                std::same_as<T, host::ffi::Tensor>;

/// `Optional<T>`, `std::optional<T>`.
template <typename T>
struct value_in {
  static constexpr bool may_be_none = false;
};
template <template <typename...> class C, typename T, typename... Ts>
  requires requires(const C<T, Ts...>& value) {
    { value.has_value() } -> std::convertible_to<bool>;
    value.value();
  }
struct value_in<C<T, Ts...>> {
  static constexpr bool may_be_none = true;
  using type = T;
};
template <typename T>
concept MayBeNone = value_in<T>::may_be_none;

/// `Map`, `Dict`, `std::map`, `std::unordered_map`.
template <typename T>
concept Mapping = requires {
  typename T::key_type;
  typename T::mapped_type;
};

/// `Array`, `List`, `std::vector`, `std::array`; not strings.
template <typename T>
concept Sequence = !Mapping<T> && !MayBeNone<T> && requires(const T& values) {
  typename T::value_type;
  values.begin();
  values.size();
} && !requires { typename T::traits_type; } && !requires(const T& text) { text.c_str(); };

/// `Tuple<Ts...>`, `std::tuple<Ts...>`, `std::pair<A, B>`.
template <typename T>
struct elements_of {
  static constexpr bool is_tuple = false;
};
template <template <typename...> class C, typename... Ts>
  requires(sizeof...(Ts) > 0 && requires { std::tuple_size<C<Ts...>>::value; })
struct elements_of<C<Ts...>> {
  static constexpr bool is_tuple = true;
  static void require_each(const TVMFFIAny* values, Position at, const char* type) {
    std::int64_t i = 0;
    (require_one<Ts>(values, i++, at, type), ...);
  }

 private:
  template <typename T>
  static void require_one(const TVMFFIAny* values, std::int64_t i, Position at, const char* type) {
    const Element element{at, type, Element::kIndex, i, nullptr};
    require<T>(values[i], Position(&element));
  }
};

/// Types that tvm-ffi converts.
template <typename T>
concept Convertible = requires { requires ::tvm::ffi::TypeTraits<T, void>::convert_enabled; };

/// `Variant<Ts...>`, `std::variant<Ts...>`.
template <typename T>
struct choices_of {
  static constexpr bool are = false;
};
template <template <typename...> class C, typename... Ts>
  requires(sizeof...(Ts) > 0 && !MayBeNone<C<Ts...>> && !requires { typename C<Ts...>::ContainerType; } &&
           (Convertible<Ts> && ...))
struct choices_of<C<Ts...>> {
  static constexpr bool are = true;
  /// tvm-ffi converts to the first alternative that fits. False if there is none.
  template <typename AnyView>
  static bool require_one(const TVMFFIAny& value, Position at) {
    const AnyView view = AnyView::CopyFromTVMFFIAny(value);
    return ((view.template try_cast<Ts>().has_value() && (require<Ts>(value, at), true)) || ...);
  }
};

/// tvm-ffi's own classes to which None converts as an undefined object: `Tensor`, `Function`, `Module`. A kernel's own
/// nullable class accepts None, as does `ObjectRef`.
template <typename T>
concept OfTvmItself = requires {
  // The type index of a kernel's own class is not a constant.
  typename std::integral_constant<int, T::ContainerType::_type_index>;
  requires T::ContainerType::_type_index > kTVMFFIObject&& T::ContainerType::_type_index < kTVMFFIDynObjectBegin;
};

/// Whether None is a valid value of the type, and means undefined.
template <typename T>
struct takes_none {
  static constexpr bool value = MayBeNone<T> || std::same_as<T, std::nullptr_t> ||
                                (requires { requires T::_type_is_nullable; } && !OfTvmItself<T>);
};
/// `Variant<Ts...>`, `TypedFunction<R(Ts...)>` with such a type.
template <template <typename...> class C, typename... Ts>
  requires(!MayBeNone<C<Ts...>>)
struct takes_none<C<Ts...>> {
  static constexpr bool value = (takes_none<Ts>::value || ...);
};

inline bool is_sequence(const TVMFFIAny& value) {
  return value.type_index == kTVMFFIArray || value.type_index == kTVMFFIList;
}

/// The layout that tvm/ffi/c_api.h specifies for both.
inline const TVMFFISeqCell& sequence_of(const TVMFFIAny& value) {
  return *reinterpret_cast<const TVMFFISeqCell*>(value.v_obj + 1);
}

template <typename T, typename Items>
void require_items(const Items& items, Position at) {
  for (const auto& item : items) {
    const auto& key = reinterpret_cast<const TVMFFIAny&>(item.first);
    const Element of_key{at, named<T>(), Element::kKey, 0, &key};
    require<typename T::key_type>(key, Position(&of_key));
    const Element of_value{at, named<T>(), Element::kValue, 0, &key};
    require<typename T::mapped_type>(reinterpret_cast<const TVMFFIAny&>(item.second), Position(&of_value));
  }
}

template <typename T>
void require_convertible(const TVMFFIAny& value, Position at) {
  using AnyView = typename dependent<::tvm::ffi::AnyView, T>::type;
  if (!AnyView::CopyFromTVMFFIAny(value).template try_cast<T>().has_value()) not_of_type(at, named<T>(), value);
}

template <typename T>
void require(const TVMFFIAny& value, Position at) {
  if constexpr (Plain<T>) {
    static_cast<void>(argument<T>(value, at));
    if constexpr (std::is_arithmetic_v<T>) {  // a value that only kjit knows
      require_convertible<T>(value, at);
    }
  } else if constexpr (MayBeNone<T>) {
    if (value.type_index == kTVMFFINone) return;
    const Element whole{at, named<T>(), Element::kWhole, 0, nullptr};
    require<typename value_in<T>::type>(value, Position(&whole));
  } else if constexpr (Mapping<T>) {
    using MapObj = typename dependent<::tvm::ffi::MapObj, T>::type;
    using DictObj = typename dependent<::tvm::ffi::DictObj, T>::type;
    if constexpr (Complete<MapObj>) {
      if (value.type_index == kTVMFFIMap) {
        return require_items<T>(*static_cast<const MapObj*>(reinterpret_cast<const void*>(value.v_obj)), at);
      }
    }
    if constexpr (Complete<DictObj>) {
      if (value.type_index == kTVMFFIDict) {
        return require_items<T>(*static_cast<const DictObj*>(reinterpret_cast<const void*>(value.v_obj)), at);
      }
    }
    not_of_type(at, named<T>(), value);
  } else if constexpr (Sequence<T> || elements_of<T>::is_tuple) {
    if (!is_sequence(value)) not_of_type(at, named<T>(), value);
    const TVMFFISeqCell& sequence = sequence_of(value);
    const auto* values = static_cast<const TVMFFIAny*>(sequence.data);
    if constexpr (requires { std::tuple_size<T>::value; }) {
      constexpr auto kCount = static_cast<std::int64_t>(std::tuple_size<T>::value);
      if (sequence.size != kCount) wrong_size(at, named<T>(), kCount, sequence.size);
    }
    if constexpr (Sequence<T>) {
      for (std::int64_t i = 0; i < sequence.size; ++i) {
        const Element element{at, named<T>(), Element::kIndex, i, nullptr};
        require<typename T::value_type>(values[i], Position(&element));
      }
    } else {
      elements_of<T>::require_each(values, at, named<T>());
    }
  } else if constexpr (choices_of<T>::are) {
    using AnyView = typename dependent<::tvm::ffi::AnyView, T>::type;
    const Element whole{at, named<T>(), Element::kWhole, 0, nullptr};
    if (!choices_of<T>::template require_one<AnyView>(value, Position(&whole))) not_of_type(at, named<T>(), value);
  } else {
    if constexpr (!AnyValue<T>) {
      constexpr bool kIsClass = std::is_class_v<T>;  // pointers may be null
      if (kIsClass && !takes_none<T>::value && value.type_index == kTVMFFINone) not_of_type(at, named<T>(), value);
      if (const DLTensor* tensor = tensor_of(value)) require_data(*tensor, at);
      require_convertible<T>(value, at);
    }
  }
}

}  // namespace kjit::ffi_details
