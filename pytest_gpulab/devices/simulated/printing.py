"""`printf` from kernels: C format strings, arguments in local memory, output capped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.simulated.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.memory import Site

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.wave import Wave

MAX_CHARACTERS = 16_384
_SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])")


class Printer:
    """Collects what the kernel prints, up to `MAX_CHARACTERS`."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.room = MAX_CHARACTERS
        self.dropped = 0

    @property
    def text(self) -> str:
        """What was printed, with a note of what was left out."""
        note = f"\n[... {self.dropped} more printf calls left out]" if self.dropped else ""
        return "".join(self.parts) + note

    def string(self, wave: Wave, address: int) -> str:
        """Return the zero-terminated string at a device address."""
        allocation = wave.arena.find(address)
        if allocation is None:
            return "(null)"
        data = allocation.data[address - allocation.base : allocation.nbytes].tobytes()
        return data.split(b"\0", 1)[0].decode(errors="replace")

    def print(self, wave: Wave, lanes: Lanes, site: Site, text: Value, arguments: Value) -> None:
        """Format one call for every lane, block by block, thread by thread."""
        formats, pointers = (np.broadcast_to(value, lanes.shape).ravel(order="F") for value in (text, arguments))
        order = np.arange(lanes.n).reshape(lanes.shape).ravel(order="F")
        for count, (template, pointer, place) in enumerate(zip(formats, pointers, order, strict=True)):
            if self.room <= 0:
                self.dropped += lanes.n - count
                return
            row, column = divmod(int(place), lanes.shape[1])
            lane = _single(lanes, row, column)
            line = _Formatter(wave, lane, site, int(pointer), self).format(self.string(wave, int(template)))
            self.parts.append(line[: self.room])
            self.room -= len(line)


def _single(lanes: Lanes, row: int, column: int) -> Lanes:
    columns = lanes.columns[[row if lanes.flat else column]]
    return Lanes(lanes.wave, lanes.threads[[row]], columns, True)


class _Formatter:
    """Walks a format string and reads an argument for each specifier."""

    def __init__(self, wave: Wave, lane: Lanes, site: Site, pointer: int, printer: Printer) -> None:
        self.wave, self.lane, self.site, self.pointer, self.printer = wave, lane, site, pointer, printer

    def _argument(self, code: str) -> Any:
        dtype = np.dtype(code)
        self.pointer = -(-self.pointer // dtype.itemsize) * dtype.itemsize
        address = np.array([[self.pointer]], np.uint64)
        self.pointer += dtype.itemsize
        site = Site("generic", "read", dtype.itemsize, self.site.where, self.site.index)
        return self.wave.load_generic(self.lane, site, address, dtype, 1)[0].item()

    def format(self, template: str) -> str:
        return _SPECIFIER.sub(self._replace, template)

    def _replace(self, match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(self._argument("i4")) if width == "*" else width or ""
        precision = str(self._argument("i4")) if precision == "*" else precision
        spec = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        wide = length in ("l", "ll", "j", "z", "t")
        if kind in "di":
            return f"{spec}d" % self._argument("i8" if wide else "i4")
        if kind in "ouxX":
            return f"{spec}{'d' if kind == 'u' else kind}" % self._argument("u8" if wide else "u4")
        if kind == "c":
            return f"{spec}c" % chr(self._argument("i4") & 255)
        if kind == "s":
            return f"{spec}s" % self.printer.string(self.wave, self._argument("u8"))
        if kind == "p":
            return f"%{flags}{width}s" % hex(self._argument("u8"))
        if kind in "aA":
            return float(self._argument("f8")).hex()
        return f"{spec}{kind}" % self._argument("f8")
