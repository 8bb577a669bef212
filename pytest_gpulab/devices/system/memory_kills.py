"""The number of processes that Linux has killed for lack of memory.

Linux kills them with SIGKILL, as `kill -9` and a limit of processor time do. Only its counter distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

REMEDY = "the machine or its container needs more memory, or fewer processes (a smaller --gpulab-workers or -n)"

_PREFERENCE = 500  # of 1000: counts as half of all memory, in addition to the process's own


def prefer_this_process() -> None:
    """Make Linux kill this process and its children before the process that collects the grades."""
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(f"{_PREFERENCE}\n")


def memory_kills(root: Path = Path("/")) -> int:
    """Return the count for this process's memory control group, else for the machine; 0 if both are unknown.

    Args:
        root: the root of the file system.
    """
    for path in _counters(root):
        try:
            fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
            return int(fields["oom_kill"])
        except (OSError, ValueError, KeyError):  # no such file, or a kernel before 4.13
            continue
    return 0


def _counters(root: Path) -> Iterator[Path]:
    """Yield the files that may hold the counter.

    A container may see its own group as the root, under any name outside.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        groups = []
    for group in groups:
        _, controllers, name = group.split(":", 2)
        if "memory" in controllers.split(","):  # version 1
            folder, file = root / "sys/fs/cgroup/memory", "memory.oom_control"
        elif not controllers:  # version 2
            folder, file = root / "sys/fs/cgroup", "memory.events"
        else:
            continue
        yield folder / name.lstrip("/") / file
        yield folder / file
    yield root / "proc/vmstat"
