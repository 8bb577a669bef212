// The usual parts of <type_traits> for NVRTC, which compiles for the simulated GPU and lacks this header.
#ifndef GPULAB_STANDARD_TYPE_TRAITS
#define GPULAB_STANDARD_TYPE_TRAITS

namespace std {

template <typename T, T V> struct integral_constant {
    static constexpr T value = V;
    using value_type = T;
    using type = integral_constant;
    __host__ __device__ constexpr operator T() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <typename T, typename U> struct is_same : false_type {};
template <typename T> struct is_same<T, T> : true_type {};

template <bool B, typename T, typename F> struct conditional { using type = T; };
template <typename T, typename F> struct conditional<false, T, F> { using type = F; };

template <bool B, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { using type = T; };

template <typename T> struct remove_reference { using type = T; };
template <typename T> struct remove_reference<T &> { using type = T; };
template <typename T> struct remove_reference<T &&> { using type = T; };

template <typename T> struct remove_const { using type = T; };
template <typename T> struct remove_const<const T> { using type = T; };
template <typename T> struct remove_volatile { using type = T; };
template <typename T> struct remove_volatile<volatile T> { using type = T; };
template <typename T> struct remove_cv { using type = typename remove_const<typename remove_volatile<T>::type>::type; };

template <typename T> struct remove_pointer { using type = T; };
template <typename T> struct remove_pointer<T *> { using type = T; };
template <typename T> struct is_pointer : false_type {};
template <typename T> struct is_pointer<T *> : true_type {};

template <typename T> struct decay { using type = typename remove_cv<typename remove_reference<T>::type>::type; };

template <typename T, typename... Us> inline constexpr bool gpulab_is_one_of = (is_same<T, Us>::value || ...);
template <typename T>
struct is_floating_point : bool_constant<gpulab_is_one_of<typename remove_cv<T>::type, float, double, long double>> {};
template <typename T>
struct is_integral
    : bool_constant<gpulab_is_one_of<typename remove_cv<T>::type, bool, char, signed char, unsigned char, wchar_t,
                                     char16_t, char32_t, short, unsigned short, int, unsigned, long, unsigned long,
                                     long long, unsigned long long>> {};
template <typename T> struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <typename T, bool = is_arithmetic<T>::value> struct is_signed : bool_constant<(T(-1) < T(0))> {};
template <typename T> struct is_signed<T, false> : false_type {};
template <typename T> struct is_unsigned : bool_constant<is_arithmetic<T>::value && !is_signed<T>::value> {};

template <typename T> struct is_void : is_same<typename remove_cv<T>::type, void> {};
template <typename T> struct is_null_pointer : is_same<typename remove_cv<T>::type, decltype(nullptr)> {};
template <typename T> struct is_const : bool_constant<!is_same<T, typename remove_const<T>::type>::value> {};
template <typename T> struct is_reference : bool_constant<!is_same<T, typename remove_reference<T>::type>::value> {};
template <typename T> struct is_array : bool_constant<!is_same<T, __remove_extent(T)>::value> {};
template <typename T> struct is_class : bool_constant<__is_class(T)> {};
template <typename T> struct is_empty : bool_constant<__is_empty(T)> {};
template <typename T> struct is_enum : bool_constant<__is_enum(T)> {};
template <typename T> struct is_standard_layout : bool_constant<__is_standard_layout(T)> {};
template <typename T> struct is_trivial : bool_constant<__is_trivial(T)> {};
template <typename T> struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <typename T> struct is_default_constructible : bool_constant<__is_constructible(T)> {};
template <typename T, typename... Us> struct is_constructible : bool_constant<__is_constructible(T, Us...)> {};
template <typename T, typename U> struct is_assignable : bool_constant<__is_assignable(T, U)> {};
template <typename T, typename U> struct is_base_of : bool_constant<__is_base_of(T, U)> {};
template <typename T, typename U> struct is_convertible : bool_constant<__is_convertible_to(T, U)> {};
template <typename... Bs> struct conjunction : bool_constant<(Bs::value && ...)> {};
template <typename... Bs> struct disjunction : bool_constant<(Bs::value || ...)> {};
template <typename B> struct negation : bool_constant<!B::value> {};

template <typename T> struct remove_extent { using type = __remove_extent(T); };
template <typename T> struct add_const { using type = const T; };
template <typename T> struct add_pointer { using type = __add_pointer(T); };
template <typename T> struct make_signed { using type = __make_signed(T); };
template <typename T> struct make_unsigned { using type = __make_unsigned(T); };
template <typename T> struct underlying_type { using type = __underlying_type(T); };

template <typename T> T &&declval() noexcept;
template <typename...> using void_t = void;
template <typename... Ts> struct common_type {};
template <typename T> struct common_type<T> : decay<T> {};
template <typename T, typename U> struct common_type<T, U> : decay<decltype(true ? declval<T>() : declval<U>())> {};
template <typename T, typename U, typename... Vs>
struct common_type<T, U, Vs...> : common_type<typename common_type<T, U>::type, Vs...> {};
template <typename, typename F, typename... Ts> struct gpulab_call : false_type {};
template <typename F, typename... Ts>
struct gpulab_call<void_t<decltype(declval<F>()(declval<Ts>()...))>, F, Ts...> : true_type {
    using type = decltype(declval<F>()(declval<Ts>()...));
};
template <typename F, typename... Ts> struct is_invocable : bool_constant<gpulab_call<void, F, Ts...>::value> {};
template <typename F, typename... Ts> struct invoke_result : gpulab_call<void, F, Ts...> {};

template <bool B, typename T, typename F> using conditional_t = typename conditional<B, T, F>::type;
template <bool B, typename T = void> using enable_if_t = typename enable_if<B, T>::type;

#define GPULAB_V(name) template <typename... Ts> inline constexpr auto name##_v = name<Ts...>::value;
#define GPULAB_T(name) template <typename... Ts> using name##_t = typename name<Ts...>::type;
GPULAB_V(is_same) GPULAB_V(is_pointer) GPULAB_V(is_floating_point) GPULAB_V(is_integral) GPULAB_V(is_arithmetic)
GPULAB_V(is_signed) GPULAB_V(is_unsigned) GPULAB_V(is_void) GPULAB_V(is_null_pointer) GPULAB_V(is_const)
GPULAB_V(is_reference) GPULAB_V(is_array) GPULAB_V(is_class) GPULAB_V(is_empty) GPULAB_V(is_enum)
GPULAB_V(is_standard_layout) GPULAB_V(is_trivial) GPULAB_V(is_trivially_copyable) GPULAB_V(is_default_constructible)
GPULAB_V(is_constructible) GPULAB_V(is_assignable) GPULAB_V(is_base_of) GPULAB_V(is_convertible)
GPULAB_V(conjunction) GPULAB_V(disjunction) GPULAB_V(negation) GPULAB_V(is_invocable)
GPULAB_T(remove_reference) GPULAB_T(remove_const) GPULAB_T(remove_volatile) GPULAB_T(remove_cv)
GPULAB_T(remove_pointer) GPULAB_T(decay) GPULAB_T(remove_extent) GPULAB_T(add_const) GPULAB_T(add_pointer)
GPULAB_T(make_signed) GPULAB_T(make_unsigned) GPULAB_T(underlying_type) GPULAB_T(common_type) GPULAB_T(invoke_result)
#undef GPULAB_V
#undef GPULAB_T

}  // namespace std

#endif
