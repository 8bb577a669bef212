"""Comparison of arrays on the GPU, in a hundredth of the time that it takes to copy them to the host."""

from typing import Any

import numpy as np

from pytest_gpulab.devices.cuda.context import PrimaryContext
from pytest_gpulab.devices.cuda.driver import memory_for
from pytest_gpulab.devices.cuda.memory import CudaMemory

from . import own_kernels

_BLOCK, _BLOCKS_PER_SM = 256, 8  # 2048 threads, as many as an SM of compute capability 9.0 holds
_KERNEL = "differ"
_SOURCE = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry differ(.param .u64 one, .param .u64 other, .param .u64 nbytes, .param .u64 found)
{
    .reg .pred %p<3>;
    .reg .b16 %rs<3>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [one];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [other];
    cvta.to.global.u64 %rd2, %rd2;
    ld.param.u64 %rd3, [nbytes];
    ld.param.u64 %rd4, [found];
    cvta.to.global.u64 %rd4, %rd4;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %nctaid.x;
    mov.u32 %r4, %tid.x;
    mul.wide.u32 %rd5, %r1, %r2;
    cvt.u64.u32 %rd6, %r4;
    add.u64 %rd5, %rd5, %rd6;
    mul.wide.u32 %rd6, %r1, %r3;
LOOP:
    setp.ge.u64 %p1, %rd5, %rd3;
    @%p1 bra END;
    add.u64 %rd7, %rd1, %rd5;
    add.u64 %rd8, %rd2, %rd5;
    ld.global.u8 %rs1, [%rd7];
    ld.global.u8 %rs2, [%rd8];
    add.u64 %rd5, %rd5, %rd6;
    setp.eq.u16 %p2, %rs1, %rs2;
    @%p2 bra LOOP;
    mov.u32 %r4, 1;
    st.global.u32 [%rd4], %r4;
END:
    ret;
}
\0"""


class Comparison:
    """A comparator of arrays, one per context. Raises DeviceUnavailable without memory, or if it does not compile."""

    def __init__(self, context: PrimaryContext) -> None:
        self._context, driver = context, context.driver
        multiprocessors = context.gpu.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
        self._grid = (_BLOCKS_PER_SM * int(multiprocessors), 1)
        with context.at_work(), memory_for(driver, "the comparison of arrays"):
            self._module: Any = own_kernels.load(driver, _SOURCE)
            self._differ: Any = self._module.get_function(_KERNEL)
            self._found: Any = driver.mem_alloc(4)
            context.users.add(self)

    def same(self, one: CudaMemory, other: CudaMemory) -> bool:
        """Return True if two arrays of the same size hold the same bytes."""
        driver, found = self._context.driver, np.zeros(1, np.uint32)
        with self._context.at_work():
            driver.memcpy_htod(self._found, found)
            addresses = np.uint64(one.address), np.uint64(other.address)
            self._differ(*addresses, np.uint64(one.nbytes), self._found, grid=self._grid, block=(_BLOCK, 1, 1))
            self._context.wait(self._context.latest or _KERNEL)  # a fault of the latest kernel may show only now
            driver.memcpy_dtoh(found, self._found)
        return not found[0]

    def close(self) -> None:
        """Free the memory; only the end of the process frees that of a broken context."""
        if self._context.usable:
            with self._context.current():
                self._found.free()
                del self._differ, self._module
