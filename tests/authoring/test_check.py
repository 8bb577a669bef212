"""`gpulab check`: a right exercise, and one mistake in exercise.py at a time, each with its message and place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mistaken import checked, course

from pytest_gpulab.command import main

PACKAGE = Path(main.__file__).parents[1]
ALONE = "a tuple of one needs a comma"
DATA = {
    "an unknown kind of hazard": (
        ('SafeCheck("race", 6)', 'SafeCheck("races", 6)'),
        "SafeCheck('races'): there is no such kind; kinds: memory, barrier, race, uninitialised",
    ),
    "a missing comma in safe": (
        ('safe=(SafeCheck("memory", 6), SafeCheck("race", 6))', 'safe=(SafeCheck("memory", 12))'),
        f"`safe` must be a tuple, but is a SafeCheck; {ALONE}",
    ),
    "a missing comma in bounds": (
        ("(concepts.global_traffic(4.0),)", "(concepts.global_traffic(4.0))"),
        f"UsesCheck('coalesced'): `bounds` must be a tuple, but is a Bound; {ALONE}",
    ),
    "no bound": (("(concepts.global_traffic(4.0),)", "()"), "UsesCheck('coalesced') has no bound"),
    "a concept without its call": (
        ("concepts.global_traffic(4.0)", "concepts.global_traffic"),
        "UsesCheck('coalesced'): `bounds` holds <function global_traffic",
    ),
    "points that do not add up": (
        ("n, 12)", "n, 10)"),
        "the checks' points add up to 92, not 100: compile 0, correct 40, safe 12, uses 10, speedup 30",
    ),
    "too few points for correctness": (
        ("n, 12)", "n, 1)"),
        "correctness earns 16 of 100 points; it must be at least half",
    ),
    "points that are a text": (("n, 12)", 'n, "12")'), "Case('n=1') has '12' points; write a number from 0"),
    "two cases of one name": (('f"n={n}"', '"n"'), "more than one case is called ['n']"),
    "patterns that are a text": (
        ("n, 12)", 'n, 12, "random")'),
        "case 'n=1': `patterns` must be a tuple, but is a str",
    ),
    "no pattern": (("n, 12)", "n, 12, ())"), "case 'n=1' has no input pattern"),
    "a size of zero": (("(1, 2, 33, 1025)", "(0, 2, 33, 1025)"), "case 'n=0': the size 0 is neither an integer from 1"),
    "a threshold of zero": (("SpeedTier(1.5,", "SpeedTier(0,"), "SpeedTier(0): the threshold 0 is not above 0"),
    "a default that is not allowed": (
        ("(32, 64, 128, 256))", "(32, 64, 128, 256), default=100)"),
        "Tunable('BLOCK_SIZE'): the default 100 is not among the allowed values",
    ),
    "a tier that is required and extra": (
        ("SpeedTier(40, 10, 1 << 17)", "SpeedTier(40, 10, 1 << 17, required=True, extra=True)"),
        "SpeedTier(40) is required and extra; write required=False",
    ),
    "a tier that needs an unknown use": (
        ("SpeedTier(40, 10, 1 << 17)", 'SpeedTier(40, 10, 1 << 17, needs="merged")'),
        "SpeedTier(40): `needs` is 'merged', but no UsesCheck of its variant has this name",
    ),
    "a use that is required and extra": (
        ("10, 4096)", "10, 4096, extra=True)"),
        "UsesCheck('coalesced') is required and extra; write required=False",
    ),
    "extra points among the 100": (
        ("SpeedTier(40, 10, 1 << 17)", "SpeedTier(40, 10, 1 << 17, extra=True)"),
        "the checks' points add up to 90 and 10 extra, not 100 and 10 extra: compile 0, correct 48",
    ),
    "a name that is no text": (('f"n={n}"', "n"), "Case(1): the name must be a text of one line"),
    "a name of two lines": (('f"n={n}"', 'f"n\\n{n}"'), "the name must be a text of one line"),
    "a use whose name is a number": (('UsesCheck("coalesced"', "UsesCheck(5"), "UsesCheck(5): the name must be a text"),
    "a variant that is a text": (
        ("n, 12)", 'n, 12, ("random",), "float")'),
        "Case: `variant` is 'float', which is no Variant",
    ),
    "a threshold that is a text": (
        ("SpeedTier(40,", 'SpeedTier("40",'),
        "SpeedTier('40'): the threshold must be a number",
    ),
    "allowed values that are texts": (
        ("(32, 64, 128, 256))", '("32", "64"))'),
        "Tunable('BLOCK_SIZE'): `allowed` must be a sequence of integers, but is ('32', '64')",
    ),
    "cases of a generator": (
        ("cases=tuple(", "cases=("),
        "`cases` must be a tuple, but is a generator; write tuple(...)",
    ),
    "a misspelt field": (("title=", "titel="), "unexpected keyword argument 'titel'"),
    "a missing comma between checks": (
        ('SafeCheck("memory", 6), SafeCheck', 'SafeCheck("memory", 6) SafeCheck'),
        "SyntaxError: invalid syntax",
    ),
    "a reference that is no function": (("reference=reference", "reference=None"), "`reference` must be a function"),
    "an Exercise under another name": (
        ("exercise = Exercise(", "shift = Exercise("),
        "the name `exercise` must be bound to an Exercise, but it holds nothing",
    ),
    "Python that does not parse": (("def inputs(", "def inputs"), "SyntaxError"),
}
FUNCTIONS = {
    "an unknown role": (
        ('"in", "input"', '"in", "inputs"'),
        "buffer 'in' has the role 'inputs'; roles: input, output, scratch",
    ),
    "an unknown dtype": (('"output", np.float32', '"output", "floaty"'), "buffer 'out' has the dtype 'floaty'"),
    "a shape that is no tuple": (
        ('"out", "output", np.float32, (n,)', '"out", "output", np.float32, n'),
        "the shape 1",
    ),
    "a buffer that no launch uses": (
        ('("in", "out", np.int32(n))', '("out", "out", np.int32(n))'),
        "no launch of the plan uses the buffer 'in'",
    ),
    "a misspelt buffer": (('("in", "out", np', '("in", "output", np'), "no buffer is called 'output'"),
    "a scalar of 8 bytes": (("np.int32(n)", "np.int64(n)"), "of `shift` is `int`, but the grader passes `long long`"),
    "an output of another type": (
        ('"output", np.float32', '"output", np.float64'),
        "Parameter 2 (`out`) of `shift` is `float *`, but the grader passes `double *` (`out`)",
    ),
    "a constant that the sources lack": (
        ("args),))", 'args),), {"table": "in"})'),
        "the baseline does not fit the plan: There is no array called `table` at file scope",
    ),
    "a reference with a further output": (
        ("np.roll(x, 1)}, {", 'np.roll(x, 1), "sum": x}, {'),
        "`values` has ['out', 'sum'], but the output buffers are ['out']",
    ),
    "a misspelt kernel": (('Launch("shift"', 'Launch("shifted"'), "there is no kernel called `shifted`"),
    "inputs of another dtype": (
        ("rng.standard_normal(problem.size, dtype=np.float32)", "rng.standard_normal(problem.size)"),
        "input 'in' is float64 (1,), but its buffer is float32 (1,)",
    ),
    "inputs of another length": (("(problem.size, dtype", "(problem.size + 1, dtype"), "input 'in' is float32 (2,)"),
    "inputs under another name": (('{"in": rng', '{"x": rng'), "`inputs` has no array for the input buffer 'in'"),
    "random numbers of another generator": (
        ("rng.standard_normal(problem.size, dtype=np.float32)", "np.random.rand(problem.size).astype(np.float32)"),
        "`inputs` gives other values of 'in' for the same seed",
    ),
    "a reference that raises": (("x = inputs", "x = input"), "The exercise's own `reference` is wrong"),
    "a plan that is not returned": (
        ("return Plan(", "Plan("),
        "it must return a Plan, but returns nothing: `return` is",
    ),
    "one launch without a comma": (
        ("(block,), args),))", "(block,), args)))"),
        "Plan: `launches` must be a tuple, but is a Launch; a tuple of one needs a comma",
    ),
    "a grid that is a number": (
        ("(-(-n // block),)", "-(-n // block)"),
        "launch of 'shift': `grid` must be a tuple, but is 1; a tuple of one needs a comma: (1,)",
    ),
    "a grid that is no integer": (
        ("(-(-n // block),)", "(np.ceil(n / block),)"),
        "launch of 'shift': the grid (np.float64(1.0),) must have 1 to 3 integers from 1",
    ),
    "arguments that are a text": (
        ('args = ("in", "out", np.int32(n))', 'args = "in"'),
        "`args` must be a tuple, but is 'in'",
    ),
    "negative shared memory": (("args),))", "args, -4),))"), "`shared_bytes` must be an integer from 0, but is -4"),
    "a misspelt tunable": (
        ('tunables["BLOCK_SIZE"]', 'tunables["BLOCKSIZE"]'),
        "`plan` is wrong: KeyError: 'BLOCKSIZE'",
    ),
    "a size that is none": (("n, 12)", "lambda tunables: None, 12)"), "the size None is neither an integer from 1"),
    "a size that raises": (("n, 12)", 'lambda t: t["B"], 12)'), "The exercise's own `size` is wrong: KeyError: 'B'"),
    "inputs that are not returned": (('return {"in": rng', '{"in": rng'), "it must return arrays by buffer"),
    "inputs of too many names": (('{"in": rng', '{"y": 1, "in": rng'), "no input buffer is called 'y'"),
    "a reference that returns an array": (
        ('return Expected({"out": x + np.roll(x, 1)}, {"out": 1e-6 * (abs(x) + abs(np.roll(x, 1)))})', "return x"),
        "it must return Expected, but returns a ndarray",
    ),
    "a reference without names": (
        ('Expected({"out": x + np.roll(x, 1)}', "Expected(x"),
        "`values` must be by output buffer",
    ),
    "a tolerance without names": (
        ('{"out": 1e-6 * (abs(x) + abs(np.roll(x, 1)))}', "1e-6"),
        "`tolerance` must be by output buffer, such as {'out': ...}, but is a float",
    ),
    "a tolerance of another shape": (
        ('{"out": 1e-6 * (abs(x) + abs(np.roll(x, 1)))}', '{"out": np.full((len(x), 1), 1e-6)}'),
        "the tolerance of 'out' has shape (1, 1): write one number, or an array of shape (1,)",
    ),
    "a reference of texts": (
        ('{"out": x + np.roll(x, 1)}', '{"out": np.array([str(v) for v in x])}'),
        "the values of 'out' are not real numbers but <U",
    ),
    "a complex reference": (
        ('{"out": x +', '{"out": 1j * x +'),
        "the values of 'out' are not real numbers but complex128",
    ),
    "a reference of uneven lists": (
        ('{"out": x + np.roll(x, 1)}', '{"out": [[1, 2], [3]]}'),
        "the values of 'out' are lists of different lengths",
    ),
    "a random reference": (
        ("x + np.roll(x, 1)}", "x + np.roll(x, 1) + 1e-9 * np.random.rand()}"),
        "`reference` gives other values of 'out' for the same inputs",
    ),
    "a reference that changes its inputs": (
        ('x = inputs["in"].astype(np.float64)', 'x = inputs["in"]; x += 1'),
        "The exercise's own `reference` is wrong: output array is read-only",
    ),
    "negative bytes": (("8 * problem.size,", "-8,"), "it must return a number of bytes above 0, but returns -8"),
    "mistakes of another signature": (
        ("min_bytes=", "mistakes=lambda problem: [], min_bytes="),
        "The exercise's own `mistakes` is wrong: <lambda>() takes 1 positional argument but 2 were given",
    ),
    "a reference of another name": (('Expected({"out"', 'Expected({"sum"'), "`values` has ['sum']"),
    "a reference of another shape": (('{"out": x + np.roll(x, 1)}', '{"out": (x + np.roll(x, 1))[:-1]}'), "have shape"),
    "an infinite reference": (("x + np.roll(x, 1)}", "x + np.inf}"), "gives infinite values of 'out'"),
    "a misspelt tolerance": (('{"out": 1e-6', '{"Out": 1e-6'), "`tolerance` has 'Out'"),
    "a negative tolerance": (("1e-6 *", "-1e-6 *"), "the tolerance of 'out' contains -"),
    "a tolerance that accepts zeros": (("1e-6 *", "2 *"), "the tolerance accepts an output of zeros in every case"),
    "a tolerance that accepts half precision": (
        ("1e-6 *", "1e-3 *"),
        "the tolerance accepts half-precision results in every case",
    ),
    "a tolerance that accepts a missing element": (
        ("1e-6 * (abs(x) + abs(np.roll(x, 1)))", "9.0"),
        "the tolerance accepts a result in which one input element is missing in every case",
    ),
    "traffic without min_bytes": (
        ("    min_bytes=lambda problem: 8 * problem.size,\n", ""),
        "global_traffic compares with the exercise's `min_bytes`: define it",
    ),
    "a threshold that the baseline reaches": (
        ("SpeedTier(1.5,", "SpeedTier(1.0,"),
        "the baseline itself earns speedup[1x]",
    ),
    "a bound on a figure that an idle kernel has": (
        ("concepts.global_traffic(4.0)", "concepts.Bound('misses', lambda usage: 0.0, at_most=1)"),
        "uses[coalesced] is passed by a kernel that does nothing of the kind",
    ),
}


@pytest.mark.simulator
def test_a_right_exercise_has_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = checked(capsys, course(tmp_path))
    assert code == 0, text
    head, points, cost = text.splitlines()
    assert head == "shift: 0 errors, 0 warnings"
    assert points.strip() == "points: compile 0, correct 48, safe 12, uses 10, speedup 30"
    assert re.fullmatch(r"  2 files graded; a file takes about \d+\.\d s of processor time without a GPU", cost)


@pytest.mark.parametrize(("change", "message"), DATA.values(), ids=DATA)
def test_a_mistake_in_the_data_is_reported_with_its_line(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path, exercise=change)
    code, text = checked(capsys, folder, "--no-solutions")
    assert code == 1
    assert message in text
    assert f"{folder / 'exercise.py'}:" in text


def test_all_mistakes_in_the_data_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = 'safe=(SafeCheck("memory", 6), SafeCheck("race", 6))'
    folder = course(tmp_path, exercise=(old, 'safe=(SafeCheck("races", 6), SafeCheck("races", 7))'))
    lines = checked(capsys, folder)[1].splitlines()
    assert lines[0] == "shift: 4 errors, 0 warnings"
    assert [line.count("races") for line in lines[1:]] == [1, 1, 1, 0]


@pytest.mark.simulator
@pytest.mark.parametrize(("change", "message"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_mistake_in_a_function_is_reported(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=change), "--no-solutions")
    assert code == 1
    assert message in text
    assert "site-packages" not in text and f"{PACKAGE}" not in text, "the place is in the exercise"


def test_a_folder_of_exercises_is_checked_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path, exercise=("exercise = Exercise(", "x = Exercise("))
    assert checked(capsys, folder.parent)[1].startswith("shift: 1 error, 0 warnings")


@pytest.mark.parametrize(("name", "message"), [("none", "there is no folder"), ("empty", "has no exercise: a folder")])
def test_a_folder_without_exercises_is_refused(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main.main(["check", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
