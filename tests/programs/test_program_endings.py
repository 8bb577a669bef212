"""How programs end: exit codes, files, standard input, signals, time limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from program_runs import run


def test_files_standard_input_and_exit_code(tmp_path: Path) -> None:
    ran = run("files_and_stdin", "2", "scaled.txt", stdin="1 2.5 -3\n", folder=tmp_path)
    assert ran.out == "2\n5\n-6\n"
    assert (tmp_path / "scaled.txt").read_text() == "2\n5\n-6\n"
    assert ran.code == 3


def test_standard_error_and_an_early_exit(tmp_path: Path) -> None:
    ran = run("files_and_stdin", "2", folder=tmp_path)
    assert ran.code == 200
    assert ran.report.startswith("two arguments are needed, not 1\ngpulab: 0 launches of 0 kernels")


HELLO = "hello from thread 0\nhello from thread 1\n"


@pytest.mark.parametrize(("way", "code", "out"), [("exit", 7, HELLO), ("_exit", 8, ""), ("none", 9, HELLO)])
def test_an_exit_loses_no_report(way: str, code: int, out: str) -> None:
    ran = run("crashes", way)
    assert (ran.code, ran.out) == (code, out)
    assert ran.report.startswith("gpulab: 1 launch of 1 kernel") and "no findings" in ran.report


@pytest.mark.parametrize(
    ("way", "code", "what"),
    [
        ("null", 139, "The host's code was ended by SIGSEGV: an invalid access at crashes.cu:19"),
        ("abort", 134, "The program was ended by SIGABRT"),
        ("throw", 134, "The program was ended by SIGABRT"),
        ("kill", 137, "The program was ended by SIGKILL"),
    ],
)
def test_a_crash_names_its_signal(way: str, code: int, what: str) -> None:
    ran = run("crashes", way)
    assert ran.code == code
    assert "gpulab: 1 launch of 1 kernel" in ran.report
    assert f"crash: {what}" in ran.said
    assert ("something went wrong" in ran.report) == (way == "throw")


def test_a_program_that_hangs_is_stopped_at_its_time_limit() -> None:
    ran = run("hangs", "host", options=("--timeout=2",))
    assert (ran.out, ran.code) == ("started\n", 124)
    assert "stopped at its time limit" in ran.report


def test_a_kernel_that_cannot_end_is_found_without_a_time_limit() -> None:
    ran = run("hangs", "device")
    assert (ran.out, ran.code) == ("started\ncudaErrorLaunchTimeout\n", 1)
    assert "endless-loop: " in ran.report and "at hangs.cu:7\n" in ran.report


def test_freed_memory_is_given_back_and_memory_that_the_system_refuses_is_an_error() -> None:
    ran = run("frees_often", address_space=2_000_000_000)
    assert ran.out == "cudaSuccess\ncudaErrorMemoryAllocation\n", ran.report
    assert "2,684,354,560 bytes; the system refuses them to gpulab" in ran.said
