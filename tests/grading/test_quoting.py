"""Findings show the student's line, and failed checks what the compiler warned of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from block_sums import TREE, changed, graded, line_of

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.compilation.source_quotes import (
    CONSTANT_WRITTEN,
    EMPTY_HINT,
    LOCK_HINT,
    MAX_LINE,
    MAX_WARNINGS,
    PRIVATE_ATOMIC,
    WARP_HINT,
    Quotes,
)
from pytest_gpulab.grading.findings import HINTS, finding
from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult, Grade, Provenance
from pytest_gpulab.reports.gradebook import Gradebook, result_properties
from pytest_gpulab.reports.terminal.reasons import reasons
from pytest_gpulab.reports.terminal.sections import failure_text, sections

SOURCE = "int a;\n\tif (x = 1)   y[2] = 3; // \x1b[31mred\nint c;\n"
LOG = """x.cu(2): warning #187-D: use of "=" where "==" may have been intended
      if (x = 1) y[2] = 3;
          ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

x.cu(1): warning #177-D: variable "a" was declared but never referenced
gpulab.cuh(9): warning #550-D: variable "b" was set but never used
"""


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


def failed(where: str = "x.cu:2", code: str = "race", **rest: str) -> CheckResult:
    return CheckResult("correct[n=1]", "correct", "failed", 0, 1, (replace(finding(code, "It.", where), **rest),))


def test_the_line_at_a_findings_place_is_quoted_without_what_a_terminal_obeys() -> None:
    (found, *_) = Quotes("x.cu", SOURCE).added_to(failed(), ()).findings
    assert found.quote == "2 | if (x = 1) y[2] = 3; // ?[31mred"
    assert failure_text([found], set()).splitlines()[1:3] == ["  at x.cu:2", f"  {found.quote}"]


@pytest.mark.parametrize("where", ["", "paths.cuh:2", "x.cu:9", "x.cu:0", "x.cu:two"])
def test_a_line_outside_the_file_is_not_quoted(where: str) -> None:
    assert Quotes("x.cu", SOURCE).added_to(failed(where), ()).findings[0].quote == ""


def test_a_long_line_is_cut_and_the_compilers_own_quotation_is_enough() -> None:
    quotes = Quotes("x.cu", "\n" + "+ 1 " * 100)
    assert len(quotes.added_to(failed(), ()).findings[0].line) == MAX_LINE + 4
    assert quotes.added_to(failed(code="compile-error"), ()).findings[0].line == ""
    assert quotes.added_to(failed(because="compile"), ()).findings[0].line == ""


def test_warnings_of_the_files_own_lines_stand_beside_a_failure_the_telling_ones_first() -> None:
    _, *warnings = Quotes("x.cu", SOURCE).added_to(failed(), (LOG, LOG)).findings
    assert [(warning.code, warning.where) for warning in warnings] == [
        (COMPILER_WARNING, "x.cu:2"),
        (COMPILER_WARNING, "x.cu:1"),
    ]
    assert warnings[0].what == 'Use of "=" where "==" may have been intended (#187-D).'
    assert warnings[1].quote == "1 | int a;"


@pytest.mark.parametrize(
    ("code", "at"),
    [
        ("if (i < n); // ends here\n    f();", 1),
        ("else if ((i) < (n)) ;\n{", 1),
        ("for (int i = 0; i < n; ++i);\n    f();", 1),
        ("for (;;); {\n}", 1),
        ("\nwhile (i < n);\n{", 2),
        ("while (flag[i] == 0);\ng();", 0),
        ("for (m = 1; m < n; m *= 2);\n\ng();", 0),
        ("if (i < n) f();\ng();", 0),
        ("if (i < n);\nelse\n  f();", 0),
        ("} while (i < n);\n  f();", 0),
        ("iff (i);", 0),
    ],
)
@pytest.mark.parametrize("code_of_finding", ["race", "compile-error"])
def test_an_empty_body_stands_beside_a_failure(code: str, at: int, code_of_finding: str) -> None:
    (found, *_) = Quotes("x.cu", code).added_to(failed(code=code_of_finding), ()).findings
    lines = [line for line in found.evidence if line.startswith(f"line {at} has nothing to execute: ")]
    assert (len(lines), found.hint == EMPTY_HINT) == (bool(at), bool(at))


def test_many_warnings_are_capped() -> None:
    log = "\n".join(f"x.cu({line}): warning #186-D: pointless comparison" for line in range(1, 99))
    assert len(Quotes("x.cu", SOURCE).warnings([log])) == MAX_WARNINGS


@pytest.mark.parametrize(
    "change", [{"verdict": "passed"}, {"verdict": "missed"}, {"hidden": True}, {"kind": "compile"}]
)
def test_no_other_check_tells_of_warnings(change: dict[str, object]) -> None:
    result = replace(failed(), **change)  # type: ignore[arg-type]
    assert len(Quotes("x.cu", SOURCE).added_to(result, (LOG,)).findings) == 1
    assert len(Quotes("x.cu", SOURCE).added_to(failed(because="compile"), (LOG,)).findings) == 1


def test_a_report_gives_a_warning_once_with_its_line_and_names_no_checks_for_it() -> None:
    quotes = Quotes("x.cu", SOURCE)
    checks = tuple(quotes.added_to(replace(failed(), name=f"correct[n={n}]"), (LOG,)) for n in (1, 2))
    grade = Grade("x.cu", "sums", checks, Provenance("", "simulated", "", "", 0, "", "", ""))
    book = Gradebook()
    for position in (0, 1):
        book.add(result_properties(replace(grade, checks=(checks[position],)), position, 2))
    assert [reason.heading() for reason in reasons(grade, set())] == [
        "FAILED correct[n=1], n=2",
        "note on compile",
        "note on compile",
    ]
    lines = dict(sections(book, 0))["gpulab: findings"]
    at = lines.index(
        '  note on compile: compiler-warning: Use of "=" where "==" may have been intended (#187-D). (x.cu:2)'
    )
    assert lines[at + 1] == "      2 | if (x = 1) y[2] = 3; // ?[31mred"


def test_a_failing_kernel_shows_the_compilers_warning_and_a_passing_one_does_not(gpu: Device, tmp_path: Path) -> None:
    mistaken = changed(TREE, "if (threadIdx.x == 0) out", "if (i = 0) out")
    results = graded(tmp_path, gpu, mistaken)
    _, warning = results["correct[n=1]"].findings
    assert "(#187-D)" in warning.what and warning.where == line_of(mistaken, "i = 0")
    harmless = changed(TREE, "__shared__", "int never; __shared__")
    assert not any(result.findings for name, result in graded(tmp_path, gpu, harmless).items() if "speedup" not in name)


def test_an_atomic_function_on_a_threads_own_array_is_named_with_its_line(gpu: Device, tmp_path: Path) -> None:
    """The compiler warns of it in another form than usual, and puts a __trap() without a line in its place."""
    without = changed(TREE, "    __shared__ GPULAB_T tile", "    GPULAB_T tile")
    mistaken = changed(without, "    if (threadIdx.x == 0) out", "    atomicAdd(&tile[n % 2], 1);\n    out")
    results = graded(tmp_path, gpu, mistaken)
    trapped, *warnings = results["correct[n=1]"].findings
    (warning,) = [each for each in warnings if "atomic" in each.what]
    assert trapped.code == "trap" and trapped.where == warning.where == line_of(mistaken, "atomicAdd")
    assert trapped.what == PRIVATE_ATOMIC and results["safe[memory]"].findings[0].what.endswith(PRIVATE_ATOMIC)
    assert "without `__shared__` is private to each thread" in trapped.hint
    assert warning.what == "Cannot do atomic on local memory."


def test_a_trap_for_a_write_to_constant_memory_names_it() -> None:
    log = "warning: x.cu(2): Warning: Cannot store to pointer that points to constant memory space\n"
    trapped = failed("", "trap", what="The kernel stopped itself with __trap()")
    found, *_ = Quotes("x.cu", "a;\nb;\n").added_to(trapped, (log,)).findings
    assert (found.what, found.where, found.line) == (CONSTANT_WRITTEN, "x.cu:2", "b;")
    assert "Only host code can change" in found.hint


def test_a_race_within_a_lock_gets_a_hint_about_fences() -> None:
    source = "while (atomicCAS(&lock, 0, 1));\nsum += x;\natomicExch(&lock, 0);\nsum += y;\n"
    (inside,) = Quotes("x.cu", source).added_to(failed("x.cu:2"), ()).findings
    (behind,) = Quotes("x.cu", source).added_to(failed("x.cu:4"), ()).findings
    assert inside.hint == LOCK_HINT and behind.hint != LOCK_HINT


TILE = "auto tile = cg::tiled_partition<32>(block);"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("__syncwarp();", WARP_HINT),
        (f"{TILE} tile.sync();", WARP_HINT),
        (f"{TILE} cg::sync(tile);", WARP_HINT),
        (f"{TILE} x = tile.shfl_down(x, 1); block.sync();", HINTS["race"]),
        ("", HINTS["race"]),
    ],
)
def test_a_race_of_two_warps_gets_another_hint_where_a_warp_synchronises(source: str, hint: str) -> None:
    (found,) = Quotes("x.cu", f"sum += x;\n{source}\n").added_to(failed("x.cu:1"), ()).findings
    assert found.hint == hint


def test_a_trap_of_the_student_stays_one() -> None:
    log = "warning: x.cu(2): Warning: Cannot do atomic on local memory\n"
    trapped, *_ = Quotes("x.cu", "__trap();\n\n").added_to(failed("x.cu:1", "trap"), (log,)).findings
    assert (trapped.what, trapped.where) == ("It.", "x.cu:1")


def test_an_access_beyond_a_threads_own_array_shows_the_arrays_declaration(gpu: Device, tmp_path: Path) -> None:
    own = """int mine[4];
    __shared__ int ours[4];
    for (int k = 0; k <= n % 8; ++k) mine[k] = ours[k % 4] + in[0];
    if (mine[n % 4] == 12345) out[0] = 1;
    if (threadIdx.x == 0) out"""
    mistaken = changed(TREE, "if (threadIdx.x == 0) out", own)
    found = next(f for r in graded(tmp_path, gpu, mistaken).values() for f in r.findings if f.code == "out-of-bounds")
    assert "__local__" in found.what and found.line.startswith("for (int k = 0;")
    line = line_of(mistaken, "int mine[4]").rpartition(":")[2]
    assert found.evidence[-1] == f"`mine` is declared in line {line}: int mine[4];"


def test_a_read_of_a_threads_own_array_without_a_value_shows_the_arrays_declaration() -> None:
    unset = failed("x.cu:2", "uninitialised", what="Uninitialized __local__ memory read")
    (found,) = Quotes("x.cu", "int mine[4];\nsum += mine[k] + in[k];\n").added_to(unset, ()).findings
    assert found.evidence == ("`mine` is declared in line 1: int mine[4];",)
