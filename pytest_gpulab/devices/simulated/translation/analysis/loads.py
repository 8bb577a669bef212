"""Uses of loaded values: in spin loops, as the expected value of `atomicCAS`, in plain copies, under a condition."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_gpulab.devices.simulated.ptx.syntax import (
    Address,
    Call,
    Imm,
    Instruction,
    Label,
    Operand,
    Reg,
    Statement,
    Sym,
    items_of,
)
from pytest_gpulab.devices.simulated.translation.control.graph import Block, defined_and_used, with_sources
from pytest_gpulab.devices.simulated.translation.sites import ordering

WORD_BYTES = 4
_COPIES = ("mov", "cvta")
_COMPUTES = ("add", "and", "cvt", "fma", "mad", "max", "min", "mov", "mul", "neg", "or", "shl", "shr", "sub", "xor")
# operands, by opcode
_MOVED = {"mov": (1,), "cvt": (1,), "shr": (1,), "selp": (1, 2), "prmt": (1, 2), "shfl": (1,), "st": (1,)}


def guesses(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the loads, by number, with values that an `atom.cas` at the same address expects.

    The CUDA C++ Programming Guide builds any atomic operation from a loop that begins with such a load. Its
    race is harmless: if another thread has changed the value meanwhile, the comparison fails and the loop repeats.
    """
    if not any("cas" in instruction.op for instruction in _instructions(blocks)):
        return frozenset()
    copies: dict[str, set[str]] = defaultdict(set)
    sources: dict[str, list[Instruction]] = defaultdict(list)
    swaps, loads = [], []
    for instruction in _instructions(blocks):
        if len(instruction.operands) < 2:  # also for malformed instructions, which are refused later
            continue
        if isinstance(target := instruction.operands[0], Reg):
            sources[target.name].append(instruction)
            if instruction.op[0] in _COPIES and isinstance(source := instruction.operands[1], Reg):
                copies[source.name].add(target.name)
        if instruction.op[0] == "atom" and "cas" in instruction.op and len(instruction.operands) > 2:
            swaps.append(instruction)
        elif instruction.op[0] == "ld" and isinstance(target, Reg):
            loads.append((instruction, target.name))
    compared = defaultdict(set)
    for swap in swaps:
        if isinstance(expected := swap.operands[2], Reg):
            compared[_address_key(swap.operands[1], sources)].add(expected.name)
    return frozenset(
        load.number for load, name in loads
        if not compared[_address_key(load.operands[1], sources)].isdisjoint(_copies_of(name, copies))
    )  # fmt: skip


