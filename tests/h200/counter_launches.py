"""The launches behind counters.json: small ones of the kernels in counter_kernels.cu, for their counters only."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

F, D, U, I, B = np.float32, np.float64, np.uint32, np.int32, np.uint8  # noqa: E741 - the types of CUDA
N = 1 << 14


@dataclass(frozen=True)
class Row:
    """One launch: its name and what `Module.launch` takes."""

    name: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...]
    shared_bytes: int = 0
    constants: dict[str, Any] = field(default_factory=dict)


def words(n, dtype=U):
    return ((np.arange(n, dtype=np.uint64) * 2654435761 >> 8) & 0xFFFFFF).astype(dtype)


def floats(n, dtype=F):
    return ((words(n) & 0xFFFF) / 65536).astype(dtype)


def zeros(n, dtype=F):
    return np.zeros(n, dtype)


def flat(name, *args, kernel=None, block=256, grid=None, shared_bytes=0, constants=None):
    return Row(name, kernel or name, (grid or N // block,), (block,), args, shared_bytes, constants or {})


def launches() -> Iterator[Row]:
    for family in (atomics, tiles, wide, scans, divergence, arithmetic, constants):
        yield from family()


def atomics() -> Iterator[Row]:
    yield flat("histogram_shared", words(N), zeros(64, U), U(N), grid=16)
    yield flat("histogram_global", words(N), zeros(256, U), U(N))
    yield flat("atomic_results", words(N), zeros(2048, U), zeros(N, U), U(N))
    for spread in (31, 3):
        args = (floats(N), zeros(N // 8), I(spread))
        yield flat(f"shared_atomic_kinds_{spread + 1}", *args, kernel="shared_atomic_kinds")


def tiles() -> Iterator[Row]:
    square = (floats(N), zeros(N), I(128))
    for kernel in ("transpose_plain", "transpose_tile", "transpose_padded_tile"):
        yield Row(kernel, kernel, (4, 4), (32, 8), square)
    yield Row("matmul_tile", "matmul_tile", (8, 8), (16, 16), (floats(N), floats(N), zeros(N), I(128)))
    yield flat("stencil_halo", floats(N), zeros(N), I(N - 100))


def wide() -> Iterator[Row]:
    yield flat("reduce_vectors", words(N, I).reshape(-1, 4), zeros(1, I), U(N // 4), grid=3)
    for kernel, width in (("shared_pairs", 2), ("shared_quads", 4)):
        for stride in (1, 3, 8):
            args = (floats(width * 1024), zeros(width * 1024), I(stride))
            yield flat(f"{kernel}_{stride}", *args, kernel=kernel, block=128, grid=8)
    yield flat("copy_bytes", words(N, B), zeros(N, B), I(N), I(5))
    yield flat("structures", floats(3 * N, D), zeros(N, D), I(N))


def scans() -> Iterator[Row]:
    yield flat("scan_warps", words(N, I), zeros(N, I), I(N))
    yield flat("sort_bitonic", words(2048, I), I(512), block=512, grid=4, shared_bytes=2048)


def divergence() -> Iterator[Row]:
    yield flat("collatz", zeros(4096, I), I(4000), grid=16)
    yield flat("eight_ways", floats(N), zeros(N), I(N))
    yield Row("mandelbrot", "mandelbrot", (8, 16), (16, 8), (zeros(128 * 128, B), I(128), I(100)))
    yield flat("search_sorted", np.sort(words(4096, I)), words(N, I), zeros(N, I), I(4096), I(N))
    lengths = words(4096, I) % 17
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(I)
    total = int(starts[-1])
    args = (starts, words(total, I) % 4096, floats(total), floats(4096), zeros(4096), I(4096))
    yield flat("rows_csr", *args, grid=16)


def arithmetic() -> Iterator[Row]:
    yield flat("divisions", floats(N), zeros(N), I(N), I(11))
    yield flat("doubles", floats(N, D), zeros(N, D), I(N))
    args = (words(N, np.uint64), zeros(N, np.uint64), np.uint64(1_000_003), I(N))
    yield flat("wide_integers", *args)
    yield flat("softmax_rows", floats(64 * 300), zeros(64 * 300), I(300), block=128, grid=64)
    yield flat("call_function", floats(N), floats(16), zeros(N), I(N - 77), I(13))


def constants() -> Iterator[Row]:
    held = {"words": floats(512), "wide_words": floats(64, D), "quads": floats(256)}
    for mask, step in ((0, 1), (1, 1), (3, 1), (15, 1), (15, 16)):
        args = (zeros(2048), I(mask * step), I(step))
        yield flat(f"constant_words_{mask + 1}x{step}", *args, kernel="constant_words", grid=8, constants=held)
    for mask in (0, 1, 7):
        yield flat(f"constant_doubles_{mask + 1}", zeros(2048, D), I(mask), kernel="constant_doubles", grid=8,
                   constants=held)  # fmt: skip
        yield flat(f"constant_quads_{mask + 1}", zeros(2048), I(mask), kernel="constant_quads", grid=8,
                   constants=held)  # fmt: skip
    yield flat("polynomial_constant", floats(N), zeros(N), I(N), I(37), constants=held)
    yield flat("spilled_array", words(N, I), zeros(N, I), I(N))
