"""Timing of launches on a GPU with CUDA events, under the GPU's exclusive lock.

Cold caches: before a sample the GPU reads more than its level-2 cache holds. That evicts everything else. Unlike
writes, reads leave no lines that must be written back during the sample.

Warm caches: a batch follows the copies of its input, without a flush. After a flush a launch at times begins 1 us late,
repeatedly for some addresses of kernels and arrays (H200). With cold caches Nsight Compute counts that as the kernel's
time, too; a sample with warm caches must not show it. One load per page fills each multiprocessor's TLB, as warm caches
imply. Then the GPU pauses, because kernels take longer directly after copies.

While the GPU flushes or pauses, the host enqueues events and launches. So they follow each other without a gap, however
slow Python is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import ceil, inf
from typing import Any

import numpy as np

from pytest_gpulab.devices.cuda.context import PrimaryContext
from pytest_gpulab.devices.cuda.driver import memory_for
from pytest_gpulab.devices.cuda.memory import CudaMemory, copy_within
from pytest_gpulab.devices.cuda.module import CudaModule
from pytest_gpulab.devices.cuda.nvml import ConditionsReader
from pytest_gpulab.devices.cuda.report import peak_bandwidth_gb_s
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault, Module
from pytest_gpulab.devices.stopwatch import FULL_SPEED, UNINTERRUPTED_MS, Conditions, Copies, KernelLaunch

from . import own_kernels
from .interruptions import Interruptions
from .overhead import AMONG, EMPTY_BLOCK, EMPTY_MS, Overhead

LEAD_MS = 0.02  # per launch that Python enqueues; doubled if the GPU had to wait for it
MAX_LEAD_MS = 0.32  # four doublings of `LEAD_MS`
LEAD_KEPT = 0.96  # factor per sample enqueued in time: most delays of Python happen once
MAX_ATTEMPTS = 5  # the last sample counts even if the GPU had to wait
FLUSH_SHARE = 2  # of the level-2 cache's size: after reading it once, some old lines remain
LEAST_FLUSH_BYTES = 1 << 26  # with less, Python takes as long to enqueue a flush as the GPU to run it
FLUSH_BLOCK, FLUSH_BLOCKS_PER_SM = 256, 8  # 2048 threads, as many as an SM of compute capability 9.0 holds
VECTOR_BYTES = 16  # of a load of one thread, the widest
TOUCH_BLOCK = 256  # threads that load from every page
LEAST_PAGE_BYTES = 1 << 16  # the stride of `touch`
PAUSE_MS = 0.1  # the least pause; without it kernels of 3 to 4 us take up to 0.15 us longer, in some processes (H200)
SPEED_CYCLES = 20_000, 420_000  # of two pauses; their difference gives the clock to half a percent or better
TIMES_SLOW = 3  # measurements of a clock that seems slow or impossibly fast
MAX_SPEED = 1.15  # times the rated clock; few GPUs are even that much faster
MEASUREMENTS_IF_SLOW = 8  # 24 ms: a process that takes the power budget has worked in the last milliseconds
TICK_MS = 5e-4  # resolution of events by CUDA's documentation; 32 ns on an H200
TIMES_AMONG, TIMES_ALONE = 5, 3  # samples of many empty kernels per calibration, and of a single one after each
FLUSHES, FLUSHES_SAMPLES = 8, 5  # per sample, and samples: another process may interrupt one

_Start = Callable[[], None]

# Volatile loads: the compiler drops plain ones, as their values are not used.
_KERNELS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry pause(.param .u64 cycles)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
LOOP:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd3, %rd3, %rd2;
    setp.lt.u64 %p1, %rd3, %rd1;
    @%p1 bra LOOP;
    ret;
}
.visible .entry read_all(.param .u64 data, .param .u32 vectors)
{
    .reg .pred %p<2>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u32 %r1, [vectors];
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %nctaid.x;
    mad.lo.u32 %r6, %r3, %r2, %r4;
    mul.lo.u32 %r7, %r5, %r2;
LOOP:
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra END;
    mul.wide.u32 %rd2, %r6, 16;
    add.u64 %rd3, %rd1, %rd2;
    ld.volatile.global.v4.u32 {%r8, %r9, %r10, %r11}, [%rd3];
    add.u32 %r6, %r6, %r7;
    bra LOOP;
END:
    ret;
}
.visible .entry touch(.param .u64 data, .param .u64 nbytes)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [nbytes];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ntid.x;
    mul.wide.u32 %rd3, %r1, 65536;
    mul.wide.u32 %rd4, %r2, 65536;
LOOP:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra END;
    add.u64 %rd5, %rd1, %rd3;
    ld.volatile.global.u8 %r3, [%rd5];
    add.u64 %rd3, %rd3, %rd4;
    bra LOOP;
END:
    ret;
}
\0"""


