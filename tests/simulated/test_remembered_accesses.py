"""Races with accesses of long ago: what the checker remembers, and what it says of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked
from test_last_blocks import ALL_OF_A_BLOCK, LAST_BLOCK
from test_racecheck import CHECKED, KERNEL, check, races

from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.hazards.accesses import MemoryAccess, numbered
from pytest_gpulab.devices.simulated.hazards.races import distinct as parts
from pytest_gpulab.devices.simulated.hazards.races import inter_block


def test_a_long_stretch_without_a_barrier_is_remembered(run: Run) -> None:
    source = """
    __global__ void f(int *out, int rounds) {
        __shared__ int tile[256];
        int t = threadIdx.x, x = 0;
        tile[t] = t;                                  // OTHER
        __syncwarp(1 << (t % 32));
        for (int k = 0; k < rounds; k++) x += out[(t * k + blockIdx.x * 7) % 4096];
        x += tile[t ^ 128];                           // HERE
        if (x == -1) out[t] = 0;
    }"""
    source = source.replace("__syncwarp(1 << (t % 32));", "")
    out = np.zeros(4096, np.int32)
    found = run(source, out, np.int32(160), grid=(128,), block=(256,), options=CHECKED).hazards
    (hazard,) = found
    assert (hazard.where, hazard.other and hazard.other.where) == (marked(source), marked(source, "// OTHER"))


@pytest.mark.parametrize(("own", "clean"), [("blockIdx.x", True), ("blockIdx.x ^ 1", False)])
def test_many_accesses_before_another_blocks_write_are_remembered(run: Run, own: str, clean: bool) -> None:
    """So many that they are thinned out on the way."""
    source = f"""
    __global__ void f(int *out, int rounds) {{
        int t = threadIdx.x, x = 0;
        for (int k = 0; k < rounds; k++)
            x += out[blockIdx.x * 256 + (t * (2 * k + 1) & 255)];  // OTHER
        __syncthreads();
        if (x == 0) out[({own}) * 256 + t] = 1;  // HERE
    }}"""
    out = np.zeros(128 * 256, np.int32)
    hazards = run(source, out, np.int32(160), grid=(128,), block=(256,), options=CHECKED).hazards
    parties = {(hazard.where, hazard.other and hazard.other.where) for hazard in hazards}
    assert parties == (set() if clean else {(marked(source), marked(source, "// OTHER"))})


def test_many_accesses_with_fences_are_thinned_out_in_parts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is checked between the parts."""
    source = """
    __global__ void f(int *out, int rounds) {
        int t = threadIdx.x, x = 0;
        for (int k = 0; k < rounds; k++)
            x += out[blockIdx.x * 256 + (t * (2 * k + 1) & 255)];  // OTHER
        __threadfence();
        if (x == 0) out[(blockIdx.x ^ 1) * 256 + t] = 1;  // HERE
    }"""
    sizes: list[int] = []

    def noted(accesses: list[MemoryAccess], keys: parts.ClassKeys) -> list[MemoryAccess]:
        sizes.append(sum(access.lanes.shape[0] * access.lanes.shape[1] for access in accesses))
        return in_one_piece(accesses, keys)

    in_one_piece = parts._distinct
    monkeypatch.setattr(parts, "_distinct", noted)
    monkeypatch.setattr(parts, "PART_LANES", 1 << 12)
    monkeypatch.setattr(inter_block, "MAX_LANES", 1 << 15)
    out = np.zeros(16 * 256, np.int32)
    (hazard,) = run(source, out, np.int32(40), grid=(16,), block=(256,), options=CHECKED).hazards
    assert (hazard.where, hazard.other and hazard.other.where) == (marked(source), marked(source, "// OTHER"))
    assert sizes.count(1 << 12) > 20


@pytest.mark.parametrize("memory", ["tile", "out"])
def test_a_kernel_that_was_clean_is_looked_at_again(device: SimulatedDevice, memory: str) -> None:
    module = device.compile(
        "__global__ void f(int *out, int n, int apart, int shift) { __shared__ int tile[64]; int t = threadIdx.x;"
        f" {memory}[t + shift] = t; if (t < n) __syncwarp(~0u >> (32 - n)); int x = {memory}[(t ^ apart) + shift];"
        " __syncthreads(); out[t] = x; }"
    )
    out = device.array(np.zeros(64, np.int32))
    launches = {(32, 1, 0): False, (32, 1, 32): False, (2, 1, 0): True, (32, 31, 0): False, (4, 0, 32): False,
                (4, 2, 32): True}  # fmt: skip
    for _ in range(2):  # what is known of earlier launches changes nothing
        for numbers, races_there in launches.items():
            profile = module.launch("f", (1,), (32,), (out, *map(np.int32, numbers)), options=CHECKED)
            assert bool(races(profile)) == races_there, numbers
    out.free()


