"""The parts of the CUDA device that need no GPU: source, names in a cubin, what faults mean, overheads."""

from types import SimpleNamespace

import numpy as np
import pytest
from fake_driver import Context, Driver

from pytest_gpulab.devices.compiler.elf import read_names
from pytest_gpulab.devices.cuda.faults import kernel_fault, overtime_fault
from pytest_gpulab.devices.cuda.nvcc.compile import diagnostics, with_prelude
from pytest_gpulab.devices.cuda.timing.comparison import Comparison
from pytest_gpulab.devices.cuda.timing.interruptions import Interruptions
from pytest_gpulab.devices.cuda.timing.overhead import AMONG, Overhead
from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.devices.simulated.device import SimulatedDevice
from pytest_gpulab.devices.simulated.module import SimulatedModule

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
    "hardware stack error": "stack-overflow",
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


@pytest.mark.parametrize(
    "words",
    [
        "uncorrectable ECC error encountered",
        "uncorrectable NVLink error detected during the execution",
        "Invalid access of peer GPU memory over nvlink or a hardware error",
        "the remote procedural call between the MPS server and the MPS client failed",
        "OS call failed or operation not supported on this OS",
        "CUDA-capable device(s) is/are busy or unavailable",
        "unknown error",
    ],
)
def test_errors_of_the_machine_are_no_fault_of_a_kernel(words):
    missing = kernel_fault("reduce", words)
    assert isinstance(missing, DeviceUnavailable)
    assert str(missing) == f"the GPU itself failed, says the NVIDIA driver: {words}"


def test_an_unknown_fault_quotes_the_driver():
    assert "something new" in str(kernel_fault("reduce", "something new"))


def test_a_kernel_that_does_not_end_is_named_with_the_limit():
    fault = overtime_fault("spin", 10.0)
    assert fault.code == "endless-loop"
    assert str(fault).startswith("spin: the kernel had not ended after 10 s")


class Leaping(Driver):
    """Runs the kernel that looks at the clock, which makes such leaps."""

    def __init__(self, longest_ms, shortest_ms):
        super().__init__()
        self.leaps_ns = np.array([1e6 * longest_ms, 1e6 * shortest_ms], np.uint64)

    def module_from_buffer(self, source):
        assert b".entry leaps(" in source and source.index(b"\0") == len(source) - 1
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
def test_a_gap_in_the_gpus_time_differs_from_a_clock_that_leaps(longest_ms, shortest_ms, gap_ms):
    context = Context()
    context.driver, context.wait = Leaping(longest_ms, shortest_ms), lambda kernel: None
    interruptions = Interruptions(context)
    assert interruptions.longest_ms() == pytest.approx(gap_ms)
    interruptions.close()
    assert context.driver.taken == 0


@pytest.mark.parametrize(("looks", "taken", "gap_ms"), [(1, 1, 0), (2, 2, 0), (3, 3, 0.3), (8, 3, 0.3)])
def test_a_process_with_pauses_is_looked_for_until_seen(looks, taken, gap_ms):
    context, waits = Context(), []
    context.driver = Leaping(0.0001, 0.000032)

    def wait(kernel):
        waits.append(kernel)
        context.driver.leaps_ns[0] = 3e5 if len(waits) == 3 else 100

    context.wait = wait
    assert Interruptions(context).longest_ms(looks) == pytest.approx(gap_ms)
    assert len(waits) == taken


