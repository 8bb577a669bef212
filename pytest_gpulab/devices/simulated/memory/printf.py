"""`printf` from kernels: C format strings, arguments in local memory, output capped.

Printing never ends a launch, and its reads are not checked for hazards. A format that does not match its arguments is
undefined in C. Here it prints the bytes at the position of the argument. The compiler warns of most mismatches.
"""

import re
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from pytest_gpulab.devices.protocol import PRINT_LIMIT
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.translation.sites import LOCAL_WINDOW, SHARED_WINDOW

from .spaces import Arena, Banked

MAX_CHARACTERS = PRINT_LIMIT
MAX_WIDTH = 1024  # of a conversion; also the maximum of its precision
_WINDOW = 1 << 40
_SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])")
_LONG = ("l", "ll", "j", "z", "t")


class Memories(Protocol):
    """The memories of a wave from which printing reads."""

    arena: Arena
    shared: Banked
    local: Banked


class ThreadColumns(NamedTuple):
    """The columns of a thread in local and in shared memory."""

    local: int
    shared: int


def columns_of(lanes: Lanes) -> list[ThreadColumns]:
    """Return the columns of each lane, in the order of the group's flattened shape."""
    position, column = (np.broadcast_to(x, lanes.shape).ravel().tolist() for x in (lanes.position, lanes.column))
    return list(map(ThreadColumns, position, column))


def bytes_at(memories: Memories, columns: ThreadColumns, address: int, nbytes: int) -> bytes | None:
    """Return up to `nbytes` bytes at a generic address, as many as exist; None if no memory is there."""
    window = address // _WINDOW * _WINDOW
    if window in (SHARED_WINDOW, LOCAL_WINDOW):
        memory = memories.shared if window == SHARED_WINDOW else memories.local
        start, column = address - window, columns.shared if window == SHARED_WINDOW else columns.local
        end = min(start + nbytes, memory.nbytes)
        return memory.column_bytes(start, end, column) if start < end else None
    allocation = memories.arena.find(address)
    if allocation is None:
        return None
    start = address - allocation.base
    return allocation.data[start : min(start + nbytes, allocation.nbytes)].tobytes()


def string_at(memories: Memories, columns: ThreadColumns, address: int) -> str:
    """Return the zero-terminated string at a generic address; undecodable bytes are replaced."""
    data = bytes_at(memories, columns, address, MAX_CHARACTERS)
    if data is None:
        return "(bad pointer)" if address else "(null)"
    return data.split(b"\0", 1)[0].decode(errors="replace")


class Printer:
    """The output of a kernel, up to a number of characters."""

    def __init__(self, most: int = MAX_CHARACTERS) -> None:
        self.parts: list[str] = []
        self.remaining = most
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        """True if further calls print nothing, so that their arguments do not matter."""
        return self.remaining <= 0

    @property
    def text(self) -> str:
        """The output, with a note of the number of dropped calls."""
        note = f"\n[... {self.dropped} more printf calls left out]" if self.dropped else ""
        return "".join(self.parts) + note

    def print(self, memories: Memories, lanes: Lanes, text: Value, arguments: Value) -> None:
        """Format one call for every lane, block by block, thread by thread."""
        if self.is_full:
            self.dropped += lanes.n
            return
        call = memories, lanes, text, arguments
        for count, line in enumerate(_alike_lines(*call) or _lines(*call)):
            if self.is_full:
                self.dropped += lanes.n - count
                return
            self.parts.append(line[: self.remaining])
            self.remaining -= len(line)


def _lines(memories: Memories, lanes: Lanes, text: Value, arguments: Value) -> Iterator[str]:
    """Yield the output of each lane, block by block, thread by thread."""
    formats, pointers = (np.broadcast_to(value, lanes.shape).ravel() for value in (text, arguments))
    order, lane_columns = np.arange(lanes.n).reshape(lanes.shape).ravel(order="F").tolist(), columns_of(lanes)
    strings: dict[int, str] = {}
    for lane in order:
        address, columns = int(formats[lane]), lane_columns[lane]
        if address not in strings:
            strings[address] = string_at(memories, columns, address)
        yield _line(memories, columns, strings[address], int(pointers[lane]))


def _line(memories: Memories, columns: ThreadColumns, template: str, pointer: int) -> str:
    pieces, nbytes = _parsed(template)
    arguments = (bytes_at(memories, columns, pointer, nbytes) or b"") if nbytes else b""
    arguments += bytes(nbytes - len(arguments))
    return "".join(
        piece if isinstance(piece, str) else piece.text(arguments, lambda at: string_at(memories, columns, at))
        for piece in pieces
    )


