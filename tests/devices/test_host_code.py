"""Host code is taken out of a file, device code never."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from any_nvcc import by_nvcc, needs_nvcc
from graded_folders import WRONG, expectation_of

from pytest_gpulab.devices.compiler import nvrtc, nvrtc_program
from pytest_gpulab.devices.cuda.nvcc.compile import with_prelude
from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.source.host_code import device_text
from pytest_gpulab.devices.source.tokens import tokens

ROOT = Path(__file__).parents[2]
HEADERS = {"gpulab.cuh": (ROOT / "pytest_gpulab/include/gpulab.cuh").read_text()}
KERNEL = "__global__ void k(int *p) { *p = 1; }\n"
KERNELS = sorted(
    path
    for folder in ("solutions", "exercises", "tests/honest", "tests/wrong")
    for path in (ROOT / folder).rglob("*.cu")
    if "GPULAB_TODO" not in path.read_text() and "reduction_host" not in path.parts  # a whole program
)
RIGHT = [path for path in KERNELS if "wrong" not in path.parts]
BEFORE = """#include <stdio.h>
#include <iostream>
#include <vector>
#include <sys/time.h>
#include <cuda_runtime.h>
#include <thrust/device_vector.h>
#include "helper_cuda.h"
using namespace std;
#define CHECK(call)                                                     \\
    do {                                                                \\
        cudaError_t status = (call);                                    \\
        if (status != cudaSuccess) {                                    \\
            fprintf(stderr, "%s:%d }\\n", __FILE__, __LINE__);           \\
            exit(EXIT_FAILURE);                                         \\
        }                                                               \\
    } while (0)
