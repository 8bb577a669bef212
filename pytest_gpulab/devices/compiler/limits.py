"""What a compiler may take: a submission can make it compute, allocate, write and talk without end."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
SHARE = 0.5  # of a processor core, which a process can expect
NOT_ENDED = "The compiler did not come to its end"
"""How a line of its messages begins that was added where a limit ended it."""


@dataclass(frozen=True)
class Limits:
    """What a compiler's processes may take, each of them.

    Attributes:
        memory_bytes: of address space; what honest kernels need is in docs/security.md.
        file_bytes: of each file that nvcc writes, machine code included.
        said_bytes: of its messages that are kept.
        compile_s: of processor time for one translation by NVRTC in a process of its own. nvcc's
            time is that of the check that asks for it.
        output_bytes: of what NVRTC hands over, PTX or machine code; a course's kernels have some ten KiB.
        at_once: how many variants of one text are translated side by side, each with the memory that there is for one.
    """

    memory_bytes: int = 2 << 30
    file_bytes: int = 256 << 20
    said_bytes: int = 64 * KIB
    compile_s: int = 60
    output_bytes: int = 32 << 20
    at_once: int = 4

    @property
    def words(self) -> str:
        """What there is for nvcc, in words."""
        return f"{self.memory_bytes / 2**30:g} GiB of memory and {self.file_bytes / 2**20:g} MiB a file"

    @property
    def nvrtc_words(self) -> str:
        """What there is for NVRTC, in words."""
        memory, output = self.memory_bytes / 2**30, self.output_bytes / 2**20
        return f"{self.compile_s} s, {memory:.3g} GiB of memory and {output:.3g} MiB of output"


def charged_s(elapsed_s: float, processor_s: float) -> float:
    """Return the time that counts: by the clock, but no kernel is to blame for a machine that is busy with others."""
    return min(elapsed_s, processor_s / SHARE)
