"""Grade a class of 500, hostile students included, on the simulated GPU: time, memory, no submission lost or disturbed.

    python tests/course/proof/class_of_500.py --workers 2 [--students 500] [--seed 1] [--keep FOLDER]

The same known files are graded again as a class of their own, without hostile neighbours, for comparison. It takes some
twenty minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from claims import Claim, nobody_lost, nothing_imported, nothing_leaked, points_by_kind, told, verdicts_as_alone
from classroom import Classroom, Submission, write
from killed import kept
from runs import Ended, Run
from tabulate import tabulate

GIB = 2**30
STORE = "grades.sqlite"


def quiet_class(submissions: Sequence[Submission], folder: Path) -> dict[Path, Path]:
    """Write the known files that a class is made of as a class; return where in it each is."""
    bases = sorted({(each.based_on, each.exercise) for each in submissions if each.based_on is not None})
    where = {}
    for number, (path, exercise) in enumerate(bases):
        label = Path(f"known{number:03d}", f"{exercise}.cu")
        (folder / label).parent.mkdir(parents=True, exist_ok=True)
        (folder / label).write_bytes(path.read_bytes())
        where[path] = label
    return where


def graded(folder: Path, out: Path, *options: str) -> tuple[Ended, Claim]:
    """Grade a class to its end; return how that went, and whether all processes are gone."""
    run = Run(folder, out, f"--gpulab-store={out / STORE}", *options)
    ended = run.ended()
    if ended.status not in (0, 1):
        raise SystemExit(f"pytest ended with {ended.status}:\n{ended.output[-3000:]}")
    left = run.left_over()
    return ended, Claim("processes left over", str(len(left)), not left)


def claims_of(submissions: Sequence[Submission], folder: Path, *options: str) -> list[Claim]:
    """Grade the class with and without the hostile ones and return what was found."""
    write(submissions, folder / "class")
    alone = quiet_class(submissions, folder / "known")
    before = kept(folder / "out" / STORE)
    ended, clean = graded(folder / "class", folder / "out", *options)
    graded(folder / "known", folder / "quiet", *options)
    return [
        Claim("submissions", f"{len(submissions)}, {len({each.source for each in submissions})} of them different"),
        Claim("grades kept from a run before", str(before)),
        Claim("time", f"{ended.took_s:.0f} s"),
        Claim("memory of all processes together, at most", f"{ended.peak_bytes / GIB:.2f} GiB"),
        nobody_lost(submissions, folder / "out"),
        verdicts_as_alone(submissions, folder / "out", alone, folder / "quiet"),
        nothing_leaked(submissions, folder / "out"),
        nothing_imported(folder / "class"),
        clean,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=500)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120, help="seconds a check may take (as --gpulab-timeout)")
    parser.add_argument("--keep", type=Path, help="work in this folder; the same command continues there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpulab-proof-") as scratch:
        folder = options.keep or Path(scratch)
        submissions = Classroom(options.seed).students(options.students)
        how = (f"--gpulab-workers={options.workers}", f"--gpulab-timeout={options.timeout}")
        claims = claims_of(submissions, folder, *how, f"--gpulab-seed={options.seed}")
        headers = ("kind", "handed in", "graded", "full points", "first findings")
        print(tabulate(points_by_kind(submissions, folder / "out"), headers))
    print(f"\n{told(claims)}\nload of this machine at the end: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return int(any(claim.holds is False for claim in claims))


if __name__ == "__main__":
    sys.exit(main())
