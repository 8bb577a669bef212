"""Kernels of courses and of students, seven blind hold-outs: estimates and counters compared with those of GPUs.

`blind_ms` of the record is the estimate that was written down before the launch was timed.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabulate import tabulate

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import modelled_gpu

pytestmark = pytest.mark.unmeasured
FOLDER = Path(__file__).parents[1] / "h200"
ORDER = "depends on the order of blocks"
RETRIES = "retries of compare-and-swap depend on timing"
REPEATED = "not known: sectors of atomics at one address"


@dataclass(frozen=True)
class Record:
    """A blind hold-out, by the start of its files' names.

    Attributes:
        far_off: launches with an estimate that is off by more than a factor of 1.35; most are in docs/cost-model.md.
        wrong_order: pairs of launches that the estimates put in the wrong order; the slower launch comes first.
        miscounted: launches with counters that are not the hardware's, each with the cause.
        gpu: the GPU that they were measured on.
    """

    name: str
    launches: int
    far_off: Set[str]
    wrong_order: Set[tuple[str, str]]
    miscounted: Mapping[str, str]
    gpu: str = "h100"

    def data(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((FOLDER / f"{self.name}_{kind}.json").read_text())
        return found

    @property
    def times(self) -> dict[str, Any]:
        found: dict[str, Any] = self.data("times")["rows"]
        return found

    def rows(self, size: str) -> Iterator[Any]:
        sys.path.insert(0, str(FOLDER))
        try:
            launches = importlib.import_module(f"{self.name}_launches").launches
        finally:
            sys.path.remove(str(FOLDER))
        found: Iterator[Any] = launches(size)
        return found


COURSE = Record(
    "course", 110,
    {
        "sparse_rows", "powers_modulo", "count_primes", "scatter_random",
    },
    set(),
    {
        "gray_levels": "not known: two loads of a pixel are one in machine code",
        "largest_float": ORDER, "compact_blocks": ORDER, "breadth_first": ORDER,
        "mean_last_block_8": "not known", "max_last_block_8": "not known", "scan_coarse": "not known: joined accesses",
        "sparse_rows": "not known: the loads of a row's ends",
    },
)  # fmt: skip
EXAM = Record(
    "exam", 94,
    {
        "lengths_of_lists_large", "lengths_of_lists_medium", "transfer_money_large", "transpose_in_place_large",
        "compare_lines_large",
    },
    set(),
    {
        "append_positive_small": ORDER, "sort_in_a_warp_small": "not known: guarded stores of two words",
        "position_of_maximum_small": "not known: the extent of a block in constant memory",
        "filter_five_small": "not known: constants under a guard", "bins_of_runs_small": REPEATED,
        "transfer_money_small": REPEATED, "push_to_lists_small": REPEATED,
        "largest_by_key_small": REPEATED,
    },
)  # fmt: skip
LAB = Record(
    "lab", 42, set(), set(),
    {"pendulum_small": "not known: constants of sinf", "life_in_one_block_small": "not known: loads under a guard"},
    "h200",
)  # fmt: skip
TUTORIAL = Record(
    "tutorial", 94, {"count_to_many_4096_medium"}, set(),
    {
        "bfs_level_small": ORDER, "keep_positive_small": ORDER, "keep_positive_ballot_small": ORDER,
        "count_to_many_4096_small": REPEATED, "segment_sums_small": "not known: the loads of a row's ends",
        "spmv_csr_small": "not known: the loads of a row's ends",
        "follow_links_small": "not known: constants behind the loop", "max_by_blocks_small": "not known",
    },
    "h200",
)  # fmt: skip
HOMEWORK = Record(
    "homework", 74, {"transpose_doubles_tile_medium"}, set(),
    {
        "max_of_blocks_cas_small": RETRIES, "totals_by_group_small": RETRIES, "hist_shared_lock_free_small": RETRIES,
        "sum_of_waves_small": "not known: constants of sinf", "blur_shared_tile_small": "not known: guarded stores",
        "scan_naive_global_small": "not known: loads of a loop with an own end in each lane",
    },
    "h200",
)  # fmt: skip
VARIANTS = Record(
    "variants", 114,
    {
        "sum_with_lock_medium", "sum_with_lock_large", "product_four_each_medium", "product_four_each_large",
        "weights_shared_medium", "weights_shared_large", "weights_global_medium", "weights_global_large",
        "vector_by_threads_medium", "vector_by_threads_large", "add_by_rows_large", "greatest_common_large",
        "products_cas_large", "maximum_double_cas_large", "bytes_global_large", "points_rotated_large",
    },
    {("sum_with_lock_medium", "maximum_double_cas_large"), ("sum_with_lock_large", "minimum_each_large")},
    {
        "maximum_double_cas_small": RETRIES, "products_cas_small": RETRIES, "bytes_global_small": REPEATED,
        "sum_with_lock_small": "waits for the lock depend on timing", "minimum_of_blocks_small": "not known",
        "weights_shared_small": "accesses of a loop of the machine code around compare-and-swap",
        "laplace_shared_small": "not known: guarded stores", "rows_sorted_small": "not known: constants of a loop",
    },
    "h200",
)  # fmt: skip
SEMINAR = Record(
    "seminar", 104,
    {
        "best_under_lock_medium", "best_under_lock_large", "insert_in_table_medium", "insert_in_table_large",
        "colours_of_indices_medium", "colours_of_indices_large", "product_two_by_two_medium",
        "product_two_by_two_large", "sorted_keys_large", "months_large",
    },
    {
        ("best_under_lock_medium", "highest_as_int_large"), ("best_under_lock_large", "highest_as_int_large"),
        ("insert_in_table_medium", "highest_as_int_medium"), ("insert_in_table_large", "queue_of_block_large"),
        ("months_large", "roots_of_quadratics_large"),
    },
    {
        "best_under_lock_small": "waits for the lock depend on timing", "insert_in_table_small": RETRIES,
        "pairs_of_bytes_small": REPEATED, "push_ranks_small": REPEATED, "queue_of_block_small": ORDER,
        "rank_in_tile_small": "not known: two words of shared memory are one in machine code",
        "prefix_by_first_thread_small": "not known: accesses of a loop", "insert_16_small": "not known: constants",
        "merge_two_runs_small": "not known: guarded stores",
    },
    "h200",
)  # fmt: skip
ALL = COURSE, EXAM, LAB, TUTORIAL, HOMEWORK, VARIANTS, SEMINAR
RECORDS = pytest.mark.parametrize("record", ALL, ids=[record.name for record in ALL])


def launched(record: Record, size: str, options: LaunchOptions) -> dict[tuple[str, str], LaunchProfile]:
    """Launch each row of the record; return the profiles by family and name."""
    device, found = SimulatedDevice(modelled_gpu(record.gpu)), {}
    module = device.compile((FOLDER / f"{record.name}_kernels.cu").read_text())
    counted = record.data("counters")
    for row in record.rows(size):
        if size == "small" and row.name not in counted:
            continue
        for symbol, values in row.constants.items():
            module.set_constant(symbol, values)
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in row.args]
        found[row.family, row.name] = module.launch(row.kernel, row.grid, row.block, arrays, row.shared_bytes, options)
        device.reset()
    return found


def judged(
    times: Mapping[str, Any], estimated: Mapping[tuple[str, str], float]
) -> tuple[float, set[str], int, set[tuple[str, str]]]:
    """Return the median factor, launches beyond 1.35, the number of pairs that differ by it, and wrong pairs."""
    measured = {row: times[row[1]]["median_ms"] for row in estimated}
    table = sorted((ms / measured[row], row[1], measured[row], ms) for row, ms in estimated.items())
    print(tabulate(table, ["ratio", "launch", "ms", "estimated"], tablefmt="simple", floatfmt=".4f"))
    factors = {name: max(ratio, 1 / ratio) for ratio, name, *_ in table}
    pairs = [(a, b) for a, b in permutations(measured, 2) if a[0] == b[0] and measured[a] > 1.35 * measured[b]]
    wrong = {(a[1], b[1]) for a, b in pairs if estimated[a] <= estimated[b]}
    return float(np.median([*factors.values()])), {n for n, f in factors.items() if f > 1.35}, len(pairs), wrong


@RECORDS
def test_the_page_has_the_figures_of_the_blind_estimates(record: Record) -> None:
    times = record.times
    median, far_off, pairs, wrong = judged(
        times, {(row["family"], name): row["blind_ms"] for name, row in times.items()}
    )
    found = f"{len(times) - len(far_off)} of {len(times)} were within 1.35, half within {median:.2f}, "
    found += f"and {len(wrong)} of {pairs} pairs were in the wrong order"
    page = (FOLDER.parents[1] / "docs/cost-model.md").read_text()
    assert found in " ".join(page.split())


@RECORDS
def test_estimates_have_the_size_and_the_order_of_the_measured_times(record: Record) -> None:
    profiles = launched(record, "large" if record is COURSE else "", LaunchOptions(sample_blocks=64))
    times = record.times
    median, far_off, _, wrong = judged(times, {row: profile.estimated_ms or 0.0 for row, profile in profiles.items()})
    assert len(profiles) == len(times) == record.launches
    assert median <= 1.15
    assert far_off <= record.far_off
    assert wrong <= record.wrong_order


@RECORDS
def test_memory_counters_are_the_hardwares(record: Record) -> None:
    counters, missed = record.data("counters"), []
    counted = sorted({metric for row in counters.values() for metric in row} - {"smsp__inst_executed.sum"})
    for (_, name), profile in launched(record, "small", LaunchOptions(count=True)).items():
        for metric in counted:
            here, theirs = profile.counters.get(metric, 0.0), counters[name].get(metric, 0)
            if here != pytest.approx(theirs, rel=1e-9):
                missed.append((name, metric, theirs, here))
    print(tabulate(missed, ["launch", "counter", "GPU", "here"], floatfmt=".0f"))
    assert {name for name, *_ in missed} == set(record.miscounted)
