"""Requests of the program and their answers as bytes; `runtime/connection.cpp` is the other side.

A request: sizes of name and arguments (4 bytes each), the address of the call relative to the executable (8 bytes),
name, arguments. An argument is a number of 8 bytes, or a size and that many bytes. An answer: error code, flag of a
sticky error, generation of the memory in use, sizes of output and values (4 bytes each), output, values.
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_HEADER = struct.Struct("<IIQ")
_ANSWER = struct.Struct("<iIIII")
_WORD = struct.Struct("<Q")
MASK = 2**64 - 1

MAX_NAME_BYTES, MAX_ARGUMENT_BYTES = 1 << 10, 64 << 20  # the longest argument is the PTX of a module

Value = int | float | bytes
"""An argument or a result: a number of 8 bytes, or bytes."""


class InvalidRequest(Exception):
    """Bytes that the stand-in never sends: the program itself has written to its socket."""


@dataclass(frozen=True)
class Request:
    """A call of the runtime library: its name, its packed arguments, and its place in the executable."""

    name: str
    arguments: bytes
    site: int

    def unpack(self, form: str) -> list[int | bytes | str]:
        """Return the arguments: `u` an unsigned number, `i` a signed one, `b` bytes, `t` text.

        Raises InvalidRequest if the arguments have another form.
        """
        found: list[int | bytes | str] = []
        at = 0
        for letter in form:
            if at + _WORD.size > len(self.arguments):
                raise InvalidRequest(f"a call of {self.name} without all of its arguments")
            (word,) = _WORD.unpack_from(self.arguments, at)
            at += _WORD.size
            if letter in "bt":
                part = self.arguments[at : at + word]
                found.append(part if letter == "b" else part.decode(errors="replace"))
                at += word
            else:
                found.append(word - (word >> 63 << 64) if letter == "i" else word)
        if at != len(self.arguments):
            raise InvalidRequest(f"a call of {self.name} with arguments of another size")
        return found


class Channel:
    """The server's end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def receive(self) -> Request | None:
        """Return the next request, or None at the end; raise InvalidRequest if it is longer than the stand-in's."""
        header = self._exactly(_HEADER.size)
        if header is None:
            return None
        name_bytes, argument_bytes, site = _HEADER.unpack(header)
        if name_bytes > MAX_NAME_BYTES or argument_bytes > MAX_ARGUMENT_BYTES:
            raise InvalidRequest(f"a call of {name_bytes + argument_bytes:,} bytes")
        rest = self._exactly(name_bytes + argument_bytes)
        return None if rest is None else Request(rest[:name_bytes].decode(errors="replace"), rest[name_bytes:], site)

    def send(self, error: int, is_sticky: bool, generation: int, output: bytes, values: Sequence[Value]) -> None:
        """Send an answer; nothing happens if the program has ended."""
        body = b"".join(map(_packed, values))
        try:
            self._socket.sendall(
                _ANSWER.pack(error, is_sticky, generation & 0xFFFFFFFF, len(output), len(body)) + output + body
            )
        except OSError:  # it has ended: the next `receive` returns None
            return

    def _exactly(self, nbytes: int) -> bytes | None:
        parts, missing = [], nbytes
        while missing:
            try:
                part = self._socket.recv(min(missing, 1 << 20))
            except OSError:
                part = b""
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


def _packed(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    return struct.pack("<d", value) if isinstance(value, float) else _WORD.pack(value & MASK)
