"""The scan exercise: prefix sums of any length, block by block, inclusive or exclusive.

The submission declares INCLUSIVE and the elements that a block scans, BLOCK_SIZE * ITEMS_PER_THREAD. By default the
plan is scan-then-fan: `scan_block` scans each block's elements and leaves their total in `block_sums`, the totals are
scanned the same way until one block is enough, then `add_offsets` adds them back level by level. With SINGLE_PASS the
plan is one launch of `scan_single_pass` with zeroed scratch memory for a decoupled look-back.
"""

from collections.abc import Mapping

import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import (
    Array,
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
)
from pytest_gpulab.numerics import fill, prefix_sums_at, recursive_depth, scan_tolerance, scan_tolerance_at

# The largest input that a check may choose for a submission's block size: it keeps a simulated run short.
MAX_CHECKED = 1 << 17

# Above this a pattern repeats: 2**25 fresh random numbers would take longer than everything else.
FRESH_VALUES = 2**20 - 3
COUNTED_SIZE = 1 << 18


def elements_per_block(tunables: Mapping[str, int]) -> int:
    return tunables["BLOCK_SIZE"] * tunables["ITEMS_PER_THREAD"]


def level_sizes(problem: Problem) -> list[int]:
    """The number of elements to scan at each level of the recursion: n, its block sums, their block sums, ..."""
    sizes = [problem.size]
    while sizes[-1] > elements_per_block(problem.tunables):
        sizes.append(block_count(sizes[-1], problem))
    return sizes


