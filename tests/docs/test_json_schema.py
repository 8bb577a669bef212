"""The schema of the JSON report holds for real reports, and it and its page describe every key of one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
from doc_pages import ROOT
from lean_pytest import WITHOUT

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "grade.schema.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "json-report.md").read_text(encoding="utf-8")
SUBMISSIONS = {
    "constant_memory/right.cu": ROOT / "solutions" / "constant_memory" / "01_constant.cu",
    "constant_memory/slow.cu": ROOT / "solutions" / "constant_memory" / "02_scattered_index.cu",
    "constant_memory/wrong.cu": ROOT / "tests" / "wrong" / "constant_memory" / "no_guard_in_y.cu",
    "constant_memory/not_started.cu": ROOT / "exercises" / "constant_memory" / "constant_memory.cu",
    "constant_memory/broken.cu": ROOT / "tests" / "wrong" / "reduction" / "compile_error.cu",
    "unknown/kernel.cu": ROOT / "solutions" / "constant_memory" / "01_constant.cu",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a run with every kind of grade that the simulated GPU gives."""
    folder = tmp_path_factory.mktemp("course")
    exercise = "exercises/constant_memory"
    shutil.copytree(ROOT / exercise, folder / exercise, ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in SUBMISSIONS.items():
        (folder / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / "class" / name)
    command = [sys.executable, "-m", "pytest", "--gpulab", "--gpulab-device=sim", "--gpulab-annotate", "-q", "class"]
    environment = {**os.environ, "PYTEST_ADDOPTS": " ".join((*WITHOUT, "-pno:cacheprovider"))}
    done = subprocess.run(
        [*command, "--gpulab-report=json:grades.json"], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    grades: dict[str, Any] = json.loads((folder / "grades.json").read_text(encoding="utf-8"))
    return grades


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_real_report_is_valid(report: dict[str, Any]) -> None:
    jsonschema.validate(report, SCHEMA)
    verdicts = {check["verdict"] for grade in report["grades"] for check in grade["checks"]}
    assert verdicts == {"passed", "failed", "missed", "not started"}
    assert len(report["ungraded"]) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("grades", 0, "points"), -1),
        (("grades", 0, "checks", 0, "verdict"), "perfect"),
        (("grades", 0, "checks", 0, "findings"), [{"code": "Wrong Result"}]),
        (("grades", 0, "provenance", "seed"), "7"),
    ],
)
def test_the_schema_refuses_what_is_no_report(report: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    changed = json.loads(json.dumps(report))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, SCHEMA)


def test_the_schema_and_the_page_describe_every_key(report: dict[str, Any]) -> None:
    grade = report["grades"][0]
    measured = [check for grade in report["grades"] for check in grade["checks"] if check["measurement"]]
    listed = [check for check in measured if check["listing"]]
    failed = [check for grade in report["grades"] for check in grade["checks"] if check["findings"]]
    records = {
        "The document": (report, SCHEMA),
        "A grade": (grade, SCHEMA["$defs"]["grade"]),
        "A check": (grade["checks"][0], SCHEMA["$defs"]["check"]),
        "A finding": (failed[0]["findings"][0], SCHEMA["$defs"]["finding"]),
        "A measurement": (measured[0]["measurement"], SCHEMA["$defs"]["measurement"]),
        "A listing": (listed[0]["listing"], SCHEMA["$defs"]["listing"]),
        "A kernel": (measured[0]["measurement"]["kernels"][0], SCHEMA["$defs"]["kernel"]),
        "Provenance": (grade["provenance"], SCHEMA["$defs"]["provenance"]),
    }
    for heading, (record, schema) in records.items():
        assert set(record) == set(schema["properties"]) == set(schema["required"]), heading
        assert keys_in_table(heading) == set(record), heading
    assert set(report["ungraded"][0]) == set(SCHEMA["$defs"]["ungraded"]["properties"])


def keys_in_table(heading: str) -> set[str]:
    """Return the first column of the table below a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\|([^|]*)\|", section, re.M)
    return set(re.findall(r"`(\w+)`", " ".join(cells)))
