"""Traces: the accesses, barriers and lines of a launch as recorded for figures."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from pytest_gpulab.devices import trace_events
from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions, Schedule
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.trace_events import AccessEvent, BarrierEvent, LineEvent, MissedBarrierEvent, Trace

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


def traced(
    device: SimulatedDevice,
    source: str,
    trace: Trace,
    blocks: int = 3,
    values: int = 192,
    threads: int = 64,
    schedule: Schedule = "lockstep",
) -> None:
    module = device.compile(source)
    given, out = device.array(np.arange(values, dtype=np.int32)), device.array(np.zeros(values, np.int32))
    module.launch(
        module.kernels[0], (blocks,), (threads,), (given, out), options=replace(CHECKED, trace=trace, schedule=schedule)
    )


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


def missed(
    device: SimulatedDevice, body: str, threads: int = 64, schedule: Schedule = "lockstep"
) -> list[tuple[int, tuple[int, ...], int | None]]:
    """Return (block, absent threads, expected) of the barriers that not all threads of blocks 0 and 1 reach."""
    trace = Trace(frozenset({0, 1}))
    with suppress(KernelFault):
        traced(device, f"__global__ void k(int *in, int *out) {{ {body} }}", trace, threads=threads, schedule=schedule)
    events = [event for event in trace.launches[0].events if isinstance(event, MissedBarrierEvent)]
    assert all(event.where is not None for event in events)
    return [(event.block, event.absent, event.expected) for event in events]


def test_barriers_that_not_all_threads_reach_are_recorded(device: SimulatedDevice) -> None:
    late = tuple(range(3, 64))
    assert missed(device, "__syncthreads(); out[threadIdx.x] = 1;") == []
    assert missed(device, "if (threadIdx.x >= 3 && blockIdx.x) return; __syncthreads();") == [(1, late, None)]
    branch = "if (threadIdx.x < 3) { __syncthreads(); }\n else { __syncthreads(); }"
    assert sorted(missed(device, branch)) == [(b, absent, None) for b in (0, 1) for absent in ((0, 1, 2), late)]


def test_barriers_of_faults_and_named_ones_are_recorded(device: SimulatedDevice) -> None:
    """A deadlock, a fault while threads wait, and more threads than a barrier expects."""
    assert missed(device, 'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");')[0] == (0, (*range(32, 64),), None)
    fault = "if (threadIdx.x < 32) __syncthreads(); else if (threadIdx.x < 64) return; else out[1 << 20] = 1;"
    assert missed(device, fault, threads=96, schedule="warps")[0] == (0, (*range(32, 96),), None)
    assert missed(device, 'asm volatile("bar.sync 1, 64;");', threads=128)[0] == (0, (), 64)


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
