"""The `Device` protocol on an NVIDIA GPU: compile with nvcc, allocate, describe."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from .. import nvml
from ..protocol import CompileError, DeviceInfo, DeviceUnavailable
from .context import PrimaryContext
from .driver import find_nvcc, load_driver
from .memory import CudaMemory
from .module import CudaModule

_INCLUDE_DIR = Path(__file__).parents[2] / "include"
_NVCC_OPTIONS = ("-std=c++17", "--generate-line-info")


class CudaDevice:
    """One GPU through PyCUDA.

    Args:
        ordinal: the device's number in CUDA's order.
        launch_limit_s: a kernel that runs longer is reported as one that never ends.

    Raises:
        DeviceUnavailable: PyCUDA, the driver, nvcc or the device is missing; says which and how to get it.
    """

    def __init__(self, ordinal: int = 0, launch_limit_s: float = 10.0) -> None:
        driver = load_driver()
        count = driver.Device.count()
        if not 0 <= ordinal < count:
            raise DeviceUnavailable(f"there is no CUDA device {ordinal}: this machine has {count}, numbered from 0")
        self._nvcc = find_nvcc()
        self._context = PrimaryContext(driver, ordinal, launch_limit_s)
        self._arrays: WeakSet[CudaMemory] = WeakSet()
        major, minor = self._context.gpu.compute_capability()
        self._info = DeviceInfo(
            kind="cuda",
            name=self._context.gpu.name(),
            compiler=_nvcc_version(self._nvcc),
            architecture=f"sm_{major}{minor}",
            estimates=False,
            details={"PyCUDA": version("pycuda"), **nvml.rows(self._context.gpu.pci_bus_id())},
        )

    @property
    def info(self) -> DeviceInfo:
        """What to print about it."""
        return self._info

    def compile(
        self,
        source: str,
        filename: str = "kernel.cu",
        defines: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> CudaModule:
        """Compile CUDA C++ for this GPU with nvcc; see `Device.compile`.

        Raises:
            CompileError: with nvcc's own message, which names `filename`.
        """
        with TemporaryDirectory(prefix="gpulab-") as folder:
            for name, text in (headers or {}).items():
                (Path(folder) / name).write_text(text)
            cubin, log = self._nvcc_cubin(with_prelude(source, filename, defines or {}), folder)
        return CudaModule(self._context, cubin, log)

    def _nvcc_cubin(self, source: str, headers_dir: str) -> tuple[bytes, str]:
        from pycuda import compiler

        driver = self._context.driver
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                cubin = compiler.compile(
                    source,
                    nvcc=self._nvcc,
                    options=list(_NVCC_OPTIONS),
                    no_extern_c=True,
                    arch=self._info.architecture,
                    cache_dir=False,  # PyCUDA's cache is neither written atomically nor bounded
                    include_dirs=[str(_INCLUDE_DIR), headers_dir],
                )
            except driver.CompileError as error:
                _remove_leftovers(error.msg)
                raise CompileError(diagnostics(error.stdout, error.stderr)) from None
        return cubin, diagnostics(*(str(warning.message).partition(":\n")[2] for warning in caught))

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> CudaMemory:
        """Allocate and fill an array."""
        contents = np.asarray(values, dtype)
        memory = self.empty(contents.shape, contents.dtype)
        memory.set(contents)
        return memory

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> CudaMemory:
        """Allocate an array with undefined contents."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        memory = CudaMemory(self._context, extents, dtype)
        self._arrays.add(memory)
        return memory

    def reset(self) -> None:
        """Free every array of this device."""
        for memory in list(self._arrays):
            memory.free()
        self._arrays.clear()

    def close(self) -> None:
        """Give everything back; the device cannot be used afterwards."""
        self.reset()
        self._context.close()


def with_prelude(source: str, filename: str, defines: Mapping[str, str]) -> str:
    """Return the source behind its macro definitions, with diagnostics that name the student's file.

    Definitions in the text, unlike those on a command line, pass through no shell whatever they contain.
    """
    lines = [f"#define {name} {' '.join(value.splitlines())}\n" for name, value in defines.items()]
    quoted = filename.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(lines) + f'#line 1 "{quoted}"\n' + source


def diagnostics(*outputs: str | bytes | None) -> str:
    """Join what the compiler said; PyCUDA hands it over as text, bytes or None, depending on what failed."""
    texts = [output.decode("utf-8", "replace") if isinstance(output, bytes) else output or "" for output in outputs]
    return "\n".join(text.strip() for text in texts if text.strip())


def _remove_leftovers(message: str) -> None:
    """Remove the folder that PyCUDA leaves behind when nvcc fails."""
    found = re.search(r"nvcc compilation of (.+) failed", message)
    if found:
        shutil.rmtree(Path(found.group(1)).parent, ignore_errors=True)


def _nvcc_version(nvcc: str) -> str:
    from pycuda.compiler import get_nvcc_version

    found = re.search(r"\bV(\d+(?:\.\d+)+)", get_nvcc_version(nvcc))
    return f"nvcc {found.group(1)}" if found else "nvcc (unknown version)"
