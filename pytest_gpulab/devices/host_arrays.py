"""Constant arrays without `__device__` or `__constant__`: nvcc refuses kernels that read them, NVRTC does not."""

from __future__ import annotations

import re
from collections.abc import Collection

from pytest_gpulab.devices.errors import CompileError
from pytest_gpulab.devices.names import unmangle

_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_ADDRESS = re.compile(r"\s*(?:mov|cvta)\S*\s+%\w+, ([\w$]+)(?:\+\d+)?;")


def check_host_arrays(ptx: str, filename: str, arrays: Collection[str]) -> None:
    """Refuse device code that reads one of these arrays, as nvcc does and in its words.

    Args:
        ptx: compiled without optimisation: else constant indices would leave no trace of the array.
        filename: what messages call the file.
        arrays: the names of the arrays.

    Raises:
        CompileError: an array is read.
    """
    line, found = "1", dict[tuple[str, str], None]()
    for text in ptx.splitlines():
        if place := _PLACE.match(text):
            line = place[1]
        elif (address := _ADDRESS.match(text)) and (name := unmangle(address[1]).rpartition("::")[2]) in arrays:
            found[line, name] = None
    if found:
        messages = (
            f'{filename}({line}): error: identifier "{name}" is undefined in device code' for line, name in found
        )
        raise CompileError("\n\n".join(messages))
