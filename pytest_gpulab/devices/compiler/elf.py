"""Sections, symbols and relocations of an ELF-64 file such as a cubin (System V gABI, "Sections" to "Relocation").

The names in a cubin are read from its symbols: the driver lists a module's kernels only since CUDA 12.4, and its
variables never.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_gpulab.devices.source.names import unique_names, unmangle

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQ")
_SYMBOL_TABLE, _NO_BITS, _RELA, _REL = 2, 8, 4, 9  # sh_type
_OBJECT, _FUNCTION = 1, 2  # symbol types
_KERNEL = 0x10  # the bit of st_other that marks kernels, not device functions, in NVIDIA's tools
_VARIABLE_SECTIONS = (".nv.global", ".nv.constant")


@dataclass(frozen=True)
class Section:
    """A section: name, type, offset and size in the file, and the sections that it refers to."""

    name: str
    kind: int
    offset: int
    nbytes: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """A symbol: type (low half of `st_info`), `st_other`, name of its section, offset and size in it."""

    name: str
    kind: int
    other: int
    section: str
    value: int
    nbytes: int


class Elf:
    """An ELF-64 file, little endian: its sections in order, and its symbols; undefined ones have an empty section."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sections = list(self._sections())
        self.symbols = list(self._symbols())

    def contents(self, name: str) -> bytes:
        """Return the bytes of a section; empty if there is no such section."""
        for section in self.sections:
            if section.name == name and section.kind != _NO_BITS:
                return self.data[section.offset : section.offset + section.nbytes]
        return b""

    def relocations(self, name: str) -> dict[int, Symbol]:
        """Return the symbols of a section's relocations, by byte offset in the section."""
        found = {}
        for section in self.sections:
            if section.kind not in (_RELA, _REL) or self.sections[section.info].name != name:
                continue
            step = 24 if section.kind == _RELA else 16
            for start in range(section.offset, section.offset + section.nbytes, step):
                offset, info = _RELOCATION.unpack_from(self.data, start)
                found[offset] = self.symbols[info >> 32]
        return found

    def _sections(self) -> Iterator[Section]:
        (table,) = struct.unpack_from("<Q", self.data, 0x28)
        entry_bytes, count, names_index = struct.unpack_from("<HHH", self.data, 0x3A)
        headers = [_SECTION.unpack_from(self.data, table + index * entry_bytes) for index in range(count)]
        names_offset = headers[names_index][4]
        for name, kind, _, _, offset, nbytes, link, info, _, _ in headers:
            yield Section(self._text(names_offset + name), kind, offset, nbytes, link, info)

    def _symbols(self) -> Iterator[Symbol]:
        table = next(section for section in self.sections if section.kind == _SYMBOL_TABLE)
        strings = self.sections[table.link].offset
        entries = self.data[table.offset : table.offset + table.nbytes]
        for name, info, other, index, value, nbytes in _SYMBOL.iter_unpack(entries):
            section = self.sections[index].name if 0 < index < len(self.sections) else ""
            yield Symbol(self._text(strings + name), info & 0xF, other, section, value, nbytes)

    def _text(self, start: int) -> str:
        return self.data[start : self.data.index(b"\0", start)].decode()


@dataclass(frozen=True)
class CubinNames:
    """Kernels and variables by their source names, with the driver's symbols, and the variables' total size."""

    kernels: Mapping[str, str]
    variables: Mapping[str, str]
    variables_bytes: int


def read_names(cubin: bytes) -> CubinNames:
    """Return the kernels and the `__device__` and `__constant__` variables of a compiled module."""
    kernels, variables, nbytes = [], {}, 0
    for symbol in Elf(cubin).symbols:
        if symbol.kind == _FUNCTION and symbol.section and symbol.other & _KERNEL:
            kernels.append(symbol.name)
        elif symbol.kind == _OBJECT and symbol.section.startswith(_VARIABLE_SECTIONS):
            variables[unmangle(symbol.name)] = symbol.name
            nbytes += symbol.nbytes
    return CubinNames(unique_names(kernels), variables, nbytes)
