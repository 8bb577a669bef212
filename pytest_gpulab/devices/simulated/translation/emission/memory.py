"""Moves, and loads, stores, atomics and fences as calls of the running wave.

The wave (`w` in generated code) owns the memories; every access passes its group's lanes and its `Site`.
"""

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import (
    Address,
    Call,
    Imm,
    Instruction,
    Operand,
    Reg,
    Sym,
    Vector,
    items_of,
)
from pytest_gpulab.devices.simulated.translation.control.graph import REFUSED, space_of
from pytest_gpulab.devices.simulated.translation.sites import ASYNC_COPY, atomic_kind

from .block import CODES, BlockWriter, emits, refuse_others, type_code

# Hints for caches change no result.
_CACHING = (
    "ca cg cs lu cv nc wb wt L1__evict_normal L1__evict_unchanged L1__evict_first L1__evict_last L1__no_allocate "
    "L2__evict_normal L2__evict_first L2__evict_last L2__cache_hint L2__64B L2__128B L2__256B"
)
_ORDER = "weak volatile relaxed acquire release acq_rel mmio cta cluster gpu sys"
_PLACES = "const global local param shared param__entry param__func shared__cta shared__cluster"


@emits("mov")
def _mov(b: BlockWriter, i: Instruction) -> None:
    target, source = i.operands
    code = type_code(i)
    if isinstance(source, Sym) and source.name in ("%envreg1", "%envreg2"):
        b.names.grid_syncs = True
        b.write(target, f"w.workspace({source.name!r})", "u4")
    elif isinstance(source, Vector):
        _pack(b, target, source, code)
    elif isinstance(target, Vector):
        _unpack(b, target, source, code)
    else:
        b.write(target, b.read(source, code), code)


def _part_size(vector: Vector, code: str) -> int:
    size, rest = divmod(int(code[1]), len(vector.items))
    if rest:
        raise CannotSimulate(f"a vector of {len(vector.items)} parts")
    return size


def _pack(b: BlockWriter, target: Operand, source: Vector, code: str) -> None:
    size = _part_size(source, code)
    parts = []
    for k, item in enumerate(source.items):
        part = f"{b.read(item, f'u{size}')}.astype(u{code[1]})"
        parts.append(f"({part} << {b.names.constant(8 * size * k, f'u{code[1]}')})" if k else part)
    b.write(target, " | ".join(parts), f"u{code[1]}")


def _unpack(b: BlockWriter, target: Vector, source: Operand, code: str) -> None:
    unsigned = f"u{code[1]}"
    whole = b.read(source, unsigned)
    size = _part_size(target, code)
    for k, item in enumerate(target.items):
        if isinstance(item, Sym):  # `_`: the part is discarded
            continue
        shifted = f"({whole} >> {b.names.constant(8 * size * k, unsigned)})" if k else whole
        b.write(item, f"{shifted}.astype(u{size})", f"u{size}")


@emits("cvta", modifiers="to global shared local const shared__cta shared__cluster")
def _convert_address(b: BlockWriter, i: Instruction) -> None:
    space = next(part for part in i.op[1:] if part != "to")
    space, _, _ = space.partition("__")
    if type_code(i) != "u8":
        raise CannotSimulate("an address of another size")
    value = b.read(i.operands[1], "u8")
    if space in ("shared", "local"):
        window = b.names.constant(b.names.addresses[f"{space} window"], "u8")
        value = f"{value} - {window}" if "to" in i.op else f"{value} + {window}"
    b.write(i.operands[0], value, type_code(i))


@emits("ld", "ldu", modifiers=f"{_CACHING} {_ORDER} {_PLACES} v2 v4 v8")
def _load(b: BlockWriter, i: Instruction) -> None:
    target, address = i.operands[:2]
    if not isinstance(address, Address):
        raise CannotSimulate("an address of this form")
    code, space = CODES[i.op[-1]], space_of(i)
    items = items_of(target)
    if space == "param":
        _load_parameter(b, i, items, address, code)
        return
    site = b.names.site(space, "read", int(code[1]) * len(items), i)
    if i.number in b.chosen:
        selection, is_first = b.chosen[i.number]
        inner = b.keep(b.address(address))
        b.unchecked.setdefault(selection, []).append((site, inner, is_first))
        loaded = f"w.load_shared(L, {site}, {inner}, {code}, 1, False)"
    else:
        loaded = f"w.load_{space}(L, {site}, {b.address(address)}, {code}, {len(items)})"
    if isinstance(target, Reg):
        b.write(target, f"{loaded}[0]", code)
    else:
        b.write_all(target, loaded, code)


