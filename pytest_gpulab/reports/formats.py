"""The formats of report files by name, each with the module that writes it.

Such a module has a function `write(path, gradebook, context)`. It may have `check(path, context)`, which refuses before
anything is graded. Both raise `ReportError` or `OSError`. `settings` lists the names.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from uuid import uuid4

from .context import Context, ReportError
from .gradebook import Gradebook

MODULES: Mapping[str, str] = {
    "json": "files.json_report",
    "csv": "files.spreadsheet",
    "gradescope": "files.gradescope",
    "classroom50": "files.classroom50",
    "prairielearn": "files.prairielearn",
    "github": "files.github",
    "ctrf": "files.ctrf",
    "html": "instructor.page",
    "annotated": "pages.annotated_html",
    "feedback": "pages.feedback",
    "explain": "pages.explained_page",
}


def check(name: str, path: Path, context: Context) -> None:
    """Raise ReportError before grading if a report cannot be written, and leave no trace."""
    own_check = getattr(_module(name), "check", check_file)
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own_check(path, context)
    except (OSError, ReportError) as error:
        raise _cannot_write(path, error) from None
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def check_file(path: Path, context: Context) -> None:
    """Check that a file can be written, or raise OSError: the default check of formats."""
    is_new = not path.exists()
    path.open("ab").close()
    if is_new:
        path.resolve().unlink()  # and not the link that leads there


def check_folder(path: Path) -> None:
    """Check that files can be written into a folder, which is created if necessary, or raise OSError."""
    is_new = not path.exists()
    path.mkdir(exist_ok=True)
    tempfile.TemporaryFile(dir=path).close()
    if is_new:
        path.rmdir()


def write(name: str, path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write a report, into a new folder if necessary.

    If it cannot be written, the file of an earlier run is removed, so that it is not mistaken for this run's, and
    ReportError is raised.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _module(name).write(path, gradebook, context)
    except (OSError, ImportError, MemoryError, ReportError) as error:
        with suppress(OSError):
            if path.is_file():
                path.unlink()
        raise _cannot_write(path, error) from None


def write_not_graded(name: str, path: Path, text: str, context: Context) -> None:
    """Write the file of a platform for a submission that could not be graded, by no fault of the student.

    `name` is `gradescope`, `classroom50`, `prairielearn` or `github`; `text` is the reason, for the student.
    """
    try:
        write_text(path, _module(name).not_graded(text, context))
    except OSError as error:
        raise _cannot_write(path, error) from None


def write_text(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write a file whole or not at all: a run that is killed leaves no part of a table that looks like all of it.

    Anything but a plain file, and files that cannot be replaced, are written in place. Raises OSError if it cannot be
    written.
    """
    data, new = text.encode(encoding), path.with_name(f".{uuid4().hex}.new")
    is_special = path.is_symlink() or (path.exists() and not path.is_file())
    if is_special or not os.access(path.parent, os.W_OK):
        path.write_bytes(data)
        return
    try:
        new.touch()
        if path.exists():
            shutil.copymode(path, new)
        new.write_bytes(data)
        try:
            new.replace(path)
        except OSError:  # it is a mount of its own, as in a container
            path.write_bytes(data)
    except OSError as error:
        error.filename = str(path)  # the one that was asked for
        raise
    finally:
        new.unlink(missing_ok=True)


def _module(name: str) -> ModuleType:
    return import_module(f"pytest_gpulab.reports.{MODULES[name]}")


def _cannot_write(path: Path, error: Exception) -> ReportError:
    if isinstance(error, OSError):
        return ReportError(f"cannot write the report {error.filename or path}: {error.strerror or error}")
    if isinstance(error, (ImportError, MemoryError)):  # a library is not loaded either where memory is short
        return ReportError(f"cannot write the report {path}: too little memory, or a broken library: {error!r}")
    return ReportError(f"cannot write the report {path}: {error}")
