// The text before the device half of a CUDA unit that NVRTC compiles (kjit/engine/compile/device_compiler.py).
//
// The half itself was preprocessed by the host C++ compiler, with nvcc's macros and the headers that nvcc reads:
// nothing here is visible to an `#if` of the unit. NVRTC's front end is nvcc's, without its GNU mode. So this text
// gives it the keywords and builtins of GCC that the headers of the C and C++ libraries use. Functions of host code are
// parsed and never compiled; those declared here without a body are for them alone, and a call from device code is an
// error.

// NVRTC's own kinds of errors about host code, and warnings about text that nvcc's front end knows.
#pragma nv_diag_suppress unrecognized_pragma
#pragma nv_diag_suppress unrecognized_attribute

// Keywords.
#define __extension__
#define __signed signed
#define __signed__ signed
#define __const const
#define __volatile volatile
#define __volatile__ volatile
#define __decltype decltype
// (Of an expression: a type is an error.)
#define __typeof(...) ::kjit_rtc::without_reference<decltype(__VA_ARGS__)>
#define __typeof__(...) ::kjit_rtc::without_reference<decltype(__VA_ARGS__)>
#define __asm asm
#define __asm__ asm
#define __alignof alignof
#define __alignof__ alignof
#define __null 0L
#define __no_unique_address__ no_unique_address
#define thread_local
#define __thread

// Types that NVRTC reserves, as it has no run-time type information.
#define type_info kjit_rtc_type_info
#define __class_type_info kjit_rtc_class_type_info
#define typeid(...) (::kjit_rtc::type_of())

// Traits that NVRTC lacks, for GCC up to 15. (It has the others, and all that transform a type.)
#define __is_same(...) (::kjit_rtc::is_same<__VA_ARGS__>)
#define __is_layout_compatible(...) (::kjit_rtc::lacks<__VA_ARGS__>)
#define __is_pointer_interconvertible_base_of(...) (::kjit_rtc::lacks<__VA_ARGS__>)
#define __builtin_is_virtual_base_of(...) (::kjit_rtc::lacks<__VA_ARGS__>)
#define __array_rank(...) (::kjit_rtc::array_rank<__VA_ARGS__>)
#define __is_array(...) (::kjit_rtc::is_array<__VA_ARGS__>)
#define __is_bounded_array(...) (::kjit_rtc::is_bounded_array<__VA_ARGS__>)
#define __is_unbounded_array(...) (::kjit_rtc::is_unbounded_array<__VA_ARGS__>)
#define __is_const(...) (::kjit_rtc::is_const<__VA_ARGS__>)
#define __is_volatile(...) (::kjit_rtc::is_volatile<__VA_ARGS__>)
#define __is_reference(...) (::kjit_rtc::is_reference<__VA_ARGS__>)
#define __is_pointer(...) (::kjit_rtc::is_pointer<::kjit_rtc::without_cv<__VA_ARGS__>>)
#define __is_member_pointer(...) (::kjit_rtc::is_member_pointer<::kjit_rtc::without_cv<__VA_ARGS__>>)
#define __is_member_object_pointer(...) (::kjit_rtc::is_member_object_pointer<::kjit_rtc::without_cv<__VA_ARGS__>>)
#define __is_member_function_pointer(...) (::kjit_rtc::is_member_function_pointer<::kjit_rtc::without_cv<__VA_ARGS__>>)
#define __is_object(...) (::kjit_rtc::is_object<__VA_ARGS__>)
#define __is_scoped_enum(...) (::kjit_rtc::is_scoped_enum<__VA_ARGS__>)
#define __is_convertible(...) (::kjit_rtc::is_convertible<__VA_ARGS__>)
#define __is_nothrow_convertible(...) (::kjit_rtc::is_nothrow_convertible<__VA_ARGS__>)
#define __is_invocable(...) (::kjit_rtc::is_invocable<__VA_ARGS__>)
#define __is_nothrow_invocable(...) (::kjit_rtc::is_nothrow_invocable<__VA_ARGS__>)
#define __reference_constructs_from_temporary(...) (::kjit_rtc::constructs_from_temporary<__VA_ARGS__>)
#define __reference_converts_from_temporary(...) (::kjit_rtc::converts_from_temporary<__VA_ARGS__>)
#define __type_pack_element ::kjit_rtc::type_pack_element

