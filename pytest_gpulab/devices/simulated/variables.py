"""The `__device__` and `__constant__` variables of a compiled module, in the simulated GPU's global memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from pytest_gpulab.devices.protocol import Array, CannotSimulate, CompileError, KernelFault, LaunchError
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value, first_lane
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena, invalid
from pytest_gpulab.devices.simulated.ptx.syntax import PtxModule, Variable
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.source.names import unmangle

MAX_VARIABLE_BYTES = 128 << 20  # per module; an exercise may have a dozen variants of its module
_WORD = re.compile(r"[\w$]+")


class ConstantMemory(Allocation):
    """The memory of a `__constant__` variable, which only the host writes."""

    def admit(self, lanes: Lanes, site: Site, offset: Value) -> None:
        """Raise KernelFault for a write through a pointer. The compiler makes a trap of a direct one."""
        if site.modifies:
            what = f"{invalid(site, 'global')}: constant memory is read-only"
            raise KernelFault("trap", what, site.where, first_lane(lanes, np.True_))


class Variables:
    """The variables of one module by symbol; CompileError if they take more than `MAX_VARIABLE_BYTES`."""

    def __init__(self, module: PtxModule, arena: Arena, filename: str) -> None:
        self._module = module
        declared = {name: v for name, v in module.variables.items() if v.space in ("global", "const")}
        total = sum(variable.nbytes for variable in declared.values())
        if total > MAX_VARIABLE_BYTES:
            limit = f"{MAX_VARIABLE_BYTES:,} bytes of the simulated GPU"
            raise CompileError(f"{filename}: error: the file's variables take {total:,} bytes, more than the {limit}")
        kinds = {"const": ConstantMemory, "global": Allocation}
        self._allocations = {name: arena.allocate(v.nbytes, kinds[v.space]) for name, v in declared.items()}
        self.addresses = {name: allocation.base for name, allocation in self._allocations.items()}
        self.reset()

    @property
    def allocations(self) -> Iterable[Allocation]:
        """The memory of each variable."""
        return self._allocations.values()

    @property
    def names(self) -> tuple[str, ...]:
        """The variables by their names in the source."""
        return tuple(unmangle(symbol) for symbol in self._allocations if "$" not in symbol)

    def may_keep(self, ptx: str) -> bool:
        """Return whether a launch may leave something: the PTX names a `__device__` variable beside its declaration."""
        writable = {name for name in self._allocations if self._module.variables[name].space == "global"}
        mentions = Counter(word for word in _WORD.findall(ptx) if word in writable) if writable else {}
        return any(count > 1 for count in mentions.values())

    def reset(self) -> None:
        """Give every variable the contents that it has by the source."""
        for symbol in self._allocations:
            self._initialise(self._module.variables[symbol])

    def _initialise(self, variable: Variable) -> None:
        data = self._allocations[variable.name].data
        self._allocations[variable.name].is_set = False
        data[len(variable.data) :] = 0
        data[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
        for offset, name, addend in variable.pointers:
            address = self.addresses.get(name, self._module.function_addresses.get(name))
            if address is None:
                raise CannotSimulate(f"the address of {name}")
            data[offset : offset + 8] = np.frombuffer(((address + addend) % 2**64).to_bytes(8, "little"), np.uint8)

    def read(self, name: str) -> bytes:
        """Return a variable's present contents, or raise LaunchError if there is none."""
        allocation = self._named(name)
        return allocation.data[: allocation.nbytes].tobytes()

    def set(self, name: str, values: Array) -> None:
        """Copy an array into a variable, from its first byte.

        Raises LaunchError if there is no such variable, or it is smaller than the array.
        """
        allocation = self._named(name)
        if values.nbytes > allocation.nbytes:
            raise LaunchError(f"the variable {name!r} holds {allocation.nbytes} bytes, not {values.nbytes}")
        allocation.data[: values.nbytes] = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
        allocation.is_set = True

    def _named(self, name: str) -> Allocation:
        for symbol, allocation in self._allocations.items():
            if unmangle(symbol) == name:
                return allocation
        raise LaunchError(f"the module has no variable {name!r}")
