"""Launches, function attributes, occupancy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_gpulab.devices.errors import CannotSimulate, CompileError, DeviceError, KernelFault, LaunchError
from pytest_gpulab.devices.hardware.occupancy import BlockNeeds, blocks_by_resource
from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import Value
from pytest_gpulab.devices.programs.outcome import LaunchFailure, LaunchGroup
from pytest_gpulab.devices.programs.session import LEGACY_STREAMS, Kernel, Session
from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile

MAX_GROUPS = 1000
COUNTED_BLOCKS = 64
UNLIMITED = 1 << 62
_MAX_DYNAMIC, _CARVEOUT = 8, 9  # enum cudaFuncAttribute
_OF_FAULT = {
    "out-of-bounds": Error.ILLEGAL_ADDRESS, "misaligned": Error.MISALIGNED_ADDRESS, "assert": Error.ASSERT,
    "endless-loop": Error.LAUNCH_TIMEOUT, "time-limit": Error.LAUNCH_TIMEOUT, "deadlock": Error.LAUNCH_TIMEOUT,
    "texture": Error.ILLEGAL_ADDRESS,
}  # fmt: skip


@api("launch", form="u" * 10 + "b")
def launch(
    call: Call, number: int, grid_x: int, grid_y: int, grid_z: int, block_x: int, block_y: int, block_z: int,
    shared_bytes: int, stream: int, is_cooperative: int, parameters: bytes,
) -> None:  # fmt: skip
    """Run a kernel to its end. As on hardware, a later call returns the error of a fault."""
    session, kernel = call.session, call.session.kernels[number]
    grid, block = (grid_x, grid_y, grid_z), (block_x, block_y, block_z)
    try:
        _check_shared(kernel, shared_bytes)
        kernel.module.check_launch(kernel.name, grid, block, shared_bytes)
        profile = kernel.module.launch(
            kernel.name, grid, block, _arguments(kernel, parameters), shared_bytes, _options(session, is_cooperative)
        )
    except KernelFault as fault:
        session.output += fault.output
        session.fault = _OF_FAULT.get(fault.code, Error.LAUNCH_FAILURE)
        session.outcome.add_hazards(kernel.name, fault.hazards)
        _with_host_pointer(session, fault)
        _failed(call, kernel, fault, grid, block, shared_bytes)
        return
    except DeviceError as error:
        _failed(call, kernel, error, grid, block, shared_bytes)
        raise CudaError(_code_of(error), is_expected=True) from error
    session.output += profile.output
    session.outcome.add_hazards(kernel.name, profile.hazards)
    session.outcome.unchecked |= dict.fromkeys(profile.unchecked)
    _group(session, kernel, grid, block, shared_bytes).add(profile)
    _advance(session, stream, profile)


def _check_shared(kernel: Kernel, shared_bytes: int) -> None:
    if shared_bytes > kernel.dynamic_limit:
        what = f"{shared_bytes:,} bytes of dynamic shared memory; {kernel.dynamic_limit:,} are allowed"
        raise LaunchError(f"{what} without cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize)")


def _arguments(kernel: Kernel, parameters: bytes) -> list[np.void]:
    found, at = [], 0
    for size in kernel.parameter_bytes:
        found.append(np.frombuffer(parameters, np.dtype((np.void, size)), 1, at)[0])
        at += size
    return found


def _options(session: Session, is_cooperative: int) -> LaunchOptions:
    """Return the options of a launch: all blocks run; if its time is needed, a sample of them is counted."""
    is_timed = session.options.profile or session.outcome.used_events
    return LaunchOptions(
        check=session.options.check,
        cooperative=bool(is_cooperative),
        time_limit_s=session.options.launch_limit_s,
        estimate=is_timed,
        sample_blocks=COUNTED_BLOCKS if is_timed else None,
        sample_seed=0,  # the same estimate in each run
        complete_within=UNLIMITED if is_timed else None,
    )


def _with_host_pointer(session: Session, fault: KernelFault) -> None:
    """Say of an access outside of all device memory what the pointer is."""
    missed = fault.__context__
    address = getattr(missed, "address", None)
    if fault.location is None and getattr(missed, "space", "") == "global" and address is not None:
        nowhere = getattr(missed, "nowhere", "")
        fault.what = fault.what.replace(nowhere, f"the address {address:#x} is {session.described(address)}")


def _failed(
    call: Call, kernel: Kernel, error: DeviceError, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int
) -> None:
    _group(call.session, kernel, grid, block, shared_bytes)
    call.session.outcome.add_failure(LaunchFailure(kernel.name, error, call.site))


def _code_of(error: DeviceError) -> Error:
    text = str(error)
    if isinstance(error, (CannotSimulate, CompileError)):
        return Error.NOT_SUPPORTED
    if "cooperative" in text:
        return Error.COOPERATIVE_LAUNCH_TOO_LARGE
    if "registers" in text or "__launch_bounds__" in text:
        return Error.OUT_OF_RESOURCES
    return Error.INVALID_VALUE if "shared memory" in text else Error.INVALID_CONFIGURATION


def _group(
    session: Session, kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int
) -> LaunchGroup:
    """Return the record of launches of this kind, with one more launch counted."""
    groups = session.outcome.launches
    key: tuple[object, ...] = (kernel.name, grid, block, shared_bytes)
    if key not in groups and len(groups) >= MAX_GROUPS:
        key = (kernel.name, "further launches")
    if key not in groups:
        x, y, z = grid
        groups[key] = LaunchGroup(kernel.name, (x, y, z), (block[0], block[1], block[2]), shared_bytes)
    groups[key].count += 1
    return groups[key]


def _advance(session: Session, stream: int, profile: LaunchProfile) -> None:
    """Add a launch's estimated time to its stream; the default stream waits for all others, and they for it."""
    times, legacy = session.stream_ms, stream in LEGACY_STREAMS
    start = max(times.values()) if legacy else max(times.get(stream, 0.0), times[0])
    times[0 if legacy else stream] = start + (profile.estimated_ms or 0.0)