def shortened_at(monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    """Let the check remember only so many lanes of accesses before it makes them short."""
    for module in ("racecheck", "inter_block"):
        monkeypatch.setattr(f"pytest_gpulab.devices.simulated.hazards.races.{module}.MAX_LANES", lanes)


@pytest.mark.parametrize("sync", ["__syncwarp();", "__syncwarp(t & 32 ? ~0u : 0xFFFFFFFFu);", ""])
def test_a_long_stretch_with_warp_syncs_is_remembered(run: Run, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    source = f"""
    __global__ void f(int *out) {{
        __shared__ int tile[64];
        int t = threadIdx.x, x = 0;
        tile[t] = t;                                                         // OTHER
        {sync}
        for (int k = 0; k < 64; k++) {{ x += tile[t ^ (k & 15)]; {sync} }}
        out[blockIdx.x * 64 + t] = x + tile[t ^ 32];                         // HERE
    }}"""
    shortened_at(monkeypatch, 1 << 9)
    found = races(check(run, source))
    parties = {(hazard.where, hazard.other and hazard.other.where) for hazard in found}
    assert (marked(source), marked(source, "// OTHER")) in parties
    assert len(parties) == (1 if sync else 2)


def test_unchecked_accesses_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named barriers order threads of several warps: what stands for a long stretch with them is not known."""
    meet = 'if (t < 32) asm volatile("bar.sync 1, 32;" ::: "memory");'
    body = f"tile[t] = t; for (int k = 0; k < 40; k++) {{ {meet} out[i] += tile[t]; }}"
    profile = check(run, KERNEL.format(body=body))
    assert profile.hazards == profile.unchecked == ()
    shortened_at(monkeypatch, 1 << 9)
    profile = check(run, KERNEL.format(body=body))
    assert profile.unchecked == ("accesses before a barrier of some warps and after it by others",)
    assert not profile.order_free


def test_too_many_words_to_remember_are_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shortened_at(monkeypatch, 1 << 7)
    for module in ("racecheck", "inter_block"):
        monkeypatch.setattr(f"pytest_gpulab.devices.simulated.hazards.races.{module}.MAX_KEPT", 1 << 7)
    profile = check(run, KERNEL.format(body="for (int k = i; k < 256; k += 128) out[k] = out[k] + t;"))
    assert not profile.hazards
    assert profile.unchecked == (
        "accesses of a block between two barriers", "accesses of different blocks to the same array",
    )  # fmt: skip


def test_too_many_fences_to_remember_are_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.devices.simulated.hazards.fences.MAX_RECORDS", 3)
    profile = check(run, LAST_BLOCK.format(write=ALL_OF_A_BLOCK, fence="__threadfence();"), grid=40)
    assert not profile.hazards
    assert profile.unchecked == ("the order that its fences establish",)


def test_an_array_that_a_pointer_to_another_one_reaches_is_looked_at_from_then_on(device: SimulatedDevice) -> None:
    """No store of the kernel is given a pointer to `in`; an index beyond all bounds reaches it."""
    module = device.compile(
        "__global__ void f(const int *in, int *out, int far) {"
        " int t = threadIdx.x, x = in[t]; out[t] = x; if (t == 3) out[far + 9] = x; out[t + 32] = in[9]; }"
    )
    arrays = [device.array(np.zeros(64, np.int32)) for _ in range(2)]
    far = np.int32((arrays[0].address - arrays[1].address) // 4)
    profile = module.launch("f", (1,), (32,), (*arrays, far), options=CHECKED)
    (race,) = races(profile)
    assert "RAW" in race.what
    (unseen,) = profile.unchecked
    assert unseen.startswith("accesses to an array before a pointer to another one")
    assert not module.launch("f", (1,), (32,), (*arrays, np.int32(8)), options=CHECKED).unchecked


@pytest.mark.parametrize(
    ("body", "reached"),
    [
        ("out[i] = in[i];", {"out"}),
        ("int *p = in[i] ? in : out; p[i] = 1;", {"in", "out"}),
        ("atomicAdd(&total, in[i]);", {"total"}),
        ("two.second[i] = in[i];", {"in", "out"}),  # the parts of a struct are not told apart
        ("__shared__ int *p; if (i == 0) p = out; __syncthreads(); p[i] = 1;", None),
        ("__shared__ int tile[32]; tile[i] = in[i]; __syncthreads(); out[i] = tile[31 - i];", {"out"}),
        ("int own[4]; for (int k = 0; k < 4; k++) own[(k + i) & 3] = in[k]; out[i] = own[i & 3];", {"out"}),
        ("out[in[i]] = 1;", {"out"}),
    ],
)
def test_arrays_that_no_store_can_reach_are_known(device: SimulatedDevice, body: str, reached: set[str] | None) -> None:
    source = (
        "struct Two { int *first, *second; }; __device__ int total;"
        f"__global__ void f(int *in, int *out, Two two) {{ int i = threadIdx.x; {body} }}"
    )
    program = device.compile(source).program("f")
    names = {0: {"in"}, 1: {"out"}, 2: {"in", "out"}}
    found = set().union(*(names[number] for number in program.targets.parameters))
    found |= {"total"} if program.targets.variables else set()
    assert (None if program.targets.anywhere else found) == reached


@pytest.mark.parametrize("values", [[], [7], [3, 1, 3, 2], [-1, 4, -1], [0, 10**9, 0]], ids=str)
def test_values_are_numbered_as_by_numpy(values: list[int]) -> None:
    given = np.array(values, np.int64)
    for found, expected in zip(numbered(given), np.unique(given, return_inverse=True), strict=True):
        assert found.tolist() == expected.tolist()
