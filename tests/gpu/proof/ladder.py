"""Bandwidth of the ladders at 2^26 elements with cold caches, beside a plain copy and PyTorch, timed the same way.

Run it on a machine with a GPU and PyTorch, with the package importable:

    python tests/gpu/proof/ladder.py --json ladder.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import ROOT, Proof, arguments

from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.cuda.timing.sampler import CudaStopwatch
from pytest_gpulab.exercise import Problem
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.compilation.builds import Builds
from pytest_gpulab.grading.plans.prepare import make_inputs, make_plan
from pytest_gpulab.grading.speed.buffers import BufferPool
from pytest_gpulab.grading.speed.mixing import Mix
from pytest_gpulab.grading.speed.targets import REPLICAS, BenchmarkTarget

ELEMENTS = 2**26
COPY_BYTES = SCAN_BYTES = 8 * ELEMENTS
SUM_BYTES = 4 * ELEMENTS
SAMPLES, WARM_UPS = 48, 8
WARM_UP_FLUSHES = 200
SAMPLES_PER_PLACE = 4
MEMORY_SPACER = 2**26

Sample = Callable[[int], float]


def median_ms(sample: Sample) -> float:
    return float(np.median([sample(turn) for turn in range(SAMPLES + WARM_UPS)][WARM_UPS:]))


def elapsed_ms(watch: CudaStopwatch, start: Callable[[], Any], what: str) -> float:
    """Time what is no kernel of a module as kernels are timed: what surrounds it is taken off."""
    return watch._sample([start], what, watch._cool) - watch.overhead_ms(launches=1)


def warm_up(watch: CudaStopwatch) -> None:
    """Let the clock go up, then calibrate, as a race does."""
    for _ in range(WARM_UP_FLUSHES):
        watch._sample([watch._flush], "read_all", watch._cool)
    watch.calibrate()


class Ladder:
    """All solutions of an exercise on the same inputs, each from wherever its arrays are put."""

    def __init__(self, device: CudaDevice, watch: CudaStopwatch, loaded: LoadedExercise) -> None:
        self._device, self._watch, self._loaded = device, watch, loaded
        self._contents: tuple[Any, ...] = ()
        self._rng = np.random.default_rng(1)

    def times_ms(self, paths: list[Path]) -> Iterator[tuple[str, float]]:
        for path in paths:
            with closing(BufferPool(self._device)) as pool:
                yield path.stem, self._time_ms(path, pool)

    def _time_ms(self, path: Path, pool: BufferPool) -> float:
        tier = self._loaded.exercise.speed[0]
        build = Builds(path, self._loaded, self._device).of(tier.variant)
        problem = Problem(ELEMENTS, build.tunables, tier.variant)
        plan = make_plan(self._loaded.exercise, problem)
        if not self._contents:
            rngs = (np.random.default_rng(seed) for seed in range(2))
            self._contents = tuple(make_inputs(self._loaded.exercise, problem, plan, "random", rng) for rng in rngs)
        contender = BenchmarkTarget(pool, build.module, plan, self._contents)

        def sample(turn: int) -> float:
            if turn % SAMPLES_PER_PLACE == 0:
                pool.move_copies(self._rng)
                contender.take_copies(REPLICAS)
            return contender.cold_ms(self._watch, turn % REPLICAS, Mix.drawn(turn % 2, self._rng))

        # As from PyTorch's: of how many launches it makes only one is taken off.
        return median_ms(sample) - self._watch.overhead_ms(launches=1)


class Torch:
    """PyTorch's own kernels, between the same events and behind the same flush, in the same primary context."""

    def __init__(self, watch: CudaStopwatch) -> None:
        import torch

        self.version = str(torch.__version__)
        self._torch, self._watch = torch, watch
        self._rng = np.random.default_rng(2)

    def time_ms(self, makers: Sequence[Callable[[], Any]], run: Callable[..., Any]) -> float:
        """Time `run` on arrays that are made anew every few samples, at another place."""
        held: list[Any] = []

        def sample(turn: int) -> float:
            if turn % SAMPLES_PER_PLACE == 0:
                held.clear()
                self._torch.cuda.empty_cache()
                spacer = int(self._rng.integers(1, MEMORY_SPACER))
                held.append(self._torch.empty(spacer, dtype=self._torch.uint8, device="cuda"))
                held.extend(make() for make in makers)
                self._torch.cuda.synchronize()
            return elapsed_ms(self._watch, lambda: run(*held[1:]), "PyTorch")

        with self._torch.no_grad():
            return median_ms(sample)

    def all_times_ms(self) -> Iterator[tuple[str, int, float]]:
        torch = self._torch
        ints = partial(torch.randint, -1000, 1000, (ELEMENTS,), dtype=torch.int32, device="cuda")
        floats = partial(torch.rand, ELEMENTS, device="cuda")
        int_sum = partial(torch.sum, dtype=torch.int32)
        yield "torch.sum int32", SUM_BYTES, self.time_ms([ints], torch.sum)
        yield "torch.sum int32, dtype=int32", SUM_BYTES, self.time_ms([ints], int_sum)
        yield "torch.cumsum float32", SCAN_BYTES, self.time_ms([floats, floats], lambda x, y: torch.cumsum(x, 0, out=y))
        yield "torch copy_ float32", COPY_BYTES, self.time_ms([floats, floats], lambda x, y: y.copy_(x))


