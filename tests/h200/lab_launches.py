"""The launches behind lab_times.json, in two sizes each; kernels: lab_kernels.cu.

Kernels of a first lab course. The estimates were written down before the times were taken.
"""

from collections.abc import Iterator

from course_launches import B, D, drawn
from exam_launches import Launches, line, sheet
from more_launches import F, I, Row, U, floats, zeros

SIZES = {"small": (1 << 13, 64), "medium": (1 << 16, 256), "large": (1 << 21, 1024)}


def launches(size: str = "") -> Iterator[Row]:
    """Yield the launches of a size, by default those of both sizes that are timed."""
    for chosen in (size,) if size else ("medium", "large"):
        for family in few_warps, one_block, branches, loops, tiles:
            for name, launch in family(*SIZES[chosen]):
                yield launch(family.__name__, f"{name}_{chosen}", kernel=name)


def few_warps(n, side) -> Launches:
    yield line("extremes_of_one_thread", 1, drawn(4 * side, 1 << 20, I), zeros(2, I), I(4 * side), block=1)
    yield line("variance_of_one_warp", 32, floats(32 * side), zeros(1), I(32 * side), block=32)
    yield line("greatest_divisors", side, drawn(side, 1 << 24), drawn(side, 1 << 24, seed=4), zeros(side, U), block=32)
    yield line("pendulum", 64, floats(64), floats(64)[::-1].copy(), I(side), block=32)
    yield line("checksum_of_rows", 128, drawn(128 * side, 256, B), zeros(128, U), I(side), block=64)


def one_block(n, side) -> Launches:
    yield line("scan_in_chunks", 512, drawn(32 * side, 100, I), zeros(32 * side, I), I(32 * side), block=512)
    yield sheet("life_in_one_block", 32, drawn(1024, 2, B), zeros(1024, B), I(side), block=(32, 32))
    matrices = floats(272 * (side // 16))
    yield sheet("gauss_in_one_block", 16, matrices, matrices.copy(), I(side // 16), block=(17, 16), grid=(1,))
    yield line("odd_even_sort", 256, drawn(512, 1000, I), I(side), block=256)


def branches(n, side) -> Launches:
    yield line("calculator", n, drawn(n, 8, B), floats(n), floats(n)[::-1].copy(), zeros(n), block=128)
    yield line("robot", n // 32, drawn(1024, 7, B), zeros(n // 32, I), I(side // 4), block=64)
    yield line("odd_threads_work_longer", n, floats(n), zeros(n))
    yield line("digits_of_number", n, drawn(n, 1 << 30) >> drawn(n, 30, seed=5), zeros(n, I), block=128)


def loops(n, side) -> Launches:
    yield line("polynomial", n // 4, floats(n // 4), floats(side), zeros(n // 4), I(side // 4), block=64)
    yield line("moving_average", n, floats(n), zeros(n), I(n), I(40))
    yield line("sums_of_chunks", n // 32, floats(n), zeros(n // 32), I(32), block=64)
    points = floats(n // 64), drawn(n // 64, 1 << 10).astype(F)
    yield line("nearest_point", n // 64, *points, zeros(n // 64, I), I(side), block=64)


def tiles(n, side) -> Launches:
    half = side // 2
    a = floats(half * half)
    yield sheet("tiles_of_eight", half, a, a, zeros(half * half), I(half), block=(8, 8))
    yield line("heat_in_tiles", n, floats(n), zeros(n), I(n), I(50), block=128)
    yield line("products_of_blocks", n, floats(n).astype(D), zeros(n // 64, D), block=64)
    yield sheet("edges_of_image", side, drawn(side * side, 256, B), zeros(side * side, B), I(side))
