"""Calls of the runtime library: a table of functions by name, and the errors that they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from .messages import Value
from .outcome import CallSite

if TYPE_CHECKING:
    from .session import Session


class Error(IntEnum):
    """Error codes of the runtime library, from `driver_types.h`."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    INVALID_CONFIGURATION = 9
    INVALID_SYMBOL = 13
    INVALID_MEMCPY_DIRECTION = 21
    INVALID_KERNEL_IMAGE = 200
    INVALID_RESOURCE_HANDLE = 400
    ILLEGAL_ADDRESS = 700
    OUT_OF_RESOURCES = 701
    LAUNCH_TIMEOUT = 702
    ASSERT = 710
    NOT_REGISTERED = 713
    MISALIGNED_ADDRESS = 716
    LAUNCH_FAILURE = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801


class CudaError(Exception):
    """An error that a call returns to the program.

    `why` is the reason in a clause, for the report; empty if the code says it all. If programs cause it on purpose, it
    `is_expected`, and the report leaves it out.
    """

    def __init__(self, code: int, why: str = "", is_expected: bool = False) -> None:
        super().__init__(code, why)
        self.code, self.why, self.is_expected = code, why, is_expected


@dataclass(frozen=True)
class Call:
    """A call of the runtime library: its place in the program, and the state that it works on."""

    session: Session
    site: CallSite


Handler = Callable[..., Sequence[Value] | None]

CALLS: dict[str, tuple[str, Handler]] = {}
"""By name: the form of the arguments (`messages.Request.unpack`), and the function."""


def api(*names: str, form: str = "") -> Callable[[Any], Any]:
    """Register a function for calls by name. It takes a `Call` and the arguments, and returns the results."""

    def register(handler: Any) -> Any:
        for name in names:
            CALLS[name] = (form, handler)
        return handler

    return register
