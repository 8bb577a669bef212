"""The names in a cubin: its kernels and its device variables, read from the ELF symbol table.

The driver can list a module's kernels since CUDA 12.4 and its variables not at all, so both come from the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpulab.devices.compiler.elf import Elf
from pytest_gpulab.devices.source.names import unique_names, unmangle

_OBJECT, _FUNCTION = 1, 2  # symbol types
_KERNEL = 0x10  # the bit of st_other by which NVIDIA's tools tell a kernel from a device function
_VARIABLE_SECTIONS = (".nv.global", ".nv.constant")


@dataclass(frozen=True)
class CubinNames:
    """Names as the student wrote them, to the symbols that the driver knows; and what the variables take together."""

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
