"""Verdicts beside neighbours of many kinds, who check, come and go, copy, allocate, hang and fault on the same GPU.

The baseline takes seven times as long as the submission, and longer than a process may work on a GPU at a time, so that
whatever is done in between shows in the ratio. Beside other graders it may not; beside strangers it does, and the
interval must allow for it. Each neighbour sees thresholds on both sides of the ratio that is measured alone.
Run it on a machine with a GPU, with PyCUDA importable (about five minutes):

    python tests/gpu/proof/neighbours.py --json neighbours.json
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from statistics import median

from class_of_64 import PLUGIN
from figures import ROOT, Proof, arguments
from gradings import Record, grade_all
from one_grading import Task

MOST_OFF = 0.02  # beside graders
MARGIN = 0.05  # from the true ratio to the thresholds
SUBMISSION = ROOT / "solutions/divergence/03_coalesced_by_tile.cu"
TASK = Task("divergence", str(SUBMISSION), "naive.cu", 2**24, 5.5, 0, seconds=1.0, variant="eight-way")

BEGIN = """
import os, signal, time
import numpy as np
import pycuda.driver as cuda
PTX = b'''
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry spin() { LOOP: bra LOOP; }
.visible .entry fault() { .reg .b64 %a; .reg .b32 %v; mov.u64 %a, 16; mov.u32 %v, 1; st.global.u32 [%a], %v; ret; }
\\0'''
cuda.init()
context = cuda.Device(0).retain_primary_context()
context.push()
kernels = cuda.module_from_buffer(PTX)
def launch(name):
    kernels.get_function(name)(grid=(1, 1), block=(32, 1, 1))
def end():
    os.kill(os.getpid(), signal.SIGKILL)
