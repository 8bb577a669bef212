"""The device code of a file, for the compilers: host code is blanked, so that lines and columns stay the same.

nvcc and NVRTC get the same text, so they agree on the removed parts. As for nvcc, a function or variable without
`__device__`, `__global__` or `__constant__` is host code. Types, constants and constexpr functions are kept if device
code names them. Includes of headers without device code are blanked as well.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from pytest_gpulab.devices.source.declarations import Declaration, Parsed, TooDeep, members, parse
from pytest_gpulab.devices.source.tokens import Macro, Token, tokens

if TYPE_CHECKING:
    from pytest_gpulab.devices.source.launched_instances import Instance


_LINE_ENDS = re.compile("\r\n?")
_MARKED_LAMBDA = re.compile(r"[^]]\]\s*__(?:host|device)__")
BYTE_ORDER_MARK = "\ufeff"
MAX_CHARS = 1 << 17  # longer texts are left to the compiler
Edit = tuple[int, int, str]  # start, end and replacement
_DELETED = " = delete;"
_OWN_HEADER = "gpulab.cuh"
_OWN_MACROS = "GPULAB_"
# CUDA's headers for device code; kernels cannot call functions of other headers
_DEVICE_HEADERS = re.compile(
    r"gpulab\.cuh|cuda/.*|nv/.*|cub/.*|cooperative_groups(?:\.h|/.*)|cuda_(?:fp|bf)\d+\.(?:h|hpp)|cuda_(?:pipeline|awbarrier)\w*\.h"
    r"|mma\.h|curand_\w+\.h|curandDx\w*|cublasdx.*|math_constants\.h|math_functions\.h|device_functions\.h|vector_(?:types|functions)\.h"
    r"|(?:device|sm_\d+)_\w+\.h|cuComplex\.h|texture_\w+\.h|surface_\w+\.h|crt/.*"
)
STANDARD_HEADERS = frozenset(
    ("algorithm", "array", "assert.h", "cassert", "cfloat", "cinttypes", "climits", "cmath", "complex", "cstdbool",
     "cstddef", "cstdint", "cstdio", "cstdlib", "cstring", "float.h", "functional",
     "initializer_list", "inttypes.h", "limits",
     "limits.h", "math.h", "new", "numeric", "optional", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h",
     "string.h", "tuple", "type_traits", "utility")
)  # fmt: skip
# Headers of libstdc++ that include <cstdint>, and its types that are not built into our compilers
_WITH_STDINT = frozenset(
    ("atomic", "bitset", "chrono", "complex", "condition_variable", "execution", "filesystem", "fstream", "future",
     "iomanip", "ios", "iostream", "istream", "iterator", "locale", "memory", "mutex", "ostream", "random", "ratio",
     "regex", "shared_mutex", "sstream", "stdexcept", "streambuf", "string", "string_view", "system_error", "thread")
)  # fmt: skip
_STDINT = frozenset(("uint8_t", "uint16_t", "uint32_t", "uint64_t", "uintptr_t", "intptr_t", "uintmax_t", "intmax_t"))
_NEVER_DEVICE = "device_launch_parameters.h"
_OF_HOSTS = re.compile(
    r"helper_\w+\.h|wb\.h|gputimer\.h|(?:thrust|sys)/.*|unistd\.h|omp\.h|mpi\.h|device_launch_parameters\.h"
    r"|cu(?:blas|fft|rand|sparse|solver|dnn)\w*\.h"
)
"""Headers without device code that programs include in quotes."""


class DeviceText(NamedTuple):
    """A file's device code."""

    text: str  # the file with blanks in place of host code
    host_lines: tuple[tuple[int, int], ...]  # first and last line of each stretch of host code
    host_names: Mapping[str, int]  # names that are declared in host code, to their lines
    headers: Mapping[str, int]  # headers that are not included, to their lines
    kernel_templates: Mapping[str, int]  # names of kernel templates, to their lines
    host_constants: frozenset[str]  # names of unmarked constants of which a kernel may need the address
    prelude: str = ""  # the include of `gpulab.cuh` if the file uses its macros, but does not include it; else empty
    references: tuple[tuple[int, str], ...] = ()  # line and name of unmarked constants to which a local variable refers
    kernel_calls: tuple[int, ...] = ()  # lines in which a kernel is called as an ordinary function


