"""compute-sanitizer, which runs what went wrong once more, with a stand-in for it on the PATH."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from remote_class import EXPECTED, KERNEL, Class, verdicts, wait_for_end

from pytest_gpulab.grading.grade import Finding

SANITIZER = """#!/bin/sh
for option; do case $option in
  --log-file=*) log=${option#--log-file=}; shift;;
  --*) shift;;
  *) break;;
esac; done
"$@"
printf '========= COMPUTE-SANITIZER\\n========= Invalid __global__ read\\n========= ERROR SUMMARY: 1 error\\n' > "$log"
"""


def install_sanitizer(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str = SANITIZER) -> None:
    (folder / "compute-sanitizer").write_text(program)
    (folder / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_compute_sanitizers_report_is_attached(hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in takes options and runs the rest, as the real one does."""
    install_sanitizer(tmp_path, monkeypatch)
    grader = hostile.grader(KERNEL + "// launch 31: fault\n", sanitize=True)
    results = {result.name: result for result in grader.grade().checks}
    assert verdicts(results) == EXPECTED
    assert results["correct[n=31]"].findings[0].evidence[-1] == "compute-sanitizer: Invalid __global__ read"
    assert hostile.deeds() == ["fault", "fault"]
    wait_for_end(hostile.processes())


def test_a_fault_while_timing_is_also_run_under_the_sanitizer(
    hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sanitizer(tmp_path, monkeypatch)
    grader = hostile.grader(KERNEL + "// launch 4096: fault\n", sanitize=True)
    stopped = hostile.checks["speedup[0.5x]"].result("failed", (Finding("device-fault", "given up"),))
    monkeypatch.setattr(grader, "_judged", lambda check: stopped)
    (found,) = grader.run(hostile.checks["speedup[0.5x]"]).findings
    assert (found.what, found.evidence) == ("given up", ("compute-sanitizer: Invalid __global__ read",))
    assert hostile.deeds() == ["fault"]
    grader.close()
    wait_for_end(hostile.processes())


def test_a_sanitizer_that_fails_is_no_loss(hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_sanitizer(tmp_path, monkeypatch, "#!/bin/sh\nexit 1\n")
    grader = hostile.grader(KERNEL + "// launch 31: fault\n", sanitize=True)
    assert {result.name: result.verdict for result in grader.grade().checks} == EXPECTED


@pytest.mark.parametrize("missing", ["TemporaryDirectory", "TemporaryFile"])
def test_without_room_for_the_sanitizer_there_is_no_report(
    hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    install_sanitizer(tmp_path, monkeypatch)
    grader = hostile.grader(sanitize=True)
    stopped = hostile.checks["speedup[0.5x]"].result("failed", (Finding("device-fault", "given up"),))
    monkeypatch.setattr(grader, "_judged", lambda check: stopped)
    monkeypatch.setattr(tempfile, missing, full)
    assert grader.run(hostile.checks["speedup[0.5x]"]).findings == stopped.findings


def test_a_failure_under_the_sanitizer_only_changes_no_verdict(
    hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sanitizer(tmp_path, monkeypatch)
    grader = hostile.grader(KERNEL + "// launch 31: fault_then_mistake\n", sanitize=True)
    results = {result.name: result for result in grader.grade().checks}
    assert verdicts(results) == EXPECTED
    assert results["correct[n=31]"].findings[0].what == "Twice: given up"
    assert hostile.deeds() == ["fault_then_mistake", "fault_then_mistake"]


def test_a_file_that_does_not_compile_is_not_run_under_the_sanitizer(
    hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    install_sanitizer(tmp_path, monkeypatch, SANITIZER.replace('"$@"\n', f"echo run >>'{runs}'\n\"$@\"\n"))
    for text, is_run in ((KERNEL.replace(";", ""), False), (KERNEL + "// launch 31: fault\n", True)):
        with closing(hostile.grader(text, sanitize=True)) as grader:
            assert grader.run(hostile.checks["correct[n=31]"]).verdict == "failed"
        assert runs.exists() == is_run
