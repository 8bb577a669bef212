"""Copies and sets, with checks of both sides.

The program moves bytes between host and device by itself, through the shared file. Copies within device memory are made
here.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import Value
from pytest_gpulab.devices.programs.outcome import CallSite, FailedCall, ShareCopy, UnwrittenCopy
from pytest_gpulab.devices.programs.shared_memory import READ, WRITTEN, SharedAllocation
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

_DONE, _TO_DEVICE, _TO_HOST, _HOST_TO_HOST = range(4)
_KINDS = ("host to host", "host to device", "device to host", "device to device", "default")  # enum cudaMemcpyKind
_DEFAULT = 4
_ELEMENT_BYTES = (1, 2, 4, 8, 16)
_SHARES = np.array([4, 8])  # bytes of an element
_LEAST_SHARE = 16  # bytes; a copy of fewer may be of a few results on purpose
_MOST_NUMBER = 15  # a byte with a larger value may be a bit pattern
COPIES = (
    "cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cudaMemcpy2D", "cudaMemcpy2DAsync",
    "cudaMemcpy3D", "cudaMemcpy3DAsync", "cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync", "cudaMemcpyFromSymbol",
    "cudaMemcpyFromSymbolAsync", "cudaMemcpy2DToArray", "cudaMemcpy2DToArrayAsync", "cudaMemcpy2DFromArray",
    "cudaMemcpy2DFromArrayAsync", "cudaMemcpyToArray", "cudaMemcpyFromArray",
)  # fmt: skip
SETS = ("cudaMemset", "cudaMemsetAsync", "cudaMemset2D", "cudaMemset2DAsync", "cudaMemset3D", "cudaMemset3DAsync")


class Box(NamedTuple):
    """Bytes at an address: `depth` slices with `height` rows of `width` bytes; pitch and slice are distances."""

    address: int
    pitch: int
    slice: int
    width: int
    height: int
    depth: int

    @property
    def nbytes(self) -> int:
        """The number of bytes from its first to its last one."""
        return (self.depth - 1) * self.slice + (self.height - 1) * self.pitch + self.width

    def view(self, data: npt.NDArray[np.uint8], base: int) -> npt.NDArray[np.uint8]:
        """Return the bytes in an allocation's array, which starts at the address `base`."""
        inner = data[self.address - base :]
        shape, strides = (self.depth, self.height, self.width), (self.slice, self.pitch, 1)
        view: npt.NDArray[Any] = np.lib.stride_tricks.as_strided(inner, shape, strides)
        return view


def _box(address: int, pitch: int, slice: int, width: int, height: int, depth: int) -> Box:
    """Return a box; the pitch of a single row or slice does not matter. Raise CudaError if rows or slices overlap."""
    pitch = pitch if height > 1 else width
    slice = slice if depth > 1 else pitch * height
    if pitch < width or slice < pitch * height:
        raise CudaError(Error.INVALID_VALUE, f"rows of {width:,} bytes with a pitch of {pitch:,} bytes overlap")
    return Box(address, pitch, slice, width, height, depth)


@api(*COPIES, form="u" * 10)
def copy(
    call: Call, to: int, to_pitch: int, to_slice: int, of: int, of_pitch: int, of_slice: int, width: int, height: int,
    depth: int, kind: int,
) -> Sequence[Value]:  # fmt: skip
    """Check a copy, and make it if both sides are device memory; else return its direction and the file's offsets."""
    if kind > _DEFAULT:
        raise CudaError(Error.INVALID_MEMCPY_DIRECTION)
    if not width * height * depth:
        return [_DONE, 0, 0]
    call.session.outcome.note_size(call.site, width * height * depth)
    target = _box(to, to_pitch, to_slice, width, height, depth)
    source = _box(of, of_pitch, of_slice, width, height, depth)
    into = _side(call, target, kind in (1, 3), "destination", kind)
    out_of = _side(call, source, kind in (2, 3), "source", kind)
    arena = call.session.device.arena
    if into is not None and out_of is not None:
        target.view(into.data, into.base)[...] = source.view(out_of.data, out_of.base)
        _copy_written(target, into, source, out_of)
        if call.site.function.endswith("Async"):
            _mark_used(target, into, WRITTEN)
            _mark_used(source, out_of, READ)
            call.session.add_work(call.site)
        return [_DONE, 0, 0]
    if into is not None:
        _mark_written(target, into)
        return [_TO_DEVICE, arena.offset(into) + to - into.base, of]
    if out_of is not None:
        _note_result(call, source, out_of)
        return [_TO_HOST, to, arena.offset(out_of) + of - out_of.base]
    return [_HOST_TO_HOST, to, of]


