"""Kill the grading of a class with -9 at random moments, resume it each time, and compare with an undisturbed run.

    python tests/course/proof/killed.py --workers 2 [--students 500] [--kills 10] [--latest 60] [--keep FOLDER]

Every second time only pytest itself is killed and what it started has to notice, else everything at once, as by a power
cut. The first run draws the seed; the resumed ones are the same command; the last one, on a store of its own, is given
that seed. Gradebooks must be equal to the byte, but for JSON's times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from claims import Claim, nobody_lost, told
from classroom import Classroom, Submission, write
from hostile import HARMS, QUICK
from runs import Run, gradebooks
from tabulate import tabulate

EARLY = 0.3
"""Of the kills: so many come at a random time after the start, the others after a new grade."""


def kept(store: Path) -> int:
    """Return how many grades are in a store."""
    if not store.exists():
        return 0
    with closing(sqlite3.connect(store)) as connection:
        has_grades = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'grade'").fetchone()
        return int(connection.execute("SELECT count(*) FROM grade").fetchone()[0]) if has_grades else 0


def killed_runs(folder: Path, out: Path, kills: int, rng: random.Random, latest_s: float, *options: str) -> list[tuple]:
    """Start that many runs and kill each; return moment, how, grades kept before and after, and processes left over."""
    store, rows = out / "grades.sqlite", []
    for number in range(kills):
        before, moment_s, is_early = kept(store), rng.uniform(0, latest_s), rng.random() < EARLY
        run = Run(folder, out, f"--gpulab-store={store}", *options)
        while not is_early and kept(store) == before and not run.is_over(0.05):
            pass  # there is something to be resumed
        is_over = run.is_over(moment_s)
        everything = number % 2 == 1
        run.processes.kill() if everything else run.kill()
        run.ended()
        how = "was over" if is_over else "everything" if everything else "pytest"
        since = "the start" if is_early else "the first grade"
        rows.append((f"{moment_s:.1f} s after {since}", how, before, kept(store), len(run.left_over())))
    return rows


def compared(
    submissions: Sequence[Submission], folder: Path, kills: int, seed: int, latest_s: float, *options: str
) -> tuple[list[tuple], list[Claim]]:
    """Grade the class in pieces and in one go; return what became of the pieces, and what must hold."""
    write(submissions, folder / "class")
    killed, whole = folder / "killed", folder / "whole"
    rows = killed_runs(folder / "class", killed, kills, random.Random(seed), latest_s, *options)
    status = Run(folder / "class", killed, f"--gpulab-store={killed}/grades.sqlite", *options).ended().status
    drawn = {grade["provenance"]["seed"] for grade in json.loads((killed / "grades.json").read_text())["grades"]}
    given = (f"--gpulab-store={whole}/grades.sqlite", f"--gpulab-seed={max(drawn)}")
    ended = Run(folder / "class", whole, *given, *options).ended()
    pieces, one_go = gradebooks(killed), gradebooks(whole)
    unlike = [name for name in one_go if pieces.get(name) != one_go[name]]
    left = sum(row[-1] for row in rows)
    return rows, [
        Claim("killed before the end", f"{sum(row[1] != 'was over' for row in rows)} of {kills}"),
        Claim("exit status, resumed and whole", f"{status} and {ended.status}", status == ended.status in (0, 1)),
        Claim("seeds", str(len(drawn)), len(drawn) == 1),
        nobody_lost(submissions, killed),
        Claim("gradebooks that differ", ", ".join(unlike) or f"none of {', '.join(one_go)}", not unlike),
        Claim("processes left over after a kill", str(left), left == 0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=500)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--latest", type=float, default=60, help="seconds after which a run is killed at the latest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120, help="seconds a check may take (as --gpulab-timeout)")
    parser.add_argument("--keep", type=Path, help="work in this folder, which must not exist, and leave it there")
    parser.add_argument("--quick", action="store_true", help="hostile submissions that are not ended by a time limit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpulab-proof-") as scratch:
        harms = QUICK if options.quick else HARMS
        submissions = Classroom(options.seed, harms=harms).students(options.students)
        how = (f"--gpulab-workers={options.workers}", f"--gpulab-timeout={options.timeout}")
        folder = options.keep or Path(scratch)
        rows, claims = compared(submissions, folder, options.kills, options.seed, options.latest, *how)
    print(tabulate(rows, ("killed after", "what", "grades before", "and after", "processes left")))
    print(f"\n{told(claims)}")
    return int(any(claim.holds is False for claim in claims))


if __name__ == "__main__":
    sys.exit(main())
