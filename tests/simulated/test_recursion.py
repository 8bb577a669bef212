"""Recursive device functions: results under divergence, hazards and faults at their lines, the limit of the stack."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.compiler import machine_code
from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

CHECKED = LaunchOptions(check=True)


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_each_lane_has_its_own_depth(run: Run) -> None:
    source = """
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void f(int *out) { int t = blockIdx.x * blockDim.x + threadIdx.x; out[t] = fib(t % 11); }
"""
    for schedule in ("lockstep", "warps", "warps-reversed"):
        out = np.zeros(2 * 70, np.int32)
        profile = run(source, out, grid=(2,), block=(70,), options=LaunchOptions(check=True, schedule=schedule))
        assert out.tolist() == [fibonacci(t % 11) for t in range(140)]
        assert not profile.hazards


def test_quicksort(run: Run) -> None:
    source = """
__device__ void sort(int *a, int low, int high) {
    if (low >= high) return;
    int pivot = a[high], at = low;
    for (int j = low; j < high; j++)
        if (a[j] < pivot) { int held = a[at]; a[at] = a[j]; a[j] = held; at++; }
    a[high] = a[at]; a[at] = pivot;
    sort(a, low, at - 1);
    sort(a, at + 1, high);
}
__global__ void f(int *a) { sort(a + threadIdx.x * 25, 0, 24); }
"""
    values = np.random.default_rng(3).integers(-50, 50, (40, 25)).astype(np.int32)
    held = values.copy()
    profile = run(source, held, block=(40,), options=CHECKED)
    assert np.array_equal(held, np.sort(values, axis=1))
    assert not profile.hazards


def test_mutual_recursion_and_calls_from_several_places(run: Run) -> None:
    source = """
__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1) * 3 % 7; }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1) + n; }
__global__ void f(int *out) {
    int t = threadIdx.x;
    int a = t & 1 ? even(t % 13) : odd(t % 9);
    int b = even(a % 5);
    out[t] = 100 * a + b + (t < 7 ? odd(b % 4) : 0);
}
"""

    def even(n: int) -> int:
        return 1 if n == 0 else odd(n - 1) * 3 % 7

    def odd(n: int) -> int:
        return 0 if n == 0 else even(n - 1) + n

    out = np.zeros(64, np.int32)
    run(source, out, block=(64,))
    a = [even(t % 13) if t & 1 else odd(t % 9) for t in range(64)]
    b = [even(x % 5) for x in a]
    assert out.tolist() == [100 * a[t] + b[t] + (odd(b[t] % 4) if t < 7 else 0) for t in range(64)]


def test_structs_by_value(run: Run) -> None:
    source = """
struct Walk { double x; float y; short steps; bool even; long long seen[3]; };
__device__ Walk walk(Walk at, int depth) {
    if (depth == 0) return at;
    Walk next = at;
    next.x = at.x * 2 + depth; next.y -= 1; next.steps++; next.even = !at.even; next.seen[depth % 3] += depth;
    Walk end = walk(next, depth - 1);
    end.x += at.y;
    end.seen[(depth + 1) % 3] ^= at.steps;
    return end;
}
__global__ void f(double *out, int n) {
    int t = threadIdx.x;
    Walk end = walk(Walk{1.5 * t, 2.0f, (short)t, true, {1, 2, 3}}, t % n);
    out[t] = end.x + 10 * end.y + 100 * end.steps + 1000 * end.even + 1e4 * end.seen[0] + 1e6 * end.seen[1]
           + 1e8 * end.seen[2];
}
"""

    def walk(at: tuple[float, float, int, bool, list[int]], depth: int) -> tuple[float, float, int, bool, list[int]]:
        if depth == 0:
            return at
        x, y, steps, even, seen = at
        more = [value + depth * (k == depth % 3) for k, value in enumerate(seen)]
        x_end, y_end, steps_end, even_end, seen_end = walk((x * 2 + depth, y - 1, steps + 1, not even, more), depth - 1)
        seen_end[(depth + 1) % 3] ^= steps
        return x_end + y, y_end, steps_end, even_end, seen_end

    out = np.zeros(32)
    profile = run(source, out, np.int32(6), options=CHECKED)
    for t in range(32):
        x, y, steps, even, seen = walk((1.5 * t, 2.0, t, True, [1, 2, 3]), t % 6)
        assert out[t] == x + 10 * y + 100 * steps + 1000 * even + 1e4 * seen[0] + 1e6 * seen[1] + 1e8 * seen[2]
    assert not profile.hazards


def test_arrays_of_a_call_with_an_address_passed_down(run: Run) -> None:
    source = """