def encoding_of(contents: bytes) -> str:
    """Return the encoding of a file: UTF-8, or Latin-1, as compilers accept any bytes in a comment."""
    try:
        contents.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def normalised(source: str) -> str:
    """Return the text without a byte order mark and with line feeds as line ends.

    A backslash as the last character is a blank: it joins no line that is added to the file.
    """
    text = _LINE_ENDS.sub("\n", source.removeprefix(BYTE_ORDER_MARK))
    return text[:-1] + " " if text.endswith("\\") else text


def device_text(source: str, headers: Mapping[str, str]) -> DeviceText:
    """Return the device code of a file; `headers` are texts that it may include, by name, without `gpulab.cuh`."""
    return _device_text(source, tuple(headers), (own_header(), *headers.values()))


def kernel_templates(source: str, headers: Mapping[str, str]) -> list[Declaration]:
    """Return the kernel templates of a file with line feeds as line ends; the arguments are those of `device_text`."""
    parsed = _parsed(source, (own_header(), *headers.values()))
    return [each for each in (parsed.declarations if parsed else ()) if each.what == "kernel template"]


@lru_cache(maxsize=16)
def _device_text(source: str, names: tuple[str, ...], texts: tuple[str, ...]) -> DeviceText:
    text = normalised(source)
    parsed = _parsed(text, texts)
    if parsed is None:
        return DeviceText(text, (), {}, {}, {}, frozenset())
    instances = _launched_instances(text, parsed)
    kept = _needed(parsed, " ".join(each.name for named in instances.values() for each in named))
    dropped = [declaration for declaration in parsed.declarations if declaration not in kept]
    unread = [token for token in parsed.directives if is_unread(token, names, bool(dropped))]
    lines = _Lines(text)
    edits = [(token.start, token.end, instead_of(token, kept, text)) for token in unread]
    edits += [(token.start, token.end, "") for token in parsed.directives if _moves_lines(token)]
    if dropped:
        edits += _without_dropped(text, dropped, kept, parsed.directives, instances)
    for declaration in kept:
        if declaration.what == "class":
            edits += _without_host_members(declaration, parsed.macros)
    edits += _constant_expressions(text, [each for each in kept if each.what == "constant" and each.kind == "neutral"])
    if _MARKED_LAMBDA.search(text):
        from .lambda_marks import lambda_marks

        edits += lambda_marks(text)
    device_code = _edited(text, edits)
    constants, references = _host_constants(device_code, kept)
    return DeviceText(
        device_code,
        _stretches(lines, parsed.declarations, kept),
        {name: lines.of(d.start) for d in dropped for name in d.names},
        {header_of(token): lines.of(token.start) for token in unread},
        {name: lines.of(d.start) for d in kept if d.what == "kernel template" for name in d.names},
        constants,
        prelude(text, parsed.directives),
        references,
        tuple(lines.of(at) for at in _kernel_calls(text, kept)),
    )


def _kernel_calls(text: str, kept: Collection[Declaration]) -> Iterable[int]:
    kernels = {name for each in kept if "__global__" in each.top for name in each.names}
    if all(kernels.isdisjoint(each.words - each.names) for each in kept):  # so most files do not load the module
        return ()
    from pytest_gpulab.devices.source.kernel_calls import kernel_calls

    return kernel_calls(text, kept)


def _launched_instances(text: str, parsed: Parsed) -> Mapping[Declaration, Collection[Instance]]:
    if all(declaration.what != "kernel template" for declaration in parsed.declarations):
        return {}
    from .launched_instances import launched_instances

    return launched_instances(text, parsed)


def _without_dropped(
    text: str,
    dropped: Collection[Declaration],
    kept: Collection[Declaration],
    directives: Collection[Token],
    instances: Mapping[Declaration, Collection[Instance]],
) -> Iterator[Edit]:
    from .host_overloads import hidden_variables, host_overloads

    overloads, hidden = frozenset(host_overloads(text, dropped, kept)), dict(hidden_variables(dropped, kept))
    for declaration in dropped:
        if declaration in hidden:
            yield declaration.start, declaration.end, hidden[declaration]
        elif declaration not in overloads:
            yield from _blanked(declaration.start, declaration.end, directives, instances.get(declaration, ()))
        elif declaration.body < declaration.end:
            yield declaration.body, declaration.body + 1, ";"
            yield from _blanked(declaration.body + 1, declaration.end, directives)


