"""Contents that no run has met before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpulab.grading.speed.contents import Inputs
from pytest_gpulab.grading.speed.mixing import Mix, mixed

pytestmark = pytest.mark.unit


@pytest.fixture
def contents() -> tuple[Inputs, ...]:
    return tuple({"x": np.full((10, 100), value), "y": np.full(7, value)} for value in (1, 2))


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_stretches_lie_within_the_array_and_are_never_empty(elements: int, place: float) -> None:
    stretches = Mix(0, (place, place)).stretches(elements)
    assert len(stretches) == 2
    assert all(0 <= stretch.start < stretch.stop <= elements for stretch in stretches)


def test_a_set_with_stretches_of_the_other(contents: tuple[Inputs, ...]) -> None:
    made = mixed(contents, Mix(0, (0.8, 0.5)))
    first = int(1000**0.8) - 1
    assert np.flatnonzero(made["x"].reshape(-1) == 2).tolist() == [*range(first, first + 1 + first // 8), 500]
    assert made["x"].shape == (10, 100) and not made["x"].flags.writeable
    assert made["y"].tolist() == [1, 1, 1, 2, 1, 1, 1]
    assert set(contents[0]["x"].reshape(-1)) == {1}


def test_a_mix_without_a_stretch_is_the_set_itself(contents: tuple[Inputs, ...]) -> None:
    assert all(made is contents[1][name] for name, made in mixed(contents, Mix(1)).items())
    assert Mix(1).stretches(5) == Mix(1, (0.5, 0.5)).stretches(0) == ()


@pytest.mark.parametrize("elements", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("places", [(), (0.0, 0.0), (0.5, 0.9), (0.999, 0.999), (0.7, 0.05)])
def test_a_mix_equals_its_pieces(elements: int, places: tuple[float, ...]) -> None:
    sets = [{"x": np.full(elements, number)} for number in (1, 2)]
    mix, made = Mix(1, places), np.zeros(elements, int)
    for which, some in mix.pieces(elements, len(sets)):
        assert some.stop > some.start and not made[some].any()
        made[some] = sets[which]["x"][some]
    assert made.tolist() == mixed(sets, mix)["x"].tolist()


def test_mixes_of_a_large_array_hardly_ever_return_and_reach_all_scales() -> None:
    rng = np.random.default_rng(1)
    mixes = [Mix.drawn(0, rng).stretches(2**26) for _ in range(1000)]
    firsts = [stretches[0].start for stretches in mixes]
    assert len({tuple(stretch.start for stretch in stretches) for stretches in mixes}) > 995
    assert np.histogram(np.log2(np.array(firsts) + 1), bins=26, range=(0, 26))[0].min() > 10
