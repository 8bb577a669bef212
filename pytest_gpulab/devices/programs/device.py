"""The simulated GPU as a program sees it: memory in a shared file, modules from the PTX in the executable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpulab.devices.compiler.machine_code import MachineBinary, machine_binary
from pytest_gpulab.devices.cuda.nvcc.toolkit import tools_of
from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated.device import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.memory.heap import Heap
from pytest_gpulab.devices.simulated.memory.spaces import Allocation
from pytest_gpulab.devices.simulated.memory.textures import Textures
from pytest_gpulab.devices.simulated.module import SimulatedModule
from pytest_gpulab.devices.simulated.variables import dynamic_arrays, static_shared_bytes

from .build_cache import built
from .shared_memory import SharedArena
from .toolchain import Toolchain, messages_of

if TYPE_CHECKING:
    from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess

Within = Callable[[Path], Sequence[str]]


class ProgramDevice(SimulatedDevice):
    """The simulated GPU of a program; ptxas, run `within` a sandbox (see `assemble`), gives registers and machine code.

    `capacity` is the bytes of device memory; None for no limit.
    """

    def __init__(
        self, gpu: Gpu, toolchain: Toolchain, capacity: int | None = None, within: Within = lambda folder: ()
    ) -> None:
        super().__init__(gpu)
        self.toolchain, self.within = toolchain, within
        self.arena: SharedArena = SharedArena(capacity)
        self.textures = Textures(self.arena)

    def _version_of(self, compiler: CompilerProcess | None) -> str:
        """Return an empty text: nvcc has compiled the program, so NVRTC is not loaded."""
        return ""

    @cached_property
    def heap(self) -> Heap:
        """The heap of all launches: a kernel may use what an earlier one has allocated."""
        return Heap(self.arena, LaunchOptions.fill)


class ProgramModule(SimulatedModule):
    """A module of a program: PTX that nvcc has made, so it is assembled only where registers or counts are needed."""

    def __init__(self, device: ProgramDevice, ptx: str) -> None:
        self._ptx, self._toolchain, self._within = ptx, device.toolchain, device.within
        super().__init__(device, ptx, "", ("", "program.cu"))
        self._variables.mark_unset_constants()
        self._shown = {entry.name: name for name, entry in self._entries.items()}

    def kernel(self, symbol: str) -> str | None:
        """Return the unmangled name of a kernel, or None if there is no such kernel."""
        return self._shown.get(symbol)

    def kernel_at(self, address: int) -> str:
        """Return the unmangled name of the kernel at an address; see `PtxModule.function_addresses`."""
        return self._shown[{at: name for name, at in self._module.function_addresses.items()}[address]]

    def packed_parameters(self, kernel: str, buffer: bytes) -> bytes:
        """Return a kernel's parameters without the gaps of their layout in memory."""
        found, at = b"", 0
        for parameter in self._entry(kernel).parameters:
            at = -(-at // parameter.align) * parameter.align
            found += buffer[at : at + parameter.nbytes]
            at += parameter.nbytes
        return found

    def variable(self, symbol: str) -> Allocation | None:
        """Return the memory of a variable by its symbol, or None."""
        address = self._variables.addresses.get(symbol)
        return None if address is None else self._device.arena.find(address)

    def static_shared_bytes(self, kernel: str) -> int:
        """Return the static shared memory of a kernel."""
        return static_shared_bytes(self._module, self._entry(kernel))

    def dynamic_arrays(self, kernel: str) -> list[str]:
        """Return the names of the `extern __shared__` arrays that a kernel uses."""
        return dynamic_arrays(self._module, self._entry(kernel))

    def most_threads(self, kernel: str) -> int | None:
        """Return the limit of threads per block by the kernel's launch bounds, if it has any."""
        return self._bounds.get(self._entry(kernel).name)

    def _check_assembly(self, ptx: str) -> None:
        """No-op: nvcc has assembled it."""

    def _binary(self, architecture: str) -> MachineBinary:
        if architecture not in self._binaries:
            self._binaries[architecture] = assemble(self._toolchain, self._ptx, architecture, self._within)
        return self._binaries[architecture]


def assemble(toolchain: Toolchain, ptx: str, architecture: str, within: Within) -> MachineBinary:
    """Return the machine code of PTX, which may come from the cache, or raise CompileError if ptxas rejects it.

    For a sandbox, `within` makes the beginning of the command line from the folder of the files.
    """
    ptxas = tools_of(str(toolchain.nvcc)) / "ptxas"

    def produce(folder: Path) -> Iterable[Path]:
        (folder / "module.ptx").write_text(ptx, encoding="utf-8")
        options = (f"-arch={architecture}", "-v", "--generate-line-info", "module.ptx", "-o", "module.cubin")
        log = messages_of([*within(folder), str(ptxas), *options], folder)
        (folder / "log").write_text(log, encoding="utf-8")
        return ()

    key = ("ptxas", *toolchain.identity, architecture, sha256(ptx.encode()).hexdigest())
    folder = built(key, produce)
    return machine_binary((folder / "module.cubin").read_bytes(), (folder / "log").read_text(encoding="utf-8"))