__device__ int fill(int *above, int n) {
    int own[4];
    for (int i = 0; i < 4; i++) own[i] = above[i] + n;
    above[n & 3] += 100;
    return n == 0 ? own[0] + own[1] + own[2] + own[3] : fill(own, n - 1) + own[(n - 1) & 3];
}
__global__ void f(int *out) {
    int first[4] = {1, 2, 3, (int)threadIdx.x};
    out[threadIdx.x] = fill(first, threadIdx.x % 5);
}
"""

    def fill(above: list[int], n: int) -> int:
        own = [value + n for value in above]
        above[n & 3] += 100
        return sum(own) if n == 0 else fill(own, n - 1) + own[(n - 1) & 3]

    out = np.zeros(32, np.int32)
    profile = run(source, out, options=CHECKED)
    assert out.tolist() == [fill([1, 2, 3, t], t % 5) for t in range(32)]
    assert not profile.hazards


def test_virtual_functions_that_walk_a_tree(run: Run) -> None:
    source = """
struct Node { __device__ virtual int value(int x) const = 0; };
struct Leaf : Node {
    int v;
    __device__ Leaf(int v) : v(v) {}
    __device__ int value(int x) const override { return v * x; }
};
struct Sum : Node {
    const Node *l, *r;
    __device__ Sum(const Node *l, const Node *r) : l(l), r(r) {}
    __device__ int value(int x) const override { return l->value(x + 1) + r->value(x); }
};
__global__ void f(int *out) {
    Leaf a(3), b(threadIdx.x), c(7);
    Sum ab(&a, &b), abc(&ab, &c), all(&abc, &ab);
    const Node *nodes[] = {&a, &ab, &abc, &all};
    out[threadIdx.x] = nodes[threadIdx.x % 4]->value(threadIdx.x);
}
"""
    out = np.zeros(64, np.int32)
    run(source, out, block=(64,))
    for t in range(64):
        a, b, c = (lambda x: 3 * x), (lambda x, t=t: t * x), (lambda x: 7 * x)
        ab = lambda x, a=a, b=b: a(x + 1) + b(x)  # noqa: E731
        abc = lambda x, ab=ab, c=c: ab(x + 1) + c(x)  # noqa: E731
        assert out[t] == [a, ab, abc, lambda x, ab=ab, abc=abc: abc(x + 1) + ab(x)][t % 4](t)


def test_function_pointers(run: Run) -> None:
    source = """
typedef int (*Op)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ int power(int a, int b);
__device__ Op table[3] = {add, power, 0};
__device__ __noinline__ int power(int a, int b) { return b == 0 ? 1 : a * table[1](a, b - 1) % 1009; }
__global__ void f(int *out, int k) {
    out[threadIdx.x] = table[(threadIdx.x + k) % 2](threadIdx.x, 5 + threadIdx.x % 3);
}
"""
    out = np.zeros(32, np.int32)
    run(source, out, np.int32(1))
    expected = []
    for t in range(32):
        power = 1
        for _ in range(5 + t % 3):
            power = t * power % 1009
        expected.append(power if (t + 1) % 2 else t + 5 + t % 3)
    assert out.tolist() == expected


def test_warps_meet_inside(run: Run) -> None:
    """Lanes at different depths wait for each other where they synchronise."""
    source = """
