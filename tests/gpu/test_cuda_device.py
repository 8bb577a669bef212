"""The CUDA device on a real GPU: opening, arrays, guard zones, compiling, constants, tunables, launches."""

import json
import subprocess
import sys

import numpy as np
import pytest

from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.sandbox import Limits
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc
from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable, LaunchError

pytestmark = pytest.mark.gpu

SOURCE = """
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 128)
__constant__ float vectors[4];
__device__ int launches = 3;

__global__ void scale(float *x, float factor, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
__global__ void scale_one_too_many(float *x, float factor, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) x[i] = factor;
}
__global__ void one_before(float *x) { x[-1] = 1; }
__global__ void sum_of_vectors(float *out) {
    out[0] = vectors[0] + vectors[1] + vectors[2] + vectors[3];
    launches++;
}
__global__ void dynamic(int *out, int words) {
    extern __shared__ int tile[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) tile[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = tile[words - 1];
}
__global__ void __launch_bounds__(64) small_blocks(int *out) { out[threadIdx.x] = threadIdx.x; }
template <typename T> __global__ void fill(T *out) { out[threadIdx.x] = 7; }
template __global__ void fill<double>(double *);
"""


OPENING = """
import json, threading, time
import pycuda.driver, pynvml
from cuda.bindings import driver
from pytest_gpulab.devices.cuda.gpu import OpenGpu

def tick():
    last_s = time.perf_counter()
    while not is_open.is_set():
        time.sleep(0.001)
        pauses_s.append(time.perf_counter() - last_s)
        last_s = time.perf_counter()

def is_there():
    return bool(driver.cuDevicePrimaryCtxGetState(driver.cuDeviceGet(0)[1])[2])

pauses_s, is_open = [], threading.Event()
other = threading.Thread(target=tick)
other.start()
begin_s = time.perf_counter()
gpu = OpenGpu(0, 1.0)
gpu.context.make()
took_s = time.perf_counter() - begin_s
is_open.set()
other.join()
states = [is_there()]
gpu.close()
print(json.dumps([max(pauses_s), took_s, [*states, is_there()]]))
"""


def test_other_threads_run_while_a_gpu_is_opened_and_nothing_of_it_is_kept(opened_device):
    """One of them has nvcc at work, which takes as long."""
    ended = subprocess.run([sys.executable, "-c", OPENING], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    pause_s, took_s, states = json.loads(ended.stdout)
    assert pause_s < took_s / 2, (pause_s, took_s)
    assert states == [True, False]


@pytest.fixture(scope="module")
def module(opened_device):
    return opened_device.compile(SOURCE, "student.cu")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(0,), (1,), (1023,), (3, 5, 7)])
def test_an_array_comes_back_as_it_went(device, dtype, shape):
    values = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    memory = device.array(values)
    assert (memory.shape, memory.dtype, memory.nbytes) == (shape, np.dtype(dtype), values.nbytes)
    assert np.array_equal(memory.get(), values)
    assert memory.damage() is None


def test_an_array_takes_the_place_of_one_that_was_freed_with_whole_guard_zones(device, module):
    from pytest_gpulab.devices.cuda.memory import SPREAD_BYTES

    first = device.array(np.zeros(1000, np.float32))
    module.launch("scale_one_too_many", (8,), (128,), [first, np.float32(1), np.uint32(1000)])
    assert first.damage() is not None
    first.free()
    second = device.array(np.zeros(1000, np.float32))
    assert abs(second.address - first.address) < SPREAD_BYTES
    module.launch("scale_one_too_many", (8,), (128,), [second, np.float32(3), np.uint32(999)])
    assert second.damage() is None and (second.get() == 3).all()


def test_setting_an_array_replaces_its_contents(device):
    memory = device.empty(4, np.float32)
    memory.set([1, 2, 3, 4])
    assert memory.get().tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"the array has shape \(4,\), the values have \(3,\)"):
        memory.set([1, 2, 3])


