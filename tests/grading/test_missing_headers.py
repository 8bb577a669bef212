"""A header that CUDA's installation lacks is the machine's fault; one that no CUDA has is the file's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from block_sums import TREE, graded
from lucky_device import LACKS_HEADERS_VARIABLE, lacking_headers
from test_cross_check import USES
from test_cross_check import graded as graded_on_a_gpu

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.compilation.missing_headers import cudas_missing_header

ROOT = Path(__file__).resolve().parents[2]
LACKING = "The CUDA installation of this machine lacks the header `nv/target`."
SAID = '\\nf.cu(1): catastrophic error: cannot open source file \\"nv/target\\"\\n'


CLAMPED = "__device__ int clamped(int x) { return std::clamp(x, 0, 9); }"
SUMMED = "__device__ int summed(int x, cub::WarpReduce<int>::TempStorage &t) { return cub::WarpReduce<int>(t).Sum(x); }"


@pytest.mark.parametrize(
    "text",
    [
        "#include <nv/target>",
        "#include <cuda/std/array>",
        f"#include <algorithm>\n{CLAMPED}",
        f"#include <cub/cub.cuh>\n{SUMMED}",
    ],
)
def test_without_one_of_cudas_headers_a_file_that_needs_it_is_not_gradable(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    lacking_headers(monkeypatch.setattr, tmp_path_factory.mktemp("include"))
    results = graded(tmp_path, SimulatedDevice(), f"{text}\n{TREE}")
    assert {result.verdict for result in results.values()} == {"not gradable"}
    (finding,) = results["compile"].findings
    assert finding.what == LACKING
    assert finding.hint == "Your file is not at fault: please tell your instructor."


def test_a_standard_header_needs_cudas_only_for_names_that_the_file_uses(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking_headers(monkeypatch.setattr, tmp_path_factory.mktemp("include"))
    results = graded(tmp_path, SimulatedDevice(), f"#include <algorithm>\n{TREE}")
    assert {result.verdict for result in results.values()} == {"passed", "missed"}  # missed: the bonus for 1000x


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda/std/nothing>",
        "#include <cooperative_groups/mine.h>",
        "#include <nv/targets>",
        f'#include <cuda_fp16.h>\nstatic_assert(false, "{SAID}");',
        f'#include <mma.h>\n[[deprecated("{SAID}")]] __device__ int a();\n__device__ int b() {{ return a() + x; }}',
    ],
)
def test_on_a_complete_machine_no_file_is_spared_whatever_it_makes_the_compiler_say(tmp_path: Path, text: str) -> None:
    results = graded(tmp_path, SimulatedDevice(), f"{text}\n{TREE}")
    assert {result.verdict for result in results.values()} == {"failed"}
    assert results["compile"].findings[0].code == "compile-error"


def test_nor_is_a_mistake_beside_a_header_that_is_there(tmp_path: Path) -> None:
    results = graded(tmp_path, SimulatedDevice(), TREE.replace("weight * tile[0]", "wait * tile[0]"))
    assert results["compile"].findings[0].code == "compile-error"


def of_gcc(included: str, missing: str) -> str:
    return f"In file included from k.cu:1:\n{included}:5:10: fatal error: {missing}: No such file or directory\n"


@pytest.mark.parametrize(
    ("text", "said", "said_of_trial", "header"),
    [
        ("#include <cuda_fp16.h>", of_gcc("/cuda/include/cuda_fp16.h", "nv/target"), None, "nv/target"),
        ("#include <mma.h>", "k.cu:1:10: fatal error: mma.h: No such file or directory", None, "mma.h"),
        ("#include <mma.h>", of_gcc("/cuda/include/mma.h", "crt/mma.h"), None, "crt/mma.h"),
        ("#include <mma.h>", of_gcc("/cuda/include/mma.h", "crt/mma.h"), "", None),
        ("#include <mma.h>", of_gcc("/cuda/include/mma.h", "crt/mma.h"), "mma.h(3): error: no sm_75", None),
        ("#include <mine.h>", "k.cu:1:10: fatal error: mine.h: No such file or directory", None, None),
    ],
)
def test_with_nvcc_the_headers_are_tried_as_well(
    text: str, said: str, said_of_trial: str | None, header: str | None
) -> None:
    tried = []

    def compiled(trial: str) -> None:
        tried.append(trial)
        if said_of_trial != "":
            raise CompileError(said if said_of_trial is None else said_of_trial)

    assert cudas_missing_header(said, (text, ""), compiled) == header
    words = " ".join(sorted(re.findall(r"\w+", text)))
    trial = f"{text}\n#define GPULAB_WORDS {words}\n__global__ void trial(int *p) {{ *p = 1; }}\n"
    assert tried == ([] if "mine.h" in text else [trial])


@pytest.mark.usefixtures("lucky_gpu")
def test_a_uses_check_is_not_gradable_without_the_header_of_the_simulated_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """nvcc has all headers, NVRTC has not."""
    monkeypatch.setenv(LACKS_HEADERS_VARIABLE, str(tmp_path))
    text = (ROOT / "solutions" / "scan" / "05_warp_shuffle.cu").read_text()
    path = tmp_path / "scan.cu"
    path.write_text(f"#include <nv/target>\n{text}")
    compiled, *used = graded_on_a_gpu(path, "compile", *USES)
    assert compiled.verdict == "passed"
    for result in used:
        assert result.verdict == "not gradable"
        assert LACKING in result.findings[0].what
