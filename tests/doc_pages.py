"""The documentation as data: fenced blocks, links and named paths of a page, and comparing output with a sample.

A block's info string is a language and, where the block is a file's contents, the file's path:

    ```cuda exercises/reduction/reduction.cu

In a sample of output, `...` on a line of its own stands for any lines, within a line for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"```(?P<language>\S*) ?(?P<file>.*)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        line: of its first line within the page, from 1.
        file: the path it is the contents of, or empty.
    """

    page: str
    line: int
    language: str
    file: str
    text: str

    @property
    def place(self) -> str:
        """Where it stands, for messages and test ids."""
        return f"{self.page}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the fenced blocks of a page, those in the given languages only if any is given."""
    return [block for block in _blocks(page) if not languages or block.language in languages]


def _blocks(page: Path) -> Iterator[Block]:
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is None:
            continue
        body = []
        for _, inner in lines:
            if inner == "```":
                break
            body.append(inner + "\n")
        else:
            raise AssertionError(f"{page}:{number}: this block does not end")
        yield Block(page.name, number + 1, fence["language"], fence["file"], "".join(body))


def prose(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@dataclass(frozen=True)
class Command:
    """A command of a console block with the output shown below it."""

    text: str
    output: list[str]


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block: each begins with `$ `, and what follows is what it prints."""
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ "), []))
        else:
            assert found, f"{block.place}: output before the first command"
            found[-1].output.append(line)
    return found


# What differs from run to run, from machine to machine, or with every change to the cost model.
_UNSTABLE = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"~[\d.]+(x?)"), r"~#\1"),
    (re.compile(r"\b\d+\.\d\dx"), "#x"),
    (re.compile(r"[\d.]+ ms"), "# ms"),
    (re.compile(r"[\d.]+ %( +[\d.]+[kMG]?)( +[\d.]+)"), "# % # #"),  # a listing's time, instructions and lanes
    (re.compile(r"[\d.]+[kMG]? warp arrivals"), "# warp arrivals"),
    (re.compile(r" \d+%( +)\d+$"), r" #%\1#"),
    (re.compile(r"^(gpulab: .* GPU .*), because .*"), r"\1, because #"),
    (re.compile(r"^gpulab: seed \d+"), "gpulab: seed #"),
    (re.compile(r"--gpulab-seed=\d+\.$"), "--gpulab-seed=#."),
    (re.compile(r" in [\d.]+s( \(\d:\d\d:\d\d\))?"), " in #s"),
    (re.compile(r"^platform .*"), "platform #"),
    (re.compile(r"^(rootdir|plugins|created): .*"), r"\1: #"),
    (re.compile(r"([=_!-])\1{2,}"), r"\1\1\1"),
    (re.compile(r"\s+"), " "),
]


def stable(line: str) -> str:
    """Return a line of output without what may differ: times, estimates, versions, widths."""
    for pattern, replacement in _UNSTABLE:
        line = pattern.sub(replacement, line)
    return line.strip()


# The reason for the device differs between machines, and a long one is wrapped.
_LONG_REASON = re.compile(r"^(gpulab: .* GPU .*, because .*)\n  (?=\S)", re.M)
ESTIMATE = re.compile(r"~([\d.]+)")
FACTOR = 1.25  # by which an estimate may differ: seeds and samples of blocks do not change it by more


def first_difference(shown: Sequence[str], printed: str) -> str:
    """Return in words where output departs from a sample, or nothing if it fits."""
    sample = [stable(line) for line in shown]
    lines = _LONG_REASON.sub(r"\1 ", printed).splitlines()
    output = [stable(line) for line in lines]
    while output and not output[-1]:
        output.pop()
    reached = 0  # how many lines of the sample fit

    def fits(s: int, o: int) -> bool:
        nonlocal reached
        while s < len(sample):
            reached = max(reached, s)
            if sample[s] == "...":
                return any(fits(s + 1, later) for later in range(o, len(output) + 1))
            if o >= len(output) or not (_line_fits(sample[s], output[o]) and _estimates_fit(shown[s], lines[o])):
                return False
            s, o = s + 1, o + 1
        return o == len(output)

    if fits(0, 0):
        return ""
    wanted = shown[reached] if reached < len(shown) else "nothing more"
    return f"the sample's line {reached + 1} does not fit: {wanted}\n--- what was printed:\n{printed}"


def _estimates_fit(sample: str, line: str) -> bool:
    pairs = zip(ESTIMATE.findall(sample), ESTIMATE.findall(line), strict=False)
    return "..." in sample or all(float(a) <= FACTOR * float(b) and float(b) <= FACTOR * float(a) for a, b in pairs)


def _line_fits(sample: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, sample.split("..."))), line) is not None
