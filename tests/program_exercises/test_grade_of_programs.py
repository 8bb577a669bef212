"""`gpulab grade` of whole programs."""

from pathlib import Path

import pytest

from pytest_gpulab.command.main import main

PROGRAM_EXERCISE = """
from pytest_gpulab.program_exercise import Launches, Program, ProgramCase, ProgramExercise, ProgramSafe

exercise = ProgramExercise(
    title="print a number",
    cases=(ProgramCase("seven", lambda rng: Program("7", args=("7",), launches=(Launches("show"),)), 90),),
    safe=(ProgramSafe("leak", 10),),
)
"""
PROGRAM = """#include <cstdio>
#include <cstdlib>
__global__ void show(int number) { printf("%d\\n", number); }
int main(int argc, char **argv)
{
    show<<<1, 1>>>(atoi(argv[1]));
    cudaDeviceSynchronize();
}
"""


def grade(*more: str) -> int:
    return main(["grade", "--for", "github", *more, "--result=out/result.json", "--device=sim", "handed_in"])


def test_whole_programs_are_graded_if_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    for name, text in (("exercises/seven/exercise.py", PROGRAM_EXERCISE), ("handed_in/seven.cu", PROGRAM)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    exercise = "--exercises=exercises/seven"
    assert grade(exercise) == 2
    assert "3 skipped" in capsys.readouterr().out, "the instructor sees pytest's output"
    assert grade(exercise, "--programs") in (0, 1)
    assert capsys.readouterr().out.startswith("gpulab grade: ")
    assert Path("summary.md").read_text().count("Not graded") == 1