def _load_parameter(b: BlockWriter, i: Instruction, items: tuple[Operand, ...], address: Address, code: str) -> None:
    for k, item in enumerate(items):
        shift = int(code[1]) * k
        base = address.base
        if isinstance(base, Sym):
            offset = str(b.names.addresses[base.name] + base.offset + address.offset + shift)
        else:
            offset = b.address(Address(base, address.offset + shift))
        b.write(item, f"w.parameter({offset}, {code})", code)


@emits("st", modifiers=f"{_CACHING} {_ORDER} {_PLACES} v2 v4 v8")
def _store(b: BlockWriter, i: Instruction) -> None:
    address, value = i.operands[:2]
    code, space = CODES[i.op[-1]], space_of(i)
    if not isinstance(address, Address) or space == "param":  # parameters of functions are registers at this point
        raise CannotSimulate("an address of this form")
    items = items_of(value)
    site = b.names.site(space, "write", int(code[1]) * len(items), i)
    values = ", ".join(b.read(item, code) for item in items)
    b.lines.append(f"w.store_{space}(L, {site}, {b.address(address)}, [{values}])")


_PACKED = {"f16x2": "u4", "bf16": "u2", "bf16x2": "u4"}  # floats of atomics that NumPy lacks
_ATOMIC = ("add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec")


@emits("atom", "red", modifiers=f"{_ORDER} {_PLACES} {' '.join(_ATOMIC)} noftz")
def _atomic(b: BlockWriter, i: Instruction) -> None:
    returns = i.op[0] == "atom"
    operation = next((part for part in i.op if part in _ATOMIC), None)
    kind = i.op[-1]
    code = _PACKED.get(kind) or CODES[kind]
    address = i.operands[int(returns)]
    if len(i.operands) - returns != (3 if operation == "cas" else 2):
        raise CannotSimulate(f"{len(i.operands)} operands")
    if operation is None or not isinstance(address, Address) or (kind in _PACKED and operation != "add"):
        raise CannotSimulate("an atomic operation of this kind")
    if kind in _PACKED:
        operation = f"add.{kind}"
    values = ", ".join(b.read(operand, code) for operand in i.operands[int(returns) + 1 :])
    if returns and isinstance(i.operands[0], Sym):
        returns = False  # the result goes to `_`
    cost_kind = atomic_kind(operation, int(code[1]), kind.startswith(("f", "bf")), i.operands[-1] == Imm(1))
    site = b.names.site(space_of(i), "atomic", int(code[1]), i, returns, cost_kind)
    if returns and i.number in b.names.retries:
        _retried(b, i, site, code)
        return
    call = f"w.atomic(L, {site}, {operation!r}, {b.address(address)}, {code}, [{values}], {returns})"
    if returns:
        b.write(i.operands[0], call, code)
    else:
        b.lines.append(call)


def _retried(b: BlockWriter, i: Instruction, site: str, code: str) -> None:
    """Write a compare-and-swap that its loop repeats, as an atomic with the function that computes the new value."""
    retry, (result, address, expected, new) = b.names.retries[i.number], i.operands
    assert isinstance(address, Address) and isinstance(expected, Reg)
    known = {name: f"r{b.names.index[name]}" for name in (expected.name, *retry.given)}
    inner = BlockWriter(b.names)
    inner.locals = dict(known)
    for step in retry.steps:
        inner.instruction(step)
    value, parameters = inner.read(new, code), ", ".join(known.values())
    b.lines += [f"def update({parameters}):", *(f" {line}" for line in (*inner.lines, f"return {value}"))]
    given = ", ".join(b.local(name) for name in retry.given)
    b.write(result, f"w.atomic(L, {site}, update, {b.address(address)}, {code}, [{given}], True)", code)
    b.write(expected, b.read(result, code), code)  # as in an iteration in turn
    for step in retry.steps:
        b.instruction(step)


_COPYING = f"async ca cg commit_group wait_group wait_all {_PLACES} L2__64B L2__128B L2__256B".split()


@emits("cp", modifiers=None)
def _copy(b: BlockWriter, i: Instruction) -> None:
    """Write `cp.async` and the instructions that wait for it."""
    if "bulk" in i.op:
        from .mbarriers import bulk_copy

        bulk_copy(b, i)
        return
    refuse_others(i, {*_COPYING, "mbarrier", "arrive", "noinc"} if "mbarrier" in i.op else {*_COPYING})
    if "mbarrier" in i.op:
        from .mbarriers import copies_arrive

        copies_arrive(b, i)
    elif i.op[1:] == ("async", "commit_group"):
        b.lines.append("w.copies.commit(L)")
    elif i.op[1:] == ("async", "wait_all"):
        b.lines.append("w.copies.wait(L, None)")
    elif i.op[1:] == ("async", "wait_group") and isinstance(i.operands[0], Imm):
        b.lines.append(f"w.copies.wait(L, {i.operands[0].value})")
    else:
        _start_copy(b, i)


