"""Near-identical sources are found under any disguise that leaves the structure, and independent work is not."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from disguise import disguised, edited, ends_of_statements

from pytest_gpulab.course.intake.similarity import MAX_TOKENS, MIN_SIMILARITY, SimilarGroup, given_with, similar_groups
from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grader import Grader

ROOT = Path(__file__).parents[3]
EXERCISES = (
    *("reduction", "scan", "divergence", "constant_memory"),
    *("matrix_sum", "transpose", "histogram", "stencil"),
)
GIVEN = {name: given_with(ROOT / "exercises" / name) for name in EXERCISES}
RIGHT = {
    name: {
        path.stem: path.read_text()
        for folder in ("solutions", "tests/honest")
        for path in sorted((ROOT / folder / name).glob("*.cu"))
    }
    for name in EXERCISES
}
SHORT = (
    "06_shared_modulo", "07_shared_strided", "08_shared_sequential", "03_blelloch", "01_constant", "header_left_out",
    "01_four_columns", "02_one_warp_per_block", "one_row_per_block",
)  # fmt: skip
"""These are a baseline with a line or two changed: by structure anybody's."""
VARIANTS = {
    "scan": ("06_single_pass", "07_single_pass_packed"),
    "transpose": ("01_shared_tile", "02_padded_tile"),
    "histogram": ("01_private_bins", "02_many_items"),
}
"""Pairs of steps of which one is the other with a line or two changed."""
TRIVIAL = "03_tile_32x8"
"""The baseline with another shape of its blocks."""
LONG = [(name, step) for name in EXERCISES for step in RIGHT[name] if step not in (*SHORT, TRIVIAL)]


def groups_of(exercise: str, sources: dict[str, str]) -> tuple[SimilarGroup, ...]:
    return similar_groups({name: source.encode() for name, source in sources.items()}, GIVEN[exercise])


def members(groups: tuple[SimilarGroup, ...]) -> list[tuple[str, ...]]:
    return [group.submissions for group in groups]


@pytest.mark.parametrize("exercise", EXERCISES)
def test_independent_solutions_are_no_copies_of_each_other(exercise: str) -> None:
    found = [VARIANTS[exercise]] if exercise in VARIANTS else []
    assert members(groups_of(exercise, RIGHT[exercise])) == found


@pytest.mark.parametrize(("exercise", "step"), LONG)
def test_a_disguised_copy_is_found(exercise: str, step: str) -> None:
    copy = disguised(RIGHT[exercise][step], random.Random(step))
    others = {
        name: source
        for name, source in RIGHT[exercise].items()
        if name == step or name not in VARIANTS.get(exercise, ())
    }
    (group,) = groups_of(exercise, others | {"copy": copy})
    assert set(group.submissions) == {step, "copy"}
    assert group.matches[0].similarity > 0.84 and not group.matches[0].to_the_letter


@pytest.mark.parametrize(("exercise", "step"), [each for each in LONG if ends_of_statements(RIGHT[each[0]][each[1]])])
def test_a_disguised_copy_with_a_statement_added_is_found(exercise: str, step: str) -> None:
    rng = random.Random(step)
    copy = disguised(edited(RIGHT[exercise][step], rng), rng)
    assert members(groups_of(exercise, {"copy": copy, "own": RIGHT[exercise][step]})) == [("copy", "own")]


@pytest.mark.parametrize(("exercise", "step"), [("scan", "05_warp_shuffle"), ("divergence", "02_eight_way_by_warp")])
def test_a_disguise_changes_all_of_the_text_and_nothing_of_what_it_does(
    exercise: str, step: str, tmp_path: Path
) -> None:
    path, source = tmp_path / f"{exercise}.cu", RIGHT[exercise][step]
    path.write_text(disguised(source, random.Random(step)))
    grader = Grader(Catalogue(ROOT / "exercises").load(exercise), path, open_device("sim")[0], seed=1)
    compiles, correct, *_ = checks_of(Catalogue(ROOT / "exercises").load(exercise).exercise)
    assert [grader.run(check).verdict for check in (compiles, correct)] == ["passed", "passed"]
    kept = [
        line for line in path.read_text().splitlines() if line.strip() in {each.strip() for each in source.splitlines()}
    ]
    assert all(line.startswith("#") or len(line.strip()) < 2 for line in kept)


