"""Matrix sum: the same kernel is fast or slow by the shape of its blocks, which the student chooses."""

import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import Tunable, UsesCheck
from pytest_gpulab.single_kernel import single_kernel

EXTENTS = tuple(2**k for k in range(11))

exercise = single_kernel(
    "Matrix sum: the shape of a block",
    "matrix_sum",
    inputs={"a": np.float32, "b": np.float32},
    output=np.float32,
    reference=np.add,
    tolerance=lambda a, b: 2.0**-24 * abs(a + b),  # one rounding
    patterns=("random", "needle", "alternating"),
    tunables=(
        Tunable("TILE_X", EXTENTS),
        Tunable("TILE_Y", EXTENTS),
        Tunable("ITEMS_PER_THREAD", (1, 2, 4, 8, 16), default=1),
    ),
    uses=[UsesCheck("coalesced", (concepts.global_traffic(1.1),), 10, (1024, 256))],
    speed={2: 15, 4.6: 10},
    dimensions=2,
)