def copy_ms(device: CudaDevice, watch: CudaStopwatch) -> float:
    """Time the driver's own copy from one array in device memory to another."""
    driver, rng = device._gpu.context.driver, np.random.default_rng(3)
    held: list[Any] = []

    def sample(turn: int) -> float:
        if turn % SAMPLES_PER_PLACE == 0:
            for memory in held:
                memory.free()
            held[:] = [device.empty(int(rng.integers(1, MEMORY_SPACER)), np.uint8)]
            held.extend(device.array(np.zeros(ELEMENTS, np.float32)) for _ in range(2))
        _, source, target = held
        return elapsed_ms(watch, lambda: driver.memcpy_dtod(target.address, source.address, source.nbytes), "copy")

    return median_ms(sample)


def solutions(exercise: str) -> list[Path]:
    return sorted((ROOT / "solutions" / exercise).glob("*.cu"))


def main() -> int:
    parser = arguments(__doc__)
    path = parser.parse_args().json
    proof, device = Proof("Bandwidth of the ladders at 2^26 elements, cold level-2 cache"), CudaDevice()
    catalogue = Catalogue(ROOT / "exercises")
    rows: list[tuple[str, str, int, float]] = []
    with device.stopwatch() as watch:
        warm_up(watch)
        rows.append(("copy", "driver's device copy", COPY_BYTES, copy_ms(device, watch)))
        torch = Torch(watch)
        rows.extend(("PyTorch", *row) for row in torch.all_times_ms())
        for exercise, nbytes in (("reduction", SUM_BYTES), ("scan", SCAN_BYTES)):
            ladder = Ladder(device, watch, catalogue.load(exercise))
            rows.extend((exercise, name, nbytes, ms) for name, ms in ladder.times_ms(solutions(exercise)))
        rows.append(("copy", "driver's device copy, again", COPY_BYTES, copy_ms(device, watch)))
    device.close()
    judge(proof, rows, torch.version)
    return proof.finish(path)


def judge(proof: Proof, rows: list[tuple[str, str, int, float]], torch_version: str) -> None:
    speeds = {(group, name): nbytes / ms / 1e6 for group, name, nbytes, ms in rows}
    proof.table(
        "Medians of 48 samples",
        ("what", "ms", "GB/s"),
        ((f"{group}: {name}", f"{ms:.4f}", f"{speeds[group, name]:.0f}") for group, name, _, ms in rows),
    )
    copy = max(speed for (group, _), speed in speeds.items() if group == "copy")
    last = [speed for (group, _), speed in speeds.items() if group == "reduction"][-1]
    best = max(speed for (group, _), speed in speeds.items() if group == "scan")
    total = max(speed for (_, name), speed in speeds.items() if "torch.sum" in name)
    cumsum = speeds["PyTorch", "torch.cumsum float32"]
    proof.figure("device copy", f"{copy:.0f} GB/s")
    proof.figure("PyTorch", torch_version)  # against which two of the bars are
    proof.figure("last reduction step, 2^26 int32", f"{last:.0f} GB/s", "at least 3600 GB/s", last >= 3600)
    proof.figure("last reduction step (aim)", f"{last:.0f} GB/s", "aim: 3900 GB/s")
    proof.figure("last reduction step over torch.sum", f"{last / total:.3f}x", "faster", last > total)
    proof.figure("best scan over torch.cumsum, 2^26 float32", f"{best / cumsum:.2f}x", "faster", best > cumsum)
    proof.figure("best scan", f"{best / copy:.1%} of the copy's bandwidth", "aim: 85 %")


if __name__ == "__main__":
    sys.exit(main())
