"""Which of CUDA's headers nvcc is spared: those that declare nothing that a text speaks of."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import nvidia
import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices.cuda.nvcc import compile, toolkit
from pytest_gpulab.devices.cuda.nvcc.headers import _FOR_HOSTS, unneeded_headers
from pytest_gpulab.devices.source.host_code import device_text

ROOT = Path(__file__).parents[2]
MATH, SHUFFLE, DOUBLE, MATCH = (
    f"__{name}_H__" for name in ("MATH_FUNCTIONS", "SM_30_INTRINSICS", "DEVICE_DOUBLE_FUNCTIONS", "SM_70_RT")
)
ALL = (DOUBLE, MATH, SHUFFLE, MATCH)
NVCC = shutil.which("nvcc")


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """A folder with headers like CUDA's."""
    (tmp_path / "crt").mkdir()
    declared = {
        "crt/math_functions.h": "/* like hypot(x, y) */\n// or cbrt(x)\n#define SOME 'erf(x)'\nfloat fabsf(float x);",
        "sm_30_intrinsics.h": "#if defined(__CUDACC__)\nint __shfl_sync(unsigned mask, int value, int lane);\n#endif\n",
        "crt/device_double_functions.h": "long long __double_as_longlong(double x);\n",
        "crt/sm_70_rt.h": "unsigned __match_any_sync(unsigned mask, double value);\n",
        "crt/sm_70_rt.hpp": "unsigned __match_any_sync(unsigned, double v) { return of(__double_as_longlong(v)); }\n",
    }
    for name, text in declared.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def spared(include: Path, text: str, **headers: str) -> tuple[str, ...]:
    found = unneeded_headers(include, text, {f"{name}.cuh": contents for name, contents in headers.items()})
    assert found is not None
    return found


NOTHING_OF_THEM = (
    "__global__ void f(float *x) { if (defined) x[0] = 1; while (x[1] < 2) x[1] += 1; }",
    "#include <gpulab.cuh>\n#include <stdio.h>\n#  include <cstdint>\n",
    "// fabsf(x) would do\n/* so would\n#include <cub/cub.cuh>\n*/",
    "float hypot, erf, cbrt, SOME;",
    "#define BLOCK_SIZE 256\n#include <stdio.h>\n#define M_PI 3.0f",
    "#define M_PI 3.0f\n#include <gpulab.cuh>\n#include <cuda_runtime.h>",
    "#pragma once\n#ifndef BLOCK_SIZE\n#define BLOCK_SIZE 256\n#elif defined(GPULAB_T) || __CUDA_ARCH__ >= 700\n#endif",
    '#line 1 "k.cu"\n# 1 "k.cu"\n#\n#undef X\n#error no\n#warning no\n',
)


@pytest.mark.parametrize("text", NOTHING_OF_THEM)
def test_a_text_without_declared_names_gets_no_headers(include: Path, text: str) -> None:
    assert spared(include, text) == ALL


SPEAKS_OF_ONE = (
    "x[0] = fabsf(x[1]);",
    "#define SIZE fabsf  // behind a macro",
    "float y = fabs\\\nf(x);",
    "char c = '\\\"'; /* \" */ float y = fabsf(x);",
    'const char *s = "//"; float y = fabsf(x);',
    'const char *s = "\\"/*"; float y = fabsf(x);',
)


@pytest.mark.parametrize("text", SPEAKS_OF_ONE)
def test_a_text_with_a_declared_name_gets_its_header(include: Path, text: str) -> None:
    assert spared(include, text) == (DOUBLE, SHUFFLE, MATCH)
    assert spared(include, '#include "more.cuh"', more=text) == (DOUBLE, SHUFFLE, MATCH)


def test_a_header_comes_with_the_headers_that_it_calls(include: Path) -> None:
    assert spared(include, "m = __match_any_sync(~0u, 1.0);") == (MATH, SHUFFLE)


