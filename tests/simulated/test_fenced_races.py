"""In kernels with fences each access of each thread counts: none is left out, or the report says so."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import Hazard, LaunchOptions, LaunchProfile, Schedule
from pytest_gpulab.devices.simulated.hazards import fences

pytestmark = pytest.mark.unmeasured

HAZARDS = "pytest_gpulab.devices.simulated.hazards"
LAST = """
__device__ unsigned count;
__global__ void f(int *out) {{
    __shared__ bool last; int t = threadIdx.x, b = blockIdx.x, x = 0;
    {before}
    if (b != {unfenced}) __threadfence();
    __syncthreads();
    if (t == 0) last = atomicAdd(&count, 1) == gridDim.x - 1;
    __syncthreads();
    if (last) {{
        {after} // HERE
        out[8192 + t] = x;
    }}
}}
"""
PER_THREAD = """
__global__ void f(int *out) {{
    __shared__ int tile[64]; __shared__ unsigned count; int t = threadIdx.x, b = blockIdx.x;
    tile[t] = t; if (t == 0) count = 0;
    __syncthreads();
    out[b * 64 + t] = tile[5];
    if (t != {unfenced}) __threadfence_block();
    if (atomicAdd(&count, 1) == 63) tile[5] = t; // HERE
}}
"""
SUM_OF_ALL = ("out[b * 64 + t] = t;", "for (int k = 0; k < gridDim.x; k++) x += out[64 * k + t];")
READ_BY_MANY = ("if (t == 3) out[b + 64] = out[0];", "if (t == 9) out[0] = 1;")
READ_BY_ALL = ("out[b * 64 + t + 64] = out[0];", "if (t == 9) out[0] = 1;")
NOBODY = -1


def check(run: Run, source: str, grid: int = 2, schedule: Schedule = "lockstep") -> LaunchProfile:
    options = LaunchOptions(schedule, check=True)
    return run(source, np.zeros(1 << 14, np.int32), grid=(grid,), block=(64,), options=options)


def races(profile: LaunchProfile) -> list[Hazard]:
    return [hazard for hazard in profile.hazards if hazard.kind == "race" and not hazard.harmless]


@pytest.fixture(params=[None, 1 << 9], ids=["all remembered", "made short"])
def remembered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the check remember all accesses, or only a few before it makes them short."""
    for module in ("racecheck", "inter_block") if request.param else ():
        monkeypatch.setattr(f"{HAZARDS}.races.{module}.MAX_LANES", request.param)


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("unfenced", [0, 10, 98])
@pytest.mark.parametrize(("before", "after"), [SUM_OF_ALL, READ_BY_MANY, READ_BY_ALL])
def test_one_of_a_hundred_blocks_lacks_the_fence(run: Run, before: str, after: str, unfenced: int) -> None:
    source = LAST.format(before=before, after=after, unfenced=unfenced)
    profile = check(run, source, grid=100)
    assert {hazard.where for hazard in races(profile)} == {marked(source)}
    assert {hazard.other.lane.block[0] for hazard in races(profile) if hazard.other} == {unfenced}
    assert not profile.unchecked


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(("before", "after"), [SUM_OF_ALL, READ_BY_MANY, READ_BY_ALL])
def test_a_hundred_blocks_with_their_fences_are_in_order(run: Run, before: str, after: str) -> None:
    profile = check(run, LAST.format(before=before, after=after, unfenced=NOBODY), grid=100)
    assert not races(profile) and not profile.unchecked


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("unfenced", [NOBODY, 0, 40, 62])
def test_one_thread_of_a_block_lacks_the_fence(run: Run, unfenced: int) -> None:
    source = PER_THREAD.format(unfenced=unfenced)
    profile = check(run, source)
    assert {hazard.where for hazard in races(profile)} == (set() if unfenced == NOBODY else {marked(source)})
    assert not profile.unchecked


def test_a_fence_of_the_first_block_orders_no_other_one(run: Run) -> None:
    """Both blocks use shared memory alike, so that one of them stands for both; their fences are not alike."""
    source = """
    __global__ void f(int *out) {
        __shared__ int tile[64]; int t = threadIdx.x; volatile int *go = out + 100 + blockIdx.x;
        if (t == 40) { tile[3] = out[5]; if (blockIdx.x == 0) __threadfence(); go[0] = 1; }
        if (t == 0) { while (!go[0]); out[blockIdx.x] = tile[3]; } // HERE
    }"""
    (hazard,) = races(check(run, source))
    assert (hazard.where, hazard.lane and hazard.lane.block, hazard.count) == (marked(source), (1, 0, 0), 1)


