"""The files that an instructor uploads to a platform, from templates."""

import hashlib
import html
import json
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpulab.authoring.handout import HandoutError, write_handout
from pytest_gpulab.exercise_rules import NAIVE
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.findings import listed

from .weights import KEY, WEIGHTS_FILE, text_of, weights_of_course
from .wheel import constraints, python_version, wheel, wheel_name

PLATFORM_S = 600
LIMIT_S = 540  # leaves a minute for the start and for writing the result
CALIBRATIONS = "calibration"
_EXECUTABLE = ("run_autograder", "setup.sh", "grade.sh")
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Layout:
    """The places of a package's parts, relative to its folder."""

    grader: str  # the folder of the wheel and the requirements
    exercises: str
    skeletons: str = ""  # the folder of the students' files; empty if there is none
    is_for_students: bool = False  # whether students see the exercises, which therefore have no hidden cases


LAYOUTS: Mapping[str, Layout] = {
    "gradescope": Layout(".", "exercises"),
    "prairielearn": Layout("image", "question/tests/exercises", "question/clientFilesQuestion"),
    "classroom50": Layout("@FIRST@", "@FIRST@/exercises"),
    "github": Layout("gpulab", "gpulab/exercises", ".", is_for_students=True),
    "docker": Layout("gpulab", "exercises", is_for_students=True),
}


def write_package(platform: str, exercises: Sequence[Path], out: Path, image: str) -> list[str]:
    """Write the files into a new folder, or into a new ZIP if `out` ends in `.zip`. Return their names.

    `platform` is a name in `LAYOUTS`; the exercises' folders are in one folder; `image` is the container's image.
    Raises FileExistsError if `out` exists, OSError if it cannot be written, BrokenExercise if an exercise cannot be
    loaded, HandoutError if a hidden case cannot be removed or an exercise asks for a whole program, and WeightError if
    the course's weights cannot be read.
    """
    if out.exists():
        raise FileExistsError(17, "exists already", str(out))
    catalogue = Catalogue(exercises[0].parent)
    chosen = [_kernels_of(catalogue, folder.name) for folder in exercises]
    of_course = weights_of_course(exercises[0].absolute().parents[1])
    weights = {each.name: of_course[each.name] for each in chosen if of_course.get(each.name, 1) != 1}
    values, layout = _values(chosen, image, weights), LAYOUTS[platform]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "package"
        _fill(folder, _TEMPLATES / platform, values)
        place = {part: folder / _filled(getattr(layout, part), values) for part in ("grader", "exercises", "skeletons")}
        _write_grader(place["grader"])
        _write_exercises(place["exercises"], chosen, layout)
        if weights:
            (place["exercises"] / WEIGHTS_FILE).write_text(text_of(weights), encoding="utf-8")
        if weights and platform == "docker":  # students run pytest itself
            lines = text_of(weights).replace("\n", "\n    ").rstrip()
            (folder / "pytest.ini").write_text(f"[pytest]\n{KEY} =\n    {lines}\n", encoding="utf-8")
        for each in chosen if layout.skeletons else ():
            place["skeletons"].mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_skeleton(each), place["skeletons"] / f"{each.name}.cu")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if out.suffix == ".zip":
            _zip(folder, files, out)
        else:
            shutil.copytree(folder, out)
        return [path.relative_to(folder).as_posix() for path in files]


def _kernels_of(catalogue: Catalogue, name: str) -> LoadedExercise:
    loaded = catalogue.load(name)
    if not isinstance(loaded, LoadedExercise):
        raise HandoutError(f"{name} asks for a whole program, which no package has the compilers for")
    return loaded


def _values(chosen: Sequence[LoadedExercise], image: str, weights: Mapping[str, float]) -> dict[str, str]:
    names = [each.name for each in chosen]
    points = sum(check.max_points * weights.get(each.name, 1) for each in chosen for check in checks_of(each.exercise))
    downloads = [f'  <pl-file-download file-name="{name}.cu"></pl-file-download>' for name in names]
    return {
        "TITLE": listed([each.exercise.title for each in chosen], "and"),
        "FIRST": names[0],
        "FILES": ", ".join(f"{name}.cu" for name in names),
        "DOWNLOADS": "\n".join(downloads),
        "POINTS": f"{points:g}",
        "PYTHON": python_version(),
        "IMAGE": image,
        "UUID": str(uuid.UUID(bytes=hashlib.sha256(repr(names).encode()).digest()[:16], version=4)),
        "LIMIT_S": str(LIMIT_S),
        "PLATFORM_S": str(PLATFORM_S),
        "PLATFORM_MIN": str(PLATFORM_S // 60),
    }


def _fill(folder: Path, templates: Path, values: Mapping[str, str]) -> None:
    for template in sorted(path for path in templates.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        target = folder / _filled(template.relative_to(templates).as_posix(), values)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(template.read_text(encoding="utf-8"), values, target.suffix), encoding="utf-8")
        target.chmod(0o755 if target.name in _EXECUTABLE else 0o644)


def _filled(text: str, values: Mapping[str, str], suffix: str = "") -> str:
    """Return a template with its values, which are escaped in JSON and HTML."""
    for name, value in values.items():
        if suffix == ".json":
            value = json.dumps(value, ensure_ascii=False)[1:-1]
        elif suffix == ".html" and name != "DOWNLOADS":
            value = html.escape(value)
        text = text.replace(f"@{name}@", value)
    return text


def _write_grader(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / wheel_name()).write_bytes(wheel())
    (folder / "requirements.txt").write_text(f"./{wheel_name()}\n")
    (folder / "constraints.txt").write_text(constraints())


def _write_exercises(folder: Path, chosen: Sequence[LoadedExercise], layout: Layout) -> None:
    """Copy the exercises and their calibrations; a student's own copy and bytecode are left out."""
    folder.mkdir(parents=True)
    for each in chosen:
        own = shutil.ignore_patterns("__pycache__", *(() if layout.is_for_students else (f"{each.name}.cu",)))
        shutil.copytree(each.folder, folder / each.name, ignore=own)
    calibrations = chosen[0].folder.parent / CALIBRATIONS
    if calibrations.is_dir():
        shutil.copytree(calibrations, folder / CALIBRATIONS)
    if layout.is_for_students:
        _remove_hidden_cases(folder)


def _remove_hidden_cases(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        course = Path(name) / "course"
        shutil.copytree(folder, course / "exercises")
        write_handout(course, Path(name) / "copy")
        shutil.rmtree(folder)
        shutil.copytree(Path(name) / "copy" / "exercises", folder)


def _skeleton(loaded: LoadedExercise) -> Path:
    own = loaded.folder / f"{loaded.name}.cu"
    return own if own.is_file() else loaded.folder / NAIVE


def _zip(folder: Path, files: Sequence[Path], out: Path) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(folder).as_posix())
