"""Launches with pointers and numbers that no array and no index has: each is a finding or runs, never a traceback."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import KernelFault, LaunchError, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

POINTERS = (
    0, 1, 4, 4095, 2**31, 2**32 - 1, 2**40 - 1, 2**40, 3 * 2**40, 2**47, 2**63 - 1, 2**63, 2**63 + 4,
    2**64 - 2**20, 2**64 - 8, 2**64 - 4, 2**64 - 1, 0x0010_0000_0000 - 4, 0x0010_0000_0000 + 64,
)  # fmt: skip
NUMBERS = (0, 1, -1, 31, 2**31 - 1, -(2**31))
ACCESSES = {
    "load": "*out = *(int *)p;",
    "load in lanes": "*out = ((int *)p)[threadIdx.x * n];",
    "store": "((int *)p)[threadIdx.x] = n;",
    "store downwards": "((int *)p)[-(int)threadIdx.x] = n;",
    "vector": "int4 v = ((int4 *)p)[threadIdx.x]; *out = v.x + v.w;",
    "read-only": "*out = __ldg((const int *)p + n);",
    "volatile": "*out = *(volatile int *)(p + (size_t)threadIdx.x * n);",
    "atomic": "*out = atomicAdd((int *)p + threadIdx.x * n, 1);",
    "compare and swap": "*out = atomicCAS((unsigned long long *)p + threadIdx.x, 1ull, 2ull);",
    "float atomic": "atomicAdd((float *)p + threadIdx.x, 1.0f);",
}
ANYWHERE = {
    "shared": "__shared__ int s[32]; s[threadIdx.x] = 1; __syncthreads(); *out = s[(long long)p + n];",
    "shared store": "__shared__ int s[32]; s[(long long)p + n * (int)threadIdx.x] = 1; *out = s[threadIdx.x];",
    "own": "volatile int a[8]; for (int i = 0; i < 8; ++i) a[i] = i; a[n] = 1; *out = a[(long long)p + n];",
    "any space": "__shared__ int s[32]; int own[4]; own[n & 3] = s[threadIdx.x] = 1; int *q ="
    " threadIdx.x % 3 == 0 ? s + n : threadIdx.x % 3 == 1 ? own + n : (int *)p; *q = 3; *out = *q + own[n & 1];",
    "any space, atomic": "__shared__ int s[32]; s[threadIdx.x] = 0;"
    " int *q = threadIdx.x % 2 ? s + threadIdx.x : (int *)p; *out = atomicAdd(q, n);",
    "copy": "memcpy(out, p, n & 63);",
    "division": "*out = n / (int)(size_t)p + n % (int)((size_t)p >> 32) + (unsigned)n / (unsigned)(size_t)p;",
    "shift": "*out = (n << (int)(size_t)p) + (n >> (unsigned)(size_t)p) + (int)((unsigned long long)p << n);",
    "conversion": "*out = (int)__int_as_float(n) + (int)__longlong_as_double((long long)p) + (int)(1.0f / (float)n);",
    "shuffle": "*out = __shfl_sync(0xffffffffu, n, n) + __shfl_up_sync(0xffffffffu, n, (unsigned)n, 8);",
    "text": 'printf("%p %s\\n", p, p); printf(p, n);',
}


def launched(device: SimulatedDevice, body: str) -> set[str]:
    module = device.compile(f"__global__ void k(char *p, int *out, int n) {{ {body} }}")
    endings = set()
    for pointer, number, check in itertools.product(POINTERS, NUMBERS, (False, True)):
        out = device.array(np.zeros(64, np.int32))
        options = LaunchOptions(check=check, time_limit_s=60)
        try:
            module.launch("k", (2,), (32,), (np.uint64(pointer), out, np.int32(number)), options=options)
            endings.add("ended")
        except KernelFault as fault:
            endings.add(fault.code if fault.where and fault.lane else "a fault without its place")
        finally:
            out.free()
    return endings


@pytest.mark.parametrize("body", ACCESSES.values(), ids=ACCESSES.keys())
def test_an_access_through_an_odd_pointer_is_out_of_bounds(device: SimulatedDevice, body: str) -> None:
    assert launched(device, body) == {"out-of-bounds"}


@pytest.mark.parametrize("body", ANYWHERE.values(), ids=ANYWHERE.keys())
def test_odd_numbers_fault_or_run(device: SimulatedDevice, body: str) -> None:
    assert launched(device, body) <= {"out-of-bounds", "misaligned", "ended"}


EXTENTS = (
    ((0,), (32,), 0), ((-1,), (32,), 0), ((1,), (0, 1), 0), ((1, 2, 3, 4), (32,), 0), ((1,), (2048,), 0),
    ((1,), (1, 1, 65), 0), ((2**31,), (32,), 0), ((1, 65536), (32,), 0), ((1,), (32,), 2**31), ((1,), (32,), 2**70),
    ((1,), (32,), -1), ((2**70,), (1,), 0), ((1,), (2**64, 2**64), 0),
)  # fmt: skip


@pytest.mark.parametrize(("grid", "block", "shared_bytes"), EXTENTS)
def test_a_launch_that_no_gpu_takes_is_refused(
    device: SimulatedDevice, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int
) -> None:
    module = device.compile("__global__ void k(int *x) { x[0] = 1; }")
    with pytest.raises(LaunchError):
        module.launch("k", grid, block, (device.array(np.zeros(1, np.int32)),), shared_bytes)


def test_no_array_has_a_place_that_a_kernel_could_rely_on() -> None:
    """Of 64 places all but one in a million collections use each of the low 20 bits that alignment leaves."""
    device = SimulatedDevice()
    places = np.array([device.array(np.zeros(4, np.int32)).address for _ in range(64)])
    used = np.bitwise_or.reduce(places), ~np.bitwise_and.reduce(places)
    assert not used[0] & 0xFF
    assert used[0] & used[1] & 0xFFF00 == 0xFFF00
    assert len(np.unique(np.diff(places))) > 1


def test_a_variable_has_the_alignment_that_it_asks_for() -> None:
    device = SimulatedDevice()
    for _ in range(8):
        module = device.compile(
            "__device__ __align__(4096) int table[8]; __global__ void k(int *out) { *out = (size_t)table % 4096; }"
        )
        out = device.array(np.full(1, -1, np.int32))
        module.launch("k", (1,), (1,), (out,))
        assert out.get().tolist() == [0]


def test_estimates_of_contended_atomics_do_not_depend_on_the_place_of_an_array() -> None:
    device = SimulatedDevice()
    module = device.compile(
        "__global__ void k(unsigned *bins) { atomicAdd(bins + threadIdx.x % 251, threadIdx.x % 3 + 1u); }"
    )
    estimates = set()
    for _ in range(8):
        bins = device.array(np.zeros(251, np.uint32))
        estimates.add(module.launch("k", (512,), (256,), (bins,), options=LaunchOptions(estimate=True)).estimated_ms)
    assert len(estimates) == 1
