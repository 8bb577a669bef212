"""NVIDIA's compute-sanitizer, which names the access that a GPU stopped at: how to run it, and what it reports."""

from __future__ import annotations

import shutil
from pathlib import Path

PROGRAM = "compute-sanitizer"
MAX_LINES = 5  # the first access, who made it, and what it hit; other threads mostly do the same
_MARK = "========="


def is_there() -> bool:
    """Say whether it is on the PATH."""
    return shutil.which(PROGRAM) is not None


def command(log: Path) -> tuple[str, ...]:
    """Return what to put before a command, so that it runs under memcheck and the report goes to a file."""
    options = ("--tool=memcheck", "--show-backtrace=no", "--report-api-errors=no")  # PyCUDA tries calls that may fail
    return (PROGRAM, *options, f"--log-file={log}")


def report(log: Path) -> tuple[str, ...]:
    """Return the first lines of what it found, as evidence; none where it found nothing or did not run."""
    if not log.exists():
        return ()
    lines = [
        line.removeprefix(_MARK).strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    told = [line for line in lines if line and not line.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY"))]
    return tuple(f"compute-sanitizer: {line}" for line in told[:MAX_LINES])
