"""Every message in the documentation's troubleshooting table is one that the package really gives: each is provoked."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import troubles
from course import Course
from doc_pages import ROOT
from machine import Machine

PAGE = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## Troubleshooting")[1].split("While PyCUDA is built")[0]
MESSAGES = re.findall(r"^\| `([^`]+)` \|", TABLE, re.M)


PROVOKED: dict[str, Callable[[Machine], str]] = {
    "PyCUDA is not installed": troubles.no_pycuda,
    "... hides NVIDIA's package": troubles.hidden_package,
    "NVRTC, the CUDA compiler library, is": troubles.no_nvrtc,
    "the simulated GPU needs NVRTC": troubles.macos,
    "grading on a GPU works on Linux only": troubles.windows,
    "the NVIDIA driver is not installed": troubles.no_driver,
    "PyCUDA is installed but cannot": troubles.broken_pycuda,
    "no GPU can be used; the": troubles.driver_refuses,
    "no GPU can be used: the": troubles.no_gpus,
    "there is no CUDA device": troubles.number_too_high,
    "the GPU ... is too old": troubles.gpu_too_old,
    "nvcc was not found": troubles.no_nvcc,
    "no program can be run": troubles.noexec,
    "nvcc compiles no kernel": troubles.nvcc_compiles_nothing,
    "nvcc cannot be run": troubles.nvcc_without_room,
    "clocks, power and temperature": troubles.no_nvml,
    "... is not nvidia-ml-py's": troubles.old_pynvml,
    "--gpulab-gpu has no effect": troubles.described_on_a_gpu,
    "no GPU model is named": troubles.unknown_gpu,
    "--gpulab-arch has no effect": troubles.arch_on_a_gpu,
    "unknown architecture": troubles.unknown_arch,
    "compute-sanitizer": troubles.no_sanitizer,
    "--gpulab-sanitizer has no effect": troubles.sanitizer_simulated,
    "--gpulab-ncu has no effect: ncu": troubles.no_ncu,
    "--gpulab-ncu has no effect: the simulated": troubles.ncu_simulated,
    "ncu: no permission": troubles.ncu_denied,
    "ncu: Profiling failed": troubles.ncu_kept_out,
    "ncu: ...": troubles.ncu_otherwise,
    "ncu: it ended": troubles.ncu_silent,
    "other processes used": troubles.others,
    "the GPU was slowed down": troubles.slowed_down,
    "other programs used": troubles.calibrated_beside_others,
    "the grader's own kernels": troubles.kept_from_the_gpu,
    "another process has been timing": troubles.lock_held,
    "the worker process": troubles.slow_start,
    "compiling had not ended": troubles.starved_compiler,
    "This check had not ended": troubles.slow_check,
    "the kernel had not ended": troubles.slow_kernel,
    "The process that ran": troubles.crash,
    "The system killed the worker": troubles.killed_for_memory,
    "The system killed the compiler": troubles.compiler_killed_for_memory,
    "grades cannot be stored": troubles.cache_not_writable,
    "cannot use the store": troubles.store_not_writable,
    "the drive of": troubles.drive_without_locks,
    "The compiler did not": troubles.compiler_limit,
    "the GPU itself failed": troubles.gpu_broken,
    "the NVIDIA driver does not load": troubles.driver_too_old,
    "the NVIDIA driver does not compile": troubles.driver_without_compiler,
    "not enough GPU memory for another process": troubles.gpu_full_of_processes,
    "not enough GPU memory for ...": troubles.gpu_full,
    "the NVIDIA driver had not opened": troubles.gpu_silent,
    "thresholds: the exercises": troubles.no_calibration,
    "--gpulab-calibrate measures": troubles.calibrated_simulated,
    "This interval contains": troubles.too_close,
}


@pytest.mark.parametrize("begin", PROVOKED)
def test_a_message_of_the_table_is_given(
    begin: str, course: Course, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (told,) = [message for message in MESSAGES if message.startswith(begin)]
    given = PROVOKED[begin](Machine(course, monkeypatch, tmp_path_factory.mktemp("machine")))
    pattern = ".*".join(re.escape(part) for part in told.split("..."))
    assert re.search(pattern, " ".join(given.split())), given


def test_no_message_of_the_table_goes_untested() -> None:
    assert len(MESSAGES) == len(PROVOKED)
