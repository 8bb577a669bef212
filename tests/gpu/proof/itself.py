"""A kernel against itself, many times over: no speedup above 1.02x may pass, and the intervals must hold 1.

Run it on a machine with a GPU, with the package importable:

    python tests/gpu/proof/itself.py --json itself.json
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from figures import ROOT, Proof, arguments
from gradings import Record, grade_all, half_width, rounds, spread
from one_grading import Task

THRESHOLD = 1.02
NAIVE = ROOT / "exercises/reduction/naive.cu"
FAST = ROOT / "solutions/reduction/10_shuffle_unroll8.cu"
# A large kernel with cold caches, and a small one that is timed in batches with warm ones.
KERNELS = (("naive.cu, 2^26, cold", NAIVE, 2**26), ("10_shuffle_unroll8.cu, 2^18, in batches", FAST, 2**18))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--gradings", type=int, default=200)
    parser.add_argument("--workers", type=int, default=12)
    options = parser.parse_args()
    proof = Proof(f"A kernel against itself, {options.gradings} gradings from fresh processes")
    rows = []
    for name, kernel, size in KERNELS:
        begin_s = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "reduction.cu")
            copy.write_bytes(kernel.read_bytes())
            tasks = [
                Task("reduction", str(copy), str(kernel), size, THRESHOLD, seed) for seed in range(options.gradings)
            ]
            records = grade_all(tasks, options.workers)
        proof.records[name] = records
        rows.append(judged(proof, name, records, time.perf_counter() - begin_s))
        print(*rows[-1], sep=" | ", flush=True)
    headers = ("kernel", "ratios", "half width", "rounds", "hold 1", f"passed {THRESHOLD}x", "caches", "s")
    proof.table("Each against itself", headers, rows)
    return proof.finish(options.json)


def judged(proof: Proof, name: str, records: Sequence[Record], took_s: float) -> tuple[str, ...]:
    passed = sum(record["verdict"] == "passed" for record in records)
    held = sum("ratio" in record and record["low"] <= 1 <= record["high"] for record in records)
    graded = sum("ratio" in record for record in records)
    proof.figure(f"{name}: passed {THRESHOLD}x", f"{passed} of {len(records)}", "none", passed == 0)
    met = held >= 0.95 * len(records)
    proof.figure(f"{name}: interval holds 1", f"{held} of {len(records)}", "at least 95 %", met)
    caches = "/".join(sorted({record["caches"] for record in records if "ratio" in record}))
    widths = (spread(records), half_width(records), rounds(records)) if graded else ("none", "", "")
    return (name, *widths, str(held), str(passed), caches, f"{took_s:.0f}")


if __name__ == "__main__":
    sys.exit(main())
