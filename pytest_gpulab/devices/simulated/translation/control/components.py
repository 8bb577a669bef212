"""Strongly connected components of a graph: loops of basic blocks, mutually recursive functions."""

from __future__ import annotations


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
