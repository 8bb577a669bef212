"""Exercises as data: an `Exercise`, and the `Plan` of its buffers and launches at one size.

An exercise folder's `exercise.py` binds an `Exercise` to the name `exercise`. It is plain data and pure functions of
a `Problem`, so that every device replays the same plan. This module imports no part of the package but its rules.
"""

from __future__ import annotations  # as texts, which `exercise_rules` compares

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .exercise_rules import MAX_BLOCK_THREADS, NAIVE, exercise_problems, plan_problems, size_problem

Array = npt.NDArray[Any]
Role = Literal["input", "output", "scratch"]
Size = int | tuple[int, ...]


class ExerciseError(Exception):
    """An inconsistent exercise: the instructor's mistake, never the student's."""


class BlockTooLarge(ExerciseError):
    """A block with too many threads: the student's mistake if tunables choose its extents."""


@dataclass(frozen=True)
class Tunable:
    """A compile-time integer that the student chooses with `GPULAB_TUNABLE(NAME, value)`.

    Attributes:
        name: the C++ identifier.
        allowed: the accepted values.
        default: the value for submissions that do not declare it; None if they must.
    """

    name: str
    allowed: Sequence[int]
    default: int | None = None


@dataclass(frozen=True)
class Variant:
    """One way to compile a source: macro definitions, and facts about them for Python.

    Attributes:
        name: part of check ids, such as `float32-max`.
        defines: macros given to the compiler, such as `{"GPULAB_T": "float", "GPULAB_OP(a, b)": "max((a), (b))"}`.
        facts: values for the exercise's own functions, such as the dtype.
    """

    name: str = "default"
    defines: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


DEFAULT_VARIANT = Variant()


@dataclass(frozen=True)
class Problem:
    """One size of an exercise for one submission: the argument of `plan`, `inputs` and `reference`.

    Attributes:
        size: elements, or a tuple such as (width, height, count).
        tunables: the submission's validated compile-time choices, by name.
        variant: the variant of the build.
    """

    size: Any
    tunables: Mapping[str, int]
    variant: Variant = DEFAULT_VARIANT


