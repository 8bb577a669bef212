"""Resource limits of compilers, because a submission can make one compute, allocate and write without end."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
PROTECTION = "compiled under"  # the name of the sandbox in reports
SHARE = 0.5  # of a processor core: the least that a process can expect
NOT_ENDED = "The compiler did not finish"
"""Beginning of the message that is added when a limit stops a compiler."""


@dataclass(frozen=True)
class Limits:
    """Limits of each process of a compiler.

    Attributes:
        memory_bytes: address space of a process of nvcc; docs/security.md has the needs of real kernels.
        nvrtc_bytes: address space of NVRTC.
        file_bytes: size of each file that nvcc writes, machine code included.
        said_bytes: size of the messages that are kept.
        compile_s: processor time of one compilation by NVRTC; nvcc has the time of its check instead.
        all_variants_s: processor time of all compilations of one text by NVRTC.
        output_bytes: size of NVRTC's output, PTX or machine code; a course's kernels have some ten KiB.
        at_once: number of variants of one text that are compiled in parallel, each with the whole memory limit.
    """

    memory_bytes: int = 2 << 30
    nvrtc_bytes: int = 1 << 30
    file_bytes: int = 256 << 20
    said_bytes: int = 64 * KIB
    compile_s: int = 20
    all_variants_s: int = 90
    output_bytes: int = 32 << 20
    at_once: int = 4

    @property
    def words(self) -> str:
        """The limits of nvcc, in words."""
        return f"{self.memory_bytes / 2**30:g} GiB of memory and {self.file_bytes / 2**20:g} MiB per file"

    @property
    def nvrtc_words(self) -> str:
        """The limits of NVRTC, in words."""
        memory, output = self.nvrtc_bytes / 2**30, self.output_bytes / 2**20
        time = f"{self.compile_s} s ({self.all_variants_s} s for all variants)"
        return f"{time}, {memory:.3g} GiB of memory and {output:.3g} MiB of output"


def charged_s(elapsed_s: float, processor_s: float) -> float:
    """Return the time that counts: by the clock, but less if other processes kept the machine busy."""
    return min(elapsed_s, processor_s / SHARE)
