"""The variables of a compiled module: their contents in the simulated GPU's memory, and the limits of their sizes.

Limits are those of memory spaces, of registers, and of blocks by `__launch_bounds__`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from pytest_gpulab.devices.hardware.architectures import CONSTANT_BYTES, LOCAL_BYTES, SHARED_BYTES, SmLimits
from pytest_gpulab.devices.protocol import Array, CannotSimulate, CompileError, KernelFault, LaunchError, SourceLine
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value, first_lane
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena, invalid
from pytest_gpulab.devices.simulated.ptx.syntax import (
    Address,
    Call,
    Function,
    Instruction,
    Operand,
    PtxModule,
    Sym,
    Variable,
)
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.source.names import unmangle, unmangle_local

MOST_REGISTERS = 256  # of a thread, as allocated: an instruction has 8 bits to name one of 255
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{;]*)\{")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+([\d,\s]+)")
_BOUND = re.compile(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)")


def oversized(module: PtxModule, filename: str) -> str | None:
    """Return the compiler's error message if a memory space is too small, else None."""
    constants = [variable for variable in module.variables.values() if variable.space == "const"]
    if (needed := _total(constants)) > CONSTANT_BYTES:
        return _too_much(filename, _largest_first(constants), "global constant", needed, CONSTANT_BYTES)
    kernels = (function for function in module.functions.values() if function.entry)
    if _total(_declared(module, "shared")) <= SHARED_BYTES and _total(_declared(module, "local")) <= LOCAL_BYTES:
        return None
    return next((message for kernel in kernels if (message := _of_kernel(module, kernel, filename))), None)


def static_shared_bytes(module: PtxModule, kernel: Function) -> int:
    """Return the static shared memory of a kernel and its functions, in bytes."""
    return _total(_used(module, _reachable(module, kernel), "shared"))


def dynamic_arrays(module: PtxModule, kernel: Function) -> list[str]:
    """Return the names of the `extern __shared__` arrays that a kernel and its functions use."""
    arrays = _used(module, _reachable(module, kernel), "shared")
    return [unmangle_local(array.name) or unmangle(array.name) for array in arrays if not array.nbytes]


