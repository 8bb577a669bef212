"""Reduction: combine n values into one; one partial result per block, relaunched on the partials until one is left."""

from collections.abc import Callable, Mapping

import numpy as np

from pytest_gpulab import concepts, numerics
from pytest_gpulab.exercise import (
    DEFAULT_VARIANT,
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
    Variant,
)

SizeOf = Callable[[Mapping[str, int]], int]  # a size that depends on the tunables

DTYPES = {"int32": np.int32, "float32": np.float32}
C_TYPES = {"int32": "int", "float32": "float"}

# Integer sums and products go through unsigned, where C++ defines that they wrap around.
OPERATIONS = {
    ("int32", "sum"): ("(int)((unsigned)(a) + (unsigned)(b))", "0"),
    ("int32", "product"): ("(int)((unsigned)(a) * (unsigned)(b))", "1"),
    ("int32", "max"): ("max((a), (b))", "(-2147483647 - 1)"),
    ("int32", "min"): ("min((a), (b))", "2147483647"),
    ("float32", "sum"): ("((a) + (b))", "0.0f"),
    ("float32", "product"): ("((a) * (b))", "1.0f"),
    ("float32", "max"): ("fmaxf((a), (b))", "(-3.402823466e+38f)"),
    ("float32", "min"): ("fminf((a), (b))", "3.402823466e+38f"),
}

UFUNCS = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum}

# Exponents of the float factors add up to at most this, so that no product of any of them over- or underflows.
PRODUCT_LOG2 = 20

# Above this a pattern repeats, except for few values: 2**26 new random numbers take longer than all other work.
FRESH_VALUES = 2**20 - 3


def variant(dtype: str, operation: str) -> Variant:
    """Return how the source is compiled for one element type and operation; the header's default is the int32 sum."""
    code, identity = OPERATIONS[dtype, operation]
    defines = {"GPULAB_T": C_TYPES[dtype], "GPULAB_OP(a, b)": code, "GPULAB_IDENTITY": identity}
    return Variant(f"{dtype}-{operation}", defines, {"dtype": DTYPES[dtype], "operation": operation})


INT_SUM = variant("int32", "sum")


def dtype_and_operation(problem: Problem) -> tuple[type, str]:
    facts = INT_SUM.facts if problem.variant is DEFAULT_VARIANT else problem.variant.facts
    return facts["dtype"], facts["operation"]


def tile(tunables: Mapping[str, int]) -> int:
    """Return the elements that a block consumes in one step."""
    return tunables["BLOCK_SIZE"] * tunables["ITEMS_PER_THREAD"]


