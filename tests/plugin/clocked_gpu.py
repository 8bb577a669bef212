"""A stand-in for a GPU that times: it runs kernels as the simulated GPU does, and a comment says how long they take.

`// takes 2.5 ms` anywhere in a source is what each launch of its kernels takes, give or take noise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.stopwatch import Conditions, KernelLaunch
from pytest_gpulab.grading.time_limits import LimitedModule

NAME = "Test GPU 3000"


class ClockedGpu(SimulatedDevice):
    def __init__(self, name: str = NAME) -> None:
        super().__init__()
        self.name = name
        self.takes_ms: dict[int, float] = {}
        self.modules: list[Any] = []

    @property
    def info(self) -> DeviceInfo:
        return super().info._replace(name=self.name, estimates=False, details={"SMs": "8", "driver": "600.1"})

    def compile(self, source: str, *args: Any, **kwargs: Any) -> Any:
        module = super().compile(source, *args, **kwargs)
        found = re.search(r"// takes ([\d.]+) ms", source)
        self.modules.append(module)  # so that no other one gets its id
        self.takes_ms[id(module)] = float(found[1]) if found else 1.0
        return module

    def part(self, whole: Any, offset_bytes: int, shape: Any, dtype: Any) -> Any:
        """Return an array of its own, because the address of a simulated one does not matter."""
        assert 0 <= offset_bytes < whole.nbytes
        return self.empty(shape, dtype)

    def copy(self, copies: Any) -> None:
        for copy in copies:
            stretch, values = copy.elements or slice(None), copy.target.get()
            values.reshape(-1)[stretch] = copy.source.get().reshape(-1)[stretch]
            copy.target.set(values)

    def same(self, one: Any, other: Any) -> bool:
        return one.get().tobytes() == other.get().tobytes()

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    working = alone

    @contextmanager
    def stopwatch(self, drain: bool = False) -> Iterator[HazardChecker]:
        yield HazardChecker(self)


class HazardChecker:
    l2_bytes = 0
    peak_bandwidth_gb_s = 1e9
    tick_ms = 0.0

    def __init__(self, gpu: ClockedGpu) -> None:
        self.gpu, self.rng = gpu, np.random.default_rng(5)

    def calibrate(self, briefly: bool = False) -> None:
        """Its samples show nothing too much."""

    def overhead_ms(self, launches: int) -> float:
        return 0.0

    def conditions(self) -> Conditions:
        return Conditions(1000, 1000)

    def others(self) -> tuple[str, ...]:
        return ()

    def cold_ms(self, module: Any, calls: Sequence[KernelLaunch], copies: Any = ()) -> float:
        self.gpu.copy(copies)
        for call in calls:
            module.launch(call.kernel, call.grid, call.block, call.args, call.shared_bytes)
        inner = module._module if isinstance(module, LimitedModule) else module
        return self.gpu.takes_ms[id(inner)] * len(calls) * float(np.exp(0.002 * self.rng.standard_normal()))

    batch_ms = cold_ms
