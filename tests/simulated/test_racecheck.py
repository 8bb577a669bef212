"""Threads that use the same memory in no order are found, whatever the results; those in order are left alone."""

from __future__ import annotations

import re

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import Hazard, Lane, LaunchOptions, LaunchProfile, Schedule

CHECKED = LaunchOptions(check=True)

RACES = {
    "RAW, no barrier": "tile[t] = t;\n out[i] = tile[63 - t]; // HERE",
    "RAW, the value happens to be right": "tile[t] = 5;\n out[i] = tile[63 - t]; // HERE",
    "RAW within a warp": "tile[t] = t;\n out[i] = tile[t ^ 1]; // HERE",
    "RAW across warps despite a warp sync": "tile[t] = t; __syncwarp();\n out[i] = tile[t ^ 32]; // HERE",
    "RAW despite a shuffle": "tile[t] = t; int x = __shfl_xor_sync(~0u, t, 1);\n out[i] = x + tile[t ^ 1]; // HERE",
    "RAW despite a vote": "tile[t] = t; int x = __any_sync(~0u, t);\n out[i] = x + tile[t ^ 1]; // HERE",
    "RAW, volatile, within a warp": "volatile int *v = tile; v[t] = t;\n out[i] = v[t ^ 1]; // HERE",
    "RAW, warp sync of the other half": (
        "if (t < 16) { tile[t] = t; __syncwarp(0xFFFF); }\n if (t >= 16 && t < 32) out[i] = tile[t - 16]; // HERE"
    ),
    "RAW after a barrier for half the block": (
        'tile[t] = t; if (t < 32) asm volatile("bar.sync 1, 32;" ::: "memory");\n'
        " if (t < 32) out[i] = tile[t + 32]; // HERE"
    ),
    "WAR": "tile[t] = t; __syncthreads(); int x = tile[63 - t];\n tile[t] = x; // HERE\n"
    " __syncthreads(); out[i] = tile[t];",
    "WAR after many readers": "tile[t] = t; __syncthreads(); int x = tile[40];\n if (t == 40) tile[40] = 1; // HERE\n"
    " out[i] = x;",
    "WAW of one instruction": "tile[t / 2] = t; // HERE\n __syncthreads(); out[i] = tile[t];",
    "WAW of two instructions": "tile[t] = t;\n if (t < 32) tile[t + 32] = 0; // HERE\n"
    " __syncthreads(); out[i] = tile[t];",
    "in a loop that lacks its second barrier": (
        "tile[t] = t; __syncthreads(); int x;\n for (int d = 1; d < 64; d *= 2) { x = tile[(t + d) % 64];\n"
        " tile[t] += x; // HERE\n __syncthreads(); } out[i] = tile[t];"
    ),
    "plain read of what others count": "if (t < 9) tile[t] = 0; __syncthreads(); atomicAdd(&tile[t % 8], 1);\n"
    " out[i] = tile[t % 4]; // HERE",
    "set by one who counts, counted by others": "if (t == 5) { tile[1] = 0; atomicAdd(&tile[1], 1); }\n"
    " if (t == 40) atomicAdd(&tile[1], 1); // HERE\n out[i] = t;",
    "read by one who counts, counted by others": "if (t == 5) { out[i] = tile[1]; atomicAdd(&tile[1], 1); }\n"
    " if (t == 40) atomicAdd(&tile[1], 1); // HERE",
    "set by one who counts after another": "if (t == 40) atomicAdd(&tile[1], 1);\n if (t == 5) {"
    " atomicAdd(&tile[1], 1);\n tile[1] = 0; } // HERE\n out[i] = t;",
    "counted by two at once, set by one of them": "if (t == 1 || t == 5) atomicAdd(&tile[1], 1);\n"
    " if (t == 5) tile[1] = 0; // HERE\n out[i] = t;",
    "bytes that overlap": "char *c = (char *)tile; tile[t] = t;\n out[i] = c[(4 * t + 5) % 256]; // HERE",
    "vectors that overlap": "int4 *v = (int4 *)tile; if (t < 16) v[t] = make_int4(t, t, t, t);\n"
    " out[i] = tile[t]; // HERE",
    "64-bit words that overlap": "double *d = (double *)tile; if (t < 32) d[t] = t;\n out[i] = tile[t]; // HERE",
    "data-dependent addresses": "tile[(t * 5 + i / 64) % 64] = t;\n out[i] = tile[(t * 5 + i / 64 + 1) % 64]; // HERE",
    "in one block only": "if (blockIdx.x == 1) tile[t] = t;\n out[i] = blockIdx.x == 1 ? tile[63 - t] : 0; // HERE",
    "global memory within a block": "out[i] = t;\n out[i] += out[i ^ 5]; // HERE",
    "global memory, volatile within a warp": "volatile int *v = out; v[i] = t;\n v[i] += v[i ^ 5]; // HERE",
    "global memory across blocks": "out[i] = t; __syncthreads();\n out[i] = out[(i + 64) % 128]; // HERE",
    "global memory across blocks, after a fence but without a flag": (
        "out[i] = t; __threadfence(); __syncthreads();\n out[i] = out[(i + 64) % 128]; // HERE"
    ),
    "WAW across blocks": "out[t] = i; // HERE",
    "set by a block that counts, counted by others": "if (i == 5) { out[1] = 0; atomicAdd(&out[1], 1); }\n"
    " if (i == 70) atomicAdd(&out[1], 1); // HERE",
    "read by a block that counts, counted by others": "if (i == 5) { out[9] = out[1]; atomicAdd(&out[1], 1); }\n"
    " if (i == 70) atomicAdd(&out[1], 1); // HERE",
    "set by a block that counts after another": "if (i == 70) atomicAdd(&out[1], 1); if (i == 5) atomicAdd(&out[1], 1);"
    "\n if (i == 5) out[1] = 0; // HERE",
    "a volatile flag within a warp": "volatile int *v = out; if (t == 3) v[i] = 1;\n"
    " if (t == 4) v[i] = v[i - 1]; // HERE",
}
KERNEL = (
    "__global__ void f(int *out) {{\n __shared__ __align__(16) int tile[64];\n"
    " int t = threadIdx.x, i = blockIdx.x * 64 + t;\n {body}\n}}\n"
)


