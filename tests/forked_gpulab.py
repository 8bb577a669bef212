"""The command `gpulab` in a process of its own that starts at once: it is forked by the fork server of graders.

That server has loaded NumPy and the simulated GPU; a new interpreter takes half a second for them. Tests of a terminal,
of signals or of processes that are left behind start real ones: the server kills what a process leaves behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices.system.processes import ONE_THREAD
from pytest_gpulab.grading.isolation import fork_server

PROGRAM = """
import runpy, sys
sys.argv.pop()  # the descriptor of a watchdog pipe
runpy.run_module("pytest_gpulab", run_name="__main__", alter_sys=True)
"""


def run_gpulab(
    words: Sequence[str], folder: Path, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with an environment; return its exit status and its output."""
    given = {**(os.environ if env is None else env), **ONE_THREAD}  # without COLUMNS, which readline adds in C
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        process = fork_server.fork(PROGRAM, words, given, errors.fileno(), errors.fileno())
        if process is None:  # not on this system
            command = [sys.executable, "-m", "pytest_gpulab", *words]
            return subprocess.run(command, env=given, input=stdin, capture_output=True, text=True, check=False)
        with suppress(BrokenPipeError), process.stdin:  # it has ended, and read nothing
            process.stdin.write(stdin)
        with process.stdout:
            output = process.stdout.read()
        status = process.wait(HANG_S)
        errors.seek(0)
        return subprocess.CompletedProcess(words, status, output, errors.read())
