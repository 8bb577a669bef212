"""Time slices of other processes on the GPU, measured by a kernel that polls the clock.

Other graders wait for the GPU's lock (see `gpu_lock`), other programs do not. The kernel polls the GPU's global timer
for longer than a process's time slice, which is 2.1 ms on an H200. A gap between two values is a time slice of another
process. On some GPUs the timer always advances in steps of a thousand or a million nanoseconds: there, only gaps much
longer than a step count. (Requiring a gap of the SM's cycle counter as well misses some: 13 of 120 beside six processes
on an H200.)
"""

from typing import Any

import numpy as np

from pytest_gpulab.devices.cuda.context import PrimaryContext

from . import own_kernels

LEAST_GAP_MS = 0.05  # beside another process, however little it does, gaps are 0.29 ms and longer (H200)
LEAST_STEPS = 4  # of the timer, in a gap

_KERNEL = "leaps"
_SOURCE = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry leaps(.param .u64 leaps_ns)
{
    .reg .pred %p<3>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [leaps_ns];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u64 %rd2, %globaltimer;
    mov.u64 %rd3, %rd2;
    mov.u64 %rd4, 0;
    mov.u64 %rd5, 3000000;
LOOP:
    mov.u64 %rd6, %globaltimer;
    sub.u64 %rd7, %rd6, %rd3;
    mov.u64 %rd3, %rd6;
    max.u64 %rd4, %rd4, %rd7;
    setp.ne.u64 %p1, %rd7, 0;
    @%p1 min.u64 %rd5, %rd5, %rd7;
    sub.u64 %rd8, %rd6, %rd2;
    setp.lt.u64 %p2, %rd8, 3000000;
    @%p2 bra LOOP;
    st.global.v2.u64 [%rd1], {%rd4, %rd5};
    ret;
}
\0"""


class Interruptions:
    """A detector of other processes' time slices; one per context, which must be current for every call."""

    def __init__(self, context: PrimaryContext) -> None:
        self._context, driver = context, context.driver
        self._module: Any = own_kernels.load(driver, _SOURCE)
        self._detect: Any = self._module.get_function(_KERNEL)
        self._leaps_ns: Any = driver.mem_alloc(16)

    def longest_ms(self, measurements: int = 1) -> float:
        """Return the longest slice in the first of several measurements of 3 ms that finds one, else 0."""
        return next(filter(None, (self._measured_ms() for _ in range(measurements))), 0.0)

    def _measured_ms(self) -> float:
        self._detect(self._leaps_ns, grid=(1, 1), block=(1, 1, 1))
        self._context.wait(_KERNEL)
        found = np.zeros(2, np.uint64)
        self._context.driver.memcpy_dtoh(found, self._leaps_ns)
        longest_ms, step_ms = map(float, found * 1e-6)
        return longest_ms if longest_ms >= max(LEAST_GAP_MS, LEAST_STEPS * step_ms) else 0.0

    def close(self) -> None:
        """Free the memory."""
        self._leaps_ns.free()
        del self._detect, self._module
