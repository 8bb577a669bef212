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
WRONG_SUM = "Which array does each launch read? Which result is printed? Which block sizes does reduce.cuh allow?"
NOT_OF_GPU = "The printed sum is not computed on the GPU"
FEW = "One launch has as many blocks as the input needs. How many values does it leave?"
FEW_LAUNCHES = Launches("reduce", at_most=4, hint=FEW)  # blocks of 32 threads leave 1250, 40, 2 and 1 of 40,000 values


def numbers(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-LARGEST, LARGEST + 1, n)


def text(values: np.ndarray) -> str:
    """Return the standard input of a run: the count, then the numbers."""
    return "\n".join(map(str, (len(values), *values)))


def sums(n: int) -> MakeProgram:
    def program(rng: np.random.Generator) -> Program:
        values = numbers(n, rng)
        return Program(expected=f"{values.sum()}\n", stdin=text(values), hint=WRONG_SUM)

    return program


def another_operation(n: int, *launches: Launches) -> MakeProgram:
    """Return runs with another kernel: it adds secret codes of a and b, and decodes the sum.

    This operation is associative and commutative, too. So the result is the same for all block sizes and numbers of
    passes, but the host cannot compute it. A few results of the kernel do not show the codes: they are mixed twice.
    """

    def program(rng: np.random.Generator) -> Program:
        values = numbers(n, rng)
        mask, *factors = (int(number) | 1 for number in rng.integers(1 << 32, size=3))
        first, second = (f"{factor}u" for factor in factors)
        back = [f"{pow(factor, -1, 1 << 32)}u" for factor in factors]
        code = f"(__brev(__brev(((unsigned)({{}}) ^ {mask}u) * {first}) * {second}))"
        decoded = f"((int)((__brev(__brev({{}}) * {back[1]}) * {back[0]}) ^ {mask}u))"
        total = sum(reversed_bits(reversed_bits((int(value) ^ mask) * factors[0]) * factors[1]) for value in values)
        result = reversed_bits(reversed_bits(total) * pow(factors[1], -1, 1 << 32)) * pow(factors[0], -1, 1 << 32)
        return Program(
            expected=f"{np.uint32((result ^ mask) % (1 << 32)).astype(np.int32)}\n",
            stdin=text(values),
            launches=launches,
            defines={
                "COMBINE(a, b)": decoded.format(f"({code.format('a')} + {code.format('b')})"),
                "IDENTITY": decoded.format("0u"),
            },
            hint="The grader ran the kernel with another operation. Which of the values that you print or add come "
            "from the host?",
        )

    return program


def reversed_bits(number: int) -> int:
    """Return a number's last 32 bits in reverse order, as __brev does."""
    return int(f"{number % (1 << 32):032b}"[::-1], 2)


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
        ProgramUse("gpu-result", another_operation(5_000), 20, NOT_OF_GPU),
        # the host could add if it finds that the kernel does
        ProgramUse("few-launches", another_operation(40_000, FEW_LAUNCHES), 10),
    ),
    headers=("reduce.cuh",),
    given=("reduce.cuh",),
)
