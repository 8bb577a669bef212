"""Streams and events, on the estimated time.

Every call has ended when it returns. Streams only order the estimated times: a launch begins when the launches before
it in its stream have ended, and those that it waits for by events or by the default stream. Copies take no time.
"""

from collections.abc import Sequence

from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import Value
from pytest_gpulab.devices.programs.session import LEGACY_STREAMS

RESOLUTION_MS = 0.0005  # of events: about half a microsecond, by the CUDA Runtime API's manual


@api("cudaStreamCreate")
def create_stream(call: Call) -> Sequence[Value]:
    """Return a new stream."""
    stream = next(call.session.handles)
    call.session.stream_ms[stream] = 0.0
    return [stream]


@api("cudaStreamDestroy", form="u")
def destroy_stream(call: Call, stream: int) -> None:
    """Remove a stream; the default stream still waits for its work."""
    if stream in LEGACY_STREAMS or stream not in call.session.stream_ms:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE)
    times = call.session.stream_ms
    times[0] = max(times[0], times.pop(stream))


@api("cudaStreamSynchronize", "cudaStreamQuery", form="u")
def synchronise_stream(call: Call, stream: int) -> None:
    """Return at once: all work has ended."""
    _known(call, stream)


def _known(call: Call, stream: int) -> int:
    """Return a stream's key, the default stream's for its other names, or raise CudaError if there is none."""
    if stream in (*LEGACY_STREAMS, 2):
        return 0
    if stream not in call.session.stream_ms:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "the stream does not exist, or was destroyed")
    return stream


@api("cudaEventCreate")
def create_event(call: Call) -> Sequence[Value]:
    """Return a new event."""
    event = next(call.session.handles)
    call.session.event_ms[event] = None
    return [event]


@api("cudaEventDestroy", form="u")
def destroy_event(call: Call, event: int) -> None:
    """Remove an event."""
    if event not in call.session.event_ms:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "the event does not exist, or was destroyed")
    del call.session.event_ms[event]


@api("cudaEventRecord", form="uu")
def record_event(call: Call, event: int, stream: int) -> None:
    """Note the time at which the stream's work ends; from now on, launches are estimated."""
    session, key = call.session, _known(call, stream)
    if event not in session.event_ms:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "the event was not created, or was destroyed")
    session.outcome.used_events = True
    session.event_ms[event] = session.stream_ms[key] if key else max(session.stream_ms.values())


@api("cudaEventSynchronize", "cudaEventQuery", form="u")
def synchronise_event(call: Call, event: int) -> None:
    """Return at once: all work has ended."""
    if event not in call.session.event_ms:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "the event was not created, or was destroyed")


@api("cudaStreamWaitEvent", form="uu")
def wait_event(call: Call, stream: int, event: int) -> None:
    """Let later work of the stream begin after the event."""
    key, time = _known(call, stream), call.session.event_ms.get(event)
    if event not in call.session.event_ms:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "the event was not created, or was destroyed")
    call.session.stream_ms[key] = max(call.session.stream_ms[key], time or 0.0)


@api("cudaEventElapsedTime", form="uu")
def elapsed(call: Call, start: int, end: int) -> Sequence[Value]:
    """Return the estimated time between two events, in ms."""
    first, second = call.session.event_ms.get(start), call.session.event_ms.get(end)
    if first is None or second is None:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "an event was never recorded")
    difference = second - first
    return [float(difference if abs(difference) > RESOLUTION_MS else RESOLUTION_MS)]


@api("cudaDeviceSynchronize", "cudaLaunchHostFunc", "cudaStreamAddCallback")
def synchronise(call: Call) -> None:
    """Return at once: all work has ended. The program itself calls a host function."""