class Simulating(Driver):
    """A driver of a simulated GPU, which has arrays by their addresses."""

    device_attribute = SimpleNamespace(MULTIPROCESSOR_COUNT="multiprocessors")

    def __init__(self):
        super().__init__()
        self.gpu = SimulatedDevice()
        self.found = self.gpu.array(np.ones(1, np.uint32))
        self.arrays = {}

    def module_from_buffer(self, source):
        text, _, rest = source.partition(b"\0")
        assert rest == b"", "the driver reads up to the first NUL"
        self.module = SimulatedModule(self.gpu, text.decode("ascii"), "", ("", ""))
        return self

    def get_function(self, name):
        def launch(one, other, nbytes, target, grid, block):
            assert grid == (8 * 2, 1) and target is self
            self.module.launch(name, grid, block, (self.arrays[one], self.arrays[other], nbytes, self.found))

        return launch

    def memcpy_htod(self, target, values):
        self.found.set(values)

    def memcpy_dtoh(self, target, source):
        target[:] = self.found.get()


@pytest.mark.parametrize("nbytes", [1, 3, 4096, 5003])
def test_arrays_are_compared_to_the_last_byte(nbytes):
    context = Context()
    context.driver, context.wait = Simulating(), lambda kernel: None
    context.gpu = SimpleNamespace(get_attribute={"multiprocessors": 2}.get)
    values = np.random.default_rng(2).integers(0, 256, nbytes, np.uint8)
    contents = [values, values.copy()]
    for place in sorted({0, nbytes // 2, nbytes - 1}):
        contents.append(values.copy())
        contents[-1][place] ^= 1
    arrays = [SimpleNamespace(address=4096 * number, nbytes=nbytes) for number in range(len(contents))]
    context.driver.arrays = {4096 * number: context.driver.gpu.array(each) for number, each in enumerate(contents)}
    comparison = Comparison(context)
    first, like, *unlike = arrays
    assert not any(comparison.same(first, other) or comparison.same(other, like) for other in unlike)
    assert comparison.same(first, like), "what was found before is forgotten"
    comparison.close()
    assert context.driver.taken == 0


KERNEL_MS, OVERHEAD_MS = 0.0021, 0.0043


def learned(alone, among=5, disturbed=0, by_ms=0.0045):
    """Learn from so many samples with noise, some of which something made longer."""
    rng, overhead = np.random.default_rng(3), Overhead(None)
    for _ in range(among):
        overhead.learn(among_ms=OVERHEAD_MS + AMONG * KERNEL_MS + 0.0002 * rng.random())
    for number in range(alone):
        overhead.learn(alone_ms=OVERHEAD_MS + KERNEL_MS + 0.0002 * rng.random() + by_ms * (number < disturbed))
    return overhead.ms(launches=0)


@pytest.mark.parametrize("disturbed", [0, 4, 6])
def test_the_overhead_of_a_sample_is_found_though_most_samples_are_disturbed(disturbed):
    assert learned(9, disturbed=disturbed) == pytest.approx(OVERHEAD_MS, abs=0.0003)


@pytest.mark.parametrize(
    ("empty_ms", "further_ms", "gap_ms"),
    [
        (0.00125, 0.00135, 0.0001),
        (0.002, 0.0017, -0.0003),
        (0.002, 0.001, -0.0006),
        (0.00125, 0.0025, 0.0003),
        (None, 0.00135, 0),
    ],
)
def test_the_gap_between_launches_is_subtracted_if_it_is_known(empty_ms, further_ms, gap_ms):
    overhead = Overhead(empty_ms)
    overhead.learn(among_ms=OVERHEAD_MS + AMONG * further_ms, alone_ms=OVERHEAD_MS + further_ms)
    assert overhead.ms(launches=0) == pytest.approx(OVERHEAD_MS)
    assert overhead.ms(launches=32) == pytest.approx(OVERHEAD_MS + 32 * gap_ms)


def test_an_overhead_that_was_learned_at_a_bad_moment_is_mended_by_few_samples_more():
    assert learned(9, disturbed=9) > OVERHEAD_MS + 0.004
    assert learned(9 + 6, disturbed=9) == pytest.approx(OVERHEAD_MS, abs=0.0003)


def test_nothing_is_taken_off_before_anything_is_known():
    assert Overhead(KERNEL_MS).ms(1) == learned(0) == learned(9, among=0) == 0
