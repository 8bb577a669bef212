"""The parts of the CUDA device that need no GPU: source, names in a cubin, guard zones, what faults mean."""

import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as bindings

from pytest_gpulab.devices.cuda import context as context_module
from pytest_gpulab.devices.cuda import device as device_module
from pytest_gpulab.devices.cuda import gpu as gpu_module
from pytest_gpulab.devices.cuda import turns
from pytest_gpulab.devices.cuda.context import PrimaryContext
from pytest_gpulab.devices.cuda.cubin import read_names
from pytest_gpulab.devices.cuda.driver import primary_context
from pytest_gpulab.devices.cuda.faults import kernel_fault, overtime_fault
from pytest_gpulab.devices.cuda.interruptions import Interruptions
from pytest_gpulab.devices.cuda.memory import (
    _GUARD,
    APART_BYTES,
    GUARD_BYTES,
    KEEP_BYTES,
    MAX_KEPT_BYTES,
    Blocks,
    CudaMemory,
    describe_damage,
)
from pytest_gpulab.devices.cuda.nvcc import diagnostics, with_prelude
from pytest_gpulab.devices.cuda.overhead import AMONG, Overhead
from pytest_gpulab.devices.cuda.turns import Turns
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable

SOURCE = """
extern "C" __device__ const int gpulab_tunable_BLOCK = 256;
__constant__ float vectors[40];
__device__ int flag = 7;
__device__ int counter;
template <int N> __device__ __noinline__ int helper(int *p) { return p[N]; }
__global__ void reduce(const int *in, int *out, unsigned n) {
    __shared__ int tile[64];
    tile[threadIdx.x] = in[threadIdx.x] + flag + counter++;
    __syncthreads();
    out[0] = tile[n] + (int)vectors[n] + helper<3>(out);
}
template <typename T> __global__ void fill(T *out) { out[threadIdx.x] = 1; }
template __global__ void fill<float>(float *);
extern "C" __global__ void plain() {}
"""