def test_a_freed_array_cannot_be_used(device):
    memory = device.empty(4, np.float32)
    device.reset()
    with pytest.raises(ValueError, match="this array was freed"):
        memory.get()


def test_a_part_lies_inside_its_whole_and_lives_as_long(device):
    whole = device.array(np.arange(8, dtype=np.int32))
    part = device.part(whole, 8, (2, 2), np.int32)
    assert part.get().tolist() == [[2, 3], [4, 5]]
    part.set([[12, 13], [14, 15]])
    assert whole.get().tolist() == [0, 1, 12, 13, 14, 15, 6, 7]
    part.free()
    assert part.damage() is None and part.get().shape == (2, 2)
    for offset_bytes in (-4, 20):
        with pytest.raises(ValueError, match=rf"16 bytes from byte {offset_bytes} on are not inside 32 bytes"):
            device.part(whole, offset_bytes, (4,), np.int32)
    whole.free()
    with pytest.raises(ValueError, match="this array was freed"):
        part.get()


def test_too_large_an_allocation_is_reported(device):
    with pytest.raises(DeviceUnavailable, match=r"not enough GPU memory for .* bytes more"):
        device.empty(1 << 50, np.uint8)


def test_a_launch_reads_and_writes_arrays(device, module):
    x = device.array(np.arange(1000, dtype=np.float32))
    profile = module.launch("scale", (4,), (256,), (x, np.float32(2), np.uint32(1000)))
    assert np.array_equal(x.get(), 2 * np.arange(1000, dtype=np.float32))
    assert x.damage() is None
    assert (profile.kernel, profile.grid, profile.block) == ("scale", (4, 1, 1), (256, 1, 1))
    assert profile.occupancy == 1.0
    assert profile.resources.registers > 0
    assert profile.estimated_ms is None


def test_a_write_one_past_the_end_is_seen_by_the_guard_zone(device, module):
    x = device.array(np.zeros(255, np.float32))
    module.launch("scale_one_too_many", (1,), (256,), (x, np.float32(2), np.uint32(255)))
    assert x.damage() == "invalid __global__ write: `array[255]` written, `array` has 255 elements"


def test_zones_that_were_read_with_the_contents_are_read_again_after_a_launch(device, module):
    x = device.array(np.zeros(255, np.float32))
    module.launch("scale_one_too_many", (1,), (256,), [x, np.float32(1), np.uint32(254)])
    assert x.get().all() and x.damage() is None
    module.launch("scale_one_too_many", (1,), (256,), [x, np.float32(1), np.uint32(255)])
    assert x.damage() == "invalid __global__ write: `array[255]` written, `array` has 255 elements"


def test_a_write_before_the_start_is_seen_by_the_guard_zone(device, module):
    x = device.array(np.zeros(255, np.float32))
    module.launch("one_before", (1,), (1,), (x,))
    assert x.damage() == "invalid __global__ write: `array[-1]` written, `array` has 255 elements"


def test_names_are_the_students(module):
    assert "scale" in module.kernels
    assert "fill" in module.kernels
    assert set(module.symbols) == {"BLOCK_SIZE", "gpulab_tunable_BLOCK_SIZE", "vectors", "launches"}


def test_tunables_and_variables_are_read_back(device, module):
    assert np.frombuffer(module.read_symbol("gpulab_tunable_BLOCK_SIZE"), np.int32).tolist() == [128]
    assert np.frombuffer(device.compile(SOURCE).read_symbol("launches"), np.int32).tolist() == [3]


def test_constants_reach_the_kernel(device, module):
    out = device.empty(1, np.float32)
    module.set_constant("vectors", np.array([1, 2, 3, 4], np.float32))
    module.launch("sum_of_vectors", (1,), (1,), (out,))
    assert out.get().tolist() == [10]


def test_resources_are_the_loaded_functions(module):
    resources = module.resources("sum_of_vectors")
    assert resources.registers > 0 and resources.constant_bytes == 16
    assert (resources.shared_bytes, resources.local_bytes) == (0, 0)


