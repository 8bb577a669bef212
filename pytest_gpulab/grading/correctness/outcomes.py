"""The outcome of a case, and the limits of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pytest_gpulab.devices.protocol import Hazard, KernelFault
from pytest_gpulab.grading.findings import plain
from pytest_gpulab.grading.grade import Finding, Verdict
from pytest_gpulab.grading.plans.replay import Run
from pytest_gpulab.grading.time_limits import DEFAULT_LIMITS, TimeLimits

MAX_PRINTED_CHARS = 4000

Searched = Literal["all", "later", "none"]


@dataclass(frozen=True)
class CaseLimits:
    """Limits on the cases of a grading."""

    time: TimeLimits = DEFAULT_LIMITS  # of kernels on the simulated GPU
    max_elements: int | None = None  # the largest product of a case's extents; larger cases are not run
    # True to run every pattern twice; False to run again only one, and only if the order of warps may matter
    again: bool = True
    beside_a_gpu: bool = False  # True if a real GPU runs everything again; a timeout is then no verdict
    smallest: Searched = "all"  # smallest failing inputs to search: `all` with rules, `later` on request, or `none`
    ahead: bool = False  # True to share the work with second processes; the results are the same


USUAL = CaseLimits()
BESIDE_A_GPU = CaseLimits(TimeLimits(case_s=2.0, file_s=20.0), 1 << 21, again=False, beside_a_gpu=True)
"""Limits to cases of a second or two on the simulated GPU; the real GPU runs everything again."""


class Repeats(NamedTuple):
    """The runs of an input pattern after the first one, in lockstep."""

    # False to leave out other orders of warps and other garbage in memory; a right result is `inconclusive` if these
    # could change it
    orders: bool = True
    luck: bool = True  # False to leave out the run that finds out whether a wrong result depends on luck


ALL_REPEATS = Repeats()


@dataclass(frozen=True)
class CaseOutcome:
    """The outcome of a case."""

    verdict: Verdict  # `passed`, `failed`, `not gradable`, or that of a failed build
    findings: tuple[Finding, ...] = ()  # the reasons if it did not pass
    runs: tuple[Run, ...] = ()  # its replays, without outputs
    pattern: str = ""  # the input pattern that did not pass; empty if all passed

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """The hazards of all replays."""
        return tuple(hazard for run in self.runs for hazard in run.hazards)

    @property
    def faults(self) -> tuple[KernelFault, ...]:
        """The faults that ended replays."""
        return tuple(run.error for run in self.runs if isinstance(run.error, KernelFault))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Accesses that the race check skipped, in words; each once."""
        return tuple(dict.fromkeys(what for run in self.runs for profile in run.profiles for what in profile.unchecked))

    @property
    def printed(self) -> str:
        """The output of the first replay that printed anything, capped."""
        return capped(next((run.printed for run in self.runs if run.printed), ""))


def capped(text: str, more: int = 0) -> str:
    """Return the output of kernels, cut to a readable length and without control sequences.

    `more` is the number of characters that were dropped after the text.
    """
    text = plain(text)
    over = len(text) - MAX_PRINTED_CHARS + more
    return text if over <= 0 else f"{text[:MAX_PRINTED_CHARS]}\n... and {over} more characters"
