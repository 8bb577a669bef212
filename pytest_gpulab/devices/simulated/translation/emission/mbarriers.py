"""Asynchronous barriers in shared memory (`mbarrier`, under `cuda::barrier`), and the copies that arrive at them."""

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Address, Instruction, Operand
from pytest_gpulab.devices.simulated.translation.sites import BULK_UNIT, MBARRIER

from .block import BlockWriter, emits, refuse_others

_OPERATIONS = "init inval arrive arrive_drop noComplete expect_tx complete_tx test_wait try_wait parity pending_count"
_OPTIONS = "release acquire relaxed cta cluster shared shared__cta shared__cluster"
_BULK = frozenset({"async", "bulk", "global", "shared__cta", "shared__cluster", "mbarrier__complete_tx__bytes",
                   "bulk_group", "commit_group", "wait_group", "read", "L2__cache_hint"})  # fmt: skip
_UNKNOWN = {"tensor": "copies of tensors (cp.async.bulk.tensor)",
            "multicast__cluster": "copies to several blocks of a cluster (multicast)",
            "prefetch": "prefetches into L2 by cp.async.bulk"}  # fmt: skip


@emits("mbarrier", modifiers=f"{_OPERATIONS} {_OPTIONS}")
def _mbarrier(b: BlockWriter, i: Instruction) -> None:
    words = {*i.op}
    if "pending_count" in words:
        b.write(i.operands[0], f"w.mbarriers.pending_count({b.read(i.operands[1], 'u8')})", "u4")
    elif "init" in words:
        barrier = _barrier(b, i, i.operands[0], "write")
        b.lines.append(f"w.mbarriers.init({barrier}, {b.read(i.operands[1], 'u4')})")
    elif "inval" in words:
        b.lines.append(f"w.mbarriers.invalidate({_barrier(b, i, i.operands[0], 'atomic')})")
    elif words & {"test_wait", "try_wait"}:
        _test(b, i)
    elif words & {"arrive", "arrive_drop"}:
        _arrive(b, i)
    elif words & {"expect_tx", "complete_tx"}:
        sign = "" if "expect_tx" in words else ", -1"
        barrier = _barrier(b, i, i.operands[0], "atomic")
        b.lines.append(f"w.mbarriers.expect({barrier}, {b.read(i.operands[1], 'u4')}{sign})")
    else:
        raise CannotSimulate(f"the instruction {i.name}")


def _barrier(b: BlockWriter, i: Instruction, operand: Operand, access: str) -> str:
    """Return the lanes, the site and the barrier's address, as arguments."""
    if not isinstance(operand, Address):
        raise CannotSimulate("an address of this form")
    site, address = b.names.site("shared", access, 8, i, kind=MBARRIER), b.address(operand)
    if not any(word.startswith("shared") for word in i.op):
        address = f"w.in_shared(L, {site}, {address})"
    return f"L, {site}, {address}"


def _test(b: BlockWriter, i: Instruction) -> None:
    barrier = _barrier(b, i, i.operands[1], "read")
    phase = b.read(i.operands[2], "u4" if "parity" in i.op else "u8")
    b.write(i.operands[0], f"w.mbarriers.test({barrier}, {phase}, {'parity' in i.op}, {'relaxed' not in i.op})", "?")


def _arrive(b: BlockWriter, i: Instruction) -> None:
    target, operand, *rest = i.operands
    barrier = _barrier(b, i, operand, "atomic")
    given = b.read(rest[0], "u4") if rest else "w.one"
    if "expect_tx" in i.op:
        b.lines.append(f"w.mbarriers.expect({barrier}, {given})")
        given = "w.one"
    how = f"{'arrive_drop' in i.op}, {'noComplete' not in i.op}, {'relaxed' not in i.op}"
    b.write(target, f"w.mbarriers.arrive({barrier}, {given}, {how})", "u8")


def copies_arrive(b: BlockWriter, i: Instruction) -> None:
    """Write `cp.async.mbarrier.arrive`."""
    barrier = _barrier(b, i, i.operands[0], "atomic")
    b.lines.append(f"w.copies.arrive({barrier}, {'noinc' in i.op})")


def bulk_copy(b: BlockWriter, i: Instruction) -> None:
    """Write `cp.async.bulk` and the instructions that wait for it."""
    for word, feature in _UNKNOWN.items():
        if word in i.op:
            raise CannotSimulate(feature)
    refuse_others(i, _BULK)
    if {"commit_group", "wait_group"} & {*i.op}:
        return  # copies to global memory complete immediately
    target, source, size, *rest = i.operands
    if "global" not in i.op:
        raise CannotSimulate("copies between blocks of a cluster (cp.async.bulk)")
    if not isinstance(target, Address) or not isinstance(source, Address):
        raise CannotSimulate("a bulk copy of this form")
    to_shared = "bulk_group" not in i.op
    spaces = ("global", "shared") if to_shared else ("shared", "global")
    sites = ", ".join(
        b.names.site(space, access, BULK_UNIT, i) for space, access in zip(spaces, ("read", "write"), strict=True)
    )
    ends = f"{b.address(target)}, {b.address(source)}, {b.read(size, 'u4')}"
    if to_shared:
        b.lines.append(f"w.bulk_copies.to_shared(({sites}), {ends}, {_barrier(b, i, rest[0], 'atomic')})")
    else:
        b.lines.append(f"w.bulk_copies.to_global(L, ({sites}), {ends})")
