"""A compiled source on the GPU: its kernels, variables, resources and launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytest_gpulab.devices.compiler.elf import read_names
from pytest_gpulab.devices.hardware.occupancy import BlockNeeds, KernelOccupancy, occupancy_of
from pytest_gpulab.devices.protocol import (
    DEFAULT_OPTIONS,
    Array,
    KernelResources,
    LaunchError,
    LaunchOptions,
    LaunchProfile,
    Memory,
)
from pytest_gpulab.devices.source.names import signature
from pytest_gpulab.devices.stopwatch import KernelLaunch

from .context import PrimaryContext
from .driver import driver_words, gpu_memory_full
from .faults import DriverRefusal, not_loaded
from .memory import CudaMemory
from .queries import InspectedModule, limits_of_current_gpu

LOADS = 2  # of each cubin: for PyCUDA, and for the queries through cuda-bindings
FITS_SHARE = 0.9  # usable share of a GPU's memory; the driver needs the rest
_Extents = tuple[int, int, int]


class CudaModule:
    """The `Module` protocol on a GPU; created by `CudaDevice.compile`."""

    has_state = True  # a kernel on a GPU may keep state anywhere

    def __init__(self, context: PrimaryContext, cubin: bytes, log: str) -> None:
        self._context = context
        self.log, self._cubin = log, cubin
        self._names = read_names(cubin)
        self.kernels, self.symbols = tuple(sorted(self._names.kernels)), tuple(sorted(self._names.variables))
        """The `__global__` functions by their unmangled names; the `__device__` and `__constant__` variables."""
        self._symbols = dict(self._names.kernels)
        self._kernels: dict[str, _Kernel] = {}
        self._is_used = False  # True if variables may differ from their initial values
        with context.at_work():
            with self._explained():
                self._module = context.driver.module_from_buffer(cubin)
                self._inspected = InspectedModule(cubin)
            self._limits = limits_of_current_gpu()
        self._occupancies: dict[tuple[str, int, int], KernelOccupancy | None] = {}
        context.users.add(self)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Translate errors of the driver that loads the compiled file.

        Raises LaunchError if the file needs more memory than the GPU has, and DeviceUnavailable if other processes fill
        the GPU's memory, or the driver does not support the file.
        """
        try:
            yield
        except (self._context.driver.Error, DriverRefusal) as error:
            self._refuse_for_others(error, LOADS * self._names.variables_bytes, "the compiled file")
            words = driver_words(error)
            if self._is_full(error):
                raise LaunchError(f"the GPU cannot load the compiled file: {words}") from None
            raise not_loaded(words) from None

    def read_symbol(self, name: str) -> bytes:
        """Return a variable's present contents; see `protocol.Module.read_symbol`."""
        with self._context.current():
            address, nbytes = self._variable(name)
            contents = np.empty(nbytes, np.uint8)
            self._context.driver.memcpy_dtoh(contents, address)
        return contents.tobytes()

    def reset_variables(self) -> None:
        """Reset all variables to their initial values: load the compiled file again.

        The driver finds variables only by name, and not the static ones of functions; loading resets all. Raises
        LaunchError or DeviceUnavailable if GPU memory is full.
        """
        if not self._is_used or not self._names.variables:
            return
        with self._context.at_work(), self._explained():
            self._module = self._context.driver.module_from_buffer(self._cubin)
            self._kernels.clear()  # references would keep the old module and its memory
        self._is_used = False

    def set_constant(self, name: str, values: Array) -> None:
        """Copy an array into a variable; see `protocol.Module.set_constant`."""
        self._is_used = True
        with self._context.at_work():
            address, nbytes = self._variable(name)
            if values.nbytes > nbytes:
                raise LaunchError(f"variable {name!r} holds {nbytes} bytes, too few for {values.nbytes}")
            self._context.driver.memcpy_htod(address, np.ascontiguousarray(values))

    def parameter_bytes(self, kernel: str) -> tuple[int, ...] | None:
        """Return the size of each parameter, None with an old driver; see `protocol.Module.parameter_bytes`."""
        return self._kernel(kernel).parameter_bytes

    def parameter_types(self, kernel: str) -> tuple[str, ...] | None:
        """Return the types of the kernel's parameters; see `protocol.Module.parameter_types`."""
        return signature(self._symbol(kernel, self._symbols, "kernel")).parameters

    def alias(self, name: str, kernel: str) -> None:
        """Give a kernel another name; see `protocol.Module.alias`."""
        self._symbols[name] = self._symbol(kernel, self._symbols, "kernel")
        self._kernels.pop(name, None)

    def resources(self, kernel: str) -> KernelResources:
        """Return the compiler's figures for a kernel; see `protocol.Module.resources`."""
        return self._kernel(kernel).resources

    def occupancy(self, kernel: str, block_threads: int, shared_bytes: int = 0) -> KernelOccupancy | None:
        """Return the theoretical occupancy as the driver computes it for this GPU; None if it cannot.

        Raises LaunchError if there is no such kernel.
        """
        key = (kernel, block_threads, shared_bytes)
        if key not in self._occupancies:
            self._occupancies[key] = self._query_occupancy(*key)
        return self._occupancies[key]

    def _query_occupancy(self, kernel: str, block_threads: int, shared_bytes: int) -> KernelOccupancy | None:
        symbol = self._symbol(kernel, self._symbols, "kernel")
        with self._context.current():
            blocks = self._inspected.resident_blocks(symbol, block_threads, shared_bytes)
            suggested = self._inspected.suggested_block(symbol, shared_bytes)
        if blocks is None:
            return None
        resources = self.resources(kernel)
        needs = BlockNeeds(block_threads, resources.registers, (resources.shared_bytes or 0) + shared_bytes)
        major, minor = self._context.gpu.compute_capability()
        return occupancy_of(f"sm_{major}{minor}", self._limits, kernel, needs, blocks, suggested)

    def check_launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], shared_bytes: int = 0) -> None:
        """Check a launch against the GPU's limits; see `protocol.LaunchLimits`."""
        with self._context.current():
            self._check_block(_Call(kernel, _three(grid), _three(block), shared_bytes), self._kernel(kernel))

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Memory | np.generic],
        shared_bytes: int = 0,
        options: LaunchOptions = DEFAULT_OPTIONS,
    ) -> LaunchProfile:
        """Run a kernel to its end; see `protocol.Module.launch`.

        Its printf output goes to the process's stdout, not into the profile. A fault makes the device unusable.
        """
        call = _Call(kernel, _three(grid), _three(block), shared_bytes)
        self._check_arguments(call, args)
        with self._context.at_work():
            for arg in args:
                if isinstance(arg, CudaMemory):
                    arg.guard()
            self._starter(call, args)()
            self._context.wait(kernel)
        found = self.occupancy(kernel, prod(call.block), shared_bytes)
        return LaunchProfile(
            kernel,
            call.grid,
            call.block,
            occupancy=None if found is None else found.occupancy,
            kernel_occupancy=found,
            resources=self.resources(kernel),
        )

    def prepared(self, call: KernelLaunch) -> Callable[[], None]:
        """Return a function that enqueues a launch without waiting; call it with the same context current.

        Raises LaunchError if the arguments or extents do not match the kernel.
        """
        checked = _Call(call.kernel, _three(call.grid), _three(call.block), call.shared_bytes)
        self._check_arguments(checked, call.args)
        return self._starter(checked, call.args)

    def _starter(self, call: _Call, args: Sequence[Memory | np.generic]) -> Callable[[], None]:
        kernel = self._kernel(call.kernel)
        self._check_block(call, kernel)
        values = [_by_value(arg) for arg in args]

        def start() -> None:
            self._is_used = True
            self._context.launches += 1
            self._context.latest = call.kernel
            try:
                kernel.function(*values, grid=call.grid, block=call.block, shared=call.shared_bytes)
            except self._context.driver.Error as error:
                self._context.wait(call.kernel)  # raises the fault of an earlier kernel, if that is the cause
                stacks_bytes = (kernel.resources.local_bytes or 0) * self._attribute("MULTIPROCESSOR_COUNT")
                stacks_bytes *= self._attribute("MAX_THREADS_PER_MULTIPROCESSOR")
                self._refuse_for_others(error, stacks_bytes, f"the stacks of {call.kernel}")
                message = f"the GPU refuses to launch {call.kernel!r} with grid {call.grid} and block {call.block}"
                raise LaunchError(f"{message}: {driver_words(error)}") from None

        return start

    def _refuse_for_others(self, error: Exception, needed_bytes: int, what: str) -> None:
        """Raise DeviceUnavailable if other processes fill the GPU's memory, which is large enough for these needs."""
        if self._is_full(error) and needed_bytes < FITS_SHARE * self._context.gpu.total_memory():
            raise gpu_memory_full(what, error) from None

    def _is_full(self, error: Exception) -> bool:
        return isinstance(error, self._context.driver.MemoryError) or "out of memory" in str(error)

    def _check_arguments(self, call: _Call, args: Sequence[Memory | np.generic]) -> None:
        given = tuple(8 if isinstance(arg, CudaMemory) else arg.nbytes for arg in args)
        wanted = self.parameter_bytes(call.kernel)
        if wanted is None or wanted == given:
            return
        if len(wanted) != len(given):
            count = f"{len(wanted)} parameter{'' if len(wanted) == 1 else 's'}"
            raise LaunchError(f"kernel {call.kernel!r} has {count}; the launch passes {len(given)}")
        index = next(index for index, sizes in enumerate(zip(wanted, given, strict=True)) if sizes[0] != sizes[1])
        raise LaunchError(
            f"parameter {index + 1} of kernel {call.kernel!r} has {wanted[index]} bytes; "
            f"the argument has {given[index]}"
        )

    def _check_block(self, call: _Call, kernel: _Kernel) -> None:
        threads, resources = prod(call.block), kernel.resources
        if threads > kernel.most_threads:
            raise LaunchError(
                f"a block of {threads} threads is too large for kernel {call.kernel!r}, which can have at most "
                f"{kernel.most_threads} ({resources.registers} registers per thread)"
            )
        if call.shared_bytes == kernel.allowed_bytes:
            return
        limit_bytes = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") - (resources.shared_bytes or 0)
        if call.shared_bytes > limit_bytes:
            raise LaunchError(
                f"kernel {call.kernel!r} requests {call.shared_bytes} bytes of dynamic shared memory; the GPU allows "
                f"{limit_bytes}"
            )
        # By default the driver allows only 48 KiB, on every GPU.
        limit = self._context.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        kernel.function.set_attribute(limit, call.shared_bytes)
        kernel.allowed_bytes = call.shared_bytes

    def _kernel(self, name: str) -> _Kernel:
        if name not in self._kernels:
            symbol = self._symbol(name, self._symbols, "kernel")
            with self._context.current():
                parameter_bytes = self._inspected.parameter_bytes(symbol)
                self._kernels[name] = _Kernel(self._module.get_function(symbol), parameter_bytes)
        return self._kernels[name]

    def _variable(self, name: str) -> tuple[int, int]:
        address, nbytes = self._module.get_global(self._symbol(name, self._names.variables, "variable"))
        return int(address), int(nbytes)

    @staticmethod
    def _symbol(name: str, known: Mapping[str, str], what: str) -> str:
        if name not in known:
            raise LaunchError(f"no {what} is called {name!r}; the source has: {', '.join(sorted(known)) or 'none'}")
        return known[name]

    def _attribute(self, name: str) -> int:
        return int(self._context.gpu.get_attribute(getattr(self._context.driver.device_attribute, name)))


class _Kernel:
    """A kernel with the driver's facts, queried once, with the context current: others wait while a kernel is timed."""

    def __init__(self, function: Any, parameter_bytes: tuple[int, ...] | None) -> None:
        self.function, self.parameter_bytes = function, parameter_bytes
        self.resources = KernelResources(
            function.num_regs, function.shared_size_bytes, function.local_size_bytes, function.const_size_bytes
        )
        self.most_threads = int(function.max_threads_per_block)  # in a block
        self.allowed_bytes: int | None = None  # the limit of dynamic shared memory last set


class _Call(NamedTuple):
    kernel: str
    grid: _Extents
    block: _Extents
    shared_bytes: int


def _by_value(arg: Memory | np.generic) -> Any:
    """Return an argument that PyCUDA can pack: it supports all NumPy scalars but bool."""
    if isinstance(arg, CudaMemory):
        return np.uintp(arg.address)
    return np.uint8(arg) if isinstance(arg, np.bool_) else arg


def _three(extents: Sequence[int]) -> _Extents:
    x, y, z = (*map(int, extents), 1, 1)[:3]
    return x, y, z
