"""What looking costs: launches with counters and hazard checks against the same launches without, in CPU time.

Run with `pytest tests/benchmarks/test_hazard_cost.py --benchmark-only -s`. The ladders are all solutions on all cases
of their exercises; the data-dependent kernels use shared memory at places that the data say; the long ones access
global memory again and again without a barrier. Each case is launched all ways in turn, several times over, and the
least time of each way counts; translation and the compiler's machine code, which a kernel needs once, are left to a
round that does not count.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.compilation.builds import Builds
from pytest_gpulab.grading.plans.prepare import make_plan, prepare, rng_for
from pytest_gpulab.grading.plans.replay import FIRST, Arrays

ROOT = Path(__file__).parents[2]
CATALOGUE = Catalogue(ROOT / "exercises")
SOLUTIONS = sorted(set(ROOT.glob("solutions/*/*.cu")) - set(ROOT.glob("solutions/reduction_host/*.cu")))  # no programs
LADDER_LIMIT, DATA_LIMIT, LONG_LIMIT = 2.0, 5.0, 5.0
ROUNDS = 7
WAYS = {
    "plain": LaunchOptions(),
    "hazards": LaunchOptions(check=True),
    "counters": LaunchOptions(count=True),
    "both": LaunchOptions(check=True, count=True),
}
pytestmark = pytest.mark.benchmark(timer=time.process_time)


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Undo what `best_s` does."""
    yield
    gc.unfreeze()


def best_s(launch: Callable[[LaunchOptions], Any], rounds: int) -> dict[str, float]:
    """Return the least CPU time of each way to launch; the first round is a warm-up and the ways take turns.

    The garbage collector stays on but visits only what the launches make. What the session has made before, compiled
    modules above all, would cost several launches' time at whatever launch the collector happens to come round.
    """
    gc.collect()
    gc.freeze()
    best = dict.fromkeys(WAYS, float("inf"))
    for nth in range(rounds + 1):
        for way, options in WAYS.items():
            begin = time.process_time()
            launch(options)
            if nth or rounds == 0:
                best[way] = min(best[way], time.process_time() - begin)
    return best


def ladder_s(path: Path, rounds: int) -> dict[str, float]:
    """Return the CPU time of one solution over all cases of its exercise; without rounds, over two of them."""
    loaded, device = CATALOGUE.load(path.parent.name), SimulatedDevice()
    builds, total = Builds(path, loaded, device), dict.fromkeys(WAYS, 0.0)
    for case in loaded.exercise.cases if rounds else loaded.exercise.cases[:2]:
        build = builds.of(case.variant)
        problem = case.problem(build.tunables)
        rng = rng_for(1, loaded.name, case.name)
        prepared = prepare(loaded.exercise, problem, make_plan(loaded.exercise, problem), case.patterns[0], rng)
        arrays = Arrays(device, prepared.plan)
        for symbol, name in prepared.plan.constants.items():
            build.module.set_constant(symbol, prepared.inputs[name])

        def run(options: LaunchOptions, build: Any = build, prepared: Any = prepared, arrays: Any = arrays) -> None:
            memories = arrays.filled(prepared.inputs, FIRST.poison)
            for launch in prepared.plan.launches:
                args = [memories[arg] if isinstance(arg, str) else arg for arg in launch.args]
                build.module.launch(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes, options)

        for way, seconds in best_s(run, rounds).items():
            total[way] += seconds
        arrays.free()
    device.close()
    return total


def shown(name: str, took: dict[str, float]) -> str:
    """Return a line of the table."""
    ratios = "  ".join(f"{way} {took[way] / took['plain']:5.2f}x" for way in WAYS if way != "plain")
    return f"{name:40} {1e3 * took['plain']:8.1f} ms   {ratios}"


def test_looking_costs_little_on_the_ladders(benchmark: BenchmarkFixture) -> None:
    rounds = 0 if benchmark.disabled else ROUNDS
    paths = SOLUTIONS[::12] if benchmark.disabled else SOLUTIONS
    each = benchmark.pedantic(lambda: [ladder_s(path, rounds) for path in paths], rounds=1)
    total = {way: sum(took[way] for took in each) for way in WAYS}
    print()
    for path, took in zip(paths, each, strict=True):
        print(shown(f"{path.parent.name}/{path.stem}", took))
    print(shown(f"all, at most {LADDER_LIMIT:g}x", total))
    assert benchmark.disabled or total["both"] <= LADDER_LIMIT * total["plain"]


