"""Runs of the programs in this folder with `gpulab run`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from forked_gpulab import run_gpulab

PROGRAMS = Path(__file__).parent


@dataclass(frozen=True)
class Run:
    """The end of a run: exit code, standard output and standard error, which has the report."""

    code: int
    out: str
    report: str

    @property
    def said(self) -> str:
        """The report as one line, without line breaks by width."""
        return " ".join(self.report.split())


def run(
    name: str,
    *arguments: str,
    options: tuple[str, ...] = (),
    stdin: str = "",
    folder: Path = PROGRAMS,
    address_space: int = resource.RLIM_INFINITY,
) -> Run:
    """Run a program of this folder, in a working folder.

    Args:
        name: the file's name without its suffix.
        arguments: the program's own.
        options: options of `gpulab run`.
        stdin: the program's standard input.
        folder: its working folder.
        address_space: limit of each process's memory, in bytes.
    """

    words = ["run", *options, str(PROGRAMS / f"{name}.cu"), *arguments]
    if address_space == resource.RLIM_INFINITY:
        done = run_gpulab(words, folder, stdin)
    else:
        limited = f'ulimit -v {address_space // 1024}; exec "$@"'
        command = ["sh", "-c", limited, "sh", sys.executable, "-m", "pytest_gpulab", *words]
        env = dict(os.environ)  # without COLUMNS, which readline adds to the environment in C
        done = subprocess.run(command, cwd=folder, env=env, input=stdin, capture_output=True, text=True, check=False)
    return Run(done.returncode, done.stdout, done.stderr)
