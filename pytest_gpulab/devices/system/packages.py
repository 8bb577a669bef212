"""Explanation of a failed import of NVIDIA's Python packages, in one line with the remedy."""

import sys
from importlib.util import find_spec

_NAMESPACES = ("cuda", "nvidia")
NOT_FOR_MACOS = (
    "the simulated GPU needs NVRTC, the CUDA compiler library, which NVIDIA offers for Linux and Windows, not for "
    "macOS: grade in a Linux container or on a Linux machine"
)
MISSING = (
    "NVRTC, the CUDA compiler library, is not installed: python -m pip install cuda-bindings nvidia-cuda-nvrtc "
    "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl (NVIDIA offers them for Linux and Windows)"
)


def why_not_imported(error: Exception) -> str:
    """Return the cause of a failed import of `cuda` or `nvidia`, and the remedy."""
    for name in _NAMESPACES:
        hiding = _hiding_file(name)
        if hiding:
            return f"{hiding} hides NVIDIA's package `{name}`: rename it, or start pytest in another folder"
    return f"{NOT_FOR_MACOS if sys.platform == 'darwin' else MISSING} ({error})"


def _hiding_file(name: str) -> str:
    """Return the file that Python imports in place of NVIDIA's namespace package; empty if none."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module without a specification
        return ""
    return (spec.origin or "") if spec is not None else ""
