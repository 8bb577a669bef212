"""Stencil: each element becomes the sum of the square around it, which a tile with a halo in shared memory holds."""

import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import Tunable, UsesCheck
from pytest_gpulab.single_kernel import EDGES, single_kernel

RADIUS = 5
TILE = concepts.shared_reads(4), concepts.global_traffic(6)


def sums_of_rows(x):
    """Return the sum of each element and its RADIUS neighbours to either side; outside are zeros."""
    width = x.shape[1]
    sums = np.cumsum(np.pad(x, ((0, 0), (RADIUS + 1, RADIUS))), axis=1, dtype=np.int32)
    return sums[:, -width:] - sums[:, :width]


exercise = single_kernel(
    "Stencil: sums of squares of 11 x 11 elements",
    "stencil",
    inputs={"in": np.int32},
    output=np.int32,
    reference=lambda x: sums_of_rows(sums_of_rows(x).T).T,
    patterns=("random", "needle", "fractions", "cancellation"),
    tunables=(
        Tunable("TILE_X", EDGES[1]),
        Tunable("TILE_Y", EDGES[1]),
        Tunable("ITEMS_PER_THREAD", (1, 2, 4, 8), default=1),
    ),
    uses=[UsesCheck("shared-tile", TILE, 10, (256, 256), reused=True)],
    speed={1.2: 10, 3.2: 5, 6.6: 5},
    dimensions=2,
)
