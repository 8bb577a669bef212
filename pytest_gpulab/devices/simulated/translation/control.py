"""The control flow of an inlined kernel: basic blocks in scheduling order, their ends, and liveness.

The scheduler always advances the lanes in the lowest block, so the order decides where diverged lanes meet
again. It is topological with each loop's blocks kept together (the exit of a loop comes after its body), found
by ordering strongly connected components and, inside each, again without the edges back to its header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pytest_gpulab.devices.protocol import CannotSimulate, SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import (
    Address,
    Call,
    Function,
    Imm,
    Instruction,
    Label,
    Not,
    Operand,
    Pair,
    Reg,
    Statement,
    Sym,
    Vector,
)

from .components import components
from .refusals import MALFORMED, refusal


@dataclass
class Block:
    """A basic block.

    Attributes:
        body: statements, none of which moves control.
        end: what the last statement does: `goto`, `branch`, `switch`, `barrier` or `exit`.
        last: the statement that `end` stands for, where there is one.
        targets: indices of the next blocks; for `branch` (taken, not taken).
        converge: the block begins with a warp-synchronising instruction.
        live_in, live_out, defined: registers as bit sets over `Graph.registers`.
        dying: by the number of a statement in `body`: the registers whose values nothing needs after it.
        spins: a loop ends here whose body can see other threads' writes (it may be a wait for them).
        loops: a jump back from here may be the end of a loop. That of a recursive call or of its return is none, so it
            cannot go on for ever: at last the stack is full.
    """

    body: list[Statement] = field(default_factory=list)
    end: str = "goto"
    last: Instruction | None = None
    targets: tuple[int, ...] = ()
    converge: bool = False
    live_in: int = 0
    live_out: int = 0
    defined: int = 0
    dying: dict[int, list[str]] = field(default_factory=dict)
    spins: bool = False
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


TENSOR_CORES = {"wmma", "mma", "ldmatrix", "stmatrix", "movmatrix"}
"""Instructions that all lanes of a warp execute together, without naming them."""
_WARP_SYNC = {"shfl", "vote", "match", "redux", *TENSOR_CORES}
ENTER, LEAVE, RETURN = "enter~", "leave~", "return~"  # instructions of our own, for calls of recursive functions
_BARRIERS = {"bar", "barrier"}
_NO_RESULT = {"st", "red", "cp", "bar", "barrier", "bra", "brx", "membar", "fence", "nanosleep", "trap", "brkpt",
              "exit", "ret", "prefetch", "prefetchu", "pmevent", "discard", "applypriority",
              "griddepcontrol", "stmatrix", "sust"}  # fmt: skip
MBARRIER_TESTS = {"test_wait", "try_wait"}
_MBARRIER_RESULTS = {"arrive", "arrive_drop", "pending_count", *MBARRIER_TESTS}


def build(function: Function) -> Graph:
    """Return the control-flow graph of an inlined kernel.

    Raises:
        CannotSimulate: a jump to nowhere, a malformed instruction.
    """
    blocks = _Splitter(function).run()
    _mark_loops(blocks)
    try:
        order = _schedule(blocks)
    except RecursionError:
        raise CannotSimulate("loops as deep in each other as these") from None
    position = {old: new for new, old in enumerate(order)}
    ordered = [blocks[old] for old in order]
    for block in ordered:
        block.targets = tuple(position[target] for target in block.targets)
    registers = {name: i for i, name in enumerate(function.registers)}
    _liveness(ordered, registers)
    for block in ordered:
        _discard_unused(block, registers)
    _mark_spins(ordered)
    return Graph(ordered, registers)


def _mark_loops(blocks: list[Block]) -> None:
    """Tell the loops of the functions from jumps between them; `blocks` are in the order of the statements."""
    targets = {i: [*_targets_in_function(i, block)] for i, block in enumerate(blocks)}
    if all(tuple(targets[i]) == block.targets for i, block in enumerate(blocks)):
        return
    for found in components(list(targets), targets, 0):
        for i in found:
            blocks[i].loops = len(found) > 1 or i in targets[i]


def _targets_in_function(i: int, block: Block) -> tuple[int, ...]:
    """Return where a block goes on if calls of recursive functions count as straight code."""
    last = block.body[-1] if block.body else None
    op = last.op[0] if isinstance(last, Instruction) else ""
    return {ENTER: (i + 1,), RETURN: ()}.get(op, block.targets)


class _Splitter:
    """Cut a statement list at labels, jumps, barriers and warp-synchronising instructions."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.blocks = [Block()]
        self.labels: dict[str, int] = {}
        self.jumps: list[tuple[Block, tuple[str | int, ...]]] = []
        self.open = True  # whether the last block can still be continued

    def run(self) -> list[Block]:
        statement: Statement | None = None
        try:
            for statement in self.function.body:
                self._statement(statement)
        except MALFORMED:
            raise refusal(statement) from None
        if self.open:
            self._finish("exit", None, ())
        for block, targets in self.jumps:
            block.targets = tuple(self._target(block, target) for target in targets)
        return self.blocks

    def _statement(self, statement: Statement) -> None:
        if isinstance(statement, Label):
            self.labels[statement.name] = self._start()
        elif isinstance(statement, Call):
            self._current().body.append(statement)
        else:
            self._instruction(statement)

    def _target(self, block: Block, target: str | int) -> int:
        if isinstance(target, str) and target not in self.labels:
            raise CannotSimulate(f"a jump to {target}", block.last.where if block.last else block.where)
        return self.labels[target] if isinstance(target, str) else target

    def _current(self) -> Block:
        if not self.open:
            self._append()
        return self.blocks[-1]

    def _append(self) -> int:
        self.blocks.append(Block())
        self.open = True
        return len(self.blocks) - 1

    def _start(self) -> int:
        """Begin a new block unless the last one is still empty; return its index."""
        if self.open and not self.blocks[-1].body and not self.blocks[-1].converge:
            return len(self.blocks) - 1
        if self.open:
            self._finish("goto", None, (len(self.blocks),))
        return self._append()

    def _finish(self, end: str, last: Instruction | None, targets: tuple[str | int, ...]) -> None:
        block = self._current()
        block.end, block.last = end, last
        self.jumps.append((block, targets))
        self.open = False

    def _instruction(self, instruction: Instruction) -> None:
        op = instruction.op[0]
        if op == "bra":
            self._branch(instruction)
        elif instruction.guard is not None:
            self._predicated(instruction)
        elif op == "brx":
            label = instruction.operands[-1]
            targets = self.function.branch_targets.get(label.name) if isinstance(label, Sym) else None
            if targets is None:
                raise CannotSimulate(f"the instruction {instruction.name}", instruction.where)
            self._finish("switch", instruction, targets)
        elif op in ("ret", "exit"):
            self._finish("exit", instruction, ())
        elif op in _BARRIERS and "warp" not in instruction.op:
            self._current()
            self._finish("barrier", instruction, (len(self.blocks),))
        else:
            if op in _WARP_SYNC or (op in _BARRIERS and "warp" in instruction.op):
                self._start()
                self.blocks[-1].converge = True
            self._current().body.append(instruction)
            if op == "trap":
                self._finish("exit", None, ())

    def _branch(self, instruction: Instruction) -> None:
        target = instruction.operands[0]
        if not isinstance(target, Sym):
            raise CannotSimulate(f"the instruction {instruction.name}", instruction.where)
        self._current()
        if instruction.guard is None:
            self._finish("goto", instruction, (target.name,))
        else:
            self._finish("branch", instruction, (target.name, len(self.blocks)))

    def _predicated(self, instruction: Instruction) -> None:
        """`@p op` runs `op` in a block of its own, jumped over by the lanes whose predicate is false."""
        assert instruction.guard is not None
        register, negated = instruction.guard
        self._current()
        skip = Instruction(("bra",), (), (register, not negated), instruction.where)
        self._finish("branch", skip, ())
        branch, jump = self.blocks[-1], len(self.jumps) - 1
        inner = self._append()
        self._instruction(replace(instruction, guard=None))
        self.jumps[jump] = (branch, (self._start(), inner))


