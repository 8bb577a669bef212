"""The tables for `-v`: what is known of the devices, and how kernels fill them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_gpulab.devices.hardware.occupancy import BlockNeeds, KernelOccupancy, occupancy_by_rules
from pytest_gpulab.grading.counters import Counter, KernelCounters
from pytest_gpulab.grading.grade import CheckResult, Grade, Measurement, Provenance
from pytest_gpulab.grading.tools.ncu import NO_PERMISSION
from pytest_gpulab.reports.gradebook import Gradebook, result_properties
from pytest_gpulab.reports.terminal.hardware import device_tables
from pytest_gpulab.reports.terminal.sections import footnotes, sections
from pytest_gpulab.reports.terminal.text import WIDTH, as_wide_as

DETAILS = {"UUID": "GPU-1", "SMs": "132", "ECC": "n/a", "memory": "1 of 140 GiB in use"}
PROVENANCE = Provenance("NVIDIA H200", "cuda", "sm_90", "nvcc 13.0", 7, "1", "0.1.0", "0" * 64, DETAILS)
REDUCE = occupancy_by_rules("sm_90", "reduce", BlockNeeds(256, 48, 1024))
SCAN = replace(occupancy_by_rules("sm_90", "scan", BlockNeeds(32, 16, 0)), achieved=0.44)


def timed(submission: str, *kernels: KernelOccupancy, provenance: Provenance = PROVENANCE) -> Grade:
    measured = Measurement("2^20", 1.0, 3.0, 3.0, 1.5, False, kernels=kernels)
    check = CheckResult("speedup[1.5x]", "speedup", "passed", 10.0, 10.0, (), measured)
    bonus = replace(check, name="speedup[2x]", measurement=replace(measured, threshold=2.0))
    return Grade(submission, "sum", (check, bonus), provenance)


def shown(*grades: Grade, verbosity: int = 1) -> dict[str, list[str]]:
    gradebook = Gradebook()
    for grade in grades:
        for position, check in enumerate(grade.checks):
            gradebook.add(result_properties(replace(grade, checks=(check,)), position))
    return dict(sections(gradebook, verbosity))


def test_the_report_has_a_table_of_the_device() -> None:
    assert shown(timed("a.cu"))["gpulab: NVIDIA H200"] == [
        "architecture  sm_90",
        "compiler      nvcc 13.0",
        "UUID          GPU-1",
        "SMs           132",
        "ECC           n/a",
        "memory        1 of 140 GiB in use",
    ]


def test_only_verbose_reports_have_the_tables() -> None:
    assert list(shown(timed("a.cu", REDUCE), verbosity=0)) == ["gpulab: sum, speed at 2^20"]


def test_a_device_comes_once_however_many_processes_opened_it() -> None:
    later = replace(PROVENANCE, details=DETAILS | {"memory": "9 of 140 GiB in use"})
    tables = shown(timed("a.cu"), timed("b.cu", provenance=later))
    assert [title for title in tables if "H200" in title] == ["gpulab: NVIDIA H200"]
    assert tables["gpulab: NVIDIA H200"][-1] == "memory        1 of 140 GiB in use"


def test_equal_gpus_without_nvml_have_different_titles() -> None:
    first, second = (
        replace(PROVENANCE, details={"UUID": "n/a", "PCI address": address}) for address in ("0000:65:00.0", "0000:b3")
    )
    grades = [timed(name, provenance=each) for name, each in (("a.cu", first), ("b.cu", second), ("c.cu", first))]
    tables = [lines for _, lines in device_tables(grades)]
    assert [lines[-1] for lines in tables] == ["PCI address   0000:65:00.0", "PCI address   0000:b3"]


def test_missing_values_are_not_available_and_long_notes_are_wrapped() -> None:
    note = "n/a: no NVIDIA driver (its library libnvidia-ml was not found), and so on and so forth, at some length"
    lines = shown(timed("a.cu", provenance=replace(PROVENANCE, details={"NVML": note, "ECC": ""})))[
        "gpulab: NVIDIA H200"
    ]
    assert lines[-1] == "ECC           n/a"
    assert all(len(line) <= WIDTH for line in lines)
    assert " ".join(" ".join(line.split()) for line in lines[2:4]) == f"NVML {note}"


def test_each_kernel_of_each_submission_has_a_row() -> None:
    table = shown(timed("class/a.cu", REDUCE, SCAN), timed("class/b.cu", SCAN))["gpulab: sum, occupancy"]
    assert table == [
        "submission  kernel  block  regs  shared  blocks  warps  occup.  limited by  best  achieved",
        "----------  ------  -----  ----  ------  ------  -----  ------  ----------  ----  --------",
        "a           reduce    256    48    1024       5     40     62%        regs   640       n/a",
        "            scan       32    16       0      32     32     50%      blocks  1024      ~44%",
        "b           scan       32    16       0      32     32     50%      blocks  1024      ~44%",
        "For sm_90.",
        "blocks, warps: resident per multiprocessor; regs: per thread; shared: bytes per block;",
        "best: the block size with the highest occupancy, which need not be the fastest;",
        "achieved: estimated share of the warps that are resident on average.",
    ]


def test_columns_that_are_left_out_have_no_note() -> None:
    with as_wide_as(60):
        table = shown(timed("class/a.cu", REDUCE, SCAN))["gpulab: sum, occupancy"]
    assert table[0].split() == ["submission", "kernel", "block", "blocks", "warps", "limited", "by"]
    assert table[-2:] == ["For sm_90.", "blocks, warps: resident per multiprocessor."]


def test_local_memory_and_constants_are_listed_if_used() -> None:
    spilling, constants = replace(REDUCE, local_bytes=64, constant_bytes=160), replace(SCAN, constant_bytes=12)
    lines = shown(timed("class/a.cu", spilling, replace(SCAN, local_bytes=0)), timed("class/b.cu", constants))[
        "gpulab: sum, occupancy"
    ]
    assert lines[9:] == [
        "a, reduce: 64 bytes of local memory per thread (arrays, spilled registers) and 160 bytes of",
        "  `__constant__` variables.",
        "b, scan: 12 bytes of `__constant__` variables.",
    ]


def test_no_kernel_no_table() -> None:
    assert "gpulab: sum, occupancy" not in shown(timed("a.cu"))


def changed(**fields: Any) -> str:
    kernel = replace(REDUCE, **fields)
    return shown(timed("class/a.cu", kernel), timed("b.cu"))["gpulab: sum, occupancy"][2]


def test_unknown_and_long_values_fit_the_table() -> None:
    assert changed(registers=None, suggested_block_threads=None).split()[2:4] == ["256", "n/a"]
    assert changed(suggested_block_threads=None).split()[-2:] == ["n/a", "n/a"]
    assert changed(limited_by=()).split()[-3:] == ["n/a", "640", "n/a"]
    assert "regs, shared" in changed(limited_by=("registers", "shared memory"))
    assert " a_kernel_wit.. " in changed(kernel="a_kernel_with_a_long_name_indeed")
    long = replace(REDUCE, kernel="k" * 90, shared_bytes=233472, limited_by=("registers", "shared memory"))
    lines = shown(timed("x" * 90 + ".cu", long), timed("b.cu"))["gpulab: sum, occupancy"]
    assert all(len(line) <= WIDTH for line in lines)


def test_hardware_counters_are_a_table_with_their_names() -> None:
    values = {
        "gpu__time_duration.sum": (66_300.0, "ns"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": (91.25, "%"),
        "sm__warps_active.avg.per_cycle_elapsed": (55.4, "warp"),
        "dram__bytes_read.sum": (268e6, "byte"),
        "dram__bytes_write.sum": (2e6, "byte"),
        "smsp__sass_branch_targets.sum": (18432.0, ""),
        "smsp__sass_branch_targets_threads_divergent.sum": (0.0, ""),
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": (7.0, ""),
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": (5.0, ""),
    }
    launch = KernelCounters("reduce", (132, 2), (256,), tuple(Counter(name, *v) for name, v in values.items()))
    grade = timed("class/a.cu")
    checks = tuple(
        replace(check, measurement=replace(check.measurement, counters=(launch,))) for check in grade.checks
        if check.measurement is not None
    )  # fmt: skip
    table = shown(replace(grade, checks=checks), timed("class/b.cu"), verbosity=0)["gpulab: sum, counters"]
    assert table[0].split() == [
        "submission", "kernel", "blocks", "ns", "occup.", "warps", "bytes", "branches", "divergent", "conflicts"
    ]  # fmt: skip
    assert table[2].split() == ["a", "reduce", "264", "66.3k", "91.2%", "55.4", "270M", "18.43k", "0", "12"]
    assert table[3] == "ns: gpu__time_duration.sum"
    assert table[-2:] == [
        "conflicts: l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum +",
        "  l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ]
    assert max(map(len, table)) <= WIDTH


def test_the_reason_for_missing_counters_is_shown_once() -> None:
    gradebook = Gradebook()
    for name in ("a.cu", "b.cu"):
        (check, _) = timed(name).checks
        assert check.measurement is not None
        noted = replace(check, measurement=replace(check.measurement, counters_note=NO_PERMISSION))
        gradebook.add(result_properties(replace(timed(name), checks=(noted,)), 0))
    assert [line for line in footnotes(gradebook) if "ncu" in line] == [f"! {NO_PERMISSION}."]


def test_simulated_counters_are_for_verbose_reports() -> None:
    launch = KernelCounters("reduce", (4,), (256,), (Counter("smsp__sass_branch_targets.sum", 12.0, "instructions"),))
    grade = timed("a.cu")
    (check, _) = grade.checks
    assert check.measurement is not None
    simulated = replace(check, measurement=replace(check.measurement, estimated=True, counters=(launch,)))
    tables = shown(replace(grade, checks=(simulated,)))
    header, _, row, legend = tables["gpulab: sum, counters"]
    assert header.split() == ["submission", "kernel", "blocks", "branches"]
    assert (row.split(), legend) == (["a", "reduce", "4", "12"], "branches: smsp__sass_branch_targets.sum")
    assert "gpulab: sum, counters" not in shown(replace(grade, checks=(simulated,)), verbosity=0)


def test_a_counter_that_only_some_launches_have_is_not_known_of_the_others() -> None:
    branches = Counter("smsp__sass_branch_targets.sum", 12.0, "")
    launches = [KernelCounters(name, (4,), (256,), counters) for name, counters in (("a", (branches,)), ("b", ()))]
    (check, _) = timed("a.cu").checks
    assert check.measurement is not None
    measured = replace(check, measurement=replace(check.measurement, counters=tuple(launches)))
    table = shown(replace(timed("a.cu"), checks=(measured,)))["gpulab: sum, counters"]
    assert [row.split()[-1] for row in table[2:4]] == ["12", "n/a"]
