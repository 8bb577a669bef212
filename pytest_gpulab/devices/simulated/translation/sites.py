"""What a program and the memories that serve it must agree on: memory instructions and address windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpulab.devices.protocol import SourceLine

SHARED_WINDOW = 0x7F00_0000_0000  # generic addresses of shared memory
LOCAL_WINDOW = 0x7E00_0000_0000  # and of local memory


MBARRIER = "mbarrier"
BULK_UNIT = 16  # bytes; sizes and addresses of bulk copies are multiples of it
_STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}


def ordering(access: str, words: Iterable[str]) -> tuple[str, bool]:
    """Return `Site.order` and `Site.releases` of an instruction, from its words (PTX ISA 8.4, operation types)."""
    words = set(words)
    if "mbarrier" in words:  # what these put in order is followed phase by phase
        return "weak" if access == "write" else "strong", False
    strong = access == "atomic" or bool(words & _STRONG)
    order = "strong" if strong else "volatile" if "volatile" in words else "weak"
    return order, bool(words & {"release", "acq_rel"})


def atomic_kind(operation: str, nbytes: int, floating: bool, adds_one: bool) -> str:
    """Say how hardware and compiler treat an atomic whose lanes meet at one address.

    Returns:
        `swap` for operations whose order shows (exch, cas, inc, dec), `float` for floats, `long` for
        integers of 8 bytes, `count` for adding the constant 1 to 4 bytes, `integer` for other operations on 4 bytes.
    """
    if operation in ("exch", "cas", "inc", "dec"):
        return "swap"
    if floating:
        return "float"
    if nbytes == 8:
        return "long"
    return "count" if operation == "add" and adds_one else "integer"


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
        kind: of an atomic, see `atomic_kind`; `MBARRIER`; empty for loads and stores.
        is_guess: an `atomicCAS` checks the value that it loads; see `loads`.
        is_awaited: whether its loop goes on depends on the value that it loads.
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
    kind: str = ""
    is_guess: bool = False
    is_awaited: bool = False

    @property
    def takes_turns(self) -> bool:
        """Whether lanes that meet in an atomic are served one after the other; hardware joins those that count."""
        return self.kind != "count" or self.returns

    @property
    def loops(self) -> bool:
        """Whether the machine code of an atomic on shared memory is a loop around compare-and-swap."""
        return self.kind in ("float", "long")

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
        return self.order == "strong" or self.is_guess

    @property
    def is_weak(self) -> bool:
        """Whether it races with any access of another thread that nothing orders."""
        return self.order == "weak" and not self.is_guess

    @property
    def observes(self) -> bool:
        """Whether its thread can learn from it what another one has done."""
        is_mbarrier = self.kind == MBARRIER
        return self.order != "weak" and (self.access == "read" or self.returns) and not is_mbarrier

    @property
    def is_volatile(self) -> bool:
        """Whether it is volatile."""
        return self.order == "volatile"
