"""A file with other values of its tunables, for a sweep over them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_gpulab.devices.source.host_code import encoding_of, file_constants
from pytest_gpulab.devices.source.tokens import Token, tokens, words_of

from .signature import READ_BACK, declarations

Edit = tuple[int, int, str]
_OPENERS = ("=", "{", "(")  # of a constant's value


class CannotSweep(Exception):
    """A sweep over a tunable is impossible, explained in one line."""


def swept(contents: bytes, values: Mapping[str, int]) -> bytes:
    """Return a file with these values of its tunables; lines stay where they are. Others are declared at its end.

    Raises CannotSweep if the file names a tunable, but in no declaration with a value.
    """
    encoding = encoding_of(contents)
    source = contents.decode(encoding)
    found, edits, added = tokens(source), list[Edit](), ""
    for name, value in values.items():
        own = list(_declared(source, found, name, value))
        if not own and name in words_of(source):
            raise CannotSweep(f"{name} is not declared with a value, as by GPULAB_TUNABLE({name}, {value})")
        edits += own
        added += "" if own else READ_BACK.format(name, value)
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + "\n" * source.count("\n", start, end) + source[end:]
    return (source + added).encode(encoding)


def _declared(source: str, found: Sequence[Token], name: str, value: int) -> Iterator[Edit]:
    yield from ((start, end, f"GPULAB_TUNABLE({name}, {value})") for start, end in declarations(found, name))
    yield from ((start, end, str(value)) for start, end in _macro_values(found, name))
    if name in file_constants(source):
        yield from ((start, end, str(value)) for start, end in _constant_values(found, name))


def _macro_values(found: Iterable[Token], name: str) -> Iterator[tuple[int, int]]:
    """Yield the place of each value in `#define NAME value`."""
    for token in found:
        words = [part.text for part in token.within[:2]]
        if token.kind == "directive" and words == ["define", name] and len(token.within) > len(words):
            yield token.within[2].start, token.within[-1].end


def _constant_values(found: Sequence[Token], name: str) -> Iterator[tuple[int, int]]:
    """Yield the place of the value of the first `NAME = value`, `NAME{value}` or `NAME(value)`."""
    for at, token in enumerate(found[:-2]):
        if token.text == name and found[at + 1].text in _OPENERS:
            last, depth = at + 2, 0
            while last < len(found) - 1 and (depth or found[last].text not in (",", ";", "}", ")")):
                depth += bool(found[last].opens()) - (found[last].text in (")", "]", "}"))
                last += 1
            yield found[at + 2].start, found[last - 1].end
            return
