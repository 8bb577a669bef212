"""A filter of system calls: one process and one thread, no debugging, no memory that escapes the limits.

Limits of a process hold for each process by itself, and the limit on the number of processes does not hold for root.
So a confined program may start none. The filter is a program for Linux's seccomp, in the classic form of the Berkeley
Packet Filter (`linux/seccomp.h`, `linux/filter.h`).
"""

import platform
import struct
from collections.abc import Mapping

from pytest_gpulab.devices.errors import DeviceUnavailable

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | 1  # EPERM
_X32 = 0x40000000  # numbers of x86-64's second set of system calls

_BOTH = {"clone3": 435, "io_uring_setup": 425, "pidfd_getfd": 438}
REFUSED: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (0xC000003E, {
        "fork": 57, "vfork": 58, "clone": 56, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
        "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "keyctl": 250, "add_key": 248, "request_key": 249,
        "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "memfd_create": 319, "shmget": 29, "semget": 64,
        "msgget": 68, "mq_open": 240, **_BOTH,
    }),
    "aarch64": (0xC00000B7, {
        "clone": 220, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "unshare": 97, "setns": 268,
        "mount": 40, "umount2": 39, "keyctl": 219, "add_key": 217, "request_key": 218, "bpf": 280,
        "perf_event_open": 241, "userfaultfd": 282, "memfd_create": 279, "shmget": 194, "semget": 190, "msgget": 186,
        "mq_open": 180, **_BOTH,
    }),
}  # fmt: skip
"""By machine: its number (`linux/audit.h`), and the refused calls by name, with their numbers."""


def system_call_filter() -> bytes:
    """Return the filter for this machine, or raise DeviceUnavailable if its numbers are unknown."""
    architecture, refused = REFUSED.get(platform.machine(), (0, {}))
    if not refused:
        raise DeviceUnavailable("programs are graded on x86-64 and on 64-bit Arm only")
    numbers = sorted(refused.values())
    tests = [(_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER), (_AT_LEAST, len(numbers) + 1, 0, _X32),
        *tests, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE),
    ]  # fmt: skip
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
