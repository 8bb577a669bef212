"""Traces: the accesses, barriers and lines of a launch as recorded for figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_gpulab.devices import trace_events
from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.trace_events import AccessEvent, BarrierEvent, LineEvent, Trace

REVERSE = """__global__ void reverse(const int *in, int *out)
{
    __shared__ int tile[64];
    tile[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 8)
        out[blockIdx.x * 8 + threadIdx.x] = tile[63 - threadIdx.x];
}
"""
CHECKED = LaunchOptions(check=True)


def traced(device: SimulatedDevice, source: str, trace: Trace, blocks: int = 3, values: int = 192) -> None:
    module = device.compile(source)
    given, out = device.array(np.arange(values, dtype=np.int32)), device.array(np.zeros(values, np.int32))
    module.launch(module.kernels[0], (blocks,), (64,), (given, out), options=replace(CHECKED, trace=trace))


def test_accesses_have_places_values_and_lines(device: SimulatedDevice) -> None:
    trace = Trace(frozenset({1}))
    traced(device, REVERSE, trace)
    (launch,) = trace.launches
    assert (launch.grid, launch.block, launch.shared) == ((3, 1, 1), (64, 1, 1), {"tile": (0, 256)})
    accesses = [event for event in launch.events if isinstance(event, AccessEvent)]
    seen = [(event.kind, event.space, event.where.line if event.where else 0) for event in accesses]
    assert seen == [("read", "global", 4), ("write", "shared", 4), ("read", "shared", 7), ("write", "global", 7)]
    assert {event.block for event in launch.events} == {1}
    load, store, read, write = accesses
    assert load.offsets.tolist() == [4 * (64 + t) for t in range(64)]
    assert (
        load.bits.view(np.int32).ravel().tolist() == store.bits.view(np.int32).ravel().tolist() == list(range(64, 128))
    )
    assert read.threads.tolist() == list(range(8)) and read.offsets.tolist() == [4 * (63 - t) for t in range(8)]
    assert write.bits.view(np.int32).ravel().tolist() == [127 - t for t in range(8)]


def test_barriers_and_lines_are_in_order(device: SimulatedDevice) -> None:
    trace = Trace()
    traced(device, REVERSE, trace)
    kinds = [type(event) for event in trace.launches[0].events]
    assert kinds.count(BarrierEvent) == 1
    barrier = kinds.index(BarrierEvent)
    lines = [event for event in trace.launches[0].events if isinstance(event, LineEvent)]
    assert any(where.line == 7 and len(event.threads) == 8 for event in lines for where in event.lines)
    before = [event for event in trace.launches[0].events[:barrier] if isinstance(event, AccessEvent)]
    assert [event.where.line for event in before if event.where] == [4, 4]


def test_an_atomic_has_its_new_value(device: SimulatedDevice) -> None:
    source = """__global__ void count(const int *in, int *out)
    {
        atomicAdd(out, 2);
        if (threadIdx.x == 0) in += 0;
    }
    """
    trace = Trace()
    traced(device, source, trace, blocks=1)
    (atomic,) = [event for event in trace.launches[0].events if isinstance(event, AccessEvent)]
    assert atomic.kind == "atomic" and set(atomic.bits.view(np.int32).ravel().tolist()) == {128}


def test_a_long_trace_is_cut() -> None:
    launch = trace_events.LaunchTrace("k", (1, 1, 1), (1, 1, 1), {})
    for _ in range(trace_events.MAX_EVENTS + 1):
        launch.add(BarrierEvent(0))
    assert launch.is_cut and len(launch.events) == trace_events.MAX_EVENTS