@api("cudaFuncGetAttributes", form="u")
def function_attributes(call: Call, number: int) -> Sequence[Value]:
    """Return a kernel's resources."""
    kernel = call.session.kernels[number]
    found, architecture = kernel.module.resources(kernel.name), call.session.device.gpu.target
    most = kernel.module.most_threads(kernel.name) or 1024
    return [
        int(architecture), int(architecture), 0, found.local_bytes or 0,
        kernel.module.static_shared_bytes(kernel.name), most, found.registers or 0, kernel.dynamic_limit,
    ]  # fmt: skip


@api("cudaFuncSetAttribute", form="uui")
def set_function_attribute(call: Call, number: int, attribute: int, value: int) -> None:
    """Raise the limit of a kernel's dynamic shared memory; other attributes change nothing here."""
    kernel = call.session.kernels[number]
    if attribute == _MAX_DYNAMIC:
        largest = call.session.device.gpu.limits.largest_shared_bytes - kernel.module.static_shared_bytes(kernel.name)
        if not 0 <= value <= largest:
            raise CudaError(Error.INVALID_VALUE, f"{value:,} bytes of shared memory; at most {largest:,} are possible")
        kernel.dynamic_limit = value


@api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", form="uiu")
def active_blocks(call: Call, number: int, threads: int, shared_bytes: int) -> Sequence[Value]:
    """Return the resident blocks per multiprocessor."""
    kernel = call.session.kernels[number]
    if threads <= 0:
        raise CudaError(Error.INVALID_VALUE)
    most = kernel.module.most_threads(kernel.name) or 1024
    return [_blocks(call, kernel, threads, shared_bytes) if threads <= most else 0]


@api("cudaOccupancyAvailableDynamicSMemPerBlock", form="uii")
def available_shared(call: Call, number: int, blocks: int, threads: int) -> Sequence[Value]:
    """Return the most dynamic shared memory with which a number of blocks are resident."""
    kernel, limits = call.session.kernels[number], call.session.device.gpu.limits
    if blocks <= 0 or _blocks(call, kernel, threads, 0) < blocks:
        raise CudaError(Error.INVALID_VALUE)
    share = limits.shared_bytes // blocks // limits.shared_unit * limits.shared_unit
    free = share - limits.reserved_bytes - kernel.module.static_shared_bytes(kernel.name)
    return [max(0, min(free, limits.largest_shared_bytes))]


def _blocks(call: Call, kernel: Kernel, threads: int, shared_bytes: int) -> int:
    total = kernel.module.static_shared_bytes(kernel.name) + shared_bytes
    needs = BlockNeeds(threads, kernel.module.resources(kernel.name).registers, total)
    return min(blocks_by_resource(call.session.device.gpu.limits, needs).values())
