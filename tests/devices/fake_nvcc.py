"""Stand-ins for nvcc, and for the part of PyCUDA that starts it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc
from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable


class DriversCompileError(Exception):
    """Stands for `pycuda.driver.CompileError`."""

    def __init__(self, msg: str, stdout: str, stderr: str) -> None:
        super().__init__(msg)
        self.msg, self.stdout, self.stderr = msg, stdout, stderr


def compiled_by_pycuda(
    source: str, nvcc: str, options: list[str], arch: str, include_dirs: list[str], target: str, **more: Any
) -> bytes:
    """Do what PyCUDA does: in a new folder, which stays when nvcc fails."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kernel.cu").write_text(source)
    command = [nvcc, f"--{target}", *options, "-arch", arch, *(f"-I{name}" for name in include_dirs), "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
    if done.returncode:
        raise DriversCompileError(f"nvcc compilation of {folder}/kernel.cu failed", done.stdout, done.stderr)
    made = (folder / f"kernel.{target}").read_bytes()
    shutil.rmtree(folder)
    return made


class Compiler:
    """An `Nvcc` that runs a shell script; kernels that nothing is wrong with are its own matter."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.script = folder, folder / "nvcc"
        headers = folder / "include/crt"
        headers.mkdir(parents=True)
        (headers / "math_functions.h").write_text("float sqrtf(float x);\n")
        self.says("exit 1")
        self.nvcc = Nvcc(cache=Cache(folder / "cache"))

    def says(self, text: str, trial: str = "echo code >kernel.cubin; exit") -> None:
        told = f"""[ $1 = --dryrun ] && {{ echo '#$ INCLUDES="-I{self.folder}/include"' >&2; exit; }}"""
        runs = f"echo run >>'{self.folder}/runs'"
        tried = f"grep -qs 'void trial' kernel.cu && {{ echo \"$@\" >>'{self.folder}/trials'\n{trial}\n}}"
        self.script.write_text(f"#!/bin/sh\n{told}\n{tried}\n{runs}\n{text}\n")
        self.script.chmod(0o700)

    def says_of_all(self, words: str) -> None:
        """Let no kernel compile, whatever it is."""
        says = f"cat <<'EOF' >&2\n{words}\nEOF\nexit 1"
        self.says(says, says)

    def cubin(self, source: str, **defines: str) -> bytes:
        return self.nvcc.cubin(source, "k.cu", "sm_90", defines, {})[0]

    def said(self, source: str, **defines: str) -> str:
        with pytest.raises(CompileError) as caught:
            self.cubin(source, **defines)
        return caught.value.diagnostics

    @property
    def runs(self) -> int:
        return (self.folder / "runs").read_text().count("run")

    @property
    def trials(self) -> list[str]:
        """The arguments of each."""
        trials = self.folder / "trials"
        return trials.read_text().splitlines() if trials.exists() else []

    def missing(self, source: str, **defines: str) -> str:
        with pytest.raises(DeviceUnavailable) as caught:
            self.cubin(source, **defines)
        return str(caught.value)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Return a compiler in a folder, which is what is found from now on."""
    pycuda_for(monkeypatch)
    monkeypatch.setattr("pytest_gpulab.devices.compiler.sandbox.refusal", lambda: "bubblewrap is not for stand-ins")
    for name in ("tools", "cache", "temporary"):
        (folder / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    monkeypatch.setenv("PATH", f"{folder / 'tools'}:/usr/bin:/bin")
    return Compiler(folder / "tools")


def pycuda_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be as much of PyCUDA as compiling takes."""
    package, starter = types.ModuleType("pycuda"), types.ModuleType("pycuda.compiler")
    driver: Any = types.ModuleType("pycuda.driver")
    driver.CompileError = DriversCompileError
    package.compiler, package.driver = starter, driver  # type: ignore[attr-defined]
    starter.compile = compiled_by_pycuda  # type: ignore[attr-defined]
    starter.get_nvcc_version = lambda path: "release 13.0, V13.0.88"  # type: ignore[attr-defined]
    for module in (package, starter, driver):
        monkeypatch.setitem(sys.modules, module.__name__, module)
