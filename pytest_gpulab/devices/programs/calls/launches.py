"""Launches."""

import math
from collections import deque
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from pytest_gpulab.devices.errors import CannotSimulate, CompileError, DeviceError, KernelFault, LaunchError
from pytest_gpulab.devices.launch import stall_limit_s
from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import InvalidRequest
from pytest_gpulab.devices.programs.outcome import LaunchFailure, LaunchGroup
from pytest_gpulab.devices.programs.session import LEGACY_STREAMS, Kernel, Session
from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated.execution.launch_state import TimeIsUp

from . import reach
from .device_launches import MAX_DEPTH, MOST_LAUNCHES, DeviceLaunch, taken

MAX_GROUPS = 1000
COUNTED_BLOCKS = 64
PRINTF_BYTES = 1 << 20  # of CUDA's buffer
UNLIMITED = 1 << 62
_COOPERATIVE, _CLUSTERED = 1, 2
_OF_FAULT = {
    "out-of-bounds": Error.ILLEGAL_ADDRESS, "misaligned": Error.MISALIGNED_ADDRESS, "assert": Error.ASSERT,
    "endless-loop": Error.LAUNCH_TIMEOUT, "time-limit": Error.LAUNCH_TIMEOUT, "deadlock": Error.LAUNCH_TIMEOUT,
    "texture": Error.ILLEGAL_ADDRESS,
}  # fmt: skip


