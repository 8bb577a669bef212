"""The kernels whose counters and times were read on an H200 give the right results on the simulated GPU."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import Device

FOLDER = Path(__file__).parents[1] / "h200"
ROWS = runpy.run_path(str(FOLDER / "launches.py"))["launches"]("small")
Array = np.ndarray[Any, Any]


def block_sums(per_block: int) -> Callable[[list[Any]], dict[int, Array]]:
    return lambda args: {1: args[0].reshape(-1, per_block).sum(axis=1, dtype=np.int32)}


def block_scans(per_block: int, inclusive: bool) -> Callable[[list[Any]], dict[int, Array]]:
    def expected(args: list[Any]) -> dict[int, Array]:
        blocks = args[0].astype(np.float64).reshape(-1, per_block)
        sums = blocks.cumsum(axis=1)
        return {1: (sums if inclusive else sums - blocks).ravel(), 2: sums[:, -1]}

    return expected


def exclusive_scan(args: list[Any]) -> dict[int, Array]:
    return {1: np.cumsum(args[0], dtype=np.float64) - args[0]}


def odd_even(args: list[Any]) -> dict[int, Array]:
    return {0: np.where(np.arange(args[1]) % 2 == 0, 100.0, 200.0)}


def two_way(args: list[Any]) -> dict[int, Array]:
    """64 rounds in float64 follow the float32 kernel closely: both maps are contractions in the mean."""
    x = args[0].astype(np.float64)
    a, b = x.copy(), x.copy()
    for _ in range(64):
        a = np.sin(a) * 1.1 + 0.3
        b = np.sqrt(np.abs(b) + 1) * np.log(np.abs(b) + 2)
    return {1: np.where(np.arange(len(x)) % 2 == 0, a, b)}


def field(scattered: bool, output: int) -> Callable[[list[Any], Array], dict[int, Array]]:
    def expected(args: list[Any], vectors: Array) -> dict[int, Array]:
        count = int(args[-1])
        width = int(np.sqrt(len(args[output])))
        y, x = np.indices((width, width), np.float64)
        v = vectors[: 2 * count].astype(np.float64).reshape(-1, 2)
        total = np.zeros((width, width))
        for k in range(count):
            pick = v[(k + x.astype(int) * 7) % count] if scattered else v[k]
            total += (x - pick[..., 0]) ** 2 + (y - pick[..., 1]) ** 2
        return {output: total.ravel()}

    return expected


def strided(args: list[Any]) -> dict[int, Array]:
    n, stride = int(args[2]), int(args[3])
    t = np.arange(n)
    rows = n // stride
    return {1: args[0][(t % rows) * stride + t // rows]}


EXPECTED: dict[str, Callable[..., dict[int, Array]]] = {
    "reduce_interleaved_modulo": block_sums(256),
    "reduce_interleaved_strided": block_sums(256),
    "reduce_sequential": block_sums(256),
    "reduce_first_add": block_sums(512),
    "reduce_unroll8_shuffle": block_sums(2048),
    "reduce_global_neighbored": block_sums(256),
    "scan_naive": exclusive_scan,
    "scan_hillis_steele": block_scans(512, inclusive=True),
    "scan_blelloch": block_scans(1024, inclusive=False),
    "scan_blelloch_padded": block_scans(1024, inclusive=False),
    "branch_select_odd_even": odd_even,
    "branch_two_way_divergent": two_way,
    "branch_two_way_by_warp": two_way,
    "field_global": field(scattered=False, output=1),
    "field_constant": field(scattered=False, output=0),
    "field_constant_scattered": field(scattered=True, output=0),
    "copy_strided": strided,
}


@pytest.fixture(scope="module")
def source() -> str:
    return (FOLDER / "kernels.cu").read_text()


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_result_is_right(row: Any, device: Device, source: str) -> None:
    _, kernel, grid, block, args, constants = row
    module = device.compile(source)
    for name, values in constants.items():
        module.set_constant(name, values)
    arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
    module.launch(kernel, grid, block, arrays)
    vectors = constants.get("cv", args[0])
    compute = EXPECTED[kernel]
    expected = compute(args, vectors) if kernel.startswith("field") else compute(args)
    for index, values in expected.items():
        np.testing.assert_allclose(arrays[index].get(), values, rtol=2e-5, atol=1e-4)
