"""Preparation of a worker process.

NumPy reads its number of threads when it is loaded, so `prepare` must set the number before.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from pytest_gpulab.devices.system.processes import with_one_thread

MEMORY_BYTES = 4 * 2**30
"""Address space of a worker; the shipped exercises need an eighth of it."""


def prepare(folder: str) -> None:
    """Prepare this process: one thread, limited memory, no output on the terminal, end with the parent.

    `folder` is for temporary files. Its owner removes it with the files of killed processes.
    """
    os.environ.update(with_one_thread(os.environ))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    _fall_silent()
    _end_with_parent(folder)
    _limit_memory()
    from pytest_gpulab.devices.system.processes import prefer_this_process  # which loads NumPy

    prefer_this_process()


def _fall_silent() -> None:
    """Discard stderr: a library that aborts would write into pytest's output; the exit status is enough."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _end_with_parent(folder: str) -> None:
    """End this process when its parent dies, and remove the parent's temporary files: nothing else would."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a child process is a worker"

    def wait() -> None:
        parent.join()
        ended = folder + ".ended"
        with suppress(OSError):  # another worker did it
            Path(folder).rename(ended)  # first, as files that this process still writes meanwhile would stay
        for _ in range(2):  # a file may have been created meanwhile
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
