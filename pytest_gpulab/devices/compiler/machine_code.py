"""Machine code of a module, compiled by NVRTC, with the registers and memory that its assembler reports."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpulab.devices.protocol import KernelResources, Texts

from .nvrtc import LINES, USAGE, Run, output_of, request_of
from .nvrtc_program import compiled


@dataclass(frozen=True)
class MachineBinary:
    """Machine code of a module, a cubin with line information."""

    cubin: bytes  # the machine code as the loader expects it
    resources: Mapping[str, KernelResources]  # registers, shared and local memory of each kernel, by symbol
    frame_bytes: Mapping[str, int]  # the stack frame of each kernel and each called function, by symbol


def compile_machine_code(
    source: str, filename: str, architecture: str, defines: Texts = None, headers: Texts = None, run: Run = compiled
) -> MachineBinary:
    """Compile to machine code for an architecture such as `sm_90`; see `nvrtc.compile_ptx` for the rest.

    Raises CompileError with the compiler's messages if the text does not compile.
    """
    options = [f"--gpu-architecture={architecture}", LINES, USAGE]
    cubin, log = output_of(run, request_of(source, filename, options, defines, headers, "cubin"))
    return machine_binary(cubin, log)


def machine_binary(cubin: bytes, log: str) -> MachineBinary:
    """Return machine code with what its assembler, ptxas with the option `-v`, has reported."""
    return MachineBinary(cubin, _parse_usage(log), _parse_frames(log))


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


_FRAME = re.compile(r"Function properties for ([\w$]+)\s+(?:ptxas)?[ .]*(\d+) bytes stack frame")


def _parse_frames(log: str) -> dict[str, int]:
    """Read the stack frame of each function from ptxas's report."""
    return {name: int(nbytes) for name, nbytes in _FRAME.findall(log)}


def _parse_usage(log: str) -> dict[str, KernelResources]:
    """Read ptxas's report: per kernel an entry line, a stack line, and a line with registers and shared bytes."""
    usage = {}
    name, stack = "", 0
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            name, stack = match[1], 0
        elif match := _STACK.search(line):
            stack = int(match[1])
        elif (match := _USED.search(line)) and name:
            shared = _SHARED.search(line)
            usage[name] = KernelResources(int(match[1]), int(shared[1]) if shared else 0, stack)
    return usage