@pytest.mark.parametrize("step", SHORT)
def test_common_code_is_reported_only_if_identical(step: str) -> None:
    (exercise,) = (name for name in EXERCISES if step in RIGHT[name])
    source = RIGHT[exercise][step]
    sources = {"one": source, "disguised": disguised(source, random.Random(1)), "letters": source + "\n\n"}
    (group,) = groups_of(exercise, sources)
    assert group.submissions == ("letters", "one") and group.matches[0].similarity == 1


def test_a_baseline_with_other_numbers_is_not_reported() -> None:
    source = RIGHT["matrix_sum"][TRIVIAL]
    assert groups_of("matrix_sum", {"one": source, "letters": source + "\n\n"}) == ()


@pytest.mark.parametrize("exercise", EXERCISES)
def test_given_code_is_not_compared(exercise: str) -> None:
    for source in GIVEN[exercise]:
        assert similar_groups({"one": source, "other": source + b"\n// mine\n"}, GIVEN[exercise]) == ()


def test_a_baseline_is_found_where_it_was_not_given() -> None:
    baseline = (ROOT / "exercises/scan/blelloch.cu").read_bytes()
    assert members(similar_groups({"one": baseline, "other": baseline})) == [("one", "other")]


def test_the_matching_lines_of_both_are_reported() -> None:
    helper = "\n".join(f"    value = value * {k} + other[{k}] / (value - {k});" for k in range(20))
    one = f"__global__ void a(float *out)\n{{\n    float value = 1, *other = out;\n{helper}\n}}\n"
    other = "// A comment.\n\nvolatile float unlike[100];\n" + one.replace("value", "wert")
    (group,) = similar_groups({"one": one.encode(), "other": other.encode()})
    assert group.matches[0].submissions == ("one", "other")
    assert group.matches[0].lines == (((1, 23),), ((4, 26),))
    assert MIN_SIMILARITY <= group.matches[0].similarity < 1


def test_a_group_is_held_together_by_its_closest_matches() -> None:
    source, rng = RIGHT["scan"]["05_warp_shuffle"], random.Random(1)
    sources = {"a": source, "b": source, "c": disguised(source, rng), "d": disguised(edited(source, rng, 3), rng)}
    other = RIGHT["scan"]["04_blelloch_padded"]
    groups = groups_of("scan", sources | {"x": other, "y": edited(other, rng)})
    assert members(groups) == [("a", "b", "c", "d"), ("x", "y")]
    assert [match.submissions for match in groups[0].matches][:2] == [("a", "b"), ("a", "c")]
    assert [len(group.matches) for group in groups] == [3, 1]
    figures = [match.similarity for match in groups[0].matches]
    assert figures == sorted(figures, reverse=True) and figures[0] == 1


def test_one_source_of_many_is_reported_in_as_many_pairs_as_connect_them() -> None:
    sources = dict.fromkeys("abcd", RIGHT["scan"]["05_warp_shuffle"])
    (group,) = groups_of("scan", sources)
    assert [match.submissions for match in group.matches] == [("a", "b"), ("a", "c"), ("a", "d")]
    assert group.submissions == tuple("abcd") and {match.similarity for match in group.matches} == {1}


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"\xff\xfe\0" * 9,
        b'"' + b'\\"' * 300_000,
        b"/*" * 300_000,
        b"'" * 300_000,
        b"\\\n" * 300_000,
        b"a " * 400_000,
    ],
    ids=["empty", "no text", "escapes", "comments", "quotes", "joined lines", "words"],
)
def test_sources_that_are_none_are_read_in_no_time(source: bytes) -> None:
    begin_s = time.process_time()
    groups = similar_groups({"one": source, "other": source, "third": RIGHT["scan"]["05_warp_shuffle"].encode()})
    assert time.process_time() - begin_s < 5
    assert all("third" not in group.submissions for group in groups)


def test_tokens_beyond_a_limit_are_not_compared() -> None:
    rng = random.Random(1)
    padding = {name: " ".join(str(rng.random()) for _ in range(MAX_TOKENS)) for name in "ab"}
    sources = {name: f"{text}\n{RIGHT['scan']['05_warp_shuffle']}".encode() for name, text in padding.items()}
    assert similar_groups(sources) == ()


@pytest.mark.unmeasured
def test_a_class_of_500_takes_seconds() -> None:
    """Two to five; comparing each with each takes minutes."""
    rng = random.Random(1)
    steps = list(RIGHT["scan"].values())
    sources = {f"student{k}": disguised(rng.choice(steps), rng) for k in range(500)}
    begin_s = time.process_time()
    groups = groups_of("scan", sources)
    assert time.process_time() - begin_s < 30
    assert sum(len(group.submissions) for group in groups) > 400
