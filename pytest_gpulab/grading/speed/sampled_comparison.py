"""Comparison of a large output at random positions, because a full reference would take longer than all the rest.

Positions are drawn after the run, one in each of many equal ranges. A kernel with a share f of wrong elements goes
undetected with a probability of at most (1 - f)**PLACES: 1e-28 for 1 wrong element in 1,000. Positions are denser where
only this run's contents differ from other runs, because a stored answer would be wrong there. Unwritten elements are
searched everywhere. An output with an error is then compared in full, like small outputs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.exercise import Array, Exercise, Plan, Problem
from pytest_gpulab.grading.diagnosis.compare import mismatches
from pytest_gpulab.grading.plans.prepare import expected_at
from pytest_gpulab.grading.plans.replay import FIRST, is_poisoned

from .contents import Inputs
from .mixing import Mix

SAMPLED_ABOVE = 2**20  # elements of the largest output
PLACES = 2**16
PLACES_IN_A_STRETCH = 2**14  # in a range of contents that no other run has
Places = npt.NDArray[np.int64]


def right_at_places(
    exercise: Exercise,
    problem: Problem,
    plan: Plan,
    inputs: Inputs,
    mix: Mix,
    outputs: Sequence[Mapping[str, Array]],
    rng: np.random.Generator,
) -> bool:
    """Return whether outputs are correct at random positions and fully written, for runs on the same inputs.

    False also if the exercise has no `reference_at` or the output is small. Raises InstructorsMistake.
    """
    sizes = {buffer.name: int(np.prod(buffer.shape)) for buffer in plan.buffers if buffer.role == "output"}
    if exercise.reference_at is None or max(sizes.values(), default=0) <= SAMPLED_ABOVE:
        return False
    places = {name: drawn_places(size, mix, rng) for name, size in sizes.items()}
    expected = expected_at(exercise.reference_at, problem, inputs, places)
    right = all(
        not mismatches(values.reshape(-1)[places[name]], expected.values[name], expected.tolerance.get(name, 0)).any()
        for run in outputs
        for name, values in run.items()
    )
    poisoned = [buffer.name for buffer in plan.buffers if buffer.role == "output" and is_poisoned(buffer)]
    written = all(not FIRST.poison.remaining(run[name]).any() for run in outputs for name in poisoned)
    return right and written


def drawn_places(size: int, mix: Mix, rng: np.random.Generator) -> Places:
    """Return ascending random indices, denser in the ranges that only this run's inputs have.

    Outputs may be unrelated to inputs at the same positions; the denser positions then do no harm.
    """
    drawn = [_one_in_each(0, size, PLACES, rng)]
    for stretch in mix.stretches(size):
        drawn.append(_one_in_each(stretch.start, stretch.stop, PLACES_IN_A_STRETCH, rng))
    return np.unique(np.concatenate(drawn))


def _one_in_each(begin: int, end: int, parts: int, rng: np.random.Generator) -> Places:
    """Return one random index per equal part of a range; all indices if the range is smaller."""
    parts = min(parts, end - begin)
    borders = begin + (end - begin) * np.arange(parts + 1, dtype=np.int64) // max(parts, 1)
    return rng.integers(borders[:-1], borders[1:])
