"""Wrong factors in the index of an element: which elements the threads take then, and how often.

The index of item k of thread t in block b is such as `1024 * b + t + 256 * k`. Items of a thread are neighbours, or one
block of threads apart, or one grid of threads apart in a loop over the input. Other factors leave out elements, and
take others several times.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from pytest_gpulab.exercise import Array, Launch

MAX_TAKEN = 1 << 18  # elements that all threads together take: more would take seconds
TRIED_INDEXES = 160  # the most that are yielded for one array, each a try
GRID = -1  # the number of blocks as a factor of the block's number, which differs between launches


@dataclass(frozen=True)
class IndexFactors:
    """The factors of the block's, the thread's and the item's number in an index."""

    block: int
    thread: int
    item: int
    threads: int  # per block
    items: int  # per thread; 0 for as many as the length allows

    def taken(self, blocks: int, length: int) -> Array:
        """Return the elements that each block takes: indices and, beyond the end, `length`; shape (blocks, any)."""
        items = self.items or -(-length // self.item)
        if blocks * self.threads * items > MAX_TAKEN:
            return np.empty((blocks, 0), np.intp)
        of_thread = np.add.outer(self.thread * np.arange(self.threads), self.item * np.arange(items))
        of_block = blocks if self.block == GRID else self.block
        index = np.add.outer(of_block * np.arange(blocks), of_thread).reshape(blocks, -1)
        return np.minimum(index, length)

    def words(self, blocks: int) -> str:
        """Return the words for the element that a thread takes, in the terms of a kernel."""
        parts = [(self.block if blocks > 1 else 0, "blockIdx.x"), (self.thread, "threadIdx.x")]
        parts.append((self.item if self.items != 1 else 0, "k"))
        named = [
            name if factor == 1 else f"{'gridDim.x' if factor == GRID else factor} * {name}"
            for factor, name in sorted(parts, reverse=True)
            if factor
        ]
        return f"{'a thread takes' if self.items == 1 else 'item k of a thread is'} element {' + '.join(named) or '0'}"


def index_factors(launch: Launch, length: int, tunables: Mapping[str, int]) -> Iterator[IndexFactors]:
    """Yield likely factors in an index of an array of this length, the right ones among them."""
    threads, blocks = math.prod(launch.block), math.prod(launch.grid)
    if (launch.grid[0], launch.block[0]) != (blocks, threads):
        return
    known = {factor for factor in (1, *tunables.values()) if factor > 0}
    for items in sorted(factor for factor in known if -(-length // (threads * factor)) == blocks):
        of_item = (threads, 1, 0) if items > 1 else (1,)
        for thread, item in product(dict.fromkeys((1, items, threads, 0)), dict.fromkeys(of_item)):
            is_exchanged = items == 1 and thread == threads  # likelier than a block's factor that is right
            of_block = (1, threads, GRID, 0) if is_exchanged else (threads * items, threads, GRID, 1, 0)
            for block in dict.fromkeys(of_block):
                yield IndexFactors(block, thread, item, threads, items)
    for block, thread, item in product((1, threads, blocks, 0), (1, 0), dict.fromkeys((threads, blocks, 1))):
        yield IndexFactors(block, thread, item, threads, 0)
