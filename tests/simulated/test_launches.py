"""The device protocol by hand on the simulated GPU: modules, memory, symbols, launches that do not fit the kernel."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import (
    CannotSimulate,
    CompileError,
    Device,
    KernelFault,
    LaunchError,
    LaunchOptions,
    Module,
    SourceLine,
)
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

SOURCE = """
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
__constant__ float weights[4];
__device__ int counter = 7;
template <typename T> __device__ T twice(T x) { return x + x; }
__global__ void scale(float *x, float by, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = twice(x[i]) * by * weights[i & 3];
}
__global__ void fill(char *x, char value, short other, double third) { x[threadIdx.x] = value + other + third; }
namespace inner { __global__ void nested(int *x) { x[0] = atomicAdd(&counter, 1); } }
__global__ void big(float *x) {
    __shared__ float tile[8192];
    tile[threadIdx.x] = x[0];
    __syncthreads();
    x[1] = tile[1];
}
"""


@pytest.fixture
def module(device: Device) -> Module:
    return device.compile(SOURCE)


def test_kernels_and_symbols_have_their_own_names(module: Module) -> None:
    assert set(module.kernels) == {"scale", "fill", "nested", "big"} or set(module.kernels) == {
        "scale", "fill", "inner::nested", "big",
    }  # fmt: skip
    assert {"weights", "counter", "gpulab_tunable_BLOCK_SIZE"} <= set(module.symbols)


def test_parameters_constants_and_symbols(device: Device, module: Module) -> None:
    assert module.parameter_bytes("scale") == (8, 4, 4)
    assert module.parameter_bytes("fill") == (8, 1, 2, 8)
    assert np.frombuffer(module.read_symbol("gpulab_tunable_BLOCK_SIZE"), np.int32)[0] == 256
    module.set_constant("weights", np.array([1, 2, 3, 4], np.float32))
    x = device.array(np.ones(10, np.float32))
    module.launch("scale", (1,), (32,), [x, np.float32(0.5), np.uint32(10)])
    assert x.get().tolist() == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    module.set_constant("counter", np.array([40], np.int32))
    (nested,) = (name for name in module.kernels if "nested" in name)
    y = device.array(np.zeros(1, np.int32))
    module.launch(nested, (1,), (3,), [y])
    assert np.frombuffer(module.read_symbol("counter"), np.int32)[0] == 43


def test_small_scalars(device: Device, module: Module) -> None:
    x = device.array(np.zeros(4, np.int8))
    module.launch("fill", (1,), (4,), [x, np.int8(-3), np.int16(20), np.float64(2)])
    assert x.get().tolist() == [19] * 4


def test_profile_names_the_launch(device: Device, module: Module) -> None:
    profile = module.launch(
        "scale", (2, 3), (8, 4), [device.array(np.ones(4, np.float32)), np.float32(1), np.uint32(4)]
    )
    assert (profile.kernel, profile.grid, profile.block) == ("scale", (2, 3, 1), (8, 4, 1))
    assert profile.output == "" and profile.hazards == ()


X = object()
GOOD = [X, np.float32(1), np.uint32(4)]
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such kernel": ({"kernel": "scael"}, "scale"),
    "too few arguments": ({"args": GOOD[:2]}, "3"),
    "too many arguments": ({"args": [*GOOD, np.int32(1)]}, "3"),
    "scalar too wide": ({"args": [X, np.float64(1), np.uint32(4)]}, "8 bytes"),
    "array for a scalar": ({"args": [X, X, np.uint32(4)]}, "bytes"),
    "scalar for an array": ({"args": [np.int32(5), *GOOD[1:]]}, "bytes"),
    "plain Python number": ({"args": [X, 1.0, np.uint32(4)]}, "float"),
    "too many threads": ({"block": (1025,)}, "1024"),
    "too many threads in two dimensions": ({"block": (33, 32)}, "1024"),
    "block too deep": ({"block": (1, 1, 65)}, "64"),
    "empty grid": ({"grid": (0,)}, "1"),
    "negative block": ({"block": (-32,)}, "1"),
    "four dimensions": ({"grid": (1, 1, 1, 1)}, "three"),
    "grid too high": ({"grid": (1, 65536)}, "65535"),
    "too much shared memory": ({"shared_bytes": 256 * 1024}, "shared"),
    "too much shared memory with the static part": (
        {"kernel": "big", "args": [X], "shared_bytes": 200 * 1024},
        "shared",
    ),
}


@pytest.mark.parametrize(("wrong", "word"), BAD.values(), ids=BAD.keys())
def test_launch_that_does_not_fit(device: Device, module: Module, wrong: dict[str, Any], word: str) -> None:
    x = device.array(np.ones(4, np.float32))
    call: dict[str, Any] = {"kernel": "scale", "grid": (1,), "block": (32,), "args": GOOD} | wrong
    call["args"] = [x if argument is X else argument for argument in call["args"]]
    with pytest.raises(LaunchError, match=word):
        module.launch(**call)
    assert x.get().tolist() == [1] * 4


def test_errors_of_symbols(module: Module) -> None:
    with pytest.raises(LaunchError, match="missing"):
        module.read_symbol("missing")
    with pytest.raises(LaunchError, match="missing"):
        module.set_constant("missing", np.zeros(1))
    with pytest.raises(LaunchError, match="16"):
        module.set_constant("weights", np.zeros(5, np.float32))
    with pytest.raises(LaunchError, match="missing"):
        module.parameter_bytes("missing")


def test_memory(device: Device) -> None:
    memory = device.array([[1, 2, 3], [4, 5, 6]], np.int16)
    assert (memory.shape, memory.dtype, memory.nbytes) == ((2, 3), np.dtype(np.int16), 12)
    copy = memory.get()
    copy[0, 0] = 99
    assert memory.get()[0, 0] == 1
    memory.set(np.arange(6).reshape(2, 3))
    assert memory.get().tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="shape"):
        memory.set(np.zeros(7))
    assert memory.damage() is None
    assert device.empty((3, 2), np.float64).get().shape == (3, 2)


def test_freed_memory_cannot_be_used(device: Device, module: Module) -> None:
    x = device.array(np.ones(4, np.float32))
    x.free()
    with pytest.raises(LaunchError, match="free"):
        module.launch("scale", (1,), (32,), [x, np.float32(1), np.uint32(4)])


def test_compile_error_is_the_compilers_own(device: Device) -> None:
    with pytest.raises(CompileError) as caught:
        device.compile("__global__ void f(int *x) {\n  x[0] = y;\n}\n", "mine.cu")
    assert "mine.cu(2): error:" in caught.value.diagnostics and '"y"' in caught.value.diagnostics


def test_defines_with_parameters_and_without(device: Device) -> None:
    source = "__global__ void f(T *x) { x[0] = OP(x[0], x[1]); }"
    module = device.compile(source, defines={"T": "float", "OP(a, b)": "fmaxf((a), (b))"})
    x = device.array([1.5, 2.5], np.float32)
    module.launch("f", (1,), (1,), [x])
    assert x.get().tolist() == [2.5, 2.5]


def test_warnings_are_kept(device: Device) -> None:
    assert "unused" in device.compile("__global__ void f() { int unused = 1; }").log


def test_two_modules_have_their_own_variables(device: Device) -> None:
    first, second = device.compile(SOURCE), device.compile(SOURCE)
    first.set_constant("counter", np.array([1], np.int32))
    assert np.frombuffer(second.read_symbol("counter"), np.int32)[0] == 7


def test_info_and_resources(device: Device, module: Module) -> None:
    assert device.info.kind == "simulated" and device.info.estimates
    assert device.info.compiler.startswith("NVRTC")
    assert module.resources("big").shared_bytes == 4 * 8192


def test_large_grid_of_small_blocks(device: Device) -> None:
    module = device.compile("__global__ void f(unsigned *x) { atomicAdd(&x[blockIdx.x % 7], 1u); }")
    x = device.array(np.zeros(7, np.uint32))
    module.launch("f", (70_000,), (1,), [x])
    assert x.get().tolist() == [10_000] * 7


def test_every_size_of_block(device: Device) -> None:
    module = device.compile("__global__ void f(unsigned *x) { atomicAdd(x, 1u + (threadIdx.x == blockDim.x - 1)); }")
    for size in (1, 2, 31, 32, 33, 63, 65, 100, 1023, 1024):
        x = device.array(np.zeros(1, np.uint32))
        module.launch("f", (3,), (size,), [x])
        assert x.get()[0] == 3 * (size + 1)


def test_warp_number_differs_between_the_warps_of_a_block(device: Device) -> None:
    source = (
        '__global__ void f(unsigned *x) { unsigned w; asm("mov.u32 %0, %%warpid;" : "=r"(w)); x[threadIdx.x] = w; }'
    )
    x = device.array(np.zeros(160, np.uint32))
    device.compile(source).launch("f", (1,), (160,), [x])
    numbers = x.get().reshape(5, 32)
    assert len(set(numbers[:, 0])) == 5 and (numbers == numbers[:, :1]).all()


def test_structures_by_value(device: Device) -> None:
    source = """
    struct Box { char tag; int corner[3]; double size; };
    __global__ void f(Box box, short *out, int3 by, bool flag) {
        int t = threadIdx.x;
        out[t] = box.corner[t % 3] + (flag ? box.tag : 0) + (int)box.size + by.y;
    }"""
    box = np.dtype([("tag", "i1"), ("corner", "i4", 3), ("size", "f8")], align=True)
    by = np.dtype([("x", "i4"), ("y", "i4"), ("z", "i4")])
    module = device.compile(source)
    assert module.parameter_bytes("f") == (24, 8, 12, 1)
    out = device.array(np.zeros(6, np.int16))
    values = np.array((5, (10, 20, 30), 2.75), box)[()], np.array((1, 100, 1000), by)[()]
    module.launch("f", (1,), (6,), [values[0], out, values[1], np.bool_(True)])
    assert out.get().tolist() == [117, 127, 137] * 2


def test_much_local_memory_runs_in_small_waves(device: Device) -> None:
    source = """
    __global__ void f(int *out, int n) {
        int big[60000];
        for (int k = 0; k < 3; k++) big[(threadIdx.x * 1000 + k * n) % 60000] = k + blockIdx.x;
        out[blockIdx.x * blockDim.x + threadIdx.x] = big[(threadIdx.x * 1000 + 2 * n) % 60000];
    }"""
    out = device.array(np.zeros(16 * 256, np.int32))
    device.compile(source).launch("f", (16,), (256,), [out, np.int32(7)])
    np.testing.assert_array_equal(out.get(), np.repeat(np.arange(16) + 2, 256))


def test_more_local_memory_than_a_thread_can_have(device: Device) -> None:
    source = "__global__ void f(int *out, int n) { int big[200000]; big[n] = 1; out[0] = big[n + out[0]]; }"
    with pytest.raises(CompileError, match="`f` needs 800,000 bytes of local memory; the limit per thread is 524,288"):
        device.compile(source)


def test_copies_of_a_function_with_much_local_memory(device: Device) -> None:
    """Hardware gives each call the same memory; here each copy has its own."""
    source = """__device__ __noinline__ int get(int n) { volatile int big[60000]; big[n] = n; return big[n + 1]; }
    __global__ void f(int *out, int n) { out[0] = get(n) + get(n + 1) + get(n + 2); }"""
    with pytest.raises(
        CannotSimulate, match=r"720,000 bytes of local memory per thread with inlined functions; 524,288 are"
    ):
        device.compile(source).launch("f", (1,), (1,), [device.array(np.zeros(1, np.int32)), np.int32(7)])


def test_variables_larger_than_the_gpu(device: Device) -> None:
    with pytest.raises(CompileError, match=r"bomb.cu: error: the file's variables take 68,719,476,736 bytes, more"):
        device.compile("__device__ char bomb[1ull << 36]; __global__ void f() { bomb[0] = 1; }", "bomb.cu")


def test_a_modules_variables_go_with_it(device: SimulatedDevice) -> None:
    module = device.compile("__device__ int a[10], b[10]; __global__ void f() { a[0] = b[0]; }")
    assert len(list(device.arena.contents())) == 2
    del module
    gc.collect()
    assert not list(device.arena.contents())


def test_a_module_that_goes_while_a_kernel_runs_does_not_disturb_it(device: SimulatedDevice) -> None:
    unused = [device.compile("__device__ int a[10]; __global__ void f() { a[0] = 1; }")]
    module, array = device.compile("__global__ void f(int *x) { x[1] = 5; }"), device.empty(4, np.int32)

    def size(_: Allocation) -> int:
        unused.clear()  # as Python's garbage collector does, whenever it likes
        return 16

    assert array.allocation is not None
    array.allocation.__class__ = type("Collecting", (Allocation,), {"nbytes": property(size)})
    module.launch("f", (1,), (1,), [array])
    assert not unused and array.get()[1] == 5
    assert len(list(device.arena.contents())) == 1


@pytest.mark.parametrize(
    ("declared", "body", "has_state"),
    [
        ("", "x[0] = 1;", False),
        ("GPULAB_TUNABLE(BLOCK_SIZE, 256)", "x[0] = BLOCK_SIZE;", False),
        ("__constant__ int unused[4];", "x[0] = 1;", False),
        ("__constant__ int read; __constant__ const int *where = &read;", "x[0] = *where;", False),
        ("__device__ int kept; __constant__ int *where = &kept;", "*where = x[0] + 1;", True),
        ("__device__ int unused;", "x[0] = 1;", False),
        ("__device__ int kept;", "x[0] = ++kept;", True),
        ("namespace { __device__ int kept; }", "x[0] = ++kept;", True),
        ("", "static __device__ int kept; x[0] = ++kept;", True),
        ("GPULAB_TUNABLE(BLOCK_SIZE, 256)", "x[0] = ++*(int *)&gpulab_tunable_BLOCK_SIZE;", True),
    ],
)
def test_modules_with_state_between_launches(device: Device, declared: str, body: str, has_state: bool) -> None:
    module = device.compile(f"#include <gpulab.cuh>\n{declared}\n__global__ void f(int *x) {{ {body} }}\n")
    assert module.has_state == has_state


@pytest.mark.parametrize("blocks", [1, 2])
def test_all_threads_of_a_block_may_write_one_word_of_its_own(run: Run, blocks: int) -> None:
    source = """
    __global__ void f(int *out) {
        __shared__ int last[8];
        last[blockIdx.x] = threadIdx.x;
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = last[blockIdx.x];
    }"""
    out = np.zeros(64 * blocks, np.int32)
    run(source, out, grid=(blocks,), block=(64,))
    assert (out == 63).all()


GRID_SYNC = """#include <cooperative_groups.h>
__global__ void f(int *out, int n) {
    auto grid = cooperative_groups::this_grid();
    out[grid.thread_rank()] = n;
    grid.sync(); // HERE
    out[512 + grid.thread_rank()] = out[511 - grid.thread_rank()];
}
"""


@pytest.mark.unmeasured
def test_grid_synchronisation_works_in_a_cooperative_launch(run: Run) -> None:
    out = np.zeros(1024, np.int32)
    options = LaunchOptions(check=True, cooperative=True)
    profile = run(GRID_SYNC, out, np.int32(7), grid=(8,), block=(64,), options=options)
    assert out.tolist() == [7] * 1024
    assert profile.hazards == ()


def test_grid_synchronisation_in_an_ordinary_launch_is_a_fault_at_its_line(run: Run) -> None:
    with pytest.raises(KernelFault, match="without cooperation") as fault:
        run(GRID_SYNC, np.zeros(1024, np.int32), np.int32(7), grid=(8,), block=(64,))
    assert fault.value.code == "barrier" and fault.value.where == SourceLine("kernel.cu", 5)


def test_the_grid_may_be_asked_for_its_threads_in_an_ordinary_launch(run: Run) -> None:
    out = np.zeros(1024, np.int32)
    assert run(GRID_SYNC.replace("grid.sync();", ""), out, np.int32(7), grid=(8,), block=(64,)).hazards == ()
    assert out[:512].tolist() == [7] * 512


def test_blocks_of_a_cooperative_launch_must_fit_on_the_gpu(run: Run) -> None:
    options = LaunchOptions(cooperative=True)
    with pytest.raises(LaunchError, match=r"of 20000 blocks: at most 264 can be resident at once"):
        run("__global__ void f() {}", grid=(20_000,), block=(1024,), options=options)


def test_a_function_without_a_definition_does_not_compile(device: SimulatedDevice) -> None:
    source = "__device__ int helper(int);\n__global__ void f(int *out) {\n out[threadIdx.x] = helper(threadIdx.x);\n}\n"
    with pytest.raises(CompileError, match=r"^kernel.cu\(3\): error: the function `helper` is called, but not defined"):
        device.compile(source)


def test_variables_can_be_given_their_first_contents_again(device: Device) -> None:
    source = """
    __device__ int launches;
    __device__ int table[3] = {5, 6};
    __constant__ int weights[2] = {7, 8};
    __global__ void count(int *out) {
        static __device__ int own;
        *out = 1000 * own++ + 100 * launches++ + 10 * table[1]++ + weights[0] + table[2]++;
    }
    """
    module, out = device.compile(source), device.array(np.zeros(1, np.int32))
    found = []
    for again in (False, False, True):
        if again:
            module.reset_variables()
        module.launch("count", (1,), (1,), (out,))
        found.append(int(out.get()[0]))
        module.set_constant("weights", np.array([9], np.int32))
    assert found == [67, 1180, 67]
