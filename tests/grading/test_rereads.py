"""A note for kernels in which every thread reads the whole input: wrong, stopped or too slow ones."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from block_sums import EXERCISE, HEAD, INTS, TREE, changed, graded
from doubling import EXERCISE as TWICE
from doubling import Bench, kernel, program

from pytest_gpulab import concepts
from pytest_gpulab.devices.protocol import Device, KernelFault, LaunchProfile
from pytest_gpulab.exercise import Buffer, Case, Launch, Plan, Problem, UsesCheck
from pytest_gpulab.grading.diagnosis.explain import with_notes
from pytest_gpulab.grading.diagnosis.whole_array_reads import rereads
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.replay import FIRST, Run, replay


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


SIZES = (Case("n=2000", 2000, 10, variant=INTS), Case("n=2500", 2500, 10, variant=INTS))
CASES = replace(EXERCISE, cases=SIZES, speed=(), compile_points=70)
KERNEL = (
    HEAD
    + """
__global__ void block_sums(const GPULAB_T* values, GPULAB_T* out, unsigned n)
{
    unsigned first = blockIdx.x * BLOCK_SIZE, i = first + threadIdx.x;
    GPULAB_T sum = 0;
    for (unsigned k = 0; k < END; ++k)
        if (k >= first && k < first + BLOCK_SIZE)
            sum = GPULAB_OP(sum, values[k]);
        else if (values[k] == 12345)
            sum = 0;
    if (threadIdx.x == 0)
        out[blockIdx.x] = weight * sum;
}
"""
)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("n", "every thread of `block_sums` reads all 2,000 elements of `values`"),
        ("min(i, n)", "every thread of `block_sums` reads `values` anew: 1,023 of its 2,000 elements on average"),
        ("min(first + BLOCK_SIZE, 64u)", ""),
    ],
)
def test_a_wrong_kernel_that_reads_everything_in_each_thread_gets_a_note(
    gpu: Device, tmp_path: Path, end: str, told: str
) -> None:
    source = changed(KERNEL.replace("END", end), "weight * sum", "sum - 1")
    finding, *_ = graded(tmp_path, gpu, source, CASES)["correct[n=2000]"].findings
    assert finding.code == "wrong-result"
    assert [line for line in finding.evidence if "every thread" in line] == ([told] if told else [])


def test_a_correct_kernel_that_is_too_slow_gets_the_case_that_shows_it(gpu: Device, tmp_path: Path) -> None:
    exercise = replace(CASES, speed=(replace(EXERCISE.speed[0], simulated_size=2048),), compile_points=50)
    results = graded(tmp_path, gpu, KERNEL.replace("END", "n"), exercise)
    assert results["correct[n=2000]"].verdict == "passed"
    finding, *_ = results["speedup[1.2x int32]"].findings
    assert finding.code == "too-slow"
    assert finding.evidence[-1] == (
        "in correct[n=2000], every thread of `block_sums` reads all 2,000 elements of `values`"
    )


def test_a_stopped_kernel_gets_the_reads_of_its_threads(gpu: Device) -> None:
    source = KERNEL.replace(
        "#include <gpulab.cuh>", "#define GPULAB_T int\n#define GPULAB_OP(a, b) a + b\n#include <gpulab.cuh>"
    )
    module = gpu.compile(source.replace("END", "n").replace("sum = 0;\n    if", "__trap();\n    if"))
    plan = EXERCISE.plan(Problem(9000, {"BLOCK_SIZE": 128}, INTS))
    values = np.ones(9000, np.int32)
    values[2000] = 12345
    run = replay(gpu, module, plan, {"in": values, "weight": np.ones(1, np.int32)}, FIRST)
    assert isinstance(run.error, KernelFault) and run.error.code == "trap"
    names = {"block_sums": ("values", "out", "n")}
    told = rereads(plan, [run], names)
    (line,) = told
    assert re.fullmatch(
        r"until then, every thread of `block_sums` had read 2,\d{3} of the 9,000 elements of `values`", line
    )


def test_a_kernel_that_reads_each_element_once_gets_no_note(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "weight * tile[0]", "tile[0] - 1")
    finding, *_ = graded(tmp_path, gpu, source, CASES)["correct[n=2000]"].findings
    assert not [line for line in finding.evidence if "every thread" in line]


@pytest.mark.unit
@pytest.mark.parametrize(("reads", "sizes"), [(1.0, [300, 2048]), (0.1, [300, 2048, 4096])])
def test_after_a_stopped_count_of_a_kernel_that_reads_everything_no_larger_size_is_run(
    tmp_path: Path, reads: float, sizes: list[int]
) -> None:
    ran: list[int] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        ran.append(int(n))
        if n > 300:
            raise KernelFault("time-limit", "the kernel does not end")
        return kernel(read_per_thread={0: reads * 4 * n})(options, source, out, n)

    results = Bench(tmp_path).results(
        program(twice),
        cases=(Case("n=300", 300, 10),),
        safe=(),
        uses=(UsesCheck("few-reads", (concepts.shared_use(1),), 10, 2048),),
        speed=(replace(TWICE.speed[0], simulated_size=4096),),
        compile_points=60,
    )
    assert list(dict.fromkeys(ran)) == sizes
    (found,) = results["speedup[1.5x]"].findings
    assert (found.code, found.because) == ("time-limit", "uses[few-reads]")


@pytest.mark.parametrize(("elements", "is_cause"), [(32, False), (33, False), (43, True)])
def test_a_tunable_that_nothing_reads_is_the_cause_if_elements_are_left_unread(elements: int, is_cause: bool) -> None:
    note = Finding("tunable-unread", "ITEMS_PER_THREAD is declared as 2, but nothing reads it.", hint="fewer blocks")
    arrays = Buffer("in", "input", np.float32, (elements,)), Buffer("out", "output", np.float32, (1,))
    plan = Plan(arrays, (Launch("reduce", (1,), (32,), ("in", "out", np.uint32(elements))),))
    run = Run(profiles=(LaunchProfile("reduce", (1, 1, 1), (32, 1, 1), read_per_thread={0: 4.0}),))
    (found,) = with_notes((Finding("wrong-result", "`out`: the only element is wrong."),), (note,), plan, [run])
    assert (found.hint == "fewer blocks") == is_cause
