"""Which processes belong to graders, so that those that take turns on a GPU are not taken for strangers.

A process that grades has a mark in its environment, and so has all that it starts; Linux shows the environment that a
process began with to other processes of the same user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "GPULAB_GRADER"
LOCKS = "GPULAB_LOCKS"
"""Names the folder of what graders share (locks of GPUs, what was compiled), for those that have temporary folders of
their own."""
ONE_QUEUE = "CUDA_DEVICE_MAX_CONNECTIONS"
"""To a GPU: graders launch into one stream. The driver makes one context at a time, and with the usual eight queues it
takes three times as long: 16 processes that open an H200 at once take 3.8 s, with one queue each 1.6 s."""
_PROC = Path("/proc")


def mark_what_is_started() -> None:
    """Let every process that this one starts from now on be known for a grader, and take no more of a GPU than one."""
    os.environ[MARK] = "1"
    os.environ.setdefault(ONE_QUEUE, "1")


def is_grader(process: int) -> bool:
    """Say whether a process has the mark; False where the system does not tell, or not yet, or it is another user's."""
    with suppress(OSError):
        return f"{MARK}=1".encode() in (_PROC / str(process) / "environ").read_bytes().split(b"\0")
    return False


def processor_s(process: int) -> float | None:
    """Return the processor time of a process and of all that it started; None where the system does not tell.

    What has ended counts once the process that started it has waited for it.
    """
    times = dict(filter(None, map(_times, _PROC.glob("[0-9]*/stat"))))
    if process not in times:
        return None
    family, size = {process}, 0
    while len(family) > size:
        size = len(family)
        family |= {number for number, (parent, _) in times.items() if parent in family}
    return sum(times[number][1] for number in family)


def _times(stat: Path) -> tuple[int, tuple[int, float]] | None:
    """Return a process's number, its parent's, and its processor time with that of its children that ended."""
    try:
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()  # behind its name
        ticks = sum(map(int, fields[11:15]))
        return int(stat.parent.name), (int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):  # it has ended
        return None


def graders_using(devices: str = "/dev/nvidia") -> set[int]:
    """Return the processes with the mark that hold a device file open whose path begins so, by this system's numbers.

    A container may have numbers of its own, which NVML's do not match; then only how many there are helps.
    """
    graders = filter(is_grader, (int(path.name) for path in _PROC.glob("[0-9]*")))
    return {process for process in graders if any(path.startswith(devices) for path in _open_files(process))}


def _open_files(process: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in (_PROC / str(process) / "fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink())
