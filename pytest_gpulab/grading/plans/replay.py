"""Replay a plan on a device: allocate, fill, poison, launch, read back; the expected values never come near it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import (
    Device,
    DeviceError,
    Hazard,
    KernelFault,
    LaunchOptions,
    LaunchProfile,
    Memory,
    Module,
)
from pytest_gpulab.exercise import Buffer, Plan

from .hazard_location import Scene
from .parameter_names import Names

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Poison:
    """What memory holds before a kernel writes it.

    Floats get signaling NaNs: arithmetic turns those into quiet ones, so what is still bit for bit the poison was never
    written, while a NaN of other bits was computed from it.

    Attributes:
        float_bits: item size in bytes to the bits of the NaN.
        byte: fills everything that is no float.
    """

    float_bits: Mapping[int, int]
    byte: int

    def filled(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return an array that holds nothing else."""
        pattern = self._pattern(np.dtype(dtype))
        return np.tile(pattern, int(np.prod(shape, dtype=np.int64))).view(dtype).reshape(shape)

    def remaining(self, array: Array) -> Array:
        """Return which elements still hold it: bool, flat."""
        bits = _bits(array)
        return np.asarray(bits == self._pattern(array.dtype).view(bits.dtype))

    def _pattern(self, dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
        if dtype.kind == "f" and dtype.itemsize in self.float_bits:
            bits = self.float_bits[dtype.itemsize].to_bytes(dtype.itemsize, "little")
            return np.frombuffer(bits, np.uint8)
        return np.full(dtype.itemsize, self.byte, np.uint8)


def changed_elements(before: Array, after: Array) -> int:
    """Return how many elements differ in any bit."""
    return int(np.count_nonzero(_bits(before) != _bits(after)))


def _bits(array: Array) -> Array:
    """Return each element's bytes as one integer, which is fifty times faster than byte by byte, or as they are."""
    size = array.dtype.itemsize
    values: Array = np.ascontiguousarray(array).reshape(-1)
    return values.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


@dataclass(frozen=True)
class Repetition:
    """One way to run the same plan: results must not depend on it.

    Attributes:
        how: in words, to follow "right" or "wrong".
    """

    how: str
    options: LaunchOptions
    poison: Poison


_POISON = Poison({2: 0x7D5A, 4: 0x7FA5A5A5, 8: 0x7FF5A5A5A5A5A5A5}, byte=0xA5)
_OTHER_POISON = Poison({2: 0xFCBA, 4: 0xFFBADBAD, 8: 0xFFF3ADBADBADBADB}, byte=0x5A)

FIRST = Repetition("in the first run", LaunchOptions("lockstep", fill=0xFF, check=True), _POISON)
DECOY = Repetition("before", replace(FIRST.options, check=False), _POISON)
AGAIN = Repetition("in the second", LaunchOptions("lockstep", fill=0xA5), _OTHER_POISON)
LAST_WARP_FIRST = Repetition("when the last warp runs first", LaunchOptions("warps-reversed", fill=0xA5), _OTHER_POISON)
FIRST_WARP_FIRST = Repetition("when the first warp runs first", LaunchOptions("warps", fill=0xA5), _OTHER_POISON)


@dataclass(frozen=True)
class Run:
    """What one replay did.

    Attributes:
        outputs: the output buffers' contents afterwards; empty where the replay ended early or was not read back.
        changed: input buffers that may not change to how many of their elements did.
        profiles: one for each launch that came to its end.
        damage: writes outside of buffers, found in their guard zones.
        error: what ended the replay early.
    """

    outputs: Mapping[str, Array] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    profiles: tuple[LaunchProfile, ...] = ()
    damage: tuple[Hazard, ...] = ()
    error: DeviceError | None = None

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """Everything unsafe that did not end the replay, also of the launch that did."""
        last = self.error.hazards if isinstance(self.error, KernelFault) else ()
        return (*(hazard for profile in self.profiles for hazard in profile.hazards), *last, *self.damage)

    @property
    def printed(self) -> str:
        """What the kernels printed, also the one that ended abnormally."""
        last = self.error.output if isinstance(self.error, KernelFault) else ""
        return "".join(profile.output for profile in self.profiles) + last


class Arrays:
    """The device memory of a plan's buffers, at the same addresses in every replay that is given it."""

    def __init__(self, device: Device, plan: Plan) -> None:
        self._device, self._buffers = device, allocated(plan)
        self._memories: dict[str, Memory] = {}

    def filled(self, inputs: Mapping[str, Array], poison: Poison) -> Mapping[str, Memory]:
        """Allocate what is not there yet, and give every buffer what it holds before the first launch."""
        for buffer in self._buffers:
            contents = initial_contents(buffer, inputs, poison)
            if buffer.name in self._memories:
                self._memories[buffer.name].set(contents)
            else:
                self._memories[buffer.name] = self._device.array(contents)
            if is_poisoned(buffer):
                self._memories[buffer.name].mark_unwritten()
        return self._memories

    def free(self) -> None:
        """Give the memory back."""
        with contextlib.suppress(DeviceError):  # a device that a kernel brought down cannot free anything
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
    names: Names = MappingProxyType({}),
    vectors: Mapping[str, int] = MappingProxyType({}),
) -> Run:
    """Run a plan once, in fresh memory that is freed or in the arrays given; a device's error is part of the result.

    What goes wrong is told with the names of the kernels' parameters, as far as `names` has them, and in
    elements of `vectors` where arrays hold such.
    """
    used = arrays or Arrays(device, plan)
    profiles: list[LaunchProfile] = []
    scene = Scene(plan, {}, names, vectors)
    try:
        memories = used.filled(inputs, repetition.poison)
        scene = Scene(plan, memories, names, vectors)
        for symbol, name in plan.constants.items():
            module.set_constant(symbol, inputs[name])
        for launch in plan.launches:
            args = [memories[arg] if isinstance(arg, str) else arg for arg in launch.args]
            profile = module.launch(
                launch.kernel, launch.grid, launch.block, args, launch.shared_bytes, repetition.options
            )
            hazards = tuple(scene.hazard(len(profiles), hazard) for hazard in profile.hazards)
            profiles.append(replace(profile, hazards=hazards) if hazards else profile)
        return _finished(scene, plan, inputs, memories, profiles) if read_back else Run(profiles=tuple(profiles))
    except KernelFault as fault:
        return Run(profiles=tuple(profiles), error=_without_frames(scene.fault(len(profiles), fault)))
    except DeviceError as error:
        return Run(profiles=tuple(profiles), error=_without_frames(error))
    finally:
        if arrays is None:
            used.free()