def _schedule(blocks: list[Block]) -> list[int]:
    successors = {i: list(block.targets) for i, block in enumerate(blocks)}
    reachable: set[int] = set()
    stack = [0]
    while stack:
        node = stack.pop()
        if node not in reachable:
            reachable.add(node)
            stack.extend(successors[node])
    return _order(sorted(reachable), {n: successors[n] for n in reachable}, 0)


def _order(nodes: list[int], successors: dict[int, list[int]], entry: int) -> list[int]:
    result: list[int] = []
    for component in reversed(components(nodes, successors, entry)):
        if len(component) == 1:
            result += component
            continue
        inside = set(component)
        entered = {t for n in nodes if n not in inside for t in successors[n] if t in inside}
        header = entry if entry in inside else min(entered)
        inner = {n: [t for t in successors[n] if t in inside and t != header] for n in component}
        result += _order(sorted(component), inner, header)
    return result


def _registers(operands: Iterable[Operand]) -> list[str]:
    found = []
    for operand in operands:
        kind = type(operand)
        if kind is Reg:
            found.append(operand.name)  # type: ignore[union-attr]
        elif kind is not Imm and kind is not Sym:
            found += _registers(_parts(operand))
    return found


def _parts(operand: Operand) -> Iterable[Operand]:
    if isinstance(operand, Vector):
        return operand.items
    if isinstance(operand, Pair):
        return operand.first, operand.second
    if isinstance(operand, Address):
        return (operand.base,)
    return (operand.operand,) if isinstance(operand, Not) else ()


