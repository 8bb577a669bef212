"""Runs of the command `gpulab run` in tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from forked_gpulab import run_gpulab

PROGRAMS = Path(__file__).parent / "programs"
ENDINGS = PROGRAMS / "endings.cu"


@dataclass(frozen=True)
class Ran:
    """The end of a command: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error as one line, without line breaks by width."""
        return " ".join(self.err.split())


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "pytest_gpulab", "run", *words]


def gpulab(folder: Path, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> Ran:
    done = run_gpulab(["run", *words], folder, stdin, env)
    return Ran(done.returncode, done.stdout, done.stderr)
