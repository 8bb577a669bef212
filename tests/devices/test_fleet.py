"""Which of several GPUs share the work: those of the first one's model and size; and how many may work on each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_gpulab.devices.cuda import fleet
from pytest_gpulab.devices.cuda.nvml import GpuFacts, NvmlUnavailable, facts_from
from pytest_gpulab.plugin import parallel_run


class Gpu(SimpleNamespace):
    def name(self) -> str:
        return str(self.model)

    def total_memory(self) -> int:
        return int(self.gib * 2**30)

    def pci_bus_id(self) -> str:
        return str(self.gib)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """A machine whose GPUs are in this list."""
    gpus: list[Gpu] = []
    device = type(
        "Device", (), {"__new__": lambda cls, ordinal: gpus[ordinal], "count": staticmethod(lambda: len(gpus))}
    )
    monkeypatch.setattr(fleet, "load_driver", lambda: SimpleNamespace(Device=device))
    return gpus


def test_only_gpus_like_the_first_share_the_work(machine: list[Gpu]) -> None:
    machine += [Gpu(model=model, multiprocessor_count=sms) for model, sms in (("A", 8), ("B", 8), ("A", 8), ("A", 4))]
    assert fleet.alike() == ("cuda:0", "cuda:2")


@pytest.mark.parametrize(
    ("gib", "usable", "workers"),
    [
        ([139.8], 16, 16),
        ([139.8], 64, 28),
        ([23.6], 16, 7),
        ([23.6, 23.6], 16, 14),
        ([7.8], 16, 2),
        ([2.9], 16, 1),
    ],
)
def test_there_are_as_many_workers_as_cores_that_a_gpu_has_memory_for(
    machine: list[Gpu], monkeypatch: pytest.MonkeyPatch, gib: list[float], usable: int, workers: int
) -> None:
    monkeypatch.setattr(parallel_run, "usable_cores", lambda: usable)
    monkeypatch.setattr(fleet, "read_facts", raises(NvmlUnavailable("no NVIDIA driver")))
    machine += [Gpu(model="A", gib=each) for each in gib]
    assert parallel_run._default_workers(tuple(f"cuda:{ordinal}" for ordinal in range(len(gib)))) == workers
    assert parallel_run._default_workers(("sim",)) == usable


def raises(error: Exception) -> Callable[[str], GpuFacts]:
    def read(pci_bus_id: str) -> GpuFacts:
        raise error

    return read


@pytest.mark.parametrize(("used_gib", "workers"), [(0.6, 7), (17.0, 2), (23.6, 1), (None, 7)])
def test_memory_that_others_use_is_no_room(
    machine: list[Gpu], monkeypatch: pytest.MonkeyPatch, used_gib: float | None, workers: int
) -> None:
    used_bytes = None if used_gib is None else int(used_gib * 2**30)
    facts = replace(facts_from({}, Exception), memory_total_bytes=int(23.6 * 2**30), memory_used_bytes=used_bytes)
    monkeypatch.setattr(fleet, "read_facts", {"23.6": facts}.__getitem__)
    machine.append(Gpu(gib=23.6))
    assert fleet.graders_with_room("cuda:0") == workers
