"""A check that is asked for by itself has the verdict that it has among all, whatever it takes to find it."""

from __future__ import annotations

from contextlib import closing
from time import monotonic

import pytest
from hang_guard import HANG_S
from remote_class import KERNEL, Class, graded


def alone(bench: Class, name: str, text: str, **more: float) -> str:
    with closing(bench.grader(text, **more)) as grader:
        return grader.run(bench.checks[name]).verdict


@pytest.mark.parametrize("deed", ["fault", "crash", "claim"])
def test_a_kernel_that_breaks_the_gpu_in_one_case_may_be_safe_all_the_same(hostile: Class, deed: str) -> None:
    text = KERNEL + f"// launch 31: {deed}\n"
    assert graded(hostile, text)["safe[memory]"].verdict == "passed"
    hostile.log.unlink()
    assert alone(hostile, "safe[memory]", text) == "passed"


def test_a_broken_gpu_keeps_no_other_check_from_being_graded(hostile: Class) -> None:
    with closing(hostile.grader(KERNEL + "// launch 31: fault\n")) as grader:
        found = [grader.run(hostile.checks[name]).verdict for name in ("safe[memory]", "correct[n=100]")]
    assert found == ["passed", "passed"]


def test_a_gpu_that_is_gone_is_not_asked_for_again(hostile: Class) -> None:
    with closing(hostile.grader(KERNEL + "// compile: gone\n")) as grader:
        results = [grader.run(hostile.checks[name]) for name in ("safe[memory]", "correct[n=1]")]
    assert {result.verdict for result in results} == {"not gradable"}
    assert {result.findings[0].what for result in results} == {"The device failed: it does not answer"}
    assert hostile.deeds() == ["gone"]


@pytest.mark.parametrize("name", ["correct[n=31]", "safe[memory]", "speedup[0.5x]"])
def test_a_compiler_has_the_time_of_the_compile_check_whatever_is_asked_for(
    hostile: Class, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("pytest_gpulab.devices.cuda.gpu_lock.SHARED_WAIT_S", 0.5)
    begin_s = monotonic()
    assert alone(hostile, name, KERNEL + "// compile: hang\n", timeout_s=1.0) == "failed"
    assert monotonic() - begin_s < HANG_S  # a tier's timing may take 20 minutes
