"""The control-flow graph of a kernel: basic blocks in scheduling order, with their live registers.

Statements decide on both: the kinds of opcodes, the registers that a statement reads and writes, refused statements.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from pytest_gpulab.devices.protocol import CannotSimulate, SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Label, Reg, Statement, Sym, registers_of

TENSOR_CORES = {"wmma", "mma", "ldmatrix", "stmatrix", "movmatrix"}
"""Instructions that all lanes of a warp execute together, without a lane mask."""
WARP_SYNC = {"shfl", "vote", "match", "redux", *TENSOR_CORES}
ENTER, LEAVE, RETURN = "enter~", "leave~", "return~"  # added by the translation, for calls of recursive functions
REFUSED = "refused"  # also added: ends the launch with the message in its opcode
STACK_AREA = "the stack"  # the local variable for all frames of a thread, also added
BARRIERS = {"bar", "barrier"}
_NO_RESULT = {"st", "red", "cp", "bar", "barrier", "bra", "brx", "membar", "fence", "nanosleep", "trap", "brkpt",
              "exit", "ret", "prefetch", "prefetchu", "pmevent", "discard", "applypriority",
              "griddepcontrol", "stmatrix", "sust"}  # fmt: skip
_SPACES = {"global", "shared", "local", "const", "param"}
MBARRIER_TESTS = {"test_wait", "try_wait"}
_MBARRIER_RESULTS = {"arrive", "arrive_drop", "pending_count", *MBARRIER_TESTS}


@lru_cache(maxsize=4096)
def has_result(op: tuple[str, ...]) -> bool:
    """Return whether an instruction with this opcode writes its first operand."""
    name = op[0]
    if name == "wmma":
        return op[1] != "store"
    if name == "mbarrier":
        return op[1] in _MBARRIER_RESULTS
    return name not in _NO_RESULT or (name in BARRIERS and "red" in op)


def space_of(instruction: Instruction) -> str:
    """Return the memory space of a load, store or atomic; `generic` for a generic address."""
    words = (word.partition("__")[0] for word in instruction.op[1:])
    return next((word for word in words if word in _SPACES), "generic")


def is_arrival(instruction: Instruction) -> bool:
    """Return whether an instruction arrives at an mbarrier."""
    return instruction.op[0] == "mbarrier" and instruction.op[1] in ("arrive", "arrive_drop")


def defined_and_used(statement: Statement, registers: dict[str, int]) -> tuple[list[str], list[str]]:
    """Return the registers that a statement writes and reads."""
    if type(statement) is Call:  # of a driver function; its parameters are registers at this point
        defined, used = (
            [name for passed in names if (name := f"{passed}+0") in registers]
            for names in (statement.results, statement.arguments)
        )
        return defined, used
    assert type(statement) is Instruction
    operands = statement.operands
    if operands and has_result(statement.op):
        first = operands[0]
        defined = [first.name] if type(first) is Reg else registers_of(operands[:1])
        used = registers_of(operands[1:])
    else:
        defined, used = [], registers_of(operands)
    if statement.guard is not None:
        used.append(statement.guard[0].name)
    return defined, used


def with_sources(names: set[str], flows: Iterable[tuple[Iterable[str], Iterable[str]]]) -> set[str]:
    """Return registers and all that they are computed from, given the written and the read registers of statements."""
    flows = list(flows)
    while more := {n for written, read in flows if not names.isdisjoint(written) for n in read} - names:
        names = names | more
    return names


# exceptions of the translator's own code for an instruction with too few operands or operands of another kind
MALFORMED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError,
)  # fmt: skip


def refusal(statement: Statement | None) -> CannotSimulate:
    """Return the error for a malformed statement."""
    if isinstance(statement, Instruction):
        return CannotSimulate(f"the instruction {statement.name}", statement.where)
    if isinstance(statement, Call):
        return CannotSimulate(f"a call of {statement.callee.name}()", statement.where)
    return CannotSimulate("PTX of this form")


_OF_CLUSTERS = ("%cluster", "%nclusterid")


def needs_cluster(statement: Statement) -> bool:
    """Return whether a statement concerns the other blocks of a thread block cluster."""
    if not isinstance(statement, Instruction):
        return False
    is_named = any(getattr(operand, "name", "").startswith(_OF_CLUSTERS) for operand in statement.operands)
    return is_named or statement.op[0] in ("mapa", "getctarank") or statement.op[:2] == ("barrier", "cluster")


@contextmanager
def naming_feature() -> Iterator[None]:
    """Name the CUDA feature of an instruction that is refused, if it is a known one."""
    try:
        yield
    except CannotSimulate as error:
        feature = "bulk asynchronous copies (TMA): " if ".bulk" in error.what else ""
        raise CannotSimulate(feature + error.what, error.where) from None


@dataclass
class Block:
    """A basic block."""

    body: list[Statement] = field(default_factory=list)  # statements without jumps and barriers
    end: str = "goto"  # kind of the end: `goto`, `branch`, `switch`, `barrier` or `exit`
    last: Instruction | None = None  # the statement of the end, if there is one
    targets: tuple[int, ...] = ()  # indices of the next blocks; for `branch` (taken, not taken)
    converge: bool = False  # True if the block begins with a warp-synchronising instruction
    live_in: int = 0  # a bit set over `Graph.registers`, as the next two
    live_out: int = 0
    defined: int = 0
    # registers that are dead after a statement, by its position in `body`
    dying: dict[int, list[str]] = field(default_factory=dict)
    # True if the block ends a loop that can observe writes of other threads, so that it may wait for them
    spins: bool = False
    # True if a jump back from here may end a loop. Jumps of recursive calls and returns do not: they cannot continue
    # for ever, because the stack is finite
    loops: bool = True

    @property
    def where(self) -> SourceLine | None:
        """The first source line of the block."""
        statements = [*self.body, self.last] if self.last else self.body
        return next((s.where for s in statements if not isinstance(s, Label) and s.where), None)


@dataclass
class Graph:
    """A kernel as blocks in scheduling order; block 0 is the entry."""

    blocks: list[Block]
    registers: dict[str, int]


def liveness(blocks: list[Block], registers: dict[str, int]) -> None:
    """Set each block's live registers, and the last use of those that die in it."""
    uses, last = [], []
    for block in blocks:
        defined, used, touched = _summary(block, registers)
        block.defined = _bits(defined, registers)
        uses.append(_bits(used, registers))
        last.append(touched)
    changed = True
    while changed:
        changed = False
        for block, used_bits in zip(reversed(blocks), reversed(uses), strict=True):
            block.live_out = 0
            for target in block.targets:
                block.live_out |= blocks[target].live_in
            live_in = used_bits | (block.live_out & ~block.defined)
            changed |= live_in != block.live_in
            block.live_in = live_in
    for block, touched in zip(blocks, last, strict=True):
        lives_on = block.live_out.to_bytes(len(registers) // 8 + 1, "little")
        for name, number in touched.items():
            index = registers[name]
            if not lives_on[index >> 3] >> (index & 7) & 1:
                block.dying.setdefault(number, []).append(name)


def _summary(block: Block, registers: dict[str, int]) -> tuple[set[str], set[str], dict[str, int]]:
    """Return a block's written registers, those read before a write, and the last statement of each register."""
    defined: set[str] = set()
    used: set[str] = set()
    last: dict[str, int] = {}
    statement: Statement | None = None
    try:
        for number, statement in enumerate([*block.body, *([block.last] if block.last else [])]):
            writes, reads = defined_and_used(statement, registers)
            for name in reads:
                if name not in last:
                    used.add(name)
                last[name] = number
            for name in writes:
                defined.add(name)
                last[name] = number
    except MALFORMED:
        raise refusal(statement) from None
    return defined, used, last


_NOT_EMPTY = re.compile(rb"[^\0]")


def _bits(names: Iterable[str], registers: dict[str, int]) -> int:
    """Return a bit set. Shifts would copy it once per member."""
    bits = bytearray(len(registers) // 8 + 1)
    for index in [registers[name] for name in names]:
        bits[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(bits, "little")


def members(bits: int) -> Iterator[int]:
    """Yield the members of a bit set, which are few even if it has a bit for each of 50,000 registers."""
    for found in _NOT_EMPTY.finditer(bits.to_bytes(-(-bits.bit_length() // 8), "little")):
        byte = found[0][0]
        while byte:
            yield 8 * found.start() + (byte & -byte).bit_length() - 1
            byte &= byte - 1


def discard_unused(block: Block, registers: dict[str, int]) -> None:
    """Drop results of atomics that are never read, so that all lanes of an address can be combined."""
    if not any(isinstance(statement, Instruction) and statement.op[0] == "atom" for statement in block.body):
        return
    overwritten: set[str] = set()  # by later statements of the block
    needed: set[str] = set(defined_and_used(block.last, registers)[1]) if block.last is not None else set()
    for index in reversed(range(len(block.body))):
        statement = block.body[index]
        writes, reads = defined_and_used(statement, registers)
        is_needed = any(
            name in needed or (name not in overwritten and block.live_out >> registers[name] & 1) for name in writes
        )
        if isinstance(statement, Instruction) and statement.op[0] == "atom" and writes and not is_needed:
            block.body[index] = statement._replace(operands=(Sym("_"), *statement.operands[1:]))
        needed.difference_update(writes)
        overwritten.update(writes)
        needed.update(reads)