def _alike_lines(memories: Memories, lanes: Lanes, text: Value, arguments: Value) -> Iterator[str] | None:
    """Return what `_lines` does in a tenth of the time; None if formats, addresses or kinds of arguments differ."""
    local, start = memories.local, int(arguments.flat[0]) - LOCAL_WINDOW
    if np.ptp(text) or np.ptp(arguments) or start % 4 or not 0 <= start < local.nbytes:
        return None
    position, column = (np.broadcast_to(x, lanes.shape).ravel(order="F") for x in (lanes.position, lanes.column))
    template = string_at(memories, ThreadColumns(int(position[0]), int(column[0])), int(text.flat[0]))
    whole = _whole(template)
    if whole is None or not 0 < whole.arguments.size <= local.nbytes - start:
        return None
    words = local.words_of(start // 4, (start + whole.arguments.size) // 4, position)
    return (whole.format % values for values in whole.arguments.iter_unpack(words))


class _Argument(NamedTuple):
    """An argument: its `struct` code and byte offset."""

    code: str
    offset: int

    def read(self, arguments: bytes) -> Any:
        return struct.unpack_from(self.code, arguments, self.offset)[0]


class _Conversion(NamedTuple):
    """A conversion specification; width and precision are arguments if written as `*`."""

    flags: str
    width: str | _Argument
    precision: str | _Argument | None
    length: str
    kind: str
    value: _Argument

    def text(self, arguments: bytes, string: Callable[[int], str]) -> str:
        """Return the formatted argument."""
        width, precision, flags = self.width, self.precision, self.flags
        if isinstance(width, _Argument):
            given = width.read(arguments)
            flags, width = flags + "-" * (given < 0), str(abs(given))
        if isinstance(precision, _Argument):
            given = precision.read(arguments)
            precision = str(given) if given >= 0 else None
        width, precision = _capped(width), None if precision is None else _capped(precision)
        value = self.value.read(arguments)
        return _formatted(self.kind, self.length, flags, width, precision, string(value) if self.kind == "s" else value)

    @property
    def plain(self) -> str | None:
        """The same conversion for Python's `%`; None if Python writes it in another way, or needs more than a value."""
        if isinstance(self.width, _Argument) or isinstance(self.precision, _Argument) or "#" in self.flags:
            return None
        if self.kind not in "diuxXfFeEgG" or self.length in ("h", "hh"):
            return None
        precision = "" if self.precision is None else f".{_capped(self.precision) or 0}"
        return f"%{self.flags}{_capped(self.width)}{precision}{'d' if self.kind == 'u' else self.kind}"


class _Whole(NamedTuple):
    """A format for Python's `%`, and the layout of its arguments."""

    format: str
    arguments: struct.Struct


def _capped(digits: str) -> str:
    return digits if len(digits) < 4 else str(min(int(digits[:9]), MAX_WIDTH))


@lru_cache(maxsize=256)
def _parsed(template: str) -> tuple[tuple[str | _Conversion, ...], int]:
    """Split a format into literal text and conversions; return them and the size of their arguments in bytes."""
    pieces: list[str | _Conversion] = []
    end = offset = 0

    def argument(code: str) -> _Argument:
        nonlocal offset
        size = struct.calcsize(code)
        start = -(-offset // size) * size
        offset = start + size
        return _Argument(code, start)

    for match in _SPECIFIER.finditer(template):
        pieces.append(template[end : match.start()])
        end = match.end()
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            pieces.append("%")
            continue
        at_width: str | _Argument = argument("<i") if width == "*" else width or ""
        at_precision: str | _Argument | None = argument("<i") if precision == "*" else precision
        pieces.append(_Conversion(flags, at_width, at_precision, length or "", kind, argument(_code(kind, length))))
    return (*pieces, template[end:]), offset


@lru_cache(maxsize=256)
def _whole(template: str) -> _Whole | None:
    """Return a format for all pieces of another one; None if one of them has none."""
    formats, layout, end = [], "<", 0
    for piece in _parsed(template)[0]:
        plain = piece.replace("%", "%%") if isinstance(piece, str) else piece.plain
        if plain is None:
            return None
        formats.append(plain)
        if isinstance(piece, _Conversion):
            code, offset = piece.value
            layout += "x" * (offset - end) + code[1:]
            end = offset + struct.calcsize(code)
    return _Whole("".join(formats), struct.Struct(layout))


def _code(kind: str, length: str | None) -> str:
    if kind in "di":
        return "<q" if length in _LONG else "<i"
    if kind in "ouxX":
        return "<Q" if length in _LONG else "<I"
    return {"c": "<i", "s": "<Q", "p": "<Q"}.get(kind, "<d")


def _formatted(kind: str, length: str, flags: str, width: str, precision: str | None, value: Any) -> str:
    spec = f"%{flags}{width}" + (f".{precision or 0}" if precision is not None else "")
    if kind in "diouxX":
        return _integer(spec, kind, length, value)
    if kind == "c":
        return _filled(f"{spec}c", chr(value & 255))
    if kind == "s":
        return _filled(f"{spec}s", value)
    if kind == "p":
        return _filled(f"%{flags}{width}s", hex(value) if value else "(nil)")
    if kind in "aA":
        sign = "+" if "+" in flags else " " if " " in flags else ""
        text = hexadecimal(value, None if precision is None else int(precision or 0), sign)
        return _filled(f"%{'-' if '-' in flags else ''}{width}s", text.upper() if kind == "A" else text)
    return _filled(f"{spec}{kind}", value)


def _integer(spec: str, kind: str, length: str, value: int) -> str:
    if length in ("h", "hh"):
        sign = "i" if kind in "di" else "u"
        value = np.array(value).astype(sign + ("1" if length == "hh" else "2")).item()
    if "#" in spec and (kind == "o" or value == 0):  # Python writes 0o17 and 0x0 where C writes 017 and 0
        spec = spec.replace("#", "")
        if kind == "o" and value and "." not in spec:
            spec += f".{len(f'{value:o}') + 1}"
    return _filled(spec + ("d" if kind == "u" else kind), value)


def _filled(spec: str, value: Any) -> str:
    return str(spec % value)


def hexadecimal(value: float, digits: int | None, sign: str) -> str:
    """Return a double in the format of C's `%a`: the shortest exact fraction, or `digits` hex digits."""
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
