"""Splitting of PTX text into statements: comments are removed, strings stay whole."""

from __future__ import annotations

import re

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
    """Split a text without comments at each `;`, `{`, `}` and string.

    Directives that end with their line get a semicolon.

    Returns:
        Pairs of the text before a separator and the separator.
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
