"""The launches behind atomic_counters.json ("small") and atomic_times.json ("large"); the kernels: atomic_kernels.cu.

In these the lanes of a warp meet: in an atomic at one address or in few bins, or at addresses of constant memory.
"""

from collections.abc import Iterator

import numpy as np
from more_launches import GRID, F, I, Row, U, floats, words, zeros

D, L = np.float64, np.uint64
BLOCKS = {"small": 8, "large": 4 * GRID}


def launches(size: str = "large") -> Iterator[Row]:
    for family in (one_address, bins, shared, histograms, constants):
        yield from family(BLOCKS[size])


def one_address(blocks) -> Iterator[Row]:
    n = 256 * blocks

    def row(name, *args):
        return Row(name, "one address", name, (blocks,), (256,), args)

    yield row("global_count", zeros(1, U))
    yield row("global_add", zeros(1, I), words(n).view(I))
    yield row("global_max", zeros(1, I), words(n).view(I))
    yield row("global_or", zeros(1, U), words(n))
    yield row("global_add_float", zeros(1), floats(n))
    yield row("global_add_double", zeros(1, D), floats(n))
    yield row("global_add_long", zeros(1, L), words(n))
    yield row("global_ticket", zeros(1, U), zeros(n, U))
    yield row("global_add_result", zeros(1, I), words(n).view(I), zeros(n, I))
    yield row("global_exchange", zeros(1, U), zeros(n, U))
    yield row("global_count_odd", zeros(1, U), words(n))
    args = (words(16 * n).view(I), zeros(1, I), U(16 * n))
    yield Row("global_sum", "one address", "global_sum", (max(blocks // 4, 2),), (256,), args)


ADDRESSES = ((0, 1, 0), (0, 1, 31), (0, 1, 1023), (1, 0, 1), (1, 0, 3), (1, 0, 7), (1, 0, 31), (8, 0, 255),
             (1, 32, 4095), (8, 256, 65535))  # fmt: skip
"""Factors of lane and warp, and the mask, of an index into an array of bins."""


def bins(blocks) -> Iterator[Row]:
    few = max(blocks // 16, 2)
    for kernel, dtype in (("global_bins", U), ("global_bins_float", F)):
        for a, b, mask in ADDRESSES:
            args = (zeros(65536, dtype), U(a), U(b), U(mask))
            yield Row(f"{kernel}_{a}x{b}_{mask + 1}", "bins", kernel, (few,), (256,), args)


SHARED = {
    U: "shared_count shared_ticket shared_exchange shared_bins shared_bins_result",
    I: "shared_add shared_max shared_add_result shared_bins_add shared_bins_max",
    F: "shared_add_float shared_bins_float",
}


def shared(blocks) -> Iterator[Row]:
    n = 256 * blocks
    for dtype, kernels in SHARED.items():
        source = floats(n) if dtype is F else words(n).view(dtype)
        for kernel in kernels.split():
            ways = ((1, 0), (1, 1), (1, 3), (1, 15), (1, 1023), (4, 127), (32, 1023)) if "bins" in kernel else ((0, 0),)
            for a, mask in ways:
                args = (source, zeros(n, dtype), U(a), U(mask))
                name = f"{kernel}_{a}_{mask + 1}" if "bins" in kernel else kernel
                yield Row(name, "shared", kernel, (blocks,), (256,), args)


def histograms(blocks) -> Iterator[Row]:
    n = 256 * blocks
    for mask in (1, 3, 15, 63, 255):
        for kernel in ("shared_histogram", "shared_histogram_once", "global_histogram"):
            wide = kernel != "shared_histogram_once"
            args = (words(4 * n if wide else n), zeros(256, U), U(4 * n if wide else n), U(mask))
            grid = max(blocks // 4, 2) if wide else blocks
            yield Row(f"{kernel}_{mask + 1}", "histogram", kernel, (grid,), (256,), args)


def constants(blocks) -> Iterator[Row]:
    n, held = 256 * blocks, {"table": floats(16384)}

    def row(name, kernel, *args):
        return Row(name, "constant", kernel, (blocks,), (256,), args, 0, held)

    for a, mask in ((0, 1023), (1, 1023), (2, 1023), (16, 1023), (1, 3), (1, 15), (1, 255), (1, 16383), (64, 16383)):
        yield row(f"constant_lanes_{a}_{mask + 1}", "constant_lanes", zeros(n), U(a), U(mask))
    for a, mask in ((0, 1023), (1, 1023), (16, 16383)):
        yield row(f"constant_pairs_{a}_{mask + 1}", "constant_pairs", zeros(n), U(a), U(mask))
    for mask in (15, 255, 1023, 16383):
        yield row(f"constant_gather_{mask + 1}", "constant_gather", words(n), zeros(n), U(mask))
    for mask in (1023, 16383):
        yield row(f"constant_warps_{mask + 1}", "constant_warps", zeros(n), U(mask))
