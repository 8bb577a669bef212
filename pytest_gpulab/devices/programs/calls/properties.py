"""The modelled GPU's properties and limits, synchronisation, and the end of a program by a fault of the host."""

from collections.abc import Sequence

from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import InvalidRequest, Value
from pytest_gpulab.devices.programs.outcome import CallSite, FailedCall, HostFault
from pytest_gpulab.devices.programs.shared_memory import PAGE, whole_pages
from pytest_gpulab.devices.simulated.gpus import Gpu

_ATTRIBUTES = 150
MAX_ERROR = 999  # enum cudaError: cudaErrorUnknown
_HEAP = 2  # enum cudaLimit: cudaLimitMallocHeapSize
_DEFAULT_LIMITS = {0: 1024, 1: 1 << 20, _HEAP: 8 << 20}  # stack per thread, printf buffer, heap
HEADER = 8  # bytes before a block of malloc() that free() reads first
MAX_HEAP_BYTES = 256 << 20  # the process of gpulab has them
_TEXTURES = {
    21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, 27: 32768, 28: 32768, 29: 2048, 42: 32768,
    43: 2048, 55: 32768, 56: 131072, 57: 65536, 69: 268435456, 70: 131072, 71: 65000, 72: 2097120,
}  # fmt: skip
"""Largest textures by attribute: the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


def attributes(gpu: Gpu) -> list[int]:
    """Return the values of the device's attributes, by their number in `cudaDeviceAttr`; 0 for all others."""
    limits, (major, minor) = gpu.limits, divmod(int(gpu.target), 10)
    known = {
        1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 48 << 10, 9: 64 << 10, 10: 32,
        11: 2**31 - 1, 12: limits.registers, 13: int(gpu.clock_ghz * 1e6), 14: 512, 15: 1, 16: gpu.sms, 19: 1, 30: 512,
        31: 1, 36: 1000 * gpu.memory_mhz, 37: gpu.memory_bus_bits, 38: gpu.l2_bytes, 39: 32 * limits.warps, 40: 3,
        41: 1, 51: 32, 75: major, 76: minor, 78: 1, 79: 1, 80: 1, 81: limits.shared_bytes, 82: limits.registers, 83: 1,
        87: gpu.fp32_lanes // max(gpu.fp64_lanes, 1), 89: 1, 90: 1, 95: 1, 97: limits.largest_shared_bytes, 99: 1,
        106: limits.blocks, 111: limits.reserved_bytes, 115: 1,
    }  # fmt: skip
    return [{**known, **_TEXTURES}.get(number, 0) for number in range(_ATTRIBUTES)]


@api("attributes")
def device_attributes(call: Call) -> Sequence[Value]:
    """Return the values of all attributes by number."""
    return attributes(call.session.device.gpu)


@api("name")
def device_name(call: Call) -> Sequence[Value]:
    """Return the device's name."""
    return [f"{call.session.device.gpu.name} (simulated)".encode()]


@api("cudaDeviceReset")
def reset(call: Call) -> None:
    """Free all memory."""
    call.session.reset()


@api("cudaDeviceSetLimit", form="uu")
def set_limit(call: Call, limit: int, value: int) -> None:
    """Note a limit; only that of the heap changes anything here."""
    if limit == _HEAP:
        heap = call.session.device.heap
        if heap.is_used:
            raise CudaError(
                Error.INVALID_VALUE, "the heap's size is set before the first kernel that allocates from it"
            )
        heap.limit = min(value, MAX_HEAP_BYTES)
    call.session.limits[limit] = value


@api("cudaDeviceGetLimit", form="u")
def get_limit(call: Call, limit: int) -> Sequence[Value]:
    """Return a limit."""
    if limit not in call.session.limits and limit not in _DEFAULT_LIMITS:
        raise CudaError(Error.INVALID_VALUE, is_expected=True)
    return [call.session.limits.get(limit, _DEFAULT_LIMITS.get(limit, 0))]


@api("fault", form="u")
def host_fault(call: Call, address: int) -> None:
    """Note the address of an invalid access by the host that ends the program."""
    session = call.session
    found = session.find(address) or session.find(address + HEADER)
    memory = None if found is None else session.memories.get(found.base)
    what, site = "", None
    if memory is not None and memory.kind == "device":
        what, site = "device memory", memory.site
    elif found is None and (site := session.freed_by(address)) is not None:
        what = "memory that was freed"
    session.outcome.host_fault = HostFault(call.site, what, site)


@api("unfinished")
def unfinished(call: Call) -> Sequence[Value]:
    """Return the pages that unfinished work uses: start, size, and 1 if the host may read them."""
    used = call.session.unfinished.ranges()
    return [word for memory, readable in used for word in (memory.base, whole_pages(len(memory.data)), readable)]


@api("early", form="uu")
def early_access(call: Call, address: int, is_write: int) -> Sequence[Value]:
    """Note an access by the host to memory in use; return the page, which the host may use from now on."""
    session = call.session
    memory = session.find(address)
    if memory is None:
        raise InvalidRequest(f"an access to {address:#x}, which is no memory of the device")
    if (access := session.unfinished.accessed(memory, address, bool(is_write), call.site)) is not None:
        session.outcome.add_early(access)
    return [address // PAGE * PAGE, PAGE]


@api("refused", form="tit")
def refused(call: Call, function: str, error: int, why: str) -> None:
    """Note a call that the stand-in itself has refused."""
    if not 0 < error <= MAX_ERROR:
        raise InvalidRequest(f"a call that returns {error}")
    call.session.outcome.add_failed_call(FailedCall(CallSite(function, call.site.address), error, why))
    raise CudaError(error, is_expected=True)


@api("missing", form="t")
def missing(call: Call, name: str) -> None:
    """Note a function that the stand-in lacks; the program ends."""
    call.session.outcome.missing = CallSite(name, call.site.address)
