"""Comparison of arrays on a real GPU, byte by byte."""

import numpy as np
import pytest

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("nbytes", [1, 3, 4096, 1_000_003, 300_000_001])
def test_the_comparison_of_arrays_includes_the_last_byte(device, nbytes):
    values = np.random.default_rng(2).integers(0, 256, nbytes, np.uint8)
    one, room = device.array(values), device.array(np.zeros(nbytes + 512, np.uint8))
    other = device.part(room, 512, (nbytes,), np.uint8)
    other.set(values)
    assert device.same(one, other) and device.same(one, one)
    for place in {0, nbytes // 2, nbytes - 1}:
        changed = values.copy()
        changed[place] ^= 1
        other.set(changed)
        assert not device.same(one, other) and not device.same(other, one)
    other.set(values)
    assert device.same(one, other)  # what it found before is forgotten
    assert not device.same(one, room)


def test_numbers_are_the_same_if_all_their_bits_are(device):
    nan, zero, minus_zero = (device.array(np.full(3, value, np.float32)) for value in (np.nan, 0.0, -0.0))
    assert device.same(nan, device.array(nan.get())) and not device.same(zero, minus_zero)
