"""Shared by the tests of the simulated GPU: the type of their `run` fixture, and marked lines of a source."""

from __future__ import annotations

from collections.abc import Callable

from pytest_gpulab.devices.protocol import LaunchProfile, SourceLine

Run = Callable[..., LaunchProfile]


def marked(source: str, marker: str = "// HERE") -> SourceLine:
    """Return the place of the only line that carries the marker, in a source compiled under the default file name."""
    lines = [number for number, line in enumerate(source.splitlines(), 1) if marker in line]
    (line,) = lines
    return SourceLine("kernel.cu", line)
