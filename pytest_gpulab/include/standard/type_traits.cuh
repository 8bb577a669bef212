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

template <bool B, typename T, typename F> using conditional_t = typename conditional<B, T, F>::type;
template <bool B, typename T = void> using enable_if_t = typename enable_if<B, T>::type;
template <typename T> using remove_reference_t = typename remove_reference<T>::type;
template <typename T> using remove_const_t = typename remove_const<T>::type;
template <typename T> using remove_cv_t = typename remove_cv<T>::type;
template <typename T> using remove_pointer_t = typename remove_pointer<T>::type;
template <typename T> using decay_t = typename decay<T>::type;
template <typename T, typename U> inline constexpr bool is_same_v = is_same<T, U>::value;
template <typename T> inline constexpr bool is_pointer_v = is_pointer<T>::value;
template <typename T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <typename T> inline constexpr bool is_integral_v = is_integral<T>::value;
template <typename T> inline constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <typename T> inline constexpr bool is_signed_v = is_signed<T>::value;
template <typename T> inline constexpr bool is_unsigned_v = is_unsigned<T>::value;

}  // namespace std

#endif
