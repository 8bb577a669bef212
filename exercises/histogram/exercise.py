"""Histogram of bytes: atomics on global memory collide, so each block counts in shared memory first."""

import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import Tunable, UsesCheck
from pytest_gpulab.single_kernel import EDGES, Output, single_kernel

BINS = 256
# In blocks of 256, a pass per sector of all bins is 0.125. If equal lanes of a warp count together, it is 0.148.
PRIVATE = concepts.atomics(0.13), concepts.shared_use(1)

exercise = single_kernel(
    "Histogram of bytes",
    "histogram",
    inputs={"in": np.uint8},
    output=Output(np.uint32, lambda n: (BINS,), zeroed=True),
    reference=lambda x: np.bincount(x, minlength=BINS).astype(np.uint32),
    values={
        # A large array repeats draws, because new ones would take most of a grading's time. Each value is among them.
        "skewed": lambda rng, shape: rng.choice(np.append(rng.binomial(255, 0.3, 2**16), np.arange(BINS)), shape),
        "uniform": lambda rng, shape: rng.integers(0, BINS, shape),
        "one value": lambda rng, shape: np.full(shape, BINS - 1),
        "empty bins": lambda rng, shape: rng.choice([0, 31, 32, 200], shape),
    },
    mixable=True,
    tunables=(Tunable("BLOCK_SIZE", EDGES[0]), Tunable("ITEMS_PER_THREAD", range(1, 65), default=1)),
    uses=[UsesCheck("private-bins", PRIVATE, 10, 2**16, compared=True)],
    speed={5: 10, 60: 10},
)
