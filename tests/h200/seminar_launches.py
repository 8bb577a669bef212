"""The launches behind seminar_times.json, in two sizes each; kernels: seminar_kernels.cu.

Kernels that a seminar asks for, week by week. The estimates were written down before the times were taken.
"""

from collections.abc import Iterator

import numpy as np
from course_launches import B, D, drawn
from exam_launches import Launches, line, sheet
from more_launches import F, I, Row, U, floats, zeros

SIZES = {"small": (1 << 13, 64), "medium": (1 << 17, 256), "large": (1 << 22, 2048)}


def launches(size: str = "") -> Iterator[Row]:
    """Yield the launches of a size, by default those of both sizes that are timed."""
    families = (
        reductions,
        scans,
        bins,
        transposes,
        stencils,
        products,
        graphs,
        sorts,
        branches,
        constants,
        atomics,
        vectors,
        numbers,
    )
    for chosen in (size,) if size else ("medium", "large"):
        for family in families:
            for name, launch in family(*SIZES[chosen]):
                yield launch(family.__name__, f"{name}_{chosen}", kernel=name)


def reductions(n, side) -> Launches:
    x, whole = floats(n), drawn(n, 1000, I)
    yield line("total_by_tree", n, x, zeros(1), I(n), block=512)
    yield line("total_by_two_shuffles", n, whole, zeros(1, I), I(n), grid=min(n // 1024, 528))
    yield line("length_of_vector", n, x.astype(D), zeros(1, D), I(n), block=128, grid=min(n // 512, 1056))
    yield line("nearest_to_zero", n, x, zeros(2 * (n // 256), I), I(n))
    yield line("is_sorted", n, np.arange(n, dtype=I), zeros(1, I), I(n))


def scans(n, side) -> Launches:
    x, out = drawn(n, 100, I), zeros(n, I)
    yield line("prefix_in_big_block", n, x, out, block=1024)
    yield line("prefix_four_in_registers", n // 4, x, out)
    yield line("prefix_by_first_thread", n, floats(n), zeros(n), block=128)
    yield line("add_offsets", n, x, zeros(n // 512, I), I(n), block=512)


def bins(n, side) -> Launches:
    pixels, grid = drawn(4 * n, 256, B), min(n // 1024, 528)
    yield line("pixels_in_16_levels", n, pixels, zeros(16, I), I(n), grid=grid)
    yield line("pairs_of_bytes", n, pixels[:n], pixels[n : 2 * n].copy(), zeros(4096, U), I(n))
    yield line("dice_in_registers", n, pixels[:n], zeros(3, I), I(n), grid=grid)
    yield line("sorted_keys", n, np.sort(drawn(n, 1000, I)), zeros(1000, I), I(n))


def transposes(n, side) -> Launches:
    image, tall = (drawn(side * side, 1000, I), zeros(side * side, I)), (side // 16, side // 16)
    yield sheet("flip_reading_rows", side, *image, I(side), block=(32, 32))
    yield sheet("flip_swizzled", side, *image, I(side), block=(32, 32))
    yield sheet("flip_small_tiles", side, *image, I(side), I(side), block=(16, 16), grid=tall)
    yield line("half_turn", n, drawn(4 * n, 256, B), zeros(4 * n, B), I(n))


def stencils(n, side) -> Launches:
    plate = floats(side * side), zeros(side * side), I(side)
    mask = np.array([0, -1, 0, -1, 5, -1, 0, -1, 0], I)
    yield line("diffusion_by_index", n, floats(n), zeros(n), I(32 if n < 1 << 20 else 128), I(n))
    yield sheet("wave_step", side, floats(side * side).astype(D), floats(side * side).astype(D), I(side))
    yield sheet("sharpen_clamped", side, drawn(side * side, 256, I), zeros(side * side, I), I(side), weights=mask)
    yield sheet("box_in_shared", side, *plate, block=(32, 16))
    yield line("neighbours_by_shuffle", n, floats(n), zeros(n), I(n))


def products(n, side) -> Launches:
    side //= 2
    a, b = floats(side * side), floats(side * side)[::-1].copy()
    yield sheet("product_tile_32", side, a, b, zeros(side * side), I(side), block=(32, 32))
    yield sheet("product_two_by_two", side // 2, a, b, zeros(side * side), I(side), block=(16, 16))
    yield sheet("product_tile_doubles", side, a.astype(D), b.astype(D), zeros(side * side, D), I(side), block=(16, 16))
    yield line("many_small_products", n // 16, floats(n), floats(n)[::-1].copy(), zeros(n), I(n // 16), block=128)


def graphs(n, side) -> Launches:
    rows = n // 16
    starts, columns = np.arange(0, 16 * rows + 1, 16, I), drawn(n, rows, I)
    sparse = starts, columns, floats(n).astype(D), floats(rows).astype(D), zeros(rows, D), I(rows)
    yield line("rows_by_eight_threads", 8 * rows, *sparse)
    yield line("five_diagonals", rows, floats(5 * rows).astype(D), floats(rows).astype(D), zeros(rows, D), I(rows))
    yield line("push_ranks", n // 4, drawn(n, n // 4, I), floats(n // 4), zeros(n // 4), I(n // 4))
    links = drawn(side * 8, 1 << 32), zeros(side * side, I), I(side)
    yield sheet("count_triangles", side, *links, block=(32, 8))


def sorts(n, side) -> Launches:
    x = drawn(n, 1 << 20, I)
    runs = np.sort(x.reshape(-1, 64), axis=1).ravel()
    yield line("bitonic_512", n // 2, x)
    yield line("digits_of_block", n, drawn(n, 1 << 16), zeros(16 * (n // 256), U), I(4))
    yield line("insert_16", n // 16, x, zeros(n, I), I(n // 16), block=128)
    yield line("merge_two_runs", n // 128, runs, zeros(n, I), I(64), block=64)
    yield line("rank_in_tile", n, floats(n), zeros(n))


def branches(n, side) -> Launches:
    x = drawn(n, 100000, I)
    yield line("fizz_buzz", n, zeros(n, I), I(n))
    yield line("roots_of_quadratics", n, floats(n), floats(n)[::-1].copy(), zeros(2 * n), I(n))
    yield line("tax", n, x, zeros(n, I), I(n), borders=np.arange(64, dtype=I) * I(1500))
    yield line("months", n, x, zeros(n, I), I(n))


def constants(n, side) -> Launches:
    terms, colours = floats(12).astype(D), floats(768)
    yield line("series_of_doubles", n, floats(n).astype(D), zeros(n, D), I(n), coefficients=terms)
    yield line("colours_of_indices", n, drawn(n, 256, B), zeros(n), zeros(n), zeros(n), I(n), palette=colours)


def atomics(n, side) -> Launches:
    x = drawn(n, 1 << 30, I)
    blocks = min(n // 256, 1024)
    yield line("best_under_lock", 256 * blocks, floats(n), zeros(1), zeros(1, I), zeros(1, I))
    yield line("highest_as_int", n, floats(n), zeros(1, I), I(n))
    yield line("queue_of_block", n, x, zeros(n, I), zeros(1, I), I(n))
    yield line("insert_in_table", n // 4, x[: n // 4] + I(1), zeros(n // 2, I), I(n // 2 - 1), I(n // 4))


def vectors(n, side) -> Launches:
    yield line("saxpy_vectors", n // 4, F(2), floats(n), floats(n)[::-1].copy(), I(n // 4))
    yield line("brighter", n, drawn(4 * n, 256, B), zeros(4 * n, B), I(40), I(n))
    yield line("digits_used", n // 4, drawn(n // 4, 1 << 32), zeros(n // 4, I), I(n // 4))


def numbers(n, side) -> Launches:
    n //= 4
    x, y, whole = floats(n).astype(D), floats(n)[::-1].astype(D), drawn(n, 1 << 30)
    yield line("call_options", n, x, y, zeros(n, D), I(n))
    yield line("heron", n, x, zeros(n, D), I(n))
    yield line("reversed_in_base", n, whole, zeros(n, U), U(7), I(n))
    yield line("inverse_of_each", n, drawn(n, 1000002, I), zeros(n, I), I(1000003), I(n))
