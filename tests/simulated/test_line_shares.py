"""A launch's estimated time, handed out to its source lines."""

import pytest

from pytest_gpulab.devices.hardware.metrics import METRICS
from pytest_gpulab.devices.protocol import LaunchOptions, LineCounters, SourceLine
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.cost.line_shares import ISSUED, TIME_SHARE, with_shares

LOADS = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
LINES = tuple(
    LineCounters(SourceLine("x.cu", number), counters)
    for number, counters in enumerate(
        (
            {ISSUED: 60.0, "gpulab__barriers.sum": 10.0},
            {ISSUED: 30.0, LOADS.format("requests"): 10.0, LOADS.format("sectors"): 40.0},
            {ISSUED: 10.0, WAVES: 320.0},
        ),
        start=1,
    )
)


def shares(parts_ms: dict[str, float]) -> list[float]:
    found = [line.counters[TIME_SHARE] for line in with_shares(LINES, parts_ms, 2.5)]
    assert sum(found) == pytest.approx(100)
    return found


def test_each_part_goes_to_the_lines_that_ask_for_it() -> None:
    assert shares({"instruction issue": 1.0}) == pytest.approx([60, 30, 10])
    assert shares({"load/store unit": 1.0}) == pytest.approx([0, 1000 / 330, 32000 / 330])
    assert shares({"memory bandwidth": 1.0}) == pytest.approx([0, 100, 0])
    assert shares({"barriers": 1.0}) == pytest.approx([100, 0, 0])
    waits = [60 * 4 + 10 * 30, 30 * 4 + 10 * 400, 10 * 4 + 320 * 30]
    assert shares({"latency": 1.0}) == pytest.approx([100 * wait / sum(waits) for wait in waits])


def test_a_part_counts_with_the_norms_power() -> None:
    both = shares({"memory bandwidth": 2.0, "instruction issue": 1.0})
    weight = 2**2.5 / (2**2.5 + 1)
    assert both == pytest.approx([60 * (1 - weight), 100 * weight + 30 * (1 - weight), 10 * (1 - weight)])


def test_time_without_a_cause_goes_to_instructions() -> None:
    for part in ("constant memory", "atomics", "a part of tomorrow"):
        assert shares({part: 1.0}) == pytest.approx([60, 30, 10])


def test_nothing_has_no_shares() -> None:
    assert with_shares((), {"latency": 1.0}, 2.5) == ()
    (line,) = with_shares([LineCounters(SourceLine("x.cu", 1), {})], {"latency": 0.0}, 2.5)
    assert line.counters[TIME_SHARE] == 0


def test_the_share_is_called_an_estimate() -> None:
    assert [metric.level for metric in METRICS if metric.name == TIME_SHARE] == ["estimated"]


def test_a_conflicting_line_takes_most_of_the_time(device: SimulatedDevice) -> None:
    source = """
__global__ void transpose(int *out) {
    __shared__ int tile[32 * 32];
    int sum = 0;
    for (int k = 0; k < 64; ++k) {
        tile[threadIdx.x] = k;
        sum += tile[threadIdx.x % 32 * 32 + (k + sum) % 32];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
    out = device.array([0] * 1024 * 256)
    module = device.compile(source, "transpose.cu")
    profile = module.launch("transpose", (1024,), (256,), (out,), options=LaunchOptions(sample_blocks=16))
    found = {line.where.line: line.counters[TIME_SHARE] for line in profile.lines}
    assert sum(found.values()) == pytest.approx(100)
    assert found[7] > 60
