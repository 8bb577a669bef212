"""One basic block as Python text: names, types, constants, and the table of opcodes.

The other modules of this package register their opcodes in `EMITTERS` with the supported modifiers; all other modifiers
are refused. Modules for rarely used opcodes are imported when a kernel first uses one. Registers have their declared
width, integers are unsigned. A use in another type of that width is a NumPy view, cached within the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.protocol import CannotSimulate, SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Address, Imm, Instruction, Not, Operand, Reg, Sym, items_of
from pytest_gpulab.devices.simulated.translation.control.graph import ENTER, LEAVE, MALFORMED, RETURN, refusal
from pytest_gpulab.devices.simulated.translation.sites import Site, ordering

if TYPE_CHECKING:  # imported by the kernels that need it
    from pytest_gpulab.devices.simulated.translation.analysis.retries import Retry

CODES = {
    "pred": "?", "b8": "u1", "u8": "u1", "s8": "i1", "b16": "u2", "u16": "u2", "s16": "i2", "f16": "f2", "b32": "u4",
    "u32": "u4", "s32": "i4", "f32": "f4", "b64": "u8", "u64": "u8", "s64": "i8", "f64": "f8", "f16x2": "u4",
}  # fmt: skip
"""NumPy dtype code by PTX type."""
PLAIN_FLOAT = {"add": "%s + %s", "sub": "%s - %s", "mul": "%s * %s", "neg": "-%s", "abs": "np.abs(%s)"}
"""Opcodes of float32 and float64 that are one NumPy operation."""

SPECIAL = {
    f"%{name}.{axis}": f"{owner}.{name}_{axis}"
    for name, owner in (("tid", "L"), ("ctaid", "L"), ("ntid", "w"), ("nctaid", "w"))
    for axis in "xyz"
} | {
    "%laneid": "L.laneid", "%warpid": "L.warpid", "%nwarpid": "w.nwarpid", "WARP_SZ": "w.warp_size",
    "%clock": "low(w.launch.surroundings.clock(w, L))", "%clock_hi": "high(w.launch.surroundings.clock(w, L))",
    "%clock64": "w.launch.surroundings.clock(w, L)", "%globaltimer": "w.launch.surroundings.timer(w, L)",
    "%globaltimer_lo": "low(w.launch.surroundings.timer(w, L))",
    "%globaltimer_hi": "high(w.launch.surroundings.timer(w, L))",
    "%smid": "w.launch.surroundings.multiprocessor(L)", "%nsmid": "w.launch.surroundings.sms",
    "%gridid": "w.launch.surroundings.grid",
    "%dynamic_smem_size": "w.dynamic_shared", "%total_smem_size": "w.total_shared",
    "%lanemask_eq": "lanemask('eq', L.laneid)", "%lanemask_lt": "lanemask('lt', L.laneid)",
    "%lanemask_le": "lanemask('le', L.laneid)", "%lanemask_gt": "lanemask('gt', L.laneid)",
    "%lanemask_ge": "lanemask('ge', L.laneid)",
}  # fmt: skip
# each block is a cluster of its own; see `Program.needs_cluster`
SPECIAL |= {"%cluster_ctarank": "w.zero", "%cluster_nctarank": "w.one", "%is_explicit_cluster": "w.zero"}
for _axis in "xyz":
    SPECIAL |= {f"%cluster_ctaid.{_axis}": "w.zero", f"%cluster_nctaid.{_axis}": "w.one"}
    SPECIAL |= {f"%clusterid.{_axis}": f"L.ctaid_{_axis}", f"%nclusterid.{_axis}": f"w.nctaid_{_axis}"}

VOLATILE = {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%smid", "%gridid"}
"""Special registers that differ from one read to the next, or from one launch to the next."""

Emitter = Callable[["BlockWriter", Instruction], None]
DIRECTED = {"rz", "rm", "rp"}
"""Rounding modes other than rn, rounding to nearest."""
TYPES = frozenset({*CODES, "bf16", "bf16x2", "s16x2", "u16x2", "e4m3x2", "e5m2x2"})
EMITTERS: dict[str, tuple[Emitter, frozenset[str] | None]] = {}
RARE = {
    opcode: module
    for module, opcodes in {
        "conversions": "cvt isspacep mapa getctarank",
        "floats": "sin cos ex2 lg2 tanh rsqrt copysign testp",
        "mbarriers": "mbarrier",
        "stack": f"{ENTER} {LEAVE} {RETURN}",
        "tensor_cores": "wgmma tcgen05 wmma mma ldmatrix stmatrix movmatrix",
        "textures": "tex suld sust tld4 txq istypep suq sured",
        "warps": "shfl vote match redux activemask elect bar barrier",
    }.items()
    for opcode in opcodes.split()
}
"""The module of each opcode that is not in `EMITTERS` from the start."""


def emits(*names: str, modifiers: str | None = "") -> Callable[[Emitter], Emitter]:
    """Register the function that writes these opcodes (their first word).

    `modifiers` are the supported ones, including those that change no result, without type names; None if the
    instruction has no effect here with any modifiers.
    """
    known = None if modifiers is None else frozenset(modifiers.split())

    def register(function: Emitter) -> Emitter:
        EMITTERS.update(dict.fromkeys(names, (function, known)))
        _emitter.cache_clear()
        return function

    return register


def refuse_others(instruction: Instruction, known: Set[str]) -> None:
    """Raise CannotSimulate for modifiers other than these and type names: if ignored, they would change results."""
    if (word := _first_other(instruction.op, frozenset(known))) is not None:
        raise CannotSimulate(f"the modifier .{word} of {instruction.name}", instruction.where)


@lru_cache(maxsize=4096)
def _first_other(op: tuple[str, ...], known: frozenset[str]) -> str | None:
    return next((word for word in op[1:] if word not in known and word not in TYPES), None)


@lru_cache(maxsize=4096)
def _emitter(op: tuple[str, ...]) -> tuple[Emitter | None, str | None]:
    """Return the function that writes an opcode (None if unknown), and the first unsupported modifier."""
    if op[0] in RARE and op[0] not in EMITTERS:
        import_module(f"{__package__}.{RARE[op[0]]}")
    emitter, known = EMITTERS.get(op[0], (None, None))
    return emitter, None if known is None else _first_other(op, known)


def type_code(instruction: Instruction) -> str:
    """Return the dtype code of the instruction's last type."""
    return CODES[instruction.op[-1]]