def check(run: Run, source: str, schedule: Schedule = "lockstep", grid: int = 2) -> LaunchProfile:
    options = LaunchOptions(schedule, check=True)
    return run(source, np.zeros(256, np.int32), grid=(grid,), block=(64,), options=options)


def races(profile: LaunchProfile) -> list[Hazard]:
    return [hazard for hazard in profile.hazards if hazard.kind == "race" and not hazard.harmless]


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
@pytest.mark.parametrize("body", RACES.values(), ids=RACES.keys())
def test_a_race_is_reported_at_its_line(run: Run, body: str, schedule: Schedule) -> None:
    source = KERNEL.format(body=body)
    found = races(check(run, source, schedule))
    assert found
    parties = {hazard.where for hazard in found} | {hazard.other.where for hazard in found if hazard.other}
    assert marked(source) in parties
    if schedule == "lockstep":
        assert marked(source) in {hazard.where for hazard in found}


ORDERED = {
    "a barrier": "tile[t] = t; __syncthreads(); out[i] = tile[63 - t];",
    "a warp sync": "tile[t] = t; __syncwarp(); out[i] = tile[t ^ 1];",
    "a warp sync of a few lanes": (
        "int x = 0; if (t % 32 < 8) { tile[t] = t; __syncwarp(0xFF); x = tile[t ^ 7]; } out[i] = x;"
    ),
    "warp syncs, one after the other": (
        "if (t < 4) { if (t < 2) { tile[t] = t; __syncwarp(3); } __syncwarp(15);"
        " out[i] = tile[3 - t < 2 ? 3 - t : 0]; }"
    ),
    "own words only": "tile[t] = t; for (int k = 0; k < 9; k++) tile[t] += k; out[i] = tile[t];",
    "reads only": "tile[t] = t; __syncthreads(); out[i] = tile[5] + tile[63 - t] + tile[t / 2];",
    "atomics": "tile[t] = 0; __syncthreads(); atomicAdd(&tile[t % 4], t); atomicMax(&tile[t % 3], t);"
    " __syncthreads(); out[i] = tile[t];",
    "atomics across blocks": "atomicAdd(&out[t], 1);",
    "a counting barrier": "tile[t] = t; int n = __syncthreads_count(t); out[i] = n + tile[63 - t];",
    "a named barrier of all": 'tile[t] = t; asm volatile("bar.sync 3, 64;" ::: "memory"); out[i] = tile[63 - t];',
    "a named barrier of one warp": (
        'if (t < 32) { tile[t] = t; asm volatile("bar.sync 1, 32;" ::: "memory"); out[i] = tile[31 - t]; }'
    ),
    "producers that arrive, consumers that wait": (
        'if (t < 32) { tile[t] = t; asm volatile("bar.arrive 1, 64;" ::: "memory"); }\n'
        ' else { asm volatile("bar.sync 1, 64;" ::: "memory"); out[i] = tile[t - 32]; }'
    ),
    "neighbouring bytes": "char *c = (char *)tile; c[t] = t; c[64 + t] = t; out[i] = c[t] + c[t + 64];",
    "neighbouring halves of vectors": "double *d = (double *)tile; if (t < 32) d[t] = t; out[i] = t < 32 ? d[t] : 0;",
    "the own block's part of global memory": (
        "out[i] = t; for (int d = 32; d; d /= 2) { __syncthreads(); if (t < d) out[i] += out[i + d]; }"
    ),
    "blocks that stop at different rounds": (
        "tile[t] = t; for (int k = 0; k <= blockIdx.x; k++) { __syncthreads(); int x = tile[63 - t]; __syncthreads();"
        " tile[t] = x; } out[i] = tile[t];"
    ),
    "strides of the grid": "for (int k = i; k < 256; k += 128) out[k] = out[k] + t;",
    "local memory": "int own[8]; for (int k = 0; k < 8; k++) own[k] = t; out[i] = own[t % 8];",
    "relaxed accesses": (
        'int x; if (t == 3) asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" :: "l"(out) : "memory");'
        ' asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(out) : "memory"); if (x > 5) out[i] = x;'
    ),
}


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
@pytest.mark.parametrize("body", ORDERED.values(), ids=ORDERED.keys())
def test_ordered_accesses_are_no_race(run: Run, body: str, schedule: Schedule) -> None:
    assert check(run, KERNEL.format(body=body), schedule).hazards == ()


