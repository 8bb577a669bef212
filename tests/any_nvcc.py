"""nvcc on the PATH, else that of the packages which the tests require."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_gpulab.devices.compiler.nvrtc import include_folders
from pytest_gpulab.devices.cuda.nvcc.compile import _OPTIONS
from pytest_gpulab.devices.errors import DeviceUnavailable
from pytest_gpulab.devices.programs.toolchain import find_toolchain

INCLUDE = Path(__file__).parents[1] / "pytest_gpulab" / "include"

try:
    NVCC = str(find_toolchain(prefer_toolkit=True).nvcc)
except DeviceUnavailable:
    NVCC = ""
IS_OF_PACKAGES = "site-packages" in NVCC
needs_nvcc = pytest.mark.skipif(not NVCC, reason="there is no nvcc or g++ for this system")


def by_nvcc(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Compile a source as the grader's nvcc does, in a folder that may hold further headers."""
    (folder / "a.cu").write_text(source)
    folders = (
        INCLUDE,
        folder,
        *(path for path in include_folders() if "site-packages" in NVCC and path.name == "cccl"),
    )
    command = [NVCC, "-cubin", "-arch=sm_90", *_OPTIONS, *(f"-I{path}" for path in folders), *options, "a.cu"]
    return subprocess.run([*command, "-o", "a.cubin"], cwd=folder, capture_output=True, text=True, check=False)
