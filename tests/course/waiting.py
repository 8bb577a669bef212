"""An exercise that keeps its graders waiting until a test lets them go, and tells whose they are."""

from __future__ import annotations

from pathlib import Path

from trouble import exercises_in

# The reference is the instructor's code: it can tell who grades, and keep him at it.
WAITING = """
import os, time
from pathlib import Path
server = Path(f"/proc/{{os.getppid()}}/stat").read_text().rpartition(")")[2].split()
(Path({folder!r}) / f"{{server[1]}}.started").touch()
while not (Path({folder!r}) / "go").exists():
    time.sleep(0.01)
"""


def waiting_exercises_in(folder: Path) -> Path:
    """Write an exercise that waits for a file `go` and tells in a file's name which worker of Dask's grades."""
    exercises = exercises_in(folder)
    exercise = exercises / "twice" / "exercise.py"
    lines = "".join(f"    {line}\n" for line in WAITING.format(folder=str(folder)).strip().splitlines())
    text = exercise.read_text().replace(
        "def inputs(problem, pattern, rng):\n", f"def inputs(problem, pattern, rng):\n{lines}"
    )
    exercise.write_text(text)
    return exercises


def graders_in(folder: Path) -> set[int]:
    """Return the workers that have begun to grade the exercise that waits."""
    return {int(path.stem) for path in folder.glob("*.started")}