def levels(problem: Problem) -> list[tuple[int, int]]:
    """Return (elements, blocks) of each launch, until one block is enough."""
    counts: list[tuple[int, int]] = []
    cap = problem.tunables["MAX_BLOCKS"] or problem.size
    elements = problem.size
    while not counts or elements > 1:
        blocks = min(-(-elements // tile(problem.tunables)), cap)
        counts.append((elements, blocks))
        elements = blocks
    return counts


def plan(problem: Problem) -> Plan:
    dtype, _ = dtype_and_operation(problem)
    buffers = [Buffer("in", "input", dtype, (problem.size,), may_change=True), Buffer("out", "output", dtype, (1,))]
    launches, source = [], "in"
    for depth, (elements, blocks) in enumerate(levels(problem)):
        target = "out" if blocks == 1 else f"partials{depth}"
        if blocks > 1:
            buffers.append(Buffer(target, "scratch", dtype, (blocks,)))
        arguments = (source, target, np.uint32(elements))
        launches.append(Launch("reduce", (blocks,), (problem.tunables["BLOCK_SIZE"],), arguments))
        source = target
    return Plan(tuple(buffers), tuple(launches))


def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> dict[str, Array]:
    dtype, operation = dtype_and_operation(problem)
    count = min(problem.size, FRESH_VALUES)
    if operation == "product":
        values = factors(pattern, count, dtype, rng)
    else:
        values = numerics.fill(pattern, count, dtype, rng)
    if operation in ("max", "min"):
        values = at_the_end(pattern, operation, values)
    if problem.size > FRESH_VALUES and dtype is np.int32:
        values *= np.int32(2 * rng.integers(2**16, 2**20) + 1)  # all 32 bits of the timed values matter
    return {"in": numerics.repeated(values, problem.size, rng)}


def at_the_end(pattern: str, operation: str, values: Array) -> Array:
    """Return values that show what a maximum or minimum starts with: those at the end of the type's range.

    "equal" is the identity itself. The result of "needle" is 0, so that a kernel that leaves out zeros is wrong.
    """
    ends = np.finfo(np.float32) if values.dtype == np.float32 else np.iinfo(np.int32)
    identity, sign = (ends.min, -1) if operation == "max" else (ends.max, 1)
    if pattern == "equal":
        return np.full_like(values, identity)
    if pattern == "needle":
        return (values.max() - values) * values.dtype.type(sign)
    if pattern == "random":
        near = values * np.float32(2e38) if values.dtype == np.float32 else values + np.int32(ends.max - 1001)
        return near * values.dtype.type(sign)
    return values


def factors(pattern: str, count: int, dtype: type, rng: np.random.Generator) -> Array:
    """Return factors that each change the product: odd integers, which wrap around but lose none; or floats near 1.

    Only "needle" is ones and a 0. The floats are +-2**e with the sum of |e| at most PRODUCT_LOG2, so that the bound of
    `product_tolerance` holds.
    """
    if pattern == "needle":
        return (numerics.fill(pattern, count, dtype, rng) == 0).astype(dtype)
    if dtype is np.int32:
        return 2 * numerics.fill(pattern, count, dtype, rng) + dtype(1)
    if pattern == "fractions":
        return exact_factors(count, rng).astype(dtype)
    exponents = numerics.fill(pattern, count, np.float64, rng)
    exponents *= PRODUCT_LOG2 / max(np.abs(exponents).sum(), 1)
    return (np.exp2(exponents) * rng.choice([-1, 1], count)).astype(dtype)


def exact_factors(count: int, rng: np.random.Generator) -> Array:
    """Return factors with float32 products that are exact in any order: -1, a few -2 and -1/2, one with all 24 digits.

    All are negative, so that each of them changes the sign.
    """
    values = -np.ones(count)
    values[rng.integers(0, count, PRODUCT_LOG2)] *= np.exp2(rng.choice([-1, 1], PRODUCT_LOG2))
    values[rng.integers(count)] = -(1 + (2 * rng.integers(2**22) + 1) / 2**23)
    return values


def is_exact(problem: Problem) -> bool:
    """Return True if the result has no rounding error."""
    dtype, operation = dtype_and_operation(problem)
    return dtype is np.int32 or operation in ("max", "min")


def reference(problem: Problem, arrays: Mapping[str, Array]) -> Expected:
    dtype, operation = dtype_and_operation(problem)
    values = arrays["in"]
    exact = is_exact(problem)
    result = UFUNCS[operation].reduce(values, dtype=dtype if exact else np.float64)
    if exact:
        return Expected({"out": np.array([result])})
    if operation == "sum":
        tolerance = numerics.sum_tolerance(values, dtype, additions(problem))
    else:
        tolerance = numerics.product_tolerance(values, dtype)
    return Expected({"out": np.array([result])}, {"out": tolerance})


def mistakes(problem: Problem, arrays: Mapping[str, Array]) -> tuple[KnownMistake, ...]:
    """Return the result of launches in which each block takes the elements of the first one."""
    dtype, operation = dtype_and_operation(problem)
    exact = is_exact(problem)
    values = arrays["in"]
    with np.errstate(all="ignore"):  # of factors that are repeated often
        for _, blocks in levels(problem):
            first = UFUNCS[operation].reduce(values[: tile(problem.tunables)], dtype=dtype if exact else np.float64)
            values = np.full(blocks, first)
    what = "the result of blocks that all take the first block's elements"
    cause = "Usual cause: an index that is the same in each block. Which elements are those of block 1?"
    return (KnownMistake(what, {"out": values}, cause),)


def additions(problem: Problem) -> int:
    """Return the maximal number of additions that an element passes through, for any order within the blocks.

    A block that combines k elements puts an element through at most k - 1 additions; the levels add up.
    """
    step = tile(problem.tunables)
    depth = 0
    for elements, blocks in levels(problem):
        steps = -(-elements // (step * blocks))
        depth += min(elements, steps * step) - 1
    return depth


def partial_everywhere(tunables: Mapping[str, int]) -> int:
    """Return a size beyond 2**16, where indices of 16 bits end, with a partial last block at every level."""
    step = tile(tunables)
    return step * (2**16 // step + 1) + step // 2 + 1


# Grading a submission takes as long as its replays, so every pattern is tried at some sizes only.
FEW_PATTERNS = ("random", "needle")
ALL_PATTERNS_AT = ("n=33", "n=block+1", "n=1025")

SIZES: dict[str, int | SizeOf] = {
    "n=1": 1,
    "n=2": 2,
    "n=31": 31,
    "n=32": 32,
    "n=33": 33,
    "n=block-1": lambda tunables: tunables["BLOCK_SIZE"] - 1,
    "n=block": lambda tunables: tunables["BLOCK_SIZE"],
    "n=block+1": lambda tunables: tunables["BLOCK_SIZE"] + 1,
    "n=tile+1": lambda tunables: tile(tunables) + 1,
    "n=1023": 1023,
    "n=1024": 1024,
    "n=1025": 1025,
    "n=4099": 4099,
    "n=partial-at-every-level": partial_everywhere,
}


def two_levels(tunables: Mapping[str, int]) -> int:
    return tile(tunables) + 33


def beyond_two_tiles(tunables: Mapping[str, int]) -> int:
    return max(2 * tile(tunables) + 33, 4099)


def int_sum(name: str, size: int | SizeOf) -> Case:
    return Case(name, size, 2.5, numerics.PATTERNS if name in ALL_PATTERNS_AT else FEW_PATTERNS)


def other(dtype: str, operation: str, size: int | SizeOf, patterns: tuple[str, ...]) -> Case:
    return Case(f"{dtype}-{operation}", size, 3, patterns, variant(dtype, operation))


COUNTED_SIZE = 2**20


def tier(threshold: float, points: float, required: bool = False, simulated: float | None = None) -> SpeedTier:
    size = {"size": 2**26, "simulated_size": 2**23}
    return SpeedTier(threshold, points, required=required, simulated_threshold=simulated, **size)


exercise = Exercise(
    title="reduction: sum, max, min and product of n values",
    plan=plan,
    inputs=inputs,
    reference=reference,
    mistakes=mistakes,
    cases=(
        *(int_sum(name, size) for name, size in SIZES.items()),
        other("int32", "max", two_levels, ("random", "needle", "equal")),
        other("int32", "min", two_levels, ("random", "needle", "equal")),
        other("int32", "product", two_levels, ("random", "needle")),
        other("float32", "sum", beyond_two_tiles, numerics.PATTERNS),
        other("float32", "max", two_levels, ("random", "equal", "cancellation")),
        other("float32", "min", two_levels, ("random", "equal", "cancellation")),
        other("float32", "product", two_levels, ("random", "equal", "fractions")),
    ),
    safe=(SafeCheck("memory", 1), SafeCheck("barrier", 1), SafeCheck("race", 1), SafeCheck("uninitialised", 1)),
    uses=(
        UsesCheck("coalesced", (concepts.global_traffic(1.1),), 3, COUNTED_SIZE, required=False),
        UsesCheck("conflict-free", (concepts.bank_conflicts(0.1, accesses=16),), 3, COUNTED_SIZE, required=False),
        UsesCheck("few-barriers", (concepts.barriers(4),), 3, COUNTED_SIZE, required=False),
    ),
    speed=(tier(1.4, 8, required=True), tier(1.8, 6, simulated=1.6), tier(2.4, 8), tier(4.3, 9)),
    tunables=(
        Tunable("BLOCK_SIZE", (32, 64, 128, 256, 512, 1024)),
        Tunable("ITEMS_PER_THREAD", range(1, 65), default=1),
        Tunable("MAX_BLOCKS", range(2**16), default=0),
    ),
    min_bytes=lambda problem: problem.size * 4,
    version="2",
)
