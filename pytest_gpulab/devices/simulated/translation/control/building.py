"""Building the control-flow graph of an inlined kernel, with its basic blocks in scheduling order.

The scheduler always advances the lanes in the lowest block, so the order decides where diverged lanes meet again. It is
topological with each loop's blocks kept together: the exit of a loop comes after its body.
"""

from __future__ import annotations

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Function, Instruction
from pytest_gpulab.devices.simulated.translation.control.graph import Block, Graph
from pytest_gpulab.devices.simulated.translation.control.instructions import ENTER, MBARRIER_TESTS, RETURN
from pytest_gpulab.devices.simulated.translation.control.liveness import discard_unused, liveness
from pytest_gpulab.devices.simulated.translation.control.splitting import Splitter


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


def schedule(blocks: list[Block]) -> list[int]:
    """Return the reachable blocks in scheduling order.

    It orders strongly connected components and, inside each, again without the edges back to its header.
    """
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


def components(nodes: list[int], successors: dict[int, list[int]], entry: int) -> list[list[int]]:
    """Return strongly connected components, successors before predecessors (Tarjan's algorithm, iterative)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    found: list[list[int]] = []
    for root in [entry, *nodes]:
        work = [] if root in index else [(root, iter(successors[root]))]
        while work:
            node, children = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            child = next((c for c in children if c not in index or c in on_path), None)
            if child is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    cut = path.index(node)
                    found.append(path[cut:])
                    on_path.difference_update(path[cut:])
                    del path[cut:]
            elif child in index:
                low[node] = min(low[node], index[child])
            else:
                work.append((child, iter(successors[child])))
    return found