def block_count(n: int, problem: Problem) -> int:
    return -(-n // elements_per_block(problem.tunables))


def plan(problem: Problem) -> Plan:
    return single_pass_plan(problem) if problem.tunables["SINGLE_PASS"] else scan_then_fan_plan(problem)


def scan_then_fan_plan(problem: Problem) -> Plan:
    sizes = level_sizes(problem)
    source = ["in"] + [f"sums{level}" for level in range(1, len(sizes) + 1)]
    scanned = ["out"] + [f"offsets{level}" for level in range(1, len(sizes))]
    buffers = [
        Buffer("in", "input", np.float32, (problem.size,)),
        Buffer("out", "output", np.float32, (problem.size,)),
    ]
    down, up = [], []
    for level, n in enumerate(sizes):
        blocks = block_count(n, problem)
        buffers.append(Buffer(source[level + 1], "scratch", np.float32, (blocks,)))
        if level > 0:
            buffers.append(Buffer(scanned[level], "scratch", np.float32, (n,)))
        grid, block = (blocks,), (problem.tunables["BLOCK_SIZE"],)
        arguments = (source[level], scanned[level], source[level + 1], np.uint32(n))
        down.append(Launch("scan_block", grid, block, arguments))
        if level + 1 < len(sizes):
            up.append(Launch("add_offsets", grid, block, (scanned[level], scanned[level + 1], np.uint32(n))))
    return Plan(tuple(buffers), (*down, *reversed(up)))


def single_pass_plan(problem: Problem) -> Plan:
    n, blocks = problem.size, block_count(problem.size, problem)
    buffers = (
        Buffer("in", "input", np.float32, (n,)),
        Buffer("out", "output", np.float32, (n,)),
        Buffer("ticket", "scratch", np.uint32, (1,), zeroed=True),
        Buffer("status", "scratch", np.uint64, (blocks,), zeroed=True),
        Buffer("aggregates", "scratch", np.float32, (blocks,)),
        Buffer("prefixes", "scratch", np.float32, (blocks,)),
    )
    arguments = (*(buffer.name for buffer in buffers), np.uint32(n))
    return Plan(buffers, (Launch("scan_single_pass", (blocks,), (problem.tunables["BLOCK_SIZE"],), arguments),))


def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> dict[str, Array]:
    return {"in": np.resize(fill(pattern, min(problem.size, FRESH_VALUES), np.float32, rng), problem.size)}


def additions_in_a_row(problem: Problem) -> int:
    """The roundings that one element may pass through: a chain over all threads of a block, at every level.

    That is generous to any sensible kernel (a tree has only the logarithm of it) and still far too little for one
    that adds in half precision.
    """
    tunables = problem.tunables
    in_a_block = tunables["BLOCK_SIZE"] + tunables["ITEMS_PER_THREAD"]
    if tunables["SINGLE_PASS"]:
        chain = in_a_block + block_count(problem.size, problem)  # looking back block by block
    else:
        chain = (in_a_block + 1) * len(level_sizes(problem))
    return min(chain, recursive_depth(problem.size))


def reference(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    terms = inputs["in"]
    if not problem.tunables["INCLUSIVE"]:
        terms = np.concatenate([np.zeros(1, np.float32), terms[:-1]])
    sums = terms.astype(np.float64)  # eight times faster than to let cumsum convert them itself
    np.cumsum(sums, out=sums)  # large new arrays cost more than the sums
    return Expected({"out": sums}, {"out": scan_tolerance(terms, np.float32, additions_in_a_row(problem))})


def reference_at(problem: Problem, inputs: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
    is_inclusive = problem.tunables["INCLUSIVE"]
    terms, counts = inputs["in"][: None if is_inclusive else -1], places["out"] + is_inclusive
    tolerance = scan_tolerance_at(terms, counts, np.float32, additions_in_a_row(problem))
    return Expected({"out": prefix_sums_at(terms, counts)}, {"out": tolerance})


def every_level_partial(tunables: Mapping[str, int]) -> int:
    """Three levels where they fit, else two, each ending in a block that is not full."""
    block = elements_per_block(tunables)
    three_levels = block * block + block + 1
    return three_levels if three_levels <= MAX_CHECKED else 5 * block + block // 2 + 1


def fixed(n: int, points: float, *patterns: str) -> Case:
    return Case(f"n={n}", n, points, patterns or ("random",))


def around_block(name: str, offset: int, points: float, *patterns: str) -> Case:
    return Case(name, lambda tunables: elements_per_block(tunables) + offset, points, patterns)


exercise = Exercise(
    title="Scan: prefix sums of any length",
    plan=plan,
    inputs=inputs,
    reference=reference,
    reference_at=reference_at,
    tunables=(
        Tunable("BLOCK_SIZE", range(32, 1025, 32)),
        Tunable("ITEMS_PER_THREAD", range(1, 17), default=1),
        Tunable("INCLUSIVE", (0, 1)),
        Tunable("SINGLE_PASS", (0, 1), default=0),
    ),
    # Integers are exact: one element too few shows in long sums as well, where the tolerance of others is above that.
    cases=(
        fixed(1, 3),
        fixed(2, 3, "random", "integers"),
        fixed(31, 3, "alternating"),
        fixed(32, 3, "equal"),
        fixed(33, 3, "random"),
        around_block("n=block-1", -1, 4, "random", "needle"),
        around_block("n=block", 0, 4, "random", "cancellation"),
        around_block("n=block+1", 1, 4, "random", "needle"),
        fixed(1023, 3, "alternating"),
        fixed(1024, 3, "random", "equal"),
        fixed(1025, 3, "random"),
        fixed(4099, 4, "needle", "integers"),
        fixed(10007, 5, "integers", "cancellation"),
        Case("every level partial", every_level_partial, 10, ("integers",)),
    ),
    safe=(SafeCheck("memory", 3), SafeCheck("barrier", 2), SafeCheck("race", 3), SafeCheck("uninitialised", 2)),
    uses=(
        UsesCheck("conflict-free", (concepts.bank_conflicts(0.1),), 3, COUNTED_SIZE, required=False),
        UsesCheck("work-efficient", (concepts.additions(6),), 4, COUNTED_SIZE, required=False),
    ),
    # Measured on an H200. Over naive.cu (0.188 ms at 2^22): Blelloch 3.2x, Hillis-Steele 4.1x, with padding 4.3x, warp
    # shuffles 8.4x, single pass 8.2x and 10.6x. Over blelloch.cu (0.432 ms at 2^25): Hillis-Steele 1.4x, the same with
    # two buffers and Blelloch with padding 1.5x, warp shuffles 3.0x, single pass 3.3x and 4.3x.
    speed=(
        SpeedTier(2, 17, size=1 << 22, required=True, simulated_size=1 << 21),
        SpeedTier(1.1, 6, size=1 << 25, baseline="blelloch.cu", simulated_size=1 << 21),
        SpeedTier(2, 5, size=1 << 25, baseline="blelloch.cu", simulated_size=1 << 21),
    ),
    min_bytes=lambda problem: 8 * problem.size,  # every element is read once and written once
    # Two correct runs of a look-back may differ in the last bits: a block adds up whatever its predecessors
    # have published by then.
    deterministic=False,
)
