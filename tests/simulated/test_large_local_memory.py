"""Large local memory takes memory and time where it is accessed, and holds the same contents as small one."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated.memory.spaces import Banked

LAZY = "pytest_gpulab.devices.simulated.memory.spaces.LAZY_BYTES"
MIXED = """
struct Item { char c; short s; int i; double d; };
__global__ void f(const int *in, double *out, int *garbage) {
    int t = threadIdx.x, at = in[t];
    Item items[40];
    unsigned char bytes[64];
    for (int k = 0; k < 4; k++) items[(at + 7 * k) % 40] = {(char)(k - 2), (short)(-k), at * k, at + 0.5 * k};
    double sum = 0;
    for (int k = 0; k < 4; k++) { Item &x = items[(at + 7 * k) % 40]; sum += x.c + x.s + x.i + x.d; }
    out[t] = sum;
    if (t == 0) printf("%d %s %.1f", at, "text", sum);
    bytes[at % 64] = 1;
    garbage[t] = bytes[(at + 1) % 64] << 8 | bytes[at % 64];
}"""


@pytest.mark.parametrize("fill", [0xFF, 0xA5, 0])
def test_contents_are_those_of_small_memory(run: Run, monkeypatch: pytest.MonkeyPatch, fill: int) -> None:
    seen = []
    for smallest in (1 << 60, 0):
        monkeypatch.setattr(LAZY, smallest)
        out, garbage = np.zeros(64), np.zeros(64, np.int32)
        numbers = np.arange(64, dtype=np.int32)
        profile = run(MIXED, numbers, out, garbage, block=(64,), options=LaunchOptions(fill=fill, check=True))
        assert (garbage == fill << 8 | 1).all()
        assert {hazard.kind for hazard in profile.hazards} == {"uninitialised"}
        seen.append((out.tolist(), profile.output, profile.hazards))
    assert seen[0] == seen[1] and seen[0][1].startswith("0 text")


def test_untouched_memory_is_not_filled() -> None:
    words = Banked("local", 256 << 10, 128, 0xFF).words
    assert words.nbytes == 32 << 20
    assert not words[:: len(words) // 16].any()  # zeroed by the operating system, on the first use of a page
