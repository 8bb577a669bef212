"""Names in a cubin: its kernels and device variables, read from the ELF symbol table.

The driver lists a module's kernels only since CUDA 12.4, and its variables never. So both are read from the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpulab.devices.compiler.elf import Elf
from pytest_gpulab.devices.source.names import unique_names, unmangle

_OBJECT, _FUNCTION = 1, 2  # symbol types
_KERNEL = 0x10  # the bit of st_other that marks kernels, not device functions, in NVIDIA's tools
_VARIABLE_SECTIONS = (".nv.global", ".nv.constant")


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
