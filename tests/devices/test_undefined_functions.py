"""Functions that are called and never defined: the file does not compile, on either device, and a sentence says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_nvcc import stand_in

from pytest_gpulab.devices.compiler.machine_code import compile_machine_code
from pytest_gpulab.devices.protocol import CannotSimulate, CompileError
from pytest_gpulab.devices.simulated import SimulatedDevice

CALLER = "__global__ void k(int *p) { *p = other(*p); }\n"
DECLARED = {
    'extern "C" __device__ int other(int);\n': "the function `other` is called, but not defined",
    "__device__ int other(int);\n": "the function `other` is called, but not defined (_Z5otheri)",
    "namespace mine { __device__ int other(int); }\nusing mine::other;\n": (
        "the function `mine::other` is called, but not defined (_ZN4mine5otherEi)"
    ),
}


@pytest.mark.parametrize("declared", DECLARED)
def test_the_simulated_gpu_refuses_the_file_and_names_the_line(declared: str) -> None:
    with pytest.raises(CompileError) as caught:
        SimulatedDevice().compile(declared + CALLER, "k.cu")
    assert caught.value.diagnostics == f"k.cu({declared.count(chr(10)) + 1}): error: {DECLARED[declared]}"


@pytest.mark.parametrize("declared", DECLARED)
def test_the_assemblers_message_is_reworded(declared: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_machine_code(declared + CALLER, "k.cu", "sm_90")
    first, *rest = caught.value.diagnostics.splitlines()
    assert first == f"k.cu: error: {DECLARED[declared]}"
    assert any("Unresolved extern function" in line for line in rest)


def test_so_are_those_of_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = stand_in(tmp_path, monkeypatch)
    words = "ptxas fatal   : Unresolved extern function 'other'"
    compiler.says(f'echo "{words}" >&2; exit 255')
    assert compiler.said("text") == f"k.cu: error: the function `other` is called, but not defined\n{words}"


def test_functions_of_the_driver_are_provided() -> None:
    calls = 'void *p = malloc(8); assert(p); printf("%p", p); free(p);'
    assert SimulatedDevice().compile(f"__global__ void k() {{ {calls} }}", "k.cu").kernels == ("k",)


def test_a_function_of_the_runtime_library_in_kernels_has_its_own_name() -> None:
    device = SimulatedDevice()
    declared = 'extern "C" __device__ int __cudaCDP2FuncGetAttributes(void *, const void *);\n'
    body = "*p = 1; }\n__global__ void asks(int *p) {\n *p = __cudaCDP2FuncGetAttributes(p, p); }"
    module = device.compile(f"{declared}__global__ void k(int *p) {{ {body}", "k.cu")
    one = device.array([0], np.int32)
    module.launch("k", (1, 1, 1), (1, 1, 1), [one])
    with pytest.raises(CannotSimulate, match=r"a call of cudaFuncGetAttributes\(\)") as caught:
        module.launch("asks", (1, 1, 1), (1, 1, 1), [one])
    assert caught.value.where is not None and caught.value.where.line == 4
