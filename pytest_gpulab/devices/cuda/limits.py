"""Limits on what a compiler may take: a submission can make it allocate, write and talk without end.

PyCUDA starts nvcc itself and takes any executable for it. So nvcc gets a script in front of it that sets the limits,
which all of nvcc's own programs inherit. Time is limited elsewhere, by killing the whole process group.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from ..protocol import DeviceUnavailable

KIB = 1024
_FILE_BLOCK_BYTES = 512  # POSIX, of `ulimit -f`
_SCRIPT = """#!/bin/sh
# Diagnostics go through files: those have a limit, and a program that talks without end is ended by it.
(
    ulimit -v {memory_kib} 2>/dev/null  # refused where the user's own limit is lower, which will do
    ulimit -f {file_blocks} 2>/dev/null
    exec {program} "$@" >{folder}/stdout 2>{folder}/stderr
)
status=$?
head -c {said_bytes} {folder}/stdout
head -c {said_bytes} {folder}/stderr >&2
exit $status
"""


@dataclass(frozen=True)
class Limits:
    """What each of a compiler's processes may take.

    Attributes:
        memory_bytes: of address space; honest kernels of a course need well below 1 GiB.
        file_bytes: of each file that it writes, machine code included.
        said_bytes: of its messages that are kept.
    """

    memory_bytes: int = 4 << 30
    file_bytes: int = 256 << 20
    said_bytes: int = 64 * KIB

    @property
    def words(self) -> str:
        """What there is, in words."""
        return f"{self.memory_bytes / 2**30:g} GiB of memory and {self.file_bytes / 2**20:g} MiB a file"


def limited(program: str, folder: Path, limits: Limits) -> str:
    """Return the path of an executable that runs a program under limits, with the same arguments and exit status.

    Args:
        program: its path.
        folder: for the executable and for what it keeps while it runs; one run at a time.
        limits: see there.

    Raises:
        DeviceUnavailable: programs in the folder cannot be run.
    """
    script = folder / "limited"
    script.write_text(
        _SCRIPT.format(
            program=shlex.quote(program),
            folder=shlex.quote(str(folder)),
            memory_kib=limits.memory_bytes // KIB,
            file_blocks=limits.file_bytes // _FILE_BLOCK_BYTES,
            said_bytes=limits.said_bytes,
        )
    )
    script.chmod(0o700)
    if not os.access(script, os.X_OK):  # so it is on a file system that is mounted noexec
        raise DeviceUnavailable(f"no program can be run from {folder.parent}; set TMPDIR to a folder where one can")
    return str(script)
