"""A file's name is the student's choice: whatever it holds, it stays a name."""

from __future__ import annotations

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.cuda.nvcc.compile import with_prelude
from pytest_gpulab.devices.protocol import CompileError

NAMES = {
    'a"b.cu': 'a"b.cu',
    "a\\b.cu": "a\\b.cu",
    'a"\n#error planted\n.cu': 'a"?#error planted?.cu',
    "a\udcff.cu": "a?.cu",
    "--use_fast_math.cu": "?-use_fast_math.cu",
    "--pre-include=secret.cu": "?-pre-include=secret.cu",
    "@options.cu": "@options.cu",
    " --pre-include=secret.cu": " --pre-include=secret.cu",
    "größe ✓.cu": "größe ✓.cu",
}


@pytest.mark.parametrize("defines", [{}, {"N": "1"}])
@pytest.mark.parametrize("name", NAMES)
def test_messages_name_the_file_and_obey_no_part_of_its_name(name: str, defines: dict[str, str]) -> None:
    device, _ = open_device("sim")
    device.compile("__global__ void f() {}\n", name, defines)
    with pytest.raises(CompileError) as caught:
        device.compile("\nwrong;\n", name, defines)
    assert caught.value.diagnostics.startswith(
        f"{NAMES[name].lstrip()}(2): error: this declaration has no storage class"
    )


@pytest.mark.parametrize("name", NAMES)
def test_nvcc_is_given_one_line_with_the_name(name: str) -> None:
    first, *rest = with_prelude("text\n", name, {}).split("\n")
    assert first.startswith('#line 1 "') and rest == ["text", ""]


def test_a_line_table_has_the_name() -> None:
    ptx, _ = nvrtc.compile_ptx("__global__ void f(int *p) { *p = 1; }\n", 'a"b.cu', "compute_90", {"N": "1"})
    assert '.file\t1 "a\\"b.cu"' in ptx or '"a"b.cu"' in ptx
