"""The speed thresholds of an exercise on a device: the exercise's own, or a calibration's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_gpulab.exercise import SpeedTier

OWN = "the exercise's own"


class CalibrationError(Exception):
    """An unusable calibration, explained in one line that names the file or the option."""


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of one exercise; builtins only, because they are sent to other processes.

    Attributes:
        source: the origin of the thresholds, in words.
        by_tier: thresholds by tier name that replace the tiers' own; the names stay.
        measuring: whether the run makes a calibration: times are measured as precisely as possible, and no speed fails.
    """

    source: str = OWN
    by_tier: Mapping[str, float] = field(default_factory=dict)
    measuring: bool = False

    def of(self, tier: SpeedTier) -> float:
        """Return the required speedup over the baseline."""
        return float(self.by_tier.get(tier.name, tier.threshold))

    def is_calibrated(self, tier: SpeedTier) -> bool:
        """Return whether the tier's threshold comes from a calibration."""
        return tier.name in self.by_tier


UNCALIBRATED = Thresholds()