def _start_copy(b: BlockWriter, i: Instruction) -> None:
    target, source, size, *rest = i.operands
    sizes = (16,) if "cg" in i.op else (4, 8, 16)
    if not isinstance(target, Address) or not isinstance(source, Address) or not isinstance(size, Imm):
        raise CannotSimulate("an asynchronous copy of this form")
    if size.value not in sizes or not {"ca", "cg"} & {*i.op} or (rest and _is_predicate(b, rest[0])):
        raise CannotSimulate("an asynchronous copy of this form")
    read, write = (
        b.names.site(space, access, size.value, i, kind=ASYNC_COPY)
        for space, access in (("global", "read"), ("shared", "write"))
    )
    nbytes = b.read(rest[0], "u4") if rest else "None"
    b.lines.append(f"w.copies.start(L, ({read}, {write}), {b.address(target)}, {b.address(source)}, {nbytes})")


def _is_predicate(b: BlockWriter, operand: Operand) -> bool:
    return isinstance(operand, Reg) and b.names.codes[operand.name] == "?"


@emits("membar", "fence", modifiers=None)
def _fence(b: BlockWriter, i: Instruction) -> None:
    """Write a fence. Simulated memory is sequentially consistent, so only the race check needs it."""
    if {"proxy", "mbarrier_init"} & {*i.op}:
        return  # these order a thread's accesses for other units, not for other threads
    b.names.fences = b.names.sees_order = True
    b.lines.append(f"if w.checker is not None: w.checker.fence(L, {'cta' not in i.op})")


LOST = 0xDEADBEEF
_IDLE = ("griddepcontrol", "nanosleep", "prefetch", "prefetchu", "pmevent", "applypriority")


@emits(*_IDLE, modifiers=None)
def _nothing(b: BlockWriter, i: Instruction) -> None:
    """Write nothing: there are no caches to prefetch into, no time to wait, no overlapping grids."""


@emits("discard", modifiers=None)
def _discard(b: BlockWriter, i: Instruction) -> None:
    """Write stores of another value to the 128 bytes, which are undefined until they are written again."""
    space, address = space_of(i), i.operands[0]
    if not isinstance(address, Address):
        raise CannotSimulate("an address of this form")
    lost = ", ".join([b.names.constant(LOST, "u4")] * 4)
    for offset in range(address.offset, address.offset + 128, 16):
        site = b.names.site(space, "write", 16, i)
        b.lines.append(f"w.store_{space}(L, {site}, {b.address(address._replace(offset=offset))}, [{lost}])")


@emits("createpolicy", modifiers=None)
def _policy(b: BlockWriter, i: Instruction) -> None:
    b.write(i.operands[0], b.names.constant(0, "u8"), "u8")


@emits("trap", "brkpt")
def _trap(b: BlockWriter, i: Instruction) -> None:
    site = b.names.site("trap", i.op[0], 0, i)
    b.lines.append(f"w.trap(L, {site})")


@emits(REFUSED, modifiers=None)
def _refused(b: BlockWriter, i: Instruction) -> None:
    """Write the error of a call that is not inlined; it ends the launch only if it is executed."""
    b.lines.append(f"raise {b.names.refusal(i.op[1], i.where)}()")


def emit_built_in(b: BlockWriter, call: Call) -> None:
    """Write a call of a driver function; its parameters are registers at this point."""
    assert isinstance(call.callee, Sym)
    values = [b.local(f"{name}+0") for name in call.arguments]
    site = b.names.site("call", call.callee.name, 0, call)
    if call.callee.name == "__assertfail":
        b.lines.append(f"w.assertion(L, {site}, {', '.join(values[:3])})")
        return
    if call.callee.name in ("malloc", "free"):
        _heap(b, call, site, values)
        return
    b.lines.append(f"w.printf(L, {site}, {', '.join(values)})")
    for name in call.results:
        if f"{name}+0" in b.names.codes:
            b.write(Reg(f"{name}+0"), b.names.constant(1, "u4"), "u4")


def _heap(b: BlockWriter, call: Call, site: str, values: list[str]) -> None:
    """Write a call of `malloc` or `free`. The returned addresses reveal the order of threads."""
    assert isinstance(call.callee, Sym)
    b.names.allocates = b.names.sees_order = True
    if call.callee.name == "free":
        b.lines.append(f"w.launch.heap.free(L, {values[0]})")
        return
    known = [name for result in call.results if (name := f"{result}+0") in b.names.codes]
    b.write(Reg(known[0]) if known else Sym("_"), f"w.launch.heap.malloc(L, {site}, {values[0]})", "u8")
