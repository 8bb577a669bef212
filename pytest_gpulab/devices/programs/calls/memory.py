"""Allocations, and what a pointer points to."""

from collections.abc import Sequence

from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import Value
from pytest_gpulab.devices.programs.session import Memory
from pytest_gpulab.devices.programs.shared_memory import PAGE, whole_pages

PITCH_BYTES = 512
_MEMORY_TYPE = {  # enum cudaMemoryType
    "variable": 2, "device": 2, "managed": 3, "managed variable": 3, "pinned": 1, "registered": 1,
}  # fmt: skip
_KINDS = {"cudaFree": ("device", "managed"), "cudaFreeAsync": ("device", "managed"), "cudaFreeHost": ("pinned",)}


@api("cudaMalloc", "cudaMallocAsync", "cudaMallocFromPoolAsync", form="u")
def allocate(call: Call, nbytes: int) -> Sequence[Value]:
    """Allocate device memory; none for 0 bytes."""
    return [call.session.allocate(nbytes, "device", call.site).base if nbytes else 0]


@api("cudaMallocPitch", "cudaMalloc3D", form="uu")
def allocate_rows(call: Call, width: int, rows: int) -> Sequence[Value]:
    """Allocate rows that start at multiples of the pitch."""
    pitch = -(-width // PITCH_BYTES) * PITCH_BYTES
    return [call.session.allocate(pitch * rows, "device", call.site).base, pitch]


@api("cudaMallocManaged", form="u")
def allocate_managed(call: Call, nbytes: int) -> Sequence[Value]:
    """Allocate memory for host and device; return its address, size and offset for the program to map."""
    if not nbytes:
        raise CudaError(Error.INVALID_VALUE, "0 bytes of managed memory")
    return _mapped(call, nbytes, "managed")


@api("cudaMallocHost", "cudaHostAlloc", form="u")
def allocate_pinned(call: Call, nbytes: int) -> Sequence[Value]:
    """Allocate page-locked host memory, which kernels may use, too."""
    return _mapped(call, nbytes, "pinned") if nbytes else [0, 0, 0]


def _mapped(call: Call, nbytes: int, kind: str) -> Sequence[Value]:
    allocation = call.session.allocate(nbytes, kind, call.site)
    return [allocation.base, whole_pages(len(allocation.data)), call.session.device.arena.offset(allocation)]


@api("cudaFree", "cudaFreeAsync", "cudaFreeHost", form="u")
def free(call: Call, address: int) -> Sequence[Value]:
    """Free memory; return the number of bytes that the program must unmap."""
    if not address:
        return [0]
    session, kinds = call.session, _KINDS[call.site.function]
    memory = session.memories.get(address)
    if memory is None or memory.kind not in kinds:
        raise CudaError(Error.INVALID_VALUE, _no_start(call, address, memory))
    session.free(memory, call.site)
    return [0 if memory.kind == "device" else whole_pages(len(memory.allocation.data))]


def _no_start(call: Call, address: int, memory: Memory | None) -> str:
    if memory is not None:
        return f"the pointer is {memory.kind} memory of {memory.site.function}"
    inside = call.session.find(address)
    if inside is not None:
        return f"the pointer is {address - inside.base} bytes behind the start of an allocation"
    return f"the pointer is {call.session.described(address)}"


@api("cudaHostRegister", form="uu")
def register(call: Call, address: int, nbytes: int) -> Sequence[Value]:
    """Make host memory accessible for kernels; return the pages that the program must map in its place."""
    session = call.session
    is_device = session.is_device_address(address) or session.is_device_address(address + nbytes)
    if not nbytes or not address or is_device or session.find(address) or session.find(address + nbytes - 1):
        raise CudaError(Error.INVALID_VALUE)
    start = address // PAGE * PAGE
    if any(m.kind == "registered" and _pages_meet(m, address, nbytes) for m in session.memories.values()):
        raise CudaError(Error.NOT_SUPPORTED, "two registered stretches in one page of memory")
    allocation = session.device.arena.adopt(address, nbytes)
    session.memories[address] = Memory(allocation, "registered", call.site)
    inner = address - start
    return [start, whole_pages(inner + nbytes), session.device.arena.offset(allocation) - inner]


def _pages_meet(memory: Memory, address: int, nbytes: int) -> bool:
    base, size = memory.allocation.base, memory.allocation.nbytes
    return base // PAGE <= (address + nbytes - 1) // PAGE and address // PAGE <= (base + size - 1) // PAGE


@api("cudaHostUnregister", form="u")
def unregister(call: Call, address: int) -> None:
    """Make registered memory inaccessible for kernels; the host keeps its pages."""
    memory = call.session.memories.get(address)
    if memory is None or memory.kind != "registered":
        raise CudaError(Error.NOT_REGISTERED)
    call.session.free(memory, call.site)


@api("cudaHostGetDevicePointer", form="u")
def device_pointer(call: Call, address: int) -> Sequence[Value]:
    """Return the device's address of pinned memory, which is that of the host."""
    found = call.session.find(address)
    if found is None:
        raise CudaError(Error.INVALID_VALUE, f"the pointer is {call.session.described(address)}")
    memory = call.session.memories.get(found.base)
    if memory is None or memory.kind not in ("pinned", "registered", "managed"):
        raise CudaError(Error.INVALID_VALUE, "the pointer is device memory")
    return [address]


@api("cudaMemGetInfo")
def memory_info(call: Call) -> Sequence[Value]:
    """Return free and total bytes: the modelled GPU has more than this machine can give a program."""
    session = call.session
    return [session.free_bytes, session.device.gpu.memory_bytes]


@api("cudaPointerGetAttributes", form="u")
def pointer_attributes(call: Call, address: int) -> Sequence[Value]:
    """Return the memory type at an address; 0 for unregistered host memory."""
    found = call.session.find(address)
    if found is None:
        return [0]
    memory = call.session.memories.get(found.base)
    return [_MEMORY_TYPE[memory.kind if memory else "variable"]]
