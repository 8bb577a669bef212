"""Usable cores: a container may see all cores of its machine and have a quota of a few."""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Return the number of usable cores, at least 1: the affinity mask, limited by the quotas of the control groups.

    A fraction of a core counts as one: it would otherwise be idle. `root` holds Linux' `proc` and `sys`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limits, in cores, of this process's control groups, of both versions."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "cpu" in controllers.split(","):
                yield from _of_groups(root / "sys/fs/cgroup/cpu", path, ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
            elif not controllers:
                yield from _of_groups(root / "sys/fs/cgroup", path, ("cpu.max",))


def _of_groups(top: Path, path: str, names: tuple[str, ...]) -> Iterator[float]:
    """Yield the limits of a group and its parents: quota and period, in one file or in two."""
    group = top / path.lstrip("/")
    for folder in (group, *group.parents):
        with suppress(OSError, ValueError, ZeroDivisionError):  # no limit: `max`, or no file
            quota, period = map(int, " ".join((folder / name).read_text() for name in names).split())
            if quota > 0:
                yield quota / period
        if folder == top:
            return
