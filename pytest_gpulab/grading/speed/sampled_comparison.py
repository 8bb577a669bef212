"""Check a large output at random places first: a reference of all its elements would take longer than all the rest.

Places are drawn after the run and spread evenly, one in each of many equal stretches. A kernel that leaves out or gets
wrong a share f of the elements is not noticed with a probability of at most (1 - f)**PLACES: 1e-28 for one in 1,000.
Where a stored answer would be wrong, in what tells the run's contents from those of other runs, places lie closer.
What was never written is looked for everywhere. Whatever looks wrong is then compared in full, as small outputs are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.exercise import Exercise, Plan, Problem
from pytest_gpulab.grading.diagnosis.compare import mismatches
from pytest_gpulab.grading.plans.prepare import check_expected, instructors_code
from pytest_gpulab.grading.plans.replay import FIRST, is_poisoned

from .contents import Array, Inputs
from .mixing import Mix

SAMPLED_ABOVE = 2**20  # elements of the largest output
PLACES = 2**16
PLACES_IN_A_STRETCH = 2**14  # of contents that no other run has
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
    """Say whether outputs of runs on the same inputs are right at random places, and whether all of them was written.

    False, too, where the exercise or the size do not ask for a sample.

    Raises:
        InstructorsMistake: the exercise's `reference_at` is wrong.
    """
    sizes = {buffer.name: int(np.prod(buffer.shape)) for buffer in plan.buffers if buffer.role == "output"}
    if exercise.reference_at is None or max(sizes.values(), default=0) <= SAMPLED_ABOVE:
        return False
    places = {name: drawn_places(size, mix, rng) for name, size in sizes.items()}
    with instructors_code("reference_at"):
        expected = exercise.reference_at(problem, inputs, places)
        check_expected(exercise.reference_at, {name: chosen.shape for name, chosen in places.items()}, expected)
    right = all(
        not mismatches(values.reshape(-1)[places[name]], expected.values[name], expected.tolerance.get(name, 0)).any()
        for run in outputs
        for name, values in run.items()
    )
    poisoned = [buffer.name for buffer in plan.buffers if buffer.role == "output" and is_poisoned(buffer)]
    written = all(not FIRST.poison.remaining(run[name]).any() for run in outputs for name in poisoned)
    return right and written


def drawn_places(size: int, mix: Mix, rng: np.random.Generator) -> Places:
    """Return indices of elements, ascending: at random all over, and more of them in what only this run's inputs hold.

    An output need not have anything to do with the inputs' elements at the same places; then more places do no harm.
    """
    drawn = [_one_in_each(0, size, PLACES, rng)]
    for stretch in mix.stretches(size):
        drawn.append(_one_in_each(stretch.start, stretch.stop, PLACES_IN_A_STRETCH, rng))
    return np.unique(np.concatenate(drawn))


def _one_in_each(begin: int, end: int, parts: int, rng: np.random.Generator) -> Places:
    """Divide a range into equal parts and draw one index in each; all of them where there are no more than parts."""
    parts = min(parts, end - begin)
    borders = begin + (end - begin) * np.arange(parts + 1, dtype=np.int64) // max(parts, 1)
    return rng.integers(borders[:-1], borders[1:])
