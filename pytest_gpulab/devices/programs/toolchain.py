"""The compilers of whole programs: nvcc of NVIDIA's wheels or of a toolkit, and the system's g++."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_gpulab.devices.errors import CompileError, DeviceUnavailable

INSTALL = "python -m pip install 'pytest-gpulab[programs]'"
HOST_COMPILER = "g++"


@dataclass(frozen=True)
class Toolchain:
    """The compilers."""

    nvcc: Path
    host_compiler: Path

    @property
    def command(self) -> list[str]:
        """The beginning of nvcc's command line."""
        return [str(self.nvcc), "-ccbin", str(self.host_compiler)]

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """A text per compiler that changes if another version is installed."""
        found = []
        for path in (self.nvcc, self.host_compiler):
            real = path.resolve()
            facts = real.stat()
            found.append(f"{real} {facts.st_size} {facts.st_mtime_ns}")
        return tuple(found)


def messages_of(command: Sequence[str], folder: Path | None = None) -> str:
    """Run a compiler and return its messages, or raise CompileError with them."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise CompileError(done.stderr)
    return done.stderr


def find_toolchain(prefer_toolkit: bool = False) -> Toolchain:
    """Return the installed compilers: nvcc of the wheels, or that on PATH first, which fits the machine's driver.

    Raises DeviceUnavailable if one is missing; the message says how to install it.
    """
    if not hasattr(os, "memfd_create"):
        raise DeviceUnavailable("whole programs run on Linux only")
    on_path = shutil.which("nvcc")
    found = [Path(on_path)] if on_path else []
    of_wheels = _nvcc_of_wheels()
    if of_wheels is not None:
        found.insert(len(found) if prefer_toolkit else 0, of_wheels)
    if not found:
        raise DeviceUnavailable(f"nvcc is missing; install it with: {INSTALL}")
    host = shutil.which(HOST_COMPILER)
    if host is None:
        raise DeviceUnavailable(f"{HOST_COMPILER} is missing; on Debian and Ubuntu: apt-get install g++")
    return Toolchain(found[0], Path(host))


def _nvcc_of_wheels() -> Path | None:
    try:
        import nvidia
    except ImportError:
        return None
    found = (path for root in nvidia.__path__ for path in sorted(Path(root).glob("cu*/bin/nvcc")))
    return next(found, None)
