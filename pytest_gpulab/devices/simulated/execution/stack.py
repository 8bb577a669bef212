"""The stack of each thread: return addresses of recursive calls, and saved registers of the callers.

The arrays of a frame, which the kernel may point to, are in local memory at the same addresses.
"""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value, first_index, lane_at
from pytest_gpulab.devices.simulated.hazards.checker import HazardChecker
from pytest_gpulab.devices.simulated.translation.calls.recursion import SLOT_BYTES, STACK_BYTES, Frame, StackCall


class Stack:
    """The stacks of a wave's threads; `start` is the address of the first frame in local memory."""

    def __init__(self, threads: int, checker: HazardChecker | None, start: int, nbytes: int) -> None:
        self._columns, self._checker, self._start = threads, checker, start
        self.slots = np.zeros(nbytes // SLOT_BYTES * self._columns, np.uint64)

    def _index(self, lanes: Lanes, frame: Value, slot: int) -> npt.NDArray[np.intp]:
        row = (frame - np.uint64(self._start)).astype(np.intp) // SLOT_BYTES + slot
        index: npt.NDArray[np.intp] = row * self._columns + lanes.position
        return index

    def enter(self, lanes: Lanes, call: StackCall, frame: Value, values: Sequence[Value]) -> Value:
        """Save registers in the caller's frame, and return the callee's; raise KernelFault at a stack overflow."""
        for slot, value in enumerate(values, 1):
            bits = value if value.dtype.kind in "ub" else value.view(f"u{value.dtype.itemsize}")
            self.slots[self._index(lanes, frame, slot)] = bits
        inner = frame + np.uint64(call.step)
        last = self._start + call.callee.last
        if int(inner.max()) > last:
            self._overflow(lanes, call, frame, inner > last)
        self.slots[self._index(lanes, inner, 0)] = call.number
        start, end = call.callee.arrays
        if self._checker is not None and end > start:
            self._checker.initcheck.local.reset(lanes, lanes.position, inner + np.uint64(start), end - start)
        return inner

    def leave(self, lanes: Lanes, call: StackCall, frame: Value, codes: Sequence[str]) -> list[Value]:
        """Return the caller's frame and its saved registers, with these dtype codes."""
        outer, restored = frame - np.uint64(call.step), []
        for slot, code in enumerate(codes, 1):
            bits = self.slots.take(self._index(lanes, outer, slot))
            restored.append(bits.astype(np.bool_) if code == "?" else bits.astype(f"u{code[1]}").view(code))
        return [outer, *restored]

    def top(self, lanes: Lanes, frame: Value) -> Value:
        """Return the number of the call that each lane returns from."""
        found = self.slots.take(self._index(lanes, frame, 0)).astype(np.uint32)
        first = found.flat[0]
        return first if (found == first).all() else found

    def _overflow(self, lanes: Lanes, call: StackCall, frame: Value, bad: npt.NDArray[np.bool_]) -> NoReturn:
        first = first_index(lanes, bad)
        position = int(np.broadcast_to(lanes.position, lanes.shape).flat[first])
        depth = self._depth(call, int(np.broadcast_to(frame, lanes.shape).flat[first]), position)
        callee = call.callee
        what = (
            f"stack overflow: call {depth} of `{callee.name}`, nested; each call takes {callee.cost} of the "
            f"{STACK_BYTES:,} bytes of a thread's stack"
        )
        raise KernelFault("stack-overflow", what, call.where, lane_at(lanes, first))

    def _depth(self, call: StackCall, frame: int, position: int) -> int:
        """Return the recursion depth of a thread in a function, including the call that overflows."""
        callee, depth = call.callee, 0
        caller: Frame | None = callee
        while caller is not None:
            depth += caller is callee
            caller = call.caller
            if caller is not None:
                index = (frame - self._start) // SLOT_BYTES * self._columns + position
                call = caller.calls[int(self.slots[index])]
                frame -= call.step
        return depth
