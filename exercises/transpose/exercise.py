"""Transpose of a matrix: reads and writes are both coalesced only through a tile in shared memory."""

import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import Tunable, UsesCheck
from pytest_gpulab.single_kernel import EDGES, Output, single_kernel

COALESCED = concepts.global_traffic(1.1)

exercise = single_kernel(
    "Transpose of a matrix",
    "transpose",
    inputs={"in": np.float32},
    output=Output(np.float32, lambda width, height: (width, height)),
    reference=np.transpose,
    patterns=("random", "alternating"),
    tunables=(
        Tunable("TILE_X", EDGES[1]),
        Tunable("TILE_Y", EDGES[1]),
        Tunable("ITEMS_PER_THREAD", (1, 2, 4, 8), default=1),
    ),
    uses=[
        UsesCheck("coalesced", (COALESCED,), 5, (256, 256)),
        UsesCheck(
            "conflict-free", (concepts.bank_conflicts(0.1, accesses=4), COALESCED), 5, (256, 256), required=False
        ),
    ],
    speed={1.4: 10, 3: 5, 5.3: 5},
    dimensions=2,
)
