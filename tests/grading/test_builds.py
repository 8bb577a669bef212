"""Errors before a launch: each is reported once, at `compile`, and fails the checks that depend on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubling import BLOCK_SIZE, EXERCISE, Bench, codes, kernel, plan, program, right, tunable
from fake_device import FakeDevice, Program

from pytest_gpulab.devices.protocol import CannotSimulate, CompileError, DeviceError, SourceLine
from pytest_gpulab.exercise import Buffer, Case, Launch, Plan, Problem, Tunable, Variant
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.findings import COMPILER_HINT
from pytest_gpulab.grading.grader import Grader

pytestmark = pytest.mark.unit

DIAGNOSTICS = (
    'student.cu(3): warning #187-D: use of "="\nstudent.cu(7): error: identifier "x" is undefined\n\n1 error detected\n'
)
ALL_CHECKS = {check.name for check in checks_of(EXERCISE)}


def test_a_compile_error_is_shown_in_full_once_and_fails_every_other_check_with_one_reason(bench: Bench) -> None:
    results = bench.results(Program(error=CompileError(DIAGNOSTICS)))
    assert {result.verdict for result in results.values()} == {"failed"}
    assert codes(results) == dict.fromkeys(ALL_CHECKS, "compile-error")
    finding = results["compile"].findings[0]
    assert finding.what == 'The file does not compile: identifier "x" is undefined'
    assert finding.where == "student.cu:7"
    assert finding.evidence == tuple(DIAGNOSTICS.splitlines())
    assert "first message" in finding.hint
    for name in ALL_CHECKS - {"compile"}:
        (finding,) = results[name].findings
        assert finding.what.startswith("Not graded, because `compile` did not pass: The file does not compile: ident")
        assert (finding.where, finding.evidence, finding.hint) == ("student.cu:7", (), "")
        assert finding.because == "compile"
    assert sum(result.points for result in results.values()) == 0


def test_the_compilers_message_may_have_another_form_and_is_capped(bench: Bench) -> None:
    result = bench.result("compile", Program(error=CompileError("\n".join(f"line {i}" for i in range(1000)))))
    (finding,) = result.findings
    assert (finding.what, finding.where) == ("The file does not compile.", "")
    assert len(finding.evidence) == 61
    assert finding.evidence[-1] == "... and 940 more lines"


@pytest.mark.parametrize("before", ["", "student.cu(7): error: expression must have a constant value\n"])
def test_a_compiler_that_met_a_limit_has_a_hint_of_its_own(bench: Bench, before: str) -> None:
    error = CompileError(f"{before}The compiler did not finish; the limits are 60 s.")
    (finding,) = bench.result("compile", Program(error=error)).findings
    assert finding.hint == COMPILER_HINT


def test_a_path_to_include_is_refused_before_the_compiler_sees_it(bench: Bench) -> None:
    source = '#include <gpulab.cuh>\n#include "/etc/hostname"\n'
    results = bench.results(source)  # a program that the fake device does not know: compiling it would fail the test
    assert codes(results) == dict.fromkeys(ALL_CHECKS, "compile-error")
    (finding,) = results["compile"].findings
    assert finding.what == 'The file may include headers by their plain names only, not "/etc/hostname".'
    assert finding.where == "student.cu:2"
    assert finding.hint == "An exercise's own headers and CUDA's are found by name: no path, no `..`, no macro."


def test_a_backslash_in_an_include_has_a_hint_of_its_own(bench: Bench) -> None:
    (finding,) = bench.result("compile", "#include <cooperative_groups\\reduce.h>\n").findings
    assert finding.what == r"The file may include headers by their plain names only, not <cooperative_groups\reduce.h>."
    assert finding.hint == r"Write `/` in place of `\`: only Windows has the latter in paths."


@pytest.mark.parametrize(
    ("line", "where", "what"),
    [
        ("a.cu(2): fatal error: too many", "a.cu:2", "too many"),
        ("a.cu(2): catastrophic error: cannot open", "a.cu:2", "cannot open"),
        ("a.cu(12): error #20: undefined", "a.cu:12", "undefined"),
        ("a.cu: error: too much", "", "too much"),
    ],
)
def test_the_forms_of_an_error_line(bench: Bench, line: str, where: str, what: str) -> None:
    (finding,) = bench.result("compile", Program(error=CompileError(line))).findings
    assert (finding.where, finding.what) == (where, f"The file does not compile: {what}")


def test_different_macros_are_compiled_once_each_with_the_students_file_name_and_the_exercises_headers(
    bench: Bench,
) -> None:
    (bench.folder / "paths.cuh").write_text("// paths")
    floats, ints = Variant("float", {"T": "float"}), Variant("int", {"T": "int"})
    also_ints = Variant("positive", {"T": "int"}, facts={"low": 0})
    cases = (Case("a", 4, 20, variant=floats), Case("b", 5, 20, variant=floats), Case("c", 4, 10, variant=ints))
    cases += (Case("d", 4, 10, variant=also_ints),)
    bench.results(right(), cases=cases, speed=(), compile_points=30, headers=("paths.cuh",))
    headers = {"paths.cuh": "// paths"}
    assert bench.device.compiled == [
        ("submission", "student.cu", {"T": "float"}, headers),
        ("submission", "student.cu", {"T": "int"}, headers),
    ]


class Foresighted(FakeDevice):
    """A device that records the compilations requested ahead, and fails on request."""

    error: DeviceError | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ahead: list[tuple[int, list[Mapping[str, str]]]] = []

    def compile_ahead(self, source: str, filename: str, variants: Any, headers: Any) -> None:
        self.ahead.append((len(self.compiled), variants))
        if self.error is not None:
            raise self.error


@pytest.fixture
def prefetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("doubling.FakeDevice", Foresighted)
    return Bench(tmp_path)


VARIANTS = tuple(Variant(name, {"T": name}) for name in ("float", "int", "double"))
OF_VARIANTS = tuple(Case(f"n={4 + n}", 4 + n, 20, variant=variant) for n, variant in enumerate(VARIANTS))
AGAIN = Case("n=8", 8, 20, variant=Variant("positive", {"T": "int"}, facts={"low": 0}))


def test_the_first_variant_is_compiled_alone_and_the_others_ahead_each_once(prefetching: Bench) -> None:
    prefetching.results(right(), cases=(*OF_VARIANTS, AGAIN), speed=(), compile_points=10)
    assert prefetching.device.ahead == [(1, [{"T": "int"}, {"T": "double"}])]
    assert [defines for _, _, defines, _ in prefetching.device.compiled] == [{"T": v.name} for v in VARIANTS]


def test_after_a_compile_error_other_variants_are_not_compiled(prefetching: Bench) -> None:
    error = Program(error=CompileError(DIAGNOSTICS))
    prefetching.result("compile", error, cases=OF_VARIANTS, speed=(), compile_points=30)
    assert prefetching.device.ahead == []
    assert len(prefetching.device.compiled) == 2  # with the baseline, which compiles


def test_a_compiler_that_cannot_be_run_ahead_is_not_the_students_fault(
    prefetching: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Foresighted, "error", DeviceError("no program can be run from /tmp"))
    results = prefetching.results(right(), cases=OF_VARIANTS, speed=(), compile_points=30)
    assert results["compile"].verdict == "not gradable"
    assert results["compile"].findings[0].what == "The device failed: no program can be run from /tmp"
    assert results["compile"].findings[0].hint.endswith("it needs to be graded again.")


def test_a_header_that_is_missing_is_the_instructors_mistake(bench: Bench) -> None:
    result = bench.result("compile", right(), headers=("missing.cuh",))
    assert result.verdict == "not gradable"
    (finding,) = result.findings
    assert finding.code == "reference-mismatch" and "missing.cuh" in finding.what and "instructor" in finding.hint


def test_an_unsupported_instruction_is_not_gradable_and_costs_nothing(bench: Bench) -> None:
    error = CannotSimulate("the instruction tex.1d", SourceLine("student.cu", 4))
    grade = bench.grader(Program(error=error)).grade()
    assert {check.verdict for check in grade.checks} == {"not gradable"}
    assert grade.max_points == 0
    (finding,) = grade.checks[0].findings
    assert (finding.code, finding.where) == ("cannot-simulate", "student.cu:4")
    assert finding.what == "The simulated GPU does not support the instruction tex.1d"
    assert "real GPU" in finding.hint


def test_a_device_that_fails_is_not_the_students_fault(bench: Bench) -> None:
    result = bench.result("compile", Program(error=DeviceError("the driver is gone")))
    assert (result.verdict, result.findings[0].code) == ("not gradable", "device-fault")
    assert result.findings[0].what == "The device failed: the driver is gone"
    assert "No error was found in your kernel" in result.findings[0].hint


def test_an_untouched_skeleton_is_not_started(bench: Bench) -> None:
    symbols = {"gpulab_todo_twice": (12).to_bytes(4, "little"), "gpulab_todo_more": (20).to_bytes(4, "little")}
    results = bench.results(program(kernel(), symbols=symbols))
    assert {result.verdict for result in results.values()} == {"not started"}
    assert codes(results) == dict.fromkeys(ALL_CHECKS, "not-started")
    (finding,) = results["compile"].findings
    assert (finding.what, finding.where) == ("`twice`, `more` still have GPULAB_TODO lines.", "student.cu:12")
    assert "GPULAB_TODO" in finding.hint
    assert bench.device.launches == []


@pytest.mark.parametrize(
    ("contents", "code", "what"),
    [
        (b"", "empty-source", "The file is empty."),
        (b" \n\t\n", "empty-source", "The file is empty."),
        (b"a\nb\0c", "not-utf8", "The file is not text: line 2 has a NUL character."),
        (b"\0" * 9, "not-utf8", "The file holds NUL characters only: it may not have been saved or copied as a whole."),
        (b"%PDF-1.7\n1 0 obj", "not-utf8", "The file is a PDF document, not CUDA C++ text."),
        (b"PK\3\4\24\0", "not-utf8", "The file is a ZIP archive or an office document, not CUDA C++ text."),
        ("int x;".encode("utf-16"), "not-utf8", "The file is UTF-16 text, which compilers cannot read."),
        (b"\xfe\xff\0x", "not-utf8", "The file is UTF-16 text, which compilers cannot read."),
        ("int x; // \u2264".encode("utf-16-le"), "not-utf8", "The file is UTF-16 text, which compilers cannot read."),
        ("int x;".encode("utf-16-be"), "not-utf8", "The file is UTF-16 text, which compilers cannot read."),
        (b"//" + b"x" * 3_000_000, "too-large", "The file has more than 1,048,576 bytes."),
    ],
)
def test_a_file_that_is_no_source(bench: Bench, contents: bytes, code: str, what: str) -> None:
    results = bench.results(contents)
    assert codes(results) == dict.fromkeys(ALL_CHECKS, code)
    assert {result.verdict for result in results.values()} == {"failed"}
    assert results["compile"].findings[0].what == what
    assert results["compile"].findings[0].hint
    assert bench.device.compiled == []


def test_letters_of_an_old_editor_cost_nothing(bench: Bench) -> None:
    results = bench.results("// Universit\xe4t".encode("latin-1"))
    assert "not-utf8" not in codes(results).values()
    assert "// Universit\xe4t" in str(bench.device.compiled[0])


def test_a_file_that_cannot_be_read(bench: Bench) -> None:
    loaded = bench.grader("x")._loaded
    grader = Grader(loaded, Path(bench.folder), bench.device, 1)
    (finding,) = grader.run(checks_of(EXERCISE)[0]).findings
    assert (finding.code, finding.what) == ("empty-source", "The file cannot be read: Is a directory.")
    assert grader.provenance.source_sha256 == ""


def test_a_byte_order_mark_is_no_mistake(bench: Bench) -> None:
    bench.programs["text"] = right()
    assert bench.result("compile", b"\xef\xbb\xbftext").verdict == "passed"


def test_a_missing_kernel_is_found_even_if_only_a_larger_case_launches_it(bench: Bench) -> None:
    def two_stages(problem: Problem) -> Plan:
        first = plan(problem)
        more = Launch("more", (1,), (1,), ("out",)) if problem.size > 32 else first.launches[0]
        return Plan(first.buffers, (*first.launches, more))

    bench.programs["naive"] = Program({"twice": kernel(), "more": kernel()})
    results = bench.results(program(kernel()), plan=two_stages)
    assert codes(results) == dict.fromkeys(ALL_CHECKS, "missing-kernel")
    (finding,) = results["compile"].findings
    assert finding.what == "There is no kernel called `more`."
    assert finding.evidence == ("required: __global__ void more(float *)", "kernels in the file: twice")
    assert "__global__" in finding.hint
    (finding,) = bench.result("compile", Program()).findings
    assert finding.evidence[-1] == "the file has no kernel"


@pytest.mark.parametrize(
    ("parameters", "what", "declared"),
    [
        ((8, 8), "`twice` has 2 parameters, but it is called with 3.", "2 parameters of 8, 8 bytes"),
        ((8,), "`twice` has 1 parameter, but it is called with 3.", "1 parameter of 8 bytes"),
        ((), "`twice` has 0 parameters, but it is called with 3.", "0 parameters of no bytes"),
        (
            (8, 8, 8),
            "Parameter 3 of `twice` is 8 bytes wide, but it is called with unsigned int (4 bytes).",
            "3 parameters of 8, 8, 8 bytes",
        ),
        (
            (4, 8, 4),
            "Parameter 1 of `twice` is 4 bytes wide, but it is called with a pointer (8 bytes).",
            "3 parameters of 4, 8, 4 bytes",
        ),
    ],
)
def test_a_wrong_signature(bench: Bench, parameters: tuple[int, ...], what: str, declared: str) -> None:
    results = bench.results(Program({"twice": kernel()}, parameters))
    assert codes(results) == dict.fromkeys(ALL_CHECKS, "wrong-signature")
    (finding,) = results["compile"].findings
    assert finding.what == what
    assert finding.evidence == ("called with: `in`, `out`, unsigned int", f"declared: {declared}")
    assert "skeleton" in finding.hint


def test_a_device_that_cannot_tell_parameters_is_believed(bench: Bench) -> None:
    assert bench.result("compile", Program({"twice": kernel()})).verdict == "passed"


def with_constant(problem: Problem) -> Plan:
    buffers = (*plan(problem).buffers, Buffer("table", "input", np.int32, (4,)))
    return Plan(buffers, plan(problem).launches, {"lut": "table"})


@pytest.mark.parametrize(
    ("symbols", "what"),
    [
        ({}, "There is no array called `lut` at file scope: the grader copies the input into it."),
        (
            {"d_lut": bytes(16), "other": bytes(4), "gpulab_tunable_X": bytes(8)},
            "There is no array called `lut` at file scope: the grader copies the input into it. The file has `d_lut`.",
        ),
        ({"lut": bytes(12)}, "The array `lut` holds 12 bytes, but the grader copies 16 bytes into it."),
    ],
)
def test_a_constant_that_is_missing_or_too_small(bench: Bench, symbols: dict[str, bytes], what: str) -> None:
    bench.programs["naive"] = program(kernel(), symbols={"lut": bytes(16)})
    (finding,) = bench.result("compile", program(kernel(), symbols=symbols), plan=with_constant).findings
    assert (finding.code, finding.what) == ("wrong-signature", what)


def test_a_constant_of_the_right_size(bench: Bench) -> None:
    assert (
        bench.result("compile", program(kernel(), symbols={"lut": bytes(16)}), plan=with_constant).verdict == "passed"
    )


@pytest.mark.parametrize(
    ("symbols", "code", "what"),
    [
        ({}, "tunable-missing", "The file does not declare the tunable BLOCK_SIZE."),
        (
            tunable("BLOCK_SIZE", 64, 8),
            "tunable-missing",
            "The tunable BLOCK_SIZE cannot be read back: it is 8 bytes wide, not 4.",
        ),
        (
            tunable("BLOCK_SIZE", 48),
            "tunable-range",
            "The tunable BLOCK_SIZE is 48, which this exercise does not accept.",
        ),
        (
            tunable("BLOCK_SIZE", -1),
            "tunable-range",
            "The tunable BLOCK_SIZE is -1, which this exercise does not accept.",
        ),
    ],
)
def test_a_tunable_that_is_missing_or_out_of_range(
    bench: Bench, symbols: dict[str, bytes], code: str, what: str
) -> None:
    bench.programs["naive"] = program(kernel(), symbols=tunable("BLOCK_SIZE", 32))
    results = bench.results(program(kernel(), symbols=symbols), tunables=(BLOCK_SIZE,))
    assert codes(results) == dict.fromkeys(ALL_CHECKS, code)
    (finding,) = results["compile"].findings
    assert finding.what == what
    assert finding.evidence == (() if "read back" in what else ("accepted for BLOCK_SIZE: 32, 64, 128",))
    assert finding.hint


@pytest.mark.parametrize(
    ("allowed", "said"), [(range(32, 129), "32 to 128"), (range(32, 129, 32), "32 to 128 in steps of 32")]
)
def test_a_range_of_accepted_values_is_shortened(bench: Bench, allowed: range, said: str) -> None:
    submission = program(kernel(), symbols=tunable("BLOCK_SIZE", 7))
    (finding,) = bench.result("compile", submission, tunables=(Tunable("BLOCK_SIZE", allowed),)).findings
    assert finding.evidence == (f"accepted for BLOCK_SIZE: {said}",)


def test_tunables_reach_the_plan_or_take_their_default(bench: Bench) -> None:
    seen: list[int] = []

    def spying(problem: Problem) -> Plan:
        seen.append(problem.tunables["BLOCK_SIZE"])
        return plan(problem)

    with_default = Tunable("BLOCK_SIZE", (32, 64), default=32)
    assert bench.result("compile", right(), plan=spying, tunables=(with_default,)).verdict == "passed"
    submission = program(kernel(), symbols=tunable("BLOCK_SIZE", 64))
    assert bench.result("compile", submission, plan=spying, tunables=(with_default,)).verdict == "passed"
    assert list(dict.fromkeys(seen)) == [32, 64], "the number of plans per build is not fixed"
