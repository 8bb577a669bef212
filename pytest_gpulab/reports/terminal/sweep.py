"""The table of a sweep: a row per combination of the tunables' values."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from pytest_gpulab.grading.grade import Grade, Measurement

from .table import ESTIMATED, laid_out, of_baseline, three_digits

FIGURES = ("ms", "GB/s", "speedup", "occup.", "regs", "shared", "limited by")
FASTEST = "fastest"
OUT_OF_RANGE = "tunable-range"
_UNKNOWN = "n/a"


def file_of(grade: Grade) -> str:
    """Return the file of a grade of a sweep, as other reports name it."""
    return grade.submission.rpartition("[")[0]


def measurement_of(grade: Grade) -> Measurement | None:
    """Return the measurement; None where the kernel is wrong or cannot be launched."""
    (check,) = grade.checks
    return check.measurement if check.verdict == "passed" else None


def is_out_of_range(grade: Grade) -> bool:
    """Return True for values in a sweep that the exercise does not accept: the table says all that there is to say."""
    return bool(grade.swept) and _result(grade) == OUT_OF_RANGE


def in_order(grades: Sequence[Grade]) -> list[list[Grade]]:
    """Return the grades of each file, in the order of the tunables' values."""
    by_file = sorted(grades, key=lambda grade: (file_of(grade), tuple(grade.swept.values())))
    return [list(group) for _, group in groupby(by_file, key=file_of)]


def fastest_of(grades: Sequence[Grade]) -> Grade | None:
    """Return the grade with the shortest time, if any was measured."""
    timed = [(measured.elapsed_ms, at) for at, grade in enumerate(grades) if (measured := measurement_of(grade))]
    return grades[min(timed)[1]] if timed else None


def sweep_sections(grades: Sequence[Grade]) -> Iterator[tuple[str, list[str]]]:
    """Yield a table per file of a sweep."""
    for members in in_order(grades):
        best = fastest_of(members)
        size = f" at {best.checks[0].measurement.size}" if best and best.checks[0].measurement else ""
        headers = (" x ".join(members[0].swept), "result", *FIGURES)
        yield f"gpulab: sweep of {file_of(members[0])}{size}", laid_out(headers, list(_rows(members, best)))


def _rows(grades: Sequence[Grade], best: Grade | None) -> Iterator[tuple[str, ...]]:
    measured = best and measurement_of(best)
    if measured:
        yield measured.baseline, "baseline", *_figures(of_baseline(measured))[:3], "", "", "", ""
    for grade in grades:
        yield " x ".join(map(str, grade.swept.values())), *cells(grade, grade is best)


def sweep_footnotes(grades: Sequence[Grade]) -> Iterator[str]:
    """Yield the meaning of the columns and of the tilde."""
    yield "speedup: over the baseline; regs: per thread; shared: bytes per block; limited by: of the occupancy."
    if any(map(is_out_of_range, grades)):
        yield f"{OUT_OF_RANGE}: the exercise does not accept these values; -v says why."
    if any(measured.estimated for grade in grades if (measured := measurement_of(grade))):
        yield ESTIMATED


def cells(grade: Grade, is_fastest: bool) -> tuple[str, ...]:
    """Return the cells of `result` and `FIGURES`."""
    return FASTEST if is_fastest else _result(grade), *_figures(measurement_of(grade))


def _result(grade: Grade) -> str:
    """Return `right`, or the code of the finding or the verdict that explains the missing figures."""
    (check,) = grade.checks
    if check.verdict == "passed":
        return "right"
    return check.findings[0].code if check.findings else check.verdict


def _figures(measured: Measurement | None) -> tuple[str, ...]:
    if measured is None:
        return ("-",) * len(FIGURES)
    tilde, gb_s, occupancy = "~" * measured.estimated, measured.bandwidth_gb_s, measured.occupancy
    kernel = max(measured.kernels, key=lambda kernel: kernel.block_threads, default=None)
    return (
        tilde + three_digits(measured.elapsed_ms),
        _UNKNOWN if gb_s is None else tilde + three_digits(gb_s),
        f"{tilde}{measured.speedup:.2f}x",
        _UNKNOWN if occupancy is None else f"{occupancy:.0%}",
        _UNKNOWN if measured.registers is None else str(measured.registers),
        _UNKNOWN if kernel is None else str(kernel.shared_bytes),
        _UNKNOWN if kernel is None else ", ".join(kernel.limited_by) or _UNKNOWN,
    )
