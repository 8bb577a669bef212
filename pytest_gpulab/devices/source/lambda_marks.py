"""The marks of lambdas, as in `[=] __device__ (int i)`.

nvcc reads them with an option only, and NVRTC never. A lambda within a kernel is device code without them.
"""

from collections.abc import Iterator, Sequence

from .tokens import Token, tokens

_MARKS = ("__host__", "__device__")


def lambda_marks(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the edits that delete the marks of all lambdas in a text, also in its macros."""
    found = tokens(text)
    yield from _marks_in(found)
    for directive in (token for token in found if token.kind == "directive"):
        yield from _marks_in(directive.within)


def _marks_in(found: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    for at in _ends_of_captures(found):
        for token in found[at + 1 :]:
            if token.text not in _MARKS:
                break
            yield token.start, token.end, ""


def _ends_of_captures(found: Sequence[Token]) -> Iterator[int]:
    """Yield the indices of closing brackets, but not of attributes such as `[[maybe_unused]]`."""
    opened: list[bool] = []
    for at, token in enumerate(found):
        if token.text == "[":
            opened.append([after.text for after in found[at + 1 : at + 2]] != ["["])
        elif token.text == "]" and opened and opened.pop():
            yield at
