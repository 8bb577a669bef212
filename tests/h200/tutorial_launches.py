"""The launches behind tutorial_times.json, in two sizes each; kernels: tutorial_kernels.cu.

Kernels as tutorials show them and course takers write them. The estimates were written down before the times were
taken.
"""

from collections.abc import Iterator

import numpy as np
from course_launches import B, drawn
from exam_launches import Launches, line, sheet
from more_launches import F, I, Row, U, floats, zeros

SIZES = {"small": (1 << 13, 64), "medium": (1 << 17, 256), "large": (1 << 22, 1024)}


def launches(size: str = "") -> Iterator[Row]:
    """Yield the launches of a size, by default those of both sizes that are timed."""
    for chosen in (size,) if size else ("medium", "large"):
        for family in (
            dots,
            elements,
            tables,
            matrices,
            products,
            bins,
            counters,
            scans,
            segments,
            graphs,
            transposes,
            stencils,
            compactions,
            extremes,
            sorts,
            numbers,
            simulations,
        ):
            for name, launch in family(*SIZES[chosen]):
                kernel = "count_to_many" if name.startswith("count_to_many") else name
                yield launch(family.__name__, f"{name}_{chosen}", kernel=kernel)


def dots(n, side) -> Launches:
    a, b, grid = floats(n), floats(n)[::-1].copy(), min(n // 256, 264)
    yield line("dot_atomic", n, a, b, zeros(1), I(n))
    yield line("dot_cache", n, a, b, zeros(1), I(n), grid=grid)
    yield line("dot_threadfence", n, a, b, zeros(grid), zeros(1), I(n), grid=grid)


def elements(n, side) -> Launches:
    yield line("saxpy", n, I(n), F(2.5), floats(n), floats(n), grid=min(n // 256, 528))
    yield line("running_mean", n, floats(n), zeros(n), I(n), I(8), grid=min(n // 256, 1056))
    yield line("count_ones", n, drawn(n, 1 << 32), zeros(n, I), I(n))


def tables(n, side) -> Launches:
    x, weights = drawn(n, 1 << 24, I), drawn(64, 1000, I, seed=3)
    yield line("horner", n, floats(n), zeros(n), I(n), coefficients=floats(12))
    yield line("table_by_thread", n, x, zeros(n, I), I(n), weights=weights)
    yield line("table_by_value", n, x, zeros(n, I), I(n), weights=weights)


def matrices(n, side) -> Launches:
    side *= 2
    yield line("matvec", side, floats(side * side), floats(side), zeros(side), I(side), block=128)
    yield line("matvec_block", side, floats(side * side), floats(side), zeros(side), I(side), block=128, grid=side)


def products(n, side) -> Launches:
    a = floats(side * side)
    yield sheet("matmul", side, a, a, zeros(side * side), I(side), block=(16, 16))
    yield sheet("matmul_tile", side, a, a, zeros(side * side), I(side), block=(16, 16))


def bins(n, side) -> Launches:
    data, grid = drawn(n, 256, B), min(n // 256, 1056)
    yield line("hist_global", n, data, zeros(16, U), I(n))
    yield line("hist_shared_8", n, data, zeros(8, U), I(n), grid=grid)
    yield line("hist_shared_256", n, data, zeros(256, U), I(n), grid=grid)
    yield line("hist_own_columns", n, data, zeros(16, U), I(n), grid=grid)


def counters(n, side) -> Launches:
    x = drawn(n, 1 << 20, I)
    yield line("count_to_one", n, x, zeros(1, I), I(n))
    yield line("sum_to_one", n, x & I(7), zeros(1, I), I(n))
    yield line("count_to_many_64", n, x, zeros(64, I), I(n), I(64))
    yield line("count_to_many_4096", n, x, zeros(4096, I), I(n), I(4096))


def scans(n, side) -> Launches:
    yield line("scan_two_buffers", n, floats(n), zeros(n))
    yield line("scan_blelloch", n, floats(n), zeros(n), I(512), grid=n // 512, shared_bytes=2048)
    yield line("scan_of_warps", n, floats(n), zeros(n))


def _ends(rows, longest, seed):
    """Draw the starts of rows of 0 to `longest` - 1 elements, and the end of the last."""
    return np.concatenate([[0], np.cumsum(drawn(rows, longest, seed=seed))]).astype(I)


def segments(n, side) -> Launches:
    count = n // 64
    starts = _ends(count, 128, 23)
    x = floats(int(starts[-1]))
    yield line("segment_sums", count, starts, x, zeros(count), I(count), block=128)
    yield line("segment_sums_warp", 32 * count, starts, x, zeros(count), I(count))


def graphs(n, side) -> Launches:
    rows = n // 16
    ptr = _ends(rows, 16, 29)
    to = drawn(int(ptr[-1]), rows, I, seed=31)
    level = np.where(drawn(rows, 4, seed=37) == 0, 3, -1).astype(I)
    yield line("spmv_csr", rows, I(rows), ptr, to, floats(len(to)), floats(rows), zeros(rows))
    yield line("bfs_level", rows, ptr, to, level, zeros(1, I), I(3), I(rows))
    ring = np.random.default_rng(41).permutation(rows).astype(I)
    yield line("follow_links", 8 * side, ring, zeros(8 * side, I), I(100), I(8 * side), block=64)


def transposes(n, side) -> Launches:
    side *= 2
    image = floats(side * side), zeros(side * side), I(side), I(side)
    yield sheet("transpose", side, *image, block=(16, 16))
    yield sheet("transpose_tile", side, *image, block=(16, 16))


def stencils(n, side) -> Launches:
    side *= 2
    board = drawn(side * side, 2, B), zeros(side * side, B)
    yield line("stencil_1d", n, drawn(n + 6, 100, I), zeros(n + 6, I))
    yield sheet("heat_2d", side, floats(side * side), zeros(side * side), I(side), I(side), F(0.1), block=(32, 8))
    yield sheet("life_torus", side, *board, I(side), I(side), block=(16, 16))


def compactions(n, side) -> Launches:
    x = drawn(n, 1000, I) - I(500)
    yield line("keep_positive", n, x, zeros(n, I), zeros(1, I), I(n))
    yield line("keep_positive_ballot", n, x, zeros(n, I), zeros(1, I), I(n))


def extremes(n, side) -> Launches:
    yield line("max_by_blocks", n, drawn(n, 1 << 30, I), zeros(1, I), I(n))
    yield line("argmax", n, floats(n), zeros(n // 256), zeros(n // 256, I), I(n))


def sorts(n, side) -> Launches:
    yield line("bitonic_pass", n, floats(n), I(1024), I(4096))
    yield line("odd_even_pass", n // 2, drawn(n, 1 << 20, I), I(1), I(n))


def numbers(n, side) -> Launches:
    yield line("collatz_steps", n // 4, zeros(n // 4, I), I(n // 4))
    yield line("is_prime", n // 4, zeros(n // 4, B), I(n // 4))
    yield sheet("mandelbrot_set", side, zeros(side * side, I), I(side), I(side), I(256), block=(16, 16))


def simulations(n, side) -> Launches:
    bodies, text = 8 * side, drawn(n, 3, B)
    yield line("monte_carlo", n // 16, zeros(1, U), I(256))
    yield line("nbody_forces", bodies, floats(4 * bodies), zeros(3 * bodies), I(bodies), block=128)
    yield line("match_pattern", n, text, text[100:116].copy(), zeros(n, I), I(n), I(16))
    yield line("fft_butterflies", n // 2, floats(2 * n), I(256))
