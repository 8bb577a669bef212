"""The launches behind more_times.json, by what they are good for; the kernels are in more_kernels.cu.

`launches()` yields them all; `Row` says what each is. Times were taken with `record_times.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

F, U, I = np.float32, np.uint32, np.int32  # noqa: E741 - the types of CUDA
LARGE, MEDIUM = 1 << 25, 1 << 22
SMS = 132  # of the H200
GRID = 8 * SMS
BLOCKS = 4 * GRID
THREADS = 256 * BLOCKS


@dataclass(frozen=True)
class Row:
    """One launch: its name, its family, and what `Module.launch` takes."""

    name: str
    family: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...] = ()
    shared_bytes: int = 0
    constants: dict[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=1)  # two families read the longest, 128 MB
def floats(n):
    return (words(n) & U(0xFFFF)).astype(F) / F(65536)


@lru_cache(maxsize=1)
def words(n):
    return np.arange(n, dtype=U) * U(2654435761) >> U(8)


def chain(n, step):
    """Each element is the index of the one `step` further, around at the end."""
    return np.roll(np.arange(n, dtype=U), -step)


def zeros(n, dtype=F):
    return np.zeros(n, dtype)


def launches() -> Iterator[Row]:
    for family in (copies, strides, tiles, atomics, mathematics, shared_memory, latencies):
        yield from family()


def copies() -> Iterator[Row]:
    n, wide = LARGE, floats(LARGE)

    def copy(name, kernel, n, grid, block=256, shared_bytes=0, count=None):
        return Row(name, "copies", kernel, (grid,), (block,), (wide[:n], zeros(n), U(count or n)), shared_bytes)

    for block in (32, 256, 1024):
        yield copy(f"copy_words_{block}", "copy_words", n, n // block, block)
    for power in (20, 22):
        yield copy(f"copy_words_2^{power}", "copy_words", 1 << power, (1 << power) // 256)
    yield copy("copy_vectors", "copy_vectors", n, n // 1024, count=n // 4)
    yield copy("copy_grid_stride", "copy_grid_stride", n, GRID)
    yield copy("copy_grid_stride_132", "copy_grid_stride", n, 132)
    yield copy("copy_offset", "copy_offset", n, n // 256)
    yield copy("copy_fenced", "copy_fenced", MEDIUM, MEDIUM // 256)
    for shared in (28_000, 56_000, 112_000):
        yield copy(f"copy_few_warps_{227_000 // shared}", "copy_few_warps", n, n // 256, 256, shared)


def strides() -> Iterator[Row]:
    n, wide = LARGE, floats(LARGE)
    for stride in (2, 4, 8, 32):
        args = (wide, zeros(n), U(n), U(stride))
        yield Row(f"scatter_strided_{stride}", "strides", "scatter_strided", (n // 256,), (256,), args)
    for stride in (2, 4, 8, 16, 32):
        count = n // stride
        args = (wide, zeros(count), U(count), U(stride))
        yield Row(f"pick_strided_{stride}", "picks", "pick_strided", (count // 256,), (256,), args)
    for power in (12, 18, 22, 25):
        args = (wide[: 1 << power], zeros(n), U(n), U((1 << power) - 1))
        yield Row(f"gather_2^{power}", "strides", "gather_random", (n // 256,), (256,), args)
    args = (wide[:MEDIUM], zeros(GRID * 256), U(MEDIUM), I(8))
    yield Row("read_again_16_MB", "copies", "read_again", (GRID,), (256,), args)


def tiles() -> Iterator[Row]:
    side = 4096
    square, out = floats(side * side), zeros(side * side)
    for kernel in ("transpose_naive", "transpose_conflicts", "transpose_padded"):
        yield Row(kernel, "transpose", kernel, (128, 128), (32, 8), (square, out, U(side)))
    for kernel in ("stencil_naive", "stencil_shared"):
        yield Row(kernel, "stencil", kernel, (side // 32, side // 8), (32, 8), (square, out, U(side)))
    side = 1024
    args = (floats(side * side), floats(side * side), zeros(side * side), U(side))
    for kernel in ("matmul_naive", "matmul_columns", "matmul_tiled"):
        yield Row(kernel, "matmul", kernel, (64, 64), (16, 16), args)


def atomics() -> Iterator[Row]:
    m, source = MEDIUM, words(MEDIUM)
    for mask in (255, 15, 0):
        for kernel in ("histogram_global", "histogram_shared"):
            args = (source, zeros(256, U), U(m), U(mask))
            yield Row(f"{kernel}_{mask + 1}", "histogram", kernel, (GRID,), (256,), args)
    yield Row("atomic_ticket", "atomics", "atomic_ticket", (8192,), (256,), (zeros(1, U), zeros(8192, U)))
    yield Row("atomic_spread", "atomics", "atomic_spread", (m // 256,), (256,), (zeros(m, U), U(m)))
    args = (source.view(I), zeros(1, I), U(m))
    yield Row("sum_by_atomics", "atomics", "sum_by_atomics", (m // 256,), (256,), args)
    flags, values, ticket = zeros(4096, U), zeros(4096, U), zeros(1, U)
    yield Row("chain", "atomics", "chain", (4096,), (256,), (flags, ticket))
    yield Row("chain_fenced", "atomics", "chain_fenced", (4096,), (256,), (flags, values, ticket))


MATH = {
    F: "fma fma_wide fast_sine sine exp rsqrt sqrt log divide float_to_int",
    np.float64: "double",
    I: "integer",
    U: "shift remainder",
}


def mathematics() -> Iterator[Row]:
    for dtype, names in MATH.items():
        factor = dtype(3) if np.issubdtype(dtype, np.integer) else dtype(0.9)
        for name in names.split():
            args = (zeros(THREADS, dtype), factor)
            yield Row(f"math_{name}", "math", f"math_{name}", (BLOCKS,), (256,), args)
    for ways in (1, 2, 8, 32):
        args = (zeros(THREADS), F(0.9), U(ways))
        yield Row(f"math_diverge_{ways}", "diverge", "math_diverge", (BLOCKS,), (256,), args)


def shared_memory() -> Iterator[Row]:
    def loop(name, kernel, *args, dtype=F, block=256, constants=None):
        grid, held = (THREADS // block,), (zeros(THREADS, dtype), *args)
        return Row(name, "shared", kernel, grid, (block,), held, 0, constants or {})

    for stride in (0, 1, 2, 4, 8, 16, 32):
        yield loop(f"shared_strided_{stride}", "shared_strided", U(stride))
    for mask in (1023, 31, 3, 0):
        yield loop(f"shared_atomics_{mask + 1}", "shared_atomics", U(mask), dtype=U)
    for spread in (0, 1, 31):
        yield loop(f"constants_{spread + 1}", "constants", U(spread), constants={"table": floats(1024)})
    for block in (64, 256, 1024):
        yield loop(f"barriers_{block}", "barriers", block=block)
    yield loop("shared_vectors", "shared_vectors")
    yield loop("shuffles", "shuffles")
    yield loop("local_array", "local_array", U(3))


def latencies() -> Iterator[Row]:
    def alone(name, kernel, *args, grid=1, block=32):
        return Row(name, "latency", kernel, (grid,), (block,), args)

    yield Row("nothing", "latency", "nothing", (1,), (32,))
    yield alone("math_fma_1_warp", "math_fma", zeros(132 * 32), F(0.9), grid=132)
    yield alone("math_fma_1_block", "math_fma", zeros(1024), F(0.9), block=1024)
    yield alone("barriers_1_block", "barriers", zeros(256), block=256)
    yield alone("chase_memory", "chase", chain(LARGE, 97 * 8192 + 32), zeros(1, U), I(256), block=1)
    yield alone("chase_l2", "chase", chain(1 << 18, 4096 + 32), zeros(1, U), I(32768), block=1)
    yield alone("chase_l1", "chase", chain(1 << 11, 32), zeros(1, U), I(16384), block=1)
    yield alone("chase_shared", "chase_shared", zeros(32, U), I(4096))
    yield alone("sum_serial", "sum_serial", floats(8192), zeros(32), I(8192))
    for block in (32, 256):
        yield alone(f"touch_{block}", "touch", zeros(65536), grid=65536, block=block)
