"""The launches behind homework_times.json, in two sizes each; kernels: homework_kernels.cu.

Kernels as students hand them in after lectures on memory, branches, atomics and mathematical functions. The estimates
were written down before the times were taken.
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
        potentials,
        functions,
        reductions,
        swaps,
        bins,
        scans,
        images,
        transposes,
        branches,
        searches,
        arrays,
    )
    for chosen in (size,) if size else ("medium", "large"):
        for family in families:
            for name, launch in family(*SIZES[chosen]):
                kernel = "mark_seen" if name.startswith("mark_seen") else name
                yield launch(family.__name__, f"{name}_{chosen}", kernel=kernel)


def potentials(n, side) -> Launches:
    x, y, out = floats(20) * F(side), floats(20)[::-1] * F(side), zeros(side * side)
    yield sheet("potential_powf", side, out, I(side), block=(16, 16), points_x=x, points_y=y)
    yield sheet("potential_square", side, out, I(side), block=(16, 16), points_x=x, points_y=y)
    yield sheet("potential_global", side, x, y.copy(), out, I(side), I(20), block=(16, 16))


def functions(n, side) -> Launches:
    x, y = floats(n), zeros(n)
    yield line("bell_curve", n, x, y, F(0.5), F(0.2), I(n))
    yield line("sum_of_waves", n, x, y, I(8), I(n))
    yield line("savings", n, x, y, I(10), I(n))
    yield line("hypotenuse_double", n, x.astype(D), x[::-1].astype(D), zeros(n, D), I(n))
    yield line("neuron", n, x, y, I(10), I(n))
    yield line("entropy", n, x, y, I(n), grid=min(n // 256, 528))


def reductions(n, side) -> Launches:
    x = floats(n)
    yield line("sum_doubles", n, x.astype(D), zeros(n // 256, D), I(n))
    yield line("sum_float4", n, x, zeros(1), I(n // 4), grid=min(n // 1024, 264))
    yield line("sum_in_global", n, x, I(n))
    yield line("chunk_per_thread", n // 16, x, zeros(n // 16), I(16))


def swaps(n, side) -> Launches:
    x = floats(n)
    yield line("max_of_blocks_cas", n, x, zeros(1), I(n))
    yield line("totals_by_group", n // 16, x[: n // 16].astype(D), drawn(n // 16, 1024, I), zeros(1024, D), I(n // 16))


def bins(n, side) -> Launches:
    data, grid = drawn(n, 256, B), min(n // 1024, 528)
    yield line("hist_shared_lock_free", n, data, zeros(64, U), I(n), grid=grid)
    yield line("hist_of_colors", n, drawn(4 * n, 256, B), zeros(768, U), I(n), grid=grid)
    yield line("hist_in_local_array", n // 32, data, zeros(16, U), I(32), I(n))


def scans(n, side) -> Launches:
    yield line("scan_eight_each", n // 8, drawn(n, 100, I), zeros(n, I), zeros(n // 2048, I))
    yield line("scan_naive_global", n, floats(n), zeros(n), I(n))


def images(n, side) -> Launches:
    image = floats(side * side), zeros(side * side), I(side), I(side)
    weights = np.full(25, 0.04, F)
    yield sheet("blur_constant_weights", side, *image, block=(16, 16), blur_weights=weights)
    yield sheet("blur_shared_tile", side, *image, block=(16, 16), blur_weights=weights)
    yield sheet("bilateral", side, *image, block=(32, 8))


def transposes(n, side) -> Launches:
    image, tiles = (floats(side * side).astype(D), zeros(side * side, D), I(side)), (side // 32, side // 32)
    yield sheet("transpose_rows", side, *image, block=(32, 8))
    yield sheet("transpose_doubles_tile", side, *image, block=(32, 8), grid=tiles)


def branches(n, side) -> Launches:
    x = floats(n)
    yield line("shapes", n, drawn(n, 5, I), x, zeros(n), I(n))
    yield line("grades", n, x, zeros(n, B), I(n))
    yield line("odd_even_work", n, x, zeros(n), I(n))
    yield line("cube_roots", n, x, zeros(n), I(n))


def searches(n, side) -> Launches:
    x = drawn(n, 1000, I)
    yield line("contains_value", n, x, I(7), zeros(1, I), I(n))
    yield line("any_above", n, x, I(500), zeros(1, I), I(n))
    yield line("mark_seen_10", n, x, zeros(10, I), I(10), I(n))
    yield line("mark_seen_1000", n, x, zeros(1000, I), I(1000), I(n))
    yield line("last_of_block", n, x, zeros(n // 256, I), I(n))


def arrays(n, side) -> Launches:
    yield line("window_median", n, drawn(n, 1000, I), zeros(n, I), I(n))
    yield sheet("shared_columns", side, floats(side * side), zeros(side * side), I(side), block=(32, 32))
    yield line("particles", n // 8, floats(n), zeros(n // 8), I(n // 8))
