"""Fixtures shared by the tests of the simulated GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.protocol import DEFAULT_OPTIONS, LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    """A fresh simulated GPU."""
    device = SimulatedDevice()
    yield device
    device.close()


@pytest.fixture
def no_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave to the simulated GPU what a later assembler may know: today's refuses most of it."""
    compile_ptx = nvrtc.compile_ptx

    def unmarked(*args: Any) -> tuple[str, str]:
        ptx, log = compile_ptx(*args)
        return ptx.replace("begin inline asm", "here it comes"), log

    monkeypatch.setattr(nvrtc, "compile_ptx", unmarked)


@pytest.fixture
def run(device: SimulatedDevice) -> Run:
    """Compile a source and launch its only kernel; NumPy arrays among the arguments are copied there and back."""

    def launch(
        source: str,
        *args: Any,
        grid: tuple[int, ...] = (1,),
        block: tuple[int, ...] = (32,),
        shared_bytes: int = 0,
        options: LaunchOptions = DEFAULT_OPTIONS,
    ) -> LaunchProfile:
        module = device.compile(source)
        held = [device.array(argument) if isinstance(argument, np.ndarray) else argument for argument in args]
        try:
            return module.launch(module.kernels[0], grid, block, held, shared_bytes, options)
        finally:
            for argument, memory in zip(args, held, strict=True):
                if isinstance(argument, np.ndarray):
                    argument[...] = memory.get()

    return launch
