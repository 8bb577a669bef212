"""`gpulab check`: files in other encodings, folders with other names, and functions that end the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistaken import checked, course

from pytest_gpulab.authoring.data import data_problems
from pytest_gpulab.command import main
from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.time_limits import OWN_CODE


def in_latin_1(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    comment = " // \xdcbung\n" if path.suffix == ".cu" else " \xdcbung\n"
    path.write_bytes(text.replace("\n", comment, 1).encode("latin-1"))


@pytest.mark.simulator
@pytest.mark.parametrize("name", ["shift.cu", "naive.cu"])
def test_a_source_of_an_old_editor_is_no_mistake(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path)
    in_latin_1(folder / name)
    assert checked(capsys, folder)[0] == 0


def test_a_readme_of_an_old_editor_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path)
    in_latin_1(folder / "README.md")
    code, text = checked(capsys, folder)
    assert code == 1
    assert f"{folder / 'README.md'}: error: the README is not in UTF-8\n      Save the file as UTF-8." in text


@pytest.mark.simulator
def test_solutions_in_a_folder_of_another_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path)
    (tmp_path / "solutions" / "shift").rename(tmp_path / "solutions" / "shifts")
    code, text = checked(capsys, folder)
    assert (code, text.splitlines()[0]) == (0, "shift: 0 errors, 1 warning")
    assert "solutions/shift: warning: there are no solutions\n      Name the folder as the exercise." in text


@pytest.mark.simulator
def test_hidden_cases_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=("n, 12)", "n, 12, hidden=True)")))
    assert (code, text.splitlines()[0]) == (0, "shift: 0 errors, 1 warning")
    assert "warning: every case is hidden: `gpulab handout` can write no copy for students" in text


CALLS = {
    "a plan that ends the process": (
        ("    n, block =", "    raise SystemExit(0)\n    n, block ="),
        ":10: error: The exercise's own `plan` is wrong: SystemExit: 0",
    ),
    "swapped parameters": (
        ("def inputs(problem, pattern, rng)", "def inputs(problem, rng, pattern)"),
        "has no attribute 'standard_normal' (in case 'n=1', pattern 'random')\n"
        "      It is called as inputs(problem, pattern, rng).",
    ),
    "too many parameters": (
        ("def plan(problem)", "def plan(problem, tunables)"),
        "missing 1 required positional argument: 'tunables' (in case 'n=1')\n      It is called as plan(problem).",
    ),
    "no tolerance": (
        ('{"out": 1e-6 * (abs(x) + abs(np.roll(x, 1)))}', "None"),
        "`tolerance` must be by output buffer, such as {'out': ...}, but is None",
    ),
    "arguments in a list": (
        ('args = ("in", "out", np.int32(n))', 'args = ["in", "out", np.int32(n)]'),
        "`args` must be a tuple, but is ['in', 'out', np.int32(1)]; write (...)",
    ),
    "two mistakes of a buffer": (
        ('"input", np.float32, (n,)', '"input", (n,), np.float32'),
        "which NumPy does not know; buffer 'in' has the shape <class 'numpy.float32'>; write a tuple",
    ),
    "a figure that is a text": (
        ("concepts.global_traffic(4.0)", "concepts.Bound('x', lambda usage: '1', at_least=1)"),
        "`uses[coalesced]` is wrong: Bound('x'): `measure` must return a number, but returns '1'",
    ),
    "a misspelt counter with a default": (
        (
            "concepts.global_traffic(4.0)",
            "concepts.Bound('x', lambda usage: usage.counters.get('reads', 0), at_most=1)",
        ),
        ":32: error: The exercise's own `uses[coalesced]` is wrong: KeyError: 'reads'",
    ),
    "an array that is too large": (
        ('    x = inputs["in"]', '    np.zeros(1 << 50)\n    x = inputs["in"]'),
        ":21: error: there is not enough memory: Unable to allocate 8.00 PiB",
    ),
    "bytes that no kernel moves": (
        ("8 * problem.size", "80 * problem.size"),
        "naive.cu cannot be used: at size 2^17, it touches 1.18 MB of memory, but `min_bytes` is 10.5 MB.",
    ),
}


@pytest.mark.simulator
@pytest.mark.parametrize(("change", "message"), CALLS.values(), ids=CALLS)
def test_a_mistake_that_python_finds_late(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=change))
    assert code == 1
    assert message in text


@pytest.mark.simulator
def test_a_solution_without_stated_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = checked(capsys, course(tmp_path, expected=("points = 90", "")))
    assert (code, text.splitlines()[0]) == (0, "shift: 0 errors, 1 warning")
    assert "expected.toml: warning: 01_shift.cu states no points\n      Write points = 90, if that is right." in text


@pytest.mark.simulator
def test_a_tolerance_is_no_advice_for_results_that_are_far_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = 'x + np.roll(x, 1)}, {"out": 1e-6 * (abs(x) + abs(np.roll(x, 1)))})'
    code, text = checked(capsys, course(tmp_path, exercise=(wrong, "x * np.roll(x, 1)})")))
    assert code == 1
    assert "the baseline fails correct[n=1]" in text and " expected " in text and "The tolerance is 0" not in text


@pytest.mark.parametrize("name", ["int", "class", "main"])
def test_no_exercise_has_the_name_of_a_word_of_cpp(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["new", name]) == 2
    assert capsys.readouterr().err == f"gpulab new: {name!r} is a word of C++, so no kernel can have this name\n"
    assert not list(tmp_path.iterdir())


LOOPS = {
    "reference": ('    x = inputs["in"]', 21),
    "inputs": ('    return {"in": rng', 17),
    "plan": ("    n, block =", 10),
}


@pytest.mark.parametrize(("function", "place"), LOOPS.items())
def test_a_loop_without_an_end(
    function: str,
    place: tuple[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OWN_CODE, "limit_s", 0.2)
    folder = course(tmp_path, exercise=(place[0], f"    while True: pass\n{place[0]}"))
    code, text = checked(capsys, folder)
    assert code == 1
    wrong = f"error: The exercise's own `{function}` is wrong: it had not ended after 0.2 s"
    assert f"{folder / 'exercise.py'}:{place[1]}: {wrong}" in text


def test_a_loop_without_an_end_while_an_exercise_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OWN_CODE, "limit_s", 0.2)
    folder = course(tmp_path, exercise=("import numpy as np\n", "import numpy as np\nwhile True: pass\n"))
    code, text = checked(capsys, folder)
    assert code == 1
    assert f"{folder / 'exercise.py'}:3: error: TimeoutError: it had not ended after 0.2 s" in text


def test_a_slow_function_is_named_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OWN_CODE, "notice_s", 0.1)
    monkeypatch.setattr(OWN_CODE, "limit_s", 0.3)
    folder = course(tmp_path, exercise=('    x = inputs["in"]', '    while True: pass\n    x = inputs["in"]'))
    assert main.main(["check", str(folder)]) == 1
    assert "shift: `reference` has run for 0.1 s, now in line 21 of exercise.py\n" in capsys.readouterr().err


PATTERNS = {
    "a misspelt name": ('{"spikes": np.ones(problem.size)}.get(pattern, drawn)', ("random", "spkies"), ["spkies"]),
    "no use of the name": ("drawn", ("random", "spikes"), ["spikes"]),
    "the name of a dictionary": ('{"spikes": 2 * drawn}.get(pattern, drawn)', ("random", "spikes"), []),
    "an error for other names": ('{"spikes": drawn}[pattern]', ("spikes",), []),
    "one kind of input": ("drawn", ("random",), []),
}


@pytest.mark.parametrize(("values", "patterns", "ignored"), PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_that_inputs_ignores(
    values: str, patterns: tuple[str, ...], ignored: list[str], tmp_path: Path
) -> None:
    drawn = 'return {"in": rng.standard_normal(problem.size, dtype=np.float32)}'
    text = f'drawn = {drawn[14:-1]}\n    return {{"in": np.float32({values})}}'
    folder = course(tmp_path, exercise=(drawn, text))
    file = folder / "exercise.py"
    file.write_text(file.read_text(encoding="utf-8").replace("n, 12)", f"n, 12, {patterns})"), encoding="utf-8")
    loaded = Catalogue(folder.parent).load("shift")
    assert isinstance(loaded, LoadedExercise)
    assert [defect.lines() for defect in data_problems(loaded, open_device("sim")[0], seed=1)] == [
        [
            f"{file}: warning: `inputs` treats the pattern {name!r} as an unknown name",
            "    Correct the name, or raise ValueError(pattern) for unknown names.",
        ]
        for name in ignored
    ]
