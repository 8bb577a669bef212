"""Calls of kernels as ordinary functions: nvcc refuses them, NVRTC does not."""

from collections.abc import Collection, Iterator

from .declarations import Declaration
from .tokens import Token, after_angles, tokens

_MEMBER = (".", "->", "::")
_NO_TYPES = ("return", "else", "do", "case", "throw")
CALLED = "a __global__ function call must be configured"


def kernel_calls(text: str, kept: Collection[Declaration]) -> Iterator[int]:
    """Yield the offsets of kernels' names that are called without `<<<...>>>` in the bodies of functions.

    A name that another function has as well is none of a kernel's alone.
    """
    kernels, others = set[str](), set[str]()
    for each in kept:
        (kernels if "__global__" in each.top else others).update(each.names)
    kernels -= others
    for each in kept:
        if not kernels.isdisjoint(each.words - each.names) and each.body < each.end:
            body = text[each.body : each.end]
            yield from (each.body + token.start for token in _calls(tokens(body), kernels))


def _calls(body: tuple[Token, ...], kernels: Collection[str]) -> Iterator[Token]:
    declared = set[str]()  # a variable or a lambda of the same name
    for at, token in enumerate(body[:-1]):
        if token.text not in kernels or at == 0:
            continue
        before = body[at - 1]
        if before.kind == "word" and before.text not in _NO_TYPES:
            declared.add(token.text)
        behind = after_angles(body, at + 1) if body[at + 1].text == "<" else at + 1
        is_call = behind < len(body) and body[behind].text == "("
        if is_call and before.text not in _MEMBER and token.text not in declared:
            yield token
