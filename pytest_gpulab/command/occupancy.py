"""`gpulab occupancy`: the occupancy of a launch, and of other block sizes."""

import argparse
import sys

from pytest_gpulab.devices.errors import DeviceUnavailable
from pytest_gpulab.devices.hardware.architectures import SmLimits
from pytest_gpulab.devices.hardware.occupancy import (
    MAX_BLOCK_THREADS,
    WARP,
    BlockNeeds,
    blocks_by_resource,
    occupancy_by_rules,
)
from pytest_gpulab.devices.simulated.gpus import modelled_gpu
from pytest_gpulab.grading.findings import counted

from . import CommandError

MAX_REGISTERS = 255
HEADERS = ("block", "warps per SM", "blocks per SM", "occupancy", "limited by")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("--block", type=int, required=True, metavar="THREADS", help="threads per block")
    parser.add_argument("--registers", type=int, default=32, metavar="N", help="registers per thread (default: 32)")
    parser.add_argument("--shared", type=int, default=0, metavar="BYTES", help="shared memory per block (default: 0)")
    parser.add_argument("--gpu", default="h200", metavar="NAME", help="a modelled GPU, such as h100 (default: h200)")


def run(arguments: argparse.Namespace) -> int:
    """Print the launch's occupancy with its limits, then a table over block sizes."""
    try:
        gpu = modelled_gpu(arguments.gpu)
    except DeviceUnavailable as unknown:
        raise CommandError(str(unknown)) from None
    needs = BlockNeeds(arguments.block, arguments.registers, arguments.shared)
    _check(needs, gpu.limits)
    found = occupancy_by_rules(gpu.architecture, "", needs)
    allowed = ", ".join(f"{name} {blocks}" for name, blocks in blocks_by_resource(gpu.limits, needs).items())
    lines = [
        f"{gpu.name}, {counted(needs.threads, 'thread')} per block, {counted(needs.registers or 0, 'register')} per "
        f"thread, {counted(needs.shared_bytes, 'byte')} of shared memory per block",
        f"occupancy   {found.occupancy:.0%}: {found.active_warps} of {gpu.limits.warps} warps, "
        f"{counted(found.active_blocks, 'block')} per SM",
        f"limited by  {' and '.join(found.limited_by)}",
        f"limits      blocks per SM that each resource allows: {allowed}",
        "",
        *_table(gpu.architecture, gpu.limits, needs),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _check(needs: BlockNeeds, limits: SmLimits) -> None:
    """Raise CommandError for a value that no GPU of the architecture accepts; the message names the option."""
    ranges = (
        ("--block", needs.threads, 1, MAX_BLOCK_THREADS),
        ("--registers", needs.registers or 0, 1, MAX_REGISTERS),
        ("--shared", needs.shared_bytes, 0, limits.largest_shared_bytes),
    )
    for option, value, least, most in ranges:
        if not least <= value <= most:
            raise CommandError(f"{option} {value} is out of range: {least} to {most}")
    if blocks_by_resource(limits, needs)["registers"] == 0:
        raise CommandError(
            f"--registers {needs.registers} are too many for {needs.threads} threads: see __launch_bounds__"
        )


def _table(architecture: str, limits: SmLimits, needs: BlockNeeds) -> list[str]:
    """Return the table over block sizes; a row per size, the chosen one marked."""
    sizes = sorted({*range(2 * WARP, MAX_BLOCK_THREADS + 1, 2 * WARP), WARP, needs.threads})
    rows = [HEADERS]
    for size in sizes:
        found = occupancy_by_rules(architecture, "", BlockNeeds(size, needs.registers, needs.shared_bytes))
        mark = "*" if size == needs.threads else ""
        counts = (f"{mark}{size}", str(found.active_warps), str(found.active_blocks), f"{found.occupancy:.0%}")
        rows.append((*counts, " and ".join(found.limited_by)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join((*(c.rjust(w) for c, w in zip(row[:-1], widths, strict=False)), row[-1])) for row in rows]
