"""Building the control-flow graph of an inlined kernel."""

from __future__ import annotations

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Function, Instruction

from .components import components
from .graph import Block, Graph
from .instructions import ENTER, MBARRIER_TESTS, RETURN
from .liveness import discard_unused, liveness
from .order import schedule
from .splitting import Splitter


def build(function: Function) -> Graph:
    """Return the control-flow graph of an inlined kernel.

    Raises:
        CannotSimulate: a jump to an unknown label, a malformed instruction.
    """
    blocks = Splitter(function).run()
    _mark_loops(blocks)
    try:
        order = schedule(blocks)
    except RecursionError:
        raise CannotSimulate("loops nested this deeply") from None
    position = {old: new for new, old in enumerate(order)}
    ordered = [blocks[old] for old in order]
    for block in ordered:
        block.targets = tuple(position[target] for target in block.targets)
    registers = {name: i for i, name in enumerate(function.registers)}
    liveness(ordered, registers)
    for block in ordered:
        discard_unused(block, registers)
    _mark_spins(ordered)
    return Graph(ordered, registers)


def _mark_loops(blocks: list[Block]) -> None:
    """Set `Block.loops`: jumps between functions are no loops. `blocks` are in the order of the statements."""
    targets = {i: [*_targets_in_function(i, block)] for i, block in enumerate(blocks)}
    if all(tuple(targets[i]) == block.targets for i, block in enumerate(blocks)):
        return
    for found in components(list(targets), targets, 0):
        for i in found:
            blocks[i].loops = len(found) > 1 or i in targets[i]


def _targets_in_function(i: int, block: Block) -> tuple[int, ...]:
    """Return the targets of a block, with calls of recursive functions taken as straight code."""
    last = block.body[-1] if block.body else None
    op = last.op[0] if isinstance(last, Instruction) else ""
    return {ENTER: (i + 1,), RETURN: ()}.get(op, block.targets)


def _sees_others(block: Block) -> bool:
    """Return whether the block can observe a write of another thread, so that a loop over it may be a wait."""
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