__device__ int down(int n, int *tile) {
    if (n == 0) return 0;
    tile[threadIdx.x] = n;
    __syncwarp();
    int beside = tile[threadIdx.x ^ 1];
    __syncwarp();
    return beside + __shfl_xor_sync(~0u, n, 2) + down(n - 1, tile);
}
__global__ void f(int *out) { __shared__ int tile[32]; out[threadIdx.x] = down(5, tile); }
"""
    out = np.zeros(32, np.int32)
    profile = run(source, out, options=CHECKED)
    assert out.tolist() == [2 * 15] * 32
    assert not profile.hazards


def test_a_race_inside_has_its_line(run: Run) -> None:
    source = """
__device__ int down(int n, int *tile) {
    if (n == 0) return 0;
    tile[threadIdx.x] = n;
    return tile[(threadIdx.x + 1) % 64] + down(n - 1, tile); // HERE
}
__global__ void f(int *out) { __shared__ int tile[64]; tile[threadIdx.x] = 0; out[threadIdx.x] = down(3, tile); }
"""
    profile = run(source, np.zeros(64, np.int32), block=(64,), options=CHECKED)
    races = [hazard for hazard in profile.hazards if hazard.kind == "race"]
    assert marked(source) in {
        place for race in races for place in (race.where, race.other.where if race.other else None)
    }


def test_an_access_out_of_bounds_inside_has_its_line_and_array(run: Run) -> None:
    source = """
__device__ void mark(int *out, int n) {
    if (n > 5) return;
    out[threadIdx.x + n] = n; // HERE
    mark(out, n + 1);
    out[threadIdx.x] += n;
}
__global__ void f(int *out) { mark(out, 0); }
"""
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(33, np.int32))
    assert (caught.value.code, caught.value.where) == ("out-of-bounds", marked(source))
    assert caught.value.location is not None
    assert (caught.value.location.parameter, caught.value.location.offset) == (0, 4 * 33)


def test_an_array_of_a_later_call_is_as_unwritten_as_that_of_the_first(run: Run) -> None:
    source = """
__device__ int pick(int n, int k) {
    int own[8];
    for (int i = 0; i < 8 - n; i++) own[(i * k) & 7] = i;
    int seen = own[(7 * k + k * (n == 0)) & 7]; // HERE
    return n == 0 ? seen : pick(n - 1, k) + pick(n - 1, k) + seen;
}
__global__ void f(int *out, int n) { out[threadIdx.x] = pick(n, 1); }
"""
    seen = run(source, np.zeros(32, np.int32), np.int32(1), options=CHECKED).hazards
    assert [(hazard.kind, hazard.where) for hazard in seen] == [("uninitialised", marked(source))]
    assert not run(source, np.zeros(32, np.int32), np.int32(0), options=CHECKED).hazards


FOREVER = """
__device__ int depth(const int *a, int n) {
    return a[n & 31] + depth(a, n + 1) * 3; // HERE
}
__global__ void f(int *out) { out[threadIdx.x] = depth(out, threadIdx.x); }
"""


def test_endless_recursion_is_a_stack_overflow(run: Run) -> None:
    before_s = time.process_time()
    with pytest.raises(KernelFault) as caught:
        run(FOREVER, np.zeros(1024, np.int32), grid=(32,), block=(32,))
    assert (caught.value.code, caught.value.where) == ("stack-overflow", marked(FOREVER))
    assert "1,024 bytes" in caught.value.what
    assert "`depth`" in caught.value.what
    assert time.process_time() - before_s < 10  # seconds; most of it NVRTC's and ptxas's


@pytest.mark.parametrize(("deepest", "fits"), [(42, True), (43, False)])
def test_the_stack_holds_as_many_calls_as_machine_code_has_room_for(run: Run, deepest: int, fits: bool) -> None:
    """For sm_90 ptxas gives `down` a frame of 24 bytes: 42 of them fit into 1,024."""
    source = """
