"""Protection of pytest's configuration: submissions must not configure the run or add code to it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import options


@contextmanager
def trusted_only(config: pytest.Config) -> Iterator[None]:
    """Prevent pytest from loading the `conftest.py` of students' folders while it loads the instructor's.

    pytest imports the `conftest.py` of every path on the command line, and those of folders called `test*`.

    Raises:
        pytest.UsageError: the configuration file that pytest found may be a student's.
    """
    known = config.known_args_namespace
    given, unwanted = known.file_or_dir, known.noconftest
    if options.is_grading_asked_for(config, known):
        _refuse_foreign_configuration(config)
        known.file_or_dir = _own_conftest(config)
        known.noconftest = unwanted or not known.file_or_dir
    try:
        yield
    finally:
        known.file_or_dir, known.noconftest = given, unwanted


def course_folder(config: pytest.Config) -> Path:
    """Return rootdir, or the working folder if pytest derived rootdir from paths of students."""
    is_certain = config.inipath is not None or config.getoption("rootdir") is not None
    return config.rootpath if is_certain else config.invocation_params.dir


def _own_conftest(config: pytest.Config) -> list[str]:
    """Return the conftest.py of the working folder or, if it has none, of the nearest one above it up to rootdir."""
    here = config.invocation_params.dir
    above = here.parents if here.is_relative_to(config.rootpath) else ()
    folders = (folder for folder in (here, *above) if folder.is_relative_to(config.rootpath) or folder == here)
    return [str(folder / "conftest.py") for folder in folders if (folder / "conftest.py").is_file()][:1]


def _refuse_foreign_configuration(config: pytest.Config) -> None:
    """Refuse a configuration file that is neither named with `-c` nor in the working folder or above it.

    pytest would find a `pytest.ini` beside a submission before the instructor's.

    Raises:
        pytest.UsageError: pytest found a file elsewhere, or a class is graded from within its own submissions.
    """
    found, here = config.inipath, config.invocation_params.dir
    submissions = config.known_args_namespace.gpulab_submissions
    if submissions and here.resolve().is_relative_to((here / submissions).resolve()):
        raise pytest.UsageError(
            f"{here} is inside the submissions; no configuration or code is read there: run from the course's folder"
        )
    if submissions and config.rootpath.resolve().is_relative_to((here / submissions).resolve()):
        raise pytest.UsageError(
            f"rootdir would be {config.rootpath}, which is inside the submissions: "
            "write --gpulab-submissions=DIR, with an equals sign"
        )
    if found and not _is_named(config) and found.parent not in (here, *here.parents):
        raise pytest.UsageError(
            f"{found} may be a student's and is not used as configuration: "
            "run from the course's folder, or name the file with -c"
        )


def _is_named(config: pytest.Config) -> bool:
    """Return whether the command line names the configuration file; an option in a found file does not count."""
    given = [*config.invocation_params.args, *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    return any(str(word).startswith(("-c", "--config-file")) for word in given)
