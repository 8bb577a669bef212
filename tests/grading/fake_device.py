"""A device whose kernels are Python functions, to test what grading makes of things that kernels do.

A submission's text is the name of a `Program`; compiling it looks the program up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_gpulab.devices.protocol import (
    DEFAULT_OPTIONS,
    CompileError,
    DeviceError,
    DeviceInfo,
    KernelResources,
    LaunchError,
    LaunchOptions,
    LaunchProfile,
)

Kernel = Callable[..., dict[str, Any] | None]  # the launch's options, then its arguments; fields of the profile


@dataclass
class Program:
    """The result of compiling a source.

    Attributes:
        kernels: name to function.
        parameters: name to the size of each parameter; None as from a device that cannot tell.
        symbols: name to contents.
        has_state: whether a launch may leave something behind.
        error: raised by compiling.
        on_reset: called as the variables are to have their first contents again.
    """

    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    parameters: tuple[int, ...] | None = None
    symbols: dict[str, bytes] = field(default_factory=dict)
    error: DeviceError | None = None
    has_state: bool = True
    on_reset: Callable[[], None] = lambda: None


class FakeMemory:
    def __init__(self, device: FakeDevice, values: Any) -> None:
        self.device, self.values = device, np.array(values)
        self.report: str | None = None
        self.unwritten = False
        device.held.append(self)

    dtype = property(lambda self: self.values.dtype)
    shape = property(lambda self: self.values.shape)
    nbytes = property(lambda self: self.values.nbytes)

    def get(self) -> Any:
        return self.values.copy()

    def set(self, values: Any) -> None:
        self.values[...] = values
        self.unwritten = False

    def mark_unwritten(self) -> None:
        self.unwritten = True

    def damage(self, name: str = "array") -> str | None:
        return f"{self.report} of {name}" if self.report else None

    def free(self) -> None:
        self.device.held.remove(self)
        if self.device.broken:
            raise DeviceError("the context is gone")


class FakeModule:
    log = ""

    def __init__(self, device: FakeDevice, program: Program) -> None:
        self.device, self.program = device, program
        self.constants: dict[str, Any] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(self.program.kernels)

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(self.program.symbols)

    @property
    def has_state(self) -> bool:
        return self.program.has_state

    def read_symbol(self, name: str) -> bytes:
        return self.program.symbols[name]

    def set_constant(self, name: str, values: Any) -> None:
        self.constants[name] = np.array(values)

    def reset_variables(self) -> None:
        self.program.on_reset()

    def parameter_bytes(self, kernel: str) -> tuple[int, ...] | None:
        return self.program.parameters

    def parameter_types(self, kernel: str) -> tuple[str, ...] | None:
        return None

    def alias(self, name: str, kernel: str) -> None:
        self.program.kernels[name] = self.program.kernels[kernel]

    def resources(self, kernel: str) -> KernelResources:
        return KernelResources(registers=16, shared_bytes=0)

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_bytes: int = 0,
        options: LaunchOptions = DEFAULT_OPTIONS,
    ) -> LaunchProfile:
        self.device.launches.append((kernel, options))
        if kernel not in self.program.kernels:
            raise LaunchError(f"no kernel is called {kernel!r}")
        with np.errstate(all="ignore"):
            made = self.program.kernels[kernel](options, *args) or {}
        resources = KernelResources(registers=16, shared_bytes=0)
        return LaunchProfile(kernel, (grid[0], 1, 1), (block[0], 1, 1), **({"resources": resources} | made))


class FakeDevice:
    """Counts what it compiles (`compiled`), launches (`launches`) and holds in memory (`held`)."""

    def __init__(self, programs: Mapping[str, Program], estimates: bool = True) -> None:
        self.programs = programs
        self.compiled: list[tuple[str, str, Mapping[str, str], Mapping[str, str]]] = []
        self.launches: list[tuple[str, LaunchOptions]] = []
        self.held: list[FakeMemory] = []
        self.broken = False
        kind = "simulated" if estimates else "cuda"
        self.info = DeviceInfo(kind, "fake GPU", "fakecc 1.0", "sm_90", estimates, {"driver": "none"})

    def compile(
        self,
        source: str,
        filename: str = "kernel.cu",
        defines: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> FakeModule:
        self.compiled.append((source.strip(), filename, defines or {}, headers or {}))
        if source.strip() not in self.programs:
            raise CompileError(f"{filename}(1): error: no such program")
        program = self.programs[source.strip()]
        if program.error is not None:
            raise program.error
        return FakeModule(self, program)

    def array(self, values: Any, dtype: Any = None) -> FakeMemory:
        return FakeMemory(self, values)

    def empty(self, shape: Any, dtype: Any) -> FakeMemory:
        return FakeMemory(self, np.zeros(shape, dtype))

    def reset(self) -> None:
        self.held.clear()

    def close(self) -> None:
        self.held.clear()
