"""Replay of a plan on a device: allocate, fill, poison, launch, read back. The device never sees expected values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import (
    Device,
    DeviceError,
    Hazard,
    KernelFault,
    LargerLaunch,
    LaunchOptions,
    LaunchProfile,
    Memory,
    Module,
)
from pytest_gpulab.exercise import Array, Buffer, Launch, Plan

if TYPE_CHECKING:  # needed for hazards and faults
    from pytest_gpulab.grading.plans.parameter_names import Scene

_chance = SystemRandom()


class Poison(NamedTuple):
    """The contents of memory that no kernel has written yet.

    Floats are signaling NaNs. Arithmetic makes quiet NaNs of them. So an element with the poison's very bits was never
    written, and a NaN with other bits was computed from poison.
    """

    float_bits: Mapping[int, int]  # bits of the NaN by item size in bytes
    byte: int  # the value of each byte of other types

    def filled(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return an array full of poison."""
        pattern = _bits(self._pattern(np.dtype(dtype)).view(dtype))
        return np.full(shape, pattern[0], pattern.dtype).view(dtype)

    def remaining(self, array: Array) -> Array:
        """Return which elements still hold poison: bool, flat."""
        bits = _bits(array)
        return np.asarray(bits == self._pattern(array.dtype).view(bits.dtype))

    def _pattern(self, dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
        if dtype.kind == "f" and dtype.itemsize in self.float_bits:
            bits = self.float_bits[dtype.itemsize].to_bytes(dtype.itemsize, "little")
            return np.frombuffer(bits, np.uint8)
        return np.full(dtype.itemsize, self.byte, np.uint8)


@dataclass(frozen=True)
class StandIn(Launch):
    """A launch from which the time of `larger`, the launch at the size for a GPU, is estimated."""

    larger: LargerLaunch | None = None


def changed_elements(before: Array, after: Array) -> int:
    """Return how many elements differ in any bit."""
    return int(np.count_nonzero(_bits(before) != _bits(after)))


def _bits(array: Array) -> Array:
    """Return each element's bytes as one integer where one is wide enough: 50 times faster than as raw bytes."""
    size = array.dtype.itemsize
    values: Array = np.ascontiguousarray(array).reshape(-1)
    return values.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


class Repetition(NamedTuple):
    """A variation of a replay; correct results do not depend on it."""

    how: str  # words for messages, to follow "correct" or "wrong"
    options: LaunchOptions
    poison: Poison


_POISON = Poison({2: 0x7D5A, 4: 0x7FA5A5A5, 8: 0x7FF5A5A5A5A5A5A5}, byte=0xA5)
_OTHER_POISON = Poison({2: 0xFCBA, 4: 0xFFBADBAD, 8: 0xFFF3ADBADBADBADB}, byte=0x5A)

FIRST = Repetition("in the first run", LaunchOptions("lockstep", fill=0xFF, check=True), _POISON)
DECOY = Repetition("before", replace(FIRST.options, check=False), _POISON)
AGAIN = Repetition("in the second", LaunchOptions("lockstep", fill=0xA5), _OTHER_POISON)
LAST_WARP_FIRST = Repetition("when the last warp runs first", LaunchOptions("warps-reversed", fill=0xA5), _OTHER_POISON)
LAST_BLOCK_FIRST = Repetition(
    "when the last block starts first", LaunchOptions("blocks-reversed", fill=0xA5), _OTHER_POISON
)
FIRST_WARP_FIRST = Repetition("when the first warp runs first", LaunchOptions("warps", fill=0xA5), _OTHER_POISON)


@dataclass(frozen=True)
class Run:
    """The result of one replay."""

    # the output buffers' contents; empty if the replay ended early or was not read back
    outputs: Mapping[str, Array] = field(default_factory=dict)
    # count of changed elements by input buffer, for inputs that must not change
    changed: Mapping[str, int] = field(default_factory=dict)
    profiles: tuple[LaunchProfile, ...] = ()  # one per launch that ended normally
    damage: tuple[Hazard, ...] = ()  # writes beyond buffers, found in their guard zones
    error: DeviceError | None = None  # the error that ended the replay early

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """All hazards, those of a launch that ended with a fault included."""
        last = self.error.hazards if isinstance(self.error, KernelFault) else ()
        return (*(hazard for profile in self.profiles for hazard in profile.hazards), *last, *self.damage)

    @property
    def reads_garbage(self) -> bool:
        """True if a kernel was seen to read global memory before any write: a result may then equal the poison."""
        return any(hazard.kind == "uninitialised" and "__global__" in hazard.what for hazard in self.hazards)

    @property
    def printed(self) -> str:
        """The output of the kernels, that of a launch that ended with a fault included."""
        last = self.error.output if isinstance(self.error, KernelFault) else ""
        return "".join(profile.output for profile in self.profiles) + last


class Arrays:
    """The device memory of a plan's buffers, with the same addresses in several replays."""

    def __init__(self, device: Device, plan: Plan) -> None:
        self._device, self._buffers = device, allocated(plan)
        self._memories: dict[str, Memory] = {}

    def filled(self, inputs: Mapping[str, Array], poison: Poison) -> Mapping[str, Memory]:
        """Allocate missing buffers, and write the initial contents of all.

        They are allocated in random order, so that no kernel can rely on the order of their addresses.
        """
        for buffer in _chance.sample(self._buffers, len(self._buffers)):
            contents = initial_contents(buffer, inputs, poison)
            if buffer.name in self._memories:
                self._memories[buffer.name].set(contents)
            else:
                self._memories[buffer.name] = self._device.array(contents)
            if is_poisoned(buffer):
                self._memories[buffer.name].mark_unwritten()
        return {buffer.name: self._memories[buffer.name] for buffer in self._buffers}

    def free(self) -> None:
        """Free the memory."""
        with contextlib.suppress(DeviceError):  # after a kernel broke the device, it frees nothing
            for memory in self._memories.values():
                memory.free()
        self._memories.clear()


def replay(
    device: Device,
    module: Module,
    plan: Plan,
    inputs: Mapping[str, Array],
    repetition: Repetition,
    read_back: bool = True,
    arrays: Arrays | None = None,
    scene: Callable[[Plan, Mapping[str, Memory]], Scene] | None = None,
) -> Run:
    """Run a plan once, in the given arrays or in fresh memory; a device's error is part of the result.

    Hazards name the plan's buffers, or what `scene` says; it is called if there are hazards.
    """
    used = arrays or Arrays(device, plan)
    profiles: list[LaunchProfile] = []
    memories: Mapping[str, Memory] = {}
    named = cache(lambda: (scene or _unnamed)(plan, memories))
    try:
        memories = used.filled(inputs, repetition.poison)
        for symbol, name in plan.constants.items():
            module.set_constant(symbol, inputs[name])
        for launch in plan.launches:
            args = [memories[arg] if isinstance(arg, str) else arg for arg in launch.args]
            options = repetition.options
            if isinstance(launch, StandIn):
                options = replace(options, larger=launch.larger)
            profile = module.launch(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes, options)
            hazards = tuple(named().hazard(len(profiles), hazard) for hazard in profile.hazards)
            profiles.append(profile._replace(hazards=hazards) if hazards else profile)
        return _finished(named, plan, inputs, memories, profiles) if read_back else Run(profiles=tuple(profiles))
    except KernelFault as fault:
        return Run(profiles=tuple(profiles), error=_without_frames(named().fault(len(profiles), fault)))
    except DeviceError as error:
        return Run(profiles=tuple(profiles), error=_without_frames(error))
    finally:
        if arrays is None:
            used.free()


def _unnamed(plan: Plan, memories: Mapping[str, Memory]) -> Scene:
    from pytest_gpulab.grading.plans.parameter_names import Scene

    return Scene(plan, memories, {})


def _without_frames(error: DeviceError) -> DeviceError:
    """Return an error without its traceback, the frames of which hold all memory of the launch."""
    error.__context__ = None
    return error.with_traceback(None)


def allocated(plan: Plan) -> list[Buffer]:
    """Return the buffers that need device memory: all but those that only fill a constant."""
    arguments = {arg for launch in plan.launches for arg in launch.args if isinstance(arg, str)}
    return [buffer for buffer in plan.buffers if buffer.name in arguments or buffer.role == "output"]


def initial_contents(buffer: Buffer, inputs: Mapping[str, Array], poison: Poison) -> Array:
    """Return a buffer's contents before the first launch."""
    if buffer.role == "input":
        return inputs[buffer.name]
    if is_poisoned(buffer):
        return poison.filled(buffer.shape, buffer.dtype)
    return np.zeros(buffer.shape, buffer.dtype)


def is_poisoned(buffer: Buffer) -> bool:
    """Return True if a read of the buffer before any write is a hazard."""
    return buffer.role != "input" and not buffer.zeroed


def _finished(
    named: Callable[[], Scene],
    plan: Plan,
    inputs: Mapping[str, Array],
    memories: Mapping[str, Memory],
    profiles: Sequence[LaunchProfile],
) -> Run:
    outputs: dict[str, Array] = {}
    changed: dict[str, int] = {}
    for name, memory in memories.items():
        buffer = plan.buffer(name)
        if buffer.role == "output":
            outputs[name] = memory.get()
        elif buffer.role == "input" and not buffer.may_change:
            changed[name] = changed_elements(inputs[name], memory.get())
    damaged = [(name, memory) for name, memory in memories.items() if memory.damage(name)]
    reports = (memory.damage(named().damaged(name)) for name, memory in damaged)
    damage = tuple(Hazard("memory", report) for report in reports if report)
    return Run(outputs, {name: count for name, count in changed.items() if count}, tuple(profiles), damage)