def rounding_mode(instruction: Instruction) -> str:
    """Return the rounding mode of an instruction; rn by default."""
    return next((part for part in instruction.op if part in DIRECTED), "rn")


class Names:
    """The names in generated code: registers, addresses of variables, constants, memory sites."""

    def __init__(self, registers: dict[str, str], index: dict[str, int], addresses: dict[str, int]) -> None:
        codes = {kind: self._code(kind) for kind in {*registers.values()}}
        self.codes = {name: codes[kind] for name, kind in registers.items()}
        self.index, self.registers = index, list(index)
        self.addresses = addresses
        self.namespace: dict[str, Any] = {code: np.dtype(code) for code in {*CODES.values()} - {"?"}}
        self.sites: list[Site] = []
        self.fences = self.shuffles = self.grid_syncs = self.allocates = False
        self.guesses: frozenset[int] = frozenset()  # see `analysis.loads`
        self.awaited: frozenset[int] = frozenset()
        self.retries: Mapping[int, Retry] = {}  # see `analysis.retries`
        self.sees_order = False
        self._refusals = 0
        self._constants: dict[tuple[str, int], str] = {}

    @staticmethod
    def _code(kind: str) -> str:
        code = CODES.get(kind, "")
        return code.replace("i", "u") if code else "?"

    def constant(self, value: int, code: str) -> str:
        """Return the name of a constant: an integer, or the bits of a float, in a type."""
        size = 1 if code == "?" else int(code[1])
        value &= (1 << (8 * size)) - 1
        name = self._constants.get((code, value))
        if name is None:
            name = self._constants[code, value] = f"k{len(self._constants)}"
            raw = np.frombuffer(value.to_bytes(size, "little"), np.bool_ if code == "?" else np.dtype(code))
            self.namespace[name] = raw[0]
        return name

    def refusal(self, what: str, where: SourceLine | None) -> str:
        """Return the name of a function that creates the error of a statement, raised if it is executed."""
        self._refusals += 1
        name = f"e{self._refusals}"
        self.namespace[name] = partial(CannotSimulate, what, where)
        return name

    def site(
        self, space: str, access: str, nbytes: int, instruction: Any, returns: bool = False, kind: str = ""
    ) -> str:
        """Return the name of a memory instruction's `Site`."""
        words = getattr(instruction, "op", ())
        order, releases = ordering(access, words)
        self.fences |= bool(releases)
        self.sees_order |= order != "weak"
        number = instruction.number
        site = Site(
            space, access, nbytes, instruction.where, len(self.sites), order, releases, number, returns, kind,
            number in self.guesses, number in self.awaited, number in self.retries,
            order == "strong" and "cta" in words,
        )  # fmt: skip
        self.sites.append(site)
        name = f"s{site.index}"
        self.namespace[name] = site
        return name


