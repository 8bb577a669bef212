"""The scheduling order of basic blocks.

The scheduler always advances the lanes in the lowest block, so the order decides where diverged lanes meet again. It is
topological with each loop's blocks kept together: the exit of a loop comes after its body.
"""

from __future__ import annotations

from .components import components
from .graph import Block


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
