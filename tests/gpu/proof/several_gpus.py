"""A class on a machine with several GPUs: on all of them, on one, interrupted and resumed, and by a Dask cluster.

The verdicts must be the same each time. Run it on a machine with at least two GPUs of one model, with the package
importable and Dask's `distributed` installed (about five minutes):

    PYTHONPATH=tests:tests/course/proof python tests/gpu/proof/several_gpus.py --json gpus.json
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from class_of_64 import sources
from dask_cluster import DaskCluster, logs_in
from figures import Proof, arguments
from killed import kept
from runs import Ended, Processes, Run, grades, verdicts

SPINNING = """// Never ends.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)
GPULAB_TUNABLE(MAX_BLOCKS, 0)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    while (*(volatile unsigned *)&n || true) {}
}
"""
STORE = "grades.sqlite"
LOOK_EVERY_S = 0.2
BUSY_PERCENT = 5
FREED_MIB = 16  # what a driver may keep or give back by itself
AFTER_INTERRUPT_S = 1.0
THREADS = 4
OUTPUT_END, LOG_END = 3000, 1000  # characters to show of what went wrong
Verdicts = dict[str, dict[str, tuple[str, float]]]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--submissions", type=int, default=24)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda", help="`sim` tries this program without a GPU")
    options = parser.parse_args()
    proof = Proof(f"A class of {options.submissions} on several GPUs, and by a cluster")
    with tempfile.TemporaryDirectory(prefix="gpulab-gpus-") as folder:
        _Proofs(proof, Path(folder), options.submissions, options.workers, options.device).all()
    return proof.finish(options.json)


class _Proofs:
    """The same class, graded in one way after the other."""

    def __init__(self, proof: Proof, folder: Path, submissions: int, workers: int, device: str) -> None:
        self._proof, self._folder, self._device = proof, folder, device
        self._workers, self._submissions = workers, submissions
        self._expected: Verdicts = {}
        for nth, (exercise, path) in zip(range(submissions), sources() * submissions, strict=False):
            student = folder / "class" / f"student{nth:02d}"
            student.mkdir(parents=True)
            (student / f"{exercise}.cu").write_text(f"{path.read_text()}\n// student {nth}\n")
        spinner = folder / "class" / f"student{submissions - 1:02d}"
        for file in spinner.iterdir():
            file.unlink()
        (spinner / "reduction.cu").write_text(SPINNING)

    def all(self) -> None:
        """Prove one thing after the other, whatever becomes of those before: such a machine is not there every day."""
        count = len(gpus_now())
        parts: dict[str, Callable[[], None]] = {
            "on all GPUs": lambda: self._on_all(count),
            "on the last one": lambda: self._on_the_last(count),
            "resumed": self._interrupted,
            "by a cluster": lambda: self._by_a_cluster(count, is_one_killed=False),
            "by a cluster, one of its workers killed": lambda: self._by_a_cluster(count, is_one_killed=True),
        }
        for title, part in parts.items():
            try:
                part()
            except Exception as error:
                traceback.print_exc()
                self._proof.figure(f"{title}: comes to its end", type(error).__name__, "yes", False)

    def _on_all(self, count: int) -> None:
        with used() as most:
            output = self._graded("all", f"--gpulab-device={self._device}")
        named = re.search(r"on (\d+) GPUs", output)
        self._proof.figure("GPUs in the header", named[1] if named else "none", str(count), bool(named))
        busy = [percent for percent, _ in most]
        told = ", ".join(f"{percent} %" for percent in busy) or "none"
        self._proof.figure("most use of each", told, "all", count > 1 and min(busy, default=0) >= BUSY_PERCENT)
        self._expected = self._verdicts("all")
        self._proof.records["verdicts"] = self._expected
        spinner = self._expected.get(f"student{self._submissions - 1:02d}/reduction.cu", {})
        passed = [check for check, (verdict, _) in spinner.items() if verdict == "passed"]
        self._proof.figure("passed by the one that spins", ", ".join(passed), "compile", passed == ["compile"])

    def _on_the_last(self, count: int) -> None:
        with used() as most:
            self._graded("last", f"--gpulab-device={self._device}:{count - 1}" if count else "--gpulab-device=sim")
        told = ", ".join(f"{percent} %" for percent, _ in most) or "none"
        alone = bool(most) and most[-1][0] >= BUSY_PERCENT and all(not percent for percent, _ in most[:-1])
        self._proof.figure("most use of each, the last one asked for", told, "0 % of others", alone)
        self._compare("on the last one", "last")

    def _interrupted(self) -> None:
        memory_mib = [mib for _, mib in gpus_now()]
        run = self._run("resumed", f"--gpulab-device={self._device}")
        wait(lambda: kept(self._folder / "resumed" / STORE) >= self._submissions // 4, run)
        time.sleep(1)  # into the next ones
        run.interrupt()
        status = run.ended().status
        left = run.left_over(AFTER_INTERRUPT_S)
        freed = all(mib - before < FREED_MIB for (_, mib), before in zip(gpus_now(), memory_mib, strict=True))
        self._proof.figure("exit status after Ctrl-C", str(status), "2", status == 2)
        self._proof.figure(f"processes {AFTER_INTERRUPT_S:g} s after it", str(len(left)), "0", not left)
        self._proof.figure("the GPUs' memory is free again", "yes" if freed else "no", "yes", freed)
        output = self._graded("resumed", f"--gpulab-device={self._device}")
        before = re.search(r"(\d+) of them earlier", output)
        enough = before is not None and self._submissions // 4 <= int(before[1]) < self._submissions
        self._proof.figure("graded before, says the next run", before[1] if before else "none", "some", enough)
        self._compare("resumed", "resumed")

    def _by_a_cluster(self, count: int, is_one_killed: bool) -> None:
        name = "lost" if is_one_killed else "cluster"
        place = self._folder / f"{name}-workers"
        place.mkdir()
        title = "by a cluster, one of its workers killed" if is_one_killed else "by a cluster"
        of_cluster, is_alike = Processes(), False
        try:
            with closing(DaskCluster(place, **of_cluster.environment)) as cluster:
                ended = self._run_by(cluster, count, name, is_one_killed)
            told = f"{ended.status}, {ended.took_s:.0f} s"
            self._proof.figure(f"{title}: exit status", told, "1", ended.status == 1)
            is_alike = self._compare(title, name)
            if ended.status != 1 or not is_alike:
                _show(f"{name}: exit status {ended.status}, and the end of its output", ended.output, OUTPUT_END)
        finally:
            of_cluster.kill()
            if not is_alike:
                for process, said in logs_in(place).items():
                    _show(f"{name}: the end of what {process} said", said, LOG_END)

    def _run_by(self, cluster: DaskCluster, count: int, name: str, is_one_killed: bool) -> Ended:
        threads = ("--no-nanny", "--nthreads", str(THREADS))
        gpu = ("--resources", f"GPU={THREADS}")
        workers = [cluster.add_worker(*threads, *gpu, CUDA_VISIBLE_DEVICES=str(nth)) for nth in range(max(count, 2))]
        cluster.add_worker(*threads, CUDA_VISIBLE_DEVICES="")  # a job that came here would fail
        run = self._run(name, f"--gpulab-scheduler={cluster.address}", f"--gpulab-device={self._device}")
        if is_one_killed:
            wait(lambda: kept(self._folder / name / STORE) >= max(1, self._submissions // 8), run)
            workers[0].kill()
            was_over = run.is_over(0)
            self._proof.figure("a worker is killed in mid-run", "no" if was_over else "yes", "yes", not was_over)
        return run.ended()

    def _run(self, name: str, *options: str) -> Run:
        out = self._folder / name
        return Run(self._folder / "class", out, "-v", f"--gpulab-store={out / STORE}", "--gpulab-seed=1", *options)

    def _graded(self, name: str, *options: str) -> str:
        """Grade the class with worker processes of this machine, and return what pytest says."""
        ended = self._run(name, f"--gpulab-workers={self._workers}", *options).ended()
        print(f"{name}: exit status {ended.status} after {ended.took_s:.0f} s", flush=True)
        if not self._verdicts(name):
            _show(f"{name}: no gradebook, and the end of its output", ended.output, OUTPUT_END)
        return ended.output

    def _verdicts(self, name: str) -> Verdicts:
        """Return what the gradebook says; nothing if there is none."""
        out = self._folder / name
        found = grades(out) if (out / "grades.json").exists() else {}
        return {label: verdicts(grade) for label, grade in found.items()}

    def _compare(self, title: str, name: str) -> bool:
        found = self._verdicts(name)
        unlike = [label for label in self._expected if found.get(label) != self._expected[label]]
        is_alike = bool(found and self._expected) and not unlike
        value = ", ".join(unlike) or f"none of {len(self._expected)}"
        value = value if found else "no gradebook"
        self._proof.figure(f"{title}: other verdicts than on all GPUs", value, "none", is_alike)
        return is_alike


def _show(title: str, said: str, characters: int) -> None:
    """Print the end of what a process said that something went wrong with."""
    print(f"{title}:\n{said[-characters:].rstrip()}\n", flush=True)


def gpus_now() -> list[tuple[int, int]]:
    """Return of each GPU how busy it is, in percent, and its memory in use, in MiB."""
    query = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [(int(percent), int(mib)) for percent, mib in (line.split(",") for line in said.splitlines())]


@contextmanager
def used() -> Iterator[list[tuple[int, int]]]:
    """HazardChecker the GPUs meanwhile; the list holds what was most of each at the end."""
    most: list[tuple[int, int]] = gpus_now()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_EVERY_S):
            most[:] = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(most, gpus_now(), strict=True)]

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def wait(condition: Callable[[], bool], run: Run) -> None:
    """Wait until it holds, or the run is over."""
    while not condition() and not run.is_over(0.05):
        pass


if __name__ == "__main__":
    sys.exit(main())
