"""Stencil: each element becomes the sum of the square around it, which a tile with a halo in shared memory holds."""

import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import Tunable, UsesCheck
from pytest_gpulab.single_kernel import EDGES, single_kernel

RADIUS = 5
TILE = concepts.shared_reads(4), concepts.global_traffic(6)


def sums_of_squares(x):
    """Return the sum of the square around each element, from a summed-area table (Crow 1984); outside are zeros."""
    height, width = x.shape
    table = np.pad(x, (RADIUS + 1, RADIUS))
    np.cumsum(table, axis=0, out=table)  # in place, because large new arrays cost more than the sums
    np.cumsum(table, axis=1, out=table)
    rows = table[-height:] - table[:height]
    return rows[:, -width:] - rows[:, :width]


exercise = single_kernel(
    "Stencil: sums of squares of 11 x 11 elements",
    "stencil",
    inputs={"in": np.int32},
    output=np.int32,
    reference=sums_of_squares,
    patterns=("random", "needle", "bits"),
    tunables=(
        Tunable("TILE_X", EDGES[1]),
        Tunable("TILE_Y", EDGES[1]),
        Tunable("ITEMS_PER_THREAD", (1, 2, 4, 8), default=1),
    ),
    uses=[UsesCheck("shared-tile", TILE, 10, (256, 256), reused=True)],
    speed={1.2: 10, 3.2: 5, 6.6: 5},
    dimensions=2,
)