def test_no_race_is_reported_without_the_check(run: Run) -> None:
    source = KERNEL.format(body=RACES["RAW, no barrier"])
    assert run(source, np.zeros(256, np.int32), grid=(2,), block=(64,)).hazards == ()


def test_a_race_names_both_accesses(run: Run) -> None:
    source = KERNEL.format(body="if (t == 40) tile[7] = t; // OTHER\n if (t == 3) out[i] = tile[7]; // HERE")
    (hazard,) = races(check(run, source))
    assert hazard.where == marked(source) and hazard.lane == Lane((0, 0, 0), (3, 0, 0)) and hazard.count == 2
    assert hazard.other is not None
    assert hazard.other.where == marked(source, "// OTHER") and hazard.other.lane == Lane((0, 0, 0), (40, 0, 0))
    assert re.search(
        r"read-after-write \(RAW\) hazard on __shared__ memory in one block, .*, first by block 0 thread 3 "
        r"\(2 threads\), against a write of 4 bytes by block 0 thread 40 at kernel.cu:\d+$", str(hazard)
    )  # fmt: skip


def test_a_race_with_an_atomic_operation_is_worded_with_an(run: Run) -> None:
    source = KERNEL.format(body="if (t == 40) atomicAdd(&tile[7], t);\n if (t == 3) out[i] = tile[7];")
    (hazard,) = races(check(run, source))
    assert "against an atomic operation of 4 bytes by block 0 thread 40" in str(hazard)


