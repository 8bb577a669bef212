"""Divergence: element i takes path i % 2 (or i % 8); the student chooses which thread does which element.

Every path repeats a step 64 times on values that start between SMALLEST and LARGEST. On all the values it goes
through the step is a contraction (its slope lies between 0 and 1), so a later round never amplifies an earlier one's
error.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pytest_gpulab import concepts, numerics
from pytest_gpulab.exercise import (
    Array,
    Bound,
    Buffer,
    Case,
    Exercise,
    Expected,
    Launch,
    Plan,
    Problem,
    SafeCheck,
    SpeedTier,
    Tunable,
    UsesCheck,
    Variant,
)

ROUNDS = 64
SMALLEST, LARGEST = 0.25, 4.0

# The steps of paths.cuh in float64 (its constants are powers of two, so they are the same numbers), and how many
# relative errors of u = 2**-24 one step makes at most, measured against the larger of its argument and its result.
# Add, multiply, divide and square root round once: 1 each. By CUDA's table of maximum errors a result of rsqrtf or
# expf is up to 2 ulp from the rounded one, and of logf up to 1: with their own rounding 5, 5 and 3.
STEPS = (
    (lambda x: x + 0.25 / (1 + x), 3),
    (lambda x: np.sqrt(x * x + 0.25), 3),
    (lambda x: x - x * x / 128, 3),
    (lambda x: x / np.sqrt(1 + x * x / 64), 8),
    (lambda x: x + np.exp(-x) / 8, 6),
    (lambda x: x - x * np.sqrt(x) / 64, 4),
    (lambda x: x + 0.125 / (1 + np.log(1 + x)), 7),
    (lambda x: x + 0.125 / np.sqrt(x), 6),
)

TWO_WAY = Variant("two-way", facts={"ways": 2})
EIGHT_WAY = Variant("eight-way", facts={"ways": 8})

FRESH_VALUES = 2**20 - 3  # above this a pattern repeats
CHUNK = 2**14  # elements that the CPU's cache holds through all rounds of a path


def plan(problem: Problem) -> Plan:
    n, block = problem.size, problem.tunables["BLOCK_SIZE"]
    blocks = -(-n // (block * problem.tunables["ITEMS_PER_THREAD"]))
    kernel = f"transform{problem.variant.facts['ways']}"
    return Plan(
        buffers=(Buffer("in", "input", np.float32, (n,)), Buffer("out", "output", np.float32, (n,))),
        launches=(Launch(kernel, (blocks,), (block,), ("in", "out", np.uint32(n))),),
    )


def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> dict[str, Array]:
    """Return the pattern's magnitudes, scaled to the range on which the paths contract."""
    magnitudes = np.abs(numerics.fill(pattern, min(problem.size, FRESH_VALUES), np.float32, rng))
    values = SMALLEST + (LARGEST - SMALLEST) * magnitudes / max(magnitudes.max(), 1)
    return {"in": np.resize(values.astype(np.float32), problem.size)}


def reference(problem: Problem, arrays: Mapping[str, Array]) -> Expected:
    start = arrays["in"].astype(np.float64)
    values, tolerance = np.empty_like(start), np.empty_like(start)
    ways = problem.variant.facts["ways"]
    for which in range(ways):
        mine = start[which::ways]
        for begin in range(0, mine.size, CHUNK):
            chunk = slice(which + begin * ways, which + (begin + CHUNK) * ways, ways)
            values[chunk], tolerance[chunk] = follow(which, start[chunk])
    return Expected({"out": values}, {"out": tolerance})


def reference_at(problem: Problem, arrays: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
    start = arrays["in"][places["out"]].astype(np.float64)
    values, tolerance = np.empty_like(start), np.empty_like(start)
    path = places["out"] % problem.variant.facts["ways"]
    for which in range(problem.variant.facts["ways"]):
        values[path == which], tolerance[path == which] = follow(which, start[path == which])
    return Expected({"out": values}, {"out": tolerance})


def follow(which: int, start: Array) -> tuple[Array, Array]:
    """Return where a path leads to, and the bound on a float32 answer's absolute error.

    A round of r relative errors adds at most gamma_r times the larger of its argument and its result. A path only rises
    or only falls, so neither exceeds the larger end, and 64 contracting rounds add up to at most gamma_(64 r) times
    that (Higham, lemma 3.3).
    """
    step, roundings = STEPS[which]
    end = start
    for _ in range(ROUNDS):
        end = step(end)
    return end, numerics.gamma(ROUNDS * roundings, np.float32) * np.maximum(start, end)


def around_block(offset: int) -> Callable[[Mapping[str, int]], int]:
    return lambda tunables: tunables["BLOCK_SIZE"] * tunables["ITEMS_PER_THREAD"] + offset


SIZES = {"n=tile-1": around_block(-1), "n=tile": around_block(0), "n=tile+1": around_block(1)}


def cases(variant: Variant, points: float, sizes: tuple[int, ...]) -> tuple[Case, ...]:
    by_name = {f"n={size}": size for size in sizes} | SIZES
    patterns = {"n=33": numerics.PATTERNS}
    return tuple(
        Case(f"{variant.name} {name}", size, points, patterns.get(name, ("random",)), variant)
        for name, size in by_name.items()
    )


def tier(variant: Variant, threshold: float, points: float, required: bool = False) -> SpeedTier:
    return SpeedTier(threshold, points, 2**24, required=required, simulated_size=2**18, variant=variant)


def uses(name: str, bound: Bound, points: float, variant: Variant) -> UsesCheck:
    return UsesCheck(name, (bound,), points, 2**16, required=False, variant=variant)


exercise = Exercise(
    title="divergence: element i takes path i % 2 or i % 8",
    plan=plan,
    inputs=inputs,
    reference=reference,
    reference_at=reference_at,
    cases=(
        *cases(TWO_WAY, 2.5, (1, 2, 31, 32, 33, 1024, 2053)),
        *cases(EIGHT_WAY, 3, (1, 7, 31, 33, 1023, 1025, 2053)),
    ),
    safe=(SafeCheck("memory", 2), SafeCheck("barrier", 1), SafeCheck("race", 1), SafeCheck("uninitialised", 1)),
    uses=(
        uses("full warps two-way", concepts.working_lanes(28, "paths.cuh"), 2, TWO_WAY),
        uses("full warps eight-way", concepts.working_lanes(28, "paths.cuh"), 3, EIGHT_WAY),
        uses("coalesced eight-way", concepts.global_traffic(1.5), 3, EIGHT_WAY),
    ),
    speed=(
        tier(TWO_WAY, 1.5, 12, required=True),
        tier(TWO_WAY, 1.65, 4),
        tier(EIGHT_WAY, 3, 8),
        tier(EIGHT_WAY, 5.5, 8),
    ),
    tunables=(
        Tunable("BLOCK_SIZE", (32, 64, 128, 256, 512, 1024)),
        Tunable("ITEMS_PER_THREAD", range(1, 65), default=1),
    ),
    min_bytes=lambda problem: problem.size * 8,
    headers=("paths.cuh",),
)
