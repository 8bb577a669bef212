"""The described GPUs: every number has a source, and every architecture its limits."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pytest_gpulab.devices.architectures import LIMITS
from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.devices.simulated.gpus import described_gpu, known_gpus, sources


@pytest.mark.parametrize("name", known_gpus())
def test_every_constant_has_a_source(name: str) -> None:
    gpu = described_gpu(name)
    numbers = {field.name for field in fields(gpu)} - {"name", "architecture"}
    assert set(sources(name)) == numbers
    assert all(len(source) > 5 for source in sources(name).values())
    assert all(getattr(gpu, number) > 0 for number in numbers)


@pytest.mark.parametrize("name", known_gpus())
def test_what_an_sm_holds_comes_from_the_table_of_architectures(name: str) -> None:
    gpu = described_gpu(name)
    assert gpu.limits is LIMITS[gpu.architecture]
    assert gpu.architecture == f"sm_{gpu.target}"


def test_the_gpus_that_students_may_have_are_described() -> None:
    assert {"h200", "a100", "rtx3090", "t4"} <= set(known_gpus())
    assert described_gpu().name == "NVIDIA H200"


def test_an_unknown_gpu_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        DeviceUnavailable, match=r"no GPU is described as 'rtx2'; described are h200, a100, rtx3090, t4"
    ):
        described_gpu("rtx2")
