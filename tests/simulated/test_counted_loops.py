"""Loops with a counter: the iterations that are left are known, so a launch that cannot end in time ends at once."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions, Schedule
from pytest_gpulab.devices.simulated.execution import endless, scheduler
from pytest_gpulab.devices.simulated.translation.analysis import float_counters
from pytest_gpulab.devices.simulated.translation.analysis.counted_loops import CountedLoop
from pytest_gpulab.devices.simulated.translation.analysis.float_counters import FloatCounter

BITS = 8
COMPARE = {
    "eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip


def _limited(schedule: Schedule = "lockstep") -> LaunchOptions:
    return LaunchOptions(time_limit_s=20.0, schedule=schedule)


def _executed(loop: CountedLoop, counter: int, step: int, bound: int, bound_step: int) -> tuple[float, bool]:
    """Return the iterations that a loop executes, and whether its counter or its bound runs over meanwhile."""
    low = -(1 << BITS - 1) if loop.signed else 0
    done, ran_over = 0, False
    while COMPARE[loop.comparison](counter, bound):
        after, bound_after = ((a + b - low) % (1 << BITS) + low for a, b in ((counter, step), (bound, bound_step)))
        ran_over |= (after, bound_after) != (counter + step, bound + bound_step)
        counter, bound, done = after, bound_after, done + 1
        if done > 1 << BITS:
            return math.inf, ran_over
    return done, ran_over


@pytest.mark.unit
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("comparison", COMPARE)
def test_the_iterations_left_are_those_that_a_loop_executes(comparison: str, signed: bool) -> None:
    rng, low = random.Random(0), -(1 << BITS - 1) if signed else 0
    kinds = (signed, BITS, signed, BITS)
    loop = CountedLoop({"a": 1}, {"d": 1}, {"b": 1}, comparison, *kinds, moves_on=False, bound_step={"e": 1})
    seen = set()
    for at in range(900):
        counter, bound = (rng.randrange(low, low + (1 << BITS)) for _ in "ab")
        step, moved = (rng.choice([0, 1, -1, 2, -4, rng.randrange(-128, 128)]) for _ in "de")
        moved = moved if at % 3 == 0 else 0
        values = {name: each % (1 << BITS) for name, each in zip("abde", (counter, bound, step, moved), strict=True)}
        left, (executed, ran_over) = loop.iterations_left(values), _executed(loop, counter, step, bound, moved)
        assert left == executed if comparison == "ne" or not ran_over else left <= executed
        seen.add(min(left, 1))
    assert seen >= {0, 1}


AT = 128  # iterations before the first look at the number that is left
COUNTED = {
    "up to a number": ("", "for (unsigned k = 0; k < n; ++k) // HERE\n s = s * 3 + k;", 4_000_000_000 - AT - 1),
    "past its bound": (
        "unsigned k = 1;", "do s = s * 3 + k; while (++k != n - 3999999999u); // HERE", 2**32 - AT - 1,
    ),
    "compared as a wider number": (
        "unsigned k = 1;", "do s = s * 3 + k; while (++k != n - 3999999999u + 0ull); // HERE", 2**32 - AT - 1,
    ),
    "in steps": (
        "", "for (long long k = 0; k < 7ll * n; k += 7) // HERE\n s = s * 3 + k;", 4_000_000_000 - AT - 1,
    ),
    "up to a number that grows": (
        "unsigned k = 0, m = n;", "for (; k < m; ++k, ++m) // HERE\n s = s * 3 + k;", 2**32 - 4_000_000_000 - AT - 1,
    ),
    "down": ("", "for (long long k = n; k >= 0; --k) // HERE\n s = s * 3 + k;", 4_000_000_000 - AT),
    "fewer, of many instructions": (
        "", """for (unsigned k = 0; k < n / 128; ++k) { // HERE
            #pragma unroll
            for (unsigned j = 0; j < 64; ++j) s = s * 3 + (k ^ j);
        }""", 4_000_000_000 // 128 - AT - 1,
    ),
    "with fences": (
        "", "for (unsigned k = 0; k < n; ++k) { // HERE\n x[threadIdx.x] += k; __threadfence(); }",
        4_000_000_000 - AT - 1,
    ),
    "with branches and a loop in it": (
        "",
        """for (unsigned k = 0; k < n; ++k) { // HERE
            if (s & 1) { s = s * 5 + 1; continue; }
            #pragma unroll 1
            for (unsigned j = 0; j < 2; ++j) s = s * 3 + j;
        }""", None,
    ),
    "that prints": ("", 'for (unsigned k = 0; k < n; ++k) // HERE\n printf("%u\\n", s + k);', 4_000_000_000 - AT - 1),
    "with atomic functions": ("", "for (unsigned k = 0; k < n; ++k) // HERE\n s += atomicAdd(x, 1);", None),
}  # fmt: skip


@pytest.mark.parametrize("where", ["all threads", "one thread", "warps in turn"])
@pytest.mark.parametrize(("before", "loop", "left"), COUNTED.values(), ids=COUNTED.keys())
def test_a_loop_that_cannot_end_in_time_ends_at_once(
    run: Run, before: str, loop: str, left: int | None, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "CHECKED_ITERATIONS", AT)
    guard = "if (threadIdx.x != 37) return;" if where == "one thread" else ""
    source = (
        f"__global__ void f(unsigned *x, unsigned n) {{ {guard} unsigned s = n; {before}\n"
        f"#pragma unroll 1\n{loop}\nx[1] = s; }}"
    )
    schedule = "warps-reversed" if where == "warps in turn" else "lockstep"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.uint32), np.uint32(4_000_000_000), block=(64,), options=_limited(schedule))
    fault = caught.value
    assert fault.code == "time-limit" and fault.where == marked(source)
    assert fault.what == f"time limit: the kernel cannot end within 20 s: {fault.remains}"
    if left is not None and schedule == "lockstep":
        assert fault.remains == f"at least {left:,} iterations of this loop are left"
    assert fault.lane is not None and fault.lane.thread[0] in ((37,) if guard else (0, 32, 63))


def test_barriers_in_a_counted_loop_do_not_hide_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "CHECKED_ITERATIONS", AT)
    source = """__global__ void f(unsigned *x, unsigned n) {
        for (unsigned k = 0; k < n; ++k) { // HERE
            x[(threadIdx.x + k) % 64] += k;
            __syncthreads();
        }
    }"""
    with pytest.raises(KernelFault, match="cannot end within 20 s") as caught:
        run(source, np.zeros(64, np.uint32), np.uint32(4_000_000_000), block=(64,), options=_limited())
    assert caught.value.where == marked(source)


MISSED = {
    "never equal": "for (float v = 0; v != 1; v += 0.1f) // HERE\n s = s * 3 + v;",
    "never equal, other operands": "for (float v = 0; 1 != v; v = y + v) // HERE\n s = s * 3 + v;",
    "stays the same": "float v = 0; do v += 1; while (v < 3e7f); // HERE\n s = v;",
    "stays the same, at least": "float v = 0; do v += 1; while (!(v > 3e7f)); // HERE\n s = v;",
    "two integers pass each other": "for (int k = 0, m = 255; k != m; ++k, --m) // HERE\n s = s * 3 + k;",
    "down": "for (double v = -9007199254700000.; v >= -1e17; v -= 1) // HERE\n s = s * 3 + v;",
}


@pytest.mark.parametrize("loop", MISSED.values(), ids=MISSED.keys())
def test_a_counter_that_never_meets_its_bound_is_endless(run: Run, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "CHECKED_ITERATIONS", AT)
    source = f"__global__ void f(float *x, float y) {{ float s = 0;\n{loop}\nx[threadIdx.x] = s; }}"
    with pytest.raises(KernelFault, match="the counter of this loop never meets its bound") as caught:
        run(source, np.zeros(64, np.float32), np.float32(0.1), block=(64,), options=_limited())
    assert (caught.value.code, caught.value.where) == ("endless-loop", marked(source))


@pytest.mark.unit
@pytest.mark.parametrize("comparison", ["eq", "neu", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("adds_first", [True, False])
def test_the_iterations_left_of_a_rounded_counter_are_those_that_a_loop_executes(
    comparison: str, adds_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(float_counters, "MOST_ITERATIONS", 300)
    rng, compare = random.Random(0), COMPARE[comparison.removesuffix("u")]
    for _ in range(60):
        counter, bound, step = (np.float32(rng.randrange(-40, 40) / 8) for _ in range(3))
        goes_on = rng.random() < 0.5
        loop = FloatCounter("a", "d", float(bound), comparison, goes_on, "f32", adds_first, False, 3)
        done, value = 0, counter
        while done < 300 and compare(*(int(8 * each) for each in (value + step * adds_first, bound))) == goes_on:
            done, value = done + 1, value + step
        left = loop.iterations_left({"a": float(counter), "d": float(step)})
        assert left == done if done < 300 else left >= 300


OTHERS = {
    "a break on data": "for (unsigned k = 0; k < n; ++k) { if (x[k % 64] == 9) break; s += k; }",
    "a return": "for (unsigned k = 0; k < n; ++k) { if (x[k % 64] == 9) { x[3] = s; return; } s += k; }",
    "two conditions": "for (unsigned k = 0; k < n && s < 1000; ++k) s += k;",
    "a bound that falls": "for (unsigned k = 0; k < n; ++k) { s = s * 3 + k; n /= 2; }",
    "a bound in memory": "x[5] = n; for (unsigned k = 0; k < ((volatile unsigned *)x)[5]; ++k) x[5] = x[5] / 2;",
    "steps that grow": "for (unsigned long long k = 1; k < n; k += k) s = s * 3 + k;",
    "a counter that jumps": "for (unsigned long long k = 0; k < n; ++k) if (k == 20) { k = n; s = 3; }",
    "a counter that an inner loop also moves": """for (unsigned long long k = 0; k < n; ++k)
        #pragma unroll 1
        for (int j = 0; j < 4 && *(volatile unsigned *)(x + 60) == 0; ++j) k += x[j] + 100000000;""",
    "a goto": "for (unsigned k = 0; k < n; ++k) { s = s * 3 + k; if (s % 64 == 5) goto out; } out: s += 2;",
    "a fault": "for (unsigned k = 0; k < n; ++k) { s += x[k % 64]; if (k == 20) asm volatile(\"exit;\"); }",
}  # fmt: skip


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS.keys())
def test_a_loop_that_may_end_otherwise_goes_on(run: Run, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "CHECKED_ITERATIONS", 1)
    monkeypatch.setattr(endless, "CHECKED_IF_MOVING", 1)
    monkeypatch.setattr(endless, "LEAST_ITERATION_S", 21.0)
    x = np.zeros(64, np.uint32)
    x[40] = 9
    source = (
        f"__global__ void f(unsigned *x, unsigned n) {{ unsigned s = 1;\n#pragma unroll 1\n{body}\nx[2] = s + 7; }}"
    )
    run(source, x, np.uint32(4_000_000_000), options=_limited())
    assert x[2] or x[3] or "exit" in body


@pytest.mark.parametrize("loop", ["k = 0; k != n; k += 2", "k = 1; k < n; k += n - 5"])
def test_a_counter_that_steps_over_its_bound_is_endless(run: Run, loop: str) -> None:
    source = f"""__global__ void f(unsigned *x, unsigned n) {{
        unsigned s = 1;
        for (unsigned {loop}) // HERE
            s = s * 3 + k;
        *x = s;
    }}"""
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(1, np.uint32), np.uint32(5))
    said = "the kernel does not end: the counter of this loop never meets its bound"
    assert (caught.value.code, caught.value.what) == ("endless-loop", said)
    assert caught.value.where == marked(source)


@pytest.mark.parametrize("index", ["k", "2 * k + threadIdx.x", "(k << 1) + 1"])
def test_a_loop_that_runs_past_the_end_of_an_array_does_so(
    run: Run, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "CHECKED_ITERATIONS", AT)
    source = f"__global__ void f(float *x, unsigned n) {{ for (unsigned k = 0; k < n - 1; ++k) x[{index}] = k; }}"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(3000, np.float32), np.uint32(0), block=(1,), options=_limited())
    assert caught.value.code == "out-of-bounds"
