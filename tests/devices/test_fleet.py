"""Which of several GPUs share the work: those of the first one's model and size."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_gpulab.devices.cuda import fleet


class Gpu(SimpleNamespace):
    def name(self) -> str:
        return str(self.model)


def test_only_gpus_like_the_first_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu(model=model, multiprocessor_count=sms) for model, sms in (("A", 8), ("B", 8), ("A", 8), ("A", 4))]
    device = type("Device", (), {"__new__": lambda cls, ordinal: gpus[ordinal], "count": staticmethod(lambda: 4)})
    monkeypatch.setattr(fleet, "load_driver", lambda: SimpleNamespace(Device=device))
    assert fleet.alike() == ("cuda:0", "cuda:2")
