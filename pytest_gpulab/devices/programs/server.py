"""The server: it answers the program's calls of the runtime library, one after the other."""

from collections.abc import Sequence

from pytest_gpulab.devices.errors import DeviceError

from . import calls as calls  # registers the functions
from .api import CALLS, Call, CudaError, Error
from .messages import Channel, InvalidRequest, Request, Value
from .outcome import CallSite, FailedCall, LaunchFailure
from .session import Session
from .shared_memory import WAITING

_ALWAYS = (
    "fault", "early", "unfinished", "missing", "cudaDeviceReset", "module", "kernel", "variable", "name", "attributes",
)  # fmt: skip
"""Calls that work after a fault of a kernel."""
_KEEP_OUTPUT = ("launch", "early", "unfinished")


def serve(session: Session, channel: Channel) -> None:
    """Answer requests until the program closes its end; raise InvalidRequest if it has written to the socket itself."""
    while (request := channel.receive()) is not None:
        error, values = _answer(session, request)
        is_sticky = session.fault is not None and error == session.fault
        output, session.output = session.output.encode(errors="replace"), ""
        if request.name in _KEEP_OUTPUT:  # the kernel's own output follows with the next call, as on hardware
            session.output, output = output.decode(), b""
        session.running = ""
        channel.send(error, is_sticky, session.unfinished.generation, output, values)
    session.outcome.unseen_output = len(session.output)


def _answer(session: Session, request: Request) -> tuple[int, Sequence[Value]]:
    broken = session.fault
    if broken is not None and request.name not in _ALWAYS:
        return broken, ()
    if request.name not in CALLS:
        raise InvalidRequest(f"a call of `{request.name}`, which the runtime library does not have")
    form, handler = CALLS[request.name]
    site = CallSite(request.name, request.site)
    if request.name in WAITING:
        session.unfinished.finish()
    try:
        values = handler(Call(session, site), *request.unpack(form))
    except CudaError as error:
        if not error.is_expected:
            session.outcome.add_failed_call(FailedCall(site, error.code, error.why))
        return error.code, ()
    except DeviceError as error:  # ptxas rejects the program's kernels
        session.outcome.add_failure(LaunchFailure("the program's kernels", error, site))
        return Error.NOT_SUPPORTED, ()
    return Error.SUCCESS, values or ()
