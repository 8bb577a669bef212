"""Timing launches on a GPU with CUDA events, alone among the graders of the machine.

Before a sample with cold caches the GPU reads more than its level-2 cache holds. That drives everything else out and
leaves nothing behind that must be written back while the clock runs, as overwriting would.

A batch with warm caches follows the copies of what it uses. Nothing is driven out before: behind a flush now and then a
launch begins 1 us late, for some places of kernels and arrays again and again (H200). With cold caches Nsight Compute
counts that as the kernel's time, too; warm ones are not to show it. Each multiprocessor learns where the arrays'
pages are, which warm caches know, too. Then the GPU pauses, because right after copies kernels take longer.

While the GPU flushes or pauses, the host enqueues events and launches, so that they follow each other without a gap,
however slow Python is.
"""

from __future__ import annotations

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
from pytest_gpulab.devices.stopwatch import FULL_SPEED, UNINTERRUPTED_MS, Call, Conditions, Copies

from . import own_kernels
from .interruptions import Interruptions
from .overhead import AMONG, EMPTY_BLOCK, EMPTY_MS, Overhead

LEAD_MS = 0.02  # a launch that Python enqueues; doubled where the GPU had to wait for it
MAX_LEAD_MS = 0.32
LEAD_KEPT = 0.96  # of a longer one, by each sample that is in time: mostly Python was held up just once
MAX_ATTEMPTS = 5
FLUSH_SHARE = 2  # of the level-2 cache's size: it keeps some lines of a single pass
LEAST_FLUSH_BYTES = 1 << 26  # or Python would take as long to enqueue a flush as the GPU to do it
FLUSH_BLOCK, FLUSH_BLOCKS_PER_SM = 256, 8
VECTOR_BYTES = 16
TOUCH_BLOCK = 256  # threads that look into every page
LEAST_PAGE_BYTES = 1 << 16  # the step in which `touch` goes
PAUSE_MS = 0.1  # at least; without it kernels of 3 to 4 us take up to 0.15 us longer, in some processes (H200)
SPEED_CYCLES = 20_000, 420_000  # of two pauses, whose difference tells the clock to half a percent or better
TIMES_SLOW = 3  # that the clock is measured where it seems slow, or faster than any
MAX_SPEED = 1.15  # over the rated clock; few GPUs are even that much faster
LOOKS_IF_SLOW = 8  # 24 ms: whoever's power holds the clock down has worked within the last few milliseconds
TICK_MS = 5e-4  # of events, by CUDA's documentation; on an H200 it is 32 ns
TIMES_AMONG, TIMES_ALONE = 5, 3  # that a calibration times many empty kernels, and each time a single one
FLUSHES, FLUSHES_SAMPLES = 8, 5  # that are timed together, and how often: another process may come between

_Start = Callable[[], None]

# Volatile reads are never left out; plain ones are, where nothing is made of them.
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
    """Take a fault of this package's own kernels for the machine's: whatever a submission launched has ended before.

    Raises:
        DeviceUnavailable: there was one.
    """
    try:
        yield
    except KernelFault as fault:
        what = "the grader's own kernels fail on the GPU, or do not get their turn"
        raise DeviceUnavailable(f"{what}: {fault.what}") from None