def may_exceed_registers(module: PtxModule, kernel: Function, threads: int, bound: int, limits: SmLimits) -> bool:
    """Return whether a block may need too many registers: ptxas needs fewer than half as many as PTX names.

    It gives no thread more than `MOST_REGISTERS`, and fewer where the launch bounds, `bound` threads, require it.
    """
    if threads <= max(bound, limits.registers // MOST_REGISTERS):
        return False
    functions = [function for function in module.functions.values() if not function.entry]
    kinds = [kind for function in (kernel, *functions) for kind in function.registers.values()]
    return threads * sum(2 if kind.endswith("64") else kind != "pred" for kind in kinds) > 2 * limits.registers


def launch_bounds(ptx: str) -> dict[str, int]:
    """Return the largest block that `__launch_bounds__` allows, in threads, for the kernels that have it."""
    bounds = {}
    for entry in _ENTRY.finditer(ptx):
        if bound := _BOUND.search(entry[3]):
            bounds[entry[1]] = prod(map(int, bound[1].split(",")))
    return bounds


def clustered_kernels(ptx: str) -> frozenset[str]:
    """Return the kernels with `__cluster_dims__` of several blocks."""
    found = ((entry[1], _CLUSTER.search(entry[3])) for entry in _ENTRY.finditer(ptx))
    return frozenset(name for name, bound in found if bound and prod(map(int, bound[1].split(","))) > 1)


def check_registers(kernel: str, threads: int, registers: int, limits: SmLimits) -> None:
    """Raise LaunchError if a multiprocessor has too few registers for one block."""
    from pytest_gpulab.devices.hardware.occupancy import BlockNeeds, blocks_by_resource

    if not blocks_by_resource(limits, BlockNeeds(threads, registers, 0))["registers"]:
        needed = f"{registers} registers per thread, {registers * threads:,} for a block of {threads} threads"
        raise LaunchError(f"{kernel} needs {needed}; a block may have {limits.registers:,}")


def _of_kernel(module: PtxModule, kernel: Function, filename: str) -> str | None:
    functions = _reachable(module, kernel)
    arrays = _used(module, functions, "shared")
    if (needed := _total(arrays)) > SHARED_BYTES:
        where = next((line for line in _mentions(functions, max(arrays, key=lambda array: array.nbytes).name)), None)
        place = filename if where is None else f"{where.file}({where.line})"
        return _too_much(place, _largest_first(arrays), "shared", needed, SHARED_BYTES)
    if (needed := _total(_used(module, functions, "local"))) > LOCAL_BYTES:
        return _too_much(filename, [f"`{unmangle(kernel.name)}`"], "local", needed, LOCAL_BYTES)
    return None


def _too_much(place: str, names: Iterable[str], kind: str, needed: int, most: int) -> str:
    from pytest_gpulab.devices.compiler.static_limits import too_much

    return f"{place}: error: {too_much(names, kind, needed, most)}"


def _declared(module: PtxModule, space: str) -> list[Variable]:
    places = [module.variables, *(function.variables for function in module.functions.values())]
    return [variable for place in places for variable in place.values() if variable.space == space]


def _reachable(module: PtxModule, kernel: Function) -> list[Function]:
    """Return a kernel and the functions that it may call. A function pointer may point to any function."""
    found, waiting = {kernel.name: kernel}, [kernel]
    while waiting:
        calls = [statement for statement in waiting.pop().body if isinstance(statement, Call)]
        names = [call.callee.name for call in calls if isinstance(call.callee, Sym)]
        if len(names) < len(calls):
            names += [function.name for function in module.functions.values() if not function.entry]
        for name in names:
            if name in module.functions and name not in found:
                found[name] = module.functions[name]
                waiting.append(found[name])
    return list(found.values())


def _used(module: PtxModule, functions: list[Function], space: str) -> list[Variable]:
    """Return the variables of a memory space that functions declare, and the file's variables that they name."""
    own = [variable for function in functions for variable in function.variables.values() if variable.space == space]
    shared = {name: variable for name, variable in module.variables.items() if variable.space == space}
    return own + [shared[name] for name in shared if any(True for _ in _mentions(functions, name))]


def _mentions(functions: Iterable[Function], name: str) -> Iterator[SourceLine | None]:
    """Yield the lines of the instructions that name a variable."""
    for function in functions:
        for statement in function.body:
            if isinstance(statement, Instruction) and any(_names(operand, name) for operand in statement.operands):
                yield statement.where


def _names(operand: Operand, name: str) -> bool:
    if isinstance(operand, Address):
        operand = operand.base
    return isinstance(operand, Sym) and operand.name == name


def _total(variables: Iterable[Variable]) -> int:
    """Return the size of consecutive variables in bytes, with padding."""
    end = 0
    for variable in variables:
        end = -(-end // variable.align) * variable.align + variable.nbytes
    return end


def _largest_first(variables: list[Variable]) -> list[str]:
    ordered = sorted((variable for variable in variables if variable.nbytes), key=lambda variable: -variable.nbytes)
    return [f"`{unmangle_local(variable.name) or variable.name}`" for variable in ordered][:3]


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
        self._allocations = {name: arena.allocate(v.nbytes, kinds[v.space], v.align) for name, v in declared.items()}
        self.addresses = {name: allocation.base for name, allocation in self._allocations.items()}
        self.reset()

    @property
    def allocations(self) -> Iterable[Allocation]:
        """The memory of each variable."""
        return self._allocations.values()

    def mark_unset_constants(self) -> None:
        """Let a check find reads of constants that the source gives no value, until the host has copied some."""
        for symbol, allocation in self._allocations.items():
            if isinstance(allocation, ConstantMemory) and not any(self._module.variables[symbol].data):
                allocation.mark_unwritten()

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
        allocation = self._allocations[variable.name]
        allocation.is_set = False
        allocation.clear()
        data = allocation.data
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
        """Copy an array into a variable; raise LaunchError if there is none, or it is smaller than the array."""
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
