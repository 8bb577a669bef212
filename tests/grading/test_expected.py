from pathlib import Path

import pytest

from pytest_gpulab.grading.expected import ExpectationError, Expectations

pytestmark = pytest.mark.unit


def written(folder: Path, text: str) -> Path:
    (folder / "ladder").mkdir(exist_ok=True)
    (folder / "ladder" / "01.cu").write_text("// first")
    path = folder / "expected.toml"
    path.write_text(text)
    return path


def test_a_file_lists_what_must_fail_and_the_points(tmp_path: Path) -> None:
    path = written(
        tmp_path, '["ladder/01.cu"]\npoints = 60\nlater = "race"\nfails = { "speedup[1.5x]" = "too-slow" }\n'
    )
    expectation = Expectations.load([path]).for_path(tmp_path / "ladder" / "01.cu")
    assert expectation is not None
    assert (expectation.points, expectation.later) == (60.0, "race")
    assert dict(expectation.fails) == {"speedup[1.5x]": "too-slow"}
    assert expectation.fails.get("speedup[3x]") is None
    assert len(expectation.fails) == 1


def test_nothing_is_expected_of_other_files_and_points_are_optional(tmp_path: Path) -> None:
    expectations = Expectations.load([written(tmp_path, '["ladder/01.cu"]\n')])
    expectation = expectations.for_path(tmp_path / "ladder" / "01.cu")
    assert expectation is not None
    assert (dict(expectation.fails), expectation.points, expectation.later) == ({}, None, "")
    assert expectations.for_path(tmp_path / "ladder" / "02.cu") is None
    assert Expectations.load([]).for_path(tmp_path) is None


def test_nothing_is_expected_of_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    link = tmp_path / "reduction.cu"
    link.symlink_to(link)
    assert Expectations({}).for_path(link) is None


def test_a_star_stands_for_any_text_and_the_most_specific_entry_counts(tmp_path: Path) -> None:
    text = (
        '["ladder/01.cu"]\npasses = ["compile"]\n'
        'fails = { "*" = "a", "correct[*]" = "b", "correct[n=1*]" = "c", "correct[n=1]" = "d" }\n'
    )
    expectation = Expectations.load([written(tmp_path, text)]).for_path(tmp_path / "ladder" / "01.cu")
    assert expectation is not None
    names = ("speedup[2x]", "correct[n=3]", "correct[n=12]", "correct[n=1]", "compile")
    assert [expectation.fails.get(name) for name in names] == ["a", "b", "c", "d", None]
    assert "compile" not in expectation.fails


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "not valid TOML"),
        ("x = 1", r"there is no file 'x' beside it"),
        ('["ladder/02.cu"]', "there is no file 'ladder/02.cu' beside it"),
        ('"ladder/01.cu" = 3', r"\['ladder/01.cu'\] must be a table with the keys fails, passes, points, later"),
        ('["ladder/01.cu"]\npoint = 3', "unknown key 'point'; there are fails, passes, points, later"),
        ('["ladder/01.cu"]\nfails = 3', "`fails` must map a check to the code of its finding"),
        ('["ladder/01.cu"]\nfails = { compile = 3 }', "`fails` must map a check to the code of its finding"),
        ('["ladder/01.cu"]\npasses = "compile"', "`passes` must be a list of checks"),
        ('["ladder/01.cu"]\npasses = [1]', "`passes` must be a list of checks"),
        ('["ladder/01.cu"]\npoints = "60"', "`points` must be a number"),
        ('["ladder/01.cu"]\npoints = true', "`points` must be a number"),
        ('["ladder/01.cu"]\nlater = true', "`later` must be the kind of a check"),
        ('["ladder/01.cu"]\nlater = 3', "`later` must be the kind of a check"),
        ('["ladder/01.cu"]\n["ladder/../ladder/01.cu"]', "'ladder/../ladder/01.cu' is listed a second time"),
    ],
)
def test_a_mistake_names_the_file_and_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ExpectationError, match=said) as caught:
        Expectations.load([path])
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match="cannot be read: No such file"):
        Expectations.load([tmp_path / "missing.toml"])
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ExpectationError, match="not valid TOML"):
        Expectations.load([tmp_path / "binary.toml"])
