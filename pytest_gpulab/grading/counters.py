"""Hardware counters of kernels, as plain data: names and units are Nsight Compute's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Counter:
    """One figure: its name, such as `sm__warps_active.avg.pct_of_peak_sustained_active`, value and unit."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class KernelCounters:
    """What the hardware counted in one launch.

    Attributes:
        kernel: its name.
        grid, block: of the launch.
        counters: those that this GPU has.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counters: tuple[Counter, ...]

    def value(self, name: str) -> float | None:
        """Return a counter's value, or None where the GPU has no such counter."""
        return next((counter.value for counter in self.counters if counter.name == name), None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KernelCounters:
        """Build it from its attributes made of builtins."""
        counters = tuple(Counter(**{key: item[key] for key in ("name", "value", "unit")}) for item in data["counters"])
        return cls(data["kernel"], tuple(data["grid"]), tuple(data["block"]), counters)
