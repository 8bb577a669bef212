"""Many gradings, each from a fresh process, several side by side: only one of them times at any moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from one_grading import Task

ONE = Path(__file__).with_name("one_grading.py")
LIMIT_S = 300
# Bursts of matrix products of random length, as of a neighbour who trains a network. For some seconds they follow each
# other without a rest, for some with rests so short or so long that many samples are disturbed and others are not.
HAMMER = """
import random, signal, sys, time, torch
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
a, b = (torch.rand(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
torch.cuda.synchronize()
print("hammering", flush=True)
begin_s, at_work_s = time.monotonic(), 0.0
try:
    while True:
        longest_rest_s, until_s = random.choice((0, 0, 0.002, 0.02)), time.monotonic() + random.uniform(0.5, 3)
        while time.monotonic() < until_s:
            burst_s = time.monotonic()
            for _ in range(random.randint(1, 20)):
                a @ b
            torch.cuda.synchronize()
            at_work_s += time.monotonic() - burst_s
            time.sleep(random.uniform(0, longest_rest_s))
finally:
    print(at_work_s / (time.monotonic() - begin_s), flush=True)
"""

Record = dict[str, Any]


def grade_all(tasks: Sequence[Task], workers: int) -> list[Record]:
    """Return what came of each task, in their order."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(_graded, tasks))


def _graded(task: Task) -> Record:
    command = [sys.executable, str(ONE), json.dumps(asdict(task))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    try:
        record: Record = json.loads(ended.stdout.strip().rpartition("\n")[2])
    except ValueError:
        record = {"verdict": "no answer", "findings": [ended.stderr[-500:]], "threshold": task.threshold}
    return record


def true_ratio(task: Task, processes: int, workers: int) -> tuple[float, list[Record]]:
    """Return the median ratio of long races, each in a process of its own, and what came of them.

    Raises:
        RuntimeError: one did not come to an end.
    """
    records = grade_all([Task(**asdict(task) | {"seed": task.seed + nth}) for nth in range(processes)], workers)
    broken = [record for record in records if "ratio" not in record]
    if broken:
        raise RuntimeError(f"{len(broken)} of {processes} races failed, such as {broken[0]}")
    return median(record["ratio"] for record in records), records


@dataclass
class Hammer:
    """Another process that uses the GPU.

    Attributes:
        pid: its number.
        busy: the share of the time in which it wanted the GPU; known when it has ended.
    """

    pid: int
    busy: float = 0.0

    def was_seen(self, record: Record) -> bool:
        """Say whether a grading found it on the GPU."""
        return any(f"(process {self.pid})" in other for other in record.get("shared_with", ()))


@contextmanager
def hammered(is_wanted: bool) -> Iterator[Hammer | None]:
    """Let another process use the GPU meanwhile.

    Raises:
        RuntimeError: it does not start, or ended by itself.
    """
    if not is_wanted:
        yield None
        return
    with subprocess.Popen([sys.executable, "-c", HAMMER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "hammering\n":
                raise RuntimeError("the other process does not start")
            hammer = Hammer(process.pid)
            yield hammer
            if process.poll() is not None:
                raise RuntimeError(f"the other process ended with {process.returncode} meanwhile")
            process.send_signal(signal.SIGTERM)
            hammer.busy = float(process.stdout.readline())
        finally:
            process.kill()


def spread(records: Sequence[Record]) -> str:
    """Say where the ratios lie."""
    ratios = sorted(record["ratio"] for record in records if "ratio" in record)
    return f"{ratios[0]:.4f} to {ratios[-1]:.4f}" if ratios else "none"


def half_width(records: Sequence[Record]) -> str:
    """Say how wide the intervals are."""
    return f"{median((r['high'] / r['low'] - 1) / 2 for r in records if 'ratio' in r):.2%}"


def rounds(records: Sequence[Record]) -> str:
    """Say how many rounds were taken."""
    counts = sorted(record["rounds"] for record in records if "ratio" in record)
    return f"{counts[len(counts) // 2]} (at most {counts[-1]})" if counts else "none"
