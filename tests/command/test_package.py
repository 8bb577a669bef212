"""`gpulab package`: each package is used as its platform would use it, with a hostile submission."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import check_jsonschema
import jsonschema
import pytest
from packaging.markers import Marker
from platform_machine import Machine, works
from ruamel.yaml import YAML

sys.path += [str(Path(__file__).parents[1] / name) for name in ("course", "plugin")]
from course import EXERCISE, NAIVE, RIGHT, SKELETON, WRONG
from test_planted import MARK, PLANTS

from pytest_gpulab.authoring.scaffold import shipped
from pytest_gpulab.command.main import main
from pytest_gpulab.deployment import package, wheel
from pytest_gpulab.deployment.package import LAYOUTS
from pytest_gpulab.deployment.weights import WeightError, parsed, weights_of_course

pytestmark = pytest.mark.e2e
needs_bubblewrap = pytest.mark.skipif(not works(), reason="bubblewrap does not work here")
SCHEMAS = Path(__file__).parents[1] / "reports"
TITLE = 'Twice "n" < 3n'
HIDDEN = 'Case("n=77", 77, 20, hidden=True)'
POINTS = {"hidden": 30, "visible": 30}
RUNNER = {"CLASSROOM": "gpu", "ASSIGNMENT": "twice", "SUBMISSION_TAG": "submit/1", "COMMIT_URL": "https://x.org/c"}


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    text = EXERCISE.replace('"Every element times two"', repr(TITLE))
    text = text.replace('Case("n=100", 100, 20)', f'Case("n=100", 100, 0), {HIDDEN}')
    write(tmp_path / "exercises/twice/exercise.py", text)
    write(tmp_path / "exercises/twice/naive.cu", NAIVE)
    write(tmp_path / "exercises/twice/twice.cu", SKELETON)
    write(tmp_path / "exercises/twice/__pycache__/x.pyc", "")
    write(tmp_path / "exercises/calibration/a_gpu.toml", "")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def packaged(platform: str, out: str = "out", *more: str) -> int:
    return main(["package", platform, "--exercises", "exercises/twice", "--out", out, *more])


def plant(folder: Path) -> None:
    """Hand in a wrong kernel, with configuration and code beside it."""
    for name, text in {**PLANTS, "twice.cu": WRONG, "results.json": '{"score": 100}', "result.json": "{}"}.items():
        write(folder / name, text)


@pytest.mark.parametrize("platform", LAYOUTS)
def test_a_package_says_what_to_do_with_it(course: Path, platform: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert packaged(platform) == 0
    *files, last = capsys.readouterr().out.splitlines()
    assert last == "wrote out; NOTES.md says what to do with it"
    assert "NOTES.md" in files and all(Path("out", name).is_file() for name in files)
    notes = Path("out/NOTES.md").read_text()
    assert "twice.cu" in notes and TITLE in notes
    texts = [path.read_text() for path in Path("out").rglob("*") if path.suffix != ".whl" and path.is_file()]
    assert not [text for text in texts if re.search(r"@[A-Z_]+@", text)]
    assert not list(Path("out").rglob("*.pyc")) and list(Path("out").rglob("calibration"))
    is_seen_by_students = platform in ("github", "docker")
    assert ("n=77" in "".join(texts)) != is_seen_by_students


def test_bytecode_beside_a_template_is_left_out(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip compiles every Python file that it installs, also the templates."""
    shutil.copytree(package._TEMPLATES, "templates", ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir("templates", quiet=1, force=True)
    monkeypatch.setattr(package, "_TEMPLATES", course / "templates")
    assert packaged("classroom50") == 0
    assert list(Path("templates").rglob("*.pyc")) and not list(Path("out").rglob("*.pyc"))


def test_a_distribution_need_not_say_which_pythons_it_supports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backport of importlib.metadata, which some packages install, raises KeyError for a missing field."""

    class Metadata(Message):
        def __getitem__(self, name: str) -> Any:
            raise KeyError(name)

    monkeypatch.setattr(wheel.metadata, "metadata", lambda name: Metadata())
    assert wheel._pythons("numpy") == f"python_version <= '{wheel.python_version()}'"


def test_a_zip_keeps_what_can_be_executed(course: Path) -> None:
    assert packaged("gradescope", "autograder.zip") == 0
    with zipfile.ZipFile("autograder.zip") as archive:
        modes = {info.filename: info.external_attr >> 16 & 0o111 for info in archive.infolist()}
    assert modes["setup.sh"] and modes["run_autograder"] and not modes["NOTES.md"]
    assert "exercises/twice/exercise.py" in modes and "exercises/twice/twice.cu" not in modes


def test_the_same_exercises_make_the_same_package(course: Path) -> None:
    assert packaged("prairielearn", "a") == packaged("prairielearn", "b") == 0
    files = [path.relative_to("a") for path in Path("a").rglob("*") if path.is_file()]
    assert all((Path("a") / name).read_bytes() == (Path("b") / name).read_bytes() for name in files)


def test_mistakes_are_one_line(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("there").mkdir()
    assert packaged("docker", "there") == 2
    write(course / "other/scan/exercise.py", "")
    assert main(["package", "docker", "--exercises", "exercises/twice", "other/scan", "--out", "out"]) == 2
    assert main(["package", "docker", "--exercises", "other/scan", "--out", "out"]) == 2
    hidden = (course / "exercises/twice/exercise.py").read_text().replace("hidden=True", "hidden=bool(1)")
    write(course / "exercises/twice/exercise.py", hidden)
    assert packaged("docker") == 2
    assert packaged("gradescope", "there/no/out.zip") == 2
    said = capsys.readouterr().err.splitlines()
    reasons = (
        "there exists already",
        "in one folder",
        "must be bound to an Exercise",
        "computes `hidden`",
        "cannot write",
    )
    assert [reason in line for reason, line in zip(reasons, said, strict=True)] == [True] * 5


def test_json_files_follow_their_schemas(course: Path) -> None:
    for platform in ("prairielearn", "docker"):
        assert packaged(platform, platform, "--image=registry.example.org/gpu/lab:1") == 0
    info = validated(Path("prairielearn/question/info.json"), "prairielearn_question")
    assert info["title"] == TITLE and info["externalGradingOptions"]["image"] == "registry.example.org/gpu/lab:1"
    assert validated(Path("docker/.devcontainer/devcontainer.json"), "devcontainer")["name"] == TITLE
    question = Path("prairielearn/question/question.html").read_text()
    assert "Twice &quot;n&quot; &lt; 3n" in question and 'file-names="twice.cu"' in question
    assert Path("prairielearn/question/clientFilesQuestion/twice.cu").read_text() == SKELETON


def test_an_exercise_of_a_whole_program_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    exercise = shipped("exercises") / "reduction_host"
    assert main(["package", "docker", "--exercises", str(exercise), "--out", str(tmp_path / "out")]) == 2
    assert "reduction_host asks for a whole program" in capsys.readouterr().err


def validated(path: Path, schema: str) -> Any:
    data = json.loads(path.read_text())
    jsonschema.validate(data, json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))
    return data


def test_the_workflow_follows_githubs_schema(course: Path) -> None:
    assert packaged("github") == 0
    (path,) = Path("out").glob(".github/workflows/*.yml")
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "github-workflows.json").read_text(encoding="utf-8"))
    workflow = YAML(typ="safe").load(path)
    jsonschema.validate(workflow, schema)
    assert workflow["permissions"] == {"contents": "read"}
    workflow["jobs"]["grade"]["steps"][0]["use"] = "x"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(workflow, schema)


def test_constraints_are_for_this_python_and_older_ones() -> None:
    pins = dict(line.split("; ") for line in wheel.constraints().splitlines())
    names = {pin.partition("==")[0] for pin in pins}
    assert {"numpy", "pytest", "pluggy"} <= names and "matplotlib" not in names
    markers = {pin.partition("==")[0]: Marker(marker) for pin, marker in pins.items()}
    assert all(marker.evaluate({"python_version": wheel.python_version()}) for marker in markers.values())
    assert not any(marker.evaluate({"python_version": "3.99"}) for marker in markers.values())
    assert markers["jinja2"].evaluate({"python_version": "3.10"})
    assert not markers["pytest"].evaluate({"python_version": "3.8"})


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine", ("/autograder", "/grade", "/work", "/opt", "/course"))
    yield made
    assert not list((tmp_path / "machine").rglob("mark"))


def succeeds(machine: Machine, command: str, folder: str, **variables: str) -> None:
    done = machine.run(command, folder, **variables)
    assert done.returncode == 0, done.stdout + done.stderr


def place(source: str, machine: Machine, target: str) -> None:
    """Copy the contents of a folder to the machine."""
    import shutil

    shutil.copytree(source, machine.path(target), dirs_exist_ok=True)


def checked(path: Path, platform: str) -> Any:
    data = json.loads(path.read_text())
    jsonschema.validate(data, json.loads((SCHEMAS / f"{platform}.schema.json").read_text()))
    return data


@needs_bubblewrap
def test_gradescope(course: Path, machine: Machine) -> None:
    """The ZIP is unpacked to /autograder/source; setup.sh runs once and run_autograder for each submission."""
    assert packaged("gradescope") == 0
    place("out", machine, "/autograder/source")
    machine.path("/autograder/results").mkdir()
    succeeds(machine, "/autograder/source/setup.sh", "/autograder")
    plant(machine.path("/autograder/submission"))
    succeeds(machine, "/autograder/source/run_autograder", "/autograder/submission", **{MARK: "/autograder/mark"})
    results = checked(machine.path("/autograder/results/results.json"), "gradescope")
    assert results["score"] == POINTS["hidden"] and not re.search(r"\b77\b", json.dumps(results["tests"]))


@needs_bubblewrap
def test_prairielearn(course: Path, machine: Machine) -> None:
    """The image is built from its Dockerfile; the entry point runs in it, with /grade of PrairieLearn."""
    assert packaged("prairielearn") == 0
    build(machine, Path("out/image"))
    place("out/question/tests", machine, "/grade/tests")
    plant(machine.path("/grade/student"))
    entry = json.loads(Path("out/question/info.json").read_text())["externalGradingOptions"]["entrypoint"]
    succeeds(machine, entry, "/grade/student", **{MARK: "/grade/mark"})
    assert checked(machine.path("/grade/results/results.json"), "prairielearn")["score"] == POINTS["hidden"] / 100


@needs_bubblewrap
def test_classroom50(course: Path, machine: Machine) -> None:
    """The script beside its bundle runs in the student's checkout."""
    assert packaged("classroom50") == 0
    place("out/twice", machine, "/work/bundle")
    plant(machine.path("/work/checkout"))
    machine.give_python("/opt/python", makes_further_ones=True)
    variables = {**RUNNER, "RELEASE_URL": "https://x.org/r", MARK: "/work/mark"}
    succeeds(machine, "python3 /work/bundle/autograder.py", "/work/checkout", **variables)
    assert checked(machine.path("/work/checkout/result.json"), "classroom50")["score"] == POINTS["hidden"]


@needs_bubblewrap
def test_github(course: Path, machine: Machine) -> None:
    """The steps of the workflow run in the checkout; only actions of others are left out."""
    assert packaged("github") == 0
    place("out", machine, "/work/checkout")
    plant(machine.path("/work/checkout"))
    machine.path("/work/temp").mkdir()
    variables = {"RUNNER_TEMP": "/work/temp", "GITHUB_STEP_SUMMARY": "/work/summary.md", MARK: "/work/mark"}
    workflow = YAML(typ="safe").load(next(Path("out").glob(".github/workflows/*.yml")))
    install, grade = (step for step in workflow["jobs"]["grade"]["steps"] if "run" in step)
    succeeds(machine, f"set -e\n{install['run']}", f"/work/checkout/{install['working-directory']}", **variables)
    done = machine.run(f"set -e\n{grade['run']}", "/work/checkout", **variables)
    assert done.returncode == 1 and f"{POINTS['visible']} of 80 points" in done.stdout, done.stdout + done.stderr
    assert f"### {POINTS['visible']} of 80 points" in machine.path("/work/summary.md").read_text()
    (suite,) = ElementTree.parse(machine.path("/work/temp/gpulab-junit.xml")).getroot()
    assert suite.get("failures") != "0"


@needs_bubblewrap
def test_docker(course: Path, machine: Machine) -> None:
    """The image's command grades the student's own copies in /course."""
    assert packaged("docker") == 0
    command = build(machine, Path("out"))
    place("out", machine, "/course")
    write(machine.path("/course/exercises/twice/twice.cu"), RIGHT)
    done = machine.run(" ".join(json.loads(command)), "/course")
    assert re.search(r"twice +passed +70/80\b", done.stdout), done.stdout + done.stderr


def build(machine: Machine, context: Path) -> str:
    """Follow the instructions of a Dockerfile, which this reads as far as they are used; return its CMD."""
    folder, command = "/", ""
    for line in (context / "Dockerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            assert re.fullmatch(r"python:3\.\d+-slim", rest)
            machine.give_python("/opt/python")
        elif word == "COPY":
            source, target = rest.split()
            place(str(context / source), machine, target)
        elif word == "WORKDIR":
            folder = rest
        elif word == "RUN":
            succeeds(machine, rest, folder)
        elif word == "CMD":
            command = rest
        else:
            assert word == "USER"
    return command


def test_a_wheel_has_every_file_that_is_installed() -> None:
    import io

    with zipfile.ZipFile(io.BytesIO(wheel.wheel())) as archive:
        names = set(archive.namelist())
    assert {"pytest_gpulab/include/gpulab.cuh", "pytest_gpulab/py.typed"} <= names
    templates = {path for path in package._TEMPLATES.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    root = package._TEMPLATES.parents[2]
    assert {path.relative_to(root).as_posix() for path in templates} <= names
    assert not [name for name in names if name.endswith(".pyc")] and os.sep == "/"


CONFIGURATIONS = [
    ("pyproject.toml", '[tool.pytest.ini_options]\ngpulab_weights = ["twice = 2.5", "scan = 3"]\n'),
    ("pytest.ini", "[pytest]\ngpulab_weights =\n    twice = 2.5\n    scan = 3\n"),
    ("setup.cfg", "[tool:pytest]\ngpulab_weights = twice = 2.5\n"),
]


LIKE_PYTEST_9 = {
    "pytest.toml": '[pytest]\ngpulab_weights = ["twice = 2.5"]\n',
    "pyproject.toml": '[tool.pytest]\ngpulab_weights = ["twice = 2.5"]\n[tool.other]\n',
    "tox.ini": "[pytest]\ngpulab_weights = twice = 2.5\n",
    "../pyproject.toml": CONFIGURATIONS[0][1],
}


@pytest.mark.parametrize(("name", "text"), LIKE_PYTEST_9.items(), ids=LIKE_PYTEST_9)
def test_weights_are_read_where_pytest_reads_them(tmp_path: Path, name: str, text: str) -> None:
    course = tmp_path / "course"
    course.mkdir()
    write(course / "pyproject.toml", "[tool.ruff]\n")
    write(course / name, text)
    assert weights_of_course(course)["twice"] == 2.5
    reader = SettingsReader()
    pytest.main([str(course), "--collect-only", "-p", "no:cacheprovider"], plugins=[reader])
    assert "twice = 2.5" in reader.weights


class SettingsReader:
    """A plugin that keeps the weights that pytest itself reads."""

    def pytest_configure(self, config: pytest.Config) -> None:
        self.weights = config.getini("gpulab_weights")


def test_two_weights_of_an_exercise_are_a_mistake() -> None:
    with pytest.raises(WeightError, match="gpulab_weights: scan has two weights: remove one"):
        parsed(["scan = 1.5", "", "scan=2"])


def test_a_file_without_settings_hides_those_after_it(tmp_path: Path) -> None:
    write(tmp_path / "pytest.ini", "[pytest]\n")
    write(tmp_path / "pyproject.toml", CONFIGURATIONS[0][1])
    assert weights_of_course(tmp_path) == {}


@pytest.mark.parametrize(("name", "text"), CONFIGURATIONS, ids=[name for name, _ in CONFIGURATIONS])
@pytest.mark.parametrize("platform", LAYOUTS)
def test_a_package_carries_the_weights_of_its_exercises(course: Path, platform: str, name: str, text: str) -> None:
    write(course / name, text)
    assert packaged(platform) == 0
    (carried,) = Path("out").rglob("weights.txt")
    assert carried.read_text() == "twice = 2.5\n" and (carried.parent / "twice/exercise.py").is_file()
    if platform == "gradescope":
        assert "with 250 points" in Path("out/NOTES.md").read_text()
    if platform == "docker":
        assert Path("out/pytest.ini").read_text() == "[pytest]\ngpulab_weights =\n    twice = 2.5\n"


def test_a_grade_on_a_platform_has_the_weight(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(course / "pyproject.toml", CONFIGURATIONS[0][1])
    assert packaged("gradescope") == 0
    write(course / "in/twice.cu", RIGHT)
    command = ["grade", "in", "--for", "gradescope", "--exercises", "out/exercises", "--result", "result.json"]
    assert main([*command, "--device", "sim"]) == 0
    result = json.loads(Path("result.json").read_text())
    assert result["score"] == 225 and "twice x 2.5" in result["output"]
    assert "225 of 250 points" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pytest.ini", "[pytest]\ngpulab_weights = twice\n", "gpulab_weights: 'twice' is no weight: write EXERCISE = "),
        ("pyproject.toml", "[tool", "pyproject.toml: "),
        ("pytest.ini", "gpulab_weights = 1\n", "pytest.ini: File contains no section headers."),
    ],
)
def test_weights_that_cannot_be_read(
    course: Path, name: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(course / name, text)
    assert packaged("gradescope") == 2
    assert message in capsys.readouterr().err and not Path("out").exists()
