"""An annotated source listing: each line with its share of the cost, its counters and its hazards.

Pure: listings in, lines of text out. `html` lays the same rows out as a page.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpulab.devices.hardware.metrics import (
    BANK_CONFLICTS,
    GLOBAL_REQUESTS,
    GLOBAL_SECTORS,
    SHARED_REQUESTS,
    SHARED_WAVEFRONTS,
    summed,
)
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.listing import ListedFile, ListedLine, Listing

from .text import WIDTH, fitted, visible, width, wrapped

COLUMNS = ("time", "instr", "lanes", "sectors", "waves")
WIDTHS = (6, 6, 5, 7, 6)
NUMBER_WIDTH = 4
BESIDE = NUMBER_WIDTH + 2 + sum(WIDTHS) + len(WIDTHS)  # columns that the source leaves to the rest
MEANING = (
    "time: share of the estimated time. instr: warp instructions. lanes: active lanes per instruction, of 32. "
    "sectors: 32-byte sectors of global memory per request. waves: passes of shared memory per request."
)
NO_FIGURES = (
    "No instruction of the kernels comes from lines without figures: they were left out or became part of others."
)

Counters = Mapping[str, float]


@dataclass(frozen=True)
class Row:
    """A line of source with its figures as text, and notes below it."""

    number: int
    text: str
    figures: tuple[str, ...] = ("",) * len(COLUMNS)  # one per column; empty where there is none
    notes: tuple[str, ...] = ()  # facts that have no column
    hazards: tuple[str, ...] = ()  # the worst first
    time_share: float | None = None  # 0 to 1, or None


def listings(grade: Grade) -> tuple[Listing, ...]:
    """Return a submission's listings, one per size and variant."""
    found = (check.listing for check in grade.checks if check.listing is not None)
    return tuple({(listing.size, listing.variant): listing for listing in reversed([*found])}.values())[::-1]


def title(listing: Listing) -> str:
    """Return the title of a listing: size, variant, device, total time."""
    if not listing.device:
        return "as it was handed in"
    variant = f"{listing.variant}, " if listing.variant else ""
    time = f", estimated ~{listing.estimated_ms:.3g} ms" if listing.estimated_ms is not None else ""
    return f"{variant}size {listing.size} on the {listing.device}{time}"


def rows(file: ListedFile, grade: Grade | None, listing: Listing) -> Iterator[Row]:
    """Yield the rows of a file, with the hazards of the listing's run and those that the checks found elsewhere."""
    hazards: dict[int, dict[str, None]] = {}
    for hazard in listing.hazards:
        if hazard.file == file.name:
            what = f"{'warning: ' if hazard.harmless else ''}{hazard.what}"
            hazards.setdefault(hazard.line, {})[what] = None
    for check in grade.checks if grade is not None else ():
        for finding in check.findings:
            name, _, number = finding.where.rpartition(":")
            if name == file.name and number.isdecimal() and not finding.because:
                hazards.setdefault(int(number), {})[f"{finding.code}: {finding.what}"] = None
    for line in file.lines:
        yield _row(line, tuple(hazards.get(line.number, ())))


def _row(line: ListedLine, hazards: tuple[str, ...]) -> Row:
    if not line.counters:
        return Row(line.number, line.text, hazards=hazards)
    c, share = line.counters, line.time_share
    figures = (
        "" if share is None else f"{100 * share:.1f} %",
        compact(c["smsp__inst_executed.sum"]) if c.get("smsp__inst_executed.sum") else "",
        _ratio(c.get("smsp__thread_inst_executed_pred_on.sum", 0.0), c.get("smsp__inst_executed.sum", 0.0)),
        _ratio(summed(c, GLOBAL_SECTORS), summed(c, GLOBAL_REQUESTS)),
        _ratio(summed(c, SHARED_WAVEFRONTS), summed(c, SHARED_REQUESTS)),
    )
    return Row(line.number, line.text, figures, tuple(_notes(c)), hazards, share)


def _notes(c: Counters) -> Iterator[str]:
    """Yield a note per avoidable cost of a line."""
    conflicts = summed(c, BANK_CONFLICTS)
    if conflicts > 0:
        yield f"bank conflicts: {compact(conflicts)} of {compact(summed(c, SHARED_WAVEFRONTS))} passes of shared memory"
    divergent = c.get("smsp__sass_branch_targets_threads_divergent.sum", 0.0)
    if divergent > 0:
        yield f"divergence: at {compact(divergent)} of {compact(c['smsp__sass_branch_targets.sum'])} branches"
    reads = c.get("gpulab__constant_requests.sum", 0.0)
    if reads and c.get("idc__requests.sum", 0.0) > reads:
        yield f"constant memory: {c['idc__requests.sum'] / reads:.1f} addresses per request, one pass each"
    for space in ("global", "shared"):
        passes = c.get(f"gpulab__atomic_passes_{space}.sum", 0.0)
        if passes:
            yield f"atomics on {space} memory: {compact(passes)} passes; lanes at one address are serialised"
    if c.get("gpulab__barriers.sum"):
        yield f"barrier: {compact(c['gpulab__barriers.sum'])} warp arrivals"


def lines(grade: Grade) -> Iterator[str]:
    """Yield a submission's listings, at most `width()` columns wide."""
    for listing in listings(grade):
        yield from wrapped(visible(grade.submission), "", "  ")
        yield from wrapped(visible(title(listing)), "  ", "  ")
        if listing.note:
            yield from wrapped(visible(f"! {listing.note}"), "  ", "    ")
        for file in listing.files:
            yield from file_lines(file, rows(file, grade, listing))
        yield ""


def file_lines(file: ListedFile, rows: Iterable[Row]) -> Iterator[str]:
    """Yield a file's rows with their headings, at most `width()` columns wide."""
    shown = list(rows)
    longest = max((len(row.text.expandtabs(4)) for row in shown if any(row.figures)), default=0)
    room = min(width(), max(longest + BESIDE, WIDTH)) - BESIDE  # a wide terminal has them close to their figures
    yield _joined("", file.name, COLUMNS, room)
    for row in shown:
        yield from _laid_out(row, room)


def listing_sections(grades: Iterable[Grade]) -> list[tuple[str, list[str]]]:
    """Return the report's section of listings, a title and its lines; none where there is no listing."""
    found = [line for grade in grades for line in lines(grade)]
    return [("gpulab: listings", [*found, *wrapped(f"{MEANING} {NO_FIGURES}", then="")])] if found else []


def _laid_out(row: Row, room: int) -> Iterator[str]:
    yield _joined(str(row.number), row.text, row.figures, room)
    indent = " " * (NUMBER_WIDTH + 1)
    for hazard in row.hazards:
        yield from wrapped(visible(hazard), f"{indent}! ", f"{indent}  ")
    for note in row.notes:
        yield from wrapped(visible(note), f"{indent}^ ", f"{indent}  ")


def _joined(number: str, text: str, figures: Sequence[str], room: int) -> str:
    if not any(figures):
        return f"{number:>{NUMBER_WIDTH}}  {fitted(text, width() - NUMBER_WIDTH - 2)}".rstrip()
    cells = " ".join(f"{figure:>{columns}}" for figure, columns in zip(figures, WIDTHS, strict=True))
    return f"{number:>{NUMBER_WIDTH}}  {fitted(text, room)} {cells}".rstrip()


def compact(value: float) -> str:
    """Return a count in at most 5 characters: `512`, `1.05M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.1f}" if whole else ""
