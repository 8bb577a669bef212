"""The limits of a program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramLimits:
    """The limits of one run of a program.

    Attributes:
        timeout_s: wall-clock time, kernels included.
        memory_bytes: address space of the host's code.
        device_bytes: device, managed and pinned memory; also the size of a file.
        output_bytes: standard output and standard error, each.
        disk_bytes: all files in the working folder.
    """

    timeout_s: float = 20.0
    memory_bytes: int = 1 << 30
    device_bytes: int = 256 << 20
    output_bytes: int = 1 << 20
    disk_bytes: int = 64 << 20