def _host_constants(
    device_code: str, kept: Iterable[Declaration]
) -> tuple[frozenset[str], tuple[tuple[int, str], ...]]:
    """Return `DeviceText.host_constants` and `DeviceText.references`."""
    named = {what: set[str]() for what in ("array", "constant", "class")}
    for declaration in (each for each in kept if each.what in named and each.kind == "neutral"):
        named[declaration.what] |= declaration.names
    if not named["constant"] and not named["class"]:
        return frozenset(named["array"]), ()
    from .host_constants import bound_to_references, local_references

    found, lines = (tokens(device_code), named["constant"], named["class"]), _Lines(device_code)
    references = tuple((lines.of(at), name) for name, at in local_references(*found))
    return frozenset(named["array"]) | bound_to_references(*found), references


def _constant_expressions(text: str, constants: Collection[Declaration]) -> Iterable[Edit]:
    if not any({"float", "double"} & each.top for each in constants):
        return ()
    from .host_constants import constant_expressions

    return constant_expressions(text, constants)


def file_constants(source: str) -> frozenset[str]:
    """Return the constants and enumerators that a file declares outside namespaces and conditions."""
    text = normalised(source)
    parsed = _parsed(text, ())
    places, depth = set[int](), 0
    for token in tokens(text):
        if not depth:
            places.add(token.start)
        if token.kind == "directive":
            depth += token.text.startswith("if") - (token.text == "endif")
        elif token.kind == "sign":
            depth += (token.text == "{") - (token.text == "}")
    found = (
        each for each in (parsed.declarations if parsed else ()) if each.start in places and each.kind == "neutral"
    )
    return frozenset[str]().union(*(each.names for each in found if each.what == "constant" or "enum" in each.top))


def _parsed(text: str, headers: Iterable[str]) -> Parsed | None:
    """Parse a file; return None if it is too long or nested too deeply, which is then left to the compiler."""
    try:
        return parse(text, headers) if len(text) <= MAX_CHARS else None
    except TooDeep:
        return None


def _needed(parsed: Parsed, instances: str) -> set[Declaration]:
    """Return device code, and the neutral declarations that it or instances of it name, directly or indirectly."""
    kept = {declaration for declaration in parsed.declarations if declaration.kind == "device"}
    waiting = [declaration for declaration in parsed.declarations if declaration.kind == "neutral"]
    words: set[str] = {"operator"}
    _spread(words, (token.text for token in tokens(instances)), parsed.macros)
    fresh = set(kept)
    while fresh:
        _spread(words, (word for declaration in fresh for word in declaration.words), parsed.macros)
        parts = tuple(part for word in words & parsed.macros.keys() for part in parsed.macros[word].pasted)
        fresh = {each for each in waiting if not each.names.isdisjoint(words) or _is_pasted(each.names, parts)}
        waiting = [declaration for declaration in waiting if declaration not in fresh]
        kept |= fresh
    return kept


def _is_pasted(names: Iterable[str], parts: tuple[str, ...]) -> bool:
    return bool(parts) and any(name.startswith(parts) or name.endswith(parts) for name in names)


def _spread(words: set[str], more: Iterable[str], macros: Mapping[str, Macro]) -> None:
    """Add words, and the words of macros among them."""
    left = list(more)
    while left:
        word = left.pop()
        if word not in words:
            words.add(word)
            left += macros[word].words if word in macros else ()


def _moves_lines(directive: Token) -> bool:
    return directive.text == "line" or directive.text[:1].isdigit()


def _blanked(start: int, end: int, directives: Iterable[Token], instances: Iterable[Instance] = ()) -> Iterator[Edit]:
    """Yield the edits that blank a part of the text.

    Its directives stay, because they may affect other declarations. Instances of kernel templates are instantiated at
    their places, so that the same conditions hold.
    """
    kept = [(each.start, each.end, "") for each in directives if start <= each.start < end]
    for hole in sorted([*kept, *((each.start, each.end, each.instantiation()) for each in instances)]):
        yield start, hole[0], ""
        if hole[2]:
            yield hole
        start = hole[1]
    yield start, end, ""


def _without_host_members(declaration: Declaration, macros: Mapping[str, Macro]) -> list[Edit]:
    """Make a class's host functions and static variables unusable in device code, as with nvcc."""
    edits: list[Edit] = []
    for member in members(declaration.parts, macros):
        if member.what == "class":
            edits += _without_host_members(member, macros)
        elif member.kind == "host" and member.what == "declaration" and "static" in member.top:
            edits.append((member.start, member.end, member.unusable))
        elif not _is_host_function(member):
            continue
        elif member.top & {"friend", "~"} or "std" in member.words:
            edits.append((member.start, member.end, ""))
        else:
            end = member.end - (member.body == member.end)  # keep the semicolon
            edits.append((min(member.body, end), member.end, _DELETED))
    return edits


