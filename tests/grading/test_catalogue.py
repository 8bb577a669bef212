import dataclasses
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from doubling import EXERCISE

from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue
from pytest_gpulab.grading.checks import checks_of

pytestmark = pytest.mark.unit

GOOD = "from doubling import EXERCISE as exercise\n"


def folder(tmp_path: Path, **sources: str) -> Path:
    for name, source in sources.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "exercise.py").write_text(source)
    return tmp_path


def test_names_are_the_folders_with_an_exercise_sorted(tmp_path: Path) -> None:
    folder(tmp_path, scan=GOOD, reduction=GOOD)
    (tmp_path / "notes").mkdir()
    assert Catalogue(tmp_path).names == ("reduction", "scan")
    assert Catalogue(tmp_path / "missing").names == ()


def test_an_exercise_is_loaded_once(tmp_path: Path) -> None:
    source = "import sys\nsys.loads = getattr(sys, 'loads', 0) + 1\n" + GOOD
    catalogue = Catalogue(folder(tmp_path, one=source))
    try:
        assert catalogue.load("one") is catalogue.load("one")
        assert sys.loads == 1  # type: ignore[attr-defined]
    finally:
        del sys.loads  # type: ignore[attr-defined]
    assert catalogue.load("one").exercise == EXERCISE
    assert (catalogue.load("one").name, catalogue.load("one").folder) == ("one", tmp_path / "one")


def test_a_new_version_of_the_same_size_and_second_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = folder(tmp_path, one=GOOD) / "one" / "exercise.py"
    for title in ("first", "other"):
        path.write_text(
            f"from doubling import *\nfrom dataclasses import replace\nexercise = replace(EXERCISE, title={title!r})\n"
        )
        os.utime(path, (0, 0))
        assert Catalogue(tmp_path).load("one").exercise.title == title


def test_an_unknown_name_is_a_key_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="two"):
        Catalogue(folder(tmp_path, one=GOOD)).load("two")


def test_a_broken_exercise_shows_the_instructors_traceback_and_the_others_still_load(tmp_path: Path) -> None:
    catalogue = Catalogue(folder(tmp_path, broken="def f():\n    return 1 / 0\n\nf()\n", good=GOOD))
    for _ in range(2):  # the second time from the cache
        with pytest.raises(BrokenExercise) as caught:
            catalogue.load("broken")
    text = caught.value.traceback_text
    assert caught.value.name == "broken"
    assert "line 4, in <module>" in text and "line 2, in f" in text and text.endswith("division by zero\n")
    assert "importlib" not in text and "catalogue.py" not in text
    assert catalogue.load("good").exercise == EXERCISE


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("exercise = (\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("x = 1\n", "the name `exercise` must be bound to an Exercise, but it holds nothing"),
        ("exercise = {}\n", "the name `exercise` must be bound to an Exercise, but it holds a dict"),
        (
            "from dataclasses import replace\nfrom doubling import EXERCISE\nexercise = replace(EXERCISE, safe=())\n",
            "ExerciseError: the checks' points add up to 90, not 100",
        ),
    ],
)
def test_mistakes_of_an_instructor_are_reported(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(BrokenExercise, match="exercise 'bad' cannot be loaded") as caught:
        Catalogue(folder(tmp_path, bad=source)).load("bad")
    assert said in caught.value.traceback_text
    assert "exercise.py" in caught.value.traceback_text


def test_exercises_import_their_neighbours_and_leave_no_trace(tmp_path: Path) -> None:
    source = (
        "from __future__ import annotations\nimport dataclasses, sys\n"
        "import gpulab_test_sizes\nfrom doubling import EXERCISE\n"
        "sys.path.append('/nowhere')\n"
        "@dataclasses.dataclass\nclass Sizes:\n    n: int\n"
        "exercise = dataclasses.replace(EXERCISE, title=str(Sizes(gpulab_test_sizes.n)))\n"
    )
    folder(tmp_path, one=source, two=source)
    (tmp_path / "one" / "gpulab_test_sizes.py").write_text("n = 1\n")
    (tmp_path / "two" / "gpulab_test_sizes.py").write_text("n = 22\n")
    path_before = sys.path[:]
    catalogue = Catalogue(tmp_path)
    assert [catalogue.load(name).exercise.title for name in catalogue.names] == ["Sizes(n=1)", "Sizes(n=22)"]
    assert sys.path == path_before
    assert "gpulab_test_sizes" not in sys.modules


def test_a_file_belongs_to_the_exercise_of_its_stem_else_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "exercises").mkdir()
    catalogue = Catalogue(folder(tmp_path / "exercises", scan=GOOD, reduction=GOOD))
    assert catalogue.exercise_of(tmp_path / "student42" / "scan.cu") == "scan"
    assert catalogue.exercise_of(tmp_path / "reduction" / "scan.cu") == "scan"
    assert catalogue.exercise_of(tmp_path / "reduction" / "01_first.cu") == "reduction"
    assert catalogue.exercise_of(tmp_path / "student42" / "Scan (1).cu") == "scan"
    assert catalogue.exercise_of(tmp_path / "student42" / "sort.cu") is None