def _without_frames(error: DeviceError) -> DeviceError:
    """Return an error without the calls that it came through: they hold all memory of the launch."""
    error.__context__ = None
    return error.with_traceback(None)


def allocated(plan: Plan) -> list[Buffer]:
    """Return the buffers that need memory: not those that only supply a constant's contents."""
    arguments = {arg for launch in plan.launches for arg in launch.args if isinstance(arg, str)}
    return [buffer for buffer in plan.buffers if buffer.name in arguments or buffer.role == "output"]


def initial_contents(buffer: Buffer, inputs: Mapping[str, Array], poison: Poison) -> Array:
    """Return what a buffer holds before the first launch."""
    if buffer.role == "input":
        return inputs[buffer.name]
    if is_poisoned(buffer):
        return poison.filled(buffer.shape, buffer.dtype)
    return np.zeros(buffer.shape, buffer.dtype)


def is_poisoned(buffer: Buffer) -> bool:
    """Return whether a kernel may not read the buffer before something has written it."""
    return buffer.role != "input" and not buffer.zeroed


def _finished(
    scene: Scene,
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
    reports = (memory.damage(scene.damaged(name)) for name, memory in memories.items())
    damage = tuple(Hazard("memory", report) for report in reports if report)
    return Run(outputs, {name: count for name, count in changed.items() if count}, tuple(profiles), damage)
