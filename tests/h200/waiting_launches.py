"""The launches behind waiting_times.json; the kernels are in waiting_kernels.cu.

They wait at memory fences, for other blocks, for calls and jumps to an address in a register, and for loads one after
the other.
"""

from collections.abc import Iterator

import numpy as np
from more_launches import BLOCKS, GRID, SMS, F, Row, U, floats, words, zeros

STREAM = 1 << 22
CHAIN = 1024  # blocks
SCOPES = "none", "block", "gpu", "system"


def launches() -> Iterator[Row]:
    waits = loops, crowded_loops, streams, tickets, chains, look_back, calls
    for family in (*waits, histograms, vectors, items, switches):
        yield from family()


def loop(name, kernel, grid, block, lanes=32) -> Row:
    return Row(name, "loops", f"loop_{kernel}", (grid,), (block,), (zeros(4 * grid * block, U), U(lanes)))


def loops() -> Iterator[Row]:
    """Yield launches of one warp per SM: latencies."""
    for scope in SCOPES:
        for kernel in ("alone", "store", "stores", "load"):
            yield loop(f"{kernel}_{scope}_132_warps", f"{kernel}_{scope}", SMS, 32)
    for kernel in ("alone", "store"):
        yield loop(f"{kernel}_gpu_1_warp", f"{kernel}_gpu", 1, 32)
        yield loop(f"{kernel}_gpu_1_lane", f"{kernel}_gpu", 1, 32, 1)


def crowded_loops() -> Iterator[Row]:
    """Yield launches of many warps per SM: throughputs."""
    for scope in SCOPES:
        for kernel in ("alone", "store", "load"):
            yield loop(f"{kernel}_{scope}_8_warps", f"{kernel}_{scope}", SMS, 256)
            yield loop(f"{kernel}_{scope}_64_warps", f"{kernel}_{scope}", GRID, 256)
    yield loop("store_gpu_64_warps_1_lane", "store_gpu", GRID, 256, 1)
    yield loop("store_gpu_2_rounds", "store_gpu", 2 * GRID, 256)


