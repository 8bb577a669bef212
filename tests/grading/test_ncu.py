"""Nsight Compute: its table, its refusals, and the counters in a grade, with a stand-in for ncu on the PATH."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from remote_class import KERNEL, Class

from pytest_gpulab.grading.counters import METRICS, Counter, KernelCounters
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.tools import ncu

OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
# The lines of an H200's ncu 2025.3, but for the third launch and the metric after the first.
TABLE = """\
==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be \
inconsistent.
==PROF== Connected to process 822 (/usr/bin/python3.12)
==PROF== Disconnected from process 822
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value"
"0","822","python3.12","127.0.0.1","empty()","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0",\
"Command line profiler metrics",\
"gpu__time_duration.sum","ns","1,536"
"0","822","python3.12","127.0.0.1","empty()","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0",\
"Command line profiler metrics",\
"sm__warps_active.avg.pct_of_peak_sustained_active","%","20.31"
"1","822","python3.12","127.0.0.1","empty()","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0",\
"Command line profiler metrics",\
"gpu__time_duration.sum","ns","1,312"
"2","822","python3.12","127.0.0.1","void spin<float>(float *, unsigned int)","1","7","(256, 1, 1)","(132, 2, 1)","0",\
"9.0","Command line profiler metrics","gpu__time_duration.sum","ns","1,203,808"
"2","822","python3.12","127.0.0.1","void spin<float>(float *, unsigned int)","1","7","(256, 1, 1)","(132, 2, 1)","0",\
"9.0","Command line profiler metrics","dram__bytes_read.sum","byte","n/a"
"""
DENIED = """\
==PROF== Connected to process 822 (/usr/bin/python3.12)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target \
device 0. For instructions on enabling permissions and to get more information see \
https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 822
==WARNING== No kernels were profiled.
"""
# What others saw: where another tool has the counters, and where the driver is too old.
TAKEN = """\
==PROF== Connected to process 822 (/usr/bin/python3.12)
==ERROR== Profiling failed because a driver resource was unavailable.
==ERROR== Failed to profile "reduce" in process 822
"""
INCOMPATIBLE = """\
==ERROR== An error was reported by the driver:
==ERROR== Cuda driver is not compatible with Nsight Compute.
==ERROR== The application returned an error code (11).
"""


def test_a_table_gives_each_different_launch_once() -> None:
    assert ncu.read(TABLE) == (
        KernelCounters(
            "empty",
            (1, 1, 1),
            (32, 1, 1),
            (Counter("gpu__time_duration.sum", 1536.0, "ns"), Counter(OCCUPANCY, 20.31, "%")),
        ),
        KernelCounters("spin", (132, 2, 1), (256, 1, 1), (Counter("gpu__time_duration.sum", 1203808.0, "ns"),)),
    )


def test_a_counter_that_the_gpu_has_not_has_no_value() -> None:
    empty, spin = ncu.read(TABLE)
    assert empty.value(OCCUPANCY) == 20.31
    assert spin.value("dram__bytes_read.sum") is None


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("reduce(const int *, int *, unsigned int)", "reduce"),
        ("void scan<float, (int)4>(T1 *)", "scan"),
        ("(anonymous namespace)::hidden(int)", "hidden"),
        ("_Z4lost", "_Z4lost"),
    ],
)
def test_a_kernel_is_known_from_its_signature(signature: str, name: str) -> None:
    (launch, *_) = ncu.read(TABLE.replace("empty()", signature))
    assert launch.kernel == name


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (DENIED, ncu.NO_PERMISSION),
        ("==ERROR== Failed to find metric sm__foo\n==ERROR== more\n", "ncu: Failed to find metric sm__foo"),
        (TAKEN, "ncu: Profiling failed because a driver resource was unavailable."),
        (INCOMPATIBLE, "ncu: An error was reported by the driver: Cuda driver is not compatible with Nsight Compute."),
        ("==ERROR== An error was reported by the driver:\n", "ncu: An error was reported by the driver:"),
        ("==WARNING== No kernels were profiled.\n", "ncu: it ended without counters"),
        ("", "ncu: it ended without counters"),
    ],
)
def test_a_refusal_is_a_note(text: str, note: str) -> None:
    assert ncu.read(text) == ()
    assert ncu.refusal(text) == note


BEGIN = """#!/bin/sh
for word in "$@"; do case "$word" in --log-file=*) log="${word#--log-file=}" ;; esac; done
while [ "${1#--}" != "$1" ]; do printf '%s\n' "$1" >>COUNT.options; shift; done
echo run >>COUNT
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Class:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    return Class(tmp_path)


