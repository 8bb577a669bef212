"""Requests that a hostile program may write to its socket: each ends in an answer or as an invalid request."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices import launch
from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.errors import KernelFault
from pytest_gpulab.devices.programs.api import CALLS
from pytest_gpulab.devices.programs.device import ProgramDevice
from pytest_gpulab.devices.programs.messages import Channel, InvalidRequest
from pytest_gpulab.devices.programs.server import serve
from pytest_gpulab.devices.programs.session import RunOptions, Session
from pytest_gpulab.devices.programs.toolchain import Toolchain, find_toolchain
from pytest_gpulab.devices.simulated.gpus import modelled_gpu

PTX = b""".version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 counter = 10;
.visible .entry put(.param .u64 p, .param .u32 n)
{ .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; st.global.u32 [%rd1], %r1; ret; }
"""
SMALL = (0, 1, 2, 3, 4, 8, 32)
LARGE = (128, 512, 4096, *(2**power + more for power in (31, 32, 40, 63, 64) for more in (-1, 0) if power + more < 64))
TEXTS = (b"", b"\0", b"put", b"counter", b"\xff" * 40, PTX)
LAUNCH = "u" * 10 + "b"
ANSWER = struct.Struct("<iIIII")  # the error, whether it stays, the count of unfinished work, and two lengths


def bytes_of(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def packed(name: str, arguments: bytes) -> bytes:
    return struct.pack("<IIQ", len(name), len(arguments), 0) + name.encode() + arguments


def arguments(form: str, chance: random.Random, known: list[int]) -> bytes:
    if form == LAUNCH and chance.random() < 0.9:
        extents = [chance.choice((0, 1, 1, 1, 2, 2**31)) for _ in range(6)]
        rest = (chance.choice((0, 0, 16, 2**40)), chance.choice((0, 2)), chance.choice((0, 1)))
        return struct.pack("<10Q", 0, *extents, *rest) + bytes_of(struct.pack("<QI", chance.choice([0, *known]), 5))
    found = b""
    for letter in form:
        if letter in "bt":
            found += bytes_of(chance.choice(TEXTS))
        else:
            found += struct.pack("<Q", chance.choice(SMALL if chance.random() < 0.5 else (*LARGE, *known * 9)) % 2**64)
    return found


def received(connection: socket.socket, nbytes: int) -> bytes:
    found = b""
    while len(found) < nbytes:
        part = connection.recv(nbytes - len(found))
        if not part:
            raise ConnectionError
        found += part
    return found


def hostile(connection: socket.socket, seed: int) -> None:
    """Send random calls with random arguments, among them addresses from earlier answers."""
    chance, known = random.Random(seed), list[int]()
    with connection, suppress(OSError):
        for count in range(150):
            name = ("module", "kernel")[count] if count < 2 else chance.choice(sorted(CALLS.keys() - {"refused"}))
            given = {"module": bytes_of(PTX), "kernel": struct.pack("<Q", 0) + bytes_of(b"put")}.get(name)
            if given is None or count > 1:
                given = arguments(CALLS[name][0], chance, known)
            connection.sendall(packed(name, given))
            error, _, _, output, body = ANSWER.unpack(received(connection, ANSWER.size))
            answer = received(connection, output + body)[output:]
            if not error and len(answer) >= 8 and name.startswith("cudaM"):
                known.append(int.from_bytes(answer[:8], "little"))


@pytest.fixture
def session() -> Iterator[Session]:
    device = ProgramDevice(modelled_gpu("h200"), find_toolchain(), 1 << 28)
    yield Session(device, RunOptions(launch_limit_s=1.0), memory_limit=1 << 26)
    device.arena.close()


@pytest.mark.parametrize("seed", range(40))
def test_random_calls_get_an_answer_or_are_invalid(session: Session, seed: int) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(HANG_S)
    theirs.settimeout(HANG_S)
    program = threading.Thread(target=hostile, args=(theirs, seed))
    program.start()
    with ours, suppress(InvalidRequest):
        serve(session, Channel(ours))
    program.join()
    assert session.kernels


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (packed("cudaMalloc", struct.pack("<Q", 4)) + packed("rm", b""), "a call of `rm`, which"),
        (struct.pack("<IIQ", 2**32 - 1, 2**32 - 1, 0), "a call of 8,589,934,590 bytes"),
        (packed("cudaMalloc", b""), "a call of cudaMalloc without all of its arguments"),
        (packed("cudaMalloc", bytes(16)), "a call of cudaMalloc with arguments of another size"),
        (packed("module", struct.pack("<Q", 2**63)), "a call of module with arguments of another size"),
        (packed("refused", bytes_of(b"f") + struct.pack("<q", -5) + bytes_of(b"")), "a call that returns -5"),
        (packed("\0\xff", b""), "a call of `\0"),
        (packed("cudaMalloc", bytes(8))[:-1], None),  # truncated: the program has ended
        (b"\x01", None),
    ],
    ids=["name", "size", "few", "many", "length", "error", "bytes", "truncated", "header"],
)
def test_bytes_that_are_no_request(session: Session, sent: bytes, reason: str | None) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        if reason is None:
            serve(session, Channel(ours))
        else:
            with pytest.raises(InvalidRequest) as error:
                serve(session, Channel(ours))
            assert reason in str(error.value)
    ours.close()


@pytest.mark.parametrize(("number", "stalls"), [(5, True), (1 << 20, False)])
def test_a_launch_without_progress_is_stopped_unless_an_argument_is_large(
    session: Session, monkeypatch: pytest.MonkeyPatch, number: int, stalls: bool
) -> None:
    monkeypatch.setattr(launch, "STALL_S", 0.1)
    session.options = RunOptions(launch_limit_s=HANG_S if stalls else 0.3)
    loop = b"LOOP: mad.lo.u32 %r1, %r1, 1664525, 1013904223; setp.ne.u32 %p1, %r1, 7; @%p1 bra LOOP; st.global"
    ptx = PTX.replace(b"{ .reg", b"{ .reg .pred %p<2>; .reg", 1).replace(b"st.global", loop, 1)
    sent = packed("module", bytes_of(ptx)) + packed("kernel", struct.pack("<Q", 0) + bytes_of(b"put"))
    launched = struct.pack("<10Q", 0, *[1] * 6, 0, 0, 0) + bytes_of(struct.pack("<QI", 0, number))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent + packed("launch", launched))
        theirs.shutdown(socket.SHUT_WR)
        serve(session, Channel(ours))
    (failure,) = session.outcome.failures.values()
    assert stalls == (isinstance(failure.error, KernelFault) and failure.error.is_stalled)


@pytest.mark.parametrize(("left_s", "limit_s"), [(100, 1.0), (0.01, 0.5), (-1, 0.5)])
def test_a_short_launch_at_the_end_of_a_programs_time_is_not_stopped(
    session: Session, left_s: float, limit_s: float
) -> None:
    session.deadline = time.monotonic() + left_s
    assert session.launch_limit_s == limit_s


def test_a_programs_device_loads_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take 0.1 s of each `gpulab run`."""
    monkeypatch.setattr(nvrtc, "version", None)
    ProgramDevice(modelled_gpu(), Toolchain(Path("nvcc"), Path("g++"))).arena.close()
