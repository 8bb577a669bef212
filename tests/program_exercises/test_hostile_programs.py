"""Programs that attack the grader or the machine: each is stopped, and the grader goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from confined import HOSTILE, Confined, Ended, built, run

from pytest_gpulab.devices.programs.confinement.running import ProgramInput, ProgramLimits

pytestmark = [pytest.mark.simulator, pytest.mark.unmeasured]
LIMITS = ProgramLimits(timeout_s=20)
REFUSED = "Operation not permitted"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Confined:
    return built(HOSTILE, tmp_path_factory.mktemp("hostile"))


def attack(hostile: Confined, *words: str, limits: ProgramLimits = LIMITS) -> Ended:
    """Run an attack; afterwards the grader still runs programs, and nothing of the attack is left."""
    given = ProgramInput(words, files={"input.txt": b"input"}, writable=("out.txt",))
    ended = run(hostile, given, limits)
    assert run(hostile, ProgramInput(("launch",)), LIMITS).lines == ["counted 1", "end"]
    assert not any(b"/program" in each and b"bwrap" in each for each in _commands())
    return ended


def _commands() -> list[bytes]:
    """The command lines of this process's children."""
    own = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    numbers = Path(own).read_text().split()
    return [Path(f"/proc/{number}/cmdline").read_bytes() for number in numbers if Path(f"/proc/{number}").exists()]


def test_an_ordinary_program_runs(hostile: Confined) -> None:
    ended = attack(hostile, "launch")
    assert ended.lines == ["counted 1", "end"]
    assert (ended.outcome.returncode, ended.outcome.launch_count, ended.outcome.leaks) == (0, 1, [])


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["fork bomb"], [f"fork: {REFUSED}", "end"]),
        (["shell"], ["system: 127", "end"]),  # no shell was started
        (["ptrace"], [f"ptrace: {REFUSED}", "end"]),
        (["threads"], [f"thread: {REFUSED}", "end"]),
        (["memory"], ["at most 1 GiB: yes", "end"]),
        (["disk"], ["write: No space left on device", "at most 64 MiB: yes", "end"]),
        (["grow"], ["grow: File too large", "end"]),
        (["punch"], ["punch: done", "end"]),
        (["descriptors"], ["memory", "socket", "end"]),
        (["replace"], ["unlink: Device or resource busy", "rename: Device or resource busy", "end"]),
    ],
)
def test_an_attack_fails_with_an_error(hostile: Confined, words: list[str], lines: list[str]) -> None:
    ended = attack(hostile, *words)
    assert sorted(ended.lines) == sorted(lines)
    assert ended.outcome.returncode == 0


def test_signals_reach_nothing_outside(hostile: Confined) -> None:
    """Its parent is the sandbox's own first process, which ignores signals from inside."""
    sleeper = subprocess.Popen(["sleep", "60"])
    ended = attack(hostile, "kill")
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()
    assert ended.lines[0] == "kill the parent: done"


def test_files_of_the_machine_are_not_there(hostile: Confined, tmp_path: Path) -> None:
    secret = tmp_path / "exercise.py"
    secret.write_text("expected = 42\n")
    ended = attack(hostile, "read", str(secret))
    assert len(ended.lines) == 7
    assert all(line == "end" or line.endswith(": No such file or directory") for line in ended.lines), ended.lines


def test_nothing_outside_of_the_working_folder_can_be_written(hostile: Confined) -> None:
    ended = attack(hostile, "write outside")
    assert len(ended.lines) == 6
    assert {line.partition(": ")[2] for line in ended.lines[:-1]} == {"Read-only file system", "Text file busy"}


def test_only_the_input_is_in_sight(hostile: Confined) -> None:
    ended = attack(hostile, "list")
    names = {name for line in ended.lines if line.startswith("/work: ") for name in [line.partition(": ")[2]]}
    assert names == {"program", "input.txt", "out.txt"}
    assert {line for line in ended.lines if line.startswith("/etc")} == {"/etc: ld.so.cache"}
    assert {line for line in ended.lines if line.startswith("/dev")} == {"/dev: null"}
    roots = {line.partition(": ")[2] for line in ended.lines if line.startswith("/: ")}
    assert roots <= {"work", "tmp", "empty", "dev", "etc", "usr", "lib", "lib64"}


def test_there_is_no_network(hostile: Confined) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        ended = attack(hostile, "connect", str(server.getsockname()[1]))
        with pytest.raises(TimeoutError):
            server.accept()
    own = "this machine: Connection refused"  # by the sandbox's own loopback, at which nothing listens
    assert ended.lines == [own, "another machine: Network is unreachable", "end"]


@pytest.mark.parametrize("how", ["spin", "sleep", "stop"])
def test_a_program_that_does_not_end_is_killed(hostile: Confined, how: str) -> None:
    begin_s = time.monotonic()
    ended = attack(hostile, how, limits=ProgramLimits(timeout_s=1))
    assert ended.outcome.timed_out
    assert time.monotonic() - begin_s < 60  # not the 1000 s that it sleeps


@pytest.mark.parametrize("how", ["long output", "ignored long output"])
def test_endless_output_is_cut(hostile: Confined, how: str) -> None:
    ended = attack(hostile, how, limits=ProgramLimits(timeout_s=3, output_bytes=10_000))
    assert ended.output.is_cut and len(ended.output.stdout) == 10_000
    assert ended.outcome.timed_out or ended.outcome.returncode == -signal.SIGPIPE


def test_a_file_is_cut_at_its_limit(hostile: Confined) -> None:
    ended = attack(hostile, "long file", limits=ProgramLimits(device_bytes=4 << 20, disk_bytes=1 << 20))
    assert ended.output.is_cut and len(ended.output.files["out.txt"]) == 1 << 20
    assert ended.outcome.returncode == -signal.SIGXFSZ


def test_the_shared_memory_cannot_be_shrunk(hostile: Confined) -> None:
    """An access of the simulated GPU behind the end of the file would end the grader with SIGBUS."""
    ended = attack(hostile, "shrink")
    assert ended.lines == ["counted 1", f"shrink: {REFUSED}", f"seal: {REFUSED}", "counted 1", "end"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("unknown call", "a call of `gradeMe`, which the runtime library does not have"),
        ("garbage", "a call of 8,589,934,590 bytes"),
        ("arguments missing", "a call of cudaMalloc without all of its arguments"),
        ("arguments of another size", "a call of cudaMalloc with arguments of another size"),
        ("launch without arguments", "a launch of `count` with 0 bytes of arguments"),
    ],
)
def test_bytes_that_no_call_sends_end_the_run(hostile: Confined, how: str, words: str) -> None:
    assert attack(hostile, how).output.invalid_request == words


def test_a_launch_that_never_ran_is_not_counted(hostile: Confined) -> None:
    ended = attack(hostile, "no such kernel")
    assert (ended.lines, ended.outcome.launch_count) == (["answer 400", "end"], 0)
    ended = attack(hostile, "impossible launch")
    assert ended.lines == ["counted 1", "answer 9", "end"]
    assert [group.ended for group in ended.outcome.launches.values()] == [1, 0]


@pytest.mark.parametrize("how", ["closed socket", "half a request"])
def test_a_program_without_its_connection_goes_on(hostile: Confined, how: str) -> None:
    ended = attack(hostile, how)
    assert ended.lines[-1] == "end"
    assert (ended.outcome.returncode, ended.output.invalid_request) == (0, "")


def test_an_exit_code_like_that_of_a_signal_counts_as_one(hostile: Confined) -> None:
    assert attack(hostile, "exit code of a signal").outcome.returncode == -signal.SIGSEGV