SAME_VALUE = {
    "in one instruction": "if (t < 9) tile[0] = gridDim.x; __syncthreads(); out[i] = tile[0];",
    "in two": "if (t < 9) tile[0] = gridDim.x; if (t > 60) tile[0] = gridDim.x; __syncthreads(); out[i] = tile[0];",
    "in global memory": "if (t < 9) out[0] = 5;",
    "in bytes": "if (t < 9) ((char *)tile)[2] = 5; __syncthreads(); out[i] = ((char *)tile)[2];",
    "in halves of 64 bits": "if (t < 9) *(double *)tile = 5; __syncthreads(); out[i] = *(double *)tile;",
}


@pytest.mark.parametrize("body", SAME_VALUE.values(), ids=SAME_VALUE.keys())
def test_writes_of_the_same_value_are_no_race(run: Run, body: str) -> None:
    found = check(run, KERNEL.format(body=body)).hazards
    assert found and {(hazard.kind, hazard.harmless) for hazard in found} == {("race", True)}
    assert all("both write the same value" in hazard.what for hazard in found)


REPEATED = "for (int k = 0; k < 9; k++) {{ {} }}"


@pytest.mark.parametrize(
    ("body", "harmless"),
    [
        ("if (t < 2) out[5] = k < 8 ? 1 : t;", False),
        ("if (t < 2) out[5] = k;", True),
        ("if (t < 2) out[5] = 3;", True),
    ],
)
def test_a_race_of_repeated_writes_is_harmful_if_the_values_differ(run: Run, body: str, harmless: bool) -> None:
    source = KERNEL.format(body=REPEATED.format(body))
    found = check(run, source.replace("out[5]", "out[blockIdx.x]"), grid=2).hazards
    assert found and {hazard.harmless for hazard in found} == {harmless}


GUESSES = {
    "a maximum": "int old = {first}; do {{ seen = old; old = atomicCAS(p, seen, max(seen, t)); }} while (seen != old);",
    "a sum that stops early": "int old = {first}; do {{ seen = old; if (seen > 1 << 20) break;"
    " old = atomicCAS(p, seen, seen + t); }} while (seen != old);",
    "a sum of floats": "int old = {first}; do {{ seen = old; old = atomicCAS(p, seen, __float_as_int("
    "__int_as_float(seen) + 0.5f)); }} while (seen != old);",
    "one attempt": "seen = {first}; atomicCAS(p, seen, seen + t);",
}


@pytest.mark.parametrize("first", ["*p", "*(volatile int *)p"], ids=["plain", "volatile"])
@pytest.mark.parametrize("place", ["out + 5", "tile + 5"], ids=["global", "shared"])
@pytest.mark.parametrize("body", GUESSES.values(), ids=GUESSES.keys())
def test_a_load_that_a_compare_and_swap_checks_is_no_race(run: Run, body: str, place: str, first: str) -> None:
    start = "if (t == 0) tile[5] = 0; __syncthreads();" if "tile" in place else ""
    body = f"{start} int *p = {place}, seen; {body.format(first=first)}"
    assert check(run, KERNEL.format(body=body)).hazards == ()


NO_GUESSES = {
    "of another word": "int *p = out, old = out[1]; atomicCAS(p, old, t); if (t == 3) atomicAdd(out + 1, 1); // HERE",
    "of what others write plainly": (
        "int *p = out, old = *p; atomicCAS(p, old, t);\n if (t == 3) *p = 5; // HERE"
    ),
    "of what is compared with something else": "int *p = out;\n if (*p == 0) // HERE\n atomicCAS(p, 0, t + 1);",
}  # fmt: skip


@pytest.mark.parametrize("body", NO_GUESSES.values(), ids=NO_GUESSES.keys())
def test_a_load_that_no_compare_and_swap_checks_is_a_race(run: Run, body: str) -> None:
    source = KERNEL.format(body=body)
    found = races(check(run, source))
    parties = {hazard.where for hazard in found} | {hazard.other.where for hazard in found if hazard.other}
    assert marked(source) in parties


