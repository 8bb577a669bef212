"""How long other processes hold the GPU when its turn among processes comes to them, as a kernel that waits sees it.

Others that grade can be kept from it (see `turns`), strangers cannot. The kernel looks at the GPU's own clock again and
again, for longer than a process may work at a time, which is 2.1 ms on an H200. Another one worked where the clock has
made a leap. Some GPUs' clocks leap by a thousand or a million nanoseconds anyway, but then do nothing else.
(Asking for a leap of the SM's cycle counter as well overlooks some: 13 of 120 beside six processes on an H200.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_gpulab.devices.cuda.context import PrimaryContext

from . import own_kernels

LEAST_GAP_MS = 0.05  # beside another process, however little it does, gaps are 0.29 ms and longer (H200)
LEAST_LEAPS = 4  # of the clock's shortest ones, in a gap

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
    """Finds them; made once for a context, which must be current for all of it."""

    def __init__(self, context: PrimaryContext) -> None:
        self._context, driver = context, context.driver
        self._module: Any = own_kernels.load(driver, _SOURCE)
        self._look: Any = self._module.get_function(_KERNEL)
        self._leaps_ns: Any = driver.mem_alloc(16)

    def longest_ms(self, looks: int = 1) -> float:
        """Return how long the longest of them takes in the first of some looks, of 3 ms each, that sees any; else 0."""
        return next(filter(None, (self._seen_ms() for _ in range(looks))), 0.0)

    def _seen_ms(self) -> float:
        self._look(self._leaps_ns, grid=(1, 1), block=(1, 1, 1))
        self._context.wait(_KERNEL)
        found = np.zeros(2, np.uint64)
        self._context.driver.memcpy_dtoh(found, self._leaps_ns)
        longest_ms, shortest_ms = map(float, found * 1e-6)
        return longest_ms if longest_ms >= max(LEAST_GAP_MS, LEAST_LEAPS * shortest_ms) else 0.0

    def close(self) -> None:
        """Give the memory back."""
        self._leaps_ns.free()
        del self._look, self._module
