"""The figures in the documentation are those that `gpulab explain FILE --format svg` draws today."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.command import main

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {
    "reduction-tree": "solutions/reduction/08_shared_sequential.cu",
    "hillis-steele": "solutions/scan/01_hillis_steele.cu",
    "blelloch": "solutions/scan/03_blelloch.cu",
    "warp-shuffles": "solutions/reduction/10_shuffle_unroll8.cu",
    "transposed-tile": "solutions/transpose/02_padded_tile.cu",
    "missing-barrier": "tests/wrong/reduction/missing_barrier.cu",
    "out-of-bounds": "tests/wrong/reduction/guard_off_by_one.cu",
}


def draw(name: str, target: Path) -> None:
    options = ("--format", "svg", "--exercises", str(ROOT / "exercises"), "--output", str(target))
    main.main(["explain", str(ROOT / FIGURES[name]), *options])


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_one_that_the_command_draws(name: str, tmp_path: Path) -> None:
    draw(name, tmp_path / "figure.svg")
    shown = ROOT / "docs" / "figures" / f"{name}.svg"
    assert (tmp_path / "figure.svg").read_text() == shown.read_text(), "draw it again with the command"
    assert shown.stat().st_size < 80_000, "too large for a page of documentation"


def test_every_figure_of_the_documentation_has_its_command() -> None:
    assert {path.stem for path in (ROOT / "docs" / "figures").iterdir()} == set(FIGURES)
