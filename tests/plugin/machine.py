"""A machine that lacks something, which messages are provoked on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from course import RIGHT, Course

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable


@dataclass
class Machine:
    """A machine on which a message is provoked."""

    course: Course
    patch: pytest.MonkeyPatch
    folder: Path

    def graded(self, *options: str, source: str = RIGHT) -> str:
        """Return what pytest prints where a kernel is graded, the right one unless told otherwise."""
        self.course.write("twice.cu", source)
        result = self.course.pytest("--gpulab", "-rs", *options, "twice.cu")
        return "\n".join(result.outlines + result.errlines)

    def without(self, what: str) -> str:
        """Return why a GPU cannot be opened: PyCUDA does not load."""
        self.broken(what)
        return unavailable()

    def broken(self, what: str) -> None:
        """Let there be a PyCUDA that does not load; it warns of versions that do not match as the real one does."""
        package = self.folder / "pycuda"
        package.mkdir()
        (package / "__init__.py").touch()
        warned = "import warnings; warnings.warn('Failed to import the CUDA driver interface', stacklevel=2)\n"
        (package / "driver.py").write_text(f"{warned if '_v2' in what else ''}raise ImportError({what!r})")
        self.patch.syspath_prepend(self.folder)
        for name in ("pycuda", "pycuda.driver"):
            self.patch.delitem(sys.modules, name, raising=False)

    def gpus(self, count: int, words: str = "") -> None:
        """Let there be a driver with so many GPUs, or one that refuses."""
        driver = ModuleType("pycuda.driver")

        def init() -> None:
            if words:
                raise driver.Error(f"cuInit failed: {words}")

        vars(driver).update(Error=OSError, init=init, Device=SimpleNamespace(count=lambda: count))
        self.patch.setitem(sys.modules, "pycuda", ModuleType("pycuda"))
        self.patch.setitem(sys.modules, "pycuda.driver", driver)

    def gpu_to_look_at(self) -> None:
        """Let there be a GPU for the header."""
        gpu = SimpleNamespace(info=DeviceInfo("cuda", "a GPU", "nvcc", "sm_90", estimates=False), close=lambda: None)
        self.patch.setattr("pytest_gpulab.devices._open_cuda", lambda *asked: gpu)
        self.patch.setenv("PATH", str(self.folder))


def unavailable(spec: str = "cuda") -> str:
    with pytest.raises(DeviceUnavailable) as caught:
        open_device(spec)
    return str(caught.value)