def test_a_constant_that_is_too_small_is_refused(module):
    with pytest.raises(LaunchError, match="variable 'vectors' holds 16 bytes, too few for 20"):
        module.set_constant("vectors", np.zeros(5, np.float32))
    with pytest.raises(LaunchError, match=r"no variable is called 'matrix'; the source has: BLOCK_SIZE, gpulab_tun"):
        module.set_constant("matrix", np.zeros(5, np.float32))


def test_parameters_have_their_sizes(module):
    assert module.parameter_bytes("scale") == (8, 4, 4)
    assert module.parameter_bytes("fill") == (8,)


def test_a_call_that_does_not_fit_the_kernel_is_refused(device, module):
    x = device.empty(256, np.float32)
    with pytest.raises(LaunchError, match="no kernel is called 'reduce'; the source has: dynamic, fill"):
        module.launch("reduce", (1,), (1,), (x,))
    with pytest.raises(LaunchError, match="kernel 'scale' has 3 parameters; the launch passes 2"):
        module.launch("scale", (1,), (256,), (x, np.float32(2)))
    with pytest.raises(LaunchError, match="parameter 2 of kernel 'scale' has 4 bytes; the argument has 8"):
        module.launch("scale", (1,), (256,), (x, np.float64(2), np.uint32(256)))
    with pytest.raises(LaunchError, match=r"a block of 128 threads is too large .* at most 64 "):
        module.launch("small_blocks", (1,), (128,), (x,))
    with pytest.raises(LaunchError, match=r"the GPU refuses to launch 'small_blocks' with grid .*: invalid"):
        module.launch("small_blocks", (1, 1 << 20), (64,), (x,))
    module.launch("small_blocks", (1,), (64,), (x,))  # and the device still works


def test_scalars_of_every_size_are_passed_by_value(device):
    source = "__global__ void k(double *out, bool a, signed char b, short c, int d, long long e, float f, double g)"
    module = device.compile(source + "{ out[0] = 7 * g + 6 * f + 5 * e + 4 * d + 3 * c + 2 * b + a; }")
    out = device.empty(1, np.float64)
    scalars = [np.bool_(1), np.int8(-2), np.int16(3), np.int32(4), np.int64(1 << 40), np.float32(0.5), np.float64(0.25)]
    module.launch("k", (1,), (1,), (out, *scalars))
    assert out.get().tolist() == [1 - 4 + 9 + 16 + 5 * (1 << 40) + 3 + 1.75]


def test_dynamic_shared_memory_up_to_what_the_gpu_has(device, module):
    out = device.empty(1, np.int32)
    for words in (256, 12 * 1024 + 1, 16 * 1024):
        module.launch("dynamic", (1,), (128,), (out, np.int32(words)), shared_bytes=4 * words)
        assert out.get().tolist() == [words - 1]
    with pytest.raises(LaunchError, match="requests 4194304 bytes of dynamic shared memory; the GPU allows"):
        module.launch("dynamic", (1,), (128,), (out, np.int32(1)), shared_bytes=4 << 20)


