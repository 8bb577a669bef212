"""Translation of the driver's errors for students."""

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault


class DriverRefusal(Exception):
    """An error of the driver through cuda-bindings, with the driver's text; PyCUDA has its own exceptions."""


# PyCUDA's errors have no numbers, so the driver's text is matched (cuda.h, CUresult: 700, 716, 717, 714, 710, 702,
# 715, 719).
_FAULTS = (
    ("illegal memory access", "out-of-bounds", "a thread accessed memory that belongs to no array"),
    ("misaligned address", "misaligned", "a thread accessed memory at a misaligned address"),
    ("not supported on global/shared", "out-of-bounds", "a thread accessed memory that belongs to no array"),
    ("hardware stack error", "stack-overflow", "the calls of device functions need more stack than a thread has"),
    ("device-side assert", "assert", "an assert() in the kernel failed (its message was printed by the driver)"),
    ("launch timed out", "endless-loop", "the driver stopped the kernel because it ran too long"),
    ("illegal instruction", "trap", "the kernel stopped itself with __trap()"),
    ("unspecified launch failure", "device-fault", "the GPU stopped the kernel without a reason (__trap() does that)"),
)
# Rarer faults, for which the driver's text is clear enough (718, 721).
_OTHER_FAULTS = ("invalid program counter", "tensor memory not completely freed")
# Errors that no kernel can cause (CUresult: 214, 220, 226, 46, 304, 805 to 807, 810, and 999 for an unknown cause):
# graders do not use NVLink, and under MPS a fault of another process may end this one.
_MACHINE_ERRORS = (
    "ECC error", "NVLink error", "nvlink or a hardware error", "busy or unavailable", "OS call failed", "MPS client",
    "MPS server", "unknown error",
)  # fmt: skip


def kernel_fault(kernel: str, words: str) -> KernelFault | DeviceUnavailable:
    """Return the fault for the driver's text, such as `an illegal memory access was encountered`.

    A machine error is not the kernel's fault: the GPU is unavailable then.
    """
    if _is_machine_error(words):
        return _gpu_failed(words)
    if "out of memory" in words:
        return DeviceUnavailable(f"not enough GPU memory for the event after {kernel}: {words}")
    for pattern, code, what in _FAULTS:
        if pattern in words:
            return KernelFault(code, f"{kernel}: {what}")
    return KernelFault("device-fault", f"{kernel}: the GPU stopped the kernel: {words}")


def late_fault(kernel: str, words: str) -> KernelFault | DeviceUnavailable | None:
    """Return the fault behind an error of a driver call other than a wait for a kernel; None if the call was invalid.

    The latest kernel, if there was one, may have caused it; `words` are the driver's.
    """
    of_kernels = (*(pattern for pattern, _, _ in _FAULTS), *_OTHER_FAULTS)
    if not _is_machine_error(words) and not any(pattern in words for pattern in of_kernels):
        return None
    return kernel_fault(kernel, words) if kernel else _gpu_failed(words)


def not_translated(words: str) -> DeviceUnavailable:
    """Return the error for own kernels that the driver does not compile, with its text."""
    if _is_machine_error(words):
        return _gpu_failed(words)
    what = f"the NVIDIA driver does not compile the timing kernels for this GPU: {' '.join(words.split())}"
    return DeviceUnavailable(f"{what}; is its library libnvidia-ptxjitcompiler installed?")


def not_loaded(words: str) -> DeviceUnavailable:
    """Return the error for a compiled file that the driver does not load, with its text."""
    if _is_machine_error(words):
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


def _is_machine_error(words: str) -> bool:
    return any(pattern in words for pattern in _MACHINE_ERRORS)


def _gpu_failed(words: str) -> DeviceUnavailable:
    return DeviceUnavailable(f"the GPU itself failed, says the NVIDIA driver: {words}")
