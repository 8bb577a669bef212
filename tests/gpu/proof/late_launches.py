"""How many batches of small kernels have a launch that begins late, about 1 us, as it does for some places of arrays.

Each batch is timed in many places, as grading does it, and the same behind a flush of the level-2 cache, which is why
grading does without; alone, and beside others. Run it on a machine with a GPU, with PyCUDA importable:

    python tests/gpu/proof/late_launches.py --json late_launches.json
"""

from __future__ import annotations

import sys
from contextlib import closing
from statistics import median

import numpy as np
from against_ncu import SOURCE, WARM_UPS, Row
from figures import Proof, arguments
from neighbours import CLASS, Neighbour, beside

from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.cuda.timing.sampler import CudaStopwatch
from pytest_gpulab.grading.speed.buffers import BufferPool
from pytest_gpulab.grading.speed.mixing import Mix
from pytest_gpulab.grading.speed.targets import BenchmarkTarget

ROW, RUNS = Row("scale", 2**18, 96), 4
PLACES, SAMPLES = 60, 9
LATE_US = 0.5
MAX_LATE = 0.05  # of the places, without other processes
IN_GRADING, FLUSHED = "as in grading", "behind a flush"
ALONE = "none"
NEIGHBOURS = {
    ALONE: None,
    "twelve that do nothing": Neighbour("time.sleep(600)", 12),
    "a kernel that never ends": Neighbour("launch('spin')\ntime.sleep(600)\nend()"),
    "a class that is graded": Neighbour(CLASS, endings=(0, 1), grades=True),
}


def batches_us(pool: BufferPool, contender: BenchmarkTarget, watch: CudaStopwatch) -> dict[str, list[float]]:
    """Return the times of whole batches, medians of some, in each place."""
    rng, found = np.random.default_rng(1), {IN_GRADING: [], FLUSHED: []}
    for _ in range(PLACES):
        pool.move_copies(rng)
        contender.take_copies(RUNS)
        for how, times_us in found.items():
            samples_us = []
            for turn in range(SAMPLES):
                mixes = [Mix.drawn(turn % 2, rng) for _ in range(RUNS)]
                if how == FLUSHED:
                    contender.cold_ms(watch, 0, mixes[0])
                samples_us.append(1e3 * RUNS * contender.batch_ms(watch, mixes))
            times_us.append(median(samples_us))
    return found


def main() -> int:
    path = arguments(__doc__).parse_args().json
    proof, device, rng = Proof("Launches that begin late, by where arrays lie"), CudaDevice(), np.random.default_rng(2)
    contents = tuple({"in": rng.random(ROW.elements, np.float32)} for _ in range(2))
    rows, late = [], {}
    with closing(BufferPool(device)) as pool:
        contender = BenchmarkTarget(pool, device.compile(SOURCE), ROW.plan(), contents)
        for name, neighbour in NEIGHBOURS.items():
            with beside(neighbour), device.stopwatch() as watch:
                for _ in range(WARM_UPS):
                    watch.calibrate()
                proof.records[name] = batches_us(pool, contender, watch)
            for how, times_us in proof.records[name].items():
                above_us = np.array(times_us) - median(times_us)
                late[name, how] = float(np.mean(above_us > LATE_US))
                rows.append((name, how, f"{median(times_us):.2f}", f"{above_us.max():.2f}", f"{late[name, how]:.0%}"))
                print(*rows[-1], sep=" | ", flush=True)
    device.close()
    headers = ("beside", "batches", "median, us", "longest above it, us", f"more than {LATE_US} us")
    proof.table(f"Batches of {RUNS} launches in {PLACES} places", headers, rows)
    share = late[ALONE, IN_GRADING]
    proof.figure("alone, places with a late launch", f"{share:.0%}", "at most 5 %", share <= MAX_LATE)
    return proof.finish(path)


if __name__ == "__main__":
    sys.exit(main())
