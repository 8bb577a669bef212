"""The report of similar sources: files, similarity and lines."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.files import json_report
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair
from pytest_gpulab.reports.instructor.flags import flags

pytestmark = pytest.mark.unit

LINES = (((12, 40),), ((3, 31), (35, 35)))


def test_a_flag_has_a_line_for_each_pair_closest_first() -> None:
    alike = (
        SimilarPair("scan", ("b", "c"), 0.71),
        SimilarPair("scan", ("a", "b"), 0.94, LINES),
        SimilarPair("scan", ("x", "y"), 0.8, LINES),
    )
    assert [(flag.submissions, flag.what, flag.evidence) for flag in flags(Gradebook(duplicates=alike), [])] == [
        (("a", "b", "c"), "71 to 94 % alike", ("94 % alike: a:12-40 and b:3-31, 35", "71 % alike: b and c")),
        (("x", "y"), "80 % alike", ("80 % alike: x:12-40 and y:3-31, 35",)),
    ]


def test_programs_get_the_ranges(tmp_path: Path) -> None:
    path = tmp_path / "grades.json"
    json_report.write(path, Gradebook(duplicates=(SimilarPair("scan", ("a", "b"), 0.94, LINES),)), Context())
    document = json.loads(path.read_text())
    (found,) = document["duplicates"]
    assert found["lines"] == [[[12, 40]], [[3, 31], [35, 35]]]
    schema = json.loads((Path(__file__).parents[2] / "docs" / "grade.schema.json").read_text())
    jsonschema.validate(document, schema)
    found["lines"] = [[[12]], []]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)
