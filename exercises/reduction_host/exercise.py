"""The host side of a reduction: allocation, copies, launch configuration and the second pass around a given kernel."""

import numpy as np

from pytest_gpulab.program_exercise import (
    Launches,
    MakeProgram,
    Program,
    ProgramCase,
    ProgramExercise,
    ProgramSafe,
    ProgramUse,
)

LARGEST = 1000  # the sum of 2**20 such numbers still fits an int
SIZES = (0, 1, 2, 255, 256, 257, 1025, 70_000)
MANY, FEW_LAUNCHES = 40_000, 4  # with blocks of 32 threads: 1250, 40, 2 and 1 values are left


def numbers(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-LARGEST, LARGEST + 1, n)


def text(values: np.ndarray) -> str:
    """Return the standard input of a run: the count, then the numbers."""
    return "\n".join(map(str, (len(values), *values)))


def sums(n: int) -> MakeProgram:
    def program(rng: np.random.Generator) -> Program:
        values = numbers(n, rng)
        return Program(expected=f"{values.sum()}\n", stdin=text(values))

    return program


def another_operation(rng: np.random.Generator) -> Program:
    """Return a run with another kernel: it combines a and b to a + b - s, with a secret s.

    This operation is associative and commutative, too, with the identity s. So the result is the same for all block
    sizes and numbers of passes, but the host cannot compute it: sum - (n - 1) * s.
    """
    values, secret = numbers(5_000, rng), int(rng.integers(1, LARGEST))
    return Program(
        expected=f"{values.sum() - (len(values) - 1) * secret}\n",
        stdin=text(values),
        defines={"COMBINE(a, b)": f"((a) + (b) - {secret})", "IDENTITY": str(secret)},
        hint="The grader ran the kernel with another operation. Which of the values that you print or add come from "
        "the host?",
    )


def few_launches(rng: np.random.Generator) -> Program:
    values = numbers(MANY, rng)
    hint = "One launch has as many blocks as the input needs. How many values does it leave?"
    bound = Launches("reduce", at_most=FEW_LAUNCHES, hint=hint)
    return Program(expected=f"{values.sum()}\n", stdin=text(values), launches=(bound,))


exercise = ProgramExercise(
    title="the host side of a reduction",
    cases=tuple(ProgramCase(f"n={n}", sums(n), 5) for n in SIZES),
    safe=(
        ProgramSafe("memory", 5),
        ProgramSafe("race", 5),
        ProgramSafe("uninitialised", 5),
        ProgramSafe("leak", 8),
        ProgramSafe("errors", 7),
    ),
    uses=(
        ProgramUse("gpu-result", another_operation, 20, "The printed sum is not computed on the GPU"),
        ProgramUse("few-launches", few_launches, 10),
    ),
    headers=("reduce.cuh",),
    given=("reduce.cuh",),
)
