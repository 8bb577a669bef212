"""Layout of variables and parameters in shared, local and parameter memory."""

from __future__ import annotations

from pytest_gpulab.devices.simulated.ptx.syntax import Function, Instruction, PtxModule, Sym, Variable

from .calls.inline import function_address
from .calls.recursion import STACK_AREA
from .sites import LOCAL_WINDOW, SHARED_WINDOW

RESERVED = "%reserved_smem_offset_1"  # memory of cooperative groups, for tiles of several warps
RESERVED_BYTES = 1024  # as on compute capability 8.0 and later; cooperative groups use 288


class Layout:
    """The offsets of variables in shared and local memory, and of parameters."""

    def __init__(self, module: PtxModule, kernel: Function, addresses: dict[str, int]) -> None:
        self.addresses = dict(addresses)
        self.addresses["shared window"], self.addresses["local window"] = SHARED_WINDOW, LOCAL_WINDOW
        for name, function in module.functions.items():
            if not function.entry:
                self.addresses[name] = function_address(module, name)
        shared = [v for v in (*module.variables.values(), *kernel.variables.values()) if v.space == "shared"]
        reserved = [Variable(RESERVED, "shared", RESERVED_BYTES, RESERVED_BYTES)] if _names(kernel, RESERVED) else []
        self.reserved = sum(variable.nbytes for variable in reserved)
        self.shared = self._place([*reserved, *(v for v in shared if v.nbytes)])
        dynamic = -(-self.shared // 16) * 16
        self.addresses.update({v.name: dynamic for v in shared if not v.nbytes})
        local = [v for v in kernel.variables.values() if v.space == "local"]
        self.local = self._place(local)
        self.banked = {v.name: (v.space, self.addresses[v.name], v.nbytes) for v in (*shared, *local)}
        frames = self.banked.pop(STACK_AREA, None)
        self.stack = frames[1:] if frames is not None else None
        self.parameters = self._parameters(kernel.parameters)

    def _place(self, variables: list[Variable]) -> int:
        end = 0
        for variable in variables:
            start = -(-end // variable.align) * variable.align
            self.addresses[variable.name] = start
            end = start + variable.nbytes
        return end

    def _parameters(self, variables: tuple[Variable, ...]) -> tuple[tuple[int, int], ...]:
        self._place(list(variables))
        return tuple((self.addresses[variable.name], variable.nbytes) for variable in variables)


def _names(kernel: Function, symbol: str) -> bool:
    """Return whether an operand of a kernel is this symbol."""
    instructions = (statement for statement in kernel.body if isinstance(statement, Instruction))
    operands = (operand for instruction in instructions for operand in instruction.operands)
    return any(type(operand) is Sym and operand.name == symbol for operand in operands)
