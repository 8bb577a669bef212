"""A DWARF line table: the source line of each machine instruction (DWARF 2.0.0, section 6.2).

In a cubin's `.nv_debug_line_sass` the lines are those of the PTX text in `.nv_debug_ptx_txt`.
"""

import struct
from collections.abc import Iterator, Mapping

_HEADER = struct.Struct("<IHIBBbBB")
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


def read_lines(data: bytes, functions: Mapping[int, str]) -> dict[str, list[tuple[int, int]]]:
    """Return (address, line) of each entry, in order, by function, of which relocations give the byte offsets."""
    found: dict[str, list[tuple[int, int]]] = {}
    start = 0
    while start + _HEADER.size <= len(data):
        length = struct.unpack_from("<I", data, start)[0]
        for function, address, line in _Program(data, start, start + 4 + length, functions).rows():
            found.setdefault(function, []).append((address, line))
        start += 4 + length
    return found


class _Program:
    """The state machine of one unit."""

    def __init__(self, data: bytes, start: int, end: int, functions: Mapping[int, str]) -> None:
        header = _HEADER.unpack_from(data, start)
        _, _, header_bytes, self.step, _, self.line_base, self.line_range, self.opcode_base = header
        self.data, self.end, self.functions = data, end, functions
        self.lengths = data[start + _HEADER.size : start + _HEADER.size + self.opcode_base - 1]
        self.at: int = start + 10 + header_bytes
        self.function, self.address, self.line = "", 0, 1

    def rows(self) -> Iterator[tuple[str, int, int]]:
        while self.at < self.end:
            opcode = self.data[self.at]
            self.at += 1
            if opcode >= self.opcode_base:
                self._advance((opcode - self.opcode_base) // self.line_range)
                self.line += self.line_base + (opcode - self.opcode_base) % self.line_range
                yield self.function, self.address, self.line
            elif opcode == 0:
                self._extended()
            elif opcode == _COPY:
                yield self.function, self.address, self.line
            else:
                self._standard(opcode)

    def _advance(self, operations: int) -> None:
        self.address += operations * self.step

    def _standard(self, opcode: int) -> None:
        if opcode == _ADVANCE_PC:
            self._advance(self._number())
        elif opcode == _ADVANCE_LINE:
            self.line += self._number(signed=True)
        elif opcode == _CONST_ADD_PC:
            self._advance((255 - self.opcode_base) // self.line_range)
        elif opcode == _FIXED_ADVANCE_PC:
            self.address += struct.unpack_from("<H", self.data, self.at)[0]
            self.at += 2
        else:
            for _ in range(self.lengths[opcode - 1]):
                self._number()

    def _extended(self) -> None:
        length = self._number()
        code, operand = self.data[self.at], self.at + 1
        if code == _SET_ADDRESS:
            self.address = struct.unpack_from("<Q", self.data, operand)[0]
            self.function = self.functions.get(operand, self.function)
        elif code == _END_SEQUENCE:
            self.address, self.line = 0, 1
        self.at += length

    def _number(self, signed: bool = False) -> int:
        """Read a LEB128 number."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
