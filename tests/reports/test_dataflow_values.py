"""Values in the cells of a figure of `gpulab explain`."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.reports.pages.dataflow import _short

pytestmark = pytest.mark.unit


def test_values_in_few_letters() -> None:
    integers = [np.int32(value) for value in (-7, 123456, -123456, 2**31 - 1)]
    assert [_short(value) for value in integers] == ["-7", "123456", "-1.2e5", "2.1e9"]
    assert [_short(value) for value in (0.806478977, -1e-30, 1e300)] == ["0.8065", "-1e-30", "1e300"]
