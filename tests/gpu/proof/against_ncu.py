"""Times of small kernels against Nsight Compute's gpu__time_duration, like with like, within 5 %.

Warm: batches, as grading times short kernels, against `ncu --cache-control none`. Cold: samples behind a flush against
ncu's default, which empties the caches before each kernel. ncu watches the very same launches: this file runs itself
under it. Run it on a machine with a GPU and a permitted ncu, with the package importable:

    python tests/gpu/proof/against_ncu.py --json ncu.json
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import mean, median

import numpy as np
from figures import Proof, arguments

from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.cuda.timing import sampler
from pytest_gpulab.devices.protocol import Module
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.speed.benchmark import ROUNDS_PER_PLACE, ROUNDS_PER_READING
from pytest_gpulab.grading.speed.buffers import BufferPool
from pytest_gpulab.grading.speed.mixing import Mix
from pytest_gpulab.grading.speed.targets import REPLICAS, BenchmarkTarget

TOLERANCE = 0.05
WARM_FROM_US, COLD_FROM_US = 3.0, 20.0
ROUNDS, NCU_ROUNDS = 24, 24  # as many, because each fourth round has its arrays elsewhere, which matters
METRIC = "gpu__time_duration.sum"
NCU = ("ncu", "--csv", "--clock-control", "none", "--metrics", METRIC, "--kernel-name", "regex:^timed_")

SOURCE = """
#define KERNEL(name) extern "C" __global__ void timed_##name(const float *in, float *out, unsigned n)
#define EACH(i) for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
template <int ROUNDS> __device__ float turned(float x) {
    #pragma unroll 1
    for (int round = 0; round < ROUNDS; ++round) x = x * 0.999f + 0.001f;
    return x;
}
KERNEL(turn_256) { EACH(i) out[i] = turned<256>(in[i]); }
KERNEL(turn_1024) { EACH(i) out[i] = turned<1024>(in[i]); }
KERNEL(turn_4096) { EACH(i) out[i] = turned<4096>(in[i]); }
KERNEL(turn_16384) { EACH(i) out[i] = turned<16384>(in[i]); }
KERNEL(turn_65536) { EACH(i) out[i] = turned<65536>(in[i]); }
KERNEL(scale) { EACH(i) out[i] = 2 * in[i]; }
KERNEL(neighbours) { EACH(i) out[i] = in[i] + in[(i + 1) % n] + in[(i + 32) % n]; }
KERNEL(gather) { EACH(i) out[i] = in[i * 40503u % n]; }
KERNEL(block_sum) {
    __shared__ float tile[256];
    float sum = 0;
    EACH(i) sum += in[i];
    tile[threadIdx.x] = sum;
    for (unsigned stride = 128; stride; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride) tile[threadIdx.x] += tile[threadIdx.x + stride];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = tile[0];
}
"""


@dataclass(frozen=True)
class Row:
    """A launch to time; rows of the same kernel have different grids, by which ncu's list is matched."""

    kernel: str
    elements: int
    blocks: int

    def plan(self) -> Plan:
        buffers = (
            Buffer("in", "input", np.float32, (self.elements,)),
            Buffer("out", "output", np.float32, (self.elements,)),
        )
        launch = Launch(f"timed_{self.kernel}", (self.blocks,), (256,), ("in", "out", np.uint32(self.elements)))
        return Plan(buffers, (launch,))


WARM = (
    Row("turn_256", 2**15, 128),
    Row("turn_1024", 2**15, 128),
    Row("turn_4096", 2**15, 128),
    Row("scale", 2**19, 64),
    Row("scale", 2**19, 16),
    Row("neighbours", 2**19, 128),
    Row("gather", 2**19, 264),
    Row("block_sum", 2**19, 64),
    Row("scale", 2**18, 96),
    Row("gather", 2**17, 132),
    Row("block_sum", 2**17, 96),
    Row("neighbours", 2**18, 200),
)
COLD = (
    Row("turn_16384", 2**15, 128),
    Row("turn_65536", 2**15, 128),
    Row("scale", 2**23, 1056),
    Row("scale", 2**26, 1188),
    Row("scale", 2**27, 1320),
    Row("gather", 2**23, 1056),
    Row("neighbours", 2**24, 1056),
    Row("block_sum", 2**25, 1056),
)
WARM_UPS = 20  # calibrations until the GPU's clock is up
ROWS = {"warm": WARM, "cold": COLD}


@dataclass(frozen=True)
class Timed:
    """The median of a row's samples, and how many runs each of them is the mean of."""

    median_us: float
    runs: int


