"""A machine with too little memory costs no points, and neither ends the run nor passes for a mistake of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from doubling import Bench, codes, kernel, program

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.simulated import SimulatedDevice


def test_a_launch_without_memory_is_not_gradable(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if int(n) == 4:
            np.empty(2**62, np.int8)
        return kernel()(options, source, out, n)

    results = bench.results(program(twice))
    found = results["correct[n=4]"].findings[0]
    assert (results["correct[n=4]"].verdict, found.code) == ("not gradable", "no-memory")
    assert found.what.startswith("There is not enough memory to run the kernel: Unable to allocate 4")
    assert "this machine has too little memory" in found.hint
    assert results["correct[n=70]"].verdict == "passed"


@pytest.mark.parametrize(
    ("error", "code", "what"),
    [
        (MemoryError(), "no-memory", "There is not enough memory to grade this check"),
        (RecursionError(), "cannot-simulate", "The simulated GPU does not support code nested this deeply"),
    ],
)
def test_errors_of_python_are_not_gradable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, what: str
) -> None:
    def compiled(*args: Any, **more: Any) -> Any:
        raise error

    monkeypatch.setattr(bench.device, "compile", compiled)
    results = bench.results(program(kernel()))
    assert {result.verdict for result in results.values()} == {"not gradable"}
    assert set(codes(results).values()) == {code}
    assert results["compile"].findings[0].what == what


def test_a_file_with_huge_variables_is_refused_before_they_take_memory() -> None:
    device = SimulatedDevice()
    source = "__device__ char big[1 << 30]; __global__ void f(char *x) { big[threadIdx.x] = x[0]; }"
    with pytest.raises(CompileError, match="take 1,073,741,824 bytes, more than the 134,217,728 bytes") as caught:
        device.compile(source, "big.cu")
    assert caught.value.diagnostics.startswith("big.cu: error: ")
