"""A compiler process that is killed, does not start, or answers nonsense."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from compiling import SMALL, TIGHT, compiled, gone

from pytest_gpulab.devices.compiler import compiler_process, nvrtc
from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess
from pytest_gpulab.devices.compiler.sandbox import Limits, Sandbox, none
from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable, OutOfMemory


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str, limit_s: float = 60.0) -> CompilerProcess:
    """A compiler process with a shell script for the program, without a sandbox."""
    monkeypatch.setattr(compiler_process, "BUSY_FACTOR", limit_s)
    monkeypatch.setattr(compiler_process, "_command", lambda *_: ["env", "-C", "/", "sh", "-c", program])
    return CompilerProcess(Limits(compile_s=1, output_bytes=10), none("it is a test"))


@pytest.mark.parametrize("signal_name", ["KILL", "ABRT"])
@pytest.mark.parametrize("kills", [range(0, 9), [3] * 9])
def test_a_compiler_killed_for_lack_of_memory_is_not_gradable(
    monkeypatch: pytest.MonkeyPatch, signal_name: str, kills: Iterable[int]
) -> None:
    counted = iter(kills)
    monkeypatch.setattr(compiler_process, "memory_kills", lambda: next(counted))
    is_the_machines = signal_name == "KILL" and kills == range(0, 9)
    said = json.dumps({"ended": f"it was ended by SIG{signal_name}"})
    compiler = stand_in(monkeypatch, f"{READY}echo '{said}'; read request")
    with pytest.raises(OutOfMemory if is_the_machines else CompileError) as caught:
        compiler.compiled(nvrtc.ptx_request(SMALL, "a.cu", "compute_90"))
    assert ("the system killed the compiler" in str(caught.value)) == is_the_machines
    compiler.close()


READY = """echo '{"version": "1"}'; read request; """


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("sleep 99 & sleep 99", "time limit"),
        ("yes | tr -d '\\n'", "time limit"),
        ("exit 1", "it died 2 times in a row"),
        ("echo nonsense; cat", "time limit"),
    ],
)
def test_a_program_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch, program: str, told: str) -> None:
    """It answers nothing to a kernel that nothing is wrong with, either: the machine is to blame."""
    compiler = stand_in(monkeypatch, READY + program, 1.0 if told == "time limit" else 60.0)
    group = compiler._process._popen.pid
    words = f"NVRTC does not work here: The compiler did not finish ({told}); the limits are 1 s (45 s for all"
    with pytest.raises(DeviceUnavailable, match=f"^{re.escape(words)}"):
        compiled(compiler, SMALL)
    assert gone(group)


CANNOT_FORK = """
import os, runpy, sys

def fork():
    raise BlockingIOError(11, "Resource temporarily unavailable")

os.fork = fork
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_machine_without_room_for_a_translation_says_nothing_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    *python, program, task = compiler_process._command(TIGHT, True)
    monkeypatch.setattr(compiler_process, "_command", lambda *_: [*python, "-c", CANNOT_FORK, program, task])
    with (
        closing(CompilerProcess(TIGHT, none("it is a test"), cache=Cache(None))) as compiler,
        pytest.raises(DeviceUnavailable, match=r"^no process can be started: .*Resource temporarily unavailable$"),
    ):
        compiled(compiler, SMALL)


ABORTED = "ptxas fatal   : Ptx assembly aborted due to errors"


@pytest.mark.parametrize(
    ("log", "met"),
    [
        ("a.cu(1): catastrophic error: out of memory", True),
        (f"a.cu(2): warning #177-D: unused\n{ABORTED}", True),  # it says no more when memory ends
        (f"ptxas application ptx input, line 25; error   : Not a name\n{ABORTED}", False),
        (f"ptxas error   : Entry function 'f' uses too much shared data\n{ABORTED}", False),
        (f"ptxas application ptx input, line 9; fatal   : Parsing error near '.x'\n{ABORTED}", False),
        ("a.cu(1): catastrophic error: #error directive: catastrophic error: out of memory", False),
    ],
)
def test_only_a_text_that_met_a_limit_is_reported_and_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch, log: str, met: bool
) -> None:
    other = json.dumps({"output": None, "log": "another answer", "processor_s": 0})
    answers = (
        f"cat <<'EOF'\n{json.dumps({'output': None, 'log': log, 'processor_s': 0})}\nEOF\nread request; echo '{other}'"
    )
    compiler, said = stand_in(monkeypatch, READY + answers), []
    monkeypatch.setattr(nvrtc, "_try", lambda *_: None)  # it answers twice only
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            compiled(compiler, SMALL)
        said.append(caught.value.diagnostics)
    compiler.close()
    assert said[0].startswith(log) and ("did not finish; the limits are" in said[0]) == met
    assert said[1] == (said[0] if met else "another answer")


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("echo no such library >&2", "no such library"),
        ("exit 3", "no output"),
        (
            """echo '{"unavailable": "it is broken"}'; read nothing""",
            r"NVRTC, .* is not installed: .* \(it is broken\)",
        ),
    ],
)
def test_one_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, program: str, told: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f"^{told}$"):
        stand_in(monkeypatch, program)


def test_one_that_does_not_start_in_the_sandbox_starts_without_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Sandbox("bubblewrap and limits", ("sh", "-c", "echo no such file >&2"))
    monkeypatch.setattr(compiler_process, "sandbox", lambda needed: refusing)
    compiler = CompilerProcess(TIGHT)
    assert compiler.protection == "limits only: the compiler does not start in bubblewrap (no such file)"
    assert "entry" in compiled(compiler, SMALL)
    compiler.close()


def test_a_process_for_which_there_is_no_room_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refused)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(DeviceUnavailable, match=r"^no process can be started: .*temporarily unavailable$"):
        CompilerProcess(within=none("it was not asked for"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["TemporaryFile", "mkdtemp"])
def test_a_full_folder_for_temporary_files_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(f"tempfile.{what}", refused)
    with pytest.raises(DeviceUnavailable, match=r"^no process can be started: .*No space left on device$"):
        CompilerProcess(within=none("it was not asked for"))
    assert not list(tmp_path.iterdir())


def test_without_nvidias_packages_the_message_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia", None)  # what Python itself does to make an import fail
    with pytest.raises(DeviceUnavailable, match=r"^NVRTC, the CUDA compiler library, is not installed: python -m pip"):
        CompilerProcess()


def test_where_processes_cannot_be_forked_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(DeviceUnavailable, match=r"^compiling students' kernels under limits requires Linux$"):
        CompilerProcess()
