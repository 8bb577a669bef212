"""`gpulab explain`: a submission on one small input."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_gpulab.command import main
from pytest_gpulab.exercise import Variant
from pytest_gpulab.grading import smallest_failing
from pytest_gpulab.grading.compilation.builds import Build, Builds
from pytest_gpulab.grading.correctness import shrinking
from pytest_gpulab.grading.correctness.cases import CaseRuns
from pytest_gpulab.grading.explanation import drawing

ROOT = Path(__file__).resolve().parents[2]
RIGHT = ROOT / "solutions" / "reduction" / "08_shared_sequential.cu"
LARGE = ROOT / "tests" / "wrong" / "reduction" / "half_precision.cu"
WRONG = ROOT / "tests" / "wrong" / "reduction" / "stops_at_two.cu"
FIELD = ROOT / "solutions" / "constant_memory" / "01_constant.cu"


@pytest.fixture(autouse=True)
def course(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def explain(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Return the exit code and the lines printed as one."""
    code = main.main(["explain", *map(str, words), "--format", "text"])
    printed = capsys.readouterr()
    return code, " ".join((printed.out + printed.err).split())


def test_values_of_a_students_own_choice(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = explain(capsys, RIGHT, "--in", "-1,2*3,5..7")
    assert code == 0
    assert "n = 7, in = [-1 2 2 2 5 6 7] out is [23], as it should be" in printed


def test_a_wrong_result_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = explain(capsys, WRONG, "--case", "n=33", "--n", "4", "--in", "1,2,3,4")
    assert code == 1
    assert "case n=33 at another size n = 4, in = [1 2 3 4] out should be [10], is [4] wrong-result:" in printed


def test_without_an_input_the_smallest_failing_one_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other case runs to find the likely cause, because the input shows it."""
    monkeypatch.delattr(CaseRuns, "with_likely_cause")
    code, printed = explain(capsys, WRONG)
    assert (code, "n = 2, in = [0 1] out should be [1], is [0]" in printed) == (1, True)


def test_smaller_blocks_are_compiled_as_the_failing_variant_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    once = Builds._make

    def make(builds: Builds, variant: Variant) -> Build:
        compiled.append(f"{builds.path == LARGE} {variant.name}")
        return once(builds, variant)

    monkeypatch.setattr(Builds, "_make", make)
    assert main.main(["explain", str(LARGE), "--format", "text"]) == 1
    assert {each for each in compiled if each.startswith("False")} == {"False float32-sum"}


def test_values_of_a_small_input_are_no_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """A result is 0 by most mistakes then, and there is no other case to compare."""
    _, text = explain(capsys, "tests/wrong/reduction/stops_at_two.cu", "--in", "0,1")
    assert "out should be [1], is [0]" in text
    assert "hint:" not in text


def test_a_few_wrong_values_of_a_small_input_are_no_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (ROOT / "exercises" / "scan" / "naive.cu").read_text()
    path = tmp_path / "scan" / "scan.cu"
    path.parent.mkdir()
    path.write_text(source.replace("unsigned j = first;", "unsigned j = i / 32 * 32;"))
    _, text = explain(capsys, path, "--in", "1,0*32", "--exercises", "exercises")
    assert "out[32] should be 1, is 0" in text
    assert "unchanged" not in text and "hint:" not in text


def test_a_hazard_of_a_right_result_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = explain(capsys, ROOT / "tests/wrong/divergence/barrier_in_branch.cu", "--n", "40")
    assert code == 1 and "as it should be barrier: Divergent threads in block" in printed


def test_a_file_that_reaches_a_time_limit_of_the_search_is_neither_right_nor_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = smallest_failing.SEARCHED.time._replace(case_s=0.0, file_s=0.0)
    monkeypatch.setattr(smallest_failing, "SEARCHED", smallest_failing.SEARCHED._replace(time=limits))
    page = tmp_path / "page.html"
    assert main.main(["explain", str(RIGHT), "--output", str(page)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "out is [528], as it should be time-limit: correct[n=1]: Time limit: " in printed
    assert "in total; this is no verdict, because a grading allows 20 s per case" in printed
    assert "this is no verdict" in " ".join(page.read_text().split())


def test_a_case_that_the_search_had_no_time_for_is_not_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = smallest_failing.SEARCHED.time._replace(file_s=0.0)
    monkeypatch.setattr(smallest_failing, "SEARCHED", smallest_failing.SEARCHED._replace(time=limits))
    slow_case = "if (n == 1) for (volatile int k = 0; k < 1000000; ++k) {}"
    path = tmp_path / "reduction" / "reduction.cu"
    path.parent.mkdir()
    path.write_text(re.sub(r"(__global__ void reduce[^{]*\{)", rf"\1 {slow_case}", RIGHT.read_text()))
    code, printed = explain(capsys, path, "--exercises", "exercises")
    assert code == 1 and "as it should be time-limit: correct[n=1]: " in printed and "in total" in printed
    assert "the launch was stopped" not in printed


def test_so_is_a_chosen_input_that_reaches_the_limit_of_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "LIMITS", drawing.LIMITS._replace(case_s=0.0))
    code, printed = explain(capsys, RIGHT, "--in", "1,2")
    assert code == 1 and "after 0 s; this is no verdict, because a grading allows 20 s per case" in printed


def test_a_failure_without_a_small_input_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking._Search, "smallest", lambda self: None)
    code, printed = explain(capsys, WRONG)
    assert code == 1 and ", as it should be wrong-result: correct[n=2]" in printed
    assert "correct[n=block-1] shows more: `out`: the only element is wrong." in printed


def test_without_an_input_a_right_kernel_runs_on_a_readable_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = explain(capsys, RIGHT)
    assert code == 0 and ", case n=1 at another size n = 32, in = [1 2 3 ... 32] out is [528]" in printed
    assert "Drawn with BLOCK_SIZE = 32 instead of 256" in printed
    steps = [
        f"tile, step {number}, stride = {16 >> number - 1}: line 19: {16 >> number - 1} of 32" for number in range(1, 6)
    ]
    assert all(step in printed for step in steps)


def test_a_slow_kernel_that_is_right_is_not_drawn_as_one_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "LIMITS", drawing.LIMITS._replace(file_s=0.0))  # used up by the search's other trials
    code, printed = explain(capsys, RIGHT)
    assert code == 0 and "in = [1 2 3 ... 32] out is [528]" in printed and "limit" not in printed


def test_equal_lines_of_a_step_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "reduction.cu"
    swaps = "for (int k = 0; k < 12; k++) mine = __shfl_xor_sync(~0u, __shfl_xor_sync(~0u, mine, 1), 2);"
    ending = f"    GPULAB_T mine = tile[tid];\n    {swaps}\n    if (tid == 0)\n        out[blockIdx.x] = mine;\n}}\n"
    file.write_text(RIGHT.read_text().partition("    if (tid == 0)")[0] + ending)
    code, printed = explain(capsys, file)
    assert code == 0 and printed.count("threads shuffle") == 1 and " of 32 threads shuffle (24 times)" in printed


def test_sizes_of_several_extents(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = explain(capsys, FIELD, "--size", "2x1x1", "--vectors", "0,0.5")
    assert code == 0
    assert "width = 2, height = 1, count = 1, vectors = [[0 0.5]] out is [[0.25 1.25]]" in printed


def test_an_input_pattern_of_the_exercise(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = explain(capsys, RIGHT, "--n", "3", "--in", "equal")
    assert code == 0 and "in = [-7 -7 -7] out is [-21]" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((RIGHT, "--in", "1,2", "--n", "3"), "--in lists 2 values; this size needs 3"),
        ((RIGHT, "--in", "1,x"), "--in 1,x: could not convert"),
        ((RIGHT, "--x", "1,2"), "--x is no input of this exercise; its inputs are in"),
        ((RIGHT, "--in"), "not understood: --in; write each input as --NAME VALUES, after the file"),
        ((RIGHT, "--case", "n=7"), "no case is called 'n=7'; there are n=1, n=2,"),
        ((RIGHT, "--size", "2x3"), "a size of this exercise has 1 positive extents"),
        ((RIGHT, "--n", "0"), "a size of this exercise has 1 positive extents"),
        ((FIELD, "--size", "wide"), "--size wide: write the extents as 3x2"),
        ((RIGHT, "--n", "3", "--in", "odd"), "the exercise does not accept this input: "),
        ((FIELD, "--vectors", "random", "--more", "equal"), "one input pattern for all inputs, not equal and random"),
        ((ROOT / "none.cu",), "no such file"),
        ((ROOT / "tests" / "benchmarks" / "kernels.cu",), "belongs to no exercise: its name or its folder's must be"),
        ((ROOT / "tests" / "wrong" / "reduction" / "compile_error.cu", "--n", "3"), "The file does not compile"),
    ],
)
def test_wrong_words_are_one_line(words: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = explain(capsys, *words)
    assert code == main.USAGE_ERROR
    assert printed.startswith("gpulab explain: ") and message in printed


def test_a_file_far_from_any_exercise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reduction.cu").write_text(RIGHT.read_text())
    code, printed = explain(capsys, "reduction.cu", "--n", "2")
    assert code == main.USAGE_ERROR and "no exercises folder: run from the course's folder" in printed
    assert explain(capsys, "reduction.cu", "--n", "2", "--exercises", ROOT / "exercises")[0] == 0


def test_a_page_and_a_figure_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["explain", str(RIGHT), "--n", "8"]) == 0
    assert "written: 08_shared_sequential.html" in capsys.readouterr().out
    assert main.main(["explain", str(RIGHT), "--n", "8", "--format", "svg", "--output", "figure.svg"]) == 0
    page, figure = (tmp_path / name for name in ("08_shared_sequential.html", "figure.svg"))
    assert "<svg" in page.read_text() and page.stat().st_size < 2e6
    assert ElementTree.parse(figure).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_text_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def longest(columns: int) -> int:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main.main(["explain", str(RIGHT), "--format", "text", "--in", ",".join(["2147483647"] * 8)]) == 0
        return max(len(line) for line in capsys.readouterr().out.splitlines()[1:])

    assert longest(60) <= 60 < longest(100) <= 100


def test_a_failure_without_a_smallest_input_is_shown_once_and_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main.main(["explain", "tests/wrong/reduction/recursion_without_end.cu", "--format", "text"]) == 1
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if len(line) > 60] == []
    assert printed.count("stack-overflow: ") == 1 and printed.count("hint: ") == 1


EXTRAS_BLOCKED = """
import sys, tomllib
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in NAMES:
            raise ModuleNotFoundError(name)

PROJECT = tomllib.load(open("pyproject.toml", "rb"))["project"]
KEPT = {requirement.partition(">")[0] for requirement in PROJECT["dependencies"]}
EXTRAS = {requirement.partition(">")[0] for extra in PROJECT["optional-dependencies"].values() for requirement in extra}
NAMES = EXTRAS - KEPT
sys.meta_path.insert(0, Blocked())
from pytest_gpulab.command.main import main
sys.exit(main())
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
def test_the_page_needs_no_extra(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["explain", str(RIGHT), "--n", "8", "--output", str(page)]
    subprocess.run([sys.executable, "-c", EXTRAS_BLOCKED, *words], cwd=ROOT, check=True, capture_output=True)
    assert "<svg" in page.read_text()


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", str(RIGHT), "--n", "1", "--output", str(tmp_path)]) == main.USAGE_ERROR
    assert f"gpulab explain: cannot write {tmp_path}: " in capsys.readouterr().err


def test_other_subcommands_refuse_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["include", "--in", "1"])
    assert end.value.code == main.USAGE_ERROR
    assert "unrecognized arguments: --in 1" in capsys.readouterr().err