NOT_TOLD_BY_WORDS = (
    "using namespace std;",
    "using /* all */\n  namespace std;",
    "std::size_t n;",
    "#define CALL(name) name##f(1.0f)",
    "#define CALL(name) name%:%:f(1.0f)",
    "cudaError_t last;",
    "float y = tex1Dfetch<float>(t, 0);",
    "#if CUDART_VERSION >= 12000",
    "#if defined(__cpp_lib_x)",
    "#ifdef _GLIBCXX_Y",
    "#ifdef __USE_GNU",
    "#if __GLIBC_USE(IEC_60559_EXT)",
    "#ifndef M_PI\n#define M_PI 3.0\n#endif",
    "#if 0\n#elif M_PI > 3\n#endif",
    "%:ifdef M_PI",
    "#ifdef \\\nM_PI",
    "#/**/ifdef M_PI",
    "#include <cub/cub.cuh>",
    "#include <cuda_fp16.h>",
    '#include "another.cuh"',
    "#include <algorithm>",
    "%: include <algorithm>",
    "#include HEADER",
    "#import <algorithm>",
    "#include_next <cmath>",
    "#define M_PI 3.0f\n#include <math.h>",
    "#define max(a, b) ((a) > (b) ? (a) : (b))\n#include <cstdio>",
    "# undef NAN\n# include <math.h>",
    "#define\n#include <limits.h>",
)


@pytest.mark.parametrize("text", NOT_TOLD_BY_WORDS)
def test_where_words_do_not_tell_a_text_gets_all_headers(include: Path, text: str) -> None:
    assert unneeded_headers(include, text, {}) is None
    assert unneeded_headers(include, "", {"more.cuh": text}) is None


def test_macros_of_other_headers_may_come_before_those_of_c(include: Path) -> None:
    assert unneeded_headers(include, "#include <limits.h>", {"more.cuh": "#define INT_MAX 1000"}) is None
    assert unneeded_headers(include, "#include <limits.h>", {"more.cuh": "#define MORE_CUH"}) is not None


def test_without_such_headers_a_text_gets_all_that_there_are(tmp_path: Path) -> None:
    assert unneeded_headers(tmp_path, "", {}) is None
    (tmp_path / "vector_functions.h").mkdir()
    assert unneeded_headers(tmp_path, "", {}) is None


def real_headers() -> Path:
    """CUDA's own, which come with NVRTC or with the toolkit."""
    folders = [found for folder in nvidia.__path__ for found in sorted(Path(folder).glob("*/include"))]
    folders += filter(None, [toolkit.headers_of(NVCC)] if NVCC else [])
    return next(folder for folder in folders if (folder / "crt" / "math_functions.h").exists())


