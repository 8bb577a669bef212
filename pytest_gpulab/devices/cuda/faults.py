"""What the driver's errors mean to a student."""

from __future__ import annotations

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault


class DriverRefusal(Exception):
    """What is asked through cuda-bindings is refused, in the driver's words; PyCUDA has errors of its own."""


# PyCUDA gives no error numbers, so the driver's words are matched (cuda.h, CUresult: 700, 716, 717, 714, 710, 702,
# 715, 719).
_FAULTS = (
    ("illegal memory access", "out-of-bounds", "a thread accessed memory that belongs to no array"),
    ("misaligned address", "misaligned", "a thread accessed memory at an address that its type does not allow"),
    ("not supported on global/shared", "out-of-bounds", "a thread accessed memory that belongs to no array"),
    ("hardware stack error", "stack-overflow", "the calls of device functions need more stack than a thread has"),
    ("device-side assert", "assert", "an assert() in the kernel failed (its message was printed by the driver)"),
    ("launch timed out", "endless-loop", "the driver stopped the kernel because it ran too long"),
    ("illegal instruction", "trap", "the kernel stopped itself with __trap()"),
    (
        "unspecified launch failure",
        "device-fault",
        "the GPU gave the kernel up and does not say why (__trap() does that)",
    ),
)
# Rarer ones, which the driver's words say enough of (718, 721).
_OTHER_FAULTS = ("invalid program counter", "tensor memory not completely freed")
# What no kernel can bring about (CUresult: 214, 220, 226, 46, 304, 805 to 807, 810 and, for whatever the driver cannot
# name, 999): GPUs are not connected here, and where MPS lets processes share one, another's fault may end this one.
_OF_THE_MACHINE = (
    "ECC error",
    "NVLink error",
    "nvlink or a hardware error",
    "busy or unavailable",
    "OS call failed",
    "MPS client",
    "MPS server",
    "unknown error",
)


def kernel_fault(kernel: str, words: str) -> KernelFault | DeviceUnavailable:
    """Return the fault for the driver's words, such as `an illegal memory access was encountered`.

    What is the machine's own is nobody's fault: the GPU is not there any more.
    """
    if _is_of_the_machine(words):
        return _gpu_failed(words)
    if "out of memory" in words:
        return DeviceUnavailable(f"not enough GPU memory for the event after {kernel}: {words}")
    for pattern, code, what in _FAULTS:
        if pattern in words:
            return KernelFault(code, f"{kernel}: {what}")
    return KernelFault("device-fault", f"{kernel}: the GPU stopped the kernel: {words}")


def late_fault(kernel: str, words: str) -> KernelFault | DeviceUnavailable | None:
    """Return what the driver's words mean where nobody waits for a kernel; None: it was asked for what cannot be.

    Args:
        kernel: the latest that was launched and may be to blame; empty if there was none.
        words: the driver's.
    """
    of_kernels = (*(pattern for pattern, _, _ in _FAULTS), *_OTHER_FAULTS)
    if not _is_of_the_machine(words) and not any(pattern in words for pattern in of_kernels):
        return None
    return kernel_fault(kernel, words) if kernel else _gpu_failed(words)


def not_translated(words: str) -> DeviceUnavailable:
    """Return that the driver does not compile this package's own kernels, in its words."""
    if _is_of_the_machine(words):
        return _gpu_failed(words)
    what = f"the NVIDIA driver does not compile what it takes to time on this GPU: {' '.join(words.split())}"
    return DeviceUnavailable(f"{what}; is its library libnvidia-ptxjitcompiler there?")


def not_loaded(words: str) -> DeviceUnavailable:
    """Return that the driver refuses what nvcc made for this very GPU, in the driver's words."""
    if _is_of_the_machine(words):
        return _gpu_failed(words)
    what = f"the NVIDIA driver does not load what nvcc compiled for this GPU: {words}"
    return DeviceUnavailable(f"{what}; is it as new as the CUDA toolkit?")


def overtime_fault(kernel: str, limit_s: float) -> KernelFault:
    """Return the fault of a kernel that was still running after the limit."""
    return KernelFault(
        "endless-loop",
        f"{kernel}: the kernel had not ended after {limit_s:g} s (a loop that never ends, or threads that wait for "
        "each other for ever)",
    )


def _is_of_the_machine(words: str) -> bool:
    return any(pattern in words for pattern in _OF_THE_MACHINE)


def _gpu_failed(words: str) -> DeviceUnavailable:
    return DeviceUnavailable(f"the GPU itself failed, says the NVIDIA driver: {words}")
