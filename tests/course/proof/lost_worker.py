"""Grade a class on two Dask workers, kill one of them in mid-run, and compare with grading on this machine's cores.

    PYTHONPATH=tests python tests/course/proof/lost_worker.py [--students 500] [--seed 1] [--after 60] [--keep FOLDER]

Scheduler and workers are processes of their own that talk over the loopback. Verdicts and points must be the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from claims import Claim, nobody_lost, told
from classroom import Classroom, Submission, write
from dask_cluster import DaskCluster
from killed import kept
from runs import Processes, Run, grades, verdicts

STORE = "grades.sqlite"


def compared(submissions: Sequence[Submission], folder: Path, after_s: float, *options: str) -> list[Claim]:
    """Grade the class there with a worker killed, and here; return what must hold."""
    write(submissions, folder / "class")
    there, here = folder / "there", folder / "here"
    (folder / "cluster").mkdir()
    of_cluster = Processes()
    with closing(DaskCluster(folder / "cluster", **of_cluster.environment)) as cluster:
        unlucky, _ = (cluster.add_worker("--no-nanny") for _ in range(2))
        run = Run(folder / "class", there, f"--gpulab-scheduler={cluster.address}", *_store(there), *options)
        while not kept(there / STORE) and not run.is_over(0.05):
            pass
        was_over = run.is_over(after_s)
        unlucky.kill()
        ended = run.ended()
    of_cluster.kill()
    local = Run(folder / "class", here, "--gpulab-workers=2", *_store(here), *options).ended()
    one, other = grades(there), grades(here)
    unlike = [each.label for each in submissions if verdicts(one[each.label]) != verdicts(other[each.label])]
    return [
        Claim("time, with one of two workers killed", f"{ended.took_s:.0f} s (here {local.took_s:.0f} s)"),
        Claim(
            "a worker was killed in mid-run", "no" if was_over else f"{after_s:g} s after the first grade", not was_over
        ),
        Claim("exit status", f"{ended.status} (here {local.status})", ended.status == local.status in (0, 1)),
        nobody_lost(submissions, there),
        Claim("other verdicts than here", ", ".join(unlike[:8]) or "none", not unlike),
    ]


def _store(out: Path) -> tuple[str, str]:
    return f"--gpulab-store={out / STORE}", "--gpulab-seed=1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--after", type=float, default=60, help="seconds between the first grade and the kill")
    parser.add_argument("--timeout", type=float, default=120, help="seconds a check may take (as --gpulab-timeout)")
    parser.add_argument("--keep", type=Path, help="work in this folder, which must not exist, and leave it there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpulab-proof-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        submissions = Classroom(options.seed).students(options.students)
        claims = compared(submissions, folder, options.after, f"--gpulab-timeout={options.timeout}")
    print(told(claims))
    return int(any(claim.holds is False for claim in claims))


if __name__ == "__main__":
    sys.exit(main())
