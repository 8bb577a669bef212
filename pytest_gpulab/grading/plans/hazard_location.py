"""What a device saw go wrong, in the student's names: which launch of the plan, which array, which element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from pytest_gpulab.devices.protocol import Hazard, KernelFault, Location, Memory
from pytest_gpulab.exercise import Buffer, Plan

from .parameter_names import Names


class Scene:
    """Names the arrays and launches of a plan that is being run."""

    def __init__(
        self,
        plan: Plan,
        memories: Mapping[str, Memory],
        names: Names,
        vectors: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Look only.

        Args:
            plan: what is run.
            memories: buffer to its array on the device.
            names: kernel to the names of its parameters; the plan's own names stand in for those that are missing.
            vectors: arrays in the source whose elements are vectors, to the bytes of one.
        """
        self._plan, self._names, self._vectors = plan, names, vectors
        addresses = {getattr(memory, "address", None): name for name, memory in memories.items()}
        self._buffers = {address: name for address, name in addresses.items() if address is not None}

    def hazard(self, launch: int, hazard: Hazard) -> Hazard:
        """Return a hazard of the plan's launch of that index, with names."""
        place = hazard.location
        what = hazard.what
        if place is not None and (elements := self._elements(launch, place)):
            said = f": {elements} was never written"
            what += "" if what.endswith(said) else said  # a fault may be raised again, and holds hazards
        return replace(hazard, what=what, launch=self._told(launch, place))

    def fault(self, launch: int, fault: KernelFault) -> KernelFault:
        """Return a fault of the plan's launch of that index, which is given names."""
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
        """Return what a launch's kernel calls a buffer."""
        of = self._plan.launches[launch]
        names = self._names.get(of.kernel, ())
        return names[of.args.index(buffer)] if len(names) == len(of.args) and buffer in of.args else buffer

    def damaged(self, buffer: str) -> str:
        """Return what the first kernel that was given a buffer calls it: later ones mostly read what that wrote."""
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
        """Name one of several launches, and another one that shares the array."""
        launches = self._plan.launches
        if len(launches) == 1:
            return ""
        said = f"launch {launch + 1} of {len(launches)} (`{launches[launch].kernel}`)"
        buffer = None if place is None else self._buffer(place)
        if buffer is None:
            return said
        mine = self.called(launch, buffer.name)
        earlier = [i for i in self._launches(buffer.name) if i < launch]
        later = [i for i in self._launches(buffer.name) if i > launch]
        if earlier:
            return f"{said}: its `{mine}` is {self._theirs(earlier[-1], buffer.name)}"
        return f"{said}: its `{mine}` becomes {self._theirs(later[0], buffer.name)}" if later else said

    def _theirs(self, launch: int, buffer: str) -> str:
        return f"`{self.called(launch, buffer)}` of launch {launch + 1} (`{self._plan.launches[launch].kernel}`)"
