"""The global memory that a kernel may change, from the pointers of its stores and atomics.

An array that no store can reach has no races, so the race check need not record its reads. Most accesses of most
kernels are reads of their inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_gpulab.devices.simulated.ptx.syntax import Function
from pytest_gpulab.devices.simulated.translation.sites import Site

from .origins import FROM_MEMORY, Origins


@dataclass(frozen=True)
class Targets:
    """The possible targets of a kernel's stores and atomics.

    Attributes:
        anywhere: True if an address depends on a pointer loaded from memory, or a surface is written.
        parameters: positions of the kernel parameters that addresses are computed from.
        variables: addresses of the module's variables that addresses are computed from.
    """

    anywhere: bool
    parameters: frozenset[int]
    variables: frozenset[int]


def targets(kernel: Function, origins: Origins, sites: Sequence[Site], addresses: Mapping[str, int]) -> Targets:
    """Return the possible targets of a kernel's stores and atomics.

    Args:
        kernel: a kernel with inlined calls.
        origins: origins of its addresses.
        sites: its memory instructions.
        addresses: addresses of the module's variables.
    """
    changing = [site for site in sites if site.modifies and site.space in ("global", "generic")]
    names = origins.of(*changing)
    surfaces = any(site.modifies and site.space == "surface" for site in sites)
    parameters = (number for number, variable in enumerate(kernel.parameters) if variable.name in names)
    return Targets(
        FROM_MEMORY in names or surfaces,
        frozenset(parameters),
        frozenset(address for name, address in addresses.items() if name in names),
    )
