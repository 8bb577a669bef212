"""Programs as tutorials have them: they run unchanged, print what they must, and only refused calls give findings."""

from __future__ import annotations

import pytest
from program_runs import run

LADDER = (
    "neighbored", "neighboredLess", "interleaved", "unrolled<2>", "unrolled<4>", "unrolled<8>", "unrolledLastWarp",
)  # fmt: skip


def _is_clean(report: str) -> bool:
    return "; no findings\n" in report and "finding" not in report.replace("no findings", "")


@pytest.mark.parametrize("length", ["1", "256", "100000"])
def test_sum_in_shared_memory(length: str) -> None:
    ran = run("sum_shared", length)
    assert ran.out.startswith(f"sum of {length} numbers: ") and ran.out.endswith("\nPASSED\n")
    assert ran.code == 0
    assert ran.report.startswith("gpulab: 1 launch of 1 kernel") and _is_clean(ran.report)


def test_constant_memory_is_estimated_as_faster_than_global_memory() -> None:
    ran = run("field_constant", "200", "130")
    assert ran.out == (
        "global memory: 0 wrong points\nconstant memory: 0 wrong points\nconstant memory is faster: yes\nPASSED\n"
    )
    assert ran.code == 0 and _is_clean(ran.report)
    assert "Times between events are estimates" in ran.report


def test_scan_of_any_length_with_recursive_host_functions() -> None:
    ran = run("scan_recursive", "1", "256", "257", "70000")
    assert ran.out == (
        "1 elements, 1 levels: right\n256 elements, 1 levels: right\n257 elements, 2 levels: right\n"
        "70000 elements, 3 levels: right\nPASSED\n"
    )
    assert ran.code == 0 and _is_clean(ran.report)


@pytest.mark.parametrize(
    ("model", "name", "capability", "processors"), [("h200", "H200", "9.0", 132), ("t4", "T4", "7.5", 40)]
)
def test_device_properties_are_those_of_the_model(model: str, name: str, capability: str, processors: int) -> None:
    ran = run("device_properties", options=(f"--gpu={model}",))
    lines = ran.out.splitlines()
    assert lines[-1] == "PASSED" and ran.code == 0
    assert name in lines[2]
    assert lines[3:5] == [f"  compute capability: {capability}", f"  multiprocessors: {processors}"]
    assert "; 1 finding api-error: cudaSetDevice returned cudaErrorInvalidDevice" in ran.said


def test_divergence_is_estimated_as_slower() -> None:
    ran = run("divergence_pair")
    assert ran.out == (
        "0 of 16384 elements differ\nboth kernels took time: yes\nthe kernel without divergence is faster: yes\n"
    )
    assert ran.code == 0 and _is_clean(ran.report)


@pytest.mark.parametrize(("shape", "grid"), [(("32", "16"), "7,8"), (("16", "16"), "13,8"), (("1", "256"), "200,1")])
def test_matrices_with_block_shapes_of_the_command_line(shape: tuple[str, str], grid: str) -> None:
    ran = run("matrix_sum", *shape)
    head = f"sumMatrix<<<({grid}), ({','.join(shape)})>>>: time measured: yes\n"
    assert ran.out == head + "0 of 24000 elements are wrong\nPASSED\n"
    assert ran.code == 0 and _is_clean(ran.report)


def test_a_block_shape_that_is_too_large() -> None:
    ran = run("matrix_sum", "64", "32")
    assert ran.code == 2 and ran.out == ""
    assert "line 57: cudaErrorInvalidConfiguration: invalid configuration argument\n" in ran.report
    assert "launch-error: The launch was refused: sumMatrix: a block of (64, 32, 1) is too large" in ran.said
    assert "at matrix_sum.cu:56\n" in ran.report


def test_wrong_usage_is_the_programs_own_message() -> None:
    ran = run("matrix_sum")
    assert ran.code == 64
    assert ran.report.startswith("usage: ") and "BLOCK_X BLOCK_Y" in ran.report


@pytest.mark.parametrize("block", ["64", "128", "512"])
def test_ladder_of_sums_in_global_memory(block: str) -> None:
    ran = run("reduction_ladder", block)
    *steps, faster, verdict = ran.out.splitlines()
    assert tuple(line.split()[0] for line in steps) == LADDER
    assert all(line.endswith("sum 8358766 right") for line in steps)
    assert (faster, verdict) == ("the last step is faster than the first: yes", "PASSED")
    assert ran.code == 0 and _is_clean(ran.report)


def test_the_profile_shows_each_step_of_the_ladder() -> None:
    ran = run("reduction_ladder", options=("--profile",))
    assert ran.out.endswith("PASSED\n")
    rows = {line.split()[0]: line.split() for line in ran.report.splitlines() if line.split()[2:4] == ["128", "1"]}
    assert tuple(rows) == LADDER
    sectors, lanes = ({step: float(row[at]) for step, row in rows.items()} for at in (-3, -1))
    assert sectors["neighboredLess"] > 2 * sectors["interleaved"]
    assert lanes["neighbored"] < lanes["interleaved"] < lanes["unrolledLastWarp"]


def test_kinds_of_memory() -> None:
    ran = run("memory_kinds")
    kinds = ("managed memory", "variables", "pinned memory and streams", "pitched memory")
    assert ran.out == "".join(f"{kind}: right\n" for kind in kinds) + "PASSED\n"
    assert ran.code == 0 and _is_clean(ran.report)


def test_cooperative_launches_and_occupancy() -> None:
    ran = run("cooperative")
    assert ran.out == "sum 99991, expected 99991\nPASSED\ntoo many blocks: cudaErrorCooperativeLaunchTooLarge\n"
    assert ran.code == 0
    assert "at most 1056 can be resident at once" in ran.said
