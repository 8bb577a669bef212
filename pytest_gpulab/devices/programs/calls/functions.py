"""Kernels' attributes and occupancy."""

from collections.abc import Sequence

from pytest_gpulab.devices.hardware.occupancy import MAX_BLOCK_THREADS, BlockNeeds, blocks_by_resource
from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import Value
from pytest_gpulab.devices.programs.session import Kernel

_MAX_DYNAMIC = 8  # enum cudaFuncAttribute


@api("cudaFuncGetAttributes", form="u")
def function_attributes(call: Call, number: int) -> Sequence[Value]:
    """Return a kernel's resources."""
    kernel = call.session.kernel(number)
    found, architecture = kernel.module.resources(kernel.name), call.session.device.gpu.target
    most = kernel.module.most_threads(kernel.name) or MAX_BLOCK_THREADS
    return [
        int(architecture), int(architecture), 0, found.local_bytes or 0,
        kernel.module.static_shared_bytes(kernel.name), most, found.registers or 0, kernel.dynamic_limit,
    ]  # fmt: skip


@api("cudaFuncSetAttribute", form="uui")
def set_function_attribute(call: Call, number: int, attribute: int, value: int) -> None:
    """Raise the limit of a kernel's dynamic shared memory; other attributes change nothing here."""
    kernel = call.session.kernel(number)
    if attribute == _MAX_DYNAMIC:
        largest = call.session.device.gpu.limits.largest_shared_bytes - kernel.module.static_shared_bytes(kernel.name)
        if not 0 <= value <= largest:
            raise CudaError(Error.INVALID_VALUE, f"{value:,} bytes of shared memory; at most {largest:,} are possible")
        kernel.dynamic_limit = value


@api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", form="uiu")
def active_blocks(call: Call, number: int, threads: int, shared_bytes: int) -> Sequence[Value]:
    """Return the resident blocks per multiprocessor."""
    kernel = call.session.kernel(number)
    if threads <= 0:
        raise CudaError(Error.INVALID_VALUE)
    most = kernel.module.most_threads(kernel.name) or MAX_BLOCK_THREADS
    return [_blocks(call, kernel, threads, shared_bytes) if threads <= most else 0]


@api("cudaOccupancyAvailableDynamicSMemPerBlock", form="uii")
def available_shared(call: Call, number: int, blocks: int, threads: int) -> Sequence[Value]:
    """Return the most dynamic shared memory with which a number of blocks are resident."""
    kernel, limits = call.session.kernel(number), call.session.device.gpu.limits
    if blocks <= 0 or threads <= 0 or _blocks(call, kernel, threads, 0) < blocks:
        raise CudaError(Error.INVALID_VALUE)
    share = limits.shared_bytes // blocks // limits.shared_unit * limits.shared_unit
    free = share - limits.reserved_bytes - kernel.module.static_shared_bytes(kernel.name)
    return [max(0, min(free, limits.largest_shared_bytes))]


def _blocks(call: Call, kernel: Kernel, threads: int, shared_bytes: int) -> int:
    total = kernel.module.static_shared_bytes(kernel.name) + shared_bytes
    needs = BlockNeeds(threads, kernel.module.resources(kernel.name).registers, total)
    return min(blocks_by_resource(call.session.device.gpu.limits, needs).values())