class BlockWriter:
    """A writer of one block's function."""

    def __init__(self, names: Names) -> None:
        self.names, self.codes = names, names.codes
        self.lines: list[str] = []
        self.locals: dict[str, str] = {}  # local with a register's current value: `r5` from the group, or `t5`
        self.aliases: dict[str, dict[str, str]] = {}  # locals with a register's value in other types
        self.dying: Sequence[str] = ()  # registers that are dead after the current statement
        self.serial = 0
        self._free: list[str] = []  # locals with dead values, for reuse
        self._expiring: list[str] = []  # locals that die with the current statement
        self.chosen: Mapping[int, tuple[int, bool]] = {}  # see `analysis.loads`
        self.unchecked: dict[int, list[tuple[str, str, bool]]] = {}  # site and address of such loads, by selection
        self.carries = False  # True once the local `carry` holds the carry flag

    def temporary(self) -> str:
        """Return a local for a value that only the current statement uses."""
        name = self._new_local()
        self._expiring.append(name)
        return name

    def _new_local(self) -> str:
        if self._free:
            return self._free.pop()
        self.serial += 1
        return f"t{self.serial}"

    def release(self) -> None:
        """End a statement: free the dead locals for reuse, which frees the memory of their values."""
        locals_, aliases, free = self.locals, self.aliases, self._free
        for register in self.dying:
            if register in aliases:
                self._forget_aliases(register)
            name = locals_.pop(register, "r")
            if name[0] == "t":
                free.append(name)
        if self._expiring:
            free += self._expiring
            self._expiring.clear()

    def _forget_aliases(self, register: str) -> None:
        self._expiring += self.aliases.pop(register).values()

    def assign(self, expression: str) -> str:
        """Bind an expression to a local of the current statement and return its name."""
        name = self.temporary()
        self.lines.append(f"{name} = {expression}")
        return name

    def keep(self, expression: str) -> str:
        """Bind an expression to a local of the block and return its name."""
        name = self._new_local()
        self.lines.append(f"{name} = {expression}")
        return name

    def _keep(self, views: dict[str, str], view: str, expression: str) -> str:
        name = views[view] = self.keep(expression)
        return name

    def local(self, register: str) -> str:
        """Return the local of a register; its first use fetches the value from the group."""
        name = self.locals.get(register)
        if name is None:
            index = self.names.index[register]
            name = self.locals[register] = f"r{index}"
            self.lines.append(f"{name} = R[{index}]")
            self.lines.append(f"if {name} is None: {name} = g.fetch({index})")
        return name

    def read(self, operand: Operand, code: str) -> str:
        """Return an expression (a local or constant) for an operand as a type."""
        if type(operand) is Reg:
            register = operand.name
            name = self.locals.get(register) or self.local(register)
            held = self.codes[register]
            return name if held == code else self._alias(register, name, held, code)
        if isinstance(operand, Imm):
            return self._immediate(operand, code)
        if isinstance(operand, Not) and code == "?":
            return f"~{self.read(operand.operand, code)}"
        if isinstance(operand, Sym):
            return self._symbol(operand, code)
        raise CannotSimulate(f"an operand of the form {type(operand).__name__}")

    def _alias(self, register: str, name: str, held: str, code: str) -> str:
        views = self.aliases.setdefault(register, {})
        if code not in views:
            if "?" in (code, held) or held[1] < code[1]:
                raise CannotSimulate(f"an operand in the register {register} of another size")
            if held[1] == code[1]:
                expression = f"{name}.view({code})"
            else:  # an 8- or 16-bit instruction uses the low part of a wider register
                expression = f"{name}.astype(u{code[1]}).view({code})"
            return self._keep(views, code, expression)
        return views[code]

    def as_f64(self, operand: Operand) -> str:
        """Return an expression for a float32 operand converted to float64, cached for a register."""
        if isinstance(operand, Imm):
            name = self._immediate(operand, "f4")
            value = np.float64(self.names.namespace[name])
            return self.names.constant(int(value.view(np.uint64)), "f8")
        if not isinstance(operand, Reg):
            return self.assign(self._converted(operand))
        views = self.aliases.setdefault(operand.name, {})
        if "f8 of f4" in views:
            return views["f8 of f4"]
        if operand.name in self.dying:
            return self._converted(operand)
        return self._keep(views, "f8 of f4", self._converted(operand))

    def _converted(self, operand: Operand) -> str:
        value = self.read(operand, "f4")
        if isinstance(operand, Reg) and self.locals[operand.name][0] == "r":
            # the wave caches it, because a value is often the same in each iteration of a loop
            return f"w.as_f64({self.names.index[operand.name]}, {value})"
        return f"{value}.astype(f8)"

    def _immediate(self, operand: Imm, code: str) -> str:
        value = operand.value
        if operand.bits == 64 and code == "f4":  # a decimal literal
            value = int(np.uint64(value).view(np.float64).astype(np.float32).view(np.uint32))
        elif operand.bits == 0 and code[0] == "f":
            value = int(np.dtype(code).type(value).view(f"u{code[1]}"))
        return self.names.constant(value, code)

    def _symbol(self, operand: Sym, code: str) -> str:
        if operand.name in SPECIAL:
            self.names.sees_order |= operand.name in VOLATILE
            views = self.aliases.setdefault(operand.name, {})
            if code not in views or operand.name in VOLATILE:
                wide = operand.name in ("%clock64", "%globaltimer", "%gridid")
                same = code[1:] == ("8" if wide else "4")
                conversion = f".view({code})" if same else f".astype(u{code[1:]}).view({code})"
                conversion = ".astype(bool)" if code == "?" else conversion
                plain = code == ("u8" if wide else "u4")
                return self._keep(views, code, SPECIAL[operand.name] + ("" if plain else conversion))
            return views[code]
        if operand.name not in self.names.addresses:
            raise CannotSimulate(f"the register or symbol {operand.name}")
        return self.names.constant(self.names.addresses[operand.name] + operand.offset, code)

    def address(self, operand: Address) -> str:
        """Return an expression for an address: an unsigned integer of its register's width."""
        if isinstance(operand.base, Reg):
            code = self.names.codes[operand.base.name]
            if code not in ("u4", "u8"):
                raise CannotSimulate(f"an address in the register {operand.base.name}")
            base = self.local(operand.base.name)
            if not operand.offset:
                return base
            return f"({base} + {self.names.constant(operand.offset, code)})"
        if isinstance(operand.base, Imm):
            return self.names.constant(operand.base.value + operand.offset, "u8")
        return self._symbol(Sym(operand.base.name, operand.base.offset + operand.offset), "u8")

    def write(self, operand: Operand, expression: str, code: str) -> None:
        """Assign an expression of a type to a register, with sign extension for a wider register."""
        if type(operand) is not Reg:
            if operand != Sym("_"):
                raise CannotSimulate(f"a result of the form {type(operand).__name__}")
            self.lines.append(expression)
            return
        register = operand.name
        held = self.codes[register]
        if code != held:
            if "?" in (code, held) or held[1] < code[1]:
                raise CannotSimulate(f"a result in the register {register} of another size")
            expression = self._convert(expression, code, held)
        name = self.locals.get(register, "r")
        if name[0] == "r":  # locals named `r` keep the group's value
            name = self.locals[register] = self._new_local()
        self.lines.append(f"{name} = {expression}")
        if register in self.aliases:
            self._forget_aliases(register)

    def write_all(self, target: Operand, call: str, code: str) -> None:
        """Assign the values of a call to the registers of a vector, all of one type; `_` discards a value."""
        values = self.assign(call)
        for number, item in enumerate(items_of(target)):
            if item != Sym("_"):
                self.write(item, f"{values}[{number}]", code)

    @staticmethod
    def _convert(expression: str, code: str, held: str) -> str:
        if code[1] == held[1]:
            return f"({expression}).view({held})"
        if code[0] == "i":
            return f"({expression}).astype(i{held[1]}).view({held})"
        return f"({expression}).view(u{code[1]}).astype(u{held[1]}).view({held})"

    def instruction(self, instruction: Instruction) -> None:
        """Write one instruction, or raise CannotSimulate with its line if opcode, type or modifier is not supported."""
        emitter, other = _emitter(instruction.op)
        if emitter is None:
            raise CannotSimulate(f"the instruction {instruction.name}", instruction.where)
        if other is not None:
            raise CannotSimulate(f"the modifier .{other} of {instruction.name}", instruction.where)
        try:
            emitter(self, instruction)
        except CannotSimulate as error:
            if error.where is None:
                raise CannotSimulate(f"{error.what} in {instruction.name}", instruction.where) from None
            raise
        except MALFORMED:  # a missing or superfluous type, operand or modifier
            raise refusal(instruction) from None
