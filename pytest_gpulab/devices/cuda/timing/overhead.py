"""Launch overhead included in a sample between two events, measured with an empty kernel."""

AMONG = 32  # empty kernels in a row
EMPTY_BLOCK = 256  # threads per block; the grid has one block per multiprocessor
EMPTY_MS = {"NVIDIA H100 80GB HBM3": 2.02e-3, "NVIDIA H200": 1.32e-3}
"""The empty kernel's own time by the GPU's name: the median of Nsight Compute's gpu__time_duration.

It cannot be derived from our samples, and GPUs of one architecture and clock differ. To measure it: `ncu --kernel-name
regex:^nothing --clock-control none --cache-control none --metrics gpu__time_duration.sum python
tests/gpu/proof/against_ncu.py --launch warm`.
"""
MIN_GAP_MS, MAX_GAP_MS = -6e-4, 3e-4  # another gap has another cause, such as a clock below full speed


class Overhead:
    """Launch overhead included in a sample; 0 before anything is measured.

    A sample of one empty kernel has the kernel's own time and the overhead. Each further kernel adds its own time and a
    gap, which is not part of a kernel's time: 0.08 to 0.24 us on an H200, different between processes. On an H100 it is
    negative: Nsight Compute counts a kernel's start and end, which overlap with its neighbours' in a row. The gap
    differs by up to 0.1 us for a kernel with a single block, so the empty kernel has as many blocks as real ones. Time
    and gap can only be separated on GPUs for which the empty kernel's own time is known.

    All disturbances make a sample longer, above all a clock below full speed: so the lower quartile of the samples
    counts. A median of a few is not enough: at times all samples within a millisecond are disturbed, by as much as the
    overhead itself, and all corrected times would then be too short by as much.
    """

    def __init__(self, empty_ms: float | None) -> None:
        self._empty_ms = empty_ms
        self._alone_ms: list[float] = []
        self._among_ms: list[float] = []

    def learn(self, alone_ms: float | None = None, among_ms: float | None = None) -> None:
        """Add samples: of a single empty kernel, of `AMONG` in a row."""
        self._alone_ms += [] if alone_ms is None else [alone_ms]
        self._among_ms += [] if among_ms is None else [among_ms]

    def ms(self, launches: int) -> float:
        """Return the overhead included in a sample of that number of launches."""
        if not self._alone_ms or not self._among_ms:
            return 0.0
        alone_ms, among_ms = _lower_quartile(self._alone_ms), _lower_quartile(self._among_ms)
        further_ms = (among_ms - alone_ms) / (AMONG - 1)
        gap_ms = 0.0 if self._empty_ms is None else max(MIN_GAP_MS, min(further_ms - self._empty_ms, MAX_GAP_MS))
        return alone_ms - further_ms + launches * gap_ms


def _lower_quartile(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 4]
