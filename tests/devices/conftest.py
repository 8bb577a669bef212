"""A compiler in a process of its own, in a sandbox and without; it knows no answers of other runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compiling import TIGHT

from pytest_gpulab.devices.compiler import compiler_process
from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess
from pytest_gpulab.devices.compiler.sandbox import Sandbox, none


@pytest.fixture(params=["sandbox, where there is one", "no sandbox"])
def within(request: pytest.FixtureRequest) -> Sandbox | None:
    return None if request.param.startswith("sandbox") else none("it was not asked for")


@pytest.fixture
def compiler(within: Sandbox | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompilerProcess]:
    monkeypatch.setattr(compiler_process, "BUSY_FACTOR", 60.0)  # what is to be stopped is so by its processor's time
    compiler = CompilerProcess(TIGHT, within, cache=Cache(None))
    yield compiler
    compiler.close()
