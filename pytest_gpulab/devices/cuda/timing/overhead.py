"""What two events around launches measure too much, learned from a kernel that does nothing."""

from __future__ import annotations

AMONG = 32  # empty kernels that follow each other
EMPTY_BLOCK = 256  # threads; there is one block for each multiprocessor
EMPTY_MS = {((9, 0), 1980): 1.32e-3}
"""Its own time, by compute capability and highest clock in MHz: Nsight Compute's gpu__time_duration on H200s. No times
of ours tell it."""
MAX_GAP_MS = 3e-4  # what seems longer is something else, such as a clock that is not up


class Overhead:
    """What a sample takes longer than the launches in it; 0 before anything is known.

    An empty kernel by itself takes its own time and the overhead, each further one after it its own time and a gap,
    which is no part of a kernel's time. It is 0.08 to 0.24 us on an H200, longer in one process than in another, and
    differs by up to 0.1 us where a kernel has a single block: so the empty one has as many as real ones. How much of
    both is the gap can only be said of GPUs whose own time for an empty kernel is known.
    Whatever disturbs a sample, a clock that is not up above all, makes it longer: so the lower quartile of the samples
    counts. The median of a few is not enough: now and then all of a millisecond are disturbed, by as much as the
    overhead itself, and then every time that it is taken off from is too short by as much.
    """

    def __init__(self, empty_ms: float | None) -> None:
        self._empty_ms = empty_ms
        self._alone_ms: list[float] = []
        self._among_ms: list[float] = []

    def learn(self, alone_ms: float | None = None, among_ms: float | None = None) -> None:
        """Take note of samples: of one empty kernel, of `AMONG` of them."""
        self._alone_ms += [] if alone_ms is None else [alone_ms]
        self._among_ms += [] if among_ms is None else [among_ms]

    def ms(self, launches: int) -> float:
        """Return what to take off a sample of so many launches."""
        if not self._alone_ms or not self._among_ms:
            return 0.0
        alone_ms, among_ms = _lower_quartile(self._alone_ms), _lower_quartile(self._among_ms)
        further_ms = (among_ms - alone_ms) / (AMONG - 1)
        gap_ms = 0.0 if self._empty_ms is None else min(max(further_ms - self._empty_ms, 0.0), MAX_GAP_MS)
        return alone_ms - further_ms + launches * gap_ms


def _lower_quartile(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 4]
