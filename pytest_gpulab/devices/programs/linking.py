"""PTX of several source files, linked to one text as `nvlink` does it, for programs built with -rdc=true."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_COMMENT_STRING_OR_MARK = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|[{};]', re.S)
_HEADER = re.compile(r"^[ \t]*\.(?:version|target|address_size)\b[^\n]*\n", re.M)
_FILE = re.compile(r"^([ \t]*\.file[ \t]+)(\d+)([^\n]*\n)", re.M)
_FILE_NUMBER = re.compile(r"(?<=\.loc\t|\.loc )(\d+)|(?<=inlined_at )(\d+)")
_NAME = re.compile(r"[\w$]+")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DECLARED = re.compile(
    r"\s*(?:\.(?P<linkage>extern|visible|weak|common)\s+)?\.(?P<kind>entry|func|global|const|shared|section)\b"
)
_FUNCTION = re.compile(r"\.(?:entry|func)\s*(?:\([^)]*\))?\s*([\w$]+)")
_VARIABLE = re.compile(r"([\w$]+)\s*(?:\[[^\]]*\]\s*)*(?:=|;)")


class _Item(NamedTuple):
    """A declaration or definition at the top level of a text; `linkage` is empty for those of one file."""

    text: str
    kind: str = ""
    linkage: str = ""
    name: str = ""

    @property
    def is_defined(self) -> bool:
        is_function = self.kind in ("entry", "func")
        return self.linkage != "extern" and (not is_function or self.text.endswith("}"))


def link(texts: Sequence[str]) -> str:
    """Return the PTX of all files as one text.

    Names that only one file sees, and source files, get distinct names and numbers. If several files define a shared
    name, the first definition stays: it is a template or an inline function, as the host's linker refuses others.
    """
    if len(texts) == 1:
        return texts[0]
    numbered = [_numbered(text, number) for number, text in enumerate(texts)]
    declared, variables, functions = dict[str, str](), list[str](), list[str]()
    defined: dict[str, _Item] = {}
    for item in (item for text in numbered for item in _items(text)):
        if item.name and not item.is_defined:
            declared.setdefault(item.name, item.text)
            continue
        if not item.name or defined.setdefault(item.name, item) is item:
            (functions if item.kind in ("entry", "func", "section") else variables).append(item.text)
    header = "".join(_HEADER.findall(texts[0]))
    needed = [_declaration(text, defined.get(name)) for name, text in declared.items()]
    files = ["".join(match.groups()) for text in numbered for match in _FILE.finditer(text)]
    return "\n".join([header, *needed, *variables, *functions, *files])


def _declaration(text: str, defined: _Item | None) -> str:
    """Return a declaration with the linkage of its definition; empty for a variable that is defined.

    Definitions of variables stand before all functions. They may hold addresses of functions, which are declared
    before them.
    """
    if defined is None:
        return text
    return text.replace(".extern", f".{defined.linkage}", 1) if defined.kind in ("entry", "func") else ""


def _numbered(text: str, number: int) -> str:
    """Return a text with numbers of source files, and names of local functions and variables, that no other has."""
    first = 1000 * number
    text = _FILE.sub(lambda match: f"{match[1]}{first + int(match[2])}{match[3]}", text)
    text = _FILE_NUMBER.sub(lambda match: str(first + int(match[0])), text)
    local = {item.name for item in _items(text) if item.name and not item.linkage}

    def renamed(match: re.Match[str]) -> str:
        name = match[0]
        return f"{name}${number}" if name in local or name.startswith("$L__info_string") else name

    return _NAME.sub(renamed, text) if number else text


def _items(text: str) -> Iterator[_Item]:
    """Yield the declarations and definitions of a text, without its header and files."""
    text = _FILE.sub("", _HEADER.sub("", text))
    start = depth = 0
    for mark in _COMMENT_STRING_OR_MARK.finditer(text):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        so_far = text[start : mark.end()]
        if not depth and (mark[0] == ";" or (mark[0] == "}" and "=" not in _head(so_far))):
            start = mark.end()
            yield _item(so_far)


def _head(text: str) -> str:
    return _COMMENT.sub("", text.partition("{")[0])


def _item(text: str) -> _Item:
    head = _head(text)
    found = _DECLARED.match(head)
    if found is None or found["kind"] == "section":
        return _Item(text, found["kind"] if found else "")
    pattern = _FUNCTION if found["kind"] in ("entry", "func") else _VARIABLE
    name = pattern.search(head)
    return _Item(text, found["kind"], found["linkage"] or "", name[1] if name else "")
