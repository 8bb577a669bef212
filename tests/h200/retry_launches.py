"""The launches behind retry_times.json and retry_counters.json; the kernels are in retry_kernels.cu.

Their threads repeat a compare-and-swap until it succeeds. Estimates were written down before the times were taken.
"""

from collections.abc import Iterator

import numpy as np
from more_launches import GRID, F, Row, U, zeros

D, L = np.float64, np.uint64
N, COPIES = 1 << 22, 64


def launches(size: str = "large") -> Iterator[Row]:
    for family in (bins, forms, blocks, words, skewed):
        yield from family()


def random_words(n) -> np.ndarray:
    return np.random.default_rng(11).integers(0, 1 << 32, n, dtype=U)


def skewed_words(n) -> np.ndarray:
    """Bytes with the sums of many small numbers, as the pixels of a picture have; random bits above them."""
    low, high = random_words(n), np.random.default_rng(12).normal(100, 20, n).clip(0, 255).astype(U)
    return low & ~U(255) | high


def histogram(family, name, dtype, mask, n=N, block=256, grid=GRID, x=None, kernel=None, copies=COPIES) -> Row:
    args = ((random_words(n) if x is None else x), zeros(copies * (mask + 1), dtype), U(n), U(mask))
    return Row(name, family, kernel or name, (grid,), (block,), args)


def bins(_=None) -> Iterator[Row]:
    """From one bin to 1024, and a skewed distribution."""
    for kernel in ("reread", "assumed", "add_floats", "until_done"):
        for mask in (0, 3, 15, 63, 255, 1023):
            few = max(N >> 4, min(N, (mask + 1) * N >> 6))
            yield histogram(
                "bins", f"{kernel}_{mask + 1}", U if kernel != "add_floats" else F, mask, few, kernel=kernel
            )
        yield histogram(
            "bins", f"{kernel}_skewed", U if kernel != "add_floats" else F, 255, x=skewed_words(N), kernel=kernel
        )


def forms(_=None) -> Iterator[Row]:
    """The same 256 bins by different loops."""
    forms = {
        U: "once plain of_volatile until_break from_zero guessed_one saturating two_halves two_bins bins_of_warps",
        L: "long_bins", F: "max_floats max_if_larger plain_floats", D: "add_doubles plain_doubles",
    }  # fmt: skip
    for dtype, kernels in forms.items():
        for kernel in kernels.split():
            yield histogram("forms", kernel, dtype, 255)
    x = random_words(N)
    yield Row(
        "count_tries",
        "forms",
        "count_tries",
        (GRID,),
        (256,),
        (x, zeros(COPIES * 256, U), zeros(GRID * 256, U), U(N), U(255)),
    )
    yield Row("bin_of_thread", "forms", "bin_of_thread", (GRID,), (256,), (x, zeros(GRID * 256, U), U(N)))
    yield histogram("forms", "one_each", U, 255, grid=N // 256)
    yield histogram("forms", "naive", U, 255, grid=N // 256)


def blocks(_=None) -> Iterator[Row]:
    """Other numbers of warps per block, and on the whole GPU."""
    for kernel in ("reread", "assumed"):
        for threads, grid in ((32, 8 * GRID), (64, 4 * GRID), (1024, GRID // 4), (256, 132), (32, 132)):
            n = N if grid > 132 else N >> 3
            name = f"{kernel}_of_{grid}x{threads}"
            yield histogram("blocks", name, U, 255, n, threads, grid, kernel=kernel)


WORDS = {
    "global_ints": (U, (0, 15, 255, 4095, 65535, (1 << 20) - 1)),
    "global_reread": (U, (15, 255, 65535)),
    "global_max_floats": (F, (0, 255, 65535)),
    "global_max_if_larger": (F, (0, 255, 65535)),
    "global_products": (F, (0, 255, 65535)),
    "global_doubles": (D, (0, 15, 255, 4095, 65535, (1 << 20) - 1)),
}


def words(_=None) -> Iterator[Row]:
    """Words of global memory: one of them to a million."""
    for kernel, (dtype, masks) in WORDS.items():
        for mask in masks:
            n = min(1 << 20, 1 << 12 if mask == 0 else (mask + 1) << 10)
            yield histogram("words", f"{kernel}_{mask + 1}", dtype, mask, n, grid=n // 256, kernel=kernel, copies=1)
    x = random_words(N)
    for grid in (132, GRID, 8 * GRID):
        yield Row(f"global_sum_of_{grid}", "words", "global_sum_of_blocks", (grid,), (256,), (x, zeros(1, D), U(N)))


def skewed(_=None) -> Iterator[Row]:
    """The same loops where few bins get most of the elements."""
    x = skewed_words(N)
    forms = {
        U: "plain from_zero guessed_one saturating until_break of_volatile two_halves two_bins bins_of_warps",
        L: "long_bins", F: "max_floats max_if_larger plain_floats", D: "add_doubles plain_doubles",
    }  # fmt: skip
    for dtype, kernels in forms.items():
        for kernel in kernels.split():
            yield histogram("skewed", f"{kernel}_skewed", dtype, 255, x=x, kernel=kernel)
    tries = x, zeros(COPIES * 256, U), zeros(GRID * 256, U), U(N), U(255)
    yield Row("count_tries_skewed", "skewed", "count_tries", (GRID,), (256,), tries)
    yield histogram("skewed", "one_each_skewed", U, 255, x=x, kernel="one_each", grid=N // 256)
    yield histogram("skewed", "from_zero_16", U, 15, N >> 2, kernel="from_zero")
    few = x[: N >> 4]
    for kernel, dtype in (("global_ints", U), ("global_max_floats", F), ("global_max_if_larger", F),
                          ("global_products", F), ("global_doubles", D)):  # fmt: skip
        yield histogram("skewed", f"{kernel}_skewed", dtype, 255, N >> 4, x=few, grid=N >> 12, kernel=kernel, copies=1)
