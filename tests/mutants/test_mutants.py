"""Small mistakes in the ladders' last steps are noticed: a sample of what `grade_mutants.py` grades in full."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import grade_mutants
import pytest
from grade_mutants import CATALOGUE, EQUIVALENT, KERNELS, last_step, machine_code, verdict_of
from searches import examples

from pytest_gpulab.authoring.mutator import WAYS, Mutant, mutants

SAMPLE = examples(5)
SOURCE = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 64)
__device__ float twice(float v, unsigned n) { return n < 3 ? 2 * v : v + v; }  // 2 * v
__global__ void k(float *out, unsigned n)
{
    __shared__ float tile[BLOCK_SIZE];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n)
        out[threadIdx.x] = twice(tile[threadIdx.x], n);
}
"""


def test_every_kind_of_mistake_is_made_and_a_seed_gives_the_same_ones() -> None:
    made = mutants(SOURCE, 500, seed=3)
    assert made == mutants(SOURCE, 500, seed=3) != mutants(SOURCE, 500, seed=4)
    kinds = {kind for mutant in made for kind in mutant.kind.split(" and ")}
    assert kinds >= {"operator", "number", "index", "name", "barrier", "statement", "cast", "condition", "arguments"}
    assert len(kinds) == len(WAYS)
    assert len({mutant.source for mutant in made}) == len(made) == 500
    assert SOURCE not in {mutant.source for mutant in made}


def test_comments_declared_choices_and_signatures_stay_as_they_are() -> None:
    for mutant in mutants(SOURCE, 300, seed=1):
        assert "// 2 * v" in mutant.source
        assert "GPULAB_TUNABLE(BLOCK_SIZE, 64)" in mutant.source
        assert "__global__ void k(float *out, unsigned n)" in mutant.source


def test_a_mutant_says_its_line_before_and_after() -> None:
    (barrier,) = (mutant for mutant in mutants(SOURCE, 100, seed=1) if mutant.kind == "barrier")
    assert (barrier.line, barrier.what) == (8, "__syncthreads();  =>  ;")


def test_a_pair_of_mistakes_has_both_as_mutants_of_their_own() -> None:
    made = mutants(SOURCE, 500, seed=3)
    singles = [mutant for mutant in made if not mutant.parts]
    pairs = [mutant for mutant in made if mutant.parts]
    assert len(singles) > 30 and len(pairs) > 300
    for pair in pairs:
        one, other = pair.parts
        assert one in singles and other in singles
        assert (pair.kind, pair.what) == (f"{one.kind} and {other.kind}", f"{one.what}  AND  {other.what}")


def test_a_pair_of_mistakes_is_right_if_each_of_them_is(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = CATALOGUE.load("histogram")
    original = list(machine_code(SOURCE, loaded))
    same = Mutant("operator", 3, "2 * v  =>  v + v", SOURCE.replace("? 2 * v", "? v + v"))
    other = Mutant("number", 6, "BLOCK_SIZE  =>  99", SOURCE.replace("tile[BLOCK_SIZE]", "tile[99]"))
    pair = Mutant("", 3, "both", same.source.replace("tile[BLOCK_SIZE]", "tile[99]"), (same, other))
    reasons = [grade_mutants.reason_of(mutant, loaded, original) for mutant in (same, other, pair)]
    assert reasons == ["the same code", "", ""]
    monkeypatch.setitem(EQUIVALENT, "histogram", {"6: BLOCK_SIZE  =>  99": "larger"})
    assert grade_mutants.reason_of(pair, loaded, original) == "the same code; larger"


@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_mutants_is_killed_or_known_to_be_right(name: str, tmp_path: Path) -> None:
    loaded, source = CATALOGUE.load(name), last_step(name).read_text(encoding="utf-8")
    original = list(machine_code(source, loaded))
    made = mutants(source, 500, seed=20)[:SAMPLE]
    found = [(verdict_of(mutant, loaded, tmp_path, original, seed=20), mutant.what) for mutant in made]
    statuses = [verdict["status"] for verdict, _ in found]
    assert {"survived", "crashed"}.isdisjoint(statuses), found
    assert statuses.count("killed") >= SAMPLE // 3


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_itself_is_no_mutant_and_survives(name: str, tmp_path: Path) -> None:
    loaded, source = CATALOGUE.load(name), last_step(name).read_text(encoding="utf-8")
    itself = Mutant("none", 1, "", source)
    assert verdict_of(itself, loaded, tmp_path, list(machine_code(source, loaded)), seed=20)["status"] == "same"
    assert verdict_of(itself, loaded, tmp_path, None, seed=20)["status"] == "survived"


def test_a_report_is_continued_and_survivors_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Mutant] = []

    def verdict(mutant: Mutant, *_: object) -> dict[str, str]:
        asked.append(mutant)
        return {"status": "refused" if "tile[" in mutant.what else "survived"}

    monkeypatch.setattr(grade_mutants, "verdict_of", verdict)
    report = tmp_path / "report.jsonl"
    for count in (3, 5):
        monkeypatch.setattr(sys, "argv", ["x", "divergence", "--count", str(count), "--report", str(report)])
        assert grade_mutants.main() == 1
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(asked) == len(rows) == len({row["source"] for row in rows})
    assert [row["status"] for row in rows].count("survived") == 5
    told = capsys.readouterr().out
    assert told.count("survived: 03_coalesced_by_tile.cu:") == 5 and "'survived': 5" in told


def test_each_known_right_mutant_has_a_reason() -> None:
    assert set(EQUIVALENT) == set(KERNELS)
    assert all(reason for known in EQUIVALENT.values() for reason in known.values())
