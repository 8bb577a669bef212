"""The limits of a program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramLimits:
    """The limits of one run of a program."""

    timeout_s: float = 20.0  # wall-clock time, kernels included
    memory_bytes: int = 1 << 30  # address space of the host's code
    device_bytes: int = 256 << 20  # device, managed and pinned memory; also the size of a file
    output_bytes: int = 1 << 20  # standard output and standard error, each
    disk_bytes: int = 64 << 20  # all files in the working folder