def test_capitals_in_a_name_make_no_difference(tmp_path: Path) -> None:
    catalogue = Catalogue(folder(tmp_path, scan=GOOD, reduction=GOOD, Sort=GOOD))
    for name, exercise in (("mine/Scan.cu", "scan"), ("REDUCTION/x.cu", "reduction"), ("mine/sort.cu", "Sort")):
        assert catalogue.exercise_of(tmp_path / name) == exercise


def test_of_a_link_its_own_folder_counts_and_of_a_linked_folder_both_names(tmp_path: Path) -> None:
    for name in ("exercises", "handed_in/scan", "store/reduction", "store/a1"):
        (tmp_path / name).mkdir(parents=True)
    catalogue = Catalogue(folder(tmp_path / "exercises", scan=GOOD, reduction=GOOD))
    (tmp_path / "store" / "reduction" / "x.cu").write_text("mine")
    (tmp_path / "handed_in" / "scan" / "mine.cu").symlink_to(tmp_path / "store" / "reduction" / "x.cu")
    assert catalogue.exercise_of(tmp_path / "handed_in" / "scan" / "mine.cu") == "scan"
    (tmp_path / "linked").symlink_to(tmp_path / "store" / "reduction")
    assert catalogue.exercise_of(tmp_path / "linked" / "x.cu") == "reduction"
    (tmp_path / "handed_in" / "reduction").symlink_to(tmp_path / "store" / "a1")
    assert catalogue.exercise_of(tmp_path / "handed_in" / "reduction" / "x.cu") == "reduction"
    (tmp_path / "exercises" / "scan" / "more.cu").symlink_to(tmp_path / "store" / "reduction" / "x.cu")
    assert not catalogue.is_submission(tmp_path / "exercises" / "scan" / "more.cu")
    assert catalogue.exercise_of(tmp_path / "exercises" / "scan" / "more.cu") == "scan"


LAZY = """
from doubling import EXERCISE
import dataclasses

def reference(problem, inputs):
    import gpulab_test_helper
    from gpulab_test_package.inner import inside
    return gpulab_test_helper.answer(), inside

exercise = dataclasses.replace(EXERCISE, reference=reference)
"""


def test_a_function_of_an_exercise_imports_its_neighbours_when_it_is_called(tmp_path: Path) -> None:
    folder(tmp_path, one=LAZY, two=LAZY)
    for number, name in ((1, "one"), (22, "two")):
        (tmp_path / name / "gpulab_test_helper.py").write_text(
            "def answer():\n    import gpulab_test_number\n    return gpulab_test_number.n\n"
        )
        (tmp_path / name / "gpulab_test_number.py").write_text(f"import math\nn = {number} * math.ceil(0.5)\n")
        (tmp_path / name / "gpulab_test_package").mkdir()
        (tmp_path / name / "gpulab_test_package" / "__init__.py").write_text("")
        (tmp_path / name / "gpulab_test_package" / "inner.py").write_text(f"inside = {number + 1}\n")
    path_before, modules_before, finders = sys.path[:], set(sys.modules), sys.meta_path[:]
    catalogue = Catalogue(tmp_path)
    one, two = (catalogue.load(name).exercise.reference for name in ("one", "two"))
    for _ in range(2):
        assert one(None, None) == (1, 2)  # type: ignore[arg-type, comparison-overlap]
        assert two(None, None) == (22, 23)  # type: ignore[arg-type, comparison-overlap]
    assert (sys.path, sys.meta_path) == (path_before, finders)
    assert {name for name in set(sys.modules) - modules_before if "gpulab_test" in name} == set()


