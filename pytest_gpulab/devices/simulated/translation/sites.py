"""Memory instructions and address windows: the interface between a program and the simulated memories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpulab.devices.protocol import SourceLine

SHARED_WINDOW = 0x7F00_0000_0000  # generic addresses of shared memory
LOCAL_WINDOW = 0x7E00_0000_0000  # and of local memory


MBARRIER = "mbarrier"
BULK_UNIT = 16  # bytes; sizes and addresses of bulk copies must be multiples of it
_STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}


def ordering(access: str, words: Iterable[str]) -> tuple[str, bool]:
    """Return `Site.order` and `Site.releases` of an instruction with these words (PTX ISA 8.4, operation types)."""
    words = set(words)
    if "mbarrier" in words:  # the hazard checks track their ordering phase by phase
        return "weak" if access == "write" else "strong", False
    strong = access == "atomic" or bool(words & _STRONG)
    order = "strong" if strong else "volatile" if "volatile" in words else "weak"
    return order, bool(words & {"release", "acq_rel"})


def atomic_kind(operation: str, nbytes: int, floating: bool, adds_one: bool) -> str:
    """Return the kind of an atomic, which decides its cost where several lanes access one address.

    Returns:
        `swap` for operations with results that depend on the order (exch, cas, inc, dec), `float` for floats, `long`
        for integers of 8 bytes, `count` for adding the constant 1 to 4 bytes, `integer` for other operations on 4
        bytes.
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
        space: state space as in messages: `global`, `shared`, `local`, `const` or `generic`.
        access: `read`, `write` or `atomic`.
        nbytes: bytes per lane.
        where: source line.
        index: position in `Program.sites`.
        order: `weak`, `volatile`, or `strong` as in the memory model (atomics, relaxed, acquire, release).
        releases: True if it has release semantics.
        number: number of the PTX statement, see `Instruction.number`.
        returns: True if the old value of an atomic is used.
        kind: kind of an atomic, see `atomic_kind`, or `MBARRIER`; empty for loads and stores.
        is_guess: True if an `atomicCAS` checks the loaded value; see `loads.guesses`.
        is_awaited: True if the loaded value decides whether its loop continues; see `loads.awaited`.
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
        """True if lanes that access one address are served one after another; hardware combines atomics that count."""
        return self.kind != "count" or self.returns

    @property
    def loops(self) -> bool:
        """True if the machine code of an atomic on shared memory is a compare-and-swap loop."""
        return self.kind in ("float", "long")

    @property
    def op(self) -> str:
        """The hardware's name: `ld`, `st`, `atom`, or `red` for an atomic without use of the old value."""
        if self.access == "atomic":
            return "atom" if self.returns or self.space == "shared" else "red"
        return "ld" if self.access == "read" else "st"

    @property
    def modifies(self) -> bool:
        """True if it may change memory."""
        return self.access != "read"

    @property
    def is_strong(self) -> bool:
        """True if it never races with other strong accesses."""
        return self.order == "strong" or self.is_guess

    @property
    def is_weak(self) -> bool:
        """True if it races with each unordered access of another thread."""
        return self.order == "weak" and not self.is_guess

    @property
    def observes(self) -> bool:
        """True if its thread can observe the work of another thread through it."""
        is_mbarrier = self.kind == MBARRIER
        return self.order != "weak" and (self.access == "read" or self.returns) and not is_mbarrier

    @property
    def is_volatile(self) -> bool:
        """True for `volatile` accesses."""
        return self.order == "volatile"
