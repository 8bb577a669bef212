"""Texture fetches, and reads and writes of surfaces, as calls of the device's textures.

Messages name a missing feature, not the opcode, which is in NVIDIA's header and not in the student's file.
"""

from typing import NoReturn

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Operand, Pair, Reg, Sym, items_of

from .block import CODES, BlockWriter, emits

_FORMS = {"1d": 1, "2d": 2, "3d": 3, "a1d": 2, "a2d": 3}
"""Coordinates per kind of texture, including the layer; PTX pads three to four."""
_RESULTS, _COORDINATES = ("f32", "s32", "u32"), ("f32", "s32")
_WITHOUT_MIPMAPS = {"level": 1, "grad": 2}
"""Words that select a level, with the number of their operands; ignored, as only textures with one level exist here."""
_VECTORS = {"v2": 2, "v4": 4}
_LEFT_OUT = {
    "cube": "textures: cube maps", "acube": "textures: cube maps", "2dms": "textures: multisampling",
    "a2dms": "textures: multisampling", "base": "textures: mipmaps", "f16": "textures: results in half precision",
    "f16x2": "textures: results in half precision",
}  # fmt: skip
_OPCODES = {
    "tld4": "textures: gathering four texels (tex2Dgather)", "txq": "textures: queries of their properties",
    "istypep": "textures: queries of their properties", "suq": "surfaces: queries of their properties",
    "sured": "surfaces: atomic operations",
}  # fmt: skip


def _refuse(what: str, instruction: Instruction) -> NoReturn:
    raise CannotSimulate(what, instruction.where)


@emits(*_OPCODES, modifiers=None)
def _left_out(b: BlockWriter, i: Instruction) -> None:
    _refuse(_OPCODES[i.op[0]], i)


@emits("tex", modifiers=None)
def _fetch(b: BlockWriter, i: Instruction) -> None:
    words = list(i.op[1:])
    for word in words:
        if word in _LEFT_OUT:
            _refuse(_LEFT_OUT[word], i)
    further = _WITHOUT_MIPMAPS.get(words[0], 0)
    form, vector, result, coordinate = words[bool(further) :]
    if form not in _FORMS or vector != "v4" or result not in _RESULTS or coordinate not in _COORDINATES:
        _refuse("textures: a fetch of this form", i)
    if len(i.operands) != 2 + further:
        _refuse("textures: offsets and comparisons of depths", i)
    handle, places = _source(b, i, i.operands[1], form, CODES[coordinate], "textures")
    site = b.names.site("texture", "read", 0, i)
    call = f"w.launch.device.textures.fetch(w, L, {site}, {handle}, [{', '.join(places)}], {form!r}, {CODES[result]})"
    _results(b, i.operands[0], call, CODES[result])


@emits("suld", modifiers=None)
def _read_surface(b: BlockWriter, i: Instruction) -> None:
    form, count, code, mode = _access(i)
    handle, places = _source(b, i, i.operands[1], form, "i4", "surfaces")
    site = b.names.site("surface", "read", int(code[1]) * count, i)
    how = f"[{', '.join(places)}], ({form!r}, {mode!r})"
    _results(b, i.operands[0], f"w.launch.device.textures.read(w, L, {site}, {handle}, {how}, {code})", code)


@emits("sust", modifiers=None)
def _write_surface(b: BlockWriter, i: Instruction) -> None:
    form, count, code, mode = _access(i)
    handle, places = _source(b, i, i.operands[0], form, "i4", "surfaces")
    values = [b.read(item, code) for item in items_of(i.operands[1])]
    site = b.names.site("surface", "write", int(code[1]) * count, i)
    how = f"[{', '.join(places)}], ({form!r}, {mode!r}), [{', '.join(values)}]"
    b.lines.append(f"w.launch.device.textures.write(w, L, {site}, {handle}, {how})")


def _access(i: Instruction) -> tuple[str, int, str, str]:
    """Return the kind of surface, the number and type of elements, and the mode outside of the surface."""
    how, form, *words, kind, mode = (word for word in i.op[1:] if word not in ("ca", "cg", "cs", "cv", "wb", "wt"))
    if how == "p":
        _refuse("surfaces: formatted stores", i)
    if how != "b" or form not in _FORMS or mode not in ("trap", "clamp", "zero") or len(words) > 1:
        _refuse("surfaces: an access of this form", i)
    return form, _VECTORS[words[0]] if words else 1, CODES[kind], mode


def _source(b: BlockWriter, i: Instruction, operand: Operand, form: str, code: str, what: str) -> tuple[str, list[str]]:
    """Return expressions for the handle and the coordinates of `[handle, {coordinates}]`."""
    items = items_of(operand)
    if len(items) != 2:
        _refuse(f"{what}: separate samplers", i)
    if isinstance(items[0], Sym):
        _refuse(f"{what}: {what[:-1]} references", i)
    places = items_of(items[1])[: _FORMS[form]]
    layered = form.startswith("a")
    codes = ["u4" if layered else code, *[code] * 2]
    return b.read(items[0], "u8"), [b.read(place, code) for place, code in zip(places, codes, strict=False)]


def _results(b: BlockWriter, target: Operand, call: str, code: str) -> None:
    """Write the values of a call to a vector. The predicate after a `|` means resident texels: always true."""
    if isinstance(target, Pair):
        assert isinstance(target.second, Reg)
        b.write(target.second, b.names.constant(1, "?"), "?")
        target = target.first
    b.write_all(target, call, code)
