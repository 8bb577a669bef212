// Names that nvcc has in namespace std before the first line of a file, for NVRTC, which lacks them.
#ifndef GPULAB_STANDARD_STD
#define GPULAB_STANDARD_STD

namespace std {

using ::acos; using ::acosh; using ::asin; using ::asinh; using ::atan; using ::atan2; using ::atanh; using ::cbrt;
using ::ceil; using ::copysign; using ::cos; using ::cosh; using ::erf; using ::erfc; using ::exp; using ::exp2; using
::expm1; using ::fabs; using ::fdim; using ::floor; using ::fma; using ::fmax; using ::fmin; using ::fmod; using
::frexp; using ::hypot; using ::ilogb; using ::isfinite; using ::isinf; using ::isnan; using ::ldexp; using ::lgamma;
using ::llrint; using ::llround; using ::log; using ::log10; using ::log1p; using ::log2; using ::logb; using ::lrint;
using ::lround; using ::modf; using ::nan; using ::nearbyint; using ::nextafter; using ::pow; using ::remainder; using
::remquo; using ::rint; using ::round; using ::scalbln; using ::scalbn; using ::signbit; using ::sin; using ::sinh;
using ::sqrt; using ::tan; using ::tanh; using ::tgamma; using ::trunc; using ::abs;

enum class byte : unsigned char {};

template <typename T, T... Is> struct integer_sequence {
    using value_type = T;
    __host__ __device__ static constexpr size_t size() noexcept { return sizeof...(Is); }
};
template <size_t... Is> using index_sequence = integer_sequence<size_t, Is...>;
template <size_t N, typename T, T... Is> struct gpulab_below : gpulab_below<N - 1, T, T(N - 1), Is...> {};
template <typename T, T... Is> struct gpulab_below<0, T, Is...> { using type = integer_sequence<T, Is...>; };
template <typename T, T N> using make_integer_sequence = typename gpulab_below<N, T>::type;
template <size_t N> using make_index_sequence = make_integer_sequence<size_t, N>;
template <typename... Ts> using index_sequence_for = make_index_sequence<sizeof...(Ts)>;

template <typename T> __host__ __device__ constexpr const T &as_const(T &x) noexcept { return x; }

template <typename T> __host__ __device__ constexpr const T &min(const T &a, const T &b) { return b < a ? b : a; }
template <typename T> __host__ __device__ constexpr const T &max(const T &a, const T &b) { return a < b ? b : a; }
template <typename T, typename Less> __host__ __device__ constexpr const T &min(const T &a, const T &b, Less less)
{
    return less(b, a) ? b : a;
}
template <typename T, typename Less> __host__ __device__ constexpr const T &max(const T &a, const T &b, Less less)
{
    return less(a, b) ? b : a;
}

template <typename T, typename U> struct pair {
    using first_type = T;
    using second_type = U;
    T first;
    U second;
    __host__ __device__ constexpr pair() : first(), second() {}
    __host__ __device__ constexpr pair(const T &a, const U &b) : first(a), second(b) {}
    template <typename V, typename W>
    __host__ __device__ constexpr pair(const pair<V, W> &other) : first(other.first), second(other.second) {}
};
template <typename T, typename U> pair(T, U) -> pair<T, U>;
template <typename T, typename U> __host__ __device__ constexpr pair<T, U> make_pair(T a, U b) { return {a, b}; }
template <typename T, typename U>
__host__ __device__ constexpr bool operator==(const pair<T, U> &a, const pair<T, U> &b)
{
    return a.first == b.first && a.second == b.second;
}
template <typename T, typename U> __host__ __device__ constexpr bool operator<(const pair<T, U> &a, const pair<T, U> &b)
{
    return a.first < b.first || (!(b.first < a.first) && a.second < b.second);
}

}  // namespace std

#endif