typedef std::vector<float> Values;
struct Timer {
    cudaEvent_t begin;
    Timer() { cudaEventCreate(&begin); }
    ~Timer() { cudaEventDestroy(begin); }
};
static int launches = 0;
const char *names[] = {"one", "two {"};
template <typename T> T sum_on_host(const std::vector<T> &values)
{
    T total{};
    for (const auto &value : values) total += value;
    return total;
}
double seconds() { struct timeval now; gettimeofday(&now, NULL); return now.tv_sec + 1e-6 * now.tv_usec; }
"""
AFTER = """
class Launcher : public Timer {
  public:
    Launcher(int blocks) : blocks{blocks}, values(blocks) {}
    void run() { empty_kernel<<<blocks, 256>>>(); }
  private:
    int blocks;
    Values values;
};
int main(int argc, char **argv)
{
    Values values(1 << 20, 1.0f);
    auto make = [&](int n) { return std::vector<int>(n); };
    const char *text = R"(} __global__ void no() { )";
    CHECK(cudaMalloc(&values[0], sizeof(float)));
    Launcher(32).run();
#ifdef VERBOSE
    if (argc > 1) {
#else
    if (argc > 2) {
#endif
        std::cout << sum_on_host(values) << '}' << std::endl;
    }
    return 0;
}
"""


BETWEEN = (
    "int count = 0, *counts[3] = {nullptr};",
    "using namespace std::chrono; using namespace std::literals::chrono_literals; using namespace thrust;",
    'static const char *const names[] = {"} __device__ int a;", "{"};',
    'std::map<std::string, std::vector<int>> table{{"a", {1, 2}}};',
    "template <typename T> static T total(const std::vector<T> &v) { T t{}; for (auto x : v) t += x; return t; }",
    "std::ostream &operator<<(std::ostream &out, const float2 &p) { return out << p.x << '}' << p.y; }",
    "struct Timer { cudaEvent_t e[2]; Timer() { cudaEventCreate(e); } ~Timer() { cudaEventDestroy(e[0]); } };",
    "enum Choice { FIRST, SECOND = 3 }; using Pair = std::pair<int, Choice>;",
    "double seconds() { timeval t; gettimeofday(&t, nullptr); return t.tv_sec + 1e-6 * t.tv_usec; }",
    "void launch(int n) { auto f = [&](int k) { return k < n ? n << 3 : k >> 1; }; f(n); }",
    "const unsigned seed_of_hosts = std::random_device{}();",
    "namespace hosts { int depth; bool deeper() { return ++depth > 3; } }",
    'extern "C" { int from_c(void); void to_c(int a) { } }',
    "int (*chosen(int a))(int, char **) { return nullptr; }",
    "auto smaller = [](int a, int b) { return a < b; };",
    "int body() try { return 1; } catch (const std::exception &error) { return 2; } catch (...) { return 3; }",
    "typedef struct Node_ { int value; struct Node_ *next; } Node;",
    "[[maybe_unused]] static inline auto half_of(long a) -> decltype(a / 2) { return a / 2; }",
    "/* } */ int after_comment; /* { */",
    "class Shape { public: virtual ~Shape() = default; virtual double area() const = 0; std::string name; };",
)


def mixed(source: str, seed: str, pieces_between: Sequence[str] = BETWEEN) -> str:
    """Return a text with host code behind every declaration; the lines stay."""
    random, pieces, at, depth = Random(seed), [], 0, 0
    for token in tokens(source):
        if token.kind == "directive":
            depth += token.text.startswith("if") - (token.text == "endif")
        elif token.kind == "sign":
            depth += (token.text in "({[") - (token.text in ")}]")
        ends = token.text in (";", "}") and not depth
        if ends and re.match(r"[ \t]*\n(?![ \t]*(?:\{|;|else))", source[token.end :]):
            between = random.choice(pieces_between)
            pieces.append(f"{source[at : token.end]} namespace host{len(pieces)} {{ {between} }}")
            at = token.end
    return "".join([*pieces, source[at:]])


def ptx_or_error(source: str, headers: dict[str, str]) -> list[str]:
    """Return the PTX, or the first line of the compiler's message."""
    try:
        return ptx_of(source, headers)
    except CompileError as error:
        return error.diagnostics.splitlines()[:1]


def ptx_of(source: str, headers: dict[str, str]) -> list[str]:
    """Return the PTX without what tells of lines."""
    ptx, _ = nvrtc.compile_ptx(source, "a.cu", "compute_90", {}, headers)
    lines = (line for line in ptx.splitlines() if not re.match(r"\s*(\.loc|\.file|//|\d|\.section|\$L__info)", line))
    return [re.sub(r"__\w{8}_\d+_\w+_cu_\w{8}(?:_\d+)?", "", line) for line in lines]


MEASURED = sorted(path for folder in ("h200", "benchmarks") for path in (ROOT / "tests" / folder).glob("*.cu"))


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_measured_kernels_within_a_program_are_the_same(path: Path) -> None:
    source = path.read_text()
    program, alone = BEFORE + mixed(source, path.name) + AFTER, "\n" * BEFORE.count("\n") + source
    found = [[line for line in ptx_of(text, {}) if "_ZNSt17integral" not in line] for text in (program, alone)]
    assert found[0] == found[1]  # but for constants of headers that no kernel reads


def left(source: str) -> str:
    """Return what is left of a text, with single blanks."""
    found = device_text(source, HEADERS).text
    assert found.count("\n") == source.count("\n")
    return " ".join(found.split())


LEFT_OF_BEFORE, LEFT_OF_AFTER = (device_text(text, HEADERS).text for text in (BEFORE, AFTER))
LEFT_BETWEEN = [left(text) for text in BETWEEN]
MAY_STAY = re.compile(r"enum Choice .*?; using Pair = .*?;|\bstruct launches;")


@pytest.mark.parametrize(
    "source",
    [
        "int main() { return 0; }",
        "main() { }",
        "static inline unsigned long long f(void);",
        "template <class T, int N = (3 > 2)> T f(T (&a)[N]) { return a[0]; }",
        "std::vector<std::pair<int, int>> v{{1, 2}};",
        "int *p = new int[3], q[2] = {1, 2};",
        "auto f = [](int a) { return a; };",
        "void (*f)(int) = nullptr;",
        'const char *text = "}";',
        "double operator\"\"_ms(long double x) { return x; }",
        "V::V(int a) : b{a}, c(a) { f(); }",
        "bool operator<(const A &a, const A &b) { return a.x < b.x; }",
        "struct Image { std::vector<float> pixels; };",
        "class Image { friend __global__ void k(int *p); std::vector<float> pixels; };",
        "typedef std::map<int, int> Map; using Other = Map;",
        "namespace a::b { void f() {} }",
        'extern "C" { int f(); }',
        'extern "C" int f() { return 1; }',
        "void f() try { g(); } catch (...) { }",
        "TEST(reduction, works) { EXPECT_EQ(1, 1); }",
        "#define BEGIN {\n#define END }\nint f() BEGIN return 1; END\n#undef END",
        "int f()\n#ifdef A\n{ return 1; }\n#else\n{ return 2; }\n#endif",
    ],
)  # fmt: skip
def test_host_code_is_taken_out(source: str) -> None:
    kernel = "__global__ void k(int *p) { *p = 1; }"
    text = left(f"{source}\n{kernel}\n{source}\n")
    text = re.sub(r"#(ifdef A|else|endif|define BEGIN \{|define END \}|undef END)", "", text)
    text = re.sub(r"namespace a::b \{ *\}|extern \"C\" \{ *\}|catch \(...\) \{ \}", "", text)
    assert text.strip() == kernel


@pytest.mark.parametrize(
    "source",
    [
        "__device__ int f(int a) { return a; }",
        "inline __host__ __device__ float4 operator+(float4 a, float4 b) { return a; }",
        "#define HD __host__ __device__\nHD int f(int a) { return a; }",
        "#define OTHER HD\n#define HD __device__\nOTHER int f(int a) { return a; }",
        '#define KERNEL(name) extern "C" __global__ void name\nKERNEL(k)(int *p) { *p = 1; }',
        "#define BOUND(n) __global__ __launch_bounds__(n)\nBOUND(128) void k(int *p) { *p = 1; }",
        "__attribute__((global)) void k(int *p) { *p = 1; }",
        "__device__ int f(int a);\nint f(int a) { return a; }",
        "struct A { __device__ int f(); };\nint A::f() { return 1; }\n__device__ A a;",
        "__device__ int table[] = {1, 2, 3};",
        "__constant__ struct { int a; } c[2];",
        "const int n = 4;\n__device__ int a[n];",
        "constexpr int twice(int a) { return 2 * a; }\n__device__ int a[twice(2)];",
        "enum Mode : int { ON, OFF };\n__device__ int mode = ON;",
        "template <typename T> __global__ void k(T *p);\ntemplate __global__ void k<int>(int *);",
        "static_assert(sizeof(int) == 4);",
        "GPULAB_TUNABLE(BLOCK_SIZE, 256)\nGPULAB_TUNABLE(ITEMS, 2)",
        "#ifdef A\n__global__ void k(int *p) {\n#else\n__global__ void k(float *p) {\n#endif\n*p = 1; }",
        "#if 0\nit's { broken\n#endif\n__device__ int a;",
        "__gloabl__ void k(int *p) { *p = 1; }",
        "wrong;",
        "namespace { __device__ int hidden; }",
        "class Wrong { static __global__ void k(int *p) { *p = 1; } };",
    ],
)  # fmt: skip
def test_device_code_stays(source: str) -> None:
    assert left(source) == " ".join(source.split())


@pytest.mark.parametrize("cut", range(0, len(AFTER) + len(BEFORE), 97))
def test_a_kernel_before_a_broken_program_stays(cut: int) -> None:
    kernel = "__global__ void k(int *p) { *p = 1; }"
    assert left(kernel + (BEFORE + AFTER)[:cut]).startswith(kernel)
    assert "__global__ void k(int *p)" in left((BEFORE + AFTER)[cut:] + kernel)


def test_lines_and_names_are_reported() -> None:
    source = "int x;\n\nint main()\n{\n}\n__global__ void k(int *p) { *p = 1; }\n\n\nvoid f()\n{\n}\n"
    found = device_text(source, HEADERS)
    assert found.host_lines == ((1, 5), (9, 11))
    assert found.host_names == {"x": 1, "main": 3, "f": 9}


def test_device_code_between_lines_of_host_code_is_not_among_them() -> None:
    source = "enum class Order { ROWS };\nstruct Shape { int w; };\nstatic int errors;\nint more;\n"
    kernel = "__global__ void k(Shape s) { s.w = 1; }\nint last;\n"
    assert device_text(source + kernel, HEADERS).host_lines == ((1, 1), (3, 4), (6, 6))


def test_host_members_of_a_class_cannot_be_called() -> None:
    struct = (
        "struct V { float x; V(float a) : x(a) {} __device__ V(int a) : x(a) {} std::string name() { return {}; } };\n"
    )
    nvrtc.compile_ptx(f"{struct}__global__ void k(float *p) {{ *p = V(1).x; }}", "a.cu", "compute_90")
    with pytest.raises(CompileError, match=r"V::V.float.* cannot be referenced"):
        nvrtc.compile_ptx(f"{struct}__global__ void k(float *p) {{ *p = V(1.0f).x; }}", "a.cu", "compute_90")


@pytest.mark.parametrize(
    ("marked", "plain"),
    [("auto f = [] __device__ (int a) { return a; }; *p = f(1);",
      "auto f = []            (int a) { return a; }; *p = f(1);"),
     ("int b[1] = {1}; *p = [&, c = b[0]]__host__ __device__ { return c; }();",
      "int b[1] = {1}; *p = [&, c = b[0]]                    { return c; }();"),
     ("__shared__ int s[2]; *p = [=] () __device__ { return 1; }();", None)],
)  # fmt: skip
def test_lambdas_in_kernels_need_no_marks(marked: str, plain: str | None) -> None:
    around = "[[nodiscard]] __device__ int one() { return 1; }\n#define EACH [=] %s\n__global__ void k(int *p) { %s }\n"
    found = device_text(around % ("__device__ (int a)", marked), {}).text
    assert found == around % ("           (int a)", plain or marked)
    if plain:
        assert SimulatedDevice().compile(found, "a.cu").kernels == ("k",)


def test_directives_that_move_lines_have_no_effect() -> None:
    with pytest.raises(CompileError, match=r"^a\.cu\(3\): error"):
        nvrtc.compile_ptx('#line 7 "b.cu"\n# 9 "c.cu"\n__device__ int x = y;', "a.cu", "compute_90")


def test_line_ends_of_all_kinds_are_line_ends() -> None:
    with pytest.raises(CompileError, match=r"^a\.cu\(3\): error"):
        nvrtc.compile_ptx("\ufeff// old\r__device__ int a;\r\n__device__ int x = y;\r", "a.cu", "compute_90")


@pytest.mark.parametrize("end", ["\\", "\\\n", "\\\r\n", "// joined \\"])
def test_a_backslash_at_the_end_joins_no_line_of_the_grader(end: str) -> None:
    assert "seen" in nvrtc.compile_ptx("__global__ void seen() {} " + end, "a.cu", "compute_90")[0]


def test_where_nothing_compiles_the_machine_is_to_blame() -> None:
    said = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0."
    with pytest.raises(DeviceUnavailable, match=f"NVRTC does not work here: {said}"):
        nvrtc.compile_ptx("wrong", "a.cu", "compute_90", run=lambda request: nvrtc_program.Answer(None, said))


@needs_nvcc
@pytest.mark.parametrize("path", RIGHT[::20], ids=lambda path: path.stem)
def test_nvcc_compiles_a_kernel_within_a_program(path: Path, tmp_path: Path) -> None:
    exercise = next(name for name in path.parts[::-1] if (ROOT / "exercises" / name).is_dir())
    headers = {file.name: file.read_text() for file in (ROOT / "exercises" / exercise).glob("*.cuh")}
    for name, text in headers.items():
        (tmp_path / name).write_text(text)
    source = device_text(BEFORE + path.read_text() + AFTER, headers).text
    done = by_nvcc(tmp_path, with_prelude(source, "a.cu", {}))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text",
    ["#if A\n" * 3000, "struct A { " * 3000, "namespace a { " * 3000,
     "(" * 50_000, "template<" * 20_000, "int x;\n" * 5000,
     '"\\' * 20_000, "/*" * 20_000, "\\\n" * 20_000],
)  # fmt: skip
def test_hostile_texts_are_read_in_no_time(text: str) -> None:
    begin_s = time.process_time()
    assert device_text(text, {}).text.count("\n") == text.count("\n")
    assert time.process_time() - begin_s < 5  # tenths of a second; what is quadratic takes minutes


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('#include "nowhere.h"\n', "nowhere.h"),
        (f'#include "nowhere.h"\n{KERNEL}', "nowhere.h"),
        (f'#include "mine.cuh"\n{KERNEL}int main() {{ }}\n', "mine.cuh"),
    ],
)
def test_a_quoted_file_that_may_hold_device_code_is_missed(source: str, named: str) -> None:
    with pytest.raises(CompileError, match=rf'x\.cu\(1\): .*cannot open source file "{named}"'):
        SimulatedDevice().compile(source, "x.cu")


