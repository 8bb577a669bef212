"""Occupancy by the rules: against what Nsight Compute printed on an H200, and what changes from GPU to GPU."""

from __future__ import annotations

import json
import runpy
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pytest_gpulab.devices.hardware.architectures import LIMITS, generation
from pytest_gpulab.devices.hardware.occupancy import (
    BlockNeeds,
    KernelOccupancy,
    achieved_occupancy,
    blocks_by_resource,
    occupancy_by_rules,
    occupancy_of,
    suggested_block,
)

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parents[1] / "h200"
MEASURED: dict[str, Any] = json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))
LAUNCHES = runpy.run_path(str(FOLDER / "launches.py"))["launches"]("small")
BLOCKS = {row[0]: prod(row[3]) for row in LAUNCHES}
KIB = 1024


def needs_of(row: str) -> BlockNeeds:
    figures = MEASURED[row]["large_run"]
    return BlockNeeds(BLOCKS[row], figures["registers"], figures["shared_bytes"])


def carve_out_of(needs: BlockNeeds) -> int:
    """Return the carve-out that the driver chose; Nsight Compute counts within it, the driver's own API does not."""
    if needs.shared_bytes >= 4 * KIB:
        return 64 * KIB
    return 32 * KIB if needs.threads == 256 else 16 * KIB


def test_there_are_twenty_launches() -> None:
    assert len(MEASURED) == len(BLOCKS) == 20


@pytest.mark.parametrize("row", MEASURED)
def test_the_limits_are_those_that_nsight_compute_prints(row: str) -> None:
    counters, needs = MEASURED[row]["counters"], needs_of(row)
    names = {"warps": "warps", "blocks": "blocks", "registers": "registers", "shared memory": "shared_mem"}
    printed = {supply: counters[f"launch__occupancy_limit_{name}"] for supply, name in names.items()}
    assert blocks_by_resource(LIMITS["sm_90"], needs, carve_out_of(needs)) == printed


@pytest.mark.parametrize("row", MEASURED)
def test_occupancy_and_registers_are_those_that_nsight_compute_prints(row: str) -> None:
    counters, needs = MEASURED[row]["counters"], needs_of(row)
    occupancy = occupancy_by_rules("sm_90", row, needs)
    assert 100 * occupancy.occupancy == counters["sm__maximum_warps_per_active_cycle_pct"]
    assert occupancy.active_warps == counters["sm__maximum_warps_avg_per_active_cycle"]
    assert max(needs.registers or 0, 16) == counters["launch__registers_per_thread"]


def occupancy(architecture: str, threads: int, registers: int = 16, shared_bytes: int = 0) -> KernelOccupancy:
    return occupancy_by_rules(architecture, "kernel", BlockNeeds(threads, registers, shared_bytes))


