"""The processes of graders: how they are recognised, their threads and their memory.

A grader's process has a mark in its environment, which the processes that it starts inherit: graders on the same GPU
are not counted as interference. Linux shows a process's initial environment to other processes of the same user.

Graders use one thread for NumPy's linear algebra, instead of one per core. Threads that wait for each other on busy
cores cost more than they save: the simulated GPU's small systems of equations take four to ten times the CPU time with
two threads. In a container with a share of one core, NumPy still starts one thread per core of the machine. NumPy reads
the environment when it is loaded, so this module must not load it.

Linux kills processes with SIGKILL when memory runs out, as `kill -9` and a limit of processor time do. Only its counter
distinguishes them.
"""

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "GPULAB_GRADER"
LOCKS = "GPULAB_LOCKS"
"""Environment variable with the folder that graders share (GPU locks, compiled files), for graders with temporary
folders of their own."""
MEMORY = "GPULAB_MEMORY"
"""Environment variable with the limit of a worker's address space, in bytes."""
ONE_QUEUE = "CUDA_DEVICE_MAX_CONNECTIONS"
"""CUDA's environment variable for the number of hardware queues; graders launch into one stream and need one.

The driver creates one context at a time, and takes three times as long with the usual eight queues: 16 processes that
open an H200 at once take 3.8 s, and 1.6 s with one queue each."""
SHARE = 0.5  # of a processor core: the least that a process can expect
_PROC = Path("/proc")


class Helpers:
    """The processes that work for this one, such as the compiler."""

    processor_s = 0.0  # of all their work so far; they add to it when a piece of work has ended


def charged_s(elapsed_s: float, processor_s: float) -> float:
    """Return the time that counts: by the clock, but less if other processes kept the machine busy."""
    return min(elapsed_s, processor_s / SHARE)


def mark_what_is_started() -> None:
    """Mark all processes that this one starts from now on as graders, with one hardware queue each."""
    os.environ[MARK] = "1"
    os.environ.setdefault(ONE_QUEUE, "1")


def is_grader(process: int) -> bool:
    """Return True if a process has the mark; False if its environment cannot be read, as for another user's process."""
    with suppress(OSError):
        return f"{MARK}=1".encode() in (_PROC / str(process) / "environ").read_bytes().split(b"\0")
    return False


def processor_s(process: int) -> float | None:
    """Return the processor time of a process and of its descendants; None if unknown.

    Ended processes count once their parent has waited for them.
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
    """Return a process's ID, its parent's ID, and its processor time with that of its ended children."""
    try:
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()  # after the process's name
        ticks = sum(map(int, fields[11:15]))
        return int(stat.parent.name), (int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):  # it has ended
        return None


def graders_using(devices: str = "/dev/nvidia") -> set[int]:
    """Return the IDs of the graders that hold a device file open, of a path that begins with `devices`.

    In a container these IDs may differ from NVML's; then only their count is of use.
    """
    graders = filter(is_grader, (int(path.name) for path in _PROC.glob("[0-9]*")))
    return {process for process in graders if any(path.startswith(devices) for path in _open_files(process))}


def _open_files(process: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in (_PROC / str(process) / "fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink())


_OPENBLAS = "OPENBLAS_NUM_THREADS"  # the library in NumPy's own wheels
ONE_THREAD: Mapping[str, str] = dict.fromkeys((_OPENBLAS, "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""The environment variables of all libraries that NumPy may be built with."""


def with_one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with one thread per library, unless it sets another number."""
    return {**ONE_THREAD, **environment}


def has_one_thread(environment: Mapping[str, str]) -> bool:
    """Return True if a process with that environment uses one thread."""
    return environment.get(_OPENBLAS) == "1"


def freeze() -> None:
    """Exempt this process's present objects from garbage collection, in the processes forked from it as well."""
    gc.freeze()
    _frozen.append(True)


_frozen: list[bool] = []  # `gc.get_freeze_count` goes through all frozen objects: 5 ms


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the collector, which would scan all these objects repeatedly and find nothing to free.

    At the end the objects join the oldest generation, where they belong, without a scan of their own.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not _frozen:  # else `unfreeze` would also release what the process has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


REMEDY = "the machine or its container needs more memory, or fewer processes (a smaller --gpulab-workers or -n)"

_PREFERENCE = 500  # of 1000: counts as half of all memory, in addition to the process's own


def prefer_this_process() -> None:
    """Make Linux kill this process and its children before the process that collects the grades."""
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(f"{_PREFERENCE}\n")


def limit_memory() -> None:
    """Limit the address space of this process and its children as the environment says."""
    if MEMORY in os.environ:
        import resource  # not on Windows

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = int(os.environ[MEMORY])
        resource.setrlimit(resource.RLIMIT_AS, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def memory_kills(root: Path = Path("/")) -> int:
    """Return the count for this process's memory control group, else for the machine; 0 if both are unknown."""
    for path in _counters(root):
        try:
            fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
            return int(fields["oom_kill"])
        except (OSError, ValueError, KeyError):  # no such file, or a kernel before 4.13
            continue
    return 0


def _counters(root: Path) -> Iterator[Path]:
    """Yield the files that may hold the counter; a container may see its own group as the root, under any name."""
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
