"""The names of kernels' parameters and of variables without a value, read from a submission's text."""

from __future__ import annotations

import pytest

from pytest_gpulab.grading.plans.parameter_names import parameter_names, unset_variables, vector_arrays

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("__global__ void f(const float *in, float* out, unsigned n) {}", {"f": ("in", "out", "n")}),
        ("__global__\nvoid\nf(const float *__restrict__ in,\n  int n /* elements, all */) {}", {"f": ("in", "n")}),
        ("__global__ void __launch_bounds__(256, 2) f(int *x) {}", {"f": ("x",)}),
        ("__global__ __launch_bounds__(32 * (2 + 1)) void f(int *x) {}", {"f": ("x",)}),
        ('extern "C" __global__ void f(T x[], int n) { g(1, 2); }', {"f": ("x", "n")}),
        ("template <int A, int B> __global__ void f(Pair<int, A> p, int (&x)[3]) {}", {}),
        ("static __global__ void f() {}", {"f": ()}),
        ("__global__ void f(int *, int) {}", {}),
        ("__global__ void f(int *a); __global__ void f(int *a) {}", {"f": ("a",)}),
        ("__global__ void f(int *a); __global__ void f(int *b) {}", {"f": ("a",)}),
        ("// __global__ void f(int *a)\n/* __global__ void g(int b) */ void h(int c) {}", {}),
        ("__global__ void f(int *a, int", {"f": ("a",)}),
        ("__global__ void f(int *a) {} __global__ void g(float *b, int n) {}", {"f": ("a",), "g": ("b", "n")}),
    ],
)
def test_names_are_those_of_the_declaration(source: str, names: dict[str, tuple[str, ...]]) -> None:
    assert parameter_names(source) == names


@pytest.mark.parametrize(
    ("declaration", "found"),
    [
        ("float sum;", ("sum",)),
        ("float a = 1.0f, sum;", ("sum",)),
        ("float sum, b;", ("sum",)),
        ("if (x) { float sum;", ("sum",)),
        ("float sum = 0;", ()),
        ("// float sum;\n", ()),
        ("return sum;", ()),
        ("other = sum;", ()),
    ],
)
def test_variables_of_a_line_that_are_declared_without_a_value(declaration: str, found: tuple[str, ...]) -> None:
    source = f"{declaration}\nsum += in[k];\n"
    assert unset_variables(source, source.count("\n")) == found
    assert unset_variables(source, 99) == ()


def test_arrays_of_vectors_are_found_with_the_bytes_of_an_element() -> None:
    source = """
    __constant__ float2 a[64]; // int4 no[3];
    __global__ void k(float4 *p) { __shared__ uchar4 b[BLOCK]; longlong2 c [3]; float d[4]; double1 e[2][3]; int2 f; }
    """
    assert vector_arrays(source) == {"a": 8, "b": 4, "c": 16, "e": 8}