#define __builtin_offsetof(type, member) (__INTADDR__(&static_cast<type*>(0)->member))

// Builtins with variable arguments: for host code.
#define __builtin_va_list void*
#define __builtin_va_start(...) static_cast<void>(0)
#define __builtin_va_end(...) static_cast<void>(0)
#define __builtin_va_copy(...) static_cast<void>(0)

// What a compiler may answer of an expression that it does not fold. (halves.py refuses units that ask themselves.)
#define __builtin_constant_p(...) false
#define __builtin_expect_with_probability(x, ...) (x)
#define __atomic_is_lock_free(...) true
#define __atomic_always_lock_free(...) true

// Values.
#define __builtin_huge_valf() __builtin_bit_cast(float, 0x7f800000u)
#define __builtin_huge_val() __builtin_bit_cast(double, 0x7ff0000000000000ull)
#define __builtin_huge_vall() static_cast<long double>(__builtin_huge_val())
#define __builtin_inff() __builtin_huge_valf()
#define __builtin_inf() __builtin_huge_val()
#define __builtin_infl() __builtin_huge_vall()
#define __builtin_nanf(text) \
  __builtin_bit_cast(float, 0x7fc00000u | static_cast<unsigned>(::kjit_rtc::payload(text) & 0x3fffff))
#define __builtin_nan(text) \
  __builtin_bit_cast(double, 0x7ff8000000000000ull | (::kjit_rtc::payload(text) & ~0ull >> 13))
#define __builtin_nanl(text) static_cast<long double>(__builtin_nan(text))
#define __builtin_nansf(payload) __builtin_bit_cast(float, 0x7fa00000u)
#define __builtin_nans(payload) __builtin_bit_cast(double, 0x7ff4000000000000ull)
#define __builtin_nansl(payload) static_cast<long double>(__builtin_nans(payload))
#define __builtin_nansq(payload) static_cast<__float128>(__builtin_nans(payload))

// Functions of the C library, which the unit declares; math_names.py has the others.
#define __builtin_nexttoward ::nexttoward
#define __builtin_nexttowardf ::nexttowardf
#define __builtin_nexttowardl ::nexttowardl
#define __builtin_operator_delete ::operator delete
#define __builtin_operator_new ::operator new

// The real and the imaginary part of a complex number of GCC's, as operators that bind like a product.
#define __real__ ::kjit_rtc::RealPart()*
#define __imag__ ::kjit_rtc::ImaginaryPart()*

#define __builtin_bswap16(x) static_cast<unsigned short>(::kjit_rtc::swapped(x, 2))
#define __builtin_bswap32(x) static_cast<unsigned>(::kjit_rtc::swapped(x, 4))
#define __builtin_bswap64(x) (::kjit_rtc::swapped(x, 8))
#define __builtin_popcount(x) (::kjit_rtc::popcount(static_cast<unsigned>(x)))
#define __builtin_popcountl(x) (::kjit_rtc::popcount(static_cast<unsigned long long>(x)))
#define __builtin_popcountll(x) (::kjit_rtc::popcount(static_cast<unsigned long long>(x)))
#define __builtin_parity(x) (__builtin_popcount(x) & 1)
#define __builtin_parityl(x) (__builtin_popcountll(x) & 1)
#define __builtin_parityll(x) (__builtin_popcountll(x) & 1)
#define __builtin_ffs(x) (::kjit_rtc::ffs(static_cast<unsigned>(x)))
#define __builtin_ffsl(x) (::kjit_rtc::ffs(static_cast<unsigned long long>(x)))
#define __builtin_ffsll(x) (::kjit_rtc::ffs(static_cast<unsigned long long>(x)))
#define __builtin_ctz(x) (::kjit_rtc::ctz(static_cast<unsigned>(x)))
#define __builtin_ctzl(x) (::kjit_rtc::ctz(static_cast<unsigned long long>(x)))
#define __builtin_ctzll(x) (::kjit_rtc::ctz(static_cast<unsigned long long>(x)))
#define __builtin_clz(x) (::kjit_rtc::clz(static_cast<unsigned>(x)))
#define __builtin_clzl(x) (::kjit_rtc::clz(static_cast<unsigned long long>(x)))
#define __builtin_clzll(x) (::kjit_rtc::clz(static_cast<unsigned long long>(x)))
#define __builtin_clrsb(x) (::kjit_rtc::clrsb(static_cast<int>(x)))
#define __builtin_clrsbl(x) (::kjit_rtc::clrsb(static_cast<long long>(x)))
#define __builtin_clrsbll(x) (::kjit_rtc::clrsb(static_cast<long long>(x)))
#define __builtin_popcountg(x) (::kjit_rtc::popcountg(x))
#define __builtin_ctzg(...) (::kjit_rtc::ctzg(__VA_ARGS__))
#define __builtin_clzg(...) (::kjit_rtc::clzg(__VA_ARGS__))
#define __builtin_add_overflow(...) (::kjit_rtc::overflows<'+'>(__VA_ARGS__))
#define __builtin_sub_overflow(...) (::kjit_rtc::overflows<'-'>(__VA_ARGS__))
#define __builtin_mul_overflow(...) (::kjit_rtc::overflows<'*'>(__VA_ARGS__))

