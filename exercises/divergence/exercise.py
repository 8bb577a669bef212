"""Divergence: element i takes path i % 2 (or i % 8); the student chooses which thread does which element.

Every path repeats a step 64 times on values that start between SMALLEST and LARGEST. The results are compared bit for
bit. That is fair, because a step has only operations that IEEE 754 rounds in one way. Products that are added to
something are exact, so a fused multiply-add changes nothing. And it is strict: after 64 rounds the last digits depend
on each rounding, so that no polynomial and no higher precision gives the same numbers. A careful division of one's own
does, and it is faster. So a speedup counts only for full warps in paths.cuh.
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
    KnownMistake,
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

# The steps of paths.cuh, operation by operation, on float32 arrays.
STEPS = (
    lambda x: (x + 0.03125) / (1 + 0.0009765625 * x),
    lambda x: np.sqrt(x * (x + 0.25)),
    lambda x: x * (64 + x) / (65 + x),
    lambda x: x / (1 + 0.015625 * x),
    lambda x: np.sqrt(x * (x + 1)),
    lambda x: np.sqrt(x * (x - 0.00390625)),
    lambda x: x * (65 + x) / (64 + x),
    lambda x: x * (8 + x) / (8.125 + x),
)

TWO_WAY = Variant("two-way", facts={"ways": 2})
EIGHT_WAY = Variant("eight-way", facts={"ways": 8})

FRESH_VALUES = 2**20 - 3  # above this a pattern repeats, but for single values, and each time with another factor
CHUNK = 2**14  # elements that stay in the CPU's cache during all rounds of a path


def plan(problem: Problem) -> Plan:
    n, block = problem.size, problem.tunables["BLOCK_SIZE"]
    blocks = -(-n // (block * problem.tunables["ITEMS_PER_THREAD"]))
    kernel = f"transform{problem.variant.facts['ways']}"
    return Plan(
        buffers=(Buffer("in", "input", np.float32, (n,)), Buffer("out", "output", np.float32, (n,))),
        launches=(Launch(kernel, (blocks,), (block,), ("in", "out", np.uint32(n))),),
    )


def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> dict[str, Array]:
    """Return the pattern's magnitudes, scaled to the range from which the paths start.

    No value returns at a fixed distance: a thread could copy the result, and would need fewer paths.
    """
    fresh = min(problem.size, FRESH_VALUES)
    magnitudes = np.abs(numerics.fill(pattern, fresh, np.float32, rng))
    # "random" goes up to 1.5; scaled by its own maximum, a single element would always start from a whole number
    largest = max(magnitudes.max(), 1.5)
    magnitudes = numerics.repeated(magnitudes, problem.size, rng)
    for first in range(fresh, problem.size, fresh):
        magnitudes[first : first + fresh] *= np.float32(rng.uniform(0.5, 1))
    return {"in": (SMALLEST + (LARGEST - SMALLEST) * magnitudes / largest).astype(np.float32)}


def reference(problem: Problem, arrays: Mapping[str, Array]) -> Expected:
    start = arrays["in"]
    values = np.empty_like(start)
    ways = problem.variant.facts["ways"]
    for which in range(ways):
        mine = start[which::ways]
        for begin in range(0, mine.size, CHUNK):
            values[which::ways][begin : begin + CHUNK] = follow(which, mine[begin : begin + CHUNK])
    return Expected({"out": values}, {"out": 0})


def reference_at(problem: Problem, arrays: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
    start = arrays["in"][places["out"]]
    values = np.empty_like(start)
    path = places["out"] % problem.variant.facts["ways"]
    for which in range(problem.variant.facts["ways"]):
        values[path == which] = follow(which, start[path == which])
    return Expected({"out": values}, {"out": 0})


def mistakes(problem: Problem, arrays: Mapping[str, Array]) -> tuple[KnownMistake, ...]:
    """Return the results of every path for all elements."""
    start, ways = arrays["in"], problem.variant.facts["ways"]
    taken = "Usual cause: the condition or the table that chooses the path. Which path belongs to the element's index?"
    with np.errstate(all="ignore"):  # a path may not lead far from 0
        return tuple(KnownMistake(f"the result of path {k}", {"out": follow(k, start)}, taken) for k in range(ways))


def follow(which: int, start: Array) -> Array:
    """Return the results of a path from float32 values, each operation rounded to float32."""
    x = start
    for _ in range(ROUNDS):
        x = STEPS[which](x)
    return x


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
    sizes = {"size": 2**24, "simulated_size": 2**20}
    return SpeedTier(threshold, points, **sizes, required=required, variant=variant, needs=f"full warps {variant.name}")


def uses(name: str, points: float, variant: Variant, *bounds: Bound, required: bool = False) -> UsesCheck:
    return UsesCheck(name, bounds, points, 2**16, required=required, variant=variant)


# A path has 750 to 860 instructions per element. More than FEW, or other code beside the paths: calls for show, which
# fill the warps.
FEW = 1300
FULL_WARPS = (
    concepts.working_lanes(28, "paths.cuh"),
    concepts.file_share(0.75, "paths.cuh"),
    concepts.instructions(FEW),
)


exercise = Exercise(
    title="divergence: element i takes path i % 2 or i % 8",
    plan=plan,
    inputs=inputs,
    reference=reference,
    reference_at=reference_at,
    mistakes=mistakes,
    cases=(
        *cases(TWO_WAY, 2.5, (1, 2, 31, 32, 33, 1024, 2053)),
        *cases(EIGHT_WAY, 3, (1, 7, 31, 33, 1023, 1025, 2053)),
    ),
    safe=(SafeCheck("memory", 2), SafeCheck("barrier", 1), SafeCheck("race", 1), SafeCheck("uninitialised", 1)),
    uses=(
        uses("full warps two-way", 2, TWO_WAY, *FULL_WARPS, required=True),
        uses("full warps eight-way", 3, EIGHT_WAY, *FULL_WARPS),
        uses("coalesced eight-way", 3, EIGHT_WAY, concepts.global_traffic(1.5)),
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