@dataclass(frozen=True)
class Buffer:
    """A named array in device memory.

    Attributes:
        name: the name in launches and constants.
        role: inputs are filled, outputs are poisoned before and compared after, scratch is poisoned only.
        dtype, shape: as in NumPy.
        may_change: whether a kernel may overwrite this input; otherwise it must stay unchanged.
        zeroed: whether scratch or output holds zeros instead of poison before the first launch (flags, counters).
    """

    name: str
    role: Role
    dtype: npt.DTypeLike
    shape: tuple[int, ...]
    may_change: bool = False
    zeroed: bool = False

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(map(int, self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        kernel: the unmangled name in the source.
        grid, block: 1 to 3 extents each.
        args: in the kernel's order; a `str` is a buffer's address, a NumPy scalar is passed by value.
        shared_bytes: dynamic shared memory per block.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[str | np.generic, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """The buffers and launches of an exercise at one size.

    Attributes:
        buffers: device arrays, allocated before the launches.
        launches: kernel launches, executed in order.
        constants: input buffers with the contents of `__constant__` symbols, by symbol; no launch needs to name them.

    Raises:
        ExerciseError: names do not match, or an extent is out of CUDA's range.
    """

    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    constants: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if found := plan_problems(self, Buffer, Launch):
            raise ExerciseError("\n".join(found))
        for launch in self.launches:
            if prod(map(int, launch.block)) > MAX_BLOCK_THREADS:
                what = f"a block of {launch.block} has more than {MAX_BLOCK_THREADS} threads"
                raise BlockTooLarge(f"launch of {launch.kernel!r}: {what}")
        inputs = {buffer.name for buffer in self.buffers if buffer.role == "input"}
        for symbol, name in self.constants.items():
            if name not in inputs:
                raise ExerciseError(f"constant {symbol!r} takes its contents from {name!r}, which is not an input")

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)


@dataclass(frozen=True)
class Expected:
    """The expected contents of the output buffers.

    Attributes:
        values: references by output buffer (float64, or exact integers of the buffer's dtype).
        tolerance: largest absolute errors by output buffer, one or one per element, from `numerics`; 0 is exact.
    """

    values: Mapping[str, Array]
    tolerance: Mapping[str, float | Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One `correct[...]` check.

    Attributes:
        name: the name in brackets, such as `n=1023`; unique in the exercise.
        size: a size, or a function from tunables to a size (`n=block+1`).
        points: points if every pattern is correct, in both repetitions.
        patterns: input patterns for the exercise's `inputs`.
        variant: the variant to compile.
        hidden: whether students' reports show only the kind of mistake and a hint, not the name, size or values.
    """

    name: str
    size: Size | Callable[[Mapping[str, int]], Size]
    points: float
    patterns: tuple[str, ...] = ("random",)
    variant: Variant = DEFAULT_VARIANT
    hidden: bool = False

    def problem(self, tunables: Mapping[str, int]) -> Problem:
        """Return the case's problem for one submission's tunables, or raise ExerciseError if there is no size."""
        size = self.size(tunables) if callable(self.size) else self.size
        if found := size_problem(size):
            raise ExerciseError(f"case {self.name!r}: the size {found}")
        return Problem(size, tunables, self.variant)


@dataclass(frozen=True)
class SafeCheck:
    """One `safe[...]` check: a kind of hazard that must not occur in any of the exercise's cases.

    Attributes:
        kind: `memory` (out of bounds, misaligned), `barrier` (divergent), `race` (unordered) or `uninitialised` (read).
        points: points if no such hazard occurs.
    """

    kind: Literal["memory", "barrier", "race", "uninitialised"]
    points: float


@dataclass(frozen=True)
class Usage:
    """The simulated GPU's counters of a submission at one size.

    Attributes:
        counters: sums over all launches, by Nsight Compute's names.
        files: the same per source file, such as `paths.cuh`.
        problem: the problem that ran.
        min_bytes: bytes that any solution must move at this size; None if the exercise has no `min_bytes`.
    """

    counters: Mapping[str, float]
    files: Mapping[str, Mapping[str, float]]
    problem: Problem
    min_bytes: float | None = None


@dataclass(frozen=True)
class Bound:
    """A bound on a figure computed from counters; `pytest_gpulab.concepts` has common ones.

    Attributes:
        what: the unit of the figure in words: `addresses per request`.
        measure: a function from a usage to the figure.
        at_most, at_least: the limit; exactly one of them.
        hint: the hint of the finding; never the solution.
        title: the beginning of the finding: `Too many barriers`.
        companion: a further bound, so that the concept is used at all: no access has no conflict.
        none_is_good: True if an upper bound is also met by not using the concept at all, as no barrier is few barriers.

    Raises:
        ExerciseError: neither or both limits are given.
    """

    what: str
    measure: Callable[[Usage], float]
    at_most: float | None = None
    at_least: float | None = None
    hint: str = ""
    title: str = "Concept not used as required"
    companion: Bound | None = None
    none_is_good: bool = False

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ExerciseError(f"a bound on {self.what!r} needs either at_most or at_least")


@dataclass(frozen=True)
class UsesCheck:
    """One `uses[...]` check: the concept is used, which results and speed alone do not show.

    Attributes:
        name: the name in brackets, such as `constant-memory`; unique in the exercise.
        bounds: bounds that must all hold.
        points: points if they hold.
        size: the size at which the simulated GPU counts, also if a real GPU grades the rest.
        required: whether missing it fails; otherwise it is a bonus.
        variant: the variant to compile.
        extra: whether the points come on top of the exercise's 100; such a check is not required.
        compared: whether reads of shared and constant memory count if their values are only compared, as in a sort.
        reused: whether reads of shared memory count only if several threads use the value.
    """

    name: str
    bounds: tuple[Bound, ...]
    points: float
    size: Size
    required: bool = True
    variant: Variant = DEFAULT_VARIANT
    extra: bool = False
    compared: bool = False
    reused: bool = False

    @property
    def all_bounds(self) -> tuple[Bound, ...]:
        """The bounds, each followed by its companion."""
        return tuple(b for bound in self.bounds for b in (bound, bound.companion) if b is not None)


@dataclass(frozen=True)
class SpeedTier:
    """One `speedup[...]` check.

    Attributes:
        threshold: required speedup over the baseline on a GPU without a calibration.
        points: points if reached.
        required: whether missing it fails; otherwise it is a bonus (points lost, no failure).
        baseline: a `.cu` file in the exercise's folder.
        size: the size timed on a GPU.
        simulated_size: the size for the simulated GPU's estimate (None: the same).
        simulated_threshold: required speedup on the simulated GPU, if estimates are known to be off (None: the same).
        variant: the variant of both sides.
        extra: whether the points come on top of the exercise's 100; such a tier is not required.
        needs: the name of a `UsesCheck` of the same variant; without its concept, no speedup counts.
    """

    threshold: float
    points: float
    size: Size
    required: bool = False
    baseline: str = NAIVE
    simulated_size: Size | None = None
    simulated_threshold: float | None = None
    variant: Variant = DEFAULT_VARIANT
    extra: bool = False
    needs: str = ""

    @property
    def name(self) -> str:
        """The name in brackets, with a variant or baseline other than the default: `1.5x`, `1.2x blelloch`."""
        variant = "" if self.variant.name == DEFAULT_VARIANT.name else f" {self.variant.name}"
        baseline = "" if self.baseline == NAIVE else f" {self.baseline.removesuffix('.cu')}"
        return f"{self.threshold:g}x{variant}{baseline}"


@dataclass(frozen=True)
class KnownMistake:
    """The outputs of a common mistake; the finding of a submission with the same outputs names it.

    Attributes:
        what: the result, as a phrase after "is", such as `the result of path 0`.
        values: contents by output buffer, of the reference's shape.
        cause: a question that leads to the mistake; never the solution.
    """

    what: str
    values: Mapping[str, Array]
    cause: str = ""


@dataclass(frozen=True)
class Exercise:
    """An exercise: the computation, its inputs, baseline, checks and points.

    Attributes:
        title: one line for reports.
        plan: function from the problem to the plan.
        inputs: function from (problem, pattern, rng) to the contents of every input buffer, by name.
        reference: function from (problem, inputs) to the expected outputs, in float64 or exact integers.
        cases, safe, uses, speed: the checks. Points total 100, `extra` ones aside; cases and safe have at least half.
        tunables: compile-time choices of submissions.
        compile_points: points for compiling (usually 0).
        hidden_points: points of hidden cases that this copy of the exercise lacks; `gpulab handout` writes them.
        min_bytes: function from the problem to the bytes that any solution must move, for bandwidth and roofline.
        version: to be raised when grades are no longer comparable.
        deterministic: whether two runs must agree bit for bit; False if float atomics are allowed.
        headers: file names in the exercise's folder that submissions may include, such as `paths.cuh`.
        mixable: whether a range of an input may be replaced by the same range of another one. Timed runs do so, to
            defeat stored answers. False if elements depend on each other, as in a sorted array.
        reference_at: function from (problem, inputs, places) to expected values and tolerances at indices into
            flattened outputs. Timed outputs of more than 2^20 elements are then checked at random places only.
        mistakes: function from (problem, inputs) to the outputs of common mistakes, called if a result is wrong.

    Raises:
        ExerciseError: the data break a rule of `exercise_rules`; the message has a line for each.
    """

    title: str
    plan: Callable[[Problem], Plan]
    inputs: Callable[[Problem, str, np.random.Generator], Mapping[str, Array]]
    reference: Callable[[Problem, Mapping[str, Array]], Expected]
    cases: tuple[Case, ...]
    safe: tuple[SafeCheck, ...] = ()
    uses: tuple[UsesCheck, ...] = ()
    speed: tuple[SpeedTier, ...] = ()
    tunables: tuple[Tunable, ...] = ()
    compile_points: float = 0
    hidden_points: float = 0
    min_bytes: Callable[[Problem], int] | None = None
    version: str = "1"
    deterministic: bool = True
    headers: tuple[str, ...] = ()
    mixable: bool = True
    reference_at: Callable[[Problem, Mapping[str, Array], Mapping[str, Array]], Expected] | None = None
    mistakes: Callable[[Problem, Mapping[str, Array]], Sequence[KnownMistake]] | None = None

    def __post_init__(self) -> None:
        if found := exercise_problems(self, _ENTRY_TYPES):
            raise ExerciseError("\n".join(found))


_ENTRY_TYPES = {
    **{"cases": Case, "safe": SafeCheck, "uses": UsesCheck, "bounds": Bound},
    **{"speed": SpeedTier, "tunables": Tunable, "headers": str, "variant": Variant},
}