class CudaStopwatch:
    """The `Stopwatch` protocol on a GPU; made once for a device, calibrated and used in its turn.

    Raises:
        DeviceUnavailable: not enough GPU memory for it, or the driver does not compile its kernels.
    """

    def __init__(self, context: PrimaryContext, nvml: ConditionsReader) -> None:
        self._context, self._nvml = context, nvml
        driver = context.driver
        self._cycles_per_ms = self._attribute("CLOCK_RATE")
        at_most_mhz = self._cycles_per_ms // 1000
        self._lead_ms, self._empty_ms = LEAD_MS, EMPTY_MS.get((context.gpu.compute_capability(), at_most_mhz))
        self._overhead = Overhead(self._empty_ms)
        # Asked now, because others wait while the watch is used, and the driver may take its time for an answer.
        self.l2_bytes = self._attribute("L2_CACHE_SIZE")
        """The size of the level-2 cache."""
        self.peak_bandwidth_gb_s = peak_bandwidth_gb_s(driver, context.gpu)
        """What device memory transfers at most, in 1e9 bytes a second."""
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
        self._is_long, self._looks_if_slow = False, 1
        self._readings_ms: set[float] = set()

    @property
    def tick_ms(self) -> float:
        """The least by which two of its readings differed until now; as CUDA says, if all were the same."""
        return float(min(np.diff(sorted(self._readings_ms)), default=TICK_MS))

    def cold_ms(self, module: Module, calls: Sequence[Call], copies: Copies = ()) -> float:
        """Time the calls, one after the other, with nothing of theirs left in the level-2 cache."""
        return self._sample_of(module, calls, partial(self._cool, copies=copies))

    def batch_ms(self, module: Module, calls: Sequence[Call], copies: Copies = ()) -> float:
        """Time the calls just after the copies, so that the caches hold the targets as far as they fit."""
        return self._sample_of(module, calls, partial(self._warm, copies=copies))

    def overhead_ms(self, launches: int) -> float:
        """Return what a sample of so many launches shows too much; see `Stopwatch.overhead_ms`."""
        return self._overhead.ms(launches)

    @own_kernels_run()
    def conditions(self) -> Conditions:
        """Look at the GPU's state, and whether others work on it, where that may matter; see `own_kernels_run`.

        It does for samples that others may have interrupted, and where the clock is slow: their power may hold it down.
        NVML's clock is not enough for that, because it lags behind by several samples.
        """
        conditions = replace(self._nvml.read(), speed=self._speed())
        is_slow = conditions.speed < FULL_SPEED
        if not is_slow and not self._is_long:
            return conditions
        looks = self._looks_if_slow if is_slow else 1
        if is_slow:
            self._looks_if_slow = 1  # from now on: some GPUs never have their full speed
        with self._context.current():
            return replace(conditions, interruption_ms=self._interruptions.longest_ms(looks))

    def others(self) -> tuple[str, ...]:
        """Return the other processes that use the GPU."""
        return self._nvml.others()

    def close(self) -> None:
        """Give the memory back; in a broken context only the end of the process can."""
        if self._context.usable:
            with self._context.current():
                self._flushed.free()
                self._interruptions.close()
                del self._kernels, self._read_all, self._nothing, self._touch, self._pause, self._start, self._end

    def _sample_of(self, module: Module, calls: Sequence[Call], make_ready: Callable[[float], None]) -> float:
        assert isinstance(module, CudaModule)
        with self._context.current():
            launches = [module.prepared(call) for call in calls]
        elapsed_ms = self._sample(launches, calls[-1].kernel, make_ready)
        self._is_long = self._is_long or elapsed_ms > UNINTERRUPTED_MS
        return elapsed_ms

    def _sample(self, launches: Sequence[_Start], kernel: str, make_ready: Callable[[float], None]) -> float:
        """Time launches between two events; `make_ready` gives the GPU so much to do that all is enqueued meanwhile."""
        with self._context.current():
            for attempt in range(MAX_ATTEMPTS):
                make_ready(self._lead_ms * (len(launches) + 1))
                elapsed_ms, seamless = self._timed(launches, kernel)
                if seamless or attempt == MAX_ATTEMPTS - 1:
                    break
                self._lead_ms = min(2 * self._lead_ms, MAX_LEAD_MS)
        if attempt == 0:
            self._lead_ms = max(LEAD_KEPT * self._lead_ms, LEAD_MS)
        self._readings_ms.add(elapsed_ms)
        return elapsed_ms

    def _timed(self, launches: Sequence[_Start], kernel: str) -> tuple[float, bool]:
        """Return the time, and whether everything was enqueued before the first launch could start."""
        self._start.record()
        for start in launches:
            start()
        is_late = False
        with suppress(self._context.driver.Error):  # of a kernel that ended abnormally: `wait` explains it
            self._end.record()
            is_late = self._start.query()
        self._context.wait(kernel)
        return float(self._start.time_till(self._end)), not is_late

    @own_kernels_run()
    def begin(self) -> None:
        """Measure how long a flush takes, the first time; see `own_kernels_run`."""
        self._is_long, self._looks_if_slow = False, LOOKS_IF_SLOW
        if self._flush_ms is None:
            with self._context.current():
                many_ms = [self._timed([self._flush] * FLUSHES, "read_all")[0] for _ in range(FLUSHES_SAMPLES)]
                self._flush_ms = min(many_ms) / FLUSHES

    @own_kernels_run()
    def calibrate(self, briefly: bool = False) -> None:
        """Learn what a sample takes too long; see `Stopwatch.calibrate` and `own_kernels_run`.

        What disturbs single kernels for a millisecond is over when the next ones are timed, after many in a row.
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
        """Return the SM clock over the one that CUDA names, 1 at most or if it names none; 0 where others spoil it.

        They can only make a pause longer, so that the shortest of several is the best.
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
            if FULL_SPEED <= speed <= MAX_SPEED:
                break
        return min(speed, 1.0)

    def _launch_nothing(self) -> None:
        self._nothing(grid=self._block_each, block=(EMPTY_BLOCK, 1, 1))

    def _flush(self) -> None:
        self._read_all(self._flushed, self._vectors, grid=self._flush_grid, block=(FLUSH_BLOCK, 1, 1))

    def _cool(self, lead_ms: float, copies: Copies = ()) -> None:
        """Copy, and drive everything out of the level-2 cache."""
        assert self._flush_ms is not None, "`begin` comes first"
        copy_within(copies)
        for _ in range(ceil(lead_ms / self._flush_ms)):
            self._flush()

    def _warm(self, lead_ms: float, copies: Copies = ()) -> None:
        """Copy, let each multiprocessor learn where the pages of the targets are, and pause."""
        copy_within(copies)
        for target in {id(copy.target): copy.target for copy in copies}.values():
            assert isinstance(target, CudaMemory)
            before = target.address % LEAST_PAGE_BYTES  # in its first page
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