@pytest.mark.parametrize(
    "found",
    [
        "import importlib; found = importlib.import_module('gpulab_test_helper').n",
        "import importlib; found = importlib.import_module(name='gpulab_test_helper').n",
        "from importlib import import_module; found = import_module('.inner', package='gpulab_test_package').n",
        "import importlib, gpulab_test_helper; found = importlib.reload(gpulab_test_helper).n",
        "import importlib.util; found = int(importlib.util.find_spec('gpulab_test_helper').loader.get_data(NUMBER))",
        "from pkgutil import resolve_name; found = resolve_name('gpulab_test_helper:n')",
        "from runpy import run_module; found = run_module('gpulab_test_helper')['n']",
        "import gpulab_test_helper as m, pickle; found = pickle.loads(pickle.dumps(m.Kept())).n",
        "import gpulab_test_package as package; found = package.relative()",
        "import gpulab_test_package as package; found = package.absolute()",
        "import gpulab_test_namespace.inner as inner; found = inner.n",
        "exec('from gpulab_test_helper import n as found', globals()); found = globals()['found']",
        "import importlib; found = len(importlib.import_module('json').loads('[' + '0,' * (N - 1) + '0]'))",
    ],
)
def test_modules_beside_an_exercise_are_found_however_they_are_imported(tmp_path: Path, found: str) -> None:
    for number, name in ((1, "one"), (22, "two")):
        here = f"N, NUMBER = {number}, {str(tmp_path / name / 'number')!r}\n"
        late = f"def reference(problem, inputs):\n    {found}\n    return found\n"
        folder(tmp_path, **{name: f"{GOOD}import dataclasses\n{here}{late}"
                                  "exercise = dataclasses.replace(exercise, reference=reference)\n"})  # fmt: skip
        (tmp_path / name / "number").write_text(str(number))
        helper = f"n = {number}\nclass Kept:\n    def __init__(self):\n        self.n = n\n"
        (tmp_path / name / "gpulab_test_helper.py").write_text(helper)
        for package in ("gpulab_test_package", "gpulab_test_namespace"):
            (tmp_path / name / package).mkdir()
            (tmp_path / name / package / "inner.py").write_text(helper)
        (tmp_path / name / "gpulab_test_package" / "other.py").write_text(
            "def relative():\n    from .inner import n\n    return n\n"
            "def absolute():\n    import gpulab_test_helper\n    return gpulab_test_helper.n\n"
        )
        (tmp_path / name / "gpulab_test_package" / "__init__.py").write_text("from .other import *\n")
    modules_before = set(sys.modules)
    catalogue = Catalogue(tmp_path)
    for name, number in (("one", 1), ("two", 22), ("one", 1)):
        assert catalogue.load(name).exercise.reference(None, None) == number  # type: ignore[arg-type, comparison-overlap, union-attr]
    assert not [name for name in set(sys.modules) - modules_before if "gpulab_test" in name]


def test_a_neighbour_is_executed_once_and_another_module_of_its_name_comes_back(tmp_path: Path) -> None:
    source = "import gpulab_test_state\n" + LAZY.replace("from gpulab_test_package.inner import inside", "inside = 0")
    folder(tmp_path, one=source)
    (tmp_path / "one" / "gpulab_test_state.py").write_text("asked = []\n")
    (tmp_path / "one" / "gpulab_test_helper.py").write_text(
        "def answer():\n    import gpulab_test_state\n    gpulab_test_state.asked.append(1)\n"
        "    return len(gpulab_test_state.asked)\n"
    )
    usual = ModuleType("gpulab_test_state")
    sys.modules["gpulab_test_state"] = usual
    try:
        reference = Catalogue(tmp_path).load("one").exercise.reference
        if [reference(None, None)[0] for _ in range(2)] != [1, 2]:  # type: ignore[arg-type, index]
            pytest.fail("the neighbour was executed again, or the other module was taken for it")
        assert sys.modules["gpulab_test_state"] is usual
    finally:
        del sys.modules["gpulab_test_state"]


def test_only_the_students_copy_in_an_exercises_folder_is_a_submission(tmp_path: Path) -> None:
    exercises = tmp_path / "exercises"
    exercises.mkdir()
    catalogue = Catalogue(folder(exercises, scan=GOOD, reduction=GOOD))
    (exercises / "scan" / "scan.cu").write_text("mine")
    assert catalogue.is_submission(exercises / "scan" / "scan.cu")
    assert not catalogue.is_submission(exercises / "scan" / "naive.cu")
    (exercises / "scan" / "linked.cu").symlink_to(tmp_path / "solutions" / "scan.cu")
    assert not catalogue.is_submission(exercises / "scan" / "linked.cu")
    assert not catalogue.is_submission(exercises / "scan" / "old" / "scan.cu")
    assert catalogue.is_submission(exercises / "elsewhere" / "scan.cu")
    assert catalogue.is_submission(tmp_path / "solutions" / "scan" / "naive.cu")
    assert catalogue.own_copies() == (exercises / "scan" / "scan.cu",)


def test_the_checks_of_an_exercise() -> None:
    checks = checks_of(EXERCISE)
    assert [check.name for check in checks] == [
        "compile",
        "correct[n=4]",
        "correct[n=70]",
        "safe[memory]",
        "safe[barrier]",
        "speedup[1.5x]",
        "speedup[3x]",
    ]
    assert [check.kind for check in checks] == ["compile", *["correct"] * 2, *["safe"] * 2, *["speedup"] * 2]
    assert [check.required for check in checks] == [True, True, True, True, True, True, False]
    assert sum(check.max_points for check in checks) == 100
    assert all(type(check.max_points) is float for check in checks)
    assert [check.subject for check in checks] == [None, *EXERCISE.cases, *EXERCISE.safe, *EXERCISE.speed]
    assert checks_of(dataclasses.replace(EXERCISE, speed=(), compile_points=40))[0].max_points == 40


def test_an_exercise_may_call_import_by_keywords(tmp_path: Path) -> None:
    folder = tmp_path / "keywords"
    folder.mkdir()
    (folder / "beside.py").write_text("from pytest_gpulab.exercise import *\n")
    (folder / "exercise.py").write_text(
        "found = [__import__(name, fromlist=['Case']).Case for name in ('beside', 'pytest_gpulab.exercise')]\n"
    )
    with pytest.raises(BrokenExercise, match="must be bound to an Exercise"):
        Catalogue(tmp_path).load("keywords")
