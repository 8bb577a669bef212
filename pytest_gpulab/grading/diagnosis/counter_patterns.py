"""Patterns in wrong counters, such as those of a histogram: elements that are not counted, or more than once."""

from math import log2

import numpy as np

from pytest_gpulab.exercise import Array
from pytest_gpulab.grading.plans.index_factors import TRIED_INDEXES, index_factors

from .coincidence import GENERAL, PLACE_BITS, is_likely, place_bits, value_bits
from .missing_terms import COUNTED_TWICE, FACTORS, TRIED_PARTS, candidate_terms
from .patterns import Pattern, WrongValue

ONCE_PER_BLOCK = "Usual cause: 1 is added where a block's count should be added. Which value does each block add?"
SIGNED = "Usual cause: an index or a comparison of type `char`, in which the values from 128 on are negative."
TOO_FEW_COUNTERS = (
    "Usual cause: a loop or threads that take fewer counters than there are. How many does each step take?"
)
SIGNED_END = 128


def counters_of(output: WrongValue) -> Pattern | None:
    """Return the pattern in counters of an input's elements; None for other outputs."""
    for name, values in output.context.inputs.items():
        if _are_counted(output, values):
            values = values.reshape(-1)
            return (
                _once_per_block(output, name, values)
                or _index_factors(output, name, values)
                or _part(output, name, values)
                or _from_counter_on(output)
            )
    return None


def _are_counted(output: WrongValue, values: Array) -> bool:
    """Return True if the expected output counts how often each number is among the values."""
    if not output.is_exact or output.actual.ndim != 1 or values.dtype.kind not in "iu" or values.size == 0:
        return False
    is_index = values.min() >= 0 and values.max() < output.actual.size
    return bool(is_index and (_counts(output, values) == output.expected).all())


def _counts(output: WrongValue, values: Array) -> Array:
    return np.bincount(values, minlength=output.actual.size)


def _is(output: WrongValue, counts: Array) -> bool:
    return bool((output.actual == counts.astype(output.actual.dtype)).all())


def _once_per_block(output: WrongValue, name: str, values: Array) -> Pattern | None:
    (tile,) = output.context.tiling(name, values, first=True)
    if not tile or output.actual.max() > -(-values.size // tile) or is_likely(bits := value_bits(output), 1):
        return None
    blocks = (np.unique(values[begin : begin + tile]) for begin in range(0, values.size, tile))
    if not _is(output, _counts(output, np.concatenate(list(blocks)))):
        return None
    what = f"each counter is the number of blocks with that value in `{name}`, not of elements"
    return Pattern(what, ONCE_PER_BLOCK, bits=bits)


def _index_factors(output: WrongValue, name: str, values: Array) -> Pattern | None:
    launches = [launch for launch in output.context.plan.launches if name in launch.args] if output.context.plan else []
    if len(launches) != 1 or is_likely(bits := value_bits(output), TRIED_INDEXES):
        return None
    blocks = int(np.prod(launches[0].grid))
    for factors in index_factors(launches[0], values.size, output.context.tunables):
        taken = factors.taken(blocks, values.size)
        if _is(output, _counts(output, values[taken[taken < values.size]])):
            return Pattern(f"the counters are those of `{name}` if {factors.words(blocks)}", FACTORS, bits=bits)
    return None


def _part(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise elements that are left out or counted twice.

    Of a single one, any other would do as well that has the same value.
    """
    (tile,) = output.context.tiling(name, values, first=True)
    for part in candidate_terms(values.size, tile, output.context):
        mine, others = values[part.elements], values[~part.elements]
        is_single = mine.size == 1
        bits = log2(values.size / np.count_nonzero(values == mine[0])) if is_single else value_bits(output)
        if bits < PLACE_BITS if is_single else is_likely(bits, TRIED_PARTS):
            continue
        if _is(output, _counts(output, others)):
            return Pattern(f"the counters are those of `{name}` without {part.words}", part.cause, bits=bits)
        if _is(output, _counts(output, np.concatenate((values, mine)))):
            what = f"the counters are those of `{name}` with {part.words} counted twice"
            return Pattern(what, COUNTED_TWICE, bits=bits)
    return None


def _from_counter_on(output: WrongValue) -> Pattern | None:
    """Recognise that all counters of values from a power of two on are wrong, and none before."""
    counted = np.flatnonzero(output.expected)
    before, wrong = counted[counted < output.at[0]], counted[counted >= output.at[0]]
    bits = place_bits(wrong.size, counted.size)
    if before.size == 0 or wrong.size != output.at.size or is_likely(bits):
        return None
    first = 1 << int(output.at[0]).bit_length() - 1  # the largest power of two up to the first wrong one
    if before[-1] >= first:
        return None
    cause = SIGNED if first == SIGNED_END else TOO_FEW_COUNTERS
    return Pattern(
        f"each counter from {first} on that should not be 0 is wrong, and none before it",
        cause,
        bits=min(bits, GENERAL),
    )