__device__ int down(int n) { return n < 2 ? n : down(n - 1) + down(n - 2 > 0 ? 1 : 0) + n; } // HERE
__global__ void f(int *out, int n) { out[threadIdx.x] = down(threadIdx.x == 3 ? n : 1); }
"""
    out = np.zeros(32, np.int32)
    if fits:
        run(source, out, np.int32(deepest - 1))
        return
    with pytest.raises(KernelFault, match=f"call {deepest} of `down`") as caught:
        run(source, out, np.int32(200))
    assert caught.value.lane is not None
    assert caught.value.lane.thread == (3, 0, 0)


@pytest.mark.parametrize("margin", ["ptxas         .     ", "    "])
def test_frames_are_read_from_the_assemblers_report(margin: str) -> None:
    """Versions of NVRTC differ in the margin."""
    report = "".join(
        f"ptxas info    : Function properties for {name}\n{margin}{size} bytes stack frame, 0 bytes spill stores\n"
        for name, size in (("_Z1fPi", 0), ("_Z4down$1i", 24))
    )
    assert machine_code._parse_frames(report) == {"_Z1fPi": 0, "_Z4down$1i": 24}


def test_a_recursion_is_counted_and_estimated(device: SimulatedDevice) -> None:
    source = """
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void f(int *out) { int t = blockIdx.x * blockDim.x + threadIdx.x; out[t] = fib(t % 8); }
"""
    out = device.array(np.zeros(256, np.int32))
    options = LaunchOptions(count=True, estimate=True)
    profile = device.compile(source).launch("f", (2,), (128,), [out], 0, options)
    assert out.get().tolist() == [fibonacci(t % 8) for t in range(256)]
    assert profile.estimated_ms is not None
    assert profile.estimated_ms > 0
    assert profile.counters["smsp__inst_executed.sum"] > 8 * 20


def test_a_loop_around_a_recursion_that_changes_nothing_is_endless(run: Run) -> None:
    source = """
__device__ int down(const int *a, int n) { return n ? a[n] + down(a, n - 1) * down(a, n - 1) : a[0]; }
__global__ void f(int *out) {
    int seen = 0;
    do seen = down(out, 3); // HERE
    while (seen != 7);
    out[0] = seen;
}
"""
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(32, np.int32))
    assert caught.value.code == "endless-loop"


def test_many_returns_are_no_endless_loop(run: Run) -> None:
    """A lane is in the same place with the same registers again and again: its stack tells the difference."""
    source = """
__device__ void ruler(int *out, int n, int step) {
    if (n == 0) { atomicAdd(out, 0); return; }
    for (int i = 0; i < 2; i++) ruler(out, n - 1, step);
}
__global__ void f(int *out) { ruler(out, 11, 1); out[threadIdx.x] = 5; }
"""
    out = np.zeros(32, np.int32)
    run(source, out)
    assert (out == 5).all()


def test_the_stacks_of_many_threads_take_bounded_memory(run: Run) -> None:
    source = """
__device__ float down(const int *a, int n) { return n == 0 ? a[0] : down(a, n - 1) * 2 + a[n]; }
__global__ void f(const int *in, float *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = down(in, 20); }
"""
    out = np.zeros(1 << 17, np.float32)
    tracemalloc.start()
    try:
        run(source, np.ones(32, np.int32), out, grid=(512,), block=(256,))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (out == 2**21 - 1).all()
    assert peak < 300 << 20  # bytes; the stacks of all threads together would take 268 MiB and as much again


def test_an_array_of_a_call_that_is_read_beyond_its_end(run: Run) -> None:
    """Which array was meant is not known: none is named."""
    source = """
__device__ int sum(const int *above, int n) {
    int own[4];
    for (int i = 0; i < 4; i++) own[i] = above[i + (n == 2)] + 1; // HERE
    return n == 0 ? own[3] : sum(own, n - 1) + own[n & 3];
}
__global__ void f(int *out) { int a[5] = {1, 2, 3, 4, (int)threadIdx.x}; out[threadIdx.x] = sum(a, 3); }
"""
    seen = run(source, np.zeros(32, np.int32), options=CHECKED).hazards
    assert [(hazard.kind, hazard.where, hazard.location) for hazard in seen] == [
        ("uninitialised", marked(source), None)
    ]