def has_result(instruction: Instruction) -> bool:
    """Whether the first operand is written."""
    name = instruction.op[0]
    if name == "wmma":
        return instruction.op[1] != "store"
    if name == "mbarrier":
        return instruction.op[1] in _MBARRIER_RESULTS
    return name not in _NO_RESULT or (name in _BARRIERS and "red" in instruction.op)


def is_arrival(instruction: Instruction) -> bool:
    """Whether threads arrive at an mbarrier."""
    return instruction.op[0] == "mbarrier" and instruction.op[1] in ("arrive", "arrive_drop")


def defined_and_used(statement: Statement, registers: dict[str, int]) -> tuple[list[str], list[str]]:
    """Return the registers that a statement writes and reads."""
    if isinstance(statement, Call):  # of the driver, whose parameters are registers by now
        defined, used = (
            [name for passed in names if (name := f"{passed}+0") in registers]
            for names in (statement.results, statement.arguments)
        )
        return defined, used
    assert isinstance(statement, Instruction)
    operands = statement.operands
    names = _registers(operands)
    split = 0
    if operands and has_result(statement):
        split = 1 if type(operands[0]) is Reg else len(_registers(operands[:1]))
    defined, used = names[:split], names[split:]
    if statement.guard is not None:
        used.append(statement.guard[0].name)
    return defined, used


def _liveness(blocks: list[Block], registers: dict[str, int]) -> None:
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
    names = list(registers)
    for block, touched in zip(blocks, last, strict=True):
        lives_on = {names[index] for index in members(block.live_out)}
        for name, number in touched.items():
            if name not in lives_on:
                block.dying.setdefault(number, []).append(name)


def _summary(block: Block, registers: dict[str, int]) -> tuple[set[str], set[str], dict[str, int]]:
    """Return the registers that a block writes, those that it reads first, and each one's last statement by number."""
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


def _bits(names: Iterable[str], registers: dict[str, int]) -> int:
    """Return a bit set; not by shifts, each of which would copy it."""
    bits = bytearray(len(registers) // 8 + 1)
    for name in names:
        index = registers[name]
        bits[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(bits, "little")


def members(bits: int) -> Iterator[int]:
    """Yield what is in a bit set; not by shifts, each of which would copy it."""
    digits = f"{bits:b}"[::-1]
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)


def _discard_unused(block: Block, registers: dict[str, int]) -> None:
    """Give up old values that atomics fetch but nobody reads: lanes that meet can then act all at once."""
    if not any(isinstance(statement, Instruction) and statement.op[0] == "atom" for statement in block.body):
        return
    gone: set[str] = set()  # what is written before it is read again, or not needed after the block
    needed: set[str] = set(defined_and_used(block.last, registers)[1]) if block.last is not None else set()
    for index in reversed(range(len(block.body))):
        statement = block.body[index]
        writes, reads = defined_and_used(statement, registers)
        is_needed = any(
            name in needed or (name not in gone and block.live_out >> registers[name] & 1) for name in writes
        )
        if isinstance(statement, Instruction) and statement.op[0] == "atom" and writes and not is_needed:
            block.body[index] = replace(statement, operands=(Sym("_"), *statement.operands[1:]))
        needed.difference_update(writes)
        gone.update(writes)
        needed.update(reads)


def _sees_others(block: Block) -> bool:
    """Whether the block can notice another thread's write, so that looping over it may be waiting."""
    words = {word for s in block.body if isinstance(s, Instruction) for word in s.op}
    return bool(
        words & {"volatile", "acquire", "relaxed", "acq_rel", "atom", "membar", "fence", "nanosleep", "mmio", "warp"}
        or words & MBARRIER_TESTS
    )


def _mark_spins(blocks: list[Block]) -> None:
    for i, block in enumerate(blocks):
        backs = [target for target in block.targets if target <= i]
        if backs:
            block.spins = any(_sees_others(inner) for inner in blocks[min(backs) : i + 1])
