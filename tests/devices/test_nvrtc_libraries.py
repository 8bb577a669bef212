"""The compiler process loads the library that NVRTC needs, which up to 13.0 it would look for on the system's path."""

from __future__ import annotations

from pathlib import Path

from pytest_gpulab.devices.compiler import compiler_process


def test_libraries_that_nvrtc_needs_are_loaded_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libcudart.so.13"):
        (folder / name).touch()
    found = compiler_process._nvrtc_libraries([str(tmp_path / "nvidia")])
    assert [Path(path).name for path in found] == ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]


def test_without_nvidias_package_nothing_is_loaded(tmp_path: Path) -> None:
    assert compiler_process._nvrtc_libraries([str(tmp_path)]) == []
