"""Memory instructions, address windows, and the arrays behind addresses: what memories and checks know of a program.

An array that no store can reach has no races, so the race check need not record its reads. Most accesses of most
kernels are reads of their inputs. `Origins` are the parameters and variables that an address is computed from.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import (
    TYPE_BYTES,
    Address,
    Function,
    Instruction,
    Operand,
    Sym,
    registers_of,
)

SHARED_WINDOW = 0x7F00_0000_0000  # generic addresses of shared memory
LOCAL_WINDOW = 0x7E00_0000_0000  # and of local memory


MBARRIER = "mbarrier"
ASYNC_COPY = "async copy"
BULK_UNIT = 16  # bytes; sizes and addresses of bulk copies must be multiples of it
_STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}


Release = Literal["", "block", "device"]


def ordering(access: str, words: Iterable[str]) -> tuple[str, Release]:
    """Return `Site.order` and `Site.releases` of an instruction with these words (PTX ISA 8.4, operation types)."""
    words = set(words)
    if "mbarrier" in words:  # the hazard checks track their ordering phase by phase
        return "weak" if access == "write" else "strong", ""
    strong = access == "atomic" or bool(words & _STRONG)
    order = "strong" if strong else "volatile" if "volatile" in words else "weak"
    return order, ("block" if "cta" in words else "device") if words & {"release", "acq_rel"} else ""


def atomic_kind(operation: str, nbytes: int, floating: bool, adds_one: bool) -> str:
    """Return the kind of an atomic, which decides its cost where several lanes access one address.

    It is `exch`, `cas`, and `wrap` for inc and dec, with results that depend on the order; `float` for floats,
    `long` for integers of 8 bytes, `count` for adding the constant 1 to 4 bytes, `integer` for other operations on 4
    bytes.
    """
    if operation in ("exch", "cas"):
        return operation
    if operation in ("inc", "dec"):
        return "wrap"
    if floating:
        return "float"
    if nbytes == 8:
        return "long"
    return "count" if operation == "add" and adds_one else "integer"


@dataclass(frozen=True)
class Site:
    """A memory instruction of the program."""

    space: str  # state space as in messages: `global`, `shared`, `local`, `const` or `generic`
    access: str  # `read`, `write` or `atomic`
    nbytes: int  # bytes per lane
    where: SourceLine | None  # source line
    index: int  # position in `Program.sites`
    order: str = "weak"  # `weak`, `volatile`, or `strong` as in the memory model (atomics, relaxed, acquire, release)
    releases: Release = ""  # its scope if it has release semantics, else empty
    number: int = -1  # number of the PTX statement, see `Instruction.number`
    returns: bool = False  # True if the old value of an atomic is used
    kind: str = ""  # kind of an atomic, see `atomic_kind`, `MBARRIER` or `ASYNC_COPY`; empty for loads and stores
    is_guess: bool = False  # True if an `atomicCAS` checks the loaded value; see `loads.guesses`
    is_awaited: bool = False  # True if the value that it reads decides whether its loop continues; see `loads.awaited`
    is_retried: bool = False  # True for a compare-and-swap that its loop repeats until it succeeds; see `retries`
    # True for an atomic or strong access of block scope, which is weak for threads of other blocks
    in_block: bool = False

    @property
    def takes_turns(self) -> bool:
        """True if lanes that access one address are served one after another; hardware combines atomics that count."""
        return self.kind != "count" or self.returns

    @property
    def counts_up(self) -> bool:
        """True if it may take a number from a counter in global memory: it adds 1, and the old value is used."""
        return self.returns and self.kind in ("count", "wrap") and self.space in ("global", "generic")

    @property
    def loops(self) -> bool:
        """True if an atomic on shared memory is a compare-and-swap loop, at least in the machine code."""
        return self.kind in ("float", "long")

    @property
    def op(self) -> str:
        """The hardware's name: `ld`, `st`, `atom`, or `red` for an atomic without use of the old value.

        The machine code has no reduction that exchanges.
        """
        if self.access == "atomic":
            return "atom" if self.returns or self.space == "shared" or self.kind in ("exch", "cas") else "red"
        return "ld" if self.access == "read" else "st"

    @property
    def uses_old_value(self) -> bool:
        """True if the value in memory matters: not for a write, nor for an exchange with an unused old value."""
        return self.access != "write" and (self.kind != "exch" or self.returns)

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
    def is_weak_between_blocks(self) -> bool:
        """True if it races with each unordered access of another block."""
        return self.is_weak or self.in_block

    @property
    def observes(self) -> bool:
        """True if its thread can observe the work of another thread through it."""
        is_mbarrier = self.kind == MBARRIER
        return self.order != "weak" and (self.access == "read" or self.returns) and not is_mbarrier

    @property
    def is_volatile(self) -> bool:
        """True for `volatile` accesses."""
        return self.order == "volatile"


_MEMORY = ("ld", "ldu", "st", "atom", "red", "cp", "mbarrier", "wmma", "ldmatrix", "stmatrix")
POINTER_BYTES = 8
FROM_MEMORY = "a pointer in memory"
"""The origin of a loaded value that is large enough to be a pointer; smaller values are indices."""


class Origins:
    """The origins of the addresses in an inlined kernel's memory instructions."""

    def __init__(self, kernel: Function) -> None:
        self._instructions = [statement for statement in kernel.body if isinstance(statement, Instruction)]
        self._writers: dict[str, list[Instruction]] = defaultdict(list)
        for instruction in self._instructions:
            for register in registers_of(instruction.operands[:1]):
                self._writers[register].append(instruction)
        self._known: dict[tuple[Site, ...], frozenset[str]] = {}

    def of(self, *sites: Site) -> frozenset[str]:
        """Return the names of all parameters and symbols that the accesses' addresses may be computed from."""
        if sites not in self._known:  # each launch of a kernel needs the same ones
            self._known[sites] = self._trace(sites)
        return self._known[sites]

    def _trace(self, sites: tuple[Site, ...]) -> frozenset[str]:
        names: set[str] = set()
        seen: set[str] = set()
        waiting: list[Operand] = [part for i in self._at(*sites) for part in i.operands if isinstance(part, Address)]
        while waiting:
            operand = waiting.pop()
            base = operand.base if isinstance(operand, Address) else operand
            names.update([base.name] if isinstance(base, Sym) else [])
            for register in {*registers_of([operand])} - seen:
                seen.add(register)
                for writer in self._writers[register]:
                    waiting += _sources(writer)
                    names.update([FROM_MEMORY] if _loads_pointer(writer) else [])
        return frozenset(names)

    def element(self, site: Site) -> int:
        """Return the bytes of one value of an access: a vector access has several."""
        return next((TYPE_BYTES.get(i.op[-1], site.nbytes) for i in self._at(site)), site.nbytes)

    def _at(self, *sites: Site) -> Iterator[Instruction]:
        numbers = {site.number for site in sites}
        return (i for i in self._instructions if i.number in numbers and i.op[0] in _MEMORY)


