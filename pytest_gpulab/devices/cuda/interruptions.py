"""How long other processes hold the GPU when its turn among processes comes to them, as a kernel that waits sees it.

Others that grade can be kept from it (see `turns`), strangers cannot. The kernel looks at two of the GPU's clocks again
and again, for longer than a process may work at a time, which is 2.1 ms on an H200. Another one worked where both have
made a leap: one counts nanoseconds, which some GPUs do by the thousand or the million, the other one cycles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .context import PrimaryContext

LEAST_GAP_MS = 0.05  # beside another process, however little it does, gaps are 0.29 ms and longer (H200)

_KERNEL = "longest_gap"
_SOURCE = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry longest_gap(.param .u64 gap_ns)
{
    .reg .pred %p<3>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [gap_ns];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u64 %rd2, %globaltimer;
    mov.u64 %rd3, %rd2;
    mov.u64 %rd4, 0;
    mov.u64 %rd8, %clock64;
LOOP:
    mov.u64 %rd5, %globaltimer;
    mov.u64 %rd9, %clock64;
    sub.u64 %rd6, %rd5, %rd3;
    sub.u64 %rd10, %rd9, %rd8;
    setp.gt.u64 %p1, %rd10, 20000;
    @%p1 max.u64 %rd4, %rd4, %rd6;
    mov.u64 %rd3, %rd5;
    mov.u64 %rd8, %rd9;
    sub.u64 %rd7, %rd5, %rd2;
    setp.lt.u64 %p2, %rd7, 3000000;
    @%p2 bra LOOP;
    st.global.u64 [%rd1], %rd4;
    ret;
}
\0"""


class Interruptions:
    """Finds them; made once for a context, which must be current for all of it."""

    def __init__(self, context: PrimaryContext) -> None:
        self._context, driver = context, context.driver
        self._module: Any = driver.module_from_buffer(_SOURCE)
        self._look: Any = self._module.get_function(_KERNEL)
        self._gap_ns: Any = driver.mem_alloc(8)

    def longest_ms(self) -> float:
        """Return how long the longest of them takes just now, and 0 if there is none; takes 3 ms itself."""
        self._look(self._gap_ns, grid=(1, 1), block=(1, 1, 1))
        self._context.wait(_KERNEL)
        found = np.zeros(1, np.uint64)
        self._context.driver.memcpy_dtoh(found, self._gap_ns)
        gap_ms = float(found[0]) * 1e-6
        return gap_ms if gap_ms >= LEAST_GAP_MS else 0.0

    def close(self) -> None:
        """Give the memory back."""
        self._gap_ns.free()
        del self._look, self._module