def awaited(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the strong loads and the atomics, by number, with values that decide whether their loop continues."""
    found: set[int] = set()
    for i, block in enumerate(blocks):
        if block.spins:
            loop = blocks[min(target for target in block.targets if target <= i) : i + 1]
            found |= _deciding_loads(loop)
    return frozenset(found)


def copied(statements: Sequence[Instruction | Call]) -> dict[int, int]:
    """Return the loads, by number, with values that are only moved: to registers, to other lanes, to memory.

    Copies of a struct include its padding, which is never written. They use vector loads, or several loads of one line;
    some of these may read only padding. A load of a local variable ahead of a selection belongs to a branch that the
    compiler has removed: the value may be discarded. The result has the bytes per load of such a copy, at least one of
    which must have been written; 0 if none need be.
    """
    flows: list[tuple[list[str], list[str]]] = []
    computed: set[str] = set()
    for statement in statements:
        written, read = defined_and_used(statement, {})
        moved = _moved_by(statement)
        computed.update(name for name in read if name not in moved)
        flows.append((written, moved))
    computed = with_sources(computed, flows)
    loads = [s for s in statements if isinstance(s, Instruction) and s.op[0] in ("ld", "ldu") and "param" not in s.op]
    kept = {load.number for load in loads} - {
        load.number for load in loads if not computed.isdisjoint(defined_and_used(load, {})[0])
    }
    at_line = Counter(load.where for load in loads if load.number in kept)
    units = {load.number: _unit(load, at_line[load.where]) for load in loads if load.number in kept}
    copies = {number: unit for number, unit in units.items() if unit is not None}
    return _async_copies(statements) | copies | dict.fromkeys(_selected(statements, loads), 0)


def _selected(statements: Sequence[Instruction | Call], loads: Sequence[Instruction]) -> list[int]:
    """Return the loads of local memory, by number, with values that only selections read, against values of others."""
    local = {load.number: set(defined_and_used(load, {})[0]) for load in loads if "local" in load.op}
    if not local:
        return []
    loaded = set[str]().union(*local.values())
    chosen, used = set[str](), set[str]()
    for statement in statements:
        is_selection = isinstance(statement, Instruction) and statement.op[0] == "selp"
        values = loaded.intersection(_moved_by(statement)) if is_selection else set()
        values = values if len(values) == 1 else set()
        chosen.update(values)
        used.update(name for name in defined_and_used(statement, {})[1] if name not in values)
    return [number for number, names in local.items() if names <= chosen - used]


def chosen(block: Block) -> dict[int, tuple[int, bool]]:
    """Return the selection that uses or discards each load of shared memory; both by number.

    The compiler turns `if (p) sum += tile[k]` into a load, an addition and a selection by all threads. Only those that
    select its value read `tile[k]` in the source: those with the predicate, or without it for False. Nothing else may
    use what is computed from the value, and nothing may write to memory before the selection.
    """
    found: dict[int, tuple[int, bool]] = {}
    makers: dict[str, int] = {}  # position of each register's last definition
    readers: dict[str, list[int]] = defaultdict(list)  # positions of the reads of this definition
    written_at = -1  # position of the last statement that may write to memory
    for at, statement in enumerate(block.body):
        if isinstance(statement, Label):
            continue
        defined, used = defined_and_used(statement, {})
        for name in used:
            readers[name].append(at)
        if not isinstance(statement, Instruction) or not defined or statement.op[0] == "atom":
            written_at = at
        elif statement.op[0] == "selp" and statement.operands[1] != statement.operands[2]:
            for value in statement.operands[1:3]:
                for load, loaded_at in _loads_for(value, at, block, makers, readers):
                    if loaded_at > written_at:
                        found[load.number] = statement.number, value is statement.operands[1]
        for name in defined:
            makers[name], readers[name] = at, []
    return found


def _loads_for(
    value: Operand, at: int, block: Block, makers: Mapping[str, int], readers: Mapping[str, list[int]]
) -> Iterator[tuple[Instruction, int]]:
    """Yield the loads of shared memory, and their positions, that only one operand of the statement at `at` needs."""
    pending = [(value, at)]
    while pending:
        operand, reader = pending.pop()
        if not isinstance(operand, Reg) or readers[operand.name] != [reader]:
            continue
        made_at = makers.get(operand.name, -1)
        made = block.body[made_at]
        if made_at < 0 or not isinstance(made, Instruction) or made.guard is not None:
            continue
        if operand.name not in block.dying.get(reader, ()):
            continue
        if made.op[0] in _COMPUTES:
            pending += [(each, made_at) for each in made.operands[1:]]
        elif made.op[0] == "ld" and {"shared", "volatile"}.intersection(made.op) == {"shared"}:
            yield from [(made, made_at)] if isinstance(made.operands[0], Reg) else []


class Carried(NamedTuple):
    """Bytes that a store writes exactly as a load has read them, at byte offsets into both accesses."""

    load: int
    at_load: int
    at_store: int
    nbytes: int


def carried(statements: Sequence[Instruction | Call]) -> dict[int, tuple[Carried, ...]]:
    """Return the bytes of each store, by number, that a load in `copied` has read unchanged."""
    of_copies = copied(statements)
    makers: dict[str, list[Instruction | Call]] = defaultdict(list)
    for statement in statements:
        for name in defined_and_used(statement, {})[0]:
            makers[name].append(statement)
    found = {}
    for store in statements:
        if isinstance(store, Instruction) and store.op[0] == "st" and store.op[1] != "param":
            size = _element(store)
            loaded = [_loaded(item, makers) for item in items_of(store.operands[1])]
            found[store.number] = tuple(
                Carried(load.number, place * size, k * size, size)
                for k, (load, place) in enumerate(loaded)
                if load is not None and load.number in of_copies and _element(load) == size
            )
    return {number: parts for number, parts in found.items() if parts}


def _loaded(item: object, makers: dict[str, list[Instruction | Call]]) -> tuple[Instruction | None, int]:
    """Return the only load that sets a register, and the register's position in it; None if there is no such load."""
    while isinstance(item, Reg) and len(made := makers[item.name]) == 1 and isinstance(maker := made[0], Instruction):
        if maker.op[0] == "ld":
            return maker, [part.name for part in items_of(maker.operands[0]) if isinstance(part, Reg)].index(item.name)
        if maker.op[0] != "mov" or maker.guard is not None:
            break
        item = maker.operands[1]
    return None, 0


def _element(access: Instruction) -> int:
    return int(access.op[-1].lstrip("usbf")) // 8


def _async_copies(statements: Sequence[Instruction | Call]) -> dict[int, int]:
    """Return the size of each asynchronous copy to shared memory, by number."""
    copies = (s for s in statements if isinstance(s, Instruction) and s.op[0] == "cp")
    return {copy.number: size.value for copy in copies for size in copy.operands[2:3] if isinstance(size, Imm)}


def _moved_by(statement: Statement) -> list[str]:
    """Return the registers that a statement only moves."""
    if not isinstance(statement, Instruction):
        return []
    operands = [statement.operands[k] for k in _MOVED.get(statement.op[0], ()) if k < len(statement.operands)]
    items = [item for operand in operands for item in items_of(operand)]
    return [item.name for item in items if isinstance(item, Reg)]


def _unit(load: Instruction, at_line: int) -> int | None:
    """Return the bytes of a load with a copied value of which one must have been written; 0 if none.

    `at_line` is the number of such loads at its source line. Return None if it is no copy of a struct.
    """
    target, element = load.operands[0], _element(load)
    items = len(items_of(target))
    if element < WORD_BYTES and at_line >= (2 if items > 1 else WORD_BYTES):  # this many elements form a word
        return 0
    return element * items if items > 1 or at_line > 1 else None


def _deciding_loads(loop: Sequence[Block]) -> set[int]:
    """Return the strong loads and the atomics of a loop that its branches depend on."""
    relevant = {block.last.guard[0].name for block in loop if block.last is not None and block.last.guard is not None}
    flows = [(s, *defined_and_used(s, {})) for s in _instructions(loop) if s.op[0] != "bra"]
    relevant = with_sources(relevant, ((written, read) for s, written, read in flows if s.op[0] not in ("ld", "atom")))
    loads = (s for s, written, _ in flows if s.op[0] in ("ld", "atom") and not relevant.isdisjoint(written))
    return {s.number for s in loads if s.op[0] == "atom" or ordering("read", s.op)[0] != "weak"}


def _instructions(blocks: Iterable[Block]) -> Iterator[Instruction]:
    for block in blocks:
        statements: list[Statement | None] = [*block.body, block.last]
        yield from (statement for statement in statements if isinstance(statement, Instruction))


def _address_key(operand: object, sources: dict[str, list[Instruction]]) -> object:
    """Return a key of an address: operands with equal keys are the same address."""
    if not isinstance(operand, Address):
        return operand
    base, offset = operand.base, operand.offset
    while isinstance(base, Reg) and len(made := sources[base.name]) == 1:
        op, operands = made[0].op[0], made[0].operands
        if op in _COPIES and isinstance(operands[1], Reg | Sym):
            base = operands[1]
        elif op == "add" and isinstance(operands[1], Reg) and isinstance(operands[2], Imm):
            base, offset = operands[1], offset + operands[2].value
        else:
            break
    return (base.name, offset + getattr(base, "offset", 0)) if isinstance(base, Reg | Sym) else (base, offset)


def _copies_of(name: str, copies: dict[str, set[str]]) -> set[str]:
    """Return the registers that receive copies of a register's value, including the register."""
    reached, new = {name}, [name]
    while new:
        more = copies[new.pop()] - reached
        reached |= more
        new.extend(more)
    return reached