def _side(call: Call, box: Box, is_needed: bool, what: str, kind: int) -> Allocation | None:
    """Return the allocation of a side of a copy, or None for host memory.

    Raises CudaError if it must be device memory and is not, or it is too small.
    """
    found = call.session.find(box.address)
    if found is None:
        if is_needed:
            wanted = f"{_KINDS[kind]}, but the {what} is {call.session.described(box.address)}"
            raise CudaError(Error.INVALID_VALUE, wanted)
        return None
    memory = call.session.memories.get(found.base)
    is_host_side = (kind == 0) or (kind == 1 and what == "source") or (kind == 2 and what == "destination")
    if is_host_side and (memory is None or memory.kind == "device"):
        raise CudaError(Error.INVALID_VALUE, f"{_KINDS[kind]}, but the {what} is device memory")
    _check_inside(found, box, what)
    return found


def _check_inside(found: Allocation, box: Box, what: str) -> None:
    left = found.base + found.nbytes - box.address
    if box.nbytes > left:
        room = f"{left:,} byte" + "s" * (left != 1)
        raise CudaError(Error.INVALID_VALUE, f"{box.nbytes:,} bytes, but the {what} has {room} left")


def _mark_used(box: Box, memory: Allocation, bit: int) -> None:
    if isinstance(memory, SharedAllocation) and box.height * box.depth == 1:
        start = box.address - memory.base
        memory.accessed[start // 4 : -(-(start + box.width) // 4)] |= bit


def _mark_written(box: Box, into: Allocation) -> None:
    if into.written is not None:
        box.view(into.written, into.base)[...] = 1


def _copy_written(target: Box, into: Allocation, source: Box, out_of: Allocation) -> None:
    if into.written is not None:
        known = 1 if out_of.written is None else source.view(out_of.written, out_of.base)
        target.view(into.written, into.base)[...] = known


def _note_result(call: Call, box: Box, source: Allocation) -> None:
    """Note a copy to the host, and whether a kernel should have written more: nothing, or one element per thread.

    Other arrays may be partly filled on purpose, such as those with the elements that fulfil a condition.
    """
    outcome, memory = call.session.outcome, call.session.memories.get(source.base)
    outcome.has_seen_results = True
    if source.written is None or memory is None or outcome.failures or not call.session.options.check:
        return
    written = box.view(source.written, source.base).reshape(-1)
    count = int(np.count_nonzero(written))
    if count == written.size:
        is_share = box.address == source.base and source.nbytes in _SHARES * box.nbytes and bool(source.written.all())
        share = ShareCopy(call.site, memory.site, box.nbytes, source.nbytes) if is_share else None
        is_only = box.nbytes >= _LEAST_SHARE and source.base not in outcome.shares
        outcome.shares[source.base] = share if is_only else None
        return
    sizes = ((group.kernel, math.prod(group.grid + group.block)) for group in outcome.launches.values())
    kernel, threads = next((size for size in sizes if count in (size[1] * each for each in _ELEMENT_BYTES)), ("", 0))
    if kernel or not count:
        outcome.add_unwritten(
            UnwrittenCopy(call.site, memory.site, written.size, count, kernel, threads, outcome.launch_count)
        )


@api(*SETS, form="uuiuu")
def fill(call: Call, to: int, pitch: int, value: int, width: int, rows: int) -> None:
    """Set the bytes of device memory."""
    if not width or not rows:
        return
    box = _box(to, pitch, 0, width, rows, 1)
    into = call.session.find(to)
    if into is None:
        raise CudaError(Error.INVALID_VALUE, f"the destination is {call.session.described(to)}")
    _check_inside(into, box, "destination")
    box.view(into.data, into.base)[...] = value & 0xFF
    if 0 < value <= _MOST_NUMBER:
        call.session.outcome.fills.setdefault(call.site, value)
    _mark_written(box, into)


@api("host_pointer", form="tu")
def invalid_host_pointer(call: Call, function: str, address: int) -> None:
    """Note a copy that the program could not make because a host address is invalid; return its error."""
    site = CallSite(function, call.site.address)
    why = f"the host's memory at {address:#x} cannot be accessed"
    call.session.outcome.add_failed_call(FailedCall(site, Error.INVALID_VALUE, why))
    raise CudaError(Error.INVALID_VALUE, is_expected=True)