namespace std {
class type_info;
template <typename T>
class reference_wrapper;
}  // namespace std

#define KJIT_FOR_ALL __attribute__((host)) __attribute__((device))

namespace kjit_rtc {
/// The number that a NaN carries: octal, decimal or hexadecimal, as in C++.
KJIT_FOR_ALL constexpr unsigned long long payload(const char* text) {
  unsigned base = 10;
  if (*text == '0') base = text[1] == 'x' || text[1] == 'X' ? 16 : 8;
  unsigned long long number = 0;
  for (text += base == 16 ? 2 : 0; *text != 0; ++text) {
    const int digit = *text >= 'a' ? *text - 'a' + 10 : *text >= 'A' ? *text - 'A' + 10 : *text - '0';
    number = number * base + digit;
  }
  return number;
}

template <typename T>
KJIT_FOR_ALL constexpr T magnitude(T x) {
  if (__builtin_is_constant_evaluated()) return x < T(0) ? static_cast<T>(-x) : x;
  if constexpr (sizeof(T) == sizeof(float)) {
    return ::fabsf(x);
  } else {
    return ::fabs(static_cast<double>(x));
  }
}
}  // namespace kjit_rtc

template <typename T>
constexpr int __builtin_isnan(T x) {
  return !(::kjit_rtc::magnitude(x) <= static_cast<T>(__builtin_huge_val()));
}
template <typename T>
constexpr int __builtin_isfinite(T x) {
  return ::kjit_rtc::magnitude(x) < static_cast<T>(__builtin_huge_val());
}
template <typename T>
constexpr int __builtin_isinf(T x) {
  return ::kjit_rtc::magnitude(x) == static_cast<T>(__builtin_huge_val());
}
template <typename T>
constexpr int __builtin_isinf_sign(T x) {
  return __builtin_isinf(x) ? (x < T(0) ? -1 : 1) : 0;
}
#define KJIT_COMPARISON(name, expression)    \
  template <typename A, typename B>          \
  constexpr int __builtin_##name(A x, B y) { \
    return expression;                       \
  }
KJIT_COMPARISON(isunordered, x != x || y != y)
KJIT_COMPARISON(isgreater, x > y)
KJIT_COMPARISON(isgreaterequal, x >= y)
KJIT_COMPARISON(isless, x < y)
KJIT_COMPARISON(islessequal, x <= y)
KJIT_COMPARISON(islessgreater, (x < y) || (x > y))
#undef KJIT_COMPARISON

long double __builtin_fabsl(long double);
template <typename T>
bool __builtin_isnormal(T);
template <typename T>
bool __builtin_signbit(T);
bool __builtin_signbitf(float);
bool __builtin_signbitl(long double);
template <typename T>
int __builtin_fpclassify(int, int, int, int, int, T);
#define KJIT_OF_COMPLEX(name)   \
  template <typename T>         \
  float __builtin_##name##f(T); \
  template <typename T>         \
  double __builtin_##name(T);   \
  template <typename T>         \
  long double __builtin_##name##l(T);
KJIT_OF_COMPLEX(cabs)
KJIT_OF_COMPLEX(carg)
#undef KJIT_OF_COMPLEX
/// Functions of complex numbers, for host code.
#define KJIT_OF_COMPLEX_TYPE(name)        \
  template <typename T, typename... Rest> \
  T name(T, Rest...);
