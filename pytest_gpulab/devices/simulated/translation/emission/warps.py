"""Shuffles, votes, matches and warp reductions as calls of `warps.collectives`."""

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Operand, Pair

from .block import CODES, BlockWriter, emits


@emits("shfl", modifiers="sync up down bfly idx")
def _shuffle(b: BlockWriter, i: Instruction) -> None:
    mode = next(part for part in i.op if part in ("up", "down", "bfly", "idx"))
    target, *operands = i.operands
    arguments = ", ".join(b.read(operand, "u4") for operand in operands[:4])
    b.names.shuffles = True
    site = b.names.site("shuffle", "shuffle", 0, i)
    _write_both(b, target, f"shuffle(w, L, {site}, {mode!r}, {arguments})")


def _write_both(b: BlockWriter, target: Operand, call: str) -> None:
    """Write a word and a predicate; the predicate only if the instruction names a register for it."""
    result, predicate = b.temporary(), b.temporary()
    b.lines.append(f"{result}, {predicate} = {call}")
    b.write(target.first if isinstance(target, Pair) else target, result, "u4")
    if isinstance(target, Pair):
        b.write(target.second, predicate, "?")


@emits("vote", modifiers="sync all any uni ballot")
def _vote(b: BlockWriter, i: Instruction) -> None:
    mode = next(part for part in i.op if part in ("all", "any", "uni", "ballot"))
    predicate = b.read(i.operands[1], "?")
    mask = b.read(i.operands[2], "u4") if len(i.operands) > 2 else b.names.constant(-1, "u4")
    b.write(i.operands[0], f"vote(L, {mode!r}, {predicate}, {mask})", "u4" if mode == "ballot" else "?")


@emits("match", modifiers="sync any all")
def _match(b: BlockWriter, i: Instruction) -> None:
    code = CODES[i.op[-1]]
    value, mask = b.read(i.operands[1], code), b.read(i.operands[2], "u4")
    target = i.operands[0]
    if "any" in i.op:
        b.write(target, f"match_any(L, {value}, {mask})", "u4")
        return
    _write_both(b, target, f"match_all(L, {value}, {mask})")


@emits("redux", modifiers="sync add min max and or xor")
def _redux(b: BlockWriter, i: Instruction) -> None:
    operation, code = i.op[2], CODES[i.op[-1]]
    if code[0] == "f":
        raise CannotSimulate("a warp reduction of floats")
    value, mask = b.read(i.operands[1], code), b.read(i.operands[2], "u4")
    b.write(i.operands[0], f"redux(L, {operation!r}, {value}, {mask})", code)


@emits("activemask")
def _activemask(b: BlockWriter, i: Instruction) -> None:
    b.names.sees_order = True  # the active lanes depend on the progress of other lanes
    b.write(i.operands[0], "activemask(L)", "u4")


@emits("elect", modifiers="sync")
def _elect(b: BlockWriter, i: Instruction) -> None:
    target = i.operands[0]
    if not isinstance(target, Pair):
        raise CannotSimulate("an election of this form")
    _write_both(b, target, "elect(L)")


@emits("bar", "barrier", modifiers="warp sync cluster arrive release relaxed aligned")
def _barrier(b: BlockWriter, i: Instruction) -> None:
    """Write `bar.warp.sync`, before which the scheduler reconverges the lanes, or `barrier.cluster.arrive`."""
    if "cluster" in i.op:
        if "relaxed" not in i.op:  # a relaxed arrival orders no memory accesses
            b.lines.append("if w.checker is not None: w.checker.cluster_arrival(L)")
        return
    b.lines.append(f"if w.checker is not None: w.checker.warp_sync(L, {b.read(i.operands[-1], 'u4')})")
