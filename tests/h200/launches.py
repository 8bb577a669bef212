"""The launches behind measured.json: kernel, grid, block and arguments of each row.

`launches("small")` are the launches whose counters were read (one launch each, Nsight Compute
2025.3, caches flushed); `launches("large")` those whose times were taken (median of 20, CUDA
events, 256 MiB of L2 flushed before each).
"""

from functools import cache

import numpy as np


@cache  # many launches read the same numbers, and those of the large ones take a second to make
def ints(n):
    return (_words(n) & np.uint32(0xFF)).astype(np.int32)


@cache
def floats(n):
    return (_words(n) & np.uint32(0xFFFF)).astype(np.float32) / np.float32(65536)


def _words(n):
    return np.arange(n, dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(8)


def zeros(n, dtype="float32"):
    return np.zeros(n, dtype)


def launches(size):
    """Return (row, kernel, grid, block, args, constants) for every row of measured.json."""
    n = 1 << (16 if size == "small" else 25)
    n_naive_scan = 1 << (12 if size == "small" else 16)
    width = 256 if size == "small" else 2048
    u, i = np.uint32, np.int32
    rows = []
    for kernel, per_thread in (
        ("reduce_interleaved_modulo", 1),
        ("reduce_interleaved_strided", 1),
        ("reduce_sequential", 1),
        ("reduce_first_add", 2),
        ("reduce_unroll8_shuffle", 8),
        ("reduce_global_neighbored", 1),
    ):
        blocks = n // (256 * per_thread)
        rows.append((kernel, kernel, (blocks,), (256,), [ints(n), zeros(blocks, "int32"), u(n)], {}))
    rows.append(
        (
            "scan_naive",
            "scan_naive",
            (n_naive_scan // 512,),
            (512,),
            [floats(n_naive_scan), zeros(n_naive_scan), u(n_naive_scan)],
            {},
        )
    )
    for kernel, per_block in (("scan_hillis_steele", 512), ("scan_blelloch", 1024), ("scan_blelloch_padded", 1024)):
        blocks = n // per_block
        rows.append((kernel, kernel, (blocks,), (512,), [floats(n), zeros(n), zeros(blocks), u(n)], {}))
    rows.append(("branch_select_odd_even", "branch_select_odd_even", (n // 256,), (256,), [zeros(n), u(n)], {}))
    for kernel in ("branch_two_way_divergent", "branch_two_way_by_warp"):
        rows.append((kernel, kernel, (n // 256,), (256,), [floats(n), zeros(n), u(n)], {}))
    vectors = np.tile(floats(40), 5)
    tile, tiles = (16, 16), (width // 16, width // 16)
    rows.append(("field_global", "field_global", tiles, tile, [vectors, zeros(width * width), i(20)], {}))
    # 200 floats were copied to cv, of which the kernels read the first 40 (20 vectors)
    for kernel in ("field_constant", "field_constant_scattered"):
        rows.append((kernel, kernel, tiles, tile, [zeros(width * width), i(20)], {"cv": vectors[:128]}))
    for stride in (1, 2, 8, 32):
        rows.append(
            (f"copy_strided_{stride}", "copy_strided", (n // 256,), (256,), [floats(n), zeros(n), u(n), u(stride)], {})
        )
    return rows
