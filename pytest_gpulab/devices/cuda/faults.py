"""What the driver's errors after a launch mean to a student."""

from __future__ import annotations

from ..protocol import DeviceUnavailable, KernelFault

# PyCUDA gives no error numbers, so the driver's words are matched (cuda.h, CUresult: 700, 716, 717, 710, 702, 719).
_FAULTS = (
    ("illegal memory access", "out-of-bounds", "a thread accessed memory that belongs to no array"),
    ("misaligned address", "misaligned", "a thread accessed memory at an address that its type does not allow"),
    ("not supported on global/shared", "out-of-bounds", "a thread accessed memory that belongs to no array"),
    ("device-side assert", "assert", "an assert() in the kernel failed (its message was printed by the driver)"),
    ("launch timed out", "endless-loop", "the driver stopped the kernel because it ran too long"),
    ("illegal instruction", "trap", "the kernel stopped itself with __trap()"),
    (
        "unspecified launch failure",
        "device-fault",
        "the GPU gave the kernel up and does not say why (__trap() does that)",
    ),
)
# What no kernel can bring about (CUresult: 214, 46 and, for whatever the driver cannot name, 999).
_OF_THE_MACHINE = ("ECC error", "busy or unavailable", "unknown error")


def kernel_fault(kernel: str, words: str) -> KernelFault | DeviceUnavailable:
    """Return the fault for the driver's words, such as `an illegal memory access was encountered`.

    What is the machine's own is nobody's fault: the GPU is not there any more.
    """
    if any(pattern in words for pattern in _OF_THE_MACHINE):
        return DeviceUnavailable(f"the GPU itself failed, says the NVIDIA driver: {words}")
    for pattern, code, what in _FAULTS:
        if pattern in words:
            return KernelFault(code, f"{kernel}: {what}")
    return KernelFault("device-fault", f"{kernel}: the GPU stopped the kernel: {words}")


def not_loaded(words: str) -> DeviceUnavailable:
    """Return that the driver refuses what nvcc made for this very GPU, in the driver's words."""
    what = f"the NVIDIA driver does not load what nvcc compiled for this GPU: {words}"
    return DeviceUnavailable(f"{what}; is it as new as the CUDA toolkit?")


def overtime_fault(kernel: str, limit_s: float) -> KernelFault:
    """Return the fault of a kernel that was still running after the limit."""
    return KernelFault(
        "endless-loop",
        f"{kernel}: the kernel had not ended after {limit_s:g} s (a loop that never ends, or threads that wait for "
        "each other for ever)",
    )