def nvrtc_cubin(source):
    from cuda.bindings import nvrtc

    def checked(answer):
        assert answer[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
        return answer[-1]

    program = checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    checked(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"]))
    cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin


def test_kernels_and_variables_of_a_real_cubin():
    names = read_names(nvrtc_cubin(SOURCE))
    assert names.kernels == {"reduce": "_Z6reducePKiPij", "fill": "_Z4fillIfEvPT_", "plain": "plain"}
    assert set(names.variables) == {"gpulab_tunable_BLOCK", "vectors", "flag", "counter"}


def test_a_source_without_kernels_has_none():
    assert read_names(nvrtc_cubin("__device__ int unused() { return 1; }")).kernels == {}


def test_macros_come_before_the_source_and_do_not_shift_its_lines():
    text = with_prelude("int x;\n", "reduction.cu", {"GPULAB_T": "float", "GPULAB_OP(a, b)": "max((a),\n(b))"})
    assert text == '#define GPULAB_T float\n#define GPULAB_OP(a, b) max((a), (b))\n#line 1 "reduction.cu"\nint x;\n'


def test_a_file_name_cannot_end_its_quotes():
    assert with_prelude("", 'a"b\\c.cu', {}) == '#line 1 "a\\"b\\\\c.cu"\n'


def test_diagnostics_join_text_and_bytes_and_drop_nothing_said():
    assert diagnostics(None, b"k.cu(1): error: no\n", "", "1 error\n") == "k.cu(1): error: no\n1 error"


FAULTS = {
    "an illegal memory access was encountered": "out-of-bounds",
    "misaligned address": "misaligned",
    "operation not supported on global/shared address space": "out-of-bounds",
    "device-side assert triggered": "assert",
    "the launch timed out and was terminated": "endless-loop",
    "an illegal instruction was encountered": "trap",
    "unspecified launch failure": "device-fault",
    "something new": "device-fault",
}


@pytest.mark.parametrize(("words", "code"), FAULTS.items())
def test_the_drivers_words_become_a_fault(words, code):
    fault = kernel_fault("reduce", words)
    assert fault.code == code
    assert str(fault).startswith("reduce: ")


def test_an_unknown_fault_quotes_the_driver():
    assert "something new" in str(kernel_fault("reduce", "something new"))


def test_a_kernel_that_does_not_end_is_named_with_the_limit():
    fault = overtime_fault("spin", 10.0)
    assert fault.code == "endless-loop"
    assert str(fault).startswith("spin: the kernel had not ended after 10 s")


def zone(*written):
    guard = _GUARD.copy()
    for offset in written:
        guard[offset] ^= 0xFF
    return guard


def test_untouched_guard_zones_are_no_damage():
    assert describe_damage(zone(), zone(), itemsize=4, nbytes=400) is None


def test_a_write_one_past_the_end_is_named_by_its_index():
    damage = describe_damage(zone(), zone(0, 1, 2, 3), itemsize=4, nbytes=400)
    assert damage == "wrote past the end of an array of 100 elements, first at index 100"


def test_a_write_before_the_start_has_a_negative_index():
    damage = describe_damage(zone(GUARD_BYTES - 4), zone(), itemsize=4, nbytes=400)
    assert damage == "wrote before the start of an array of 100 elements, last at index -1"


@pytest.mark.parametrize("value", [0, -1, 0x7FC00000, 123456])
def test_no_constant_word_passes_for_the_guard(value):
    word = np.array([value], np.int32).view(np.uint8)
    overwritten = zone()
    overwritten[:4] = word
    assert describe_damage(zone(), overwritten, itemsize=4, nbytes=4) is not None


class Driver:
    """Counts pieces of memory that were taken from it and not given back."""

    def __init__(self):
        self.taken = 0

    def mem_alloc(self, nbytes):
        self.taken += 1
        return self

    def __int__(self):
        return 1 << 40

    def memcpy_htod(self, target, values):
        assert target == int(self) + APART_BYTES and values is _GUARD

    def free(self):
        self.taken -= 1


class Context:
    """Has a driver, and is always current."""

    def __init__(self):
        self.driver, self.users, self.usable = Driver(), set(), True

    def current(self):
        return nullcontext()

    at_work = current


class Memories(Driver):
    """One piece of memory in earnest, and how often it was read."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def mem_alloc(self, nbytes):
        self.contents = np.zeros(nbytes, np.uint8)
        return 0

    def memcpy_htod(self, target, values):
        self.contents[target:][: values.nbytes] = values.view(np.uint8)

    def memcpy_dtod(self, target, source, nbytes):
        self.contents[target:][:nbytes] = _GUARD

    def memcpy_dtoh(self, target, source):
        self.reads += 1
        target[:] = self.contents[source:][: target.nbytes]


@pytest.mark.parametrize("elements", [0, 1, 1000])
def test_an_array_comes_back_with_its_guard_zones_in_one_copy_after_each_launch(elements):
    context = Context()
    context.driver, context.launches = Memories(), 0
    blocks = Blocks(context)
    blocks._apart = 0
    memory, driver = CudaMemory(blocks, (elements,), np.float32), context.driver
    values = np.arange(elements, dtype=np.float32)
    memory.set(values)
    assert np.array_equal(memory.get(), values) and memory.damage() is None
    memory.guard()
    driver.reads, context.launches = 0, 1
    assert np.array_equal(memory.get(), values) and memory.damage() is None
    assert driver.reads == 1
    assert all(zone.base is None for zone in memory._read[1:])  # or they would keep the contents in memory, too
    driver.contents[GUARD_BYTES + values.nbytes] ^= 0xFF
    context.launches = 2
    assert memory.damage() == f"wrote past the end of an array of {elements} elements, first at index {elements}"
    assert np.array_equal(memory.get(), values) and memory.damage() is not None
    assert driver.reads == 1 + 2 + 1


def test_a_piece_of_memory_is_used_again_for_the_same_size_alone():
    context = Context()
    blocks, driver = Blocks(context), context.driver
    blocks.give(blocks.take(100), 100)
    assert driver.taken == 1
    blocks.take(100)
    assert driver.taken == 1
    blocks.take(100), blocks.take(99)
    assert driver.taken == 3


def test_what_guard_zones_hold_is_copied_to_the_gpu_once():
    blocks = Blocks(Context())
    assert blocks.guard == blocks.guard == (1 << 40) + APART_BYTES
    assert blocks.context.driver.taken == 1
    blocks.close()
    assert blocks.context.driver.taken == 0


def test_little_memory_is_kept_and_all_of_it_given_back():
    context = Context()
    blocks, driver = Blocks(context), context.driver
    blocks.give(blocks.take(MAX_KEPT_BYTES + 1), MAX_KEPT_BYTES + 1)
    assert driver.taken == 0
    pieces = [blocks.take(MAX_KEPT_BYTES) for _ in range(100)]
    for piece in pieces:
        blocks.give(piece, MAX_KEPT_BYTES)
    assert driver.taken == KEEP_BYTES // MAX_KEPT_BYTES
    blocks.close()
    assert driver.taken == 0


def test_a_broken_context_keeps_its_memory():
    context = Context()
    blocks = Blocks(context)
    blocks.give(blocks.take(100), 100)
    context.usable = False
    blocks.close()
    assert context.driver.taken == 1 and blocks in context.users


class Leaping(Driver):
    """Runs the kernel that looks at the clock, which makes such leaps."""

    def __init__(self, longest_ms, shortest_ms):
        super().__init__()
        self.leaps_ns = np.array([1e6 * longest_ms, 1e6 * shortest_ms], np.uint64)

    def module_from_buffer(self, source):
        assert b".entry leaps(" in source
        return self

    def get_function(self, name):
        assert name == "leaps"
        return lambda target, grid, block: None

    def memcpy_dtoh(self, target, source):
        target[:] = self.leaps_ns


@pytest.mark.parametrize(
    ("longest_ms", "shortest_ms", "gap_ms"),
    [
        (0.293, 0.000032, 0.293),
        (2.4, 0.001, 2.4),
        (0.04, 0.000032, 0),  # no process is away for so short a time
        (0.001, 0.001, 0),  # clocks that count nanoseconds by the thousand, or by the million
        (1.024, 1.024, 0),
        (2.048, 1.024, 0),
    ],
)
def test_a_gap_in_the_gpus_time_is_told_from_a_clock_that_leaps(longest_ms, shortest_ms, gap_ms):
    context = Context()
    context.driver, context.wait = Leaping(longest_ms, shortest_ms), lambda kernel: None
    interruptions = Interruptions(context)
    assert interruptions.longest_ms() == pytest.approx(gap_ms)
    interruptions.close()
    assert context.driver.taken == 0


NOT_FOUND, FULL = bindings.CUresult.CUDA_ERROR_INVALID_DEVICE, bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
FOUND = bindings.CUresult.CUDA_SUCCESS


@pytest.mark.parametrize(
    ("found", "made", "called"),
    [
        (FOUND, FOUND, ["flags", "retain", "PyCUDA", "release"]),
        (FOUND, FULL, ["flags", "retain", "PyCUDA"]),
        (NOT_FOUND, FULL, ["PyCUDA"]),  # such as a part of a GPU
    ],
)
def test_a_context_is_made_beside_other_threads_and_left_to_pycuda(monkeypatch, found, made, called):
    calls = []
    gpu = SimpleNamespace(pci_bus_id=lambda: "0000:65:00.0", retain_primary_context=lambda: calls.append("PyCUDA"))
    monkeypatch.setattr(bindings, "cuDeviceGetByPCIBusId", lambda address: (found, 7))
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxSetFlags", lambda device, flags: calls.append("flags"))
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxRetain", lambda device: (made, calls.append("retain")))
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxRelease", lambda device: calls.append("release"))
    primary_context(gpu)
    assert calls == called


def test_nobody_times_while_a_process_begins_to_use_the_gpu(tmp_path, monkeypatch):
    """Making a context interrupts what is timed again and again, for up to a second."""
    monkeypatch.setattr(turns, "MAKING_WAIT_S", 0.3)
    waited_s = []

    class Gpu:
        def retain_primary_context(self):
            begin_s = time.monotonic()
            with Turns("GPU-1", tmp_path).timing():
                waited_s.append(time.monotonic() - begin_s)
            return "made once"

    monkeypatch.setattr(context_module, "primary_context", lambda gpu: gpu.retain_primary_context())
    context = PrimaryContext(Driver(), Gpu(), 1.0, Turns("GPU-1", tmp_path))
    assert not waited_s
    context.make()
    assert waited_s[0] >= 0.3


LIMIT_S = 20
KNOWN = DeviceInfo("cuda", "a GPU", "nvcc 13.0", "sm_90", estimates=False)


class Opened(SimpleNamespace):
    """What `load_driver` returns: one GPU, whose context is made with a function."""

    def __init__(self, make):
        gpu = SimpleNamespace(pci_bus_id=lambda: "0000:65:00.0", retain_primary_context=make)
        super().__init__(Device=lambda ordinal: gpu, Error=MemoryError)
        self.Device.count = lambda: 1


class Nvcc:
    version, within = "nvcc 13.0", SimpleNamespace(words="no sandbox")

    def __init__(self):
        self.compiles, self.opened = threading.Event(), threading.Event()

    def cubin(self, *text):
        self.compiles.set()
        assert self.opened.wait(LIMIT_S)
        return b"cubin", ""

    def ahead(self, *texts):
        self.cubin()


@pytest.fixture
def opening(monkeypatch, tmp_path):
    """A device that is known, and that nvcc and the driver wait for each other on."""

    def opened(nvcc, make):
        def load_driver():
            assert nvcc.compiles.wait(LIMIT_S)
            return Opened(make)

        monkeypatch.setenv("GPULAB_LOCKS", str(tmp_path))
        monkeypatch.setattr(gpu_module, "load_driver", load_driver)
        monkeypatch.setattr(context_module, "primary_context", lambda gpu: gpu.retain_primary_context())
        monkeypatch.setattr(device_module, "Nvcc", lambda: nvcc)
        monkeypatch.setattr(device_module, "CudaModule", lambda *made: made)
        return device_module.CudaDevice(known=KNOWN)

    return opened


def test_a_known_gpu_is_opened_while_nvcc_is_at_work(opening):
    """Both take half a second; a process that grades needs the one as soon as the other."""
    nvcc = Nvcc()
    device = opening(nvcc, nvcc.opened.set)
    assert device.info == KNOWN and device.usable
    device.compile_ahead("", "", [], {})
    assert nvcc.opened.is_set()
    assert device.compile("")[1:] == (b"cubin", "")
    device.close()
    assert not device.usable


def test_a_known_gpu_that_has_no_room_is_not_used(opening):
    nvcc = Nvcc()

    def is_full():
        nvcc.opened.set()
        raise MemoryError("cuDevicePrimaryCtxRetain failed: out of memory")

    device = opening(nvcc, is_full)
    with pytest.raises(DeviceUnavailable, match="no room for another process"):
        device.compile("")
    assert not device.usable  # another process is to try again
    device.close()


def test_a_known_gpu_that_is_gone_is_missed_when_it_is_needed(opening, monkeypatch):
    nvcc = Nvcc()
    nvcc.opened.set()
    device = opening(nvcc, None)

    def nothing_there():
        raise DeviceUnavailable("no GPU can be used")

    monkeypatch.setattr(gpu_module, "load_driver", nothing_there)
    for _ in "compile", "once more":
        with pytest.raises(DeviceUnavailable, match="no GPU can be used"):
            device.compile("")
    device.close()


def test_a_known_gpu_that_nobody_needed_is_never_opened(opening):
    device = opening(None, None)
    device.reset()
    device.close()


def test_a_device_that_was_not_used_can_be_closed(tmp_path):
    context = PrimaryContext(Driver(), None, 1.0, Turns("GPU-1", tmp_path))
    Blocks(context).close()
    context.close()
    assert not context.usable


KERNEL_MS, OVERHEAD_MS = 0.0021, 0.0043


def learned(alone, among=5, disturbed=0, by_ms=0.0045):
    """Learn from so many samples with noise, some of which something made longer."""
    rng, overhead = np.random.default_rng(3), Overhead()
    for _ in range(among):
        overhead.learn(among_ms=OVERHEAD_MS + AMONG * KERNEL_MS + 0.0002 * rng.random())
    for number in range(alone):
        overhead.learn(alone_ms=OVERHEAD_MS + KERNEL_MS + 0.0002 * rng.random() + by_ms * (number < disturbed))
    return overhead.ms


@pytest.mark.parametrize("disturbed", [0, 4, 6])
def test_the_overhead_of_a_sample_is_found_though_most_samples_are_disturbed(disturbed):
    assert learned(9, disturbed=disturbed) == pytest.approx(OVERHEAD_MS, abs=0.0003)


def test_an_overhead_that_was_learned_at_a_bad_moment_is_mended_by_few_samples_more():
    assert learned(9, disturbed=9) > OVERHEAD_MS + 0.004
    assert learned(9 + 6, disturbed=9) == pytest.approx(OVERHEAD_MS, abs=0.0003)


def test_nothing_is_taken_off_before_anything_is_known():
    assert Overhead().ms == learned(0) == learned(9, among=0) == 0
