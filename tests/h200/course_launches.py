"""The launches behind course_counters.json ("small") and course_times.json ("large"); kernels: course_kernels.cu.

Further kernels of the kinds that courses ask for. The estimates were written down before the times were taken.
"""

from collections.abc import Iterator

import numpy as np
from more_launches import F, I, Row, U, floats, zeros

B, D, H = np.uint8, np.float64, np.float16
ELEMENTS = {"small": 1 << 13, "large": 1 << 22}
SIDES = {"small": 64, "large": 2048}


def launches(size: str = "large") -> Iterator[Row]:
    for family in (
        bins,
        sums,
        scans,
        sorts,
        selections,
        texts,
        simulations,
        graphs,
        patterns,
        types,
        integers,
        branches,
    ):
        yield from family(ELEMENTS[size])
    for family in (images, products, transposes, rows):
        yield from family(SIDES[size])


def drawn(n, limit, dtype=U, seed=17) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, limit, n).astype(dtype)


def row(family, name, n, *args, block=256, grid=None, shared_bytes=0, kernel=None, **constants) -> Row:
    return Row(name, family, kernel or name, (grid or n // block,), (block,), args, shared_bytes, constants)


def plane(family, name, side, *args, block=(32, 8), grid=None, kernel=None, **constants) -> Row:
    return Row(name, family, kernel or name, grid or (side // block[0], side // block[1]), block, args, 0, constants)


def grid_of(n) -> int:
    return min(n // 1024, 528)


def letters(n) -> np.ndarray:
    return drawn(n, 30, B) + B(ord("a") - 2)


def bins(n) -> Iterator[Row]:
    for name in ("letters_global", "letters_shared", "letters_aggregated"):
        yield row("bins", name, n, letters(n), zeros(7, U), U(n), grid=grid_of(n))
    yield row("bins", "gray_levels", n, drawn(4 * n, 256, B), zeros(256, U), U(n), grid=grid_of(n))


def sums(n) -> Iterator[Row]:
    x = floats(n)
    yield row("sums", "sum_each", n, x, zeros(1), U(n))
    yield row("sums", "sum_warps", n, x, zeros(1), U(n))
    yield row("sums", "sum_blocks", n, x, zeros(1), U(n), grid=grid_of(n))
    for block in (128, 512):
        yield row("sums", f"sum_coarse_{block}", n, x, zeros(1), kernel="sum_coarse", block=block, grid=n // block // 8)
    yield row("sums", "largest_float", n, x, zeros(1, I), U(n), grid=grid_of(n))
    yield row("sums", "count_close", n, x, zeros(n // 256, U), F(0.5), U(n))
    for grid in (n // 1024, n // 4096) if n > 1 << 20 else (8,):
        yield row("sums", f"mean_last_block_{grid}", n, x, zeros(grid, D), zeros(1, D), zeros(1, U), U(n), grid=grid,
                  kernel="mean_last_block")  # fmt: skip
        yield row("sums", f"max_last_block_{grid}", n, drawn(n, 1 << 20, I), zeros(grid, I), zeros(1, I), zeros(1, U),
                  U(n), grid=grid, kernel="max_last_block")  # fmt: skip


def scans(n) -> Iterator[Row]:
    x = drawn(n, 100, I)
    for step in (1, 1 << 12 if n < 1 << 20 else 1 << 20):
        yield row("scans", f"scan_naive_step_{step}", n, x, zeros(n, I), U(step), U(n), kernel="scan_naive_step")
    for block in (256, 1024):
        args = (x, zeros(n, I), zeros(n // block, I), U(n))
        yield row("scans", f"scan_kogge_stone_{block}", n, *args, kernel="scan_kogge_stone", block=block)
    for block in (128, 512):
        args = (x, zeros(n, I), zeros(n // block, I), U(n))
        yield row(
            "scans", f"scan_brent_kung_{block}", n, *args, kernel="scan_brent_kung", block=block, grid=n // block // 2
        )
    yield row("scans", "scan_coarse", n, x, zeros(n, I), zeros(n // 2048, I), grid=n // 2048)
    yield row("scans", "scan_add_sums", n, zeros(n, I), zeros(n // 256, I), U(n))
    yield row("scans", "segments_of_warps", n, x, drawn(n, 8, B) // 7, zeros(n, I), U(n))


def sorts(n) -> Iterator[Row]:
    n //= 4
    keys = drawn(n, 1 << 30, I)
    ordered, wanted = np.sort(keys), drawn(n, 1 << 30, I, 18)
    yield row("sorts", "bitonic_shared", n, keys, zeros(n, I), block=512)
    yield row("sorts", "odd_even_shared", n, keys, zeros(n, I), block=128, grid=n // 256)
    for j in (1, 8, 1024):
        yield row("sorts", f"bitonic_step_{j}", 4 * n, drawn(4 * n, 1 << 30, I), U(j), U(2048), kernel="bitonic_step")
    yield row("sorts", "lower_bounds", n, ordered, wanted, zeros(n, I), I(n))
    yield row("sorts", "merge_by_rank", n, ordered, np.sort(wanted), zeros(2 * n, I), I(n))


def selections(n) -> Iterator[Row]:
    x = drawn(n, 1 << 20, I)
    places = np.concatenate(([0], np.cumsum(x[:-1] % 3 == 0))).astype(I)
    yield row("selections", "compact_scatter", n, x, places, zeros(n, I), U(n))
    yield row("selections", "compact_blocks", n, x, zeros(n, I), zeros(1, U), U(n))
    yield row("selections", "split_by_bit", n, x.view(U), zeros(n, U), U(3))


def texts(n) -> Iterator[Row]:
    word = np.frombuffer(b"abcdefgh" * 2, B)
    text = drawn(n, 3, B) + B(ord("a"))
    text[: n // 2 // 8 * 8] = np.tile(word[:8], n // 16)
    yield row("texts", "find_pattern", n, text, zeros(1, U), U(n), U(8), pattern=word)
    yield row("texts", "to_upper", n, letters(n), zeros(n, B), U(n))
    yield row("texts", "count_words", n, np.where(drawn(n, 5) == 0, B(32), letters(n)).astype(B), zeros(1, U), U(n))


def simulations(n) -> Iterator[Row]:
    bodies = min(n // 256, 8192) if n > 1 << 20 else 512
    x = floats(4 * bodies)
    yield row("simulations", "bodies_global", bodies, x, zeros(4 * bodies), I(bodies), block=128)
    yield row("simulations", "bodies_tiled", bodies, x, zeros(4 * bodies), I(bodies), block=128)
    side = 1024 if n > 1 << 20 else 32
    for rounds in (32, 512):
        yield plane("simulations", f"mandelbrot_{rounds}", side, zeros(side * side, U), I(side), I(side), I(rounds),
                    block=(16, 16), kernel="mandelbrot")  # fmt: skip
    yield plane("simulations", "julia_double", side, zeros(side * side, U), I(side), I(side), I(100))
    yield row("simulations", "pi_by_chance", n // 16, zeros(1, np.uint64), I(64))


def graphs(n) -> Iterator[Row]:
    n //= 16  # rows
    degrees = np.minimum(np.random.default_rng(3).geometric(1 / 12, n), 100)
    starts = np.concatenate(([0], np.cumsum(degrees))).astype(I)
    edges = starts[-1]
    columns, v = drawn(edges, n, I), floats(n)
    yield row("graphs", "sparse_rows", n, starts, columns, floats(edges), v, zeros(n), block=128)
    yield row("graphs", "sparse_warps", n, starts, columns, floats(edges), v, zeros(n), grid=n // 8)
    yield row("graphs", "sparse_ell", n, drawn(16 * n, n, I), floats(16 * n), v, zeros(n), I(n), I(16))
    of = np.repeat(np.arange(n, dtype=I), degrees)[: edges // 256 * 256]
    yield row("graphs", "sparse_coordinates", len(of), of, columns, floats(edges), v, zeros(n))
    levels = np.where(drawn(n, 10) == 0, I(2), I(-1))
    yield row("graphs", "breadth_first", n, starts, columns, levels, I(2), zeros(1, I))


def patterns(n) -> Iterator[Row]:
    order = np.random.default_rng(9).permutation(n).astype(U)
    near = np.arange(n, dtype=U).reshape(-1, 64)[:, np.random.default_rng(9).permutation(64)].ravel()
    for name, index in (("random", order), ("near", near)):
        yield row("patterns", f"gather_{name}", n, floats(n), index, zeros(n), kernel="gather")
        yield row("patterns", f"scatter_{name}", n, floats(n), index, zeros(n), kernel="scatter")
    for stride in (2, 8, 32):
        yield row(
            "patterns", f"every_{stride}", n // 4, floats(n // 4 * stride), zeros(n // 4), U(stride), kernel="every"
        )
    for offset in (0, 1, 8):
        yield row("patterns", f"shifted_{offset}", n, floats(n + 32), zeros(n), U(offset), kernel="shifted")
    yield row("patterns", "move_structs", n // 4, floats(2 * n), F(0.1))
    yield row("patterns", "move_arrays", n // 4, *(floats(n // 4) for _ in range(6)), F(0.1))
    yield row("patterns", "reverse_blocks", n, drawn(n, 99, I), zeros(n, I), U(n), shared_bytes=1024)
    for pad in (0, 1):
        yield row("patterns", f"columns_of_shared_{pad}", n, floats(n), zeros(n // 4), I(pad),
                  kernel="columns_of_shared", grid=n // 1024, shared_bytes=128 * (32 + pad))  # fmt: skip
    for each in (4, 16, 64):
        yield row("patterns", f"sum_chunks_{each}", n, floats(n), zeros(n // each), U(each), kernel="sum_chunks",
                  grid=max(n // each // 256, 1), block=min(256, n // each))  # fmt: skip


def types(n) -> Iterator[Row]:
    x = floats(n)
    yield row("types", "axpy_double", n, D(2), x.astype(D), x.astype(D))
    yield row("types", "waves_double", n, x.astype(D), zeros(n, D))
    yield row("types", "waves_float", n, x, zeros(n))
    yield row("types", "distances", n // 2, x, floats(n)[::-1].copy(), zeros(n // 2))


def integers(n) -> Iterator[Row]:
    x = drawn(n, 1 << 20)
    yield row("integers", "count_primes", n // 16, zeros(1, U), U(1000))
    yield row("integers", "divisors_gcd", n // 4, x[: n // 4], x[n // 4 : n // 2], zeros(n // 4, U))
    yield row("integers", "digit_sums", n, x, zeros(n, U))
    yield row("integers", "powers_modulo", n // 16, x[: n // 16], zeros(n // 16, U), U(65537), U(1000003))
    yield row("integers", "hash_strings", n // 8, drawn(4 * n, 256, B), zeros(n // 8, U), I(32))
    yield row("integers", "count_bits", n, x, zeros(n, U))


def branches(n) -> Iterator[Row]:
    x = floats(n)
    for group in (1, 32):
        yield row("branches", f"halves_of_warps_{group}", n, x, zeros(n), I(group), kernel="halves_of_warps")
    yield row("branches", "triangle_loops", n, x, zeros(n))
    for name, codes in (("mixed", drawn(n, 7, B)), ("alike", np.zeros(n, B))):
        yield row("branches", f"calculator_{name}", n, codes, x, floats(n), zeros(n), kernel="calculator")


def images(side) -> Iterator[Row]:
    pixels, x = drawn(side * side, 256, B), floats(side * side)
    n = 160 if side > 100 else 32
    for name in ("heat_3d", "heat_3d_columns"):
        block, grid = ((8, 8, 4), (n // 8, n // 8, n // 4)) if name == "heat_3d" else ((32, 4), (n // 32, n // 4))
        yield plane("images", name, n, floats(n**3), zeros(n**3), I(n), block=block, grid=grid)
    tiles = -(-n // 6)
    yield plane("images", "heat_3d_shared", n, floats(n**3), zeros(n**3), I(n), block=(8, 8, 8), grid=(tiles,) * 3)
    yield plane("images", "life", side, pixels % B(2), zeros(side * side, B), I(side))
    yield plane("images", "life_shared", side, drawn(side * side, 2, I), zeros(side * side, I), I(side), block=(32, 16))
    size = (I(side), I(side))
    for radius in (1, 3):
        yield plane("images", f"blur_box_{radius}", side, pixels, zeros(side * side, B), *size, I(radius),
                    kernel="blur_box", block=(16, 16))  # fmt: skip
    yield plane("images", "sobel", side, pixels, zeros(side * side, B), *size, block=(16, 16))
    yield row("images", "to_gray", side * side, drawn(3 * side * side, 256, B), zeros(side * side, B), U(side * side))
    held = {"taps": floats(64)}
    for name in ("convolve_line", "convolve_line_tiled"):
        yield row("images", name, side * side, x, zeros(side * side), I(side * side), I(31), **held)
    yield plane("images", "convolve_plane_tiled", side, x, zeros(side * side), *size, block=(20, 20),
                grid=(side // 16, side // 16), **held)  # fmt: skip


def products(side) -> Iterator[Row]:
    n = side // 4 if side > 100 else 32
    for name, dtype in (("product_double", D), ("product_half", H), ("product_int", I)):
        a = (floats(n * n) * 8).astype(dtype)
        yield plane("products", name, n, a, a.copy(), zeros(n * n, dtype), I(n), block=(16, 16))
    n = side // 2 if side > 100 else 128
    a = floats(n * n)
    yield plane(
        "products", "product_coarse", n, a, a.copy(), zeros(n * n), I(n), block=(32, 32), grid=(n // 128, n // 32)
    )
    yield Row(
        "product_registers",
        "products",
        "product_registers",
        (n // 64, n // 64),
        (256,),
        (a, a.copy(), zeros(n * n), I(n)),
    )
    v, a = floats(side), floats(side * side)
    for name, threads in (
        ("rows_times_vector", side),
        ("columns_times_vector", side),
        ("warps_times_vector", 32 * side),
    ):
        yield row("products", name, side, a, v, zeros(side), I(side), grid=threads // 64, block=64)


def transposes(side) -> Iterator[Row]:
    for name, dtype in (("rows", F), ("rows_padded", F), ("diagonal", F), ("double", D), ("bytes", B)):
        a = (floats(side * side) * 200).astype(dtype)
        yield plane(
            "transposes", f"transpose_{name}", side, a, np.zeros_like(a), I(side), grid=(side // 32, side // 32)
        )


def rows(side) -> Iterator[Row]:
    x = floats(side * side)
    columns = 512 if side > 100 else 64
    count = side * side // columns
    yield row("rows", "softmax_threads", count, x, zeros(side * side), I(columns), block=64)
    yield row("rows", "softmax_warps", 32 * count, x, zeros(side * side), I(columns))
    yield row("rows", "softmax_blocks", 256 * count, x, zeros(side * side), I(columns), block=256)
    yield row("rows", "layernorm_blocks", 256 * count, x, zeros(side * side), floats(columns), I(columns), block=256)
