"""Names of kernels and variables as written in the source, from the compiler's mangled symbols.

The grammar is that of the Itanium C++ ABI, section 5.1 "External Names (a.k.a. Mangling)", as far as kernels need it. A
symbol that is not mangled (`extern "C"`, plain variables), or that has another form, is returned unchanged.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

# Names of the anonymous namespace in nvcc and NVRTC; it has no name in the source.
_ANONYMOUS = ("_GLOBAL__N_", "_INTERNAL_")
_NUMBER = re.compile(r"\d{1,9}")
_LOCAL_NAME = re.compile(r".*E(\d{1,9})(\D\w*)$")
_LITERAL = re.compile(r"n?\d{1,40}E")
_BUILTIN = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "w": "wchar_t", "z": "...", "Dn": "std::nullptr_t", "Ds": "char16_t", "Di": "char32_t",
}  # fmt: skip
_IN_STD = {"Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string"}
_QUALIFIERS = {"r": "__restrict__", "V": "volatile", "K": "const"}
_WRAPPERS = {"P": "*", "R": "&", "O": "&&"}


class Signature(NamedTuple):
    """A function as written in the source."""

    name: str  # its name with namespaces, without template arguments
    arguments: str | None = None  # its template arguments; None if it is no template
    parameters: tuple[str, ...] | None = None  # the types of its parameters, such as `const int *`; None if unknown

    @property
    def instance(self) -> str:
        """The name with template arguments, such as `scan<256>`."""
        return self.name if self.arguments is None else f"{self.name}<{self.arguments}>"

    @property
    def full(self) -> str:
        """The name with template arguments and parameter types, such as `k(int *)`."""
        return self.instance if self.parameters is None else f"{self.instance}({', '.join(self.parameters)})"


def unmangle(symbol: str) -> str:
    """Return the name in the source: `_Z6reducePKiPij` gives `reduce`, `_Z4scanILi256EEvPf` gives `scan`."""
    return signature(symbol).name


def unmangle_local(symbol: str) -> str:
    """Return the name of a variable that may be local to a function: `_ZZ6reducePKiPijE4tile` gives `tile`.

    Return an empty text for the compiler's own names, such as the memory with all local arrays of a thread.
    """
    symbol = symbol.partition("~")[0]
    if symbol.startswith("_ZZ"):
        found = _LOCAL_NAME.search(symbol)
        return found[2][: int(found[1])] if found and len(found[2]) >= int(found[1]) else ""
    return "" if symbol.startswith("__local_depot") or "$" in symbol else unmangle(symbol)


@lru_cache(maxsize=4096)
def signature(symbol: str) -> Signature:
    """Return the signature of a symbol; only the name if its types have an unknown form."""
    if not symbol.startswith("_Z"):
        return Signature(symbol)
    reader = _Reader(symbol, len("_Z"))
    try:
        name, arguments = reader.function_name()
    except (_UnknownForm, RecursionError):
        return Signature(symbol)
    if not name:
        return Signature(symbol)
    try:
        return Signature(name, arguments, reader.parameters(is_template=arguments is not None))
    except (_UnknownForm, RecursionError):
        return Signature(name, arguments)


def unique_names(symbols: Iterable[str]) -> dict[str, str]:
    """Return symbols by the shortest unique names: `k`, `k<int>`, else `k(int *)`."""
    found = {symbol: signature(symbol) for symbol in symbols}
    plain = Counter(each.name for each in found.values())
    instances = Counter(each.instance for each in found.values())
    names = {}
    for symbol, each in found.items():
        if plain[each.name] == 1:
            names[each.name] = symbol
        elif instances[each.instance] == 1 and each.arguments is not None:
            names[each.instance] = symbol
        else:
            names[each.full if each.full not in names else symbol] = symbol
    return names


class _UnknownForm(Exception):
    """A symbol with a form that is not supported."""


class _Reader:
    """A reader of a symbol, from left to right; `_known` holds the parts that substitutions may refer to."""

    def __init__(self, text: str, at: int) -> None:
        self._text, self._at = text, at
        self._known: list[str] = []
        self._arguments: list[str] = []

    def _takes(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    def function_name(self) -> tuple[str, str | None]:
        if self._takes("N"):
            return self._nested()
        name = ("std::" if self._takes("St") else "") + self._source_name()
        if self._text.startswith("I", self._at):
            self._known.append(name)
            return name, self._template_arguments()
        return name, None

    def _nested(self) -> tuple[str, str | None]:
        names: list[str] = []
        arguments: str | None = None
        while self._takes("r") or self._takes("V") or self._takes("K"):
            pass
        while not self._takes("E"):
            if self._text.startswith("I", self._at):
                arguments = self._template_arguments()
                shown = f"{_joined(names)}<{arguments}>"
            elif self._text.startswith("S", self._at) and not names:
                names.append("std" if self._takes("St") else self._substitution())
                continue
            else:
                names.append(self._source_name())
                arguments, shown = None, _joined(names)
            if not self._text.startswith("E", self._at):
                self._known.append(shown)
        return _joined(names), arguments

    def _source_name(self) -> str:
        self._takes("L")  # internal linkage
        length = _NUMBER.match(self._text, self._at)
        end = length.end() + int(length.group()) if length else len(self._text) + 1
        if length is None or end > len(self._text):
            raise _UnknownForm
        name, self._at = self._text[length.end() : end], end
        return name

    def _template_arguments(self) -> str:
        self._takes("I")
        self._arguments = self._until_end(self._template_argument)
        return ", ".join(self._arguments)

    def _until_end(self, read: Callable[[], str]) -> list[str]:
        found = []
        while not self._takes("E"):
            found.append(read())
        return found

    def _template_argument(self) -> str:
        if self._takes("J"):  # a pack
            return ", ".join(self._until_end(self._template_argument))
        if not self._takes("L"):
            return self.type()
        kind = self.type()
        value = _LITERAL.match(self._text, self._at)
        if value is None:
            raise _UnknownForm
        self._at = value.end()
        digits = value.group()[:-1].replace("n", "-")
        if kind == "bool":
            return "true" if digits == "1" else "false"
        return (
            digits if kind in ("int", "unsigned int") or kind.startswith(("long", "unsigned")) else f"({kind}){digits}"
        )

    def parameters(self, is_template: bool) -> tuple[str, ...]:
        if is_template:
            self.type()  # a template's symbol begins with the return type
        found = []
        while not (self._at >= len(self._text) or self._text[self._at] in ".$"):
            found.append(self.type())
        return () if found == ["void"] else tuple(found)

    def type(self) -> str:
        text = self._text[self._at : self._at + 1]
        if text in _WRAPPERS and self._takes(text):
            inner = self.type()
            return self._new(f"{inner}{'' if inner.endswith(('*', '&')) else ' '}{_WRAPPERS[text]}")
        if text in _QUALIFIERS:
            return self._new(self._qualified())
        for length in (2, 1):
            code = self._text[self._at : self._at + length]
            if code in _BUILTIN:
                self._at += length
                return _BUILTIN[code]
        return self._named(text)

    def _qualified(self) -> str:
        words: list[str] = []
        while (code := self._text[self._at : self._at + 1]) in _QUALIFIERS and code:
            self._at += 1
            words.insert(0, _QUALIFIERS[code])
        inner = self.type()
        words = [word for word in words if word != "__restrict__"]
        if not words:
            return inner
        return f"{inner}{' '.join(words)}" if inner.endswith("*") else f"{' '.join(words)} {inner}"

    def _named(self, text: str) -> str:
        if text == "S" and self._text[self._at : self._at + 2] != "St":
            name = self._substitution()
            return self._new(f"{name}<{self._template_arguments()}>") if self._text.startswith("I", self._at) else name
        if text == "T":
            return self._new(self._one_of(self._arguments, self._numbered("T")))
        if text == "N":
            self._at += 1
            name, arguments = self._nested()
            return self._new(name if arguments is None else f"{name}<{arguments}>")
        if text == "A":
            return self._array()
        if text == "Z":
            return self._new(self._local())
        if not (text.isdigit() or self._text.startswith("St", self._at)):
            raise _UnknownForm
        name = self._new(("std::" if self._takes("St") else "") + self._source_name())
        return self._new(f"{name}<{self._inner_arguments()}>") if self._text.startswith("I", self._at) else name

    def _local(self) -> str:
        """Read a type that is local to a function, such as that of a lambda expression."""
        self._takes("Z")
        of_kernel = self._arguments
        function, _ = self.function_name()
        self._until_end(self.type)
        self._arguments = of_kernel
        if not self._takes("Ul"):
            return f"{function}::{self._source_name()}"
        parameters = self._until_end(self.type)
        shown = "" if parameters == ["void"] else ", ".join(parameters)
        return f"{function}::{{lambda({shown})#{self._numbered('') + 1}}}"

    def _inner_arguments(self) -> str:
        of_function = self._arguments
        found = self._template_arguments()
        self._arguments = of_function
        return found

    def _array(self) -> str:
        found = re.compile(r"A(\d+)_").match(self._text, self._at)
        if found is None:
            raise _UnknownForm
        self._at = found.end()
        return self._new(f"{self.type()} [{found[1]}]")

    def _new(self, name: str) -> str:
        self._known.append(name)
        return name

    def _numbered(self, sign: str) -> int:
        """Read `S_`, `S0_`, `S1_`, ... with another `sign` for S, and return the index."""
        found = re.compile(rf"{sign}([0-9A-Z]*)_").match(self._text, self._at)
        if found is None:
            raise _UnknownForm
        self._at = found.end()
        return int(found[1], 36) + 1 if found[1] else 0

    def _substitution(self) -> str:
        code = self._text[self._at : self._at + 2]
        if code in _IN_STD:
            self._at += 2
            return _IN_STD[code]
        return self._one_of(self._known, self._numbered("S"))

    @staticmethod
    def _one_of(known: list[str], number: int) -> str:
        if number >= len(known):
            raise _UnknownForm
        return known[number]


def _joined(names: Iterable[str]) -> str:
    return "::".join(name for name in names if not name.startswith(_ANONYMOUS))
