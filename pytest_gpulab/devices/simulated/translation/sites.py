"""What a program and the memories that serve it must agree on: memory instructions and address windows."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpulab.devices.protocol import SourceLine

SHARED_WINDOW = 0x7F00_0000_0000  # generic addresses of shared memory
LOCAL_WINDOW = 0x7E00_0000_0000  # and of local memory


@dataclass(frozen=True)
class Site:
    """A memory instruction of the program.

    Attributes:
        space: as in the message: `global`, `shared`, `local`, `const` or `generic`.
        access: `read`, `write` or `atomic`.
        nbytes: of one lane's access.
        index: its number in the program.
        number: of the PTX statement, see `Instruction.number`.
        returns: whether an atomic's old value is wanted.
    """

    space: str
    access: str
    nbytes: int
    where: SourceLine | None
    index: int
    number: int = -1
    returns: bool = False

    @property
    def op(self) -> str:
        """What hardware calls it: `ld`, `st`, `atom`, or `red` for an atomic whose old value nobody wants."""
        if self.access == "atomic":
            return "atom" if self.returns or self.space == "shared" else "red"
        return "ld" if self.access == "read" else "st"
