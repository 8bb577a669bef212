"""The platforms, with their result files and exit codes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Platform:
    """A platform that starts an autograder for one student at a time."""

    result: Path  # the default path of the result file; relative to the working folder unless absolute
    # whether only instructors see the output of the command. pytest's output names hidden cases
    is_log_private: bool = False
    failed: int = 0  # exit code if required checks failed
    not_graded: int = 0  # exit code if nothing could be graded


PLATFORMS: Mapping[str, Platform] = {
    "gradescope": Platform(Path("/autograder/results/results.json"), is_log_private=True),
    "classroom50": Platform(Path("result.json"), not_graded=1),
    "prairielearn": Platform(Path("/grade/results/results.json"), is_log_private=True),
    "github": Platform(Path("gpulab-junit.xml"), failed=1, not_graded=2),
}
"""Gradescope and PrairieLearn read the result file only; Classroom 50 takes any other exit code than 0 for its own
failure; a step of a GitHub workflow fails with any other code than 0."""
