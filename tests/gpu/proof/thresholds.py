"""Thresholds half a percent below and above a solution's true ratio: no verdict may be wrong.

The true ratio comes from long races in processes of their own. Run it on a machine with a GPU, with the package
importable; `--hammer` lets another process, made of PyTorch, use the GPU meanwhile:

    python tests/gpu/proof/thresholds.py --json quiet.json
    python tests/gpu/proof/thresholds.py --hammer --truth quiet.json --json hammered.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from figures import ROOT, Proof, arguments
from gradings import Hammer, Record, grade_all, half_width, hammered, rounds, spread, true_ratio
from one_grading import Task

OFFSET = 0.005
RIGHT = {-OFFSET: "passed", OFFSET: "failed"}
MAX_INCONCLUSIVE = 0.05
DEFAULT_SUBMISSION = "reduction/09_shared_first_add.cu"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--submission", default=DEFAULT_SUBMISSION, help="a file below solutions/")
    parser.add_argument("--size", type=int, default=2**26)
    parser.add_argument("--gradings", type=int, default=200, help="for each threshold")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--hammer", action="store_true", help="let another process use the GPU meanwhile")
    parser.add_argument("--truth", type=Path, help="an earlier run of the same submission: takes its true ratio")
    parser.add_argument("--truth-processes", type=int, default=36)
    parser.add_argument("--truth-seconds", type=float, default=2.0, help="the longest of each long race")
    options = parser.parse_args()
    exercise, _, _ = options.submission.partition("/")
    path = str(ROOT / "solutions" / options.submission)
    task = Task(exercise, path, "naive.cu", options.size, None, 10_000, options.truth_seconds)
    when = "while another process hammers the GPU" if options.hammer else "quiet"
    proof = Proof(f"Thresholds 0.5 % from the true ratio of {options.submission}, {when}")
    truth = _truth(proof, task, options)
    proof.records["truth"] = truth
    tasks = [
        replace(task, threshold=truth * (1 + offset), seed=nth, seconds=Task.seconds)
        for nth in range(options.gradings)
        for offset in RIGHT
    ]
    begin_s = time.perf_counter()
    with hammered(options.hammer) as hammer:
        records = grade_all(tasks, options.workers)
    proof.records["gradings"] = records
    judge(proof, truth, records, hammer)
    proof.figure("time for all", f"{time.perf_counter() - begin_s:.0f} s")
    return proof.finish(options.json)


def _truth(proof: Proof, task: Task, options: argparse.Namespace) -> float:
    if options.truth:
        return float(json.loads(options.truth.read_text())["records"]["truth"])
    truth, races = true_ratio(task, options.truth_processes, options.workers)
    proof.records["long races"] = races
    ratios = np.array([race["ratio"] for race in races])
    proof.figure("true ratio", f"{truth:.4f}, from {len(races)} processes, {rounds(races)} rounds each")
    proof.figure("spread of its processes", f"{ratios.std() / truth:.3%} (standard deviation); {spread(races)}")
    return truth


def judge(proof: Proof, truth: float, records: Sequence[Record], hammer: Hammer | None) -> None:
    """Count verdicts that are wrong or none, of gradings with the thresholds in turn; what is inconclusive is not."""
    wrong = inconclusive = 0
    rows = []
    for nth, (offset, right) in enumerate(RIGHT.items()):
        mine = records[nth :: len(RIGHT)]
        verdicts = [record["verdict"] for record in mine]
        unsure = verdicts.count("inconclusive")
        bad = len(mine) - unsure - verdicts.count(right)
        holds = sum("ratio" in record and record["low"] <= truth <= record["high"] for record in mine)
        rows.append((f"{offset:+.1%}", len(mine), bad, unsure, holds, spread(mine), half_width(mine), rounds(mine)))
        wrong, inconclusive = wrong + bad, inconclusive + unsure
    headers = ("threshold", "gradings", "wrong", "inconclusive", "hold the truth", "ratios", "half width", "rounds")
    proof.table(f"True ratio {truth:.4f}", headers, rows)
    proof.figure("wrong verdicts", f"{wrong} of {len(records)}", "none", wrong == 0)
    share = inconclusive / len(records)
    if hammer is None:
        proof.figure("inconclusive", f"{share:.1%}", "at most 5 %", share <= MAX_INCONCLUSIVE)
        return
    proof.figure("inconclusive", f"{share:.1%}")
    seen = sum(map(hammer.was_seen, records))
    proof.figure("gradings that saw the other process", f"{seen} of {len(records)}", "all", seen == len(records))
    proof.figure("it wanted the GPU", f"{hammer.busy:.0%} of the time")
    graded = [record for record in records if "ratio" in record]
    dropped = sum(record["dropped"] for record in graded) / max(1, sum(record["rounds"] for record in graded))
    proof.figure("rounds that were left out", f"{dropped:.1%}")


if __name__ == "__main__":
    sys.exit(main())