COUNTED = {
    "in a loop": ("for (int k = 0; k < 9; k++) { tile[t] = k;\n x += tile[63 - t]; // HERE\n }", 256),
    "by one thread": ("volatile int *v = tile; if (t < 2) v[t] = t;\n if (t == 5) x = v[0] + v[1] + v[0]; // HERE", 4),
    "in one block": ("if (blockIdx.x == 2) { tile[t] = t;\n x = tile[63 - t] + tile[62 - t % 60]; // HERE\n }", 64),
    "where fences order nothing": ("__threadfence(); tile[t] = t;\n x = tile[63 - t]; // HERE", 256),
}


@pytest.mark.parametrize(("body", "threads"), COUNTED.values(), ids=COUNTED.keys())
def test_a_hazard_counts_threads_and_not_their_accesses(run: Run, body: str, threads: int) -> None:
    source = KERNEL.format(body=f"int x = 0; {body}\n out[i] = x;")
    found = [hazard for hazard in races(check(run, source, grid=4)) if hazard.where == marked(source)]
    assert max(hazard.count for hazard in found) == threads


def test_an_uninitialised_read_counts_threads_and_not_its_repetitions(run: Run) -> None:
    loop = "for (int k = 0; k < 9; k++)\n x += tile[(t + k) % 64]; // HERE"
    source = KERNEL.format(body=f"int x = 0; {loop}\n out[i] = x;")
    (hazard,) = check(run, source, grid=4).hazards
    assert (hazard.kind, hazard.where, hazard.count) == ("uninitialised", marked(source), 256)


MERGED = """__global__ void f(int *out, int n) {{
    __shared__ int tile[64], more[64];
    int t = threadIdx.x; more[t] = t;
    __syncthreads();
    int a = more[63 - t], b = out[t], c = t * 7, *p = {place} + t / 2;
    if ({which}) {{
        for (int k = 0; k < n; k++) {work}[k] += a;
        {sync}
        *p = {first}; // HERE
    }} else {{
        {work}[t] *= 3;
        {sync}
        *p = {second}; // HERE
    }}
    __syncthreads();
    out[t + 64] = tile[0];
}}
"""


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("c", "b"), ("a", "a"), ("a + 1", "b - n"), ("3", "5")])
@pytest.mark.parametrize(("which", "sync"), [("n > 3", "__syncthreads();"), ("t < 32", "__syncwarp();")])
@pytest.mark.parametrize(("place", "work"), [("tile", "out"), ("out", "more"), ("tile", "more"), ("out", "out")])
def test_a_store_merged_by_the_compiler_is_not_reported_at_the_barriers_line(
    run: Run, place: str, work: str, which: str, sync: str, first: str, second: str
) -> None:
    """Both branches end with a store to the same address, so the compiler stores once behind them, at no line."""
    source = MERGED.format(place=place, work=work, which=which, sync=sync, first=first, second=second)
    hazards = [h for h in run(source, np.zeros(256, np.int32), np.int32(5), block=(64,), options=CHECKED).hazards
               if h.kind == "race"]  # fmt: skip
    lines = source.splitlines()
    parties = [place for h in hazards for place in (h.where, h.other and h.other.where) if place is not None]
    assert any("WAW" in hazard.what for hazard in hazards)
    assert not [lines[where.line - 1] for where in parties if lines[where.line - 1].strip() == sync]


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("atomicAdd_block(&out[t % 8], 1);", ["WAW"]),
        ("atomicAdd_block(&out[t % 8], 1); __threadfence(); atomicAdd(&out[9], 1);", ["WAW"]),
        ("atomicAdd_block(&out[t % 8 + 8 * blockIdx.x], 1);", []),
        ("atomicAdd(&out[t % 8], 1);", []),
    ],
    ids=["shared by blocks", "with fences", "one word per block", "of the whole device"],
)
def test_atomics_of_block_scope_race_between_blocks(run: Run, body: str, kinds: list[str]) -> None:
    source = f"__global__ void f(int *out) {{ const int t = threadIdx.x;\n{body} // HERE\n}}"
    found = races(check(run, source, grid=3))
    assert [hazard.what[hazard.what.index("(") + 1 :][:3] for hazard in found] == kinds
    assert all("different blocks, atomic within one block only" in hazard.what for hazard in found)
    assert all(hazard.where == marked(source) and not hazard.harmless for hazard in found)