@pytest.mark.parametrize(
    ("launch", "blocks", "share", "limited_by", "suggested"),
    [
        (("sm_90", 256), 8, 1.0, ("warps",), 1024),
        (("sm_90", 96), 21, 63 / 64, ("warps",), 1024),  # as a real H200's driver says
        (("sm_90", 32), 32, 0.5, ("blocks",), 1024),
        (("sm_90", 256, 48), 5, 0.625, ("registers",), 640),
        (("sm_90", 1024, 65), 0, 0.0, ("registers",), 896),
        (("sm_90", 256, 16, 48 * KIB), 4, 0.5, ("shared memory",), 1024),
        (("sm_90", 128, 64, 28 * KIB - 100), 7, 28 / 64, ("shared memory",), 1024),
        (("sm_90", 256, 64, 56 * KIB), 4, 0.5, ("registers", "shared memory"), 1024),
        (("sm_86", 256), 6, 1.0, ("warps",), 768),
        (("sm_86", 1024), 1, 32 / 48, ("warps",), 768),
        (("sm_86", 64), 16, 32 / 48, ("blocks",), 768),
        (("sm_89", 64), 24, 1.0, ("warps",), 768),
        (("sm_75", 1024), 1, 1.0, ("warps",), 1024),
        (("sm_75", 256, 16, 32 * KIB), 2, 0.5, ("shared memory",), 1024),  # nothing reserved before sm_80
        (("sm_80", 256, 16, 32 * KIB), 4, 0.5, ("shared memory",), 1024),
        (("sm_120", 256, 16, 32 * KIB), 3, 0.5, ("shared memory",), 768),
    ],
)
def test_the_limiting_resource_of_a_launch(
    launch: tuple[Any, ...], blocks: int, share: float, limited_by: tuple[str, ...], suggested: int
) -> None:
    found = occupancy(*launch)
    assert (found.active_blocks, found.occupancy, found.limited_by) == (blocks, share, limited_by)
    assert found.suggested_block_threads == suggested
    assert found.active_warps == blocks * -(-launch[1] // 32)


def test_a_block_that_cannot_run_anywhere_gets_no_suggestion() -> None:
    found = occupancy("sm_86", 256, 16, 100 * KIB)
    assert (found.active_blocks, found.suggested_block_threads) == (0, None)


def test_the_suggestion_keeps_to_the_kernels_largest_block() -> None:
    assert suggested_block(lambda threads: 2048 // (32 * -(-threads // 32)), largest=1000) == 512
    needs = BlockNeeds(64, 32, 0)
    assert occupancy_by_rules("sm_90", "kernel", needs, largest=192).suggested_block_threads == 128


@pytest.mark.parametrize(
    ("blocks", "share"),
    [
        (132, 8 / 64),  # one block of eight warps on each SM
        (132 * 8, 1.0),
        (132 * 9, 9 * 8 / (2 * 64)),  # the second round has one block instead of eight
        (66, 8 / 64),  # the SMs without a block do not count
        (132 * 8 + 1, (132 * 8 + 1) * 8 / (133 * 64)),
    ],
)
def test_the_achieved_occupancy_follows_from_the_rounds_of_blocks(blocks: int, share: float) -> None:
    assert achieved_occupancy(occupancy("sm_90", 256, 16, 0), 132, blocks) == pytest.approx(share)


def test_a_launch_that_fits_nowhere_achieves_nothing() -> None:
    assert achieved_occupancy(occupancy("sm_86", 256, 16, 100 * KIB), 132, 8) == 0


def test_the_achieved_occupancy_is_close_to_the_counter_of_an_h200() -> None:
    ratios = []
    for name, _, grid, block, *_ in LAUNCHES:
        counters = MEASURED[name]["counters"]
        limits = (
            counters[f"launch__occupancy_limit_{each}"] for each in ("blocks", "registers", "shared_mem", "warps")
        )
        needs, resident = BlockNeeds(prod(block), None, 0), int(min(limits))
        found = occupancy_of("sm_90", LIMITS["sm_90"], name, needs, int(resident), None)
        estimated = achieved_occupancy(found, 132, prod(grid))
        ratios.append(100 * estimated / counters["sm__warps_active.avg.pct_of_peak_sustained_active"])
    assert len(ratios) == 20
    assert min(ratios) > 0.9 and max(ratios) < 1.8  # one or two blocks per SM, so that their times differ most
    assert median(ratios) == pytest.approx(1.1, abs=0.02)


def test_where_the_driver_says_less_than_the_rules_no_reason_is_made_up() -> None:
    limits, needs = LIMITS["sm_90"], BlockNeeds(256, 48, 0)
    assert occupancy_of("sm_90", limits, "kernel", needs, 5, None).limited_by == ("registers",)
    assert occupancy_of("sm_90", limits, "kernel", needs, 4, None).limited_by == ()


def test_unknown_registers_limit_nothing() -> None:
    assert occupancy_by_rules("sm_90", "kernel", BlockNeeds(256, None, 0)).active_blocks == 8


def test_generations_are_named() -> None:
    assert (generation("sm_90"), generation("sm_89")) == ("Hopper", "Ada Lovelace")
    assert generation("sm_999") == "unknown generation"