def _loads_pointer(instruction: Instruction) -> bool:
    is_load = instruction.op[0] in _MEMORY and instruction.op[:2] != ("ld", "param")
    return is_load and TYPE_BYTES.get(instruction.op[-1], 0) >= POINTER_BYTES


def lines_reading(kernel: Function, registers: frozenset[str]) -> tuple[SourceLine, ...]:
    """Return the source lines of instructions that read any of the registers, in the order of the code."""
    reading = (
        statement.where
        for statement in kernel.body
        if isinstance(statement, Instruction) and not registers.isdisjoint(registers_of(_read(statement)))
    )
    return tuple(dict.fromkeys(where for where in reading if where is not None))


def _read(instruction: Instruction) -> tuple[Operand, ...]:
    is_store = instruction.op[0] in ("st", "red", "cp", "stmatrix") or instruction.op[:2] == ("wmma", "store")
    return instruction.operands if is_store else instruction.operands[1:]


def _sources(instruction: Instruction) -> list[Operand]:
    """Return the operands that an instruction computes its result from; the address of a load is none of them."""
    if instruction.op[0] not in _MEMORY:
        return list(instruction.operands[1:])
    return list(instruction.operands[1:2]) if instruction.op[:2] == ("ld", "param") else []


class Targets(NamedTuple):
    """The possible targets of a kernel's stores and atomics."""

    anywhere: bool  # True if an address depends on a pointer loaded from memory, or a surface is written
    parameters: frozenset[int]  # positions of the kernel parameters that addresses are computed from
    variables: frozenset[int]  # addresses of the module's variables that addresses are computed from


def targets(kernel: Function, origins: Origins, sites: Sequence[Site], addresses: Mapping[str, int]) -> Targets:
    """Return the possible targets of a kernel's stores and atomics."""
    changing = [site for site in sites if site.modifies and site.space in ("global", "generic")]
    names = origins.of(*changing)
    surfaces = any(site.modifies and site.space == "surface" for site in sites)
    parameters = (number for number, variable in enumerate(kernel.parameters) if variable.name in names)
    return Targets(
        FROM_MEMORY in names or surfaces,
        frozenset(parameters),
        frozenset(address for name, address in addresses.items() if name in names),
    )
