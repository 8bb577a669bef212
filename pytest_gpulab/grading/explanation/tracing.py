"""A trial that runs once more with a trace, and the names and types of the arrays in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.errors import with_axes
from pytest_gpulab.devices.protocol import Device, LaunchProfile, Memory, Module
from pytest_gpulab.devices.trace_events import LaunchTrace, ShuffleEvent, Trace
from pytest_gpulab.exercise import Array, Launch, Plan, Problem
from pytest_gpulab.grading.compilation.builds import Build
from pytest_gpulab.grading.correctness.trials import Trial
from pytest_gpulab.grading.plans.replay import (
    FIRST,
    FIRST_WARP_FIRST,
    LAST_BLOCK_FIRST,
    LAST_WARP_FIRST,
    Arrays,
    Poison,
    Repetition,
    Run,
    allocated,
    is_poisoned,
    replay,
)

from .loops import evaluated, with_constants

C_TYPES = {
    "float": np.float32, "double": np.float64, "int": np.int32, "unsigned": np.uint32, "unsigned int": np.uint32,
    "uint": np.uint32, "short": np.int16, "char": np.int8, "unsigned char": np.uint8, "long long": np.int64,
}  # fmt: skip
_SHUFFLED = re.compile(r"__shfl\w*\s*\([^,]+,\s*(\w+)\s*,")
_VECTOR = re.compile(r"([a-z]+)([234])")
_SHARED = re.compile(r"__shared__\s+((?:unsigned\s+|long\s+)?\w+)\s+(\w[^;]*);")
_DECLARED = re.compile(r"(?:^|,)\s*(\w+)")


@dataclass(frozen=True)
class TracedArray:
    """An array of a launch."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    contents: Array | None  # before the launch's first access; None for shared memory and registers
    # whether a read before a write is a hazard; for memory that earlier launches wrote, per element
    unwritten: bool | npt.NDArray[np.bool_]
    buffer: str = ""  # the name of the plan's buffer; empty for other arrays
    lanes: int = 1  # numbers per element, 2 for `float2`; `shape` counts numbers
    is_register: bool = False  # whether the elements are values of a register, one per thread

    def element(self, index: int) -> str:
        """Return the name of an element by its flat index, such as `tile[y=1, x=0]`, or `v[3].x` for vectors."""
        if not self.shape:
            return self.name
        if self.lanes > 1:
            return f"{self.name}[{index // self.lanes}].{'xyzw'[index % self.lanes]}"
        is_inside = 0 <= index < prod(self.shape)
        return f"{self.name}[{with_axes(np.unravel_index(index, self.shape)) if is_inside else index}]"  # type: ignore[arg-type]

    def label(self, index: int) -> str:
        """Return the index of an element as it stands below its cell."""
        return str(index) if self.lanes == 1 else f"{index // self.lanes}.{'xyzw'[index % self.lanes]}"


@dataclass(frozen=True)
class Traced:
    """A traced trial."""

    trial: Trial
    launches: tuple[LaunchTrace, ...]  # the traces of its launches
    # per launch, by (`shared` or `global`, start or address), or (`register`, line of a shuffle)
    arrays: tuple[Mapping[tuple[str, int], TracedArray], ...]
    scalars: tuple[Mapping[str, int], ...]  # per launch, whole numbers among its arguments by the kernel's parameters
    run: Run
    source: str  # the compiled text
    blocks: frozenset[int]  # the recorded blocks of each launch
    # the order of warps or blocks, as the end of a sentence "The result is wrong ..."; empty if all warps run in step
    order: str = ""
    # a run of the same plan with right results: in another order, or of a baseline. None if none is known
    right: Traced | None = None


def traced(device: Device, build: Build, trial: Trial, blocks: frozenset[int]) -> Traced:
    """Run a trial's plan and record the blocks with these linear indices.

    All warps run in step, unless only another order of warps or blocks gives a wrong result or a fault.
    """
    first = _traced(device, build, trial, blocks, FIRST)
    if trial.outcome.verdict == "failed" and first.run.error is None and not trial.wrong(first.run):
        for repetition in (FIRST_WARP_FIRST, LAST_WARP_FIRST, LAST_BLOCK_FIRST):
            other = _traced(device, build, trial, blocks, repetition)
            if other.run.error is not None or trial.wrong(other.run):
                return replace(other, order=repetition.how, right=first)
    return first


def _traced(device: Device, build: Build, trial: Trial, blocks: frozenset[int], repetition: Repetition) -> Traced:
    trace, plan, inputs = Trace(blocks), trial.prepared.plan, trial.prepared.inputs
    arrays = Arrays(device, plan)
    try:
        memories = arrays.filled(inputs, repetition.poison)
        addresses = {name: int(getattr(memory, "address", 0)) for name, memory in memories.items()}
        recording = repetition._replace(options=replace(repetition.options, check=True, trace=trace))
        snapshots = _Snapshots(build.module, memories, trace)
        run = replay(device, snapshots, plan, inputs, recording, arrays=arrays, scene=build.scene)
    finally:
        arrays.free()
    likely = np.dtype(plan.buffers[0].dtype)
    found = []
    for launch, each, before in zip(plan.launches, snapshots.launches, snapshots.before, strict=False):
        known: dict[tuple[str, int], TracedArray] = {}
        for buffer, array in _of_buffers(plan, launch, build, before, repetition.poison):
            known["global", addresses[buffer]] = array
        for name, (start, nbytes) in each.shared.items():
            known["shared", start] = _shared(name, nbytes, each.block, build.source, trial.problem, likely)
        found.append(known | _registers(each, build.source, likely))
    scalars = tuple(_scalars(launch, build) for launch in plan.launches)
    return Traced(trial, tuple(snapshots.launches), tuple(found), scalars, run, build.source, blocks)


