"""What an exercise's speed tiers ask for on the device that grades: the exercise's own, or a calibration's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_gpulab.exercise import SpeedTier

OWN = "the exercise's own"


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of one exercise; builtins only, because they travel to other processes.

    Attributes:
        source: where they come from and why, in words.
        by_tier: a tier's name to what it asks for instead of its own threshold; the names stay what they are.
        measuring: the run makes a calibration: times are taken as exactly as they can be, and no speed is a failure.
    """

    source: str = OWN
    by_tier: Mapping[str, float] = field(default_factory=dict)
    measuring: bool = False

    def of(self, tier: SpeedTier) -> float:
        """Return how many times faster than its baseline a submission must be."""
        return float(self.by_tier.get(tier.name, tier.threshold))

    def is_calibrated(self, tier: SpeedTier) -> bool:
        """Say whether that is a calibration's word."""
        return tier.name in self.by_tier


UNCALIBRATED = Thresholds()
