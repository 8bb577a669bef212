"""Explanations of compiler messages: host code in kernels, invisible characters, missing headers."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.source.host_code import DeviceText
from pytest_gpulab.devices.source.tokens import tokens, words_of
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding, Verdict

from .host_uses import host_use
from .language_hints import language_hint

_NAMES = {
    "\u00a0": "a no-break space", "\u200b": "a zero-width space", "\u2060": "a word joiner",
    "\ufeff": "a byte order mark", "\u00ad": "a soft hyphen", "\u2018": "a curly quotation mark",
    "\u2019": "a curly quotation mark", "\u201c": "a curly quotation mark", "\u201d": "a curly quotation mark",
    "\u201e": "a low quotation mark", "\u2013": "a dash, no minus sign", "\u2014": "a dash, no minus sign",
    "\u2212": "a typographic minus sign", "\u037e": "a Greek question mark, no semicolon",
    "\u00d7": "a multiplication sign",
}  # fmt: skip
_ADDED = "gpulab_"  # the beginning of names in lines that the grader adds
_LOOK_ALIKES = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοАВЕЅІЈКМНОРСТУХаеорсухіјѕ"
_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")


def lacks_header(header: str, error: CompileError) -> Finding:
    """Return the finding of a file that needs a header that the CUDA installation lacks."""
    what = f"The CUDA installation of this machine lacks the header `{header}`."
    hint = "Your file is not at fault: please tell your instructor."
    return finding("not-graded", what, "", error.diagnostics.splitlines(), hint)


def messages_of_file(diagnostics: str, filename: str, lines: int) -> str:
    """Return the compiler's messages without those on lines after the file's end, which the grader has added."""
    message = re.compile(rf"^{re.escape(filename)}\((\d+)\): [^\n]*\n(?:[ \t]*\n|[ \t][^\n]*\n)*", re.M)
    return message.sub(lambda found: found[0] if int(found[1]) <= lines or _ADDED not in found[0] else "", diagnostics)


def of_compile_error(
    error: CompileError, code: DeviceText, source: str, filename: str, headers: Mapping[str, str]
) -> tuple[Verdict, Finding]:
    """Return the verdict and the finding of a file that does not compile."""
    verdict, found = of_error(error)
    unseen = strange_sign(source, filename)
    if unseen is not None:
        return verdict, unseen
    host = host_use(error.diagnostics, code, source, filename)
    if host is not None and verdict == "failed":
        unread = [f"not read: `{header}` (line {line})" for header, line in code.headers.items() if "/" not in header]
        return verdict, replace(host, evidence=(*host.evidence, *unread))
    hint = _hint(error.diagnostics, source, filename, headers)
    if large := _LARGE_CONSTANTS.search(error.diagnostics):
        found = replace(found, where=f"{filename}:{_line_of_constant(source, large[1])}")
    return verdict, found if hint is None else replace(found, hint=hint)


_LARGE_CONSTANTS = re.compile(r": error: (?:`(\w+)`|the file)[^\n]* bytes of constant memory; the limit")


def _line_of_constant(source: str, name: str | None) -> int:
    """Return the line of a `__constant__` variable, or of the first one if the compiler names none; else 1."""
    words = [piece for token in tokens(source) for piece in token.within or (token,) if piece.kind == "word"]
    marks = (at for at, word in enumerate(words) if word.text == "__constant__")
    ends = (next((word for word in words[at:] if name in (None, word.text)), None) for at in marks)
    return next((_place(source, word.start)[0] for word in ends if word is not None), 1)


_PASTED = (
    (
        re.compile("^(?:<{7}|>{7})(?= |$)", re.M),
        "a mark of a merge conflict. Keep one of the versions, and delete the marks.",
    ),
    (re.compile("^ *```", re.M), "from a Markdown text, not from a program. Delete it."),
    (re.compile(r"^ *{\\rtf", re.M), "that of an RTF file. Save the file as plain text."),
)
_UNDEFINED = re.compile(r'error: identifier "(\w+)" is undefined')
_EXPLAINED = (
    ("is called, but not defined", "The grader compiles this file alone: define the function in it, marked "
     "`__device__`."),
    (r"\A.*dynamic initialization is not supported", "A kernel can use only a constant of known value: write it as a "
     "number, or pass it to the kernel."),
    (r"\A.*Universal character is not allowed in device entity name", "Names of kernels, device functions and global "
     "variables may have only the letters a to z, without accents."),
    (_LARGE_CONSTANTS, "A `__device__` array is in global memory, where there is room for a larger table."),
    (r"\A[^^]*error: [^^]*\b(?:uint3|dim3)\b", "`threadIdx`, `blockIdx`, `blockDim` and `gridDim` have three parts, "
     "such as `threadIdx.x`."),
)  # fmt: skip
"""A pattern in the messages, up to the first mark of a column for the last one, and the hint for it."""
_BUILT_IN = (
    "__syncthreads", "__syncwarp", "threadIdx", "blockIdx", "blockDim", "gridDim", "atomicAdd", "__threadfence",
    "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "float", "unsigned",
    "double", "return",
)  # fmt: skip
_WITHOUT_MASK = re.compile(r'identifier "(__(?:shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot))" is undefined')
_UNOPENED = re.compile(r'(?:could not|cannot) open source file "([^"\n]+)"|fatal error: ([^:\n]+): No such file')
_UNCLOSED = re.compile(
    r'^At end of source: error: expected a "}"\n(?:[^\n]*\((\d+)\): note [^\n]*to match this "{")?', re.M
)


def _hint(diagnostics: str, source: str, filename: str, headers: Mapping[str, str]) -> str | None:
    """Return a hint for a mistake that the compiler's first message does not explain."""
    for sign, words in _PASTED:
        if pasted := sign.search(source):
            return f"Line {_place(source, pasted.start())[0]} is {words}"
    if explained := next((hint for message, hint in _EXPLAINED if re.search(message, diagnostics)), None):
        return explained
    if old := _WITHOUT_MASK.search(diagnostics):
        new = f"{old[1]}_sync"
        return f"`{old[1]}` is now `{new}`. Its first argument is the mask of the lanes, 0xffffffff for a whole warp."
    if about_language := language_hint(diagnostics, source, filename):
        return about_language
    if unclosed := _UNCLOSED.search(diagnostics):
        begin = f"in line {unclosed[1]} or after it" if unclosed[1] else "in the file"
        return f"A closing brace is missing: a `{{` {begin} has no `}}`."
    if (unopened := _UNOPENED.search(diagnostics)) and f'"{unopened[1] or unopened[2]}"' in source:
        name = unopened[1] or unopened[2]
        if near := _nearly(name, headers):
            return f"Is `{near}` meant?"
        return f"The grader compiles this file alone: move the code of `{name}` that the kernels need into it."
    undefined = set(_UNDEFINED.findall(diagnostics))
    needed = (name for name, text in headers.items() if f'"{name}"' not in source and undefined & words_of(text))
    if header := next(needed, None):
        return f'Include the exercise\'s header: #include "{header}"'
    return _meant(diagnostics, source)