DATA_DEPENDENT = {
    "gather": "tile[t] = in[i]; __syncthreads(); out[i] = tile[in[i] & 255];",
    "permute": "tile[t] = 0; __syncthreads(); int k = (in[i] * 2 + 1) & 255; atomicAdd(&tile[k], t);"
    " __syncthreads(); out[i] = tile[t];",
    "chase": "tile[t] = in[i] & 255; __syncthreads(); int k = t; for (int r = 0; r < 16; r++) k = tile[k]; out[i] = k;",
    "scatter": "int k = (t * (2 * (in[blockIdx.x] & 63) + 1)) & 255; tile[k] = t; __syncthreads(); out[i] = tile[t];",
    "sort": "tile[t] = in[i]; for (int k = 2; k <= 256; k *= 2) for (int j = k / 2; j; j /= 2) { __syncthreads();"
    " int o = t ^ j; if (o > t) { int a = tile[t], b = tile[o];"
    " if ((a > b) == !(t & k)) { tile[t] = b; tile[o] = a; } } }"
    " __syncthreads(); out[i] = tile[t];",
}
KERNEL = (
    "__global__ void f(const int *in, int *out) {{ __shared__ int tile[256];\n"
    "int t = threadIdx.x, i = blockIdx.x * 256 + t; {body} }}"
)


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_looking_costs_more_where_places_come_from_data(benchmark: BenchmarkFixture, name: str) -> None:
    device, blocks = SimulatedDevice(), 2 if benchmark.disabled else 256
    values = np.random.default_rng(1).integers(0, 2**30, blocks * 256, np.int32)
    source, target = device.array(values), device.empty(blocks * 256, np.int32)
    module = device.compile(KERNEL.format(body=DATA_DEPENDENT[name]))

    def run(options: LaunchOptions) -> None:
        assert module.launch("f", (blocks,), (256,), (source, target), options=options).hazards == ()

    rounds = 0 if benchmark.disabled else ROUNDS
    took = benchmark.pedantic(lambda: best_s(run, rounds), rounds=1)
    print("\n" + shown(f"{name}, at most {DATA_LIMIT:g}x", took))
    assert benchmark.disabled or took["both"] <= DATA_LIMIT * took["plain"]


HEAD = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, w = gridDim.x * blockDim.x; float s = 0;"
LONG = {
    "matrix product": "int y = i / n, x = i % n; for (int k = 0; k < n; k++) s += a[y * n + k] * b[k * n + x];"
    " c[i] = s;",
    "matrix product, summed in memory": "int y = i / n, x = i % n; c[i] = 0;"
    " for (int k = 0; k < n; k++) c[i] += a[y * n + k] * b[k * n + x];",
    "own elements again and again": "for (int r = 0; r < n / 8; r++)"
    " for (int k = 0; k < 16; k++) c[(i + k * w) % (n * n)] += a[i];",
    "every thread reads all of an array": "for (int k = 0; k < 8 * n; k++) s += a[k]; c[i] = s;",
}


@pytest.mark.parametrize("n", [128, 256])
@pytest.mark.parametrize("name", LONG)
def test_looking_costs_little_where_global_memory_is_read_again_and_again(
    benchmark: BenchmarkFixture, name: str, n: int
) -> None:
    device, blocks = SimulatedDevice(), 2 if benchmark.disabled else n * n // 256
    source = f"__global__ void f(const float *a, const float *b, float *c, int n) {{ {HEAD} {LONG[name]} }}"
    module, arrays = device.compile(source), [device.array(np.ones((n, n), np.float32)) for _ in range(3)]

    def run(options: LaunchOptions) -> None:
        assert module.launch("f", (blocks,), (256,), (*arrays, np.int32(n)), options=options).hazards == ()

    took = benchmark.pedantic(lambda: best_s(run, 0 if benchmark.disabled else 2), rounds=1)
    print("\n" + shown(f"{name}, {n}, hazards at most {LONG_LIMIT:g}x", took))
    assert benchmark.disabled or took["hazards"] <= LONG_LIMIT * took["plain"]
