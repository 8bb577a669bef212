"""The constant memory exercise: a field of summed squared distances from a few vectors to every point of a grid.

All threads need the same vectors in the same order, which is what constant memory is made for. The plan passes them
through the symbol `vectors`; the only buffer of the kernel is the field that it writes.
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
    KnownMistake,
    Launch,
    Plan,
    Problem,
    SafeCheck,
    SpeedTier,
    Tunable,
    UsesCheck,
)
from pytest_gpulab.numerics import fill, gamma, unit_roundoff

MAX_VECTORS = 64
CLASSIC_VECTORS = 20
LARGE = (4096, 4096, CLASSIC_VECTORS)
LARGE_SIMULATED = (2048, 2048, CLASSIC_VECTORS)

FEW_PATTERNS = ("random", "fractions")
ROUNDS = "Usual cause: the loop over the vectors. Which is the first one that it takes, and which the last?"
SUM = "Usual cause: a sum that starts anew, or is replaced, in each round."
FIRST_ROUND = (
    "Usual cause: a loop that ends after its first round, or a body outside of it: a `;`, or no braces. Or a loop that "
    "counts down, and a sum that is replaced in each round."
)
INDEX = "Usual cause: an index that stays the same in each round."
CHOSEN = "Usual cause: the terms are compared, where they should be added."
BEYOND = "Usual cause: an index of `vectors` that is not below `count`: nothing was copied there."
TERM = "Usual cause: a formula other than the README's."
TYPE = "Usual cause: an intermediate `int`, which drops the fraction. What type has each intermediate value?"


def plan(problem: Problem) -> Plan:
    width, height, count = problem.size
    tile = (problem.tunables["TILE_X"], problem.tunables["TILE_Y"])
    grid = (-(-width // tile[0]), -(-height // tile[1]))
    arguments = ("out", np.int32(width), np.int32(height), np.int32(count))
    return Plan(
        buffers=(
            Buffer("vectors", "input", np.float32, (count, 2)),
            Buffer("out", "output", np.float32, (height, width)),
        ),
        launches=(Launch("field", grid, tile, arguments),),
        constants={"vectors": "vectors"},
    )


def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> dict[str, Array]:
    """Return vectors in a square on the grid for "random", halves for "fractions"; otherwise those of `fill`."""
    width, height, count = problem.size
    if pattern == "fractions":
        vectors = (rng.integers(-8, 8, (count, 2)) + 0.5).astype(np.float32)
        vectors[0] += (-0.5, 1032)  # an odd number of halves: no sum of all squares is whole; too long for float16
    elif pattern == "random":
        # as far along the short side of the grid as along the other one, so that rounded differences show there, too
        vectors = rng.uniform(-0.5, max(width, height) + 0.5, (count, 2)).astype(np.float32)
    else:
        vectors = fill(pattern, 2 * count, np.float32, rng).reshape(count, 2)
    return {"vectors": vectors}


def reference(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    """Return the field in float64.

    Tolerance: a term passes through a difference, a product (in which the difference's error enters twice), the sum
    of x and y, and at most `count` additions, so gamma_(count + 4) bounds the error relative to the terms' magnitudes
    (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1). Those magnitudes are taken as
    (|x| + |vx|)**2 + (|y| + |vy|)**2, so that an expanded square x*x - 2*x*vx + vx*vx passes as well.

    Where the vectors are multiples of a half and the magnitudes add up to at most 1/(4u), no operation rounds and
    nothing is allowed: on a large grid the tolerance of other vectors is more than a number cut off makes.
    """
    width, height, _ = problem.size
    x, y = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]
    values, tolerance = field(x, y, inputs["vectors"])
    return Expected({"out": values}, {"out": tolerance})


def reference_at(problem: Problem, inputs: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
    y, x = np.divmod(places["out"], problem.size[0])
    values, tolerance = field(x.astype(np.float64), y.astype(np.float64), inputs["vectors"])
    return Expected({"out": values}, {"out": tolerance})


def field(x: Array, y: Array, vectors: Array) -> tuple[Array, Array]:
    """Return the values at points, and the bound on a float32 answer's absolute error.

    Terms of x and y are summed apart: all points of a column share those of x.
    """
    vx, vy = vectors.T.astype(np.float64)
    values = sum((x - v) ** 2 for v in vx) + sum((y - v) ** 2 for v in vy)
    bound = gamma(len(vectors) + 4, np.float32)
    tolerance = bound * sum((x + abs(v)) ** 2 for v in vx) + bound * sum((y + abs(v)) ** 2 for v in vy)
    if np.all(2 * vectors == np.rint(2 * vectors)):
        tolerance[tolerance <= bound / (4 * unit_roundoff(np.float32))] = 0
    return values, tolerance


def mistakes(problem: Problem, inputs: Mapping[str, Array]) -> tuple[KnownMistake, ...]:
    """Return the results of loops over too many or too few vectors, and sums of other terms than squared distances."""
    width, height, count = problem.size
    x, y = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]
    vectors = inputs["vectors"].astype(np.float64)
    squares = [(x - vx) ** 2 + (y - vy) ** 2 for vx, vy in vectors]
    total, nowhere = sum(squares), x**2 + y**2  # the array holds 0 behind the vectors
    straight = [abs(x - vx) + abs(y - vy) for vx, vy in vectors]
    padded = sum(squares[:CLASSIC_VECTORS]) + max(CLASSIC_VECTORS - count, 0) * nowhere
    whole_x = [np.trunc(x - vx) ** 2 + (y - vy) ** 2 for vx, vy in vectors]
    whole_y = [(x - vx) ** 2 + np.trunc(y - vy) ** 2 for vx, vy in vectors]
    whole = [np.trunc(x - vx) ** 2 + np.trunc(y - vy) ** 2 for vx, vy in vectors]
    found = {
        ("the sum over one vector too many", ROUNDS): total + nowhere,
        ("the sum over the whole array, beyond `count`", ROUNDS): total + (MAX_VECTORS - count) * nowhere,
        ("the sum without the last vector", ROUNDS): total - squares[-1],
        ("the sum without the first vector", ROUNDS): total - squares[0],
        ("the term of the last vector alone", SUM): squares[-1],
        ("the term of the first vector alone", FIRST_ROUND): squares[0],
        (f"the sum over {CLASSIC_VECTORS} vectors, not {count}", ROUNDS): padded,
        ("the first vector's term for every vector", INDEX): count * squares[0],
        ("the result of vectors that are (0, 0)", BEYOND): count * nowhere,
        ("the sum over every other vector", ROUNDS): sum(squares[::2]),
        ("the sum over vectors 1 to `count`", ROUNDS): total - squares[0] + nowhere,
        ("the largest of the terms", CHOSEN): np.max(squares, axis=0),
        ("the smallest of the terms", CHOSEN): np.min(squares, axis=0),
        ("the sum of distances, not of their squares", TERM): sum(map(np.sqrt, squares)),
        ("the root of the sum", TERM): np.sqrt(total),
        ("the sum of distances along the axes", TERM): sum(straight),
        ("the sum of the squares of whole numbers", TYPE): sum(whole),
        ("the sum of the squares of whole numbers along x", TYPE): sum(whole_x),
        ("the sum of the squares of whole numbers along y", TYPE): sum(whole_y),
    }
    return tuple(KnownMistake(what, {"out": values}, cause) for (what, cause), values in found.items())


def fixed(width: int, height: int, count: int, points: float, *patterns: str) -> Case:
    vectors = "" if count == CLASSIC_VECTORS else f", {count} vector" + "s" * (count > 1)
    return Case(f"{width}x{height}{vectors}", (width, height, count), points, (*FEW_PATTERNS, *patterns))


def around_tile(name: str, off_x: int, off_y: int, points: float) -> Case:
    def size(tunables: Mapping[str, int]) -> tuple[int, int, int]:
        return max(2 * tunables["TILE_X"] + off_x, 1), max(2 * tunables["TILE_Y"] + off_y, 1), CLASSIC_VECTORS

    return Case(name, size, points, FEW_PATTERNS)


exercise = Exercise(
    title="Constant memory: a field of squared distances",
    plan=plan,
    inputs=inputs,
    reference=reference,
    reference_at=reference_at,
    mistakes=mistakes,
    tunables=(
        Tunable("TILE_X", (1, 2, 4, 8, 16, 32)),
        Tunable("TILE_Y", (1, 2, 4, 8, 16, 32)),
    ),
    cases=(
        fixed(1, 1, CLASSIC_VECTORS, 4),
        fixed(300, 1, CLASSIC_VECTORS, 4),
        fixed(1, 300, CLASSIC_VECTORS, 4),
        around_tile("whole tiles", 0, 0, 4),
        around_tile("tile-1 by tile+1", -1, 1, 5),
        around_tile("tile+1 by tile-1", 1, -1, 5),
        fixed(5, 3, 1, 4, "needle"),
        fixed(97, 61, 2, 4),
        fixed(61, 97, MAX_VECTORS, 4, "alternating"),
        fixed(97, 61, CLASSIC_VECTORS, 4, "equal", "cancellation"),
        fixed(127, 129, 42, 5),
        fixed(256, 256, CLASSIC_VECTORS, 8, "alternating"),
    ),
    safe=(SafeCheck("memory", 3), SafeCheck("barrier", 2), SafeCheck("race", 3), SafeCheck("uninitialised", 2)),
    # Reads of up to 16 bytes bring two vectors at once.
    uses=(
        UsesCheck(
            "constant-memory",
            (concepts.constant_reads(CLASSIC_VECTORS / 2), concepts.constant_broadcast()),
            10,
            (256, 256, CLASSIC_VECTORS),
        ),
    ),
    # Measured on an H200: 3.3x with constant memory, 0.2x with a lane-dependent index. Of the 3.3x, 2.7x come from
    # a sum in a register, with the vectors in global memory.
    speed=(
        SpeedTier(2, 15, size=LARGE, required=True, simulated_size=LARGE_SIMULATED),
        SpeedTier(3, 10, size=LARGE, simulated_size=LARGE_SIMULATED),
    ),
    min_bytes=lambda problem: 4 * problem.size[0] * problem.size[1],  # every point of the field is written once
)
