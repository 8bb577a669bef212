"""The smallest failing inputs of wrong kernels are right: each fails again when its own command runs.

The suite replays every `SAMPLED`-th kernel of each exercise. `python tests/grading/test_smallest_inputs_replayed.py`
replays all of them, in about 3 minutes of CPU time, and prints those that have an input.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from pathlib import Path

import pytest

from pytest_gpulab.command import main
from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.grade import SmallestInput
from pytest_gpulab.grading.smallest_failing import smallest_failing

ROOT = Path(__file__).resolve().parents[2]
SAMPLED = 12
SEED = 20
FOLDERS = sorted(path for path in (ROOT / "tests" / "wrong").iterdir() if not path.name.endswith("_host"))
SAMPLE = [path for folder in FOLDERS for path in sorted(folder.glob("*.cu"))[SAMPLED // 2 :: SAMPLED]]


def smallest(path: Path) -> SmallestInput | None:
    """Return the smallest failing input of a wrong kernel, if it has one."""
    loaded, (device, _) = Catalogue(ROOT / "exercises").load(path.parent.name), open_device("sim")
    assert isinstance(loaded, LoadedExercise)
    found = smallest_failing(loaded, path, device, SEED)
    return found.smallest if found else None


def replayed(path: Path, found: SmallestInput) -> tuple[int, str]:
    """Run an input's command; return its exit code and what it prints as one line."""
    _, explain, _, *words = shlex.split(found.command)
    printed = io.StringIO()
    options = ("--exercises", str(ROOT / "exercises"), "--format", "text")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main.main([explain, str(path), *words, *options])
    return code, " ".join(printed.getvalue().split())


def is_right(path: Path, found: SmallestInput) -> bool:
    """Return whether the input fails again, with the values that the finding names."""
    code, printed = replayed(path, found)
    given, _, failure = found.what.partition(": ")
    return code == 1 and " ".join(given.split()) in printed and failure in printed


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_command_of_the_smallest_input_fails_again(path: Path) -> None:
    found = smallest(path)
    assert found is None or is_right(path, found), found


@pytest.mark.parametrize(
    "name",
    [
        "matrix_sum/pitch_of_whole_tiles",  # the figure has smaller blocks, the summary has not
        "divergence/cached_result",  # the wrong values depend on an input that runs before
        "scan/offset_in_sixteen_bits",  # values that no command can list
    ],
)
def test_inputs_that_are_hard_to_repeat(name: str) -> None:
    path = ROOT / "tests" / "wrong" / f"{name}.cu"
    found = smallest(path)
    assert found is not None and is_right(path, found), found


def test_the_sample_has_kernels_of_each_exercise() -> None:
    assert len(SAMPLE) > 15 and {path.parent for path in SAMPLE} == set(FOLDERS)


if __name__ == "__main__":
    wrong = 0
    for kernel in (path for folder in FOLDERS for path in sorted(folder.glob("*.cu"))):
        try:
            given = smallest(kernel)
            verdict = "none" if given is None else "right" if is_right(kernel, given) else "WRONG"
        except Exception as error:
            verdict = f"WRONG: {error!r}"
        wrong += verdict.startswith("WRONG")
        print(verdict, kernel.relative_to(ROOT), flush=True)
    sys.exit(wrong > 0)
