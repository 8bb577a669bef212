"""Pieces of PTX text: statements without comments, variable declarations, number literals."""

from __future__ import annotations

import re
import struct

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import TYPE_BYTES, Imm, Variable

# one alternation, so that the first opening wins: `// /*` is a line comment, and `"//"` a string
_COMMENT_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LINE_DIRECTIVE = re.compile(r"^[ \t]*\.(?:version|target|address_size|file|loc)\b[^\n]*", re.M)
_PIECE = re.compile(r'([^;{}"]*)("(?:[^"\\\n]|\\.)*"|[;{}"]|\Z)', re.S)
_OPENING, _CLOSING = "([{", ")]}"


def without_comments(text: str) -> str:
    """Return the text with a space in place of each comment, as in the assembler."""
    return _COMMENT_OR_STRING.sub(lambda match: match[0] if match[0][0] == '"' else " ", text)


def pieces(text: str) -> list[tuple[str, str]]:
    """Split a text without comments at each `;`, `{`, `}` and string, into pairs of the text before and the separator.

    Directives that end with their line get a semicolon.
    """
    text = _LINE_DIRECTIVE.sub(lambda match: match[0] + ";", text)
    if any(separator in string for string in _STRING.findall(text) for separator in ";{}"):
        return _PIECE.findall(text)
    found = []
    for statement in text.split(";"):  # most have no other separator
        if "{" in statement or "}" in statement or '"' in statement:
            found += _PIECE.findall(f"{statement};")[:-1]
        else:
            found.append((statement, ";"))
    return [*found[:-1], (found[-1][0], "")]


def parts(text: str) -> list[str]:
    """Split at commas outside of brackets, and strip the parts."""
    return [part.strip() for part in split(text)]


def split(text: str | None) -> list[str]:
    """Split at commas outside of brackets; the parts may keep surrounding spaces."""
    if not text or text.isspace():
        return []
    if "{" not in text and "[" not in text and "(" not in text:
        return text.split(",")
    parts, start, depth = [], 0, 0
    for index, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


VARIABLE = re.compile(
    r"(?:\.(?:extern|visible|weak|common)\s+)*\.(?P<space>global|const|shared|local|param)"
    r"(?:\s*\.attribute\([^)]*\))?(?:\s*\.align\s+(?P<align>\d+))?(?:\s*\.ptr(?:\s*\.\w+)*(?:\s*\.align\s+\d+)?)?"
    r"\s*\.(?P<type>\w+)(?:\s*\.ptr(?:\s*\.(?:global|const|shared|local))?(?:\s*\.align\s+\d+)?)?"
    r"\s+(?P<name>[\w$%]+)(?P<dims>(?:\s*\[\s*\d*\s*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.S,
)


def immediate(text: str) -> Imm:
    """Parse a number: decimal, octal, hexadecimal, or a float written in digits or as its bits."""
    sign = -1 if text[0] == "-" else 1
    body = text.lstrip("+-")
    if body[:2] in ("0f", "0F"):
        return Imm(_float_bits(body, 32) ^ (0x80000000 if sign < 0 else 0), 32)
    if body[:2] in ("0d", "0D"):
        return Imm(_float_bits(body, 64) ^ (1 << 63 if sign < 0 else 0), 64)
    if "." in body or (("e" in body or "E" in body) and not body.lower().startswith("0x")):
        return Imm(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    body = body.rstrip("U")
    if len(body) > 1 and body[0] == "0" and body.isdigit():
        return Imm(sign * int(body, 8))
    return Imm(sign * int(body, 0))


def _float_bits(text: str, bits: int) -> int:
    if len(text) != 2 + bits // 4:
        raise ValueError(text)
    return int(text[2:], 16)


def variable_of(text: str) -> Variable:
    """Parse the declaration of a variable or parameter; raise CannotSimulate or ValueError if it is invalid."""
    match = VARIABLE.match(text.strip())
    if match is None:
        raise CannotSimulate(f"the PTX declaration {text.strip()[:80]!r}")
    size = TYPE_BYTES.get(match["type"], 8)
    count = 1
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", match["dims"]):
        count *= int(dimension or 0)
    data, pointers = _initialiser(match["init"], size) if match["init"] else (b"", ())
    align = int(match["align"] or size)
    nbytes = size * count or len(data)
    if len(data) > nbytes or not align or align & (align - 1) or (pointers and size != 8):
        raise ValueError(text)
    return Variable(match["name"], match["space"], align, nbytes, data, pointers)


def _initialiser(text: str, size: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    """Return the initial bytes, and (byte offset, symbol, addend) per address in them."""
    data = bytearray()
    pointers = []
    for item in filter(None, map(str.strip, re.sub("[{}]", " ", text).split(","))):
        name = re.match(r"(?:generic\(([\w$]+)\)|([A-Za-z_$][\w$]*))(?:\s*\+\s*(\d+))?$", item)
        if name:
            pointers.append((len(data), name[1] or name[2], int(name[3] or 0)))
            data += bytes(size)
            continue
        value = immediate(item).value
        data += (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    return bytes(data), tuple(pointers)
