"""Arrays of which a launch reaches only a part, because it has fewer threads than they have elements."""

import math
from collections.abc import Iterable
from itertools import product

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.programs.api import Call
from pytest_gpulab.devices.programs.outcome import ShortLaunch
from pytest_gpulab.devices.programs.shared_memory import SharedAllocation

Sizes = tuple[int, int, int]

_WORDS = (1, 2, 4)  # of an element
_LEAST_USED = 32  # elements; a launch may use fewer on purpose


def note(call: Call, kernel: str, grid: Sizes, block: Sizes, arguments: Iterable[np.void]) -> None:
    """Note the arrays of which a launch has used one element per thread, and fewer than its arguments say they have.

    An array that any launch has used in another way is left out.
    """
    short, memories = call.session.outcome.short, call.session.memories
    values = [int.from_bytes(argument.tobytes(), "little") for argument in arguments]
    across, down = grid[0] * block[0], math.prod(grid[1:] + block[1:])
    for base in sorted((short.keys() | values) & memories.keys()):
        memory, is_left_out = memories[base], base in short and short[base] is None
        if is_left_out or not isinstance(memory.allocation, SharedAllocation) or not memory.allocation.use:
            continue
        used, total = _part(memory.allocation.words_used, values, across, down)
        found = ShortLaunch(call.site, memory.site, kernel, across * down, used, total) if used else None
        short[base] = found if short.get(base, found) == found else None


def _part(words: npt.NDArray[np.bool_], lengths: Iterable[int], across: int, down: int) -> tuple[int, int]:
    """Return how many elements are used, and how many there are, if threads have used one each; else (0, 0)."""
    likely = {1, *(length for length in lengths if 1 < length <= words.size)}
    for width, height in product(likely, repeat=2):
        if words.size not in (width * height * size for size in _WORDS):
            continue
        elements = np.logical_or.reduce(words.reshape(height, width, -1), axis=2)
        part = elements[:down, :across]
        if _LEAST_USED <= part.size < elements.size and part.all() and np.count_nonzero(elements) == part.size:
            return part.size, elements.size
    return 0, 0
