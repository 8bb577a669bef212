"""`printf` from kernels: C format strings, arguments in local memory, output capped."""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np

from pytest_gpulab.devices.simulated.execution.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.execution.memory import Arena
from pytest_gpulab.devices.simulated.translation.sites import Site

MAX_CHARACTERS = 16_384
_SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])")


class Reader(Protocol):
    """What printing needs of a wave: its memories."""

    arena: Arena

    def load_generic(self, lanes: Lanes, site: Site, address: Value, dtype: np.dtype[Any], count: int) -> list[Value]:
        """Read `count` elements a lane from wherever the addresses point."""


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

    def string(self, reader: Reader, address: int) -> str:
        """Return the zero-terminated string at a device address."""
        allocation = reader.arena.find(address)
        if allocation is None:
            return "(null)"
        data = allocation.data[address - allocation.base : allocation.nbytes].tobytes()
        return data.split(b"\0", 1)[0].decode(errors="replace")

    def print(self, reader: Reader, lanes: Lanes, site: Site, text: Value, arguments: Value) -> None:
        """Format one call for every lane, block by block, thread by thread."""
        formats, pointers = (np.broadcast_to(value, lanes.shape).ravel(order="F") for value in (text, arguments))
        order = np.arange(lanes.n).reshape(lanes.shape).ravel(order="F")
        for count, (template, pointer, place) in enumerate(zip(formats, pointers, order, strict=True)):
            if self.room <= 0:
                self.dropped += lanes.n - count
                return
            row, column = divmod(int(place), lanes.shape[1])
            lane = _single(lanes, row, column)
            line = _Formatter(reader, lane, site, int(pointer), self).format(self.string(reader, int(template)))
            self.parts.append(line[: self.room])
            self.room -= len(line)


def _single(lanes: Lanes, row: int, column: int) -> Lanes:
    columns = lanes.columns[[row if lanes.flat else column]]
    return Lanes(lanes.wave, lanes.threads[[row]], columns, True)


class _Formatter:
    """Walks a format string and reads an argument for each specifier."""

    def __init__(self, reader: Reader, lane: Lanes, site: Site, pointer: int, printer: Printer) -> None:
        self.reader, self.lane, self.site, self.pointer, self.printer = reader, lane, site, pointer, printer

    def _argument(self, code: str) -> Any:
        dtype = np.dtype(code)
        self.pointer = -(-self.pointer // dtype.itemsize) * dtype.itemsize
        address = np.array([[self.pointer]], np.uint64)
        self.pointer += dtype.itemsize
        site = Site("generic", "read", dtype.itemsize, self.site.where, self.site.index)
        return self.reader.load_generic(self.lane, site, address, dtype, 1)[0].item()

    def format(self, template: str) -> str:
        return _SPECIFIER.sub(self._replace, template)

    def _replace(self, match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(self._argument("i4")) if width == "*" else width or ""
        if precision == "*":
            given = self._argument("i4")
            precision = str(given) if given >= 0 else None
        spec = f"%{flags}{width}" + (f".{precision or 0}" if precision is not None else "")
        if kind in "diouxX":
            return self._integer(spec, kind, length)
        if kind == "c":
            return _filled(f"{spec}c", chr(self._argument("i4") & 255))
        if kind == "s":
            return _filled(f"{spec}s", self.printer.string(self.reader, self._argument("u8")))
        if kind == "p":
            pointer = self._argument("u8")
            return _filled(f"%{flags}{width}s", hex(pointer) if pointer else "(nil)")
        value = self._argument("f8")
        if kind in "aA":
            sign = "+" if "+" in flags else " " if " " in flags else ""
            text = hexadecimal(value, None if precision is None else int(precision or 0), sign)
            return _filled(f"%{'-' if '-' in flags else ''}{width}s", text.upper() if kind == "A" else text)
        return _filled(f"{spec}{kind}", value)

    def _integer(self, spec: str, kind: str, length: str | None) -> str:
        sign = "i" if kind in "di" else "u"
        value = self._argument(sign + ("8" if length in ("l", "ll", "j", "z", "t") else "4"))
        if length in ("h", "hh"):
            value = np.array(value).astype(sign + ("1" if length == "hh" else "2")).item()
        if "#" in spec and (kind == "o" or value == 0):  # Python writes 0o17 and 0x0 where C writes 017 and 0
            spec = spec.replace("#", "")
            if kind == "o" and value and "." not in spec:
                spec += f".{len(f'{value:o}') + 1}"
        return _filled(spec + ("d" if kind == "u" else kind), value)


def _filled(spec: str, value: Any) -> str:
    return str(spec % value)


def hexadecimal(value: float, digits: int | None, sign: str = "") -> str:
    """Return a double as C's `%a` writes it: the shortest fraction that is exact, or one of `digits` hex digits."""
    if not np.isfinite(value):
        return ("-" if value < 0 else sign) + ("nan" if np.isnan(value) else "inf")
    bits = int(np.float64(value).view(np.uint64))
    exponent, fraction = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    whole = (int(exponent > 0) << 52) | fraction
    if digits is not None and digits < 13:
        dropped = 52 - 4 * digits
        half, rest = 1 << (dropped - 1), whole & ((1 << dropped) - 1)
        whole >>= dropped
        whole += rest > half or (rest == half and whole & 1)
        whole <<= dropped
    text = f"{whole & ((1 << 52) - 1):013x}"
    text = text.rstrip("0") if digits is None else text.ljust(digits, "0")[:digits]
    power = (exponent or 1) - 1023 if value else 0
    negative = "-" if bits >> 63 else sign
    return f"{negative}0x{whole >> 52}{'.' if text else ''}{text}p{power:+d}"