def times(mode: str, rounds: int) -> list[Timed]:
    """Time all rows of a mode as grading does."""
    device = CudaDevice()
    module = device.compile(SOURCE)
    with device.stopwatch() as watch:
        for _ in range(WARM_UPS):
            watch.calibrate()
        found = [_timed(device, module, watch, row, mode, rounds) for row in ROWS[mode]]
    device.close()
    return found


def _timed(device: CudaDevice, module: Module, watch: sampler.CudaStopwatch, row: Row, mode: str, rounds: int) -> Timed:
    rng, plan = np.random.default_rng(1), row.plan()
    contents = tuple({"in": rng.random(row.elements, np.float32)} for _ in range(2))
    with closing(BufferPool(device)) as pool:
        contender = BenchmarkTarget(pool, module, plan, contents)
        copies = contender.batch_size(watch.l2_bytes) if mode == "warm" else REPLICAS
        assert copies >= REPLICAS, f"{row} would not be timed in batches"
        samples_ms = []
        watch.calibrate()
        for turn in range(rounds):
            if turn % ROUNDS_PER_READING == 0:
                watch.calibrate(briefly=True)
            if turn % ROUNDS_PER_PLACE == 0:
                pool.move_copies(rng)
                contender.take_copies(copies)
            mixes = [Mix.drawn(turn % 2, rng) for _ in range(copies)]
            if mode == "warm":
                samples_ms.append(contender.batch_ms(watch, mixes))
            else:
                samples_ms.append(contender.cold_ms(watch, turn % copies, mixes[0]))
        runs = copies if mode == "warm" else 1
        return Timed(1e3 * (median(samples_ms) - contender.overhead_ms(watch, runs)), runs)


def ncu_times_us(mode: str, runs: Sequence[int]) -> list[float]:
    """Run the same launches under ncu and return the medians of what it measured, as means of so many runs.

    Raises:
        RuntimeError: ncu failed; with its last words.
    """
    cache_control = ("--cache-control", "none") if mode == "warm" else ()
    command = [*NCU, *cache_control, sys.executable, __file__, "--launch", mode]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    table = [line for line in ended.stdout.splitlines() if line.startswith('"')]
    if ended.returncode or not table:
        raise RuntimeError(f"ncu failed: {(ended.stdout + ended.stderr)[-1000:]}")
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in csv.DictReader(table):
        if line["Metric Name"] == METRIC:
            scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "nsecond": 1e-3, "usecond": 1.0}[line["Metric Unit"]]
            found[_place(mode, line, found)].append(float(line["Metric Value"].replace(",", "")) * scale)
    return [median(_means(found[row.kernel, nth], runs[nth])) for nth, row in enumerate(ROWS[mode])]


def _means(values: Sequence[float], of: int) -> list[float]:
    return [mean(values[first : first + of]) for first in range(0, len(values), of)]


def _place(mode: str, line: dict[str, str], found: dict[tuple[str, int], list[float]]) -> tuple[str, int]:
    """Return which row a launch belongs to: launches come row by row, and neighbours differ in kernel or grid."""
    kernel = line["Kernel Name"].partition("(")[0].removeprefix("timed_")
    grid = int(line["Grid Size"].strip("()").partition(",")[0])
    begun = max((nth for _, nth in found), default=0)
    for nth in range(begun, len(ROWS[mode])):
        row = ROWS[mode][nth]
        if (row.kernel, row.blocks) == (kernel, grid):
            return kernel, nth
    raise RuntimeError(f"ncu saw a launch of {kernel} with {grid} blocks that nobody made")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--launch", choices=ROWS, help="make the launches and no more: what runs under ncu")
    options = parser.parse_args()
    if options.launch:
        sampler.MAX_ATTEMPTS = 1  # under ncu the GPU always waits for the host
        times(options.launch, NCU_ROUNDS)
        return 0
    proof = Proof("Times against Nsight Compute's gpu__time_duration")
    for mode, least_us in (("warm", WARM_FROM_US), ("cold", COLD_FROM_US)):
        rows, worst, found = [], 0.0, times(mode, ROUNDS)
        for row, own, theirs in zip(ROWS[mode], found, ncu_times_us(mode, [own.runs for own in found]), strict=True):
            ours = own.median_us
            off = ours / theirs - 1
            counts = theirs >= least_us
            worst = max(worst, abs(off)) if counts else worst
            rows.append((row.kernel, row.elements, row.blocks, f"{ours:.2f}", f"{theirs:.2f}", f"{off:+.1%}", counts))
        headers = ("kernel", "elements", "blocks", "ours, us", "ncu, us", "off", f"at least {least_us:g} us")
        proof.table(f"{mode} caches", headers, rows)
        what = f"{mode}: largest difference from {least_us:g} us up"
        proof.figure(what, f"{worst:.1%}", "at most 5 %", worst <= TOLERANCE)
    return proof.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
