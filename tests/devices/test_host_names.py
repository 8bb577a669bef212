"""Names in device code mean the same without the host code: overloads, hidden variables, static members, instances."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from any_nvcc import by_nvcc, needs_nvcc

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.source.host_code import device_text


def kernel(value: str) -> str:
    return f"__global__ void k(float *p) {{ p[0] = {value}; }}\n"


SCALE = "__device__ int scale(int a) { return 2 * a; }\n"
TWICE = "template <typename T> T scale(T a) { return 2 * a; }\n"
PLUS = (
    "struct V { float x; };\n__device__ V operator+(V a, int b) { return a; }\n"
    "V operator+(V a, double b) { return a; }\n"
)
REFUSED = {
    "host overload": "int scale(double a) { return 1; }\n" + SCALE + kernel("scale(1.5)"),
    "host overload behind": SCALE + "int scale(double a) { return 1; }\n" + kernel("scale(1.5)"),
    "declared before": "int scale(double);\n" + SCALE + kernel("scale(1.5)") + "int scale(double a) { return 1; }",
    "host template": TWICE + SCALE + kernel("scale(1.5)"),
    "host operator": PLUS + kernel("(V{1} + 1.5).x"),
    "inner variable": "__constant__ float f = 2;\nnamespace a { float f = 3; " + kernel("f") + "}",
    "static member": "struct S { static int n; };\nint S::n = 3;\n" + kernel("S::n"),
    "inline member": "struct S { inline static int n = 3; };\n" + kernel("S::n"),
    "constant pointer": 'const char *const text = "a";\n' + kernel("text[0]"),
    "types behind <vector>": "#include <vector>\n" + kernel("uint64_t(1) << 40"),
    "lambda": "auto f = [](float x) { return 2 * x; };\n" + kernel("f(p[1])"),
    "value at run time": "int f() { return 3; }\nconst int n = f();\n" + kernel("n"),
    "variable": "int n = 3;\n" + kernel("n"),
    "variable in a macro": "int n = 3;\n#define N n\n" + kernel("N"),
    "address of a function": "float f(float x) { return x; }\n__global__ void k(float *p) { auto g = f; p[0] = g(1); }",
    "default constructor": "struct V { float x; V() { x = 1; } };\n" + kernel("V().x"),
    "letters beyond ASCII in a global name": "__device__ float a\u00f1o() { return 2; }\n" + kernel("a\u00f1o()"),
    "host in unused": "float f() { return 3; }\n__device__ float g() { return f(); }\n" + kernel("1"),
}
ACCEPTED = {
    "device overload": "int scale(double a) { return 1; }\n" + SCALE + kernel("scale(1)"),
    "overloads of hosts": "#include <vector>\n"
    + SCALE
    + "void scale(std::vector<int> &v) { v.clear(); }\nvoid scale(FILE *f) { }\n"
    + kernel("scale(1)"),
    "device template": TWICE + SCALE + kernel("scale(1)"),
    "device operator": PLUS + kernel("(V{1} + 1).x"),
    "specialisations": "template <typename T> __device__ T f(T a) { return a; }\n"
    "template <> __device__ int f<int>(int a) { return 2; }\ntemplate <typename T> T g(T a) { return a; }\n"
    "template <> int g<int>(int a) { return 3; }\ntemplate double g<double>(double);\n" + kernel("f(1)"),
    "redeclared arrays": "__device__ int sum(const int a[3], int n);\nint sum(const int *b, int m) { return b[m]; }\n"
    "__global__ void k(int *p) { p[0] = sum(p, 0); }",
    "static constant": "struct S { static const int n = 3; static constexpr float f = 2; };\n" + kernel("S::n + S::f"),
    "value of a member": "constexpr int up(int a) { return a + 1; }\nstruct S { int n = up(3); };\n" + kernel("S().n"),
    "types behind <iostream>": "#include <iostream>\n" + kernel("uint64_t(1) << 40"),
    "array by reference": "template <int N> struct S { float (&a)[N]; __device__ float f() { return a[0]; } };\n"
    "__global__ void k(float *p) { __shared__ float a[2]; a[0] = p[1]; S<2> s{a}; p[0] = s.f(); }",
    "pointer to an array": "struct S { const float (*rows)[3]; };\n"
    "__global__ void k(S s, float *p) { p[0] = s.rows[1][2]; }",
    "pointer to a function": "struct S { float (*f)(float); };\n__device__ float g(float x) { return 2 * x; }\n"
    "struct Unused { int x; };\nUnused (*of_host)(Unused);\n" + kernel("S{g}.f(p[1])"),
    "register": "__global__ void k(register float *p) { register int i = 1; p[0] = p[i]; }\n",
    "letters beyond ASCII": "struct Gr\u00f6\u00dfe { float a\u00f1o; };  // \u00f1\n#define D\u00c9J\u00c0 a\u00f1o\n"
    "__global__ void k(float *p) { __shared__ float \u0441\u0443\u043c\u0430[1]; Gr\u00f6\u00dfe g;\n"
    "g.a\u00f1o = p[1]; \u0441\u0443\u043c\u0430[0] = 1; p[0] = g.D\u00c9J\u00c0 + \u0441\u0443\u043c\u0430[0]; }\n",
    "pasted": "const int size_a = 3;\n#define SIZE(of) size_##of\n" + kernel("SIZE(a)"),
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_code_that_nvcc_refuses_is_refused(source: str) -> None:
    with pytest.raises(CompileError, match=r"a\.cu\(\d+\): error|is called, but not defined"):
        SimulatedDevice().compile(source, "a.cu")


@pytest.mark.parametrize("source", ACCEPTED.values(), ids=ACCEPTED)
def test_code_that_nvcc_accepts_is_accepted(source: str) -> None:
    assert SimulatedDevice().compile(source, "a.cu").kernels


@needs_nvcc
@pytest.mark.parametrize("has_host_code", [True, False])
def test_nvcc_says_the_same_with_and_without_host_code(tmp_path: Path, has_host_code: bool) -> None:
    """Those without includes are compiled together; from those that are left after errors nvcc makes a kernel each."""
    texts = {name: text if has_host_code else device_text(text, {}).text for name, text in (REFUSED | ACCEPTED).items()}
    alone = [name for name, text in (REFUSED | ACCEPTED).items() if "#include" in text]
    assert {name for name in alone if not by_nvcc(tmp_path, texts[name]).returncode} == ACCEPTED.keys() & set(alone)
    left = [name for name in texts if name not in alone]
    while (done := by_nvcc(tmp_path, in_namespaces([texts[name] for name in left]))).returncode:
        wrong = {left[int(at)] for at in re.findall(r"^n(\d+)\(\d+\): error", done.stderr, re.M)}
        assert wrong, done.stderr
        left = [name for name in left if name not in wrong]
    assert set(left) == ACCEPTED.keys() - set(alone)


def in_namespaces(texts: list[str]) -> str:
    """Return the texts as one, each in a namespace; messages name its place among them."""
    undefined = "".join(f"#undef {name}\n" for text in texts for name in re.findall(r"^#define (\w+)", text, re.M))
    return "".join(f'{undefined}#line 1 "n{at}"\nnamespace n{at} {{ {text}\n}}\n' for at, text in enumerate(texts))


MACROS = {
    f"{name}": f"#include <cuda.h>\n#if defined({name}) && {name} >= {least}\n{kernel('1')}#endif\n"
    for name, least in (
        ("__NVCC__", 1), ("__GNUC__", 9), ("__linux__", 1), ("__unix__", 1), ("__x86_64__", 1), ("_GNU_SOURCE", 1),
        ("__CHAR_BIT__", 8), ("__SIZEOF_INT128__", 16), ("__SIZEOF_POINTER__", 8), ("__INT_MAX__", 0x7fffffff),
        ("CUDA_VERSION", 12000), ("CUDART_VERSION", 12000), ("__CUDACC__", 1), ("__CUDA_ARCH__", 900),
        ("__CUDACC_VER_MAJOR__", 12), ("__cplusplus", 201703), ("__LP64__", 1),
    )
}  # fmt: skip


@pytest.mark.parametrize("source", MACROS.values(), ids=MACROS)
def test_conditions_hold_as_with_nvcc(source: str) -> None:
    assert SimulatedDevice().compile(source, "a.cu").kernels == ("k",)


@needs_nvcc
def test_nvcc_defines_these_macros(tmp_path: Path) -> None:
    sources = (source.replace("void k(", f"void k{at}(") for at, source in enumerate(MACROS.values()))
    for text in (merged := "".join(sources), device_text(merged, {}).text):
        assert by_nvcc(tmp_path, text).returncode == 0
        assert all(f"k{at}".encode() in (tmp_path / "a.cubin").read_bytes() for at in range(len(MACROS)))


HD = "__host__ __device__ "
ONLY_NVCC_ACCEPTS = {
    "host function in a function of both": f"float f() {{ return 3; }}\n{HD}float g() {{ return f(); }}\n{kernel('1')}",
    "sizeof": "int table[7];\n" + kernel("sizeof(table)"),
    "decltype": "float x;\n" + kernel("(decltype(x))1.5"),
    "macro of a header": "#include <sys/param.h>\n" + kernel("MIN(1, 2)"),
}
ONLY_NVCC_REFUSES = {
    "redefinition": "float max(float a, float b) { return a > b ? a : b; }\n" + kernel("max(p[0], p[1])"),
    "destructor": "struct V { float x; ~V() { x = 0; } };\n__global__ void k(float *p) { V v; v.x = 2; p[0] = v.x; }\n",
    "virtual": "struct V { virtual float f() { return 1; } };\n__global__ void k(V *v, float *p) { p[0] = v->f(); }\n",
    "constant lambda": "constexpr auto f = [](float x) { return 2 * x; };\n" + kernel("f(p[1])"),
}


@pytest.mark.parametrize("source", ONLY_NVCC_ACCEPTS.values(), ids=ONLY_NVCC_ACCEPTS)
def test_the_page_for_students_names_what_is_refused(source: str) -> None:
    with pytest.raises(CompileError):
        SimulatedDevice().compile(source, "a.cu")


@pytest.mark.parametrize("source", ONLY_NVCC_REFUSES.values(), ids=ONLY_NVCC_REFUSES)
def test_the_page_for_students_names_what_is_accepted(source: str) -> None:
    assert SimulatedDevice().compile(source, "a.cu").kernels == ("k",)


@needs_nvcc
@pytest.mark.parametrize(
    "source",
    [*ONLY_NVCC_ACCEPTS.values(), *ONLY_NVCC_REFUSES.values()],
    ids=[*ONLY_NVCC_ACCEPTS, *ONLY_NVCC_REFUSES],
)
def test_nvcc_differs(tmp_path: Path, source: str) -> None:
    done = by_nvcc(tmp_path, source)
    assert (done.returncode == 0) == (source in ONLY_NVCC_ACCEPTS.values()), done.stderr


TEMPLATES = """
#include <gpulab.cuh>
GPULAB_TUNABLE(CHOSEN, 96)
const int FAST = 128;
enum { LANES = 32 };
template <unsigned N> __global__ void block(float *p) { p[0] = N; }
template <typename T, int N> __global__ void fill(T *p) { p[0] = T(N); }
template <int N> __global__ void twice(int *p) { p[0] = N; }
template <int N> __global__ void twice(float *p) { p[0] = N; }
template <typename T> __global__ void any(T *p) { *p = T(); }
namespace app {
template <typename T> __global__ void inner(T *p) { *p = T(); }
"""


@pytest.mark.parametrize(
    ("host", "kernels"),
    [
        ("block<256><<<1, 256>>>(p)", ["block<256>"]),
        ("block< 256 > <<<1, 256>>>(p), block<64><<<1, 64>>>(p), block<256>(p)", ["block<256>", "block<64>"]),
        ("block<FAST><<<1, 1>>>(p), block<2 * FAST>(p)", ["block<128>", "block<256>"]),
        ("block<(LANES > 8 ? LANES : 8)><<<1, 1>>>(p)", ["block<32>"]),
        ("fill<unsigned int, 3><<<1, 1>>>(p)", ["fill<unsigned int, 3>"]),
        ("cudaFuncSetAttribute(fill<double, 3 * FAST>, shared, 9)", ["fill<double, 384>"]),
        ("inner<float4><<<1, 1>>>(p)", ["app::inner<float4>"]),
        ("app::inner<int><<<1, 1>>>(p)", ["app::inner<int>"]),
        ("other::inner<int><<<1, 1>>>(p)", []),
        ("const int N = 3; block<N><<<1, 1>>>(p)", ["block<3>"]),
        ("const int FAST = 3; block<FAST><<<1, 1>>>(p)", ["block<3>"]),
        ("constexpr auto N = 2 * FAST, M = 7; fill<int, N - 1><<<1, 1>>>(p)", ["fill<int, 255>"]),
        ("const int M = (1, 2); const int N = M + 1; block<N><<<1, 1>>>(p)", ["block<3>"]),
        ("int N = 3; block<N><<<1, 1>>>(p)", []),
        ("const int N = chosen(); block<N><<<1, 1>>>(p)", []),
        ("{ const int N = 3; } { const int N = 4; block<N><<<1, 1>>>(p); }", []),
        ("for (const int N = 3;;) { block<N><<<1, 1>>>(p); }", []),
        ("block<CHOSEN><<<1, 1>>>(p)", ["block<96>"]),
        ("[](auto T) { any<decltype(T)><<<1, 1>>>(p); }", []),
        ("any<<<1, 1>>>(p)", []),
        ("twice<3><<<1, 1>>>(p)", []),
        ("fill<int><<<1, 1>>>(p)", []),
        ("bool b = block < 3 && 4 > 2", []),
        ("bool b = block < 3, c = 4 > 2", []),
        ("return block < 3", []),
        ("\n#ifdef LARGE\nblock<512><<<1, 1>>>(p);\n#else\nblock<64><<<1, 1>>>(p);\n#endif\n", ["block<64>"]),
    ],
)
def test_instances_that_host_code_launches_exist(host: str, kernels: list[str]) -> None:
    source = f"{TEMPLATES}int launch(float *p) {{ {host}; }}\n}}\n__global__ void plain() {{ }}\n"
    module = SimulatedDevice().compile(source, "a.cu")
    named = [kernel if "<" in kernel else f"{kernel}<" for kernel in module.kernels if kernel != "plain"]
    assert sorted(named) == sorted(kernel if len(kernels) > 1 else kernel.partition("<")[0] + "<" for kernel in kernels)
    text = device_text(source, {}).text
    assert text.count("\n") == source.count("\n") and not re.search(r"gpulab_|launch", text)
    assert set(module.symbols) <= {"FAST", "CHOSEN", "gpulab_tunable_CHOSEN"}


@pytest.mark.parametrize("visible", ["using namespace app;", "using app::inner;", "namespace shorter = app;"])
def test_instances_exist_where_only_the_host_function_sees_their_namespace(visible: str) -> None:
    launch = "app::inner<int>" if "shorter" in visible else "inner<int>"
    source = f"{TEMPLATES}}}\nint main() {{ {visible} {launch}<<<1, 1>>>(0); }}\n"
    assert SimulatedDevice().compile(source, "a.cu").kernels == ("app::inner",)


def test_a_template_of_the_same_name_in_a_class_of_the_host_is_no_kernel() -> None:
    host = "struct Plan { template <int N> void block(); void run() { block<3>(); } };\n"
    assert SimulatedDevice().compile(f"{host}{TEMPLATES}}}\n__global__ void k() {{ }}", "a.cu").kernels == ("k",)


def test_instances_of_a_generic_launcher_are_left_out() -> None:
    launcher = "template <typename T, int FAST> void go(T *p) { fill<T, FAST><<<1, 1>>>(p), block<FAST><<<1, 1>>>(p); }"
    source = f"{TEMPLATES}}}\n{launcher}\n__global__ void plain() {{ }}\n"
    assert SimulatedDevice().compile(source, "a.cu").kernels == ("plain",)
