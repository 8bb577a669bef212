"""The simulated GPU computes what a real one did, kernel by kernel (see `truth_launches.py`, `record_truth.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from truth_bounds import BOUNDS, Bound
from truth_launches import LAUNCHES, TruthLaunch
from truth_values import Array

from pytest_gpulab.devices.protocol import Device

pytestmark = pytest.mark.unmeasured

RECORD = Path(__file__).with_name("truth.npz")


@pytest.fixture(scope="module")
def truth() -> dict[str, Array]:
    with np.load(RECORD) as record:
        return dict(record)


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.name)
def test_equals_the_recorded_gpu(launch: TruthLaunch, device: Device, truth: dict[str, Array]) -> None:
    about = json.loads(str(truth["about"]))
    assert about["digests"].get(launch.name) == launch.digest, "the record is older than this kernel: record it again"
    state = None if launch.state is None else device.array(launch.state)
    out = None if launch.out is None else device.array(np.zeros(launch.out_shape, launch.out))
    arrays = [*(device.array(values) for values in launch.inputs), *(array for array in (state, out) if array)]
    module = device.compile(launch.text, f"{launch.source}.cu", launch.defines)
    profile = module.launch(
        launch.kernel, launch.grid, launch.block, [*arrays, np.int32(launch.threads)], launch.shared_bytes
    )
    differences = []
    if state is not None:
        differences += _differences(launch, ("state",), state.get()[None], truth[f"{launch.name}/state"][None])
    if out is not None:
        got = np.sort(out.get(), axis=1) if launch.sorted_rows else out.get()
        rows = launch.rows if launch.columns is None else tuple(map(str, range(launch.threads)))
        differences += _differences(launch, rows, got, truth[launch.name])
    if launch.prints:
        assert _lines(profile.output) == _lines(truth[f"{launch.name}/printed"].tobytes().decode())
    assert not differences, "\n" + "\n".join(differences)
    assert bool(profile.hazards) == launch.hazard


def _lines(printed: str) -> list[str]:
    """Return lines of text without the sign of a NaN, which is no part of the arithmetic."""
    return printed.replace("-nan", "nan").splitlines()


def _differences(launch: TruthLaunch, rows: tuple[str, ...], got: Array, recorded: Array) -> list[str]:
    """Return one line for each row that is not as recorded, with the first bad element and its inputs."""
    lines = []
    for name, actual, expected in zip(rows, got, recorded, strict=True):
        bad = np.flatnonzero(~_agree(actual, expected, BOUNDS.get(name)))
        if bad.size:
            at = int(bad[0])
            operands = ", ".join(str(values[at]) for values in launch.inputs if len(values) == len(actual))
            lines.append(
                f"{name}: {bad.size} of {actual.size} differ, first [{at}] of ({operands}): "
                f"{_show(actual[at])}, not {_show(expected[at])}"
            )
    return lines


def _agree(got: Array, recorded: Array, bound: Bound | None) -> Array:
    """Say for each element whether it is the recorded one: the same bits, both NaN, or within the bound."""
    same: Array = _bits(got) == _bits(recorded)
    if got.dtype.kind != "f":
        return same
    same |= np.isnan(got) & np.isnan(recorded)
    if bound is None:
        return same
    with np.errstate(all="ignore"):
        difference = np.abs(got.astype(np.float64) - recorded.astype(np.float64))
        size = np.abs(recorded.astype(np.float64))
        near = np.maximum(bound.absolute, bound.relative * size)
        near = np.maximum(near, bound.ulps * np.spacing(np.abs(recorded)).astype(np.float64))
    return same | (np.isfinite(got) & np.isfinite(recorded) & (difference <= near))


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _show(value: np.generic) -> str:
    return f"{value!s} ({int(np.array(value).view(f'u{value.dtype.itemsize}')):#x})"


def test_comparison_notices_a_wrong_bit_sign_or_infinity() -> None:
    recorded = np.array([1.0, 0.0, np.inf, np.nan, 1.0], np.float32)
    got = np.array([np.nextafter(np.float32(1), np.float32(2)), -0.0, 3e38, np.nan, 1.0], np.float32)
    assert _agree(got, recorded, None).tolist() == [False, False, False, True, True]
    assert _agree(got, recorded, Bound(ulps=1)).tolist() == [True, True, False, True, True]
    assert _agree(got, recorded, Bound(ulps=0.5)).tolist() == [False, True, False, True, True]


def test_record_has_no_launch_that_the_table_lacks(truth: dict[str, Array]) -> None:
    names = {launch.name for launch in LAUNCHES}
    assert {key.split("/")[0] for key in truth} - {"about"} == names