def _meant(diagnostics: str, source: str) -> str | None:
    """Return a question about the name that is meant if the first undefined one is nearly a known one."""
    first = _UNDEFINED.search(diagnostics)
    known = (*_BUILT_IN, *sorted(word for word in words_of(source) if len(word) > 3))
    near = _nearly(first[1], [word for word in known if word != first[1]]) if first else None
    return f"Is `{near}` meant?" if near else None


def _nearly(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a misspelt one; None if none is nearly the same."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), 1, 0.8)), None)


def strange_sign(source: str, filename: str) -> Finding | None:
    """Return the finding of the first invisible or look-alike character in the code; comments may hold any."""
    for token in tokens(source):
        for piece in token.within or (token,):
            at, sign = next(_strange_signs(piece.text), (0, ""))
            if sign and piece.kind != "string":
                line, column = _place(source, piece.start + at)
                name = _NAMES.get(sign) or unicodedata.name(sign, "a control character").lower()
                what = f"The file does not compile: line {line}, column {column} holds {name} (U+{ord(sign):04X})."
                hint = "Delete it, and type a plain letter, space, quotation mark, semicolon or minus sign there."
                return finding("compile-error", what, f"{filename}:{line}", hint=hint)
    return None


def _strange_signs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the signs of a token, with their places, that are no letters of a name, or that look like other letters.

    A name in another alphabet, such as Greek, may have letters that look like Latin ones, but not beside those.
    """
    is_mixed = all(sign.isascii() or sign in _LOOK_ALIKES for sign in text)
    for at, sign in enumerate(text):
        if sign.isascii():
            is_strange = unicodedata.category(sign) in _UNSEEN and sign not in " \t\n\v\f"
        else:
            is_plain = unicodedata.normalize("NFKC", sign).isascii()
            is_strange = is_plain or not f"a{sign}".isidentifier() or (is_mixed and sign in _LOOK_ALIKES)
        if is_strange:
            yield at, sign


def _place(source: str, at: int) -> tuple[int, int]:
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)