def counted(bench: Class, script: str, profiler: ncu.Profiler | None = None, **more: float) -> CheckResult:
    """Grade the speed with an ncu that does what a script says after finding its log and the command."""
    fake, count = bench.log.parent / "bin" / "ncu", bench.log.parent / "count"
    fake.write_text(BEGIN.replace("COUNT", str(count)) + script)
    fake.chmod(0o700)
    assert ncu.is_there()
    grader = bench.grader(KERNEL, profiler=profiler or ncu.Profiler(), **more)
    try:
        result = grader.run(bench.checks["speedup[0.5x]"])
        again = grader.run(bench.checks["speedup[0.5x]"])
    finally:
        grader.close()
    assert result.verdict == again.verdict == "passed"
    assert result.measurement is not None and again.measurement is not None
    assert again.measurement.counters == result.measurement.counters
    assert count.read_text() == "run\n"
    return result


def note(result: CheckResult) -> str:
    assert result.measurement is not None and result.measurement.counters == ()
    return result.measurement.counters_note


def table_of(bench: Class, text: str) -> str:
    table = bench.log.parent / "table.csv"
    table.write_text(text)
    return f"'{table}'"


def test_the_counters_of_what_is_timed_are_in_the_grade(bench: Class) -> None:
    result = counted(bench, f'"$@"; cat {table_of(bench, TABLE)} >"$log"')
    assert result.measurement is not None
    assert result.measurement.counters == ncu.read(TABLE)
    assert result.measurement.counters_note == ""
    assert CheckResult.from_dict(result.to_dict()) == result


def test_the_clocks_are_left_as_they_are_and_all_counters_asked_for(bench: Class) -> None:
    counted(bench, f'"$@"; cat {table_of(bench, TABLE)} >"$log"')
    options = (bench.log.parent / "count.options").read_text().splitlines()
    assert "--clock-control=none" in options and f"--metrics={','.join(METRICS)}" in options


def test_without_permission_there_is_a_note_and_no_second_attempt(bench: Class) -> None:
    profiler = ncu.Profiler()
    assert note(counted(bench, f'"$@"; cat {table_of(bench, DENIED)} >"$log"', profiler)) == ncu.NO_PERMISSION
    assert profiler.refused
    assert note(counted(bench, "exit 1", profiler)) == ncu.NO_PERMISSION


def test_an_ncu_that_does_not_start_is_a_note(bench: Class) -> None:
    script = "echo '==ERROR== The lock file cannot be opened' >\"$log\"; exit 1"
    assert note(counted(bench, script)) == "ncu: The lock file cannot be opened"


def test_an_ncu_that_says_nothing_is_a_note(bench: Class) -> None:
    assert note(counted(bench, "exit 7")) == "ncu: the profiled process ended with exit status 7"


def test_an_ncu_that_talks_in_between_is_a_note(bench: Class) -> None:
    said = note(counted(bench, 'echo hello; exec "$@"'))
    assert said == "ncu: the profiled process wrote something other than an answer: hello"


def test_a_cuda_that_refuses_to_start_under_ncu_is_a_note(bench: Class) -> None:
    script = "read task; printf '%s\\n' '{\"error\": \"Traceback\\nLogicError: cuInit failed\"}'"
    assert note(counted(bench, script)) == "ncu: LogicError: cuInit failed"


def test_a_run_that_does_not_end_is_a_note(bench: Class) -> None:
    script = '"$@" | head -n 1; sleep 1000'  # the first line says that the process is ready
    assert note(counted(bench, script, timeout_s=6.0)) == "ncu: the kernels had not ended after 6 s"


def test_a_process_that_does_not_start_under_ncu_is_a_note(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    grader = bench.grader(KERNEL, profiler=ncu.Profiler())
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    monkeypatch.setattr("pytest_gpulab.grading.isolation.worker_process.START_LIMIT_S", 0.0)
    fake = bench.log.parent / "bin" / "ncu"
    fake.write_text("#!/bin/sh\nsleep 1000\n")
    fake.chmod(0o700)
    result = grader.run(bench.checks["speedup[0.5x]"])
    grader.close()
    assert note(result) == "ncu: the worker process had not started after 0 s"


@pytest.mark.parametrize(
    ("missing", "words"),
    [("TemporaryDirectory", "the counters cannot be stored"), ("TemporaryFile", "its process cannot be started")],
)
def test_a_full_disk_under_ncu_is_a_note(
    bench: Class, monkeypatch: pytest.MonkeyPatch, missing: str, words: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    grader = bench.grader(KERNEL, profiler=ncu.Profiler())
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    monkeypatch.setattr(tempfile, missing, full)
    said = note(grader.run(bench.checks["speedup[0.5x]"]))
    grader.close()
    assert said.startswith(f"ncu: {words}: ") and said.endswith(": No space left on device")
