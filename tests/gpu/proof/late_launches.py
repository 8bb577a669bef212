"""How many batches of small kernels have a launch that begins late, about 1 us, as it does for some places of arrays.

Each batch is timed in many places, as grading does it, and the same behind a flush of the level-2 cache, which is why
grading does without; beside nobody, and beside others. Run it on a machine with a GPU, with PyCUDA importable:

    python tests/gpu/proof/late_launches.py --json late_launches.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from figures import Proof, arguments
from neighbours import CLASS, Neighbour, beside

from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.cuda.timing import CudaStopwatch
from pytest_gpulab.devices.stopwatch import Call, Copy

ELEMENTS, RUNS = 2**18, 4
PLACES, SAMPLES = 60, 9
ROOM_BYTES = 2**24  # that an array may be moved by, in steps of 512 bytes
LATE_US = 0.5
MAX_LATE = 0.05  # of the places, beside nobody
WARM_UPS = 20  # calibrations until the GPU's clock is up
SOURCE = """
extern "C" __global__ void nothing() {}
extern "C" __global__ void twice(const float *in, float *out, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = 2 * in[i];
}
"""
NEIGHBOURS = {
    "nobody": None,
    "twelve that do nothing": Neighbour("time.sleep(600)", 12),
    "a kernel that never ends": Neighbour("launch('spin')\ntime.sleep(600)\nend()"),
    "a class that is graded": Neighbour(CLASS, endings=(0, 1), grades=True),
}

Sample = Callable[[], float]


class Batches:
    """Batches of the same kernel, each in places of its own."""

    def __init__(self, device: CudaDevice) -> None:
        self._device, self._rng = device, np.random.default_rng(1)
        self._module = device.compile(SOURCE)
        self._rooms = [device.empty(ROOM_BYTES + 4 * ELEMENTS, np.uint8) for _ in range(2 * RUNS)]
        self._ones = device.array(np.ones(ELEMENTS, np.float32))

    def samples(self, watch: CudaStopwatch) -> dict[str, Sample]:
        """Return what times a batch in new places, in ms: as in grading, and behind a flush."""
        offsets = 512 * self._rng.integers(ROOM_BYTES // 512, size=len(self._rooms))
        parts = [
            self._device.part(room, int(offset), (ELEMENTS,), np.float32)
            for room, offset in zip(self._rooms, offsets, strict=True)
        ]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        calls = [Call("twice", (96,), (256,), (*pair, np.uint32(ELEMENTS))) for pair in pairs]
        copies = [Copy(self._ones, part) for part in parts]

        def sample() -> float:
            return watch.batch_ms(self._module, calls, copies)

        def flushed() -> float:
            watch.cold_ms(self._module, [Call("nothing", (1,), (32,), ())])
            return sample()

        return {"as in grading": sample, "behind a flush": flushed}


def medians_us(batches: Batches, watch: CudaStopwatch) -> dict[str, np.ndarray]:
    """Return a batch's time in each place."""
    found: dict[str, list[float]] = {}
    for _ in range(PLACES):
        for name, sample in batches.samples(watch).items():
            found.setdefault(name, []).append(float(np.median([1e3 * sample() for _ in range(SAMPLES)])))
    return {name: np.array(times_us) for name, times_us in found.items()}


def main() -> int:
    path = arguments(__doc__).parse_args().json
    proof, device = Proof("Launches that begin late, by where arrays lie"), CudaDevice()
    batches, rows = Batches(device), []
    for neighbour_name, neighbour in NEIGHBOURS.items():
        with beside(neighbour), device.stopwatch() as watch:
            for _ in range(WARM_UPS):
                watch.calibrate()
            found = medians_us(batches, watch)
        for name, times_us in found.items():
            late_us = times_us - np.median(times_us)
            late = float(np.mean(late_us > LATE_US))
            figures = (f"{np.median(times_us):.2f}", f"{late_us.max():.2f}", f"{late:.0%}")
            rows.append((neighbour_name, name, *figures))
            print(*rows[-1], sep=" | ", flush=True)
            proof.records[f"{neighbour_name}, {name}"] = times_us.round(3).tolist()
            if neighbour is None and name == "as in grading":
                proof.figure("beside nobody, places with a late launch", f"{late:.0%}", "at most 5 %", late <= MAX_LATE)
    device.close()
    headers = ("beside", "batches", "median, us", "longest above it, us", f"more than {LATE_US} us")
    proof.table(f"Batches of {RUNS} launches in {PLACES} places", headers, rows)
    return proof.finish(path)


if __name__ == "__main__":
    sys.exit(main())