CALLS = {
    "sqrtf(x)": "MATH_FUNCTIONS_H",
    "fmaxf(1.0f, fabsf(x))": "MATH_FUNCTIONS_H",
    "fmax(1.0, x)": "MATH_FUNCTIONS_H",
    "__shfl_down_sync(~0u, x, 1)": "SM_30_INTRINSICS_H",
    "__ballot_sync(~0u, x)": "SM_30_INTRINSICS_H",
    "__ldg(&x)": "SM_32_INTRINSICS_H",
    "atomicAdd(&x, 1)": "DEVICE_ATOMIC_FUNCTIONS_H",
    "atomicAdd(&x, 1.0)": "SM_60_ATOMIC_FUNCTIONS_H",
    'printf("%d", x)': "COMMON_FUNCTIONS_H",
    "assert(x)": "COMMON_FUNCTIONS_H",
    "new int[x]": "COMMON_FUNCTIONS_H",
    "make_int4(x, x, x, x)": "VECTOR_FUNCTIONS_H",
    "__syncthreads_count(x)": "SM_20_INTRINSICS_H",
    "__dadd_rn(x, x)": "DEVICE_DOUBLE_FUNCTIONS_H",
    "__dp4a(x, x, x)": "SM_61_INTRINSICS_H",
    "__match_any_sync(~0u, x)": "SM_70_RT_H",
    "__reduce_add_sync(~0u, x)": "SM_80_RT_H",
    "__vimax_s32_relu(x, x)": "DEVICE_FUNCTIONS_HPP",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_a_cuda_function_gets_its_header(call: str) -> None:
    everything = spared(real_headers(), "__global__ void f(int *x) { __syncthreads(); x[threadIdx.x] = warpSize; }")
    assert len(everything) == 17  # every one that is looked for is there
    assert f"__{CALLS[call]}__" in set(everything) - set(spared(real_headers(), f"auto y = {call};"))


def test_functions_defined_through_the_mathematics_header_come_with_it() -> None:
    assert MATH not in spared(real_headers(), "auto y = __vimax_s32_relu(x, x);")


def test_beside_that_the_least_and_the_greatest_are_cudas_own() -> None:
    guards = spared(real_headers(), "auto y = max(x, __vimax_s32_relu(x, x));")
    assert "GPULAB_MIN_MAX" not in guards and MATH not in guards


LITTLE_CALLS = ("max(1, x)", "min(1u, fmaxf(x, fminf(2.0f, x)))", "min(x, __shfl_sync(~0u, x, 1))")


@pytest.mark.parametrize("call", LITTLE_CALLS)
def test_the_least_and_the_greatest_alone_are_ours(call: str) -> None:
    guards = spared(real_headers(), f"auto y = {call};")
    assert "GPULAB_MIN_MAX" in guards and {MATH, "__COMMON_FUNCTIONS_H__", "__DEVICE_FUNCTIONS_HPP__"} < set(guards)


@pytest.mark.parametrize("text", ["auto y = max(1, x) + expf(x);", "#include <math.h>\nauto y = max(1, x);", "x + 1"])
def test_otherwise_they_come_with_all_of_mathematics_or_not_at_all(text: str) -> None:
    guards = spared(real_headers(), text)
    assert "GPULAB_MIN_MAX" not in guards and (MATH in guards) == ("max" not in text)


SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("solutions", "tests/honest", "exercises")
    for path in (ROOT / folder).rglob("*.cu")
    if path.stem != "prints_with_wrong_formats"  # nvcc warns of it
    and "reduction_host" not in path.parts  # a whole program
)
MAXIMUM = {"GPULAB_T": "float", "GPULAB_OP(a, b)": "fmaxf((a), (b))", "GPULAB_IDENTITY": "-3.4e38f"}


