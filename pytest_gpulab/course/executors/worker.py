"""What a worker process does before it grades anything.

NumPy reads how many threads it may use when it is loaded, which must be after `prepare` has set the number.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from pytest_gpulab.devices.system.threads import with_one_thread

MEMORY_BYTES = 4 * 2**30
"""Address space of a worker, of which grading the exercises that come along takes an eighth."""


def prepare(folder: str) -> None:
    """Make this process one of many: one thread, little memory, no word on the terminal, no life after its parent.

    Args:
        folder: for temporary files; whoever made it removes it with all that a killed process leaves there.
    """
    os.environ.update(with_one_thread(os.environ))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    _fall_silent()
    _end_with_parent(folder)
    _limit_memory()
    from pytest_gpulab.devices.system.memory_kills import prefer_this_process  # which loads NumPy

    prefer_this_process()


def _fall_silent() -> None:
    """A library that aborts writes why, in the middle of pytest's output; its exit status tells enough."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _end_with_parent(folder: str) -> None:
    """Nobody else ends a worker whose parent was killed while it grades, or removes what that leaves behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a child process is a worker"

    def wait() -> None:
        parent.join()
        ended = folder + ".ended"
        with suppress(OSError):  # another worker did it
            Path(folder).rename(ended)  # first: what this process still writes in the meantime would stay
        for _ in range(2):  # it may have been at something that was begun before
            shutil.rmtree(ended, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