def _scalars(launch: Launch, build: Build) -> dict[str, int]:
    named = zip(build.parameters.get(launch.kernel, ()), launch.args, strict=False)
    return {name: int(argument) for name, argument in named if isinstance(argument, np.integer)}


def _of_buffers(
    plan: Plan, launch: Launch, build: Build, before: Mapping[str, Array], poison: Poison
) -> Iterator[tuple[str, TracedArray]]:
    """Yield the buffers that a launch takes, each with its array."""
    buffers = {buffer.name: buffer for buffer in allocated(plan)}
    names = build.parameters.get(launch.kernel, ())
    for position, argument in enumerate(launch.args):
        if isinstance(argument, str):
            buffer, contents = buffers[argument], before[argument]
            name = names[position] if len(names) == len(launch.args) else argument
            unwritten = is_poisoned(buffer) and poison.remaining(contents)
            yield argument, TracedArray(name, np.dtype(buffer.dtype), buffer.shape, contents, unwritten, buffer.name)


def _shared(
    name: str, nbytes: int, block: tuple[int, int, int], source: str, problem: Problem, likely: np.dtype[Any]
) -> TracedArray:
    """Return an array in shared memory: of its declared type and shape, or else of likely ones."""
    dtype, lanes = _shared_types(source, problem.variant.defines).get(name, (likely, 1))
    shape = _declared_shape(name, source, problem.tunables)
    is_scalar = bool(name) and not re.search(rf"\b{re.escape(name)}\s*\[", source)
    if prod(shape) != nbytes // dtype.itemsize or not (shape or is_scalar):
        shape = _shared_shape(nbytes // dtype.itemsize, block)
    return TracedArray(name or "shared", dtype, shape, None, True, lanes=lanes)


def _registers(trace: LaunchTrace, source: str, dtype: np.dtype[Any]) -> dict[tuple[str, int], TracedArray]:
    """Return the values that threads pass on in shuffles as arrays with an element per thread, by `register` and line.

    A value of another size than 4 bytes is shuffled in parts, which are not shown.
    """
    found: dict[tuple[str, int], TracedArray] = {}
    lines = source.splitlines()
    for event in trace.events:
        if isinstance(event, ShuffleEvent) and event.where is not None and dtype.itemsize == event.bits.shape[1]:
            line = event.where.line
            passed = _SHUFFLED.search(lines[line - 1]) if line <= len(lines) else None
            name = passed[1] if passed else "value"
            found.setdefault(
                ("register", line), TracedArray(name, dtype, (prod(trace.block),), None, True, is_register=True)
            )
    return found


class _Snapshots:
    """A module that notes what the memories hold before each launch, and where the trace of each launch begins."""

    def __init__(self, module: Module, memories: Mapping[str, Memory], trace: Trace) -> None:
        self._module, self._memories, self._trace = module, memories, trace
        self._begins: list[int] = []
        self.before: list[dict[str, Array]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def launch(self, *args: Any) -> LaunchProfile:
        self._begins.append(len(self._trace.launches))
        self.before.append({name: memory.get() for name, memory in self._memories.items()})
        return self._module.launch(*args)

    @property
    def launches(self) -> list[LaunchTrace]:
        """The trace of each launch: the longest one, where the device repeats a launch."""
        found = self._trace.launches
        ends = [*self._begins[1:], len(found)]
        of_launches = (found[begin:end] for begin, end in zip(self._begins, ends, strict=True) if end > begin)
        return [max(each, key=lambda trace: (len(trace.events), len(trace.stuck))) for each in of_launches]


def linear(index: tuple[int, int, int], extents: Sequence[int]) -> int:
    """Return the linear index of a block or thread with indices (x, y, z) among up to three extents."""
    x, y = (*extents, 1, 1)[:2]
    return index[0] + x * (index[1] + y * index[2])


def indices(linear: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the indices (x, y, z) of a linear index among these extents."""
    x, y, _ = extents
    return linear % x, linear // x % y, linear // (x * y)


def _shared_types(source: str, defines: Mapping[str, str]) -> dict[str, tuple[np.dtype[Any], int]]:
    """Return the number types of shared variables and the numbers per element, by name; unknown types are left out."""
    macros = {"GPULAB_T": "int", **defines}
    found: dict[str, tuple[np.dtype[Any], int]] = {}
    for kind, declared in _SHARED.findall(source):
        plain = macros.get(kind, kind)
        vector = _VECTOR.fullmatch(plain)
        number, lanes = (vector[1], int(vector[2])) if vector else (plain, 1)
        if number in C_TYPES:
            found |= dict.fromkeys(_DECLARED.findall(declared), (np.dtype(C_TYPES[number]), lanes))
    return found


def _declared_shape(name: str, source: str, tunables: Mapping[str, int]) -> tuple[int, ...]:
    """Return the extents of a shared array of two dimensions from its declaration; empty if they are not known."""
    declared = re.search(rf"__shared__[^;]*\b{re.escape(name)}\s*\[([^];]+)\]\s*\[([^];]+)\]\s*[,;]", source)
    known = with_constants(source, tunables)
    extents = [evaluated(text, known) for text in declared.groups()] if declared and name else []
    return tuple(extent for extent in extents if extent is not None)


def _shared_shape(elements: int, block: tuple[int, int, int]) -> tuple[int, ...]:
    """Return the likely shape of a shared array: one row per row of a block of two dimensions, perhaps padded."""
    x, y = block[:2]
    if y > 1:
        for rows, columns in ((y, x), (x, y), (y, x + 1), (x, y + 1)):
            if rows * columns == elements:
                return rows, columns
    return (elements,)