class Configuration(NamedTuple):
    """A launch without its arguments."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


@api("launch", form="u" * 10 + "b")
def launch(
    call: Call, number: int, grid_x: int, grid_y: int, grid_z: int, block_x: int, block_y: int, block_z: int,
    shared_bytes: int, stream: int, how: int, parameters: bytes,
) -> None:  # fmt: skip
    """Run a kernel to its end, and the kernels that it launches. A later call returns the error of a fault."""
    session, kernel = call.session, call.session.kernel(number)
    what = Configuration(kernel, (grid_x, grid_y, grid_z), (block_x, block_y, block_z), shared_bytes)
    _launch(call, what, stream, how, parameters)
    waiting = deque((1, child) for child in _children(call, kernel, 0))
    while waiting and session.fault is None:
        depth, child = waiting.popleft()
        with suppress(CudaError):  # reported; as on hardware, its parent's launch has been successful
            _launch(call, Configuration(*child[:4]), stream, 0, child.parameters)
            waiting += ((depth + 1, each) for each in _children(call, child.kernel, depth))


def _children(call: Call, kernel: Kernel, depth: int) -> list[DeviceLaunch]:
    """Return the launches by a kernel that has ended. Those that a GPU would refuse are reported."""
    launches, lost = taken(kernel.module)
    why = ""
    if lost:
        why = f"{len(launches) + lost:,} launches by one kernel; at most {MOST_LAUNCHES:,} may be pending"
    elif launches and depth == MAX_DEPTH:
        launches, why = [], f"kernels launch kernels to a depth of more than {MAX_DEPTH:,}"
    if why:
        call.session.outcome.add_failure(LaunchFailure(kernel.name, LaunchError(why), call.site))
    return launches


def _launch(call: Call, what: Configuration, stream: int, how: int, parameters: bytes) -> None:
    """Run a kernel to its end; `how` has bits of `_COOPERATIVE` and `_CLUSTERED`."""
    session, kernel = call.session, what.kernel
    group = _group(session, what)
    group.count += 1
    session.running = kernel.name
    try:
        arguments = _arguments(kernel, parameters)
        profile = _run(what, arguments, _options(session, how, _size(session, arguments)))
    except KernelFault as fault:
        _with_host_pointer(session, fault)
        session.output += fault.output
        session.fault = _OF_FAULT.get(fault.code, Error.LAUNCH_FAILURE)
        session.outcome.add_hazards(kernel.name, fault.hazards)
        session.outcome.add_failure(LaunchFailure(kernel.name, fault, call.site))
        return
    except TimeIsUp:  # before or after the kernel's own code
        late = KernelFault("time-limit", "the program's time limit was reached")
        session.outcome.add_failure(LaunchFailure(kernel.name, late, call.site))
        return
    except DeviceError as error:
        session.outcome.add_failure(LaunchFailure(kernel.name, error, call.site))
        raise CudaError(_code_of(error), is_expected=True) from error
    session.output += profile.output
    session.outcome.has_seen_results |= bool(profile.output)
    session.outcome.has_results |= session.options.check and session.has_device_memory
    session.outcome.add_hazards(kernel.name, profile.hazards)
    session.outcome.note_arrays(kernel.name, call.site, kernel.module.dynamic_arrays(kernel.name))
    session.outcome.unchecked |= dict.fromkeys(profile.unchecked)
    group.add(profile)
    reach.note(call, kernel.name, what.grid, what.block, arguments)
    session.add_work(call.site, kernel.name)
    _advance(session, stream, profile)


def _run(what: Configuration, arguments: list[np.void], options: LaunchOptions) -> LaunchProfile:
    """Run a launch; raise DeviceError as `Module.launch`, and for more dynamic shared memory than was asked for."""
    kernel, limit = what.kernel, what.kernel.dynamic_limit
    if what.shared_bytes > limit:
        asked = f"{what.shared_bytes:,} bytes of dynamic shared memory; {limit:,} are allowed"
        raise LaunchError(f"{asked} without cudaFuncSetAttribute(..., cudaFuncAttributeMaxDynamicSharedMemorySize)")
    module, name = kernel.module, kernel.name
    module.check_launch(name, what.grid, what.block, what.shared_bytes)
    return module.launch(name, what.grid, what.block, arguments, what.shared_bytes, options)


def _arguments(kernel: Kernel, parameters: bytes) -> list[np.void]:
    if len(parameters) != sum(kernel.parameter_bytes):
        raise InvalidRequest(f"a launch of `{kernel.name}` with {len(parameters)} bytes of arguments")
    found, at = [], 0
    for size in kernel.parameter_bytes:
        found.append(np.frombuffer(parameters, np.dtype((np.void, size)), 1, at)[0])
        at += size
    return found


def _size(session: Session, arguments: list[np.void]) -> float:
    """Return the words of the largest array, or the largest number among the arguments; infinite if unknown."""
    if any(len(argument.tobytes()) not in (4, 8) for argument in arguments):
        return math.inf
    numbers = [abs(int.from_bytes(argument.tobytes(), "little", signed=True)) for argument in arguments]
    words = (memory.allocation.nbytes / 4 for memory in session.memories.values())
    return max((*words, *(number for number in numbers if not session.is_device_address(number))), default=0)


def _options(session: Session, how: int, size: float) -> LaunchOptions:
    """Return the options of a launch: all blocks run; if its time is needed, a sample of them is counted.

    The limit of a launch without progress grows with its size.
    """
    is_timed = session.options.profile or session.outcome.used_events
    return LaunchOptions(
        check=session.options.check,
        cooperative=bool(how & _COOPERATIVE),
        clustered=bool(how & _CLUSTERED),
        time_limit_s=session.launch_limit_s,
        stall_limit_s=stall_limit_s(size),
        estimate=is_timed,
        print_limit=PRINTF_BYTES,
        sample_blocks=COUNTED_BLOCKS if is_timed else None,
        sample_seed=0,  # the same estimate in each run
        complete_within=UNLIMITED if is_timed else None,
    )


def _with_host_pointer(session: Session, fault: KernelFault) -> None:
    """Add a description of the pointer to the fault of an access outside of all device memory."""
    missed = fault.__context__
    address = getattr(missed, "address", None)
    nowhere = getattr(missed, "nowhere", "")
    if fault.location is None and getattr(missed, "space", "") == "global" and address is not None and nowhere:
        found = session.described(address)  # a host pointer differs in each run, and says nothing
        number = f" {address:#x}" if session.is_device_address(address) or not address else ""
        fault.what = fault.what.replace(nowhere, f"the address{number} is {found}")


def _code_of(error: DeviceError) -> Error:
    text = str(error)
    if isinstance(error, (CannotSimulate, CompileError)):
        return Error.NOT_SUPPORTED
    if "cooperative" in text:
        return Error.COOPERATIVE_LAUNCH_TOO_LARGE
    if "registers" in text or "__launch_bounds__" in text:
        return Error.OUT_OF_RESOURCES
    return Error.INVALID_VALUE if "shared memory" in text else Error.INVALID_CONFIGURATION


def _group(session: Session, what: Configuration) -> LaunchGroup:
    """Return the record of launches of this kind."""
    groups, name = session.outcome.launches, what.kernel.name
    key: tuple[object, ...] = (name, *what[1:])
    if key not in groups and len(groups) >= MAX_GROUPS:
        key = (name, "further launches")
    if key not in groups:
        groups[key] = LaunchGroup(name, what.grid, what.block, what.shared_bytes)
    return groups[key]


def _advance(session: Session, stream: int, profile: LaunchProfile) -> None:
    """Add a launch's estimated time to its stream; the default stream waits for all others, and they for it."""
    times, legacy = session.stream_ms, stream in LEGACY_STREAMS
    start = max(times.values()) if legacy else max(times.get(stream, 0.0), times[0])
    times[0 if legacy else stream] = start + (profile.estimated_ms or 0.0)