def _is_host_function(member: Declaration) -> bool:
    is_function = member.kind == "host" and member.what == "function"
    return is_function and member.top.isdisjoint(("default", "delete", "virtual", "override", "final", "0"))


def _edited(text: str, edits: Iterable[Edit]) -> str:
    """Replace parts of a text; line ends stay, and columns stay if the replacement is not longer."""
    pieces, at = [], 0
    for start, end, instead in sorted(edits):
        if start < at:
            continue
        blank = re.sub(r"[^\n]", " ", text[start:end])
        room = blank[: len(instead)].partition("\n")[0]
        pieces += [text[at:start], instead, blank[len(room) :]]
        at = end
    return "".join([*pieces, text[at:]])


class _Lines:
    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def of(self, at: int) -> int:
        return bisect_left(self._ends, at) + 1


def _stretches(
    lines: _Lines, declarations: Iterable[Declaration], kept: Collection[Declaration]
) -> tuple[tuple[int, int], ...]:
    """Return the lines of host code; a gap of one line belongs to it, but not device code."""
    found: list[tuple[int, int]] = []
    is_behind_host_code = False
    for declaration in declarations:
        first, last = lines.of(declaration.start), lines.of(declaration.end)
        if declaration in kept:
            is_behind_host_code = False
        elif found and first <= found[-1][1] + (2 if is_behind_host_code else 0):
            found[-1] = found[-1][0], max(last, found[-1][1])
            is_behind_host_code = True
        else:
            found.append((first, last))
            is_behind_host_code = True
    return tuple(found)


def shown(filename: str) -> str:
    """Return the name with a question mark for each unprintable character, such as line ends and invalid bytes.

    A leading hyphen is replaced as well, because NVRTC would read the name as an option.
    """
    name = "".join(sign if sign.isprintable() else "?" for sign in filename)
    return f"?{name[1:]}" if name.startswith("-") else name


def line_one(filename: str) -> str:
    """Return a `#line` directive: diagnostics and line tables then count lines of that file from 1."""
    quoted = shown(filename).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{quoted}"\n'


@lru_cache(maxsize=1)
def own_header() -> str:
    """Return the text of `gpulab.cuh`."""
    return (resources.files("pytest_gpulab") / "include" / _OWN_HEADER).read_text(encoding="utf-8")


def header_of(directive: Token) -> str:
    """Return the name that a directive includes."""
    return "".join(token.text for token in directive.within[1:]).strip('<>"')


def instead_of(directive: Token, kept: Iterable[Declaration], text: str) -> str:
    """Return an include to put in place of one of a header without device code; empty if device code needs none.

    Device code may use the types of `cstdint`, which headers of the host include, or test `cuda.h`'s CUDA_VERSION.
    """
    if header_of(directive) == "cuda.h":
        return "#include <cuda.h>" if "CUDA_VERSION" in text else ""
    has_types = header_of(directive) in _WITH_STDINT and any(each.words & _STDINT for each in kept)
    return "#include <cstdint>" if has_types else ""


def is_unread(directive: Token, given: Iterable[str], has_host_code: bool) -> bool:
    """Return whether a directive includes a header that device code cannot use, so that it is left out.

    Absolute and relative paths are left to the compiler. So are quoted names of unknown files, which the compiler
    reports as missing: always if they end in `.cuh` or `.cu`, others if the file has no host code that may need them.
    """
    operand = directive.within[1:2]
    if directive.text != "include" or not operand or not (operand[0].text == "<" or operand[0].kind == "string"):
        return False
    name = header_of(directive)
    if name in given or name == _OWN_HEADER or name.startswith(("/", "~", ".")) or ".." in name:
        return False
    if operand[0].kind == "string" and not _OF_HOSTS.fullmatch(name):
        return has_host_code and not name.endswith((".cuh", ".cu"))
    return name not in STANDARD_HEADERS and (name == _NEVER_DEVICE or not _DEVICE_HEADERS.fullmatch(name))


def prelude(text: str, directives: Iterable[Token]) -> str:
    """Return the include of `gpulab.cuh` if a file uses its macros, but does not include it; else nothing."""
    is_included = any(token.text == "include" and header_of(token) == _OWN_HEADER for token in directives)
    return "" if is_included or _OWN_MACROS not in text else f"#include <{_OWN_HEADER}>\n"
