"""What an instructor writes: an `Exercise`, and the `Plan` that says, as data, how it runs at one size.

This module knows nobody. An exercise folder's `exercise.py` builds one `Exercise` and binds it to the
name `exercise`; everything in it is plain data or a pure function of a `Problem`. The same plan is checked,
poisoned, guarded, timed and printed on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Role = Literal["input", "output", "scratch"]
Size = int | tuple[int, ...]

MAX_BLOCK_THREADS = 1024
MAX_GRID_Y_Z = 65535


class ExerciseError(Exception):
    """An exercise contradicts itself: the instructor's mistake, never the student's."""


@dataclass(frozen=True)
class Tunable:
    """A compile-time integer that the student chooses with `GPULAB_TUNABLE(NAME, value)`.

    Attributes:
        name: the C++ identifier.
        allowed: the values that the exercise accepts.
        default: the value assumed when the submission does not declare it; None makes declaring it a duty.
    """

    name: str
    allowed: Sequence[int]
    default: int | None = None


@dataclass(frozen=True)
class Variant:
    """One way to compile the same source: macro definitions, and what Python needs to know of them.

    Attributes:
        name: shown in check ids, such as `float32-max`.
        defines: macros given to the compiler, such as `{"GPULAB_T": "float", "GPULAB_OP(a, b)": "max((a), (b))"}`.
        facts: anything that the exercise's own functions want to look up, such as the dtype.
    """

    name: str = "default"
    defines: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


DEFAULT_VARIANT = Variant()


@dataclass(frozen=True)
class Problem:
    """One size of an exercise for one submission: what `plan`, `inputs` and `reference` are functions of.

    Attributes:
        size: elements, or a tuple such as (width, height, count).
        tunables: the submission's compile-time choices by name, validated.
        variant: how the source was compiled.
    """

    size: Any
    tunables: Mapping[str, int]
    variant: Variant = DEFAULT_VARIANT


@dataclass(frozen=True)
class Buffer:
    """A named array in device memory.

    Attributes:
        name: how launches and constants refer to it.
        role: an input is filled by the grader, an output is poisoned and then compared, scratch is poisoned only.
        dtype, shape: as NumPy understands them.
        may_change: for an input, whether the kernel may overwrite it; else it is verified unchanged.
        zeroed: for scratch or output, zero bytes instead of poison before the first launch (status flags, counters).
    """

    name: str
    role: Role
    dtype: npt.DTypeLike
    shape: tuple[int, ...]
    may_change: bool = False
    zeroed: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes the buffer holds."""
        return prod(map(int, self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        kernel: the name in the source, unmangled.
        grid, block: one to three extents each.
        args: in the kernel's order; a `str` is a buffer's address, a NumPy scalar is passed by value with its dtype.
        shared_bytes: dynamic shared memory.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[str | np.generic, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """How an exercise runs at one size, as data.

    Attributes:
        buffers: allocated before, compared after.
        launches: executed in order.
        constants: `__constant__` symbol to the input buffer that holds its contents; such an input need not be
            an argument of any launch.

    Raises:
        ExerciseError: where names do not match up or an extent is out of CUDA's range.
    """

    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    constants: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [buffer.name for buffer in self.buffers]
        if len(set(names)) != len(names):
            raise ExerciseError(f"two buffers of the plan share a name: {sorted(names)}")
        for launch in self.launches:
            _check_launch(launch, set(names))
        inputs = {buffer.name for buffer in self.buffers if buffer.role == "input"}
        for symbol, name in self.constants.items():
            if name not in inputs:
                raise ExerciseError(f"constant {symbol!r} takes its contents from {name!r}, which is no input buffer")

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)


def _check_launch(launch: Launch, buffer_names: set[str]) -> None:
    where = f"launch of {launch.kernel!r}"
    for extents in (launch.grid, launch.block):
        if not 1 <= len(extents) <= 3 or min(extents) < 1:
            raise ExerciseError(
                f"{where}: grid {launch.grid} and block {launch.block} need 1 to 3 extents of at least 1"
            )
    if int(np.prod(launch.block)) > MAX_BLOCK_THREADS:
        raise ExerciseError(f"{where}: a block of {launch.block} has more than {MAX_BLOCK_THREADS} threads")
    if max(launch.grid[1:], default=1) > MAX_GRID_Y_Z:
        raise ExerciseError(f"{where}: grid {launch.grid} exceeds {MAX_GRID_Y_Z} in y or z")
    for argument in launch.args:
        if isinstance(argument, str):
            if argument not in buffer_names:
                raise ExerciseError(f"{where}: no buffer is called {argument!r}")
        elif not isinstance(argument, np.generic):
            raise ExerciseError(f"{where}: {argument!r} is neither a buffer's name nor a NumPy scalar with a dtype")


@dataclass(frozen=True)
class Expected:
    """What a right submission leaves in the output buffers.

    Attributes:
        values: output buffer to the reference (float64, or exact integers of the buffer's dtype).
        tolerance: output buffer to the largest absolute error allowed, one number or one an element; 0 is exact.
            It must come from an error bound: see `pytest_gpulab.numerics`.
    """

    values: Mapping[str, Array]
    tolerance: Mapping[str, float | Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One `correct[...]` check: a size, a variant and the input patterns to try, worth some points.

    Attributes:
        name: the part between the brackets of the check's id, such as `n=1023`; unique in the exercise.
        size: a size, or a function of the tunables that gives it (`n=block+1`).
        points: earned if every pattern is right, in both repetitions.
        patterns: handed to the exercise's `inputs` one after the other.
        variant: how to compile.
        hidden: whether students are told neither its name nor its size nor any value, only the kind of their mistake
            and a hint. It hides from files and pages made for students, not from who has the exercise's folder.
    """

    name: str
    size: Size | Callable[[Mapping[str, int]], Size]
    points: float
    patterns: tuple[str, ...] = ("random",)
    variant: Variant = DEFAULT_VARIANT
    hidden: bool = False

    def problem(self, tunables: Mapping[str, int]) -> Problem:
        """Return this case for one submission's tunables."""
        size = self.size(tunables) if callable(self.size) else self.size
        return Problem(size, tunables, self.variant)


@dataclass(frozen=True)
class SafeCheck:
    """One `safe[...]` check: a kind of hazard that must not occur in any of the exercise's cases.

    Attributes:
        kind: `memory` (out of bounds, misaligned), `barrier` (divergent or unreachable barriers), `race` (threads that
            use the same memory in no order) or `uninitialised` (memory read before it was written).
        points: earned if no hazard of the kind was seen.
    """

    kind: Literal["memory", "barrier", "race", "uninitialised"]
    points: float


@dataclass(frozen=True)
class Usage:
    """What a submission's launches did at one size, as the simulated GPU counted it.

    Attributes:
        counters: sums over all launches, under Nsight Compute's names.
        files: the same split by the source file that did it, such as `paths.cuh`.
        problem: what was run.
        min_bytes: that any solution must move at this size; None where the exercise does not say.
    """

    counters: Mapping[str, float]
    files: Mapping[str, Mapping[str, float]]
    problem: Problem
    min_bytes: float | None = None


@dataclass(frozen=True)
class Bound:
    """What a figure made of counters must keep to; `pytest_gpulab.concepts` has the usual ones.

    Attributes:
        what: the figure in words, to follow a number: `addresses per request`.
        measure: the figure of a usage.
        at_most, at_least: what it must keep to; one of the two.
        hint: what to think about where it does not; never the solution.
        title: what is wrong where it does not: `Too many barriers`.

    Raises:
        ExerciseError: neither or both are given.
    """

    what: str
    measure: Callable[[Usage], float]
    at_most: float | None = None
    at_least: float | None = None
    hint: str = ""
    title: str = "Idea not used as asked"

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ExerciseError(f"a bound on {self.what!r} needs either at_most or at_least")


@dataclass(frozen=True)
class UsesCheck:
    """One `uses[...]` check: the idea was really used, which results and speed alone do not show.

    Attributes:
        name: the part between the brackets of the check's id, such as `constant-memory`; unique in the exercise.
        bounds: all of them must be kept.
        points: earned if they are.
        size: at which the simulated GPU counts, wherever the rest is graded.
        required: missing it fails; a check that is not required is a bonus.
        variant: how to compile.
    """

    name: str
    bounds: tuple[Bound, ...]
    points: float
    size: Size
    required: bool = True
    variant: Variant = DEFAULT_VARIANT


@dataclass(frozen=True)
class SpeedTier:
    """One `speedup[...]` check.

    Attributes:
        threshold: how many times faster than the baseline, on any GPU that has no calibration.
        points: earned when reached.
        required: missing it fails; a tier that is not required is a bonus (points lost, no failure).
        baseline: a `.cu` file of the exercise's folder.
        size: the size at which a GPU is timed.
        simulated_size: the size at which the simulated GPU estimates the cost (None: the same).
        simulated_threshold: what the simulated GPU asks for, where its estimates are known to be off (None: the same);
            the name stays what it is.
        variant: how both are compiled.
    """

    threshold: float
    points: float
    size: Size
    required: bool = False
    baseline: str = "naive.cu"
    simulated_size: Size | None = None
    simulated_threshold: float | None = None
    variant: Variant = DEFAULT_VARIANT

    @property
    def name(self) -> str:
        """The part between the brackets of the check's id: `1.5x`, `4x two-way` or `1.2x blelloch`.

        The variant is named unless it is the default one, the baseline unless it is `naive.cu`.
        """
        variant = "" if self.variant.name == DEFAULT_VARIANT.name else f" {self.variant.name}"
        baseline = "" if self.baseline == "naive.cu" else f" {self.baseline.removesuffix('.cu')}"
        return f"{self.threshold:g}x{variant}{baseline}"


@dataclass(frozen=True)
class KnownMistake:
    """What a usual mistake leaves in the outputs: where a submission has just that, it is told so.

    Attributes:
        what: the result, to follow "is", such as `the result of path 0`.
        values: output buffer to its contents, of the reference's shape.
        cause: a question that leads to the mistake, never the solution.
    """

    what: str
    values: Mapping[str, Array]
    cause: str = ""


@dataclass(frozen=True)
class Exercise:
    """What to compute, on which inputs, with which baseline, which checks and points.

    Attributes:
        title: one line for reports.
        plan: builds the plan from the problem.
        inputs: (problem, pattern, rng) to the contents of every input buffer, by name.
        reference: (problem, inputs) to what must come out, computed on the CPU in float64 or exact integers.
        cases, safe, uses, speed: the checks. Points total 100; correctness (cases and safe) is at least half.
        tunables: the submission's compile-time choices.
        compile_points: points for compiling at all (usually 0).
        min_bytes: problem to the bytes that any solution must move, for the bandwidth column and the roofline.
        version: raised by the instructor when grades are no longer comparable.
        deterministic: whether two runs must agree bit for bit; False where float atomics are allowed.
        headers: file names in the exercise's folder that submissions may include, such as `paths.cuh`.
        mixable: whether a stretch of an input may be replaced by the same stretch of another one, as the timed runs do
            so that none can hand out a stored answer; False where elements depend on each other, as in a sorted array.
        reference_at: (problem, inputs, places) to what must come out at some places: output buffer to indices into the
            flattened buffer, and to values and tolerances in their order. For outputs whose elements are computed one
            by one; a timed output of more than 2^20 elements is then checked at random places instead of everywhere.
        mistakes: (problem, inputs) to what usual mistakes would leave in the outputs; asked where a result is wrong.

    Raises:
        ExerciseError: where names repeat or points do not add up.
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
    min_bytes: Callable[[Problem], int] | None = None
    version: str = "1"
    deterministic: bool = True
    headers: tuple[str, ...] = ()
    mixable: bool = True
    reference_at: Callable[[Problem, Mapping[str, Array], Mapping[str, Array]], Expected] | None = None
    mistakes: Callable[[Problem, Mapping[str, Array]], Sequence[KnownMistake]] | None = None

    def __post_init__(self) -> None:
        if not self.cases:
            raise ExerciseError("an exercise needs at least one case")
        groups: tuple[tuple[str, list[str]], ...] = (
            ("case", [case.name for case in self.cases]),
            ("safe check", [check.kind for check in self.safe]),
            ("uses check", [check.name for check in self.uses]),
            ("speed tier", [tier.name for tier in self.speed]),
            ("tunable", [tunable.name for tunable in self.tunables]),
        )
        for what, names in groups:
            repeated = {name for name in names if names.count(name) > 1}
            if repeated:
                raise ExerciseError(f"more than one {what} is called {sorted(repeated)}")
        self._check_points()

    def _check_points(self) -> None:
        correctness = self.compile_points + sum(case.points for case in self.cases) + sum(c.points for c in self.safe)
        total = correctness + sum(check.points for check in self.uses) + sum(tier.points for tier in self.speed)
        if abs(total - 100) > 1e-9:
            raise ExerciseError(f"the checks' points add up to {total:g}, not 100")
        if correctness < 50:
            raise ExerciseError(f"correctness earns {correctness:g} of 100 points; it must be at least half")
