"""Launches and arrays in the student's names: parameters and types, read from the source, and hazards in these names.

The compiled module does not contain the names.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from pytest_gpulab.devices.protocol import Hazard, KernelFault, Location, Memory
from pytest_gpulab.exercise import Buffer, Plan

_IGNORED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)
_BOUNDS = r"(?:__launch_bounds__\s*\([^;{}]*?\)\s*)?"
_KERNEL = re.compile(rf"\b__global__\b\s*{_BOUNDS}[^;{{}}()]*?{_BOUNDS}\b([A-Za-z_]\w*)\s*\(")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")

_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARED = r"(?m)(?:^|[;{{}}(])\s*(?!return\b|goto\b|else\b)[A-Za-z_]\w*\s+(?:[\w\s,=.+*/-]*,\s*)?{0}\s*[;,]"

_VECTORS = re.compile(r"\bu?(?P<of>char|short|int|long|longlong|float|double)(?P<count>[1-4])\s+(?P<name>\w+)\s*\[")
_BYTES = {"char": 1, "short": 2, "int": 4, "float": 4, "long": 8, "longlong": 8, "double": 8}

Names = Mapping[str, tuple[str, ...]]


def parameter_names(source: str) -> Names:
    """Return the names of each kernel's parameters; kernels with unusual declarations are left out."""
    text = _IGNORED.sub(" ", source)
    found: dict[str, tuple[str, ...]] = {}
    for match in _KERNEL.finditer(text):
        names = tuple(map(_name, _arguments(text, match.end())))
        if all(names) and found.get(match[1], names) == names:
            found[match[1]] = names
    return found


def vector_arrays(source: str) -> Mapping[str, int]:
    """Return the arrays of vectors, such as `float2 points[64]`, with the bytes of an element."""
    found = _VECTORS.finditer(_IGNORED.sub(" ", source))
    return {match["name"]: int(match["count"]) * _BYTES[match["of"]] for match in found}


def unset_variables(source: str, line: int) -> tuple[str, ...]:
    """Return the variables named in a line, counted from 1, that are declared without a value somewhere."""
    text = _IGNORED.sub(" ", source)
    lines = source.splitlines()
    words = dict.fromkeys(_WORD.findall(lines[line - 1])) if 0 < line <= len(lines) else {}
    return tuple(word for word in words if re.search(_DECLARED.format(re.escape(word)), text))


def _arguments(text: str, start: int) -> Iterator[str]:
    """Yield the text of each parameter in the list that begins at `start`."""
    depth, begin = 0, start
    for at in range(start, len(text)):
        sign = text[at]
        if depth == 0 and sign in ",)":
            if text[begin:at].strip():
                yield text[begin:at]
            begin = at + 1
            if sign == ")":
                return
        depth += (sign in "([{<") - (sign in ")]}>")


def _name(parameter: str) -> str:
    """Return the last word of `const float *in`; empty where a parameter has a type only."""
    words = parameter.partition("=")[0]
    match = _NAME.search(words)
    return match[1] if match and words[: match.start()].strip() else ""


class Scene:
    """The launches and arrays of a replay, to name them in hazards."""

    def __init__(
        self,
        plan: Plan,
        memories: Mapping[str, Memory],
        names: Names,
        vectors: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Keep references to the array of each buffer, the names of each kernel's parameters, and the sizes of vectors.

        The plan's own names replace missing ones. `vectors` are arrays of vectors in the source, to the bytes of an
        element.
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
        return replace(hazard, what=what, launch=self._position(launch, place))

    def fault(self, launch: int, fault: KernelFault) -> KernelFault:
        """Return a fault of the plan's launch of that index, with names."""
        place, what = fault.location, fault.what
        buffer = None if place is None else self._buffer(place)
        if place is not None and buffer is not None:
            named = place.named(self.called(launch, buffer.name), np.dtype(buffer.dtype).itemsize)
            what = what.replace(str(place), named)
        elif place is not None and place.symbol in self._vectors:
            what = what.replace(str(place), place.named(place.symbol, self._vectors[place.symbol]))
        fault.what, fault.launch = what, self._position(launch, place)
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

    def _position(self, launch: int, place: Location | None) -> str:
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