@pytest.mark.parametrize(
    "name", ["wb.h", "helper_cuda.h", "cuda_runtime.h", "device_launch_parameters.h", "sys/time.h"]
)
def test_quoted_headers_of_programs_are_left_out(name: str) -> None:
    assert SimulatedDevice().compile(f'#include "{name}"\n{KERNEL}', "x.cu").kernels == ("k",)


def headers_of(path: Path) -> dict[str, str]:
    exercise = next(name for name in path.parts[::-1] if (ROOT / "exercises" / name).is_dir())
    return {file.name: file.read_text() for file in (ROOT / "exercises" / exercise).glob("*.cuh")}


# NVRTC compiles a third of the right kernels, a twelfth of the wrong ones, and the texts that are no program.
COMPILED = [*RIGHT[1::3], *(path for path in WRONG if "compile" in expectation_of(path).fails), *WRONG[1::12]]


@pytest.mark.parametrize("path", dict.fromkeys(COMPILED), ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.unmeasured
def test_a_kernel_within_a_program_is_the_same_kernel(path: Path) -> None:
    source, headers = path.read_text(), headers_of(path)
    program = BEFORE + mixed(source, path.name) + AFTER
    assert ptx_or_error(program, headers) == ptx_or_error("\n" * BEFORE.count("\n") + source, headers)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.unmeasured
def test_a_kernel_within_a_program_keeps_its_text(path: Path) -> None:
    """What is left of each piece of host code does not depend on the kernel, but for names that both may use."""
    source, headers = path.read_text(), HEADERS | headers_of(path)
    has_host_code = device_text(source, headers).host_lines != ()
    assert not has_host_code or path in WRONG
    program = MAY_STAY.sub("", device_text(BEFORE + mixed(source, path.name) + AFTER, headers).text)
    between = mixed(source, path.name, LEFT_BETWEEN)
    alone = LEFT_OF_BEFORE + (device_text(between, headers).text if has_host_code else between) + LEFT_OF_AFTER
    assert [token.text for token in tokens(program)] == [token.text for token in tokens(alone)]
