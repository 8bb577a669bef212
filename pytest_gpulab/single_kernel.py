"""Exercises with one launch of one kernel, from a NumPy function: `single_kernel` has defaults for everything else.

The kernel's parameters are the inputs, `out`, and the extents as `int`: `n`, or `width` and `height`. Arrays of two
dimensions are stored by rows: `in[y * width + x]`. There is at least one thread per element of the size, in blocks of
the student's `BLOCK_SIZE`, or of `TILE_X` x `TILE_Y`. With a tunable `ITEMS_PER_THREAD`, each block covers
that many times as many elements, or rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import numerics
from .exercise import (
    Buffer,
    Case,
    Exercise,
    ExerciseError,
    Expected,
    Launch,
    Plan,
    Problem,
    SafeCheck,
    Size,
    SpeedTier,
    Tunable,
    UsesCheck,
)

Array = npt.NDArray[Any]
Reference = Callable[..., Array]
Values = Callable[[np.random.Generator, tuple[int, ...]], Array]

SAFE = tuple(SafeCheck(kind, 2.5) for kind in ("memory", "barrier", "race", "uninitialised"))
EDGES = (32, 64, 128, 256, 512, 1024), (1, 2, 4, 8, 16, 32)
TIMED_SIZES: Mapping[int, tuple[Size, Size]] = {1: (2**25, 2**22), 2: ((8192, 2048), (2048, 2048))}
"""Sizes of the speed checks by dimension: on a GPU, and on the simulated one."""


@dataclass(frozen=True)
class Output:
    """An output array.

    Attributes:
        dtype: as in NumPy.
        shape: function from the extents (n, or width and height) to the shape; that of the inputs if None.
        zeroed: whether it holds zeros before the launch, as for atomics.
    """

    dtype: npt.DTypeLike
    shape: Callable[..., tuple[int, ...]] | None = None
    zeroed: bool = False


def single_kernel(
    title: str,
    kernel: str,
    *,
    inputs: Mapping[str, npt.DTypeLike],
    output: npt.DTypeLike | Output,
    reference: Reference,
    tolerance: float | Callable[..., Array] = 0,
    speed: Mapping[float, float],
    uses: Sequence[UsesCheck] = (),
    dimensions: int = 1,
    values: Values | Mapping[str, Values] | None = None,
    patterns: Sequence[str] | None = None,
    **more: Any,
) -> Exercise:
    """Return an exercise of one kernel with the output `out`.

    Args:
        title, kernel: the title for reports, the kernel's name.
        inputs: the dtype of each input array, by name, in the kernel's order.
        output: the dtype of `out`, or its description.
        reference: function from the inputs, floats as float64, to the expected output.
        tolerance: largest absolute error, or a function from the inputs to it; 0 is exact.
        speed: points by required speedup over `naive.cu`; the first is required, the others are bonuses.
        uses: the `uses` checks.
        dimensions: 1 or 2.
        values: function from a generator and a shape to input values, or one per pattern; `numerics.fill` if None.
        patterns: patterns of `numerics.fill`, "random" and "needle" if None; not with `values`, which has its own.
            The first one is timed, but "bits" instead if it is among them.
        more: further attributes of `Exercise`, in place of the defaults.

    The points that `uses` and `speed` leave are for correctness: 2.5 for each kind of hazard, the rest for the cases.

    Raises:
        ExerciseError: an argument is wrong; and as `Exercise`.
    """
    output = output if isinstance(output, Output) else Output(output)
    made = _SingleKernel(kernel, inputs, output, reference, tolerance, dimensions, values)
    if found := [*_problems(made, speed, uses), *_of_patterns(values, patterns), *_of_tunables(made, more)]:
        raise ExerciseError("\n".join(f"single_kernel: {problem}" for problem in found))
    defaults = _defaults(made, speed, uses, patterns)
    return Exercise(title, made.plan, made.contents, made.expected, **{**defaults, **more})


@dataclass(frozen=True)
class _SingleKernel:
    """The functions of an exercise of one kernel; the attributes are arguments of `single_kernel`."""

    kernel: str
    inputs: Mapping[str, npt.DTypeLike]
    output: Output
    reference: Reference
    tolerance: float | Callable[..., Array]
    dimensions: int
    values: Values | Mapping[str, Values] | None

    @property
    def tunables(self) -> tuple[str, ...]:
        """Names of the block's extents."""
        return ("BLOCK_SIZE",) if self.dimensions == 1 else ("TILE_X", "TILE_Y")

    def plan(self, problem: Problem) -> Plan:
        """Return the plan: one launch with a thread per element."""
        extents, block = _extents(problem.size), tuple(problem.tunables[name] for name in self.tunables)
        if len(extents) != self.dimensions:
            what = f"the size {problem.size!r} has {len(extents)} extents, but `dimensions` is {self.dimensions}"
            raise ExerciseError(what)
        covered = (*block[:-1], block[-1] * _items(problem.tunables))
        shape, out = extents[::-1], self.output
        with _called_as("shape(n)" if self.dimensions == 1 else "shape(width, height)"):
            out_shape = shape if out.shape is None else out.shape(*extents)
        buffers = [Buffer(name, "input", dtype, shape) for name, dtype in self.inputs.items()]
        buffers.append(Buffer("out", "output", out.dtype, out_shape, zeroed=out.zeroed))
        grid = tuple(-(-extent // elements) for extent, elements in zip(extents, covered, strict=True))
        arguments = (*self.inputs, "out", *map(np.int32, extents))
        return Plan(tuple(buffers), (Launch(self.kernel, grid, block, arguments),))

    def contents(self, problem: Problem, pattern: str, rng: np.random.Generator) -> dict[str, Array]:
        """Return the inputs' contents."""
        shape = _extents(problem.size)[::-1]
        own = self.values[pattern] if isinstance(self.values, Mapping) else self.values
        with _called_as("values(rng, shape)"):
            return {name: _values(own, pattern, shape, dtype, rng) for name, dtype in self.inputs.items()}

    def expected(self, problem: Problem, arrays: Mapping[str, Array]) -> Expected:
        """Return the reference and its tolerance."""
        given = [_exact(arrays[name]) for name in self.inputs]
        names = ", ".join(self.inputs)
        with _called_as(f"tolerance({names})"):
            allowed = self.tolerance(*given) if callable(self.tolerance) else self.tolerance
        with _called_as(f"reference({names})"):
            return Expected({"out": self.reference(*given)}, {"out": allowed})

    def least_bytes(self, problem: Problem) -> int:
        """Return the bytes of all arrays."""
        return sum(buffer.nbytes for buffer in self.plan(problem).buffers)


def _defaults(
    made: _SingleKernel, speed: Mapping[float, float], uses: Sequence[UsesCheck], patterns: Sequence[str] | None
) -> dict[str, Any]:
    own = made.values if isinstance(made.values, Mapping) else ("random",)
    tried = tuple(own if made.values is not None else patterns or ("random", "needle"))
    return {
        "cases": _cases(made.dimensions, _left(speed, uses), tried),
        "safe": SAFE,
        "uses": tuple(uses),
        "speed": _tiers(speed, made.dimensions),
        "tunables": tuple(Tunable(name, EDGES[made.dimensions - 1]) for name in made.tunables),
        "min_bytes": made.least_bytes,
        "mixable": made.values is None,
    }


@contextmanager
def _called_as(call: str) -> Iterator[None]:
    """Add the call to an error of types: the parameters of an instructor's function may be wrong."""
    try:
        yield
    except (TypeError, AttributeError) as error:
        vars(error)["__notes__"] = [f"It is called as {call}."]  # as `add_note`, which Python 3.10 lacks
        raise


def _problems(made: _SingleKernel, speed: Any, uses: Any) -> Iterator[str]:
    """Yield arguments that the defaults cannot be made from."""
    if made.dimensions not in (1, 2):
        yield f"`dimensions` must be 1 or 2, but is {made.dimensions!r}"
    if not isinstance(made.inputs, Mapping):
        yield f"`inputs` must be a mapping of names to dtypes, but is {made.inputs!r}"
    elif "out" in made.inputs:
        yield "`inputs` has 'out', which is the output's name"
    is_list = isinstance(uses, Sequence) and all(isinstance(check, UsesCheck) for check in uses)
    if not is_list:
        yield f"`uses` must be a list of UsesCheck, but is a {type(uses).__name__}"
    if not isinstance(speed, Mapping):
        yield f"`speed` must be a mapping of speedups to points, but is {speed!r}"
    elif is_list and (left := _left(speed, uses)) < 0:
        yield f"`speed` and `uses` leave {left:g} points for the cases"
    values = made.values.values() if isinstance(made.values, Mapping) else [made.values]
    functions = [("`reference`", made.reference), ("`shape` of Output", made.output.shape)]
    for name, value in (*functions, *(("`values`", value) for value in values)):
        if not callable(value) and (value is not None or name == "`reference`"):
            yield f"{name} must be a function, but is {value!r}"


def _of_patterns(values: object, patterns: object) -> Iterator[str]:
    if values is not None and patterns is not None:
        yield "`patterns` are those of `numerics.fill`, which `values` replaces: give one of them"
    if isinstance(patterns, str):
        yield f"`patterns` must be a list of texts, but is {patterns!r}"


def _of_tunables(made: _SingleKernel, more: Mapping[str, Any]) -> Iterator[str]:
    given = {getattr(tunable, "name", "") for tunable in more.get("tunables", ())}
    for name in made.tunables if "tunables" in more else ():
        if name not in given:
            yield f"`tunables` lacks {name}, the block's extent"


def _items(tunables: Mapping[str, int]) -> int:
    return tunables.get("ITEMS_PER_THREAD", 1)


def _elements(tunables: Mapping[str, int]) -> int:
    return tunables["BLOCK_SIZE"] * _items(tunables)


def _rows(tunables: Mapping[str, int]) -> int:
    return tunables["TILE_Y"] * _items(tunables)


def _extents(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _values(
    values: Values | None, pattern: str, shape: tuple[int, ...], dtype: npt.DTypeLike, rng: np.random.Generator
) -> Array:
    if values is not None:
        return np.asarray(values(rng, shape)).astype(dtype)
    return numerics.fill(pattern, int(np.prod(shape)), dtype, rng).reshape(shape)


def _exact(values: Array) -> Array:
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def _tiers(speed: Mapping[float, float], dimensions: int) -> tuple[SpeedTier, ...]:
    size, simulated = TIMED_SIZES[dimensions]
    return tuple(
        SpeedTier(threshold, points, size, required=number == 0, simulated_size=simulated)
        for number, (threshold, points) in enumerate(speed.items())
    )


def _left(speed: Mapping[float, float], uses: Sequence[UsesCheck]) -> float:
    """Return the points for the cases."""
    return 100 - sum(speed.values()) - sum(check.points for check in uses) - sum(check.points for check in SAFE)


def _cases(dimensions: int, points: float, patterns: tuple[str, ...]) -> tuple[Case, ...]:
    """Return cases at every edge of a block, with whole points but for the last one.

    Timed runs take the first pattern of the first case. "bits" shows the most there, but is hard to read elsewhere.
    """
    sizes = _LINES if dimensions == 1 else _FIELDS
    each = max(points // len(sizes), 0)
    rest = points - each * (len(sizes) - 1)
    timed_first = tuple(sorted(patterns, key="bits".__ne__))
    return tuple(
        Case(name, size, rest if number == len(sizes) - 1 else each, patterns if number else timed_first)
        for number, (name, size) in enumerate(sizes.items())
    )


_LINES: Mapping[str, Size | Callable[[Mapping[str, int]], Size]] = {
    "n=1": 1,
    "n=31": 31,
    "n=33": 33,
    "n=block-1": lambda tunables: _elements(tunables) - 1,
    "n=block": _elements,
    "n=block+1": lambda tunables: _elements(tunables) + 1,
    "n=1025": 1025,
    "n=100003": 100003,
}
_FIELDS: Mapping[str, Size | Callable[[Mapping[str, int]], Size]] = {
    "1x1": (1, 1),
    "300x1": (300, 1),
    "1x300": (1, 300),
    "whole tiles": lambda tunables: (3 * tunables["TILE_X"], 2 * _rows(tunables)),
    "tile+1 by 2 tiles-1": lambda tunables: (tunables["TILE_X"] + 1, 2 * _rows(tunables) - 1),
    "97x61": (97, 61),
    "61x97": (61, 97),
    "127x129": (127, 129),
}
