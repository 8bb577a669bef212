"""NVIDIA's compute-sanitizer, which reports the access that stopped a GPU: command line and report."""

import shutil
from pathlib import Path

PROGRAM = "compute-sanitizer"
MAX_LINES = 5  # the first access, its thread and its address; other threads mostly repeat it
_MARK = "========="


def is_there() -> bool:
    """Return whether compute-sanitizer is on the PATH."""
    return shutil.which(PROGRAM) is not None


def command(log: Path) -> tuple[str, ...]:
    """Return the command line that precedes a command, runs it under memcheck and writes the report to a file."""
    # PyCUDA makes calls that fail by design.
    options = ("--tool=memcheck", "--show-backtrace=no", "--report-api-errors=no")
    return (PROGRAM, *options, f"--log-file={log}")


def report(log: Path) -> tuple[str, ...]:
    """Return the first lines of the report, as evidence; none if it found nothing or did not run."""
    if not log.exists():
        return ()
    lines = [
        line.removeprefix(_MARK).strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    reported = [line for line in lines if line and not line.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY"))]
    return tuple(f"compute-sanitizer: {line}" for line in reported[:MAX_LINES])
