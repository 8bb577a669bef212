"""The pytest process that grades.

It starts in a private folder, with its own rootdir and an empty configuration, and without any other plugin. Python
ignores its environment variables and imports nothing from a working folder. So no file of a student is configuration or
code, whatever its name. The process may be killed for its memory or its time without any effect on its parent.
"""

import os
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest_gpulab
from pytest_gpulab.devices.system.processes import memory_kills

CHECK_LIMIT_S = 120.0
"""Time limit of a check, unless all of the time is shorter."""
GRACE_S = 20.0
"""Time for writing the grades of the checks that have ended, after the time limit."""
# Its first `read` returns with the process group that grades, the second one when that has ended. If this process has
# died, all of them return.
_CLEANER = 'read group; read ended || kill -KILL -"$group"; read _; rm -rf -- "$0"'
_KILLABLE = "250"  # if memory runs out, Linux kills a worker first (500), then this process, then its parent (0)


@dataclass(frozen=True)
class Ended:
    """The end of the process."""

    # its exit code; negative for a signal; None if it was stopped because its time was over. It may have written a
    # report of the checks that had ended
    code: int | None
    log: str  # its output
    lacked_memory: bool = False  # whether Linux killed a process meanwhile, because memory ran out


@contextmanager
def private_folder() -> Iterator[tuple[Path, IO[bytes]]]:
    """Yield a temporary folder, and the input of the process that removes it, even if this process is killed."""
    folder = tempfile.mkdtemp(prefix="gpulab-")
    command = ["/bin/sh", "-c", _CLEANER, folder]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True
    ) as cleaner:
        assert cleaner.stdin is not None
        yield Path(folder), cleaner.stdin


def run(
    files: Sequence[Path],
    folder: Path,
    cleaner: IO[bytes],
    report: Path,
    exercises: Path,
    device: str,
    limit_s: float,
    more: Sequence[str] = (),
) -> Ended:
    """Grade files in the private `folder` that the process starts in, and return its end.

    `cleaner` kills the process if this one is killed, see `private_folder`. It writes the grades to `report`, in the
    JSON format of `--gpulab-report`; `more` are further options of pytest.
    """
    options = [
        *("-c", os.devnull, f"--rootdir={folder}", "--noconftest", "-p", "gpulab", "-p", "no:cacheprovider"),
        *("--gpulab", f"--gpulab-exercises={exercises}", f"--gpulab-device={device}"),
        *(f"--gpulab-timeout={min(CHECK_LIMIT_S, limit_s):.3f}", f"--gpulab-report=json:{report}"),
        *("-q", "--color=no", *more),
    ]
    command = [sys.executable, _isolation(), "-m", "pytest", *options, *map(str, files)]
    log = folder.with_name("log.txt")
    kills = memory_kills()
    with log.open("wb") as output:
        code = _run(command, folder, cleaner, output.fileno(), limit_s)
    return Ended(code, log.read_text(encoding="utf-8", errors="replace"), memory_kills() > kills)


def _isolation() -> str:
    """Return Python's option: `-I`, but `-E` if the plugin is installed in the user's own site-packages."""
    package = Path(pytest_gpulab.__file__)
    is_users = bool(site.ENABLE_USER_SITE) and package.is_relative_to(site.getusersitepackages())
    return "-E" if is_users else "-I"


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _run(command: Sequence[str], folder: Path, cleaner: IO[bytes], output: int, limit_s: float) -> int | None:
    with _interruptible():
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    cleaner.write(b"%d\n" % process.pid)
    with suppress(OSError):  # not Linux, or /proc is read-only
        Path(f"/proc/{process.pid}/oom_score_adj").write_text(_KILLABLE)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # as Ctrl-C: pytest writes the grades of the checks that have ended
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        return None
    finally:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        cleaner.write(b"\n")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Give processes that start now the usual handling of SIGINT: a background job inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
