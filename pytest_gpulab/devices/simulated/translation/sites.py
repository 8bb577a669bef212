"""What a program and the memories that serve it must agree on: memory instructions and address windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpulab.devices.protocol import SourceLine

SHARED_WINDOW = 0x7F00_0000_0000  # generic addresses of shared memory
LOCAL_WINDOW = 0x7E00_0000_0000  # and of local memory


_STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}


def ordering(access: str, words: Iterable[str]) -> tuple[str, bool]:
    """Return `Site.order` and `Site.releases` of an instruction, from its words (PTX ISA 8.4, operation types)."""
    words = set(words)
    strong = access == "atomic" or bool(words & _STRONG)
    order = "strong" if strong else "volatile" if "volatile" in words else "weak"
    return order, bool(words & {"release", "acq_rel"})


@dataclass(frozen=True)
class Site:
    """A memory instruction of the program.

    Attributes:
        space: as in the message: `global`, `shared`, `local`, `const` or `generic`.
        access: `read`, `write` or `atomic`.
        nbytes: of one lane's access.
        index: its number in the program.
        order: `weak`, `volatile`, or `strong` for what the memory model calls so (atomics, relaxed, acquire, release).
        releases: it makes known what its thread did before.
        number: of the PTX statement, see `Instruction.number`.
        returns: whether an atomic's old value is wanted.
        serial: lanes that meet take turns in an atomic: not where it adds the constant 1, whose lanes hardware joins,
            nor where floats are added in shared memory, which is a loop of the machine code.
    """

    space: str
    access: str
    nbytes: int
    where: SourceLine | None
    index: int
    order: str = "weak"
    releases: bool = False
    number: int = -1
    returns: bool = False
    serial: bool = False

    @property
    def op(self) -> str:
        """What hardware calls it: `ld`, `st`, `atom`, or `red` for an atomic whose old value nobody wants."""
        if self.access == "atomic":
            return "atom" if self.returns or self.space == "shared" else "red"
        return "ld" if self.access == "read" else "st"

    @property
    def modifies(self) -> bool:
        """Whether memory may be changed."""
        return self.access != "read"

    @property
    def is_strong(self) -> bool:
        """Whether it never races with others of its kind."""
        return self.order == "strong"

    @property
    def is_volatile(self) -> bool:
        """Whether it is volatile."""
        return self.order == "volatile"