def streams() -> Iterator[Row]:
    source = floats(STREAM)

    def stream(kernel, grid, count=STREAM):
        return Row(f"{kernel}_{grid}", "streams", kernel, (grid,), (256,), (source, zeros(STREAM), U(count)))

    for scope in SCOPES:
        yield stream(f"stream_{scope}", GRID)
        yield stream(f"stream_{scope}", STREAM // 256)
        yield stream(f"stream_vectors_{scope}", GRID, STREAM // 4)
        yield stream(f"stream_loads_{scope}", GRID)
        yield stream(f"stream_four_{scope}", 1024)
        yield stream(f"reduce_{scope}", GRID)
        yield stream(f"reduce_{scope}", STREAM // 2048)


def tickets() -> Iterator[Row]:
    source = floats(STREAM)
    for kernel in ("unfenced", "fence_of_all", "fence_of_one", "system_fence_of_one"):
        for grid in (128, 1024, STREAM // 256):
            args = (source, zeros(STREAM), zeros(1, U), U(STREAM))
            yield Row(f"ticket_{kernel}_{grid}", "tickets", f"ticket_{kernel}", (grid,), (256,), args)


def chains() -> Iterator[Row]:
    def chain(kernel, *args, block=32, blocks=CHAIN):
        return Row(f"chain_{kernel}_{blocks}", "chains", f"chain_{kernel}", (blocks,), (block,), (*args, zeros(1, U)))

    variants = "unfenced fence_before_flag fence_after_wait two_fences system_fences acquire_release atomics"
    for kernel in variants.split():
        yield chain(kernel, zeros(CHAIN, U), zeros(CHAIN, U))
    yield chain("two_fences", zeros(4 * CHAIN, U), zeros(4 * CHAIN, U), blocks=4 * CHAIN)
    yield chain("packed", zeros(CHAIN, np.uint64))
    yield chain("blocks", zeros(CHAIN, U), zeros(256 * CHAIN), block=256)


def look_back() -> Iterator[Row]:
    def walk(kernel, blocks, block, *words):
        n = blocks * block
        args = (floats(n), zeros(n), zeros(1, U), *words)
        name = f"look_back_{kernel}"
        return Row(f"{name}_{blocks}_{block}", "look back", name, (blocks,), (block,), args)

    for blocks, block in ((1024, 256), (8192, 256), (8192, 32)):
        for kernel in ("one_thread", "warp"):
            yield walk(kernel, blocks, block, zeros(blocks, np.uint64))
        for kernel in ("fences", "acquire_release"):
            yield walk(kernel, blocks, block, zeros(blocks, U), zeros(blocks), zeros(blocks))


def calls() -> Iterator[Row]:
    counts = {"inlined": (1,), "direct": (1,), "indirect": (1, 2, 4, 8), "changing": (1, 8)}
    counts |= {"virtual": (1, 2, 4), "switch": (1, 2, 4, 8)}
    for kernel, targets in counts.items():
        for count in targets:
            args = (zeros(GRID * 256), F(0.9), U(count))
            yield Row(f"call_{kernel}_{count}", "calls", f"call_{kernel}", (GRID,), (256,), args)
    for kernel in ("direct", "indirect", "virtual"):
        args = (zeros(SMS * 32), F(0.9), U(1))
        yield Row(f"call_{kernel}_1_warp", "calls", f"call_{kernel}", (SMS,), (32,), args)


def histograms() -> Iterator[Row]:
    """Yield histograms of random bytes: unlike those of `words`, lanes of a warp often have equal ones."""
    n, rng = 992 * BLOCKS, np.random.default_rng(1)
    samples = {name: sample.astype(np.uint8) for name, sample in (
        ("skewed", rng.binomial(255, 0.3, n)), ("uniform", rng.integers(0, 256, n)), ("few", rng.choice([0, 31, 32], n))
    )}  # fmt: skip

    def row(variant, grid, values):
        name = f"byte_histogram{variant}"
        return Row(f"{name}_{values}", "bytes", name, (grid,), (256,), (samples[values], zeros(256, U), U(n)))

    for values in samples:
        for variant, per_thread in (("", 1), ("_1", 1), ("_8", 8), ("_32", 32)):
            yield row(variant, -(-n // (256 * per_thread)), values)
    for variant in ("_restrict", "_free", "_store", "_max"):
        yield row(variant, n // 8192, "uniform")


def vectors() -> Iterator[Row]:
    """Yield updates of shared memory by lanes at one address (one, few), and in one bank (banks)."""
    n, rng = 1 << 25, np.random.default_rng(1)
    samples = {
        "uniform": rng.integers(0, 256, n, dtype=np.uint8), "few": rng.choice(np.array([0, 31, 32], np.uint8), n),
        "one": np.full(n, 7, np.uint8), "banks": rng.integers(0, 8, n, dtype=np.uint8) * 32,
    }  # fmt: skip
    for values, sample in samples.items():
        for kernel in ("count", "add", "store"):
            args = (sample.view(np.uint32), zeros(256, U), U(n // 16))
            yield Row(f"vector_{kernel}_{values}", "vectors", f"vector_{kernel}", (GRID,), (256,), args)


ITEMS = "copy copy_restrict copy_guarded gather gather_restrict scatter add add_restrict add_guarded"


def items() -> Iterator[Row]:
    for kernel in ITEMS.split():
        for block in (64, 1024):
            n = 16 * 128 * block
            args = (words(n), zeros(n, U), U(n))
            yield Row(f"items_{kernel}_{block}", "items", f"items_{kernel}", (128,), (block,), args)


def switches() -> Iterator[Row]:
    """Yield launches in which as many neighbouring lanes of a warp take the same case."""
    for lanes in (32, 16, 8, 1):
        args = (zeros(GRID * 256), F(0.9), U(lanes), U(3))
        yield Row(f"switch_4_{lanes}", "switch", "switch_4", (GRID,), (256,), args)