def test_occupancy_counts_whole_warps(module):
    """A block of 96 threads with few registers: 21 of them, 63 of 64 warps, on a GPU with 2048 threads an SM."""
    threads = module._attribute("MAX_THREADS_PER_MULTIPROCESSOR")
    expected = min(threads // 96, module._attribute("MAX_BLOCKS_PER_MULTIPROCESSOR")) * 96 / threads
    assert module.occupancy("scale", 96).occupancy == pytest.approx(expected)


def test_macros_of_any_shape_reach_the_source(device):
    source = "__global__ void k(T *x) { x[0] = OP(x[1], 'a' + 1); }"
    module = device.compile(
        source, defines={"T": "long long", "OP(a, b)": '((a) >\n (b) ? (a) : (b)) /* $(x) `y` " */'}
    )
    x = device.array(np.array([0, 5], np.int64))
    module.launch("k", (1,), (1,), (x,))
    assert x.get()[0] == ord("a") + 1


def test_headers_of_the_exercise_can_be_included(device):
    source = '#include "paths.cuh"\n#include <cooperative_groups.h>\n__global__ void k(int *x) { x[0] = path(20); }'
    module = device.compile(source, headers={"paths.cuh": "__device__ int path(int i) { return i + 1; }"})
    x = device.empty(1, np.int32)
    module.launch("k", (1,), (1,), (x,))
    assert x.get().tolist() == [21]


def test_a_source_that_does_not_compile_shows_the_compilers_message(device):
    with pytest.raises(CompileError) as caught:
        device.compile("__global__ void k(int *x) {\n    x[0] = y;\n}\n", "student.cu", {"A": "1", "B": "2"})
    assert 'student.cu(2): error: identifier "y" is undefined' in caught.value.diagnostics
    assert "kernel.cu" not in caught.value.diagnostics


def test_a_missing_header_shows_the_compilers_message(device):
    with pytest.raises(CompileError, match=r"nowhere\.h"):
        device.compile('#include "nowhere.h"\n', "student.cu")


def test_a_warning_is_kept_in_the_log(device):
    module = device.compile("__global__ void k(int *x) {\n    int unused;\n    x[0] = 1;\n}\n", "student.cu")
    assert 'student.cu(2): warning #177-D: variable "unused" was declared but never referenced' in module.log
    assert device.compile("__global__ void k(int *x) { x[0] = 1; }").log == ""


def test_the_device_describes_itself(device):
    info = device.info
    assert info.kind == "cuda"
    assert not info.estimates
    assert info.architecture.startswith("sm_")
    assert info.compiler.startswith("nvcc 1")
    assert set(info.details) >= {"PyCUDA", "driver", "peak bandwidth"}


def test_a_number_that_no_device_has_is_refused(opened_device):
    from pytest_gpulab.devices import open_device

    with pytest.raises(DeviceUnavailable, match=r"there is no CUDA device 99: this machine has"):
        open_device("cuda:99")


def test_a_closed_device_says_so(opened_device):
    from pytest_gpulab.devices import open_device

    second, why = open_device("cuda:0")
    memory = second.array([1, 2, 3])
    second.close()
    assert why == "it was requested"
    with pytest.raises(DeviceUnavailable, match="this device was closed"):
        second.empty(1, np.int32)
    with pytest.raises(ValueError, match="this array was freed"):
        memory.get()
    assert opened_device.array([4]).get().tolist() == [4]  # another opening of the same GPU goes on


def test_a_compiler_that_takes_too_much_memory_is_stopped_and_explained(device):
    """Every further template argument doubles what the compiler has to hold."""
    source = "template <int N, int M> struct T { static const int v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v; };\n"
    source += "template <int M> struct T<0, M> { static const int v = M; };\n"
    source += "__global__ void k(int *x) { x[0] = T<26, 0>::v; }\n"
    nvcc = Nvcc(Limits(memory_bytes=1 << 30))
    with pytest.raises(CompileError, match="did not finish; the limits are 1 GiB of memory and 256 MiB per file"):
        nvcc.cubin(source, "bomb.cu", device.info.architecture, {}, {})


def test_a_cubin_that_is_too_large_is_refused(device):
    source = "__device__ char huge[1u << 28] = {1};\n__global__ void k(char *x) { x[0] = huge[threadIdx.x]; }\n"
    with pytest.raises(CompileError, match="did not finish; the limits are 2 GiB of memory and 16 MiB per file"):
        Nvcc(Limits(file_bytes=16 << 20)).cubin(source, "huge.cu", device.info.architecture, {}, {})


def test_the_same_source_is_compiled_once_with_the_same_warnings(device, tmp_path):
    nvcc, architecture = Nvcc(cache=Cache(tmp_path)), device.info.architecture
    source = "__global__ void k(int *x) { int unused; x[0] = VALUE; }\n"
    first = nvcc.cubin(source, "k.cu", architecture, {"VALUE": "1"}, {})
    assert "unused" in first[1] and nvcc.cubin(source, "k.cu", architecture, {"VALUE": "1"}, {}) == first
    cache = Cache(tmp_path)
    entries = {path.name: cache.get(path.name) for path in tmp_path.iterdir()}  # beside how nvcc was tried
    (key,) = (name for name, entry in entries.items() if entry and entry[0] == first[0])
    cache.put(key, b"kept", json.dumps(["said", "PTX", "report"]))
    assert nvcc.cubin(source, "k.cu", architecture, {"VALUE": "1"}, {}) == (b"kept", "said")
    assert nvcc.cubin(source, "k.cu", architecture, {"VALUE": "2"}, {})[0] not in (first[0], b"kept")
    assert nvcc.cubin(source, "k.cu", architecture, {"VALUE": "1"}, {"more.cuh": ""})[0] != b"kept"


NEEDS = {
    "functions": "double on_the_host() { return std::riemann_zeta(2.0); }",
    "by way of <cmath>": 'static_assert(std::is_same<decltype(std::min(1, 2)), const int &>::value, "");',
    "numbers": '#include <limits>\nstatic_assert(std::numeric_limits<int>::max() > 0, "");',
    "pairs": "#include <utility>\nusing Two = std::pair<int, float>;",
    "of GNU": "_Float32 on_the_host(_Float32 x) { return sinf32(x); }",
    "textures": "__device__ float at(cudaTextureObject_t t, int i) { return tex1Dfetch<float>(t, i); }",
    "in a header": "#include <algorithm>\ninline void on_the_host(int *begin, int *end) { std::sort(begin, end); }",
}


@pytest.mark.parametrize(
    ("spared", "name"), [("struct div_t { float of_stdlib; };", "div_t"), ("enum FILE { of_stdio };", "FILE")]
)
def test_nvcc_is_spared_what_kernels_do_not_need(device, tmp_path, spared, name):
    text = f"{spared}\n__global__ void f(float *x) {{ x[0] = sizeof({name}); }}"
    nvcc = Nvcc(cache=Cache(tmp_path))  # one that has met no text yet that needs what it is spared
    assert nvcc.cubin(text, "k.cu", device.info.architecture, {}, {})[0]
    with pytest.raises(CompileError, match="already"):
        nvcc.cubin(f"#include <algorithm>\n{text}", "k.cu", device.info.architecture, {}, {})


@pytest.mark.parametrize("needs", NEEDS)
def test_omitted_headers_are_included_on_demand(opened_device, needs):
    assert opened_device.compile(f"{NEEDS[needs]}\n__global__ void f(float *x) {{ x[0] = 1; }}").kernels == ("f",)


def test_omitted_headers_make_no_visible_difference(opened_device):
    ambiguous = "using namespace std;\nstruct pair { float a; };\n__global__ void f(float *x) { pair p; p.a = *x; }"
    with pytest.raises(CompileError, match='"pair" is ambiguous'):
        opened_device.compile(ambiguous)
    kernel = "__global__ void %s(float *x) { x[0] = 1; }\n"
    asking = f"#ifdef __cpp_lib_integer_sequence\n{kernel % 'all'}#else\n{kernel % 'some'}#endif\n"
    assert opened_device.compile(asking).kernels == ("all",)


def test_assembly_that_moves_source_lines_is_refused(opened_device):
    kernel = '__global__ void f(int *x) {{ asm volatile("\\n{}\\n"); x[0] = 1; }}'
    assert opened_device.compile(kernel.format("bar.sync 0;")).kernels == ("f",)
    with pytest.raises(CompileError, match=r"inline assembly with `\.loc` is refused: it moves source lines"):
        opened_device.compile(kernel.format(".loc 1 7 0"))