#define KJIT_OF_COMPLEX(name)               \
  KJIT_OF_COMPLEX_TYPE(__builtin_##name##f) \
  KJIT_OF_COMPLEX_TYPE(__builtin_##name)    \
  KJIT_OF_COMPLEX_TYPE(__builtin_##name##l)
KJIT_OF_COMPLEX(cacos)
KJIT_OF_COMPLEX(cacosh)
KJIT_OF_COMPLEX(casin)
KJIT_OF_COMPLEX(casinh)
KJIT_OF_COMPLEX(catan)
KJIT_OF_COMPLEX(catanh)
KJIT_OF_COMPLEX(ccos)
KJIT_OF_COMPLEX(ccosh)
KJIT_OF_COMPLEX(cexp)
KJIT_OF_COMPLEX(clog)
KJIT_OF_COMPLEX(cpow)
KJIT_OF_COMPLEX(cproj)
KJIT_OF_COMPLEX(csin)
KJIT_OF_COMPLEX(csinh)
KJIT_OF_COMPLEX(csqrt)
KJIT_OF_COMPLEX(ctan)
KJIT_OF_COMPLEX(ctanh)
#undef KJIT_OF_COMPLEX
#undef KJIT_OF_COMPLEX_TYPE
void __builtin_free(void*);
void* __builtin_alloca(unsigned long);
void __builtin_ia32_pause();
template <typename T>
void __builtin_clear_padding(T*);
bool __builtin_coro_done(void*);
void __builtin_coro_resume(void*);
void __builtin_coro_destroy(void*);
void* __builtin_coro_promise(void*, int, bool);
#define KJIT_ATOMIC(name)                 \
  template <typename T, typename... Rest> \
  T name(volatile T*, Rest...);
#define KJIT_ATOMICS(operation)             \
  KJIT_ATOMIC(__atomic_fetch_##operation)   \
  KJIT_ATOMIC(__atomic_##operation##_fetch) \
  KJIT_ATOMIC(__sync_fetch_and_##operation) \
  KJIT_ATOMIC(__sync_##operation##_and_fetch)
KJIT_ATOMICS(add)
KJIT_ATOMICS(sub)
KJIT_ATOMICS(and)
KJIT_ATOMICS(or)
KJIT_ATOMICS(xor)
KJIT_ATOMICS(nand)
KJIT_ATOMIC(__atomic_exchange_n)
KJIT_ATOMIC(__sync_val_compare_and_swap)
KJIT_ATOMIC(__sync_lock_test_and_set)
#undef KJIT_ATOMICS
#undef KJIT_ATOMIC
#define KJIT_ATOMIC(result, name) \
  template <typename... Args>     \
  result name(Args...);
KJIT_ATOMIC(void, __atomic_load)
KJIT_ATOMIC(void, __atomic_store)
KJIT_ATOMIC(void, __atomic_store_n)
KJIT_ATOMIC(void, __atomic_exchange)
KJIT_ATOMIC(bool, __atomic_compare_exchange)
KJIT_ATOMIC(bool, __atomic_compare_exchange_n)
#undef KJIT_ATOMIC
template <typename T>
T __atomic_load_n(const volatile T*, int);
void __atomic_clear(volatile void*, int);
void __atomic_thread_fence(int);
void __atomic_signal_fence(int);
bool __atomic_test_and_set(volatile void*, int);
template <typename T, typename... Rest>
bool __sync_bool_compare_and_swap(volatile T*, Rest...);
template <typename T>
void __sync_lock_release(volatile T*);
void __sync_synchronize();

namespace kjit_rtc {

const std::type_info& type_of();

template <typename A, typename B>
inline constexpr bool is_same = false;
template <typename A>
inline constexpr bool is_same<A, A> = true;

// (Not with NVRTC's own `__remove_cv` and the like: a library's declaration of such a name replaces it.)
template <typename T>
struct Unqualified {
  using type = T;
};
template <typename T>
struct Unqualified<const T> {
  using type = T;
};
template <typename T>
struct Unqualified<volatile T> {
  using type = T;
};
template <typename T>
struct Unqualified<const volatile T> {
  using type = T;
};
template <typename T>
using without_cv = typename Unqualified<T>::type;
template <typename T>
struct Referred {
  using type = T;
};
template <typename T>
struct Referred<T&> {
  using type = T;
};
template <typename T>
struct Referred<T&&> {
  using type = T;
};
template <typename T>
using without_reference = typename Referred<T>::type;
template <typename T>
using without_cvref = without_cv<without_reference<T>>;
template <typename...>
struct Void {
  using type = void;
};
/// References and pointers to `T`, if there are any.
template <typename T, typename = void>
struct Reference {
  using lvalue = T;
  using rvalue = T;
  using pointer = T;
};
template <typename T>
struct Reference<T, typename Void<T&>::type> {
  using lvalue = T&;
  using rvalue = T&&;
  using pointer = without_reference<T>*;
};

template <typename...>
inline constexpr bool is_known = false;
/// A trait that NVRTC lacks: an error where it is used.
template <typename... Types>
inline constexpr bool lacks = [] {
  static_assert(is_known<Types...>, "only nvcc has this type trait");
  return false;
}();

template <typename>
inline constexpr unsigned long array_rank = 0;
template <typename T>
inline constexpr unsigned long array_rank<T[]> = 1 + array_rank<T>;
template <typename T, unsigned long kSize>
inline constexpr unsigned long array_rank<T[kSize]> = 1 + array_rank<T>;
template <typename>
inline constexpr bool is_unbounded_array = false;
template <typename T>
inline constexpr bool is_unbounded_array<T[]> = true;
template <typename>
inline constexpr bool is_bounded_array = false;
template <typename T, unsigned long kSize>
inline constexpr bool is_bounded_array<T[kSize]> = true;
template <typename T>
inline constexpr bool is_array = is_unbounded_array<T> || is_bounded_array<T>;

template <typename>
inline constexpr bool is_const = false;
template <typename T>
inline constexpr bool is_const<const T> = true;
template <typename>
inline constexpr bool is_volatile = false;
template <typename T>
inline constexpr bool is_volatile<volatile T> = true;
template <typename>
inline constexpr bool is_reference = false;
template <typename T>
inline constexpr bool is_reference<T&> = true;
template <typename T>
inline constexpr bool is_reference<T&&> = true;
template <typename T>
inline constexpr bool is_void = is_same<without_cv<T>, void>;
template <typename T>
inline constexpr bool is_object = !__is_function(T) && !is_reference<T> && !is_void<T>;

// Of types without qualifiers.
template <typename>
inline constexpr bool is_pointer = false;
template <typename T>
inline constexpr bool is_pointer<T*> = true;
template <typename>
inline constexpr bool is_member_pointer = false;
template <typename T, typename Class>
inline constexpr bool is_member_pointer<T Class::*> = true;
template <typename>
inline constexpr bool is_member_function_pointer = false;
template <typename T, typename Class>
inline constexpr bool is_member_function_pointer<T Class::*> = __is_function(T);
template <typename T>
inline constexpr bool is_member_object_pointer = is_member_pointer<T> && !is_member_function_pointer<T>;

template <typename T>
struct Value {
  using type = T;
};
template <typename T>
typename Reference<T>::rvalue value_of() noexcept;
/// A call initialises a `To`, implicitly.
template <typename To>
void initialise(typename Value<To>::type) noexcept;
// (Nothing converts to an array or a function, which a parameter would not be either.)
template <typename From, typename To, bool = is_array<To> || __is_function(To), typename = void>
struct Converts {
  static constexpr bool is_possible = is_void<From> && is_void<To>;
  static constexpr bool is_nothrow = is_possible;
};
template <typename From, typename To>
struct Converts<From, To, false, decltype(initialise<To>(value_of<From>()))> {
  static constexpr bool is_possible = true;
  static constexpr bool is_nothrow = noexcept(initialise<To>(value_of<From>()));
};
template <typename From, typename To>
inline constexpr bool is_convertible = Converts<From, To>::is_possible;
template <typename From, typename To>
inline constexpr bool is_nothrow_convertible = Converts<From, To>::is_nothrow;

template <typename T, bool = __is_enum(T)>
inline constexpr bool is_scoped_enum = false;
template <typename T>
inline constexpr bool is_scoped_enum<T, true> = !is_convertible<T, __underlying_type(T)>;

template <unsigned long kIndex, typename First, typename... Rest>
struct Element : Element<kIndex - 1, Rest...> {};
template <typename First, typename... Rest>
struct Element<0, First, Rest...> {
  using type = First;
};
template <unsigned long kIndex, typename... Types>
using type_pack_element = typename Element<kIndex, Types...>::type;

/// The object of a call through a pointer to a member of `Class`: `T` is the class, refers to it or points to it.
template <int kKind>
struct Kind {};
template <typename>
inline constexpr bool is_wrapper = false;
template <typename T>
inline constexpr bool is_wrapper<std::reference_wrapper<T>> = true;
template <typename Class, typename T>
using KindOf = Kind<is_same<Class, T> || __is_base_of(Class, T) ? 0
                    : is_wrapper<T>                             ? 1
                                                                : 2>;
template <typename T>
auto object(Kind<0>) noexcept -> decltype(value_of<T>());
template <typename T>
auto object(Kind<1>) noexcept(noexcept(value_of<T>().get())) -> decltype(value_of<T>().get());
template <typename T>
auto object(Kind<2>) noexcept(noexcept(*value_of<T>())) -> decltype(*value_of<T>());
/// The standard's INVOKE of a `Function`, which is `F` without qualifiers.
template <typename F, bool = is_member_function_pointer<F>>
struct Invoke {
  template <typename Function, typename... Args>
  static auto call() -> decltype(value_of<Function>()(value_of<Args>()...));
  template <typename Function, typename... Args>
  static constexpr bool is_nothrow = noexcept(value_of<Function>()(value_of<Args>()...));
};
template <typename Member, typename Class>
struct Invoke<Member Class::*, true> {
  template <typename T>
  using Kind = KindOf<Class, without_cvref<T>>;
  template <typename Function, typename T, typename... Args>
  static auto call() -> decltype((object<T>(Kind<T>()).*value_of<Function>())(value_of<Args>()...));
  template <typename Function, typename T, typename... Args>
  static constexpr bool is_nothrow = noexcept((object<T>(Kind<T>()).*value_of<Function>())(value_of<Args>()...));
};
template <typename Member, typename Class>
struct Invoke<Member Class::*, false> {
  template <typename T>
  using Kind = KindOf<Class, without_cvref<T>>;
  template <typename Function, typename T>
  static auto call() -> decltype(object<T>(Kind<T>()).*value_of<Function>());
  template <typename Function, typename T>
  static constexpr bool is_nothrow = noexcept(object<T>(Kind<T>()).*value_of<Function>());
};
template <typename, typename F, typename... Args>
inline constexpr bool invokes = false;
template <typename F, typename... Args>
inline constexpr bool
    invokes<typename Void<decltype(Invoke<without_cvref<F>>::template call<F, Args...>())>::type, F, Args...> = true;
template <typename F, typename... Args>
inline constexpr bool is_invocable = invokes<void, F, Args...>;
template <bool kIsInvocable, typename F, typename... Args>
inline constexpr bool invokes_nothrow = false;
template <typename F, typename... Args>
inline constexpr bool invokes_nothrow<true, F, Args...> = Invoke<without_cvref<F>>::template is_nothrow<F, Args...>;
template <typename F, typename... Args>
inline constexpr bool is_nothrow_invocable = invokes_nothrow<is_invocable<F, Args...>, F, Args...>;

/// Whether the reference `T` to a `From` refers to a new object: none of `From`, and none that it converts to an
/// lvalue.
template <typename T, typename From,
          bool = is_convertible<typename Reference<From>::pointer, typename Reference<T>::pointer>>
inline constexpr bool is_to_temporary = is_object<From>;
template <typename T, typename From>
inline constexpr bool is_to_temporary<T, From, false> =
    !is_convertible<From, without_cvref<T>&> && is_convertible<From, without_reference<T>&&>;
template <typename T, typename From, bool = is_reference<T> && __is_constructible(T, From)>
inline constexpr bool constructs_from_temporary = false;
template <typename T, typename From>
inline constexpr bool constructs_from_temporary<T, From, true> = is_to_temporary<T, From>;
template <typename T, typename From, bool = is_reference<T> && is_convertible<From, T>>
inline constexpr bool converts_from_temporary = false;
template <typename T, typename From>
inline constexpr bool converts_from_temporary<T, From, true> = is_to_temporary<T, From>;

template <typename T, T... kValues>
struct Sequence {};
template <typename A, typename B>
struct Joined;
template <typename T, T... kFirst, T... kSecond>
struct Joined<Sequence<T, kFirst...>, Sequence<T, kSecond...>> {
  using type = Sequence<T, kFirst..., (T(sizeof...(kFirst)) + kSecond)...>;
};
template <typename T, unsigned long kCount>
struct Counted : Joined<typename Counted<T, kCount / 2>::type, typename Counted<T, kCount - kCount / 2>::type> {};
template <typename T>
struct Counted<T, 0> {
  using type = Sequence<T>;
};
template <typename T>
struct Counted<T, 1> {
  using type = Sequence<T, 0>;
};
template <template <typename T, T...> typename To, typename From>
struct Typed;
template <template <typename T, T...> typename To, typename T, T... kValues>
struct Typed<To, Sequence<T, kValues...>> {
  using type = To<T, kValues...>;
};
template <template <unsigned long...> typename To, typename From>
struct Untyped;
template <template <unsigned long...> typename To, typename T, T... kValues>
struct Untyped<To, Sequence<T, kValues...>> {
  using type = To<kValues...>;
};
/// `To<T, 0, 1, ..., kCount - 1>`, which GCC's library writes as `To<T, __integer_pack(kCount)...>`.
template <template <typename T, T...> typename To, typename T, T kCount>
using typed_sequence = typename Typed<To, typename Counted<T, static_cast<unsigned long>(kCount)>::type>::type;
/// `To<0, 1, ..., kCount - 1>`.
template <template <unsigned long...> typename To, unsigned long kCount>
using sequence = typename Untyped<To, typename Counted<unsigned long, kCount>::type>::type;

/// GCC's types of 16 bits, without arithmetic.
struct alignas(2) Bfloat {
  unsigned short bits;
};
struct alignas(2) Float16 {
  unsigned short bits;
};

/// A type of GCC's, other than `T`, with the numbers of `T`.
template <int kBits, typename T>
struct Float {
  using type = T;
  T value;
  Float() = default;
  constexpr Float(T number) : value(number) {}
  constexpr operator T() const { return value; }
};
using Float32 = Float<32, float>;
using Float64 = Float<64, double>;
using Float128 = Float<128, long double>;
using Float32x = Float<33, double>;
using Float64x = Float<65, long double>;

/// GCC's complex number of two `T`.
template <typename T>
struct Complex {
  T parts[2];
  Complex() = default;
  constexpr Complex(T real, T imaginary = T()) : parts{real, imaginary} {}
  template <typename U>
  constexpr Complex(const Complex<U>& other) : parts{T(other.parts[0]), T(other.parts[1])} {}
  Complex& operator+=(const Complex&);
  Complex& operator-=(const Complex&);
  Complex& operator*=(const Complex&);
  Complex& operator/=(const Complex&);
};
using complex_float = Complex<float>;
using complex_double = Complex<double>;
using complex_long_double = Complex<long double>;
struct RealPart {
  template <typename T>
  friend constexpr T& operator*(RealPart, Complex<T>& z) {
    return z.parts[0];
  }
  template <typename T>
  friend constexpr const T& operator*(RealPart, const Complex<T>& z) {
    return z.parts[0];
  }
};
struct ImaginaryPart {
  template <typename T>
  friend constexpr T& operator*(ImaginaryPart, Complex<T>& z) {
    return z.parts[1];
  }
  template <typename T>
  friend constexpr const T& operator*(ImaginaryPart, const Complex<T>& z) {
    return z.parts[1];
  }
};

// GCC's bit-counting builtins, which are constant expressions.
KJIT_FOR_ALL constexpr int popcount(unsigned long long x) {
  if (!__builtin_is_constant_evaluated()) return __popcll(x);
  int count = 0;
  for (; x != 0; x &= x - 1) ++count;
  return count;
}
KJIT_FOR_ALL constexpr int popcount(unsigned x) {
  return __builtin_is_constant_evaluated() ? popcount(static_cast<unsigned long long>(x)) : __popc(x);
}
/// The number of the lowest bit that is set, from 1; 0 of zero.
KJIT_FOR_ALL constexpr int ffs(unsigned long long x) {
  if (!__builtin_is_constant_evaluated()) return __ffsll(x);
  return x == 0 ? 0 : popcount(~x & (x - 1)) + 1;
}
KJIT_FOR_ALL constexpr int ffs(unsigned x) {
  return __builtin_is_constant_evaluated() ? ffs(static_cast<unsigned long long>(x)) : __ffs(x);
}
KJIT_FOR_ALL constexpr int ctz(unsigned long long x) {
  return __builtin_is_constant_evaluated() ? popcount(~x & (x - 1)) : __clzll(__brevll(x));
}
KJIT_FOR_ALL constexpr int ctz(unsigned x) {
  return __builtin_is_constant_evaluated() ? popcount(~x & (x - 1)) : __clz(__brev(x));
}
KJIT_FOR_ALL constexpr int clz(unsigned long long x) {
  if (!__builtin_is_constant_evaluated()) return __clzll(x);
  int count = 64;
  for (; x != 0; x >>= 1) --count;
  return count;
}
KJIT_FOR_ALL constexpr int clz(unsigned x) {
  return __builtin_is_constant_evaluated() ? clz(static_cast<unsigned long long>(x)) - 32 : __clz(x);
}
/// The number of bits that equal the sign's, without it.
KJIT_FOR_ALL constexpr int clrsb(int x) {
  return clz(static_cast<unsigned>(x < 0 ? ~x : x)) - 1;
}
KJIT_FOR_ALL constexpr int clrsb(long long x) {
  return clz(static_cast<unsigned long long>(x < 0 ? ~x : x)) - 1;
}

// Those for all unsigned types; `of_zero` is the result for zero.
template <typename T>
KJIT_FOR_ALL constexpr int popcountg(T x) {
  if constexpr (sizeof(T) <= 4) return popcount(static_cast<unsigned>(x));
  if constexpr (sizeof(T) <= 8) return popcount(static_cast<unsigned long long>(x));
  return popcount(static_cast<unsigned long long>(x)) + popcount(static_cast<unsigned long long>(x >> 32 >> 32));
}
template <typename T>
KJIT_FOR_ALL constexpr int ctzg(T x, int of_zero = 8 * sizeof(T)) {
  if (x == 0) return of_zero;
  if constexpr (sizeof(T) <= 4) return ctz(static_cast<unsigned>(x));
  const auto low = static_cast<unsigned long long>(x);
  return low != 0 ? ctz(low) : 64 + ctz(static_cast<unsigned long long>(x >> 32 >> 32));
}
template <typename T>
KJIT_FOR_ALL constexpr int clzg(T x, int of_zero = 8 * sizeof(T)) {
  if (x == 0) return of_zero;
  if constexpr (sizeof(T) <= 4) return clz(static_cast<unsigned>(x)) - (32 - 8 * int(sizeof(T)));
  if constexpr (sizeof(T) <= 8) return clz(static_cast<unsigned long long>(x));
  const auto high = static_cast<unsigned long long>(x >> 32 >> 32);
  return high != 0 ? clz(high) : 64 + clz(static_cast<unsigned long long>(x));
}

KJIT_FOR_ALL constexpr unsigned long long swapped(unsigned long long x, int bytes) {
  unsigned long long result = 0;
  for (int i = 0; i < bytes; ++i) result |= (x >> (8 * i) & 0xff) << (8 * (bytes - 1 - i));
  return result;
}

/// GCC's arithmetic with a check: the exact result as an `R`, and whether that is another number.
template <char kSign, typename A, typename B, typename R>
KJIT_FOR_ALL constexpr bool overflows(A a, B b, R* result) {
  // As signs and magnitudes of 128 bits, which hold every sum and product of 64-bit numbers.
  bool is_negative = a < A(0);
  const bool other_is_negative = (b < B(0)) != (kSign == '-');
  const auto magnitude = [](auto x) {
    return x < 0 ? -static_cast<unsigned __int128>(x) : static_cast<unsigned __int128>(x);
  };
  const unsigned __int128 x = magnitude(a), y = magnitude(b);
  unsigned __int128 exact = 0;
  if (kSign == '*') {
    exact = x * y;
    is_negative = (a < A(0)) != (b < B(0));
  } else if (is_negative == other_is_negative) {
    exact = x + y;
  } else {
    exact = x < y ? y - x : x - y;
    if (x < y) is_negative = other_is_negative;
  }
  *result = static_cast<R>(is_negative ? -exact : exact);
  return magnitude(*result) != exact || (exact != 0 && (*result < R(0)) != is_negative);
}

}  // namespace kjit_rtc

#undef KJIT_FOR_ALL
