"""Hazards and faults in the student's names: the launch of the plan, the array, the element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from pytest_gpulab.devices.protocol import Hazard, KernelFault, Location, Memory
from pytest_gpulab.exercise import Buffer, Plan

from .parameter_names import Names


class Scene:
    """The launches and arrays of a replay, to name them in hazards."""

    def __init__(
        self,
        plan: Plan,
        memories: Mapping[str, Memory],
        names: Names,
        vectors: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Keep references; nothing is copied.

        Args:
            plan: the plan that is replayed.
            memories: buffer to its array on the device.
            names: kernel to the names of its parameters; the plan's own names replace missing ones.
            vectors: arrays of vectors in the source, to the bytes of an element.
        """
        self._plan, self._names, self._vectors = plan, names, vectors
        addresses = {getattr(memory, "address", None): name for name, memory in memories.items()}
        self._buffers = {address: name for address, name in addresses.items() if address is not None}

    def hazard(self, launch: int, hazard: Hazard) -> Hazard:
        """Return a hazard of the plan's launch of that index, with names."""
        place = hazard.location
        what = hazard.what
        if place is not None and (elements := self._elements(launch, place)):
            clause = f": {elements} was never written"
            what += "" if what.endswith(clause) else clause  # keep the original: a fault may be raised again
        return replace(hazard, what=what, launch=self._told(launch, place))

    def fault(self, launch: int, fault: KernelFault) -> KernelFault:
        """Return a fault of the plan's launch of that index, with names."""
        place, what = fault.location, fault.what
        buffer = None if place is None else self._buffer(place)
        if place is not None and buffer is not None:
            named = place.named(self.called(launch, buffer.name), np.dtype(buffer.dtype).itemsize)
            what = what.replace(str(place), named)
        elif place is not None and place.symbol in self._vectors:
            what = what.replace(str(place), place.named(place.symbol, self._vectors[place.symbol]))
        fault.what, fault.launch = what, self._told(launch, place)
        fault.hazards = tuple(self.hazard(launch, hazard) for hazard in fault.hazards)
        return fault

    def called(self, launch: int, buffer: str) -> str:
        """Return the name of the parameter to which a launch passes a buffer."""
        of = self._plan.launches[launch]
        names = self._names.get(of.kernel, ())
        return names[of.args.index(buffer)] if len(names) == len(of.args) and buffer in of.args else buffer

    def damaged(self, buffer: str) -> str:
        """Return a buffer's name in the first kernel that takes it: later kernels mostly read its results."""
        return next((self.called(i, buffer) for i in self._launches(buffer)), buffer)

    def _launches(self, buffer: str) -> list[int]:
        return [i for i, launch in enumerate(self._plan.launches) if buffer in launch.args]

    def _buffer(self, place: Location) -> Buffer | None:
        name = self._buffers.get(place.base)
        return None if name is None or place.base is None else self._plan.buffer(name)

    def _elements(self, launch: int, place: Location) -> str:
        buffer = self._buffer(place)
        if buffer is not None:
            return place.elements(self.called(launch, buffer.name), np.dtype(buffer.dtype).itemsize)
        return place.elements(place.symbol, self._vectors.get(place.symbol, place.element)) if place.symbol else ""

    def _told(self, launch: int, place: Location | None) -> str:
        """Name one of several launches, and another launch with the same array."""
        launches = self._plan.launches
        if len(launches) == 1:
            return ""
        position = f"launch {launch + 1} of {len(launches)} (`{launches[launch].kernel}`)"
        buffer = None if place is None else self._buffer(place)
        if buffer is None:
            return position
        mine = self.called(launch, buffer.name)
        earlier = [i for i in self._launches(buffer.name) if i < launch]
        later = [i for i in self._launches(buffer.name) if i > launch]
        if earlier:
            return f"{position}: its `{mine}` is {self._name_in(earlier[-1], buffer.name)}"
        return f"{position}: its `{mine}` becomes {self._name_in(later[0], buffer.name)}" if later else position

    def _name_in(self, launch: int, buffer: str) -> str:
        return f"`{self.called(launch, buffer)}` of launch {launch + 1} (`{self._plan.launches[launch].kernel}`)"
