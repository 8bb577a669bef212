"""Grade a class as an instructor would, in a process that is watched and can be killed with everything it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MARK = "GPULAB_PROOF_RUN"
SAMPLE_EVERY_S = 0.25
TIMES = ("created_utc", "duration_s", "reference_ms")
"""What JSON tells of the clock: two gradebooks of the same class differ in nothing else."""

WRITTEN = (".csv", ".json")

PROC = Path("/proc")


class Processes:
    """All processes that a run started, however they were started: they carry a mark, or have an ancestor that does."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the first process."""
        return {MARK: self.mark}

    def alive(self) -> set[int]:
        """Return their numbers."""
        parents = dict(_parents())
        found = {pid for pid in parents if self._is_marked(pid)}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def _is_marked(self, pid: int) -> bool:
        with suppress(OSError):
            return f"{MARK}={self.mark}".encode() in (PROC / str(pid) / "environ").read_bytes()
        return False

    def memory_bytes(self) -> int:
        """Return what they occupy together: pages that several of them use count once (proportional set size)."""
        return sum(map(_proportional_bytes, self.alive()))

    def kill(self) -> None:
        """End all of them at once, as a power cut would."""
        while pids := self.alive():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir(PROC):
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                state, parent = (PROC / entry.name / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    yield int(entry.name), int(parent)


def _proportional_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


@dataclass(frozen=True)
class Ended:
    """How a run ended: pytest's exit status (negative: by a signal), how long it took, what it occupied at most."""

    status: int
    took_s: float
    peak_bytes: int
    output: str


class Run:
    """pytest on a class's folder, started when this is made.

    Args:
        submissions: the class.
        out: where the gradebooks go.
        options: further arguments.
        exercises: the instructor's.
    """

    def __init__(self, submissions: Path, out: Path, *options: str, exercises: Path = ROOT / "exercises") -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.out, self.processes = out, Processes()
        self._log = out / "pytest.log"
        self._begin_s, self._peak_bytes = time.perf_counter(), 0
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no"]
        command += [f"-pno:{name}" for name in ("anyio", "benchmark", "cacheprovider", "hypothesispytest")]
        command += ["--gpulab", "--gpulab-device=sim", f"--gpulab-exercises={exercises}"]
        command += [f"--gpulab-submissions={submissions}", *options]
        command += [f"--gpulab-report={kind}:{out}/grades.{kind}" for kind in ("csv", "json")]
        environment = os.environ | self.processes.environment
        with self._log.open("wb") as log:
            self._started = subprocess.Popen(
                command,
                cwd=out,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # or `interrupt` would reach the parent process, too
            )
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while self._started.poll() is None:
            self._peak_bytes = max(self._peak_bytes, self.processes.memory_bytes())
            time.sleep(SAMPLE_EVERY_S)

    def is_over(self, after_s: float) -> bool:
        """Wait for that long, or until it ends; say whether it has."""
        with suppress(subprocess.TimeoutExpired):
            self._started.wait(after_s)
        return self._started.poll() is not None

    def kill(self) -> None:
        """Kill pytest itself, and nothing that it started."""
        self._started.kill()

    def interrupt(self) -> None:
        """Press Ctrl-C: every process in the terminal's foreground hears of it."""
        os.killpg(self._started.pid, signal.SIGINT)

    def ended(self, limit_s: float = 3600) -> Ended:
        """Wait for its end."""
        status = self._started.wait(limit_s)
        took_s = time.perf_counter() - self._begin_s
        return Ended(status, took_s, self._peak_bytes, self._log.read_text(errors="replace"))

    def left_over(self, wait_s: float = 10) -> set[int]:
        """Return the processes that are still there when pytest has ended, after a while."""
        deadline_s = time.perf_counter() + wait_s
        while (pids := self.processes.alive()) and time.perf_counter() < deadline_s:
            time.sleep(0.1)
        return pids


def gradebooks(out: Path) -> dict[str, str]:
    """Return what a run wrote: tables as they are, JSON without the times."""
    written = {path.name: path.read_bytes().decode() for path in sorted(out.glob("grades*")) if path.suffix in WRITTEN}
    return written | {"grades.json": json.dumps(_timeless(json.loads(written["grades.json"])), indent=1)}


def grades(out: Path) -> dict[str, dict[str, Any]]:
    """Return the grades of the JSON gradebook by submission, those that could not be graded at all as well."""
    document = json.loads((out / "grades.json").read_text())
    return {grade["submission"]: grade for grade in (*document["grades"], *document["ungraded"])}


def verdicts(grade: dict[str, Any]) -> dict[str, tuple[str, float]]:
    """Return check to verdict and points."""
    return {check["name"]: (check["verdict"], check["points"]) for check in grade.get("checks", ())}


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value
