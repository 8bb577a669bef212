"""The names in a cubin: its kernels and its device variables, read from the ELF symbol table.

The driver can list a module's kernels since CUDA 12.4 and its variables not at all, so both come from the file. The
layout is that of ELF-64 (System V gABI, chapters "Sections" and "Symbol Table").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..names import unmangle

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2  # sh_type
_OBJECT, _FUNCTION = 1, 2  # symbol types
_KERNEL = 0x10  # the bit of st_other by which NVIDIA's tools tell a kernel from a device function
_VARIABLE_SECTIONS = (".nv.global", ".nv.constant")


@dataclass(frozen=True)
class CubinNames:
    """Names as the student wrote them, to the symbols that the driver knows."""

    kernels: Mapping[str, str]
    variables: Mapping[str, str]


def read_names(cubin: bytes) -> CubinNames:
    """Return the kernels and the `__device__` and `__constant__` variables of a compiled module."""
    sections = list(_sections(cubin))
    kernels, variables = {}, {}
    for symbol, kind, other, section in _symbols(cubin, sections):
        if kind == _FUNCTION and other & _KERNEL:
            kernels[unmangle(symbol)] = symbol
        elif kind == _OBJECT and section.startswith(_VARIABLE_SECTIONS):
            variables[unmangle(symbol)] = symbol
    return CubinNames(kernels, variables)


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


def _sections(cubin: bytes) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [_SECTION.unpack_from(cubin, table + index * entry_bytes) for index in range(count)]
    names_offset = headers[names_index][4]
    for name, kind, _, _, offset, size, link, *_ in headers:
        yield _Section(_text(cubin, names_offset + name), kind, offset, size, link)


def _symbols(cubin: bytes, sections: list[_Section]) -> Iterator[tuple[str, int, int, str]]:
    """Yield name, type, `st_other` and section of every defined symbol."""
    table = next(section for section in sections if section.kind == _SYMBOL_TABLE)
    strings = sections[table.link].offset
    for name, info, other, index, _, _ in _SYMBOL.iter_unpack(cubin[table.offset : table.offset + table.size]):
        if 0 < index < len(sections):
            yield _text(cubin, strings + name), info & 0xF, other, sections[index].name


def _text(cubin: bytes, start: int) -> str:
    return cubin[start : cubin.index(b"\0", start)].decode()
