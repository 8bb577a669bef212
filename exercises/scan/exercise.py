"""The scan exercise: prefix sums of any length, block by block, inclusive or exclusive.

The submission declares INCLUSIVE and the elements that a block scans, BLOCK_SIZE * ITEMS_PER_THREAD. By default the
plan is scan-then-fan: `scan_block` scans each block's elements and writes their total to `block_sums`, the totals are
scanned the same way until one block is enough, then `add_offsets` adds them back level by level. With SINGLE_PASS the
plan is one launch of `scan_single_pass` with zeroed scratch memory for a decoupled look-back.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import (
    Array,
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
)
from pytest_gpulab.numerics import fill, prefix_sums_at, recursive_depth, repeated, scan_tolerance, scan_tolerance_at

# Above this a pattern repeats, except for few values: 2**25 new random numbers take longer than all other work.
FRESH_VALUES = 2**20 - 3
COUNTED_SIZE = 1 << 18

Halves = Callable[[Array, Array], tuple[Array, Array]]
HALVES = "Usual cause: the halves of a node are exchanged in the down-sweep. Which of them has elements to its left?"
PARENT = "Usual cause: the parent's value is lost in the down-sweep. Is the left half's sum added or assigned?"
ROOT = "Usual cause: the root is not set, or the down-sweep lacks its first step. What is to the left of the root?"


def elements_per_block(tunables: Mapping[str, int]) -> int:
    return tunables["BLOCK_SIZE"] * tunables["ITEMS_PER_THREAD"]


def level_sizes(problem: Problem) -> list[int]:
    """Return the number of elements to scan at each level of the recursion: n, its block sums, their block sums, ..."""
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
    fresh = min(problem.size, FRESH_VALUES)
    values = fill(pattern, fresh, np.float32, rng, -(-problem.size // fresh))
    return {"in": repeated(values, problem.size, rng)}


def additions_in_a_row(problem: Problem) -> int:
    """Return the maximal number of roundings per element: a block may add its elements in any order, at every level.

    An exclusive sum may be the inclusive one minus the element itself.

    In a long sum, the resulting tolerance exceeds the effect of a missing element. So every size is also tested with
    "fractions": their sums are exact in any order, and no error is allowed.
    """
    tile = elements_per_block(problem.tunables)
    if problem.tunables["SINGLE_PASS"]:
        chain = tile + block_count(problem.size, problem)  # looking back block by block
    else:
        chain = sum(min(tile, size) + 1 for size in level_sizes(problem))
    return min(chain, recursive_depth(problem.size)) + (not problem.tunables["INCLUSIVE"])


def reference(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    terms = inputs["in"]
    if not problem.tunables["INCLUSIVE"]:
        terms = np.concatenate([np.zeros(1, np.float32), terms[:-1]])
    sums = terms.astype(np.float64)  # eight times faster than to let cumsum convert them itself
    np.cumsum(sums, out=sums)  # large new arrays cost more than the sums
    return Expected({"out": sums}, {"out": scan_tolerance(inputs["in"], np.float32, additions_in_a_row(problem))})


def reference_at(problem: Problem, inputs: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
    is_inclusive = problem.tunables["INCLUSIVE"]
    terms, counts = inputs["in"][: None if is_inclusive else -1], places["out"] + is_inclusive
    tolerance = scan_tolerance_at(inputs["in"], places["out"] + 1, np.float32, additions_in_a_row(problem))
    return Expected({"out": prefix_sums_at(terms, counts)}, {"out": tolerance})


def mistakes(problem: Problem, inputs: Mapping[str, Array]) -> tuple[KnownMistake, ...]:
    """Return the results of wrong down-sweeps of a tree (Blelloch, Prefix Sums and Their Applications, 1990).

    There are none for elements of one thread: another sum with an element too many has the same result.
    """
    tile, is_of_thread = elements_per_block(problem.tunables), problem.size <= problem.tunables["ITEMS_PER_THREAD"]
    if tile & (tile - 1) or problem.tunables["SINGLE_PASS"] or is_of_thread:
        return ()
    own = inputs["in"].astype(np.float64)
    found = {
        ("with exchanged halves", HALVES): swept(own, tile, lambda parent, left: (parent + left, parent)),
        ("without the parent's value in the right half", PARENT): swept(own, tile, lambda parent, left: (parent, left)),
        ("with exchanged halves, one without the parent's value", HALVES): swept(
            own, tile, lambda parent, left: (parent + left, left)
        ),
        ("that begins with the block's sum", ROOT): swept(own, tile, lambda parent, left: (parent, parent + left), 1),
    }
    added = own if problem.tunables["INCLUSIVE"] else 0
    return tuple(
        KnownMistake(f"the result of a down-sweep {what}", {"out": values + added}, cause)
        for (what, cause), values in found.items()
    )


def swept(values: Array, tile: int, halves: Halves, root: int = 0) -> Array:
    """Return the results of trees of `tile` elements plus the offsets, scanned likewise.

    `halves` returns the values of a node's halves from the node's and the left half's sum; the root has `root` times
    the sum of the tile.
    """
    sums = [np.pad(values, (0, -values.size % tile)).reshape(-1, tile)]
    while sums[-1].shape[1] > 1:
        sums.append(sums[-1][:, ::2] + sums[-1][:, 1::2])
    parent = root * sums[-1]
    for below in reversed(sums[:-1]):
        parent = np.stack(halves(parent, below[:, ::2]), axis=2).reshape(below.shape)
    totals = sums[-1][:, 0]
    offsets = swept(totals, tile, halves, root) if totals.size > 1 else np.zeros(1)
    return np.asarray((parent + offsets[:, None]).reshape(-1)[: values.size])


def every_level_partial(tunables: Mapping[str, int]) -> int:
    """Return a size beyond 2**16, where indices of 16 bits end, with a partial last block at every level.

    In a single pass a warp looks back over 32 blocks at a time, so there are more of them.
    """
    block = elements_per_block(tunables)
    return max(2**16 // block + 1, 40 * tunables["SINGLE_PASS"]) * block + block // 2 + 1


def fixed(n: int, points: float, *patterns: str) -> Case:
    return Case(f"n={n}", n, points, patterns)


def around_block(name: str, offset: int, points: float, *patterns: str) -> Case:
    return Case(name, lambda tunables: elements_per_block(tunables) + offset, points, patterns)


exercise = Exercise(
    title="Scan: prefix sums of any length",
    plan=plan,
    inputs=inputs,
    reference=reference,
    reference_at=reference_at,
    mistakes=mistakes,
    tunables=(
        Tunable("BLOCK_SIZE", range(32, 1025, 32)),
        Tunable("ITEMS_PER_THREAD", range(1, 17), default=1),
        Tunable("INCLUSIVE", (0, 1)),
        Tunable("SINGLE_PASS", (0, 1), default=0),
    ),
    # The first pattern of the first case is also that of the timed runs.
    cases=(
        fixed(1, 3, "fractions", "random"),
        fixed(2, 2, "fractions", "random"),
        fixed(3, 1, "fractions", "random"),
        fixed(31, 3, "fractions", "alternating"),
        fixed(32, 3, "fractions", "equal"),
        fixed(33, 3, "fractions", "random"),
        around_block("n=block-1", -1, 4, "fractions", "needle"),
        around_block("n=block", 0, 4, "fractions", "cancellation"),
        around_block("n=block+1", 1, 4, "fractions", "random"),
        fixed(1023, 3, "fractions", "alternating"),
        fixed(1024, 3, "fractions", "equal"),
        fixed(1025, 3, "fractions", "random"),
        fixed(4099, 4, "fractions", "needle"),
        fixed(10007, 5, "fractions", "cancellation"),
        Case("every level partial", every_level_partial, 10, ("fractions",)),
    ),
    safe=(SafeCheck("memory", 3), SafeCheck("barrier", 2), SafeCheck("race", 3), SafeCheck("uninitialised", 2)),
    uses=(
        UsesCheck("conflict-free", (concepts.bank_conflicts(0.1, accesses=32),), 3, COUNTED_SIZE, required=False),
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
    # Two correct runs of a look-back may differ in the last bits: a block adds the sums that its predecessors
    # have published by then.
    deterministic=False,
)