@pytest.mark.parametrize("unfenced", [NOBODY, 10])
def test_many_accesses_are_asked_about_piece_by_piece(run: Run, monkeypatch: pytest.MonkeyPatch, unfenced: int) -> None:
    before, after = SUM_OF_ALL
    monkeypatch.setattr(f"{HAZARDS}.fences.MAX_SOURCES", 7)
    monkeypatch.setattr(f"{HAZARDS}.reporting.MAX_QUESTIONS", 100)
    profile = check(run, LAST.format(before=before, after=after, unfenced=unfenced), grid=100)
    assert bool(races(profile)) == (unfenced != NOBODY) and not profile.unchecked


@pytest.mark.parametrize(
    ("limits", "unseen"),
    [
        ({"fences.MAX_SOURCES": 7, "fences.MAX_WORK": 1000}, "the order that its fences establish"),
        ({"races.pairing.MAX_PAIRS": 99}, "all pairs of accesses of different blocks to the same array"),
        (
            {"races.inter_block.MAX_LANES": 99, "races.inter_block.MAX_KEPT": 99},
            "accesses of different blocks to the same array",
        ),
    ],
)
def test_a_check_that_is_cut_short_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], unseen: str
) -> None:
    """Threads count what others have counted, which each of them looks at before."""
    for name, limit in limits.items():
        monkeypatch.setattr(f"{HAZARDS}.{name}", limit)
    source = LAST.format(before="if (t < 9) x = out[t]; __syncthreads();", after="", unfenced=NOBODY).replace(
        "if (b != -1) __threadfence();", "__threadfence(); if (t == 5) atomicAdd(out + t, x);"
    )
    assert unseen in check(run, source, grid=100).unchecked


VOLATILE_TREE = """
__global__ void f(int *out) {{
    __shared__ volatile int tile[64]; int t = threadIdx.x, b = blockIdx.x;
    tile[t] = t;
    for (int stride = 32; stride; stride /= 2) {{
        if ({synced}) __syncthreads();
        if (t < stride) tile[t] = tile[t] + tile[t + stride]; // HERE
    }}
    if (t == 0) out[b] = tile[0];
}}
"""


@pytest.mark.parametrize(("synced", "racing_blocks"), [("true", 0), ("false", 200), ("b % 50 != 7", 4)])
def test_one_block_is_replayed_for_all_that_synchronise_alike(
    run: Run, monkeypatch: pytest.MonkeyPatch, synced: str, racing_blocks: int
) -> None:
    source, replayed, step = VOLATILE_TREE.format(synced=synced), list[int](), fences._Replay.step

    def counting(self: fences._Replay, record: fences.Record) -> None:
        replayed.append(record.lanes.n)
        step(self, record)

    monkeypatch.setattr(fences._Replay, "step", counting)
    found = races(check(run, source, grid=200))
    lanes = sum(replayed)
    monkeypatch.setattr(fences, "representatives", lambda records: None)
    assert found == races(check(run, source, grid=200))
    assert sum(replayed) - lanes >= 20 * lanes
    assert max((hazard.count for hazard in found), default=0) == 32 * racing_blocks


PUBLISH = """
#define PUT(p, v) asm volatile("st.relaxed.cta.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory")
#define GET(x, p) asm volatile("ld.relaxed.cta.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory")
__global__ void f(int *out) {{
    __shared__ int tile[64]; int t = threadIdx.x, x = 0, y = 0; tile[t] = 0;
    __syncthreads();
    int *value = {place} + 3, *flag = {place} + 40; volatile int *v = value, *go = flag;
    if (t == {writer}) {{ {write} }}
    if (t == 0) {{ {read} // HERE
        out[8192 + blockIdx.x] = y; }}
}}
"""
PLACES = {"shared": "tile", "global": "out + 64 * blockIdx.x"}
WAIT, LOOK = "while (!go[0]); __threadfence_block(); y = v[0];", "do GET(x, flag); while (!x); GET(y, value);"
UNFENCED = {
    "plain": ("value[0] = 7; go[0] = 1;", "while (!go[0]); y = value[0];"),
    "plain, fenced by the reader only": ("value[0] = 7; go[0] = 1;", WAIT.replace("v[0]", "value[0]")),
    "plain, an atomic flag": ("value[0] = 7; atomicExch(flag, 1);", "while (!atomicAdd(flag, 0)); y = value[0];"),
    "volatile": ("v[0] = 7; go[0] = 1;", WAIT),
    "volatile, a fence before both": ("__threadfence_block(); v[0] = 7; go[0] = 1;", WAIT),
    "volatile, a fence behind both": ("v[0] = 7; go[0] = 1; __threadfence_block();", WAIT),
    "relaxed": ("PUT(value, 7); PUT(flag, 1);", LOOK),
    "an atomic value": ("atomicAdd(value, 7); atomicExch(flag, 1);", "while (!atomicAdd(flag, 0)); GET(y, value);"),
}
FENCED = {
    "plain": ("value[0] = 7; __threadfence_block(); go[0] = 1;", WAIT.replace("v[0]", "value[0]")),
    "volatile": ("v[0] = 7; __threadfence_block(); go[0] = 1;", WAIT),
    "volatile, for all": ("v[0] = 7; __threadfence(); go[0] = 1;", WAIT),
    "relaxed": ("PUT(value, 7); __threadfence_block(); PUT(flag, 1);", LOOK),
    "a flag alone": ("__threadfence_block(); go[0] = 7;", "while (!go[0]); y = go[0];"),
    "value and flag in one word": ("__threadfence_block(); go[0] = 7 << 8 | 1;", "do y = go[0]; while (!(y & 1));"),
}


