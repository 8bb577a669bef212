"""NVRTC gets rarely needed headers only if a text does not compile without them, and assembles only where needed."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_gpulab.devices.compiler import nvrtc, nvrtc_program
from pytest_gpulab.devices.compiler.machine_code import compile_machine_code
from pytest_gpulab.devices.compiler.nvrtc_program import Answer, Request, compiled
from pytest_gpulab.devices.protocol import CompileError

KERNEL = "__global__ void f(float *x) { x[0] = 1; }\n"
NEEDS_MORE = "__global__ void f(cudaTextureObject_t t, float *x) { x[0] = tex1Dfetch<float>(t, 0); }\n"


def asked(monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[Answer, list[bool]]:
    """Compile; return also which translations were with few declarations."""
    with_few: list[bool] = []
    once = nvrtc_program._compiled

    def noted(request: Request, options: list[str]) -> Answer:
        with_few.append(options[-1:] == [nvrtc_program._MINIMAL])
        return once(request, options)

    monkeypatch.setattr(nvrtc_program, "_compiled", noted)
    return compiled(nvrtc.ptx_request(text, "k.cu", "compute_90")), with_few


def test_most_kernels_are_compiled_once_with_few_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, with_few = asked(monkeypatch, KERNEL)
    request = nvrtc.ptx_request(KERNEL, "k.cu", "compute_90")
    assert answer.output is not None and with_few == [True]
    assert answer == nvrtc_program._compiled(request, request.options)


def test_a_text_that_needs_more_gets_all_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, with_few = asked(monkeypatch, NEEDS_MORE)
    assert answer.output is not None and b"tex.1d" in answer.output and with_few == [True, False]


def test_the_messages_with_all_headers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, with_few = asked(monkeypatch, f"{NEEDS_MORE}__device__ int y = nothing;\n")
    assert answer.output is None and with_few == [True, False]
    assert 'k.cu(2): error: identifier "nothing" is undefined' in answer.log and "cudaTexture" not in answer.log


def test_cubs_headers_are_not_tried_with_few_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc_program, "_compiled", lambda request, options: Answer(None, " ".join(options)))
    assert (
        nvrtc_program._MINIMAL not in compiled(nvrtc.ptx_request("#include <cub/cub.cuh>\n", "k.cu", "compute_90")).log
    )


@pytest.mark.parametrize(
    ("text", "headers", "output"),
    [
        ("#include <cuda_fp16.h>\n", {}, "ptx"),
        ("#include <cooperative_groups.h>\n", {}, "both"),
        ("#include <tuple>\n__device__ std::tuple<int> pair;\n", {}, "both"),  # libcu++'s
        ('#include "own.cuh"\n', {"own.cuh": ""}, "ptx"),
        ('#include "own.cuh"\n', {"own.cuh": "#include <cuda/atomic>\n"}, "both"),
    ],
)
def test_machine_code_comes_with_ptx_where_headers_take_long(text: str, headers: dict[str, str], output: str) -> None:
    request = nvrtc.ptx_request(text, "k.cu", "compute_90", headers=headers)
    assert nvrtc.combined(request).output == output


ASSEMBLY = '__global__ void f(int *x) { int unused; asm("{%s}"); }\n'


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        (KERNEL, ["ptx", "cubin"]),
        (ASSEMBLY % "bar.sync 0;", ["both", "ptx"]),  # its own lines are looked for without the compiler's
        (ASSEMBLY % "wrong;", ["both", "ptx", "ptx", "cubin", "cubin"]),  # the last one is a right kernel
        (f"wrong {ASSEMBLY % ''}", ["both", "ptx"]),
    ],
)
def test_machine_code_that_comes_with_ptx_is_that_of_its_own_compilation(text: str, outputs: list[str]) -> None:
    sent: list[str] = []

    def noted(request: Request) -> Answer:
        sent.append(request.output)
        return compiled(request)

    run = nvrtc.CombinedRun(noted)
    assert _told(run, text) == _told(compiled, text)
    assert sent == outputs


def _told(run: nvrtc.Run, text: str) -> object:
    """Return PTX, log and machine code, or what the compiler says against the text."""
    try:
        ptx = nvrtc.compile_ptx(text, "k.cu", "compute_90", run=run)
        return ptx, compile_machine_code(text, "k.cu", "sm_90", run=run)
    except CompileError as error:
        return error.diagnostics


def test_nvrtc_is_called_without_nvidias_bindings() -> None:
    """To import them would take more time than the rest of a compiler process's start."""
    program = (
        "import sys\n"
        "from pytest_gpulab.devices.compiler import nvrtc_program\n"
        "print(nvrtc_program.version(), 'cuda.bindings' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [nvrtc.version(), "False"]


def test_a_failure_without_messages_has_nvrtcs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("CreateProgram", "GetProgramLogSize", "GetProgramLog", "DestroyProgram")
    silent = {f"nvrtc{name}": lambda *_: 0 for name in names}
    said = nvrtc_program._nvrtc().nvrtcGetErrorString
    failing = SimpleNamespace(**silent, nvrtcCompileProgram=lambda *_: 6, nvrtcGetErrorString=said)
    monkeypatch.setattr(nvrtc_program, "_nvrtc", lambda: failing)
    answer = compiled(Request("", "k.cu", {}, [], "ptx", ""))
    assert answer == (None, "NVRTC_ERROR_COMPILATION")
