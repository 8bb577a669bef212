"""The standard headers that students' files include: NVRTC has none of them."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import CompileError, Device

LIMITS = """
#include <limits>
template <typename T> __global__ void f(T *out) {
    out[0] = std::numeric_limits<T>::lowest();
    out[1] = std::numeric_limits<T>::min();
    out[2] = std::numeric_limits<T>::max();
}
template __global__ void f<TYPE>(TYPE *);
"""

FLOATS = """
#include <limits>
__global__ void f(float *x, double *y) {
    x[0] = std::numeric_limits<float>::infinity();
    x[1] = std::numeric_limits<float>::epsilon();
    x[2] = std::numeric_limits<float>::quiet_NaN();
    y[0] = std::numeric_limits<double>::infinity();
    y[1] = std::numeric_limits<double>::epsilon();
    y[2] = std::numeric_limits<double>::quiet_NaN();
}
"""

TRAITS = """
#include <type_traits>
template <typename T> struct Wide { using type = typename std::conditional<std::is_same<T, float>::value, double, T>::type; };
static_assert(std::is_same_v<Wide<float>::type, double> && std::is_same_v<Wide<int>::type, int>);
static_assert(std::is_integral_v<const unsigned> && !std::is_integral_v<float> && !std::is_integral_v<int *>);
static_assert(std::is_floating_point_v<const double> && std::is_arithmetic_v<char> && std::is_pointer_v<float *>);
static_assert(std::is_signed_v<float> && std::is_unsigned_v<bool> && !std::is_signed_v<unsigned>);
static_assert(std::is_same_v<std::decay_t<const int &>, int> && std::is_same_v<std::remove_pointer_t<int *>, int>);
enum class Colour : short { red };
struct Base { int value; };
struct Derived : Base { __device__ Derived(int, float); };
struct Twice { __device__ float operator()(int x) const { return 2 * x; } };
template <typename T, typename = void> struct HasValue : std::false_type {};
template <typename T> struct HasValue<T, std::void_t<decltype(std::declval<T>().value)>> : std::true_type {};
static_assert(std::is_trivially_copyable_v<Base> && std::is_trivial_v<float4> && std::is_standard_layout_v<Base>);
static_assert(std::is_class_v<Base> && !std::is_class_v<int> && std::is_enum_v<Colour> && std::is_empty_v<Twice>);
static_assert(std::is_base_of_v<Base, Derived> && !std::is_base_of_v<Derived, Base> && !std::is_empty_v<Base>);
static_assert(std::is_convertible_v<Derived *, Base *> && !std::is_convertible_v<Base *, Derived *>);
static_assert(std::is_constructible_v<Derived, int, float> && !std::is_default_constructible_v<Derived>);
static_assert(std::is_assignable_v<float &, int> && !std::is_assignable_v<const int &, int>);
static_assert(std::is_void_v<void> && std::is_null_pointer_v<std::nullptr_t> && !std::is_void_v<int>);
static_assert(std::is_array_v<int[2]> && !std::is_array_v<int *> && std::is_const_v<const int> && !std::is_const_v<int>);
static_assert(std::is_reference_v<int &> && std::is_reference_v<int &&> && !std::is_reference_v<int *>);
static_assert(std::conjunction_v<> && !std::disjunction_v<> && std::negation_v<std::is_same<int, float>>);
static_assert(std::conjunction_v<std::is_class<Base>, std::is_enum<Colour>>);
static_assert(std::is_same_v<std::make_unsigned_t<const int>, const unsigned>);
static_assert(std::is_same_v<std::make_signed_t<unsigned char>, signed char>);
static_assert(std::is_same_v<std::underlying_type_t<Colour>, short> && std::is_same_v<std::add_const_t<int>, const int>);
static_assert(std::is_same_v<std::add_pointer_t<int &>, int *> && std::is_same_v<std::remove_extent_t<int[2]>, int>);
static_assert(std::is_same_v<std::common_type_t<char, int, float>, float>);
static_assert(std::is_same_v<std::invoke_result_t<Twice, int>, float> && std::is_invocable_v<Twice, int>);
static_assert(!std::is_invocable_v<Twice> && !std::is_invocable_v<int, int> && HasValue<Base>() && !HasValue<int>());
template <typename T> __device__ std::enable_if_t<std::is_signed_v<T>, int> sign(T x) { return x < 0; }
template <typename T> __device__ std::enable_if_t<!std::is_signed_v<T>, int> sign(T x) { return 2; }
__global__ void f(int *out) { out[0] = sign(-1.0f); out[1] = sign(1u); }
"""  # noqa: E501

HOST_ONLY = """
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>
__global__ void f(std::uint32_t *out, std::size_t n) { out[0] = n + sizeof(std::int64_t); }
"""  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("int", np.int32), ("unsigned", np.uint32), ("long long", np.int64), ("unsigned char", np.uint8),
     ("short", np.int16), ("unsigned long", np.uint64)],
)  # fmt: skip
def test_limits_of_integers(device: Device, name: str, dtype: type) -> None:
    out = device.array(np.zeros(3, dtype))
    module = device.compile(LIMITS.replace("TYPE", name))
    module.launch(module.kernels[0], (1,), (1,), [out])
    assert out.get().tolist() == [np.iinfo(dtype).min, np.iinfo(dtype).min, np.iinfo(dtype).max]


@pytest.mark.parametrize(("name", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_limits_of_floats(device: Device, name: str, dtype: type) -> None:
    out = device.array(np.zeros(3, dtype))
    module = device.compile(LIMITS.replace("TYPE", name))
    module.launch(module.kernels[0], (1,), (1,), [out])
    limits = np.finfo(dtype)
    assert out.get().tolist() == [limits.min, limits.tiny, limits.max]


def test_special_values_of_floats(device: Device) -> None:
    x, y = device.array(np.zeros(3, np.float32)), device.array(np.zeros(3, np.float64))
    device.compile(FLOATS).launch("f", (1,), (1,), [x, y])
    np.testing.assert_array_equal(x.get(), np.array([np.inf, np.finfo(np.float32).eps, np.nan], np.float32))
    np.testing.assert_array_equal(y.get(), [np.inf, np.finfo(np.float64).eps, np.nan])


def test_type_traits(device: Device) -> None:
    out = device.array(np.zeros(2, np.int32))
    module = device.compile(TRAITS)
    module.launch("f", (1,), (1,), [out])
    assert out.get().tolist() == [1, 2]


def test_headers_of_host_code_do_no_harm(device: Device) -> None:
    out = device.array(np.zeros(1, np.uint32))
    device.compile(HOST_ONLY).launch("f", (1,), (1,), [out, np.uint64(5)])
    assert out.get().tolist() == [13]


def test_infinity_and_nan_need_no_header(device: Device) -> None:
    out = device.array(np.zeros(3, np.float32))
    source = "__global__ void f(float *out) { out[0] = -INFINITY; out[1] = NAN; out[2] = fmaxf(-INFINITY, 3); }"
    device.compile(source).launch("f", (1,), (1,), [out])
    np.testing.assert_array_equal(out.get(), np.array([-np.inf, np.nan, 3], np.float32))


def test_cooperative_groups_find_their_neighbours(device: Device) -> None:
    out = device.array(np.zeros(1, np.int32))
    source = """
    #include <cooperative_groups.h>
    __global__ void f(unsigned *out) { out[0] = cooperative_groups::this_thread_block().size(); }
    """
    device.compile(source).launch("f", (1,), (1,), [out])
    assert out.get().tolist() == [1]


def test_angle_brackets_do_not_search_the_working_folder(device: Device) -> None:
    with pytest.raises(CompileError, match="it is there"):
        device.compile("#if __has_include(<limits>)\n#error it is there\n#endif")
    device.compile("#if __has_include(<pyproject.toml>)\n#error it is there\n#endif")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__global__ void f(int *p) { *p = (int)(((__int128)1 << 70) >> 69); }", 2),
        ("__global__ void f(int *p) { uint i = 3; ushort j = 4; int64_t k = 5; *p = i + j + k; }", 12),
        ("#include <cuda.h>\n__global__ void f(int *p) { *p = INT_MAX; }", 2**31 - 1),
        (
            "#include <limits.h>\n#include <stdint.h>\n__global__ void f(int *p) { *p = SHRT_MAX + (INT32_MAX > 1); }",
            2**15,
        ),
        ("#include <utility>\n__global__ void f(int *p) { int a = 7; *p = std::move(a); }", 7),
        ("__global__ void f(int *p) { *p = std::max(std::min(9, 8), (int)std::sqrt(16.0f)); }", 8),
        ("#include <array>\n__global__ void f(int *p) { std::array<int, 3> a{1, 2, 3}; *p = a[1] + a.size(); }", 5),
        ("\ufeff__global__ void f(int *p) { *p = 6; }", 6),
        ("struct V { float x; V(float a) : x(a) {} };\n__global__ void f(int *p) { *p = sizeof(V); }", 4),
        (
            "#include <cub/cub.cuh>\n__global__ void f(int *p) { using R = cub::WarpReduce<int>; "
            "__shared__ R::TempStorage t; int s = R(t).Sum(2); if (!threadIdx.x) *p = s; }",
            64,
        ),
    ],
)
def test_names_known_to_nvcc_are_known(device: Device, source: str, expected: int) -> None:
    out = device.array(np.zeros(1, np.int32))
    device.compile(source).launch("f", (1,), (32,), [out])
    assert out.get().tolist() == [expected]


def test_two_instances_of_a_kernel_can_both_be_launched(device: Device) -> None:
    source = "template <typename T> __global__ void f(T *p) { *p = sizeof(T); }\n"
    source += "template __global__ void f<int>(int *);\ntemplate __global__ void f<double>(double *);"
    module = device.compile(source)
    assert sorted(module.kernels) == ["f<double>", "f<int>"]
    for name, dtype in (("f<int>", np.int32), ("f<double>", np.float64)):
        out = device.array(np.zeros(1, dtype))
        module.launch(name, (1,), (1,), [out])
        assert out.get().tolist() == [np.dtype(dtype).itemsize]
