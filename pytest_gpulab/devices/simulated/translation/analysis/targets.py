"""The global memory that a kernel may change, by the pointers that its stores and atomics are given.

An array that no store can reach is never raced for, so the race check need not remember who reads it. Most kernels read
their inputs far more often than they do anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_gpulab.devices.simulated.ptx.syntax import Function
from pytest_gpulab.devices.simulated.translation.sites import Site

from .origins import FROM_MEMORY, Origins


@dataclass(frozen=True)
class Targets:
    """Where the stores and atomics of a kernel may go.

    Attributes:
        anywhere: an address is made of a pointer that was loaded from memory, or a surface is written.
        parameters: kernel parameters, by position, that an address is made of.
        variables: addresses of the module's variables that an address is made of.
    """

    anywhere: bool
    parameters: frozenset[int]
    variables: frozenset[int]


def targets(kernel: Function, origins: Origins, sites: Sequence[Site], addresses: Mapping[str, int]) -> Targets:
    """Return where stores and atomics may go.

    Args:
        kernel: without calls.
        origins: of its addresses.
        sites: its memory instructions.
        addresses: of the module's variables.
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
