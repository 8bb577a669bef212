"""What a report says of the GPU that the cost model describes, and how kernels would fill its multiprocessors."""

from __future__ import annotations

import re
from math import prod

from pytest_gpulab.devices.hardware.architectures import LIMITS, generation
from pytest_gpulab.devices.protocol import DeviceUnavailable

from .gpus import Gpu

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{;]*)\{")
_BOUND = re.compile(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)")


def describe(gpu: Gpu, occupancy_architecture: str) -> tuple[str, dict[str, str]]:
    """Return what to print about a described GPU: in a line, and as label to text."""
    architecture, limits = gpu.architecture, gpu.limits
    family, clock_mhz = generation(architecture), 1000 * gpu.clock_ghz
    shared = f"{limits.shared_bytes // 1024} KiB shared"
    holds = f"{limits.warps} warps, {limits.blocks} blocks, {limits.registers} registers, {shared}"
    rows = {
        "described GPU": gpu.name,
        "described generation": f"{family} ({architecture})",
        "described SMs": f"{gpu.sms}, each with room for {holds}",
        "described SM clock": f"{clock_mhz:.0f} MHz",
        "described peak bandwidth": f"{gpu.bandwidth_gb_s:.0f} GB/s",
        "occupancy for": f"{occupancy_architecture} ({generation(occupancy_architecture)})",
    }
    line = f"described: {family}, {gpu.sms} SMs at {clock_mhz:.0f} MHz, {gpu.bandwidth_gb_s:.0f} GB/s at most"
    if occupancy_architecture != architecture:
        line += f"; occupancy for {occupancy_architecture}"
    return line, rows


def known_architecture(architecture: str) -> str:
    """Return the architecture if its limits are known.

    Raises:
        DeviceUnavailable: they are not; says which are.
    """
    if architecture not in LIMITS:
        known = ", ".join(LIMITS)
        raise DeviceUnavailable(f"nothing is known of the architecture {architecture!r}; known are {known}")
    return architecture


def launch_bounds(ptx: str) -> dict[str, int]:
    """Return the most threads that a block may have by `__launch_bounds__`, for the kernels that have any."""
    bounds = {}
    for entry in _ENTRY.finditer(ptx):
        if bound := _BOUND.search(entry[3]):
            bounds[entry[1]] = prod(map(int, bound[1].split(",")))
    return bounds