"""
PROFILER = ("ncu", "--clock-control=none", sys.executable, "-c")
CLASS = (sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q", "--tb=no", "--gpulab")
CLASS += ("--gpulab-device=cuda", "--gpulab-workers=8", "solutions")
PROFILED = """
for _ in range(50): launch('nothing')
context.synchronize()
del kernels
cuda.Context.pop()
"""


@dataclass(frozen=True)
class Neighbour:
    """The work beside the gradings: a command or a program's text after `BEGIN`, restarted when it ends.

    Attributes:
        at_once: how many do it.
        endings: exit statuses besides that of a process that was killed, as most kill themselves.
        grades: whether they are graders, which wait for each other.
    """

    what: Sequence[str] | str
    at_once: int = 1
    endings: tuple[int, ...] = ()
    grades: bool = False

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", BEGIN + self.what] if isinstance(self.what, str) else list(self.what)


NEIGHBOURS = {
    "none": None,
    "a class that is graded": Neighbour(CLASS, endings=(0, 1), grades=True),
    "processes that come and go": Neighbour(
        "kept = [cuda.mem_alloc(1 << 28) for _ in range(8)]\ntime.sleep(0.05)\nend()", 6
    ),
    "large memory, taken and given back": Neighbour(
        "while True:\n    kept = [cuda.mem_alloc(1 << 30) for _ in range(24)]\n"
        "    for each in kept: cuda.memset_d8(each, 1, 1 << 30)\n"
        "    context.synchronize()\n    for each in kept: each.free()"
    ),
    "copies": Neighbour(
        "host = np.ones(1 << 28, np.uint8)\na, b = cuda.mem_alloc(1 << 30), cuda.mem_alloc(1 << 30)\n"
        "while True:\n    cuda.memcpy_htod(a, host)\n"
        "    for _ in range(20): cuda.memcpy_dtod(b, a, 1 << 30)\n    context.synchronize()"
    ),
    "small kernels": Neighbour("while True:\n    launch('nothing')\n    context.synchronize()", 6),
    "kernels that never end": Neighbour("launch('spin')\ntime.sleep(1)\nend()", 2),
    "faults": Neighbour("launch('fault')\ntry: context.synchronize()\nexcept cuda.Error: end()", 2),
    "a profiler": Neighbour([*PROFILER, BEGIN + PROFILED], endings=(0,)),
}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--gradings", type=int, default=40, help="beside each")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--only", nargs="*", help="words of the neighbours to take")
    options = parser.parse_args()
    proof = Proof(f"{options.gradings} gradings beside each of many neighbours")
    truth, rows, off, wrong = 0.0, [], 0, 0
    for name, neighbour in NEIGHBOURS.items():
        if neighbour is not None and options.only and not any(word in name for word in options.only):
            continue
        begin_s = time.perf_counter()
        with beside(neighbour) as endings:
            records = grade_all(list(tasks(options.gradings, truth)), options.workers)
        proof.records[name] = records
        truth = truth or median(record["ratio"] for record in records if "ratio" in record)
        off += sum(is_off(record, truth) for record in records if neighbour is None or neighbour.grades)
        wrong += sum(is_wrong(record, truth) for record in records)
        rows.append((name, str(len(endings)), *row(records, truth), f"{time.perf_counter() - begin_s:.0f}"))
        print(*rows[-1], sep=" | ", flush=True)
    headers = (
        "beside",
        "processes",
        "ratios",
        "most off",
        "own, us",
        "baseline, us",
        "dropped",
        "SM clock",
        "graded",
        "inconclusive",
        "s",
    )
    proof.table(f"Ratio without other processes {truth:.4f}", headers, rows)
    graded = sum(map(len, proof.records.values()))
    far = sum(is_off(record, truth, 0.05) for records in proof.records.values() for record in records)
    proof.figure("ratios off by more than 5%, or none, beside strangers, too", f"{far} of {graded}")
    proof.figure(f"beside graders, ratios off by more than {MOST_OFF:.0%}, or none", str(off), "none", off == 0)
    what = f"wrong verdicts on thresholds {MARGIN:.0%} from the true ratio, or none"
    proof.figure(what, f"{wrong} of {graded}", "none", wrong == 0)
    return proof.finish(options.json)


def tasks(count: int, truth: float) -> Iterator[Task]:
    """Yield what to grade: with thresholds below and above the true ratio as soon as that is known."""
    for nth in range(count):
        threshold = truth * (1 + MARGIN if nth % 2 else 1 - MARGIN) or TASK.threshold
        yield replace(TASK, seed=nth, threshold=threshold)


def is_off(record: Record, truth: float, most: float = MOST_OFF) -> bool:
    return "ratio" not in record or abs(record["ratio"] / truth - 1) > most


def is_wrong(record: Record, truth: float) -> bool:
    """Say whether there is no verdict, or one that the true ratio does not earn; inconclusive is not wrong."""
    if "ratio" not in record:
        return True
    return bool(record["verdict"] == ("failed" if truth > record["threshold"] else "passed"))


@contextmanager
def beside(neighbour: Neighbour | None) -> Iterator[list[int]]:
    """Let neighbours be there meanwhile; give a list of how their processes ended, which grows."""
    endings: list[int] = []
    if neighbour is None:
        yield endings
        return
    is_over = threading.Event()
    with ThreadPoolExecutor(neighbour.at_once) as pool:
        busy = [pool.submit(_again_and_again, neighbour, endings, is_over) for _ in range(neighbour.at_once)]
        time.sleep(2)  # until they are at it
        try:
            yield endings
        finally:
            is_over.set()
    for each in busy:
        each.result()


def _again_and_again(neighbour: Neighbour, endings: list[int], is_over: threading.Event) -> None:
    """Start a process as often as it ends.

    Raises:
        RuntimeError: it ended as none of them does.
        OSError: it cannot be started.
    """
    command = neighbour.command
    while not is_over.is_set():
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=said
            )
            while process.poll() is None and not is_over.wait(0.01):
                pass
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the class and the profiler start others
            if process.wait() not in (-signal.SIGKILL, *neighbour.endings):
                said.seek(0)
                raise RuntimeError(f"{command[:3]} ended with {process.returncode}: {said.read()[-500:]!r}")
        endings.append(process.returncode)


def row(records: Sequence[Record], truth: float) -> tuple[str, ...]:
    """Return what of a table's row comes from the records."""
    graded = [record for record in records if "ratio" in record]
    if not graded:
        return ("none", "", "", "", "", "", "0", "0")
    ratios = [record["ratio"] for record in graded]
    off = max(abs(ratio / truth - 1) for ratio in ratios)
    dropped = sum(record["dropped"] for record in graded) / sum(record["rounds"] for record in graded)
    clocks = [clock for record in graded for clock in record["clocks_mhz"] if clock is not None]
    own, baseline = ([1e3 * record[side] for record in graded] for side in ("own_ms", "baseline_ms"))
    return (
        f"{min(ratios):.3f} to {max(ratios):.3f}",
        f"{off:.1%}",
        f"{min(own):.1f} to {max(own):.1f}",
        f"{min(baseline):.1f} to {max(baseline):.1f}",
        f"{dropped:.1%}",
        f"{min(clocks)} to {max(clocks)}" if clocks else "n/a",
        str(len(graded)),
        str(sum(record["verdict"] == "inconclusive" for record in graded)),
    )


if __name__ == "__main__":
    sys.exit(main())
