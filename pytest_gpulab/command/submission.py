"""The exercise of a file on the command line."""

from pathlib import Path

from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue, LoadedExercise, LoadedProgram

from . import CommandError


def exercise_of(file: Path, exercises: Path | None) -> LoadedExercise:
    """Return the exercise of a submission.

    Without an exercises folder it is the nearest `exercises`: in the working folder, the file's folder and the folders
    above. Raises CommandError if there is no such file or exercise, or the exercise cannot be loaded.
    """
    if not file.is_file():
        raise CommandError(f"no such file: {file}")
    near = [Path.cwd(), *file.resolve().parents, *Path.cwd().parents]
    folders = [exercises] if exercises else [folder / "exercises" for folder in near]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise CommandError("no exercises folder: run from the course's folder, or name it with --exercises FOLDER")
    catalogue = Catalogue(folder.resolve())
    name = catalogue.exercise_of(file.resolve())
    if name is None:
        names = ", ".join(catalogue.names)
        raise CommandError(f"{file} belongs to no exercise: its name or its folder's must be one of {names}")
    try:
        loaded = catalogue.load(name)
    except BrokenExercise as error:
        raise CommandError(str(error)) from None
    if isinstance(loaded, LoadedProgram):
        raise CommandError(f"{name} asks for a whole program: run it with gpulab run {file}")
    return loaded
