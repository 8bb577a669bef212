"""The modelled GPU in headers and reports, known architectures, and kernels' launch bounds."""

from __future__ import annotations

import re
from math import prod

from pytest_gpulab.devices.hardware.architectures import LIMITS, generation
from pytest_gpulab.devices.protocol import DeviceUnavailable

from .gpus import Gpu

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{;]*)\{")
_BOUND = re.compile(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)")


def describe(gpu: Gpu, occupancy_architecture: str) -> tuple[str, dict[str, str]]:
    """Return the description of a modelled GPU: one line, and rows (label to text)."""
    architecture, limits = gpu.architecture, gpu.limits
    family, clock_mhz = generation(architecture), 1000 * gpu.clock_ghz
    shared = f"{limits.shared_bytes // 1024} KiB shared"
    holds = f"{limits.warps} warps, {limits.blocks} blocks, {limits.registers} registers, {shared}"
    rows = {
        "modelled GPU": gpu.name,
        "modelled generation": f"{family} ({architecture})",
        "modelled SMs": f"{gpu.sms}, each holds {holds}",
        "modelled SM clock": f"{clock_mhz:.0f} MHz",
        "modelled peak bandwidth": f"{gpu.bandwidth_gb_s:.0f} GB/s",
        "occupancy for": f"{occupancy_architecture} ({generation(occupancy_architecture)})",
    }
    speeds = f"{gpu.sms} SMs at {clock_mhz:.0f} MHz, {gpu.bandwidth_gb_s:.0f} GB/s peak"
    line = f"modelled GPU: {gpu.name} ({family}), {speeds}"
    if occupancy_architecture != architecture:
        line += f"; occupancy for {occupancy_architecture}"
    return line, rows


def known_architecture(architecture: str) -> str:
    """Return the architecture if its limits are known.

    Raises:
        DeviceUnavailable: they are not known.
    """
    if architecture not in LIMITS:
        known = ", ".join(LIMITS)
        raise DeviceUnavailable(f"unknown architecture {architecture!r}; available: {known}")
    return architecture


def launch_bounds(ptx: str) -> dict[str, int]:
    """Return the largest block that `__launch_bounds__` allows, in threads, for the kernels that have it."""
    bounds = {}
    for entry in _ENTRY.finditer(ptx):
        if bound := _BOUND.search(entry[3]):
            bounds[entry[1]] = prod(map(int, bound[1].split(",")))
    return bounds
