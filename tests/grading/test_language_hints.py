"""Hints for the usual mistakes in the language, from the compiler's first message."""

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import CompileError, Device
from pytest_gpulab.devices.source.host_code import device_text
from pytest_gpulab.grading.compilation.compile_errors import of_compile_error
from pytest_gpulab.grading.findings import HINTS


@pytest.fixture(scope="module")
def gpu() -> Device:
    return open_device("sim")[0]


KERNEL = "__global__ void k(const float *in, float *out, int n)\n{{\n{}\n}}\n"
ONE_LINE = {
    "    int i = threadIdx.x\n    out[i] = in[i];": "A `;` is missing at the end of line 3.",
    "    if (n < 1) return\n    float x = in[0];\n    out[0] = x;": "A `;` is missing at the end of line 3.",
    "    out[0] = 2 in[0];": "A `;` or another sign is missing before `in`.",
    "    if (n = 3 && n % 2 = 0) out[0] = 1;": "A comparison is `==`.",
    "    in[0] = 2;": "a `const` value",
    "    __shared__ float s[n];\n    out[0] = s[0];": "must know the length of an array",
    "    __shared__ float s[];\n    out[0] = s[0];": "such as `tile[BLOCK_SIZE]`",
    "    out[0] = in[0]^2;": "not a power: write x * x",
    "    float i = 1;\n    out[i] = 2;": "declare the variable as `int`",
    "    __shared__ float s[4] = {0};\n    out[0] = s[0];": "Shared memory has no start values",
    "    __constant__ float c[4];\n    out[0] = c[0];": "outside of the kernel",
    "    out[0][1] = 2;": "its declaration lacks a `*`",
    "    float2 v;\n    out[0] = v[0];": "`v.x`, `v.y`",
    "    out[0] = sqrtf(in);": "choose an element, such as `in[i]`",
    "    out = in[0];": "The left side is a pointer",
    "    out[0] = in;": "The right side is a pointer",
    "    atomicAdd(out[0], in[0]);": "`&bins[k]` in place of `bins[k]`",
    "    out[0] = __shfl_down_sync(in[0], 2);": "the mask of the lanes, the value",
    "    for (int i = 0, i < n, i++) out[i] = 2;": "separated by semicolons",
    "    while n > 2 { n--; }": "is in parentheses",
    "    float[4] x;\n    out[0] = x[0];": "behind its name",
    "    if (n > 2) out[0] = 1;\n    elif (n > 3) out[0] = 2;": "C++ has no `elif`: write `else if`.",
    "    for (int i = 0; i < n; i++) out[i] = 2;\n    out[i] = 3;": "`i` of line 3 exists only in its loop or block",
    "    if (n > 2) { float v = in[0]; }\n    out[0] = v;": "`v` of line 3 exists only in its loop or block",
    "    out[0] = late;\n    float late = 3;": "`late` is declared later, in line 4",
    "    out[0] = 1;\n}\n    out[1] = 2;": "outside of any function: an earlier `}`",
}
FUNCTION = "__device__ float f(float x) { return x; }\n"
WHOLE = {
    "__globl__ void k(float *out) { out[0] = 1; }": "Is `__global__` meant?",
    "__constant__ int c[] = {1, 2}\n    ;\n__globl__ void k(float *out) { out[0] = 1; }": "Is `__global__` meant?",
    "#define TUNABLE(name)\nTUNABLE(B)\n__globl__ void k(float *out) { out[0] = 1; }": "Is `__global__` meant?",
    "__global__ k(float *out) { out[0] = 1; }": "such as `void`",
    "__global__ float k(float *out) { return out[0]; }": "A kernel returns nothing",
    "__global__ void k(float *out int n) { out[0] = n; }": "A comma is missing before `int`.",
    "__global__ void k(float *out);\n{ out[0] = 1; }": "behind the list of parameters",
    "#define N 8;\n__global__ void k(float *out) { __shared__ float s[N]; out[0] = s[0]; }": "the `;` included: delete "
    "that in line 1.",
    "#define N = 8\n__global__ void k(float *out) { __shared__ float s[N]; out[0] = s[0]; }": "the `=` included",
    f"{FUNCTION}__global__ void k(float *out) {{ out[0] = f(1) + x; }}": "another function",
    f"{FUNCTION}__global__ void k(float *out) {{ out[0] = f(1) + y; }}": "",
    "__global__ void k(float *out) { out[0] = 1, 2 }": "A `;` or another sign is missing before `}`.",
    "__global__ void k(float *out) {\n#pragma unroll\nout[0] = 1; int n; int n; }": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "hint"), [*((KERNEL.format(body), hint) for body, hint in ONE_LINE.items()), *WHOLE.items()]
)
def test_a_mistake_in_the_language_has_a_hint(gpu: Device, source: str, hint: str) -> None:
    with pytest.raises(CompileError) as raised:
        gpu.compile(source, "k.cu")
    _, found = of_compile_error(raised.value, device_text(source, {}), source, "k.cu", {})
    assert hint in found.hint if hint else found.hint == HINTS["compile-error"]


def test_a_header_of_the_exercise_that_is_misspelt_is_named(gpu: Device) -> None:
    source, headers = '#include "path.cuh"\n', {"paths.cuh": ""}
    with pytest.raises(CompileError) as raised:
        gpu.compile(source, "k.cu", headers=headers)
    _, found = of_compile_error(raised.value, device_text(source, headers), source, "k.cu", headers)
    assert found.hint == "Is `paths.cuh` meant?"


@pytest.mark.parametrize(
    "call", ["atomicAdd(out[0], 1.0f)", "out[0] = __shfl_down_sync(2.0f, 2)", "float2 v; out[0] = v[0]"]
)
def test_overloads_that_do_not_match_are_not_listed(gpu: Device, call: str) -> None:
    with pytest.raises(CompileError) as raised:
        gpu.compile(KERNEL.format(f"{call};"), "k.cu")
    _, found = of_compile_error(raised.value, device_text("", {}), "", "k.cu", {})
    assert "does not match" in raised.value.diagnostics
    assert not any("does not match" in line or "nvrtc" in line for line in found.evidence)
    assert found.evidence[-1].startswith("1 error detected")