@contextmanager
def own_kernels_run() -> Iterator[None]:
    """Translate a fault of this package's own kernels to DeviceUnavailable.

    It is the machine's, as all kernels of submissions have ended.
    """
    try:
        yield
    except KernelFault as fault:
        what = "the grader's own kernels fail on the GPU, or are never scheduled"
        raise DeviceUnavailable(f"{what}: {fault.what}") from None


class CudaStopwatch:
    """The `Stopwatch` protocol on a GPU; one per device, used under the exclusive lock.

    Raises DeviceUnavailable if GPU memory is full, or the driver does not compile the stopwatch's kernels.
    """

    def __init__(self, context: PrimaryContext, nvml: ConditionsReader) -> None:
        self._context, self._nvml = context, nvml
        driver = context.driver
        self._cycles_per_ms = self._attribute("CLOCK_RATE")
        self._lead_ms, self._empty_ms = LEAD_MS, EMPTY_MS.get(context.gpu.name())
        self._overhead = Overhead(self._empty_ms)
        # Queried now: the driver may be slow to answer, and others wait while the stopwatch is in use.
        self.l2_bytes = self._attribute("L2_CACHE_SIZE")  # the size of the level-2 cache
        # peak bandwidth of device memory, in 1e9 bytes per second
        self.peak_bandwidth_gb_s = peak_bandwidth_gb_s(driver, context.gpu)
        self._vectors = np.uint32(max(FLUSH_SHARE * self.l2_bytes, LEAST_FLUSH_BYTES) // VECTOR_BYTES)
        multiprocessors = self._attribute("MULTIPROCESSOR_COUNT")
        self._block_each, self._flush_grid = (multiprocessors, 1), (FLUSH_BLOCKS_PER_SM * multiprocessors, 1)
        with context.at_work(), memory_for(driver, "the stopwatch"):
            self._flushed: Any = driver.mem_alloc(int(self._vectors) * VECTOR_BYTES)
            self._kernels = own_kernels.load(driver, _KERNELS)
            self._read_all = self._kernels.get_function("read_all")
            self._nothing = self._kernels.get_function("nothing")
            self._touch = self._kernels.get_function("touch")
            self._pause = self._kernels.get_function("pause")
            self._interruptions = Interruptions(context)
            self._start, self._end = driver.Event(), driver.Event()
            context.users.add(self)
        self._flush_ms: float | None = None
        self._is_long, self._measurements_if_slow = False, 1
        self._readings_ms: set[float] = set()

    @property
    def tick_ms(self) -> float:
        """The least difference between two samples so far; `TICK_MS` if all were the same."""
        return float(min(np.diff(sorted(self._readings_ms)), default=TICK_MS))

    def cold_ms(self, module: Module, launches: Sequence[KernelLaunch], copies: Copies = ()) -> float:
        """Time consecutive launches with a flushed level-2 cache."""
        return self._sample_of(module, launches, partial(self._cool, copies=copies))

    def batch_ms(self, module: Module, launches: Sequence[KernelLaunch], copies: Copies = ()) -> float:
        """Time consecutive launches directly after the copies, so that the caches hold the targets."""
        return self._sample_of(module, launches, partial(self._warm, copies=copies))

    def overhead_ms(self, launches: int) -> float:
        """Return the launch overhead included in a sample; see `Stopwatch.overhead_ms`."""
        return self._overhead.ms(launches)

    @own_kernels_run()
    def conditions(self) -> Conditions:
        """Return the GPU's present state; see `own_kernels_run` for errors.

        Time slices of other processes are measured if they matter: samples are long enough to be interrupted, or the
        clock is slow, perhaps because of the others' power. NVML's clock does not suffice, as it lags by several
        samples.
        """
        conditions = replace(self._nvml.read(), speed=self._speed())
        is_slow = conditions.speed < FULL_SPEED
        if not is_slow and not self._is_long:
            return conditions
        measurements = self._measurements_if_slow if is_slow else 1
        if is_slow:
            self._measurements_if_slow = 1  # from now on: some GPUs never reach full speed
        with self._context.current():
            return replace(conditions, interruption_ms=self._interruptions.longest_ms(measurements))

    def others(self) -> tuple[str, ...]:
        """Return the other processes on the GPU."""
        return self._nvml.others()

    def close(self) -> None:
        """Free the memory; only the end of the process frees that of a broken context."""
        if self._context.usable:
            with self._context.current():
                self._flushed.free()
                self._interruptions.close()
                del self._kernels, self._read_all, self._nothing, self._touch, self._pause, self._start, self._end

    def _sample_of(
        self, module: Module, launches: Sequence[KernelLaunch], make_ready: Callable[[float], None]
    ) -> float:
        assert isinstance(module, CudaModule)
        with self._context.current():
            starts = [module.prepared(launch) for launch in launches]
        elapsed_ms = self._sample(starts, launches[-1].kernel, make_ready)
        self._is_long = self._is_long or elapsed_ms > UNINTERRUPTED_MS
        return elapsed_ms

    def _sample(self, starts: Sequence[_Start], kernel: str, make_ready: Callable[[float], None]) -> float:
        """Time launches between two events; `make_ready` keeps the GPU busy until all are enqueued."""
        with self._context.current():
            for attempt in range(MAX_ATTEMPTS):
                make_ready(self._lead_ms * (len(starts) + 1))
                elapsed_ms, seamless = self._timed(starts, kernel)
                if seamless or attempt == MAX_ATTEMPTS - 1:
                    break
                self._lead_ms = min(2 * self._lead_ms, MAX_LEAD_MS)
        if attempt == 0:
            self._lead_ms = max(LEAD_KEPT * self._lead_ms, LEAD_MS)
        self._readings_ms.add(elapsed_ms)
        return elapsed_ms

    def _timed(self, starts: Sequence[_Start], kernel: str) -> tuple[float, bool]:
        """Return the time, and True if everything was enqueued before the first launch could start."""
        self._start.record()
        for start in starts:
            start()
        is_late = False
        with suppress(self._context.driver.Error):  # a kernel ended abnormally: `wait` explains it
            self._end.record()
            # If the GPU has passed the first event already, it was idle while Python enqueued the launches.
            is_late = self._start.query()
        self._context.wait(kernel)
        return float(self._start.time_till(self._end)), not is_late

    @own_kernels_run()
    def begin(self) -> None:
        """Prepare a timing session; the first call measures the time of a flush. See `own_kernels_run` for errors."""
        self._is_long, self._measurements_if_slow = False, MEASUREMENTS_IF_SLOW
        if self._flush_ms is None:
            with self._context.current():
                many_ms = [self._timed([self._flush] * FLUSHES, "read_all")[0] for _ in range(FLUSHES_SAMPLES)]
                self._flush_ms = min(many_ms) / FLUSHES

    @own_kernels_run()
    def calibrate(self, briefly: bool = False) -> None:
        """Measure the launch overhead; see `Stopwatch.calibrate`, and `own_kernels_run` for errors.

        Samples of single kernels alternate with long rows of them: a disturbance of a millisecond spoils few.
        """
        if briefly:
            self._learn_alone()
            return
        self._overhead = Overhead(self._empty_ms)
        for _ in range(TIMES_AMONG):
            self._overhead.learn(among_ms=self._sample([self._launch_nothing] * AMONG, "nothing", self._warm))
            self._learn_alone()

    def _learn_alone(self) -> None:
        for _ in range(TIMES_ALONE):
            self._overhead.learn(alone_ms=self._sample([self._launch_nothing], "nothing", self._warm))

    def _speed(self) -> float:
        """Return the SM clock over the rated one, at most 1; 1 if CUDA names none, 0 if others spoil the measurement.

        Other processes only make a pause longer, so the shortest of several counts.
        """
        if not self._cycles_per_ms:
            return 1.0
        shortest_ms = [inf] * len(SPEED_CYCLES)
        for _ in range(TIMES_SLOW):
            for nth, cycles in enumerate(SPEED_CYCLES):
                pause_ms = self._sample([partial(self._idle, cycles)], "pause", self._warm)
                shortest_ms[nth] = min(shortest_ms[nth], pause_ms)
            (short, long), (short_ms, long_ms) = SPEED_CYCLES, shortest_ms
            speed = (long - short) / self._cycles_per_ms / (long_ms - short_ms) if long_ms > short_ms else 0.0
            # Beyond `MAX_SPEED`, an interruption has lengthened the short pause.
            if FULL_SPEED <= speed <= MAX_SPEED:
                break
        return min(speed, 1.0)

    def _launch_nothing(self) -> None:
        self._nothing(grid=self._block_each, block=(EMPTY_BLOCK, 1, 1))

    def _flush(self) -> None:
        self._read_all(self._flushed, self._vectors, grid=self._flush_grid, block=(FLUSH_BLOCK, 1, 1))

    def _cool(self, lead_ms: float, copies: Copies = ()) -> None:
        """Make the copies, then flush the level-2 cache."""
        assert self._flush_ms is not None, "call `begin` first"
        copy_within(copies)
        for _ in range(ceil(lead_ms / self._flush_ms)):
            self._flush()

    def _warm(self, lead_ms: float, copies: Copies = ()) -> None:
        """Make the copies, load from each page of the targets to fill the TLBs, and pause."""
        copy_within(copies)
        for target in {id(copy.target): copy.target for copy in copies}.values():
            assert isinstance(target, CudaMemory)
            before = target.address % LEAST_PAGE_BYTES  # bytes of the first page
            self._touch(
                np.uint64(target.address - before),
                np.uint64(before + target.nbytes),
                grid=self._block_each,
                block=(TOUCH_BLOCK, 1, 1),
            )
        self._idle(ceil(max(lead_ms, PAUSE_MS) * self._cycles_per_ms))

    def _idle(self, cycles: int) -> None:
        self._pause(np.uint64(cycles), grid=(1, 1), block=(1, 1, 1))

    def _attribute(self, name: str) -> int:
        return int(self._context.gpu.get_attribute(getattr(self._context.driver.device_attribute, name)))