def compiled(source: str, folder: Path, includes: list[Path], guards: tuple[str, ...]) -> str:
    """Return the PTX, without what differs from run to run."""
    assert NVCC
    (folder / "kernel.cu").write_text(source)
    options = ["-arch=sm_75", "-std=c++17", *(f"-I{path}" for path in includes), *(f"-D{guard}" for guard in guards)]
    # A skeleton does not yet use all of its constants.
    command = [NVCC, "-ptx", "-diag-suppress=177", *options, "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r"_[0-9a-f]{8}_\d+_kernel_cu_\w+|tmpxft_[-\w]+", "", (folder / "kernel.ptx").read_text())


TYPES = ("int", "unsigned", "long", "unsigned long", "long long", "unsigned long long", "float", "double", "short")
CHOSEN = """
template <typename A, typename B> __device__ auto call_NAME(A a, B b, int) -> decltype(NAME(a, b))
{ return NAME(a, b); }
template <typename A, typename B> __device__ char call_NAME(A a, B b, long) { return 1; } // none, or several
"""
LITTLE = "".join(CHOSEN.replace("NAME", name) for name in ("min", "max")) + "\n".join(
    f"__global__ void {name}_{one}_{other}({first} *a, {second} *b, double *c)"
    f" {{ auto found = call_{name}(*a, *b, 0); c[sizeof found] = found; }}"
    for name in ("min", "max")
    for one, first in enumerate(TYPES)
    for other, second in enumerate(TYPES)
)
LITTLE += "__global__ void f(float *x) { x[0] = fminf(x[1], fmaxf(x[2], 1)) + min(1, 2u); }\n"


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
def test_the_least_and_the_greatest_are_cudas_for_all_types(tmp_path: Path) -> None:
    assert NVCC
    include, own = toolkit.headers_of(NVCC), ROOT / "pytest_gpulab/include"
    assert include is not None
    guards = unneeded_headers(include, LITTLE, {})
    assert guards is not None and {"GPULAB_MIN_MAX", MATH} < set(guards)
    assert compiled(LITTLE, tmp_path, [own / "nvcc", own], guards) == compiled(LITTLE, tmp_path, [own], ())


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
def test_nvcc_makes_the_same_of_kernels_with_few_headers(tmp_path: Path) -> None:
    """Compile each kernel with a name of the headers, or a set of headers, that no kernel before it has."""
    assert NVCC
    include, own, seen = toolkit.headers_of(NVCC), ROOT / "pytest_gpulab/include", set[object]()
    assert include is not None
    known = words_of((path.read_text() for path in (*include.glob("*.h*"), *include.glob("crt/*.h*"))), DECLARED)
    kernels = [(path, *with_guards(path, include)) for path in SOURCES]
    has = {path: {guards} | known & words_of(texts) for path, texts, guards in kernels}
    for path, (source, *_), guards in sorted(kernels, key=lambda kernel: -len(has[kernel[0]])):  # fewer are left then
        if guards is not None and not seen.issuperset(has[path]):
            seen |= has[path]
            exercise = ROOT / "exercises" / path.parent.name
            with_few = compiled(source, tmp_path, [own / "nvcc", own, exercise], guards)
            assert with_few == compiled(source, tmp_path, [own, exercise], ()) != "", path


def with_guards(path: Path, include: Path) -> tuple[list[str], tuple[str, ...] | None]:
    """Return a kernel and its exercise's headers as texts, and which of CUDA's headers it is spared."""
    headers = {header.name: header.read_text() for header in (ROOT / "exercises" / path.parent.name).glob("*.cuh")}
    text, defines = (ROOT / path).read_text(), MAXIMUM if "reduction" in path.parts else {}
    source = compile.with_prelude(text, "kernel.cu", defines, device_text(text, headers).prelude)
    guards = unneeded_headers(include, source, headers)
    if guards is None:
        needs_all = "type_traits", "algorithm", "mma.h", "cuda_awbarrier_primitives.h", "cuda_pipeline.h"
        # Pasted words are not looked for.
        assert "##" in source or any(f"#include <{header}>" in source for header in needs_all), path
    return [source, *headers.values()], guards


WORD = r"[A-Za-z_]\w+"
DECLARED = rf"{WORD}(?=\s*\()|(?<=#define ){WORD}"  # functions and macros, but no parameters


def words_of(texts: Iterable[str], pattern: str = WORD) -> set[str]:
    """Return the words of two letters and more in code; those of comments are no reason to compile a kernel."""
    return set[str]().union(*(re.findall(pattern, re.sub(r"//.*|/\*(?s:.*?)\*/", " ", text)) for text in texts))


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
@pytest.mark.parametrize("call", ["sqrtf(x[1])", "1", '1 + printf("once")'])
def test_includes_for_hosts_compile_with_few_headers(call: str, tmp_path: Path) -> None:
    assert NVCC
    include, own = toolkit.headers_of(NVCC), ROOT / "pytest_gpulab/include"
    assert include is not None
    included = "".join(f"#include <{name}>\n" for name in sorted(_FOR_HOSTS))
    source = f"{included}__global__ void f(float *x) {{ x[0] = {call}; }}\n"
    guards = unneeded_headers(include, source, {})
    assert guards is not None
    assert compiled(source, tmp_path, [own / "nvcc", own], guards) == compiled(source, tmp_path, [own], ())