@pytest.mark.parametrize("schedule", ["lockstep", "warps"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize(("write", "read"), UNFENCED.values(), ids=UNFENCED.keys())
def test_a_flag_between_warps_of_a_block_needs_a_fence(
    run: Run, write: str, read: str, place: str, schedule: Schedule
) -> None:
    source = PUBLISH.format(place=place, writer=40, write=write, read=read)
    assert marked(source) in {hazard.where for hazard in races(check(run, source, schedule=schedule))}


@pytest.mark.parametrize("schedule", ["lockstep", "warps"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize(("write", "read"), FENCED.values(), ids=FENCED.keys())
def test_a_fenced_flag_between_warps_of_a_block_announces_its_value(
    run: Run, write: str, read: str, place: str, schedule: Schedule
) -> None:
    assert races(check(run, PUBLISH.format(place=place, writer=40, write=write, read=read), schedule=schedule)) == []


def test_a_missing_fence_within_a_block_is_named(run: Run) -> None:
    source = PUBLISH.format(place=PLACES["global"], writer=40, write=UNFENCED["volatile"][0], read=WAIT)
    (hazard,) = races(check(run, source))
    assert hazard.what.endswith("in one block, no fence between the value and the flag that announces it")
    assert hazard.other is not None and hazard.other.lane.thread == (40, 0, 0) and hazard.count == 2


def test_volatile_values_behind_barriers_need_no_fence(run: Run) -> None:
    """A tree of volatile words with barriers, the last warp with warp syncs, each behind its read and its write."""
    source = """
    __global__ void f(int *out) {
        volatile int *v = out + 64 * blockIdx.x; int t = threadIdx.x, x;
        v[t] = t; __syncthreads();
        if (t < 32) v[t] += v[t + 32];
        __syncthreads();
        for (int d = 16; d; d /= 2) {
            if (t < 32) { x = v[t] + v[t + d]; __syncwarp(); v[t] = x; __syncwarp(); }
        }
        __syncthreads();
        if (t == 63) out[8192 + blockIdx.x] = v[0];
    }"""
    assert check(run, source).hazards == ()


@pytest.mark.parametrize("of_grid", [True, False], ids=["grid.sync()", "__threadfence(); __syncthreads()"])
def test_a_grid_sync_orders_accesses(run: Run, of_grid: bool) -> None:
    """Every block reads what the others have written, a hundred blocks and so all of their threads."""
    source = """#include <cooperative_groups.h>
    #define SYNC if (of_grid) grid.sync(); else { __threadfence(); __syncthreads(); }
    __global__ void f(int *out, bool of_grid) {
        auto grid = cooperative_groups::this_grid(); int t = threadIdx.x, i = blockIdx.x * 64 + t;
        for (int round = 0; round < 2; round++) {
            out[i] = i; SYNC
            int x = out[(i + 64) % 6400] + out[7]; // HERE
            SYNC
            out[8192 + i] = x;
        }
        grid.sync();
    }"""
    options = LaunchOptions(check=True, cooperative=True)
    args = np.zeros(1 << 14, np.int32), np.bool_(of_grid)
    profile = run(source, *args, grid=(100,), block=(64,), options=options)
    assert (marked(source) not in {hazard.where for hazard in races(profile)}) == of_grid
    assert not profile.unchecked
