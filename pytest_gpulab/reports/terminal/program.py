"""The report of a whole program's run: a headline, the findings, the table of launches, the listing."""

import textwrap
from collections.abc import Callable, Iterator, Sequence

from pytest_gpulab.devices.hardware.metrics import BANK_CONFLICTS, GLOBAL_REQUESTS, GLOBAL_SECTORS, summed
from pytest_gpulab.devices.programs.outcome import LaunchGroup, Outcome
from pytest_gpulab.grading.findings import counted
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.listing import Listing

from .annotated import MEANING, NO_FIGURES, compact, file_lines, rows
from .sections import failure_text
from .table import laid_out, three_digits
from .text import width

_HEADERS = ("kernel", "grid", "block", "launches", "regs", "occup.", "ms", "sectors", "conflicts", "lanes")
_MEANING = (
    "ms: time per launch, an estimate of the cost model. sectors: 32-byte sectors per request of global memory. "
    "conflicts: extra passes of shared memory by bank conflicts. lanes: active lanes per instruction, of 32."
)
ESTIMATES = "Times between events are estimates (~) of the cost model: the kernels' only, copies take none."


def report(outcome: Outcome, findings: Sequence[Finding], device: str, is_checked: bool) -> Iterator[str]:
    """Yield the lines of a run's report."""
    yield f"gpulab: {_headline(outcome, findings, device, is_checked)}"
    hints: set[object] = set()
    for each in findings:
        first, *details = failure_text([each.without(hints)], set()).splitlines()
        hints.add(each.hint)
        yield from textwrap.wrap(first, width(), initial_indent="  ", subsequent_indent="      ")
        yield from (f"  {line}" for line in details)
    for clause in outcome.unchecked:
        yield f"  not checked: {clause}"
    if outcome.used_events:
        yield f"gpulab: {ESTIMATES}"


def _headline(outcome: Outcome, findings: Sequence[Finding], device: str, is_checked: bool) -> str:
    launches, kernels = outcome.launch_count, len({group.kernel for group in outcome.launches.values()})
    what = f"{counted(launches, 'launch', 'launches')} of {counted(kernels, 'kernel')} on the {device}"
    ends = [("interrupted", outcome.interrupted), ("stopped at its time limit", outcome.timed_out)]
    end = "".join(f", {words}" for words, is_so in ends if is_so)
    end += f" in kernel `{outcome.running}`" if end and outcome.running else ""
    checks = "" if is_checked else ", races and uninitialised reads not checked"
    return f"{what}{end}{checks}; {counted(len(findings), 'finding') if findings else 'no findings'}"


def listing_lines(listing: Listing) -> Iterator[str]:
    """Yield the annotated source."""
    for file in listing.files:
        yield from file_lines(file, rows(file, None, listing))
    yield from textwrap.wrap(f"{MEANING} {NO_FIGURES}", width())


def launch_table(outcome: Outcome, plain: Callable[[str], str]) -> Iterator[str]:
    """Yield the table of launches, and the bottleneck of each; `plain` shortens the paths in a text."""
    groups = list(outcome.launches.values())
    yield from laid_out(_HEADERS, [_row(group) for group in groups])
    for group in groups:
        if group.first is not None and group.first.bottleneck:
            launch = f"{group.kernel} {_extents(group.grid)} x {_extents(group.block)}"
            yield from textwrap.wrap(f"{launch}: {plain(group.first.bottleneck)}", width(), subsequent_indent="  ")
    yield from textwrap.wrap(_MEANING, width())


def _row(group: LaunchGroup) -> tuple[str, ...]:
    head = group.kernel, _extents(group.grid), _extents(group.block), f"{group.count:,}"
    profile = group.first
    if profile is None or group.estimated_ms is None:
        return (*head, *("-",) * (len(_HEADERS) - len(head)))
    counters = profile.counters
    requests, sectors = summed(counters, GLOBAL_REQUESTS), summed(counters, GLOBAL_SECTORS)
    lanes = counters.get("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio")
    registers, occupancy = profile.resources.registers, profile.occupancy
    return (
        *head,
        "n/a" if registers is None else str(registers),
        "n/a" if occupancy is None else f"{occupancy:.0%}",
        f"~{three_digits(group.estimated_ms / group.count)}",
        f"{sectors / requests:.1f}" if requests else "-",
        compact(summed(counters, BANK_CONFLICTS)),
        "n/a" if lanes is None else f"{lanes:.1f}",
    )


def _extents(extents: tuple[int, int, int]) -> str:
    return "x".join(map(str, extents[: 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1]))
