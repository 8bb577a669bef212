"""Figures of the data flow in a block as SVG: a row of cells per step, with the writing threads and arrows."""

import re
import textwrap
from collections.abc import Iterator
from html import escape
from math import prod
from typing import Any

import numpy as np

from pytest_gpulab.grading.diagnosis.patterns import number as number_text
from pytest_gpulab.grading.explanation.figure import Figure
from pytest_gpulab.grading.explanation.marks import Mark
from pytest_gpulab.grading.explanation.rows import Arrow, Row
from pytest_gpulab.grading.explanation.stops import Stop
from pytest_gpulab.reports.terminal.text import visible

CELL, HEIGHT, LEFT, GAP, THREADS = 32, 24, 216, 46, 14
BASE = 17  # from a cell's top to its value's base line
LABEL, LINE = 48, 14  # letters of a line of a label, and its height
LETTER = 7.5  # of a bold text
MAX_COLUMNS = 64
MAX_MARKED = 32  # of the columns
MAX_DIGITS = 6  # of an integer that is not rounded
MAX_ARROWS = 256  # of a row; of more, only those to its first element are drawn
BARRIER, THREAD, MAX_THREADS = 38, 16, 64  # height of a missed barrier, width of each of its threads, threads drawn

# Elements in <defs>, and others with an id, are drawn by <use>: rules that name an ancestor do not match there.
STYLE = """
.flow { font: 12px ui-monospace, monospace; --ink: #1b1b1b; --soft: #666666; --paper: #ffffff; --own: #cfe3fb;
  --line: #33608f; --bad: #c0182c; --bad-fill: #fbd5d9; }
.flow text { fill: var(--ink); text-anchor: middle; }
.flow .caption, .flow .note, .flow .above { text-anchor: start; }
.flow .kept text { fill: var(--soft); }
.flow .note { fill: var(--soft); font-size: 10px; }
.flow .index, .flow .index text { fill: var(--soft); font-size: 10px; text-anchor: middle; paint-order: stroke;
  stroke: var(--paper); stroke-width: 3px; }
.flow .kept use { fill: var(--paper); stroke: var(--soft); }
.flow .written use { fill: var(--own); stroke: var(--line); }
.flow-frame { fill: var(--paper); stroke: var(--soft); stroke-width: 1px; paint-order: normal; }
.flow-thread { fill: var(--line); stroke: none; }
.flow .lane.lane { fill: var(--line); font-size: 8px; }
.flow .arrow { fill: none; stroke: var(--line); stroke-width: 1.2; marker-end: url(#head); }
.flow .head { fill: var(--line); }
.flow .by { fill: #ffffff; font-size: 9px; }
.flow .bad use, .flow .beyond { fill: var(--bad-fill); stroke: var(--bad); stroke-width: 2; }
.flow .beyond { stroke-dasharray: 4 3; }
.flow .bad-text { fill: var(--bad); text-anchor: start; font-weight: bold; }
.flow .under { fill: var(--paper); }
.flow .missed line { stroke: var(--bad); stroke-width: 2; }
.flow .missed circle { fill: var(--line); }
.flow .missed circle.absent { fill: var(--paper); stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 3 2; }
.flow .missed .absent-id { fill: var(--bad); font-size: 9px; }
.flow .no-barrier { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 8 5; }
"""

SHAPES = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
    'orient="auto-start-reverse"><path class="head" d="M0 0 8 4 0 8z"/></marker>'
    f'<rect id="cell" x="-{CELL // 2}" y="-{BASE}" width="{CELL}" height="{HEIGHT}"/>'
    f'<g id="own"><use href="#cell"/><circle class="flow-thread" cy="-{BASE + 7}" r="7"/></g></defs>'
)
"""Shapes that all figures of a page share: an id is unique in a page."""


def dataflow_svg(figure: Figure, is_alone: bool = False) -> str:
    """Return the figure as an SVG element; `is_alone` adds the style, for a file of its own."""
    layout = _Layout(figure, has_hover=not is_alone)
    parts = [layout.arrows(number) for number in range(len(figure.rows))]  # below all cells: values stay readable
    parts += [part for number in range(len(figure.rows)) for part in layout.row(number)]
    parts += [part for number in range(len(figure.rows)) for part in layout.stops(number)]  # above arrows
    style = f"<style>{STYLE}</style>" if is_alone else ""
    size = f'viewBox="0 0 {layout.width} {layout.height}" width="{layout.width}" height="{layout.height}"'
    side = "flow before" if any(mark.index < 0 for mark in figure.marks) else "flow"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="{side}" role="img" {size}>'
    title = f"<title>{_text(f'Data flow of {figure.title}')}</title>"
    if figure.all_mistakes:
        title += f"<desc>{_text('; '.join(figure.all_mistakes))}</desc>"
    return "\n".join([head, style, title, SHAPES if is_alone else "", *filter(None, parts), "</svg>"])


class _Layout:
    """Positions of rows and cells; a file of its own is shown as an image, which has no hover texts."""

    def __init__(self, figure: Figure, has_hover: bool) -> None:
        self._figure, self._rows, self._has_hover = figure, figure.rows, has_hover
        self._marks: dict[int, list[Mark]] = {}
        for mark in figure.marks:
            self._marks.setdefault(mark.row, []).append(mark)
        self._labelled: dict[int, tuple[int, str]] = {}  # arrays to the top of the row with their indices, and its id
        self._columns = {id(row.array): self._shown(row) for row in figure.rows}
        self._tops: list[int] = []
        top = 18
        for number, row in enumerate(figure.rows):
            top += (GAP if (row.arrows and not self._is_grid(row)) or self._is_unordered(row) else 12) if number else 0
            self._tops.append(top)
            top = self._bottom(number) + sum(map(_stop_height, figure.stops(number)))
        self.height = top + 8
        widest = max((self._width(row) for row in figure.rows), default=1)
        beyond = 2 if any(mark.index >= prod(figure.rows[mark.row].array.shape) for mark in figure.marks) else 0
        stops = [stop for number in range(len(self._rows)) for stop in figure.stops(number)]
        labels = [*map(self._label, self._marks), *(stop.what for stop in stops)]
        longest = max((len(line) for label in labels for line in _lines_of(label)), default=0)
        threads = THREAD * figure.threads if stops and figure.threads <= MAX_THREADS else 0
        self.width = LEFT + max(CELL * (widest + beyond), LETTER * longest, threads) + 10

    def _bottom(self, number: int) -> int:
        lines = self._lines(self._rows[number])
        return self._tops[number] + THREADS + HEIGHT * lines + 16 + LINE * len(_lines_of(self._label(number)))

    def _label(self, number: int) -> str:
        """Return the first mistake in a row, with the number of other marked elements; empty without a mistake."""
        marks = self._marks.get(number, ())
        others = len({mark.index for mark in marks}) - 1
        more = f" (and {others} more element{'s' * (others > 1)})" if others > 0 else ""
        return f"{marks[0].what}{more}" if marks else ""

    def row(self, number: int) -> Iterator[str]:
        """Yield the elements of a row."""
        row, top = self._rows[number], self._tops[number]
        yield f'<g class="row" data-row="{number}" data-line="{row.line}">'
        middle = top + THREADS + HEIGHT * self._lines(row) / 2
        if self._is_unordered(row):
            yield f'<line class="no-barrier" x1="4" x2="{self.width - 6}" y1="{top - 4}" y2="{top - 4}"/>'
        bad = {mark.index: mark.what for mark in self._marks.get(number, ())}
        if not self._is_grid(row):
            yield self._labels(row, number)
        shown = self._columns[id(row.array)]
        for kind, indices in (
            ("kept", [index for index in shown if index not in row.writers]),
            ("written", [index for index in shown if index in row.writers]),
        ):
            if cells := "".join(self._cell(row, number, index, bad.get(index, "")) for index in indices):
                yield f'<g class="{kind}" transform="translate({LEFT + CELL // 2} {top + THREADS + BASE})">{cells}</g>'
        for mark in self._marks.get(number, ())[:1]:
            yield from self._beyond(row, number, mark)
            label, place = self._label(number), self._place(number, mark.index)
            end = self.width - 10 - LETTER * max(map(len, _lines_of(label)))
            x = LEFT if place is None else min(place[0], end)  # below its element
            yield _label_text(label, top + THREADS + HEIGHT * self._lines(row) + 26, x)
        yield self._caption(number, top, middle)  # above the cells, which scroll below it
        yield "</g>"

    def _caption(self, number: int, top: int, middle: float) -> str:
        """Return the caption on the left of a row, and the one above it, which a page shows in a narrow window."""
        row = self._rows[number]
        caption, active = self._figure.captions[number], self._figure.active(row)
        barrier = ""
        if self._is_unordered(row):
            assert row.unordered is not None
            a, b = row.unordered
            barrier = f'<text class="bad-text between" x="4" y="{top - 9}">no barrier: threads {a}, {b}</text>'
        left = (
            f'<text class="caption" x="4" y="{middle:g}">{_text(caption)}</text>'
            f'<text class="note" x="4" y="{middle + 13:g}">{_text(active)}</text>{barrier}'
        )
        if not self._has_hover:
            return left
        height = THREADS + HEIGHT * self._lines(row) + 14
        ground = f'<rect class="under" x="0" y="{top}" width="{LEFT - 4}" height="{height}"/>'
        y = top - (24 if barrier else 6)
        above = f'<text class="above" x="{LEFT}" y="{y}">{_text(caption)} <tspan>{_text(active)}</tspan></text>'
        return f'<g class="side">{ground}{left}{above}</g>'

    def _is_unordered(self, row: Row) -> bool:
        return row.unordered is not None and self._figure.has_race

    def arrows(self, number: int) -> str:
        """Return the arrows to a row; empty if there are none."""
        row = self._rows[number]
        arrows = [] if self._is_grid(row) else row.arrows
        if len(arrows) > MAX_ARROWS:
            first = min(arrow.index for arrow in arrows)
            arrows = [arrow for arrow in arrows if arrow.index == first]
        paths = "".join(dict.fromkeys(self._arrow(arrow, number) for arrow in arrows))
        return f'<g class="arrow" data-after="{number}">{paths}</g>' if paths else ""

    def stops(self, number: int) -> Iterator[str]:
        """Yield the barriers below a row that not all threads reach, and the end of the launch, with the threads."""
        figure, bottom = self._figure, self._bottom(number)
        for stop in figure.stops(number):
            yield f'<g class="missed" data-after="{number}">{_label_text(stop.what, bottom + 12)}'
            bottom += _stop_height(stop)
            y = bottom - BARRIER + 12
            yield f'<line x1="4" x2="{self.width - 6:g}" y1="{y + 13}" y2="{y + 13}"/>'
            is_drawn = stop.threads and figure.threads <= MAX_THREADS
            for thread in range(figure.threads) if is_drawn else ():
                x, is_absent = LEFT + THREAD * thread + THREAD // 2, thread in stop.threads
                yield f'<circle class="{"absent" if is_absent else "thread"}" cx="{x}" cy="{y + 13}" r="7"/>'
                yield f'<text class="{"absent-id" if is_absent else "by"}" x="{x}" y="{y + 16}">{thread}</text>'
            yield "</g>"

    def _shown(self, row: Row) -> list[int]:
        """Return the elements of an array that are drawn: all, or the first marked ones and those that are used."""
        size = prod(row.array.shape)
        if size <= MAX_COLUMNS or self._is_grid(row):
            return list(range(size))
        rows = [other for other in self._rows if other.array is row.array]
        used = {index for other in rows for index in other.writers}
        used |= {
            a.source.index for other in self._rows for a in other.arrows if self._rows[a.source.row].array is row.array
        }
        marked = {
            mark.index
            for mark in self._figure.marks
            if self._rows[mark.row].array is row.array and 0 <= mark.index < size
        }
        first = sorted(marked)[:MAX_MARKED]
        return sorted({*first, *sorted(used - set(first))[: MAX_COLUMNS - len(first)]})

    @staticmethod
    def _is_grid(row: Row) -> bool:
        shape = row.array.shape
        return len(shape) == 2 and shape[0] > 1 and shape[1] <= MAX_COLUMNS and shape[0] <= MAX_COLUMNS

    def _lines(self, row: Row) -> int:
        return row.array.shape[0] if self._is_grid(row) else 1

    def _width(self, row: Row) -> int:
        return row.array.shape[1] if self._is_grid(row) else len(self._columns[id(row.array)])

    def _place(self, number: int, index: int) -> tuple[float, float] | None:
        """Return the top left corner of a cell; None if it is not drawn."""
        row, top = self._rows[number], self._tops[number] + THREADS
        if self._is_grid(row):
            y, x = divmod(index, row.array.shape[1])
            return LEFT + CELL * x, top + HEIGHT * y
        columns = self._columns[id(row.array)]
        return (LEFT + CELL * columns.index(index), top) if index in columns else None

    def _cell(self, row: Row, number: int, index: int, bad: str) -> str:
        """Return a cell, relative to the middle of its row's first value."""
        place = self._place(number, index)
        assert place is not None
        x, y = place[0] - LEFT, place[1] - self._tops[number] - THREADS
        writers = row.writers.get(index, [])
        kind = ' class="bad"' if bad else ""
        at = f' transform="translate({x:g}{f" {y:g}" if y else ""})"' if x or y else ""
        value = _short(row.values[index]) if row.known[index] else "?"
        small = ' font-size="9"' if len(value) > 4 else ""
        small += f' textLength="{CELL - 4}" lengthAdjust="spacingAndGlyphs"' if len(value) > 5 else ""
        if self._is_grid(row):  # its cells hold the thread, too
            small += ' y="3"' if small else ' x="4" y="3"'
        elif not (writers or bad or self._has_hover):  # the frame is there
            return f'<text x="{x:g}"{small}>{_text(value)}</text>'
        box = "own" if writers and not self._is_grid(row) else "cell"
        text = f"<text{small}>{_text(value)}</text>{self._threads(row, number, index)}"
        return f'<g{kind}{at}>{self._hover(row, index, bad)}<use href="#{box}"/>{text}</g>'

    def _hover(self, row: Row, index: int, bad: str) -> str:
        if not self._has_hover:
            return ""
        writers = row.writers.get(index, [])
        verb = "passed on" if row.array.is_register else "written"
        who = f", {verb} by thread {', '.join(map(str, writers))} in line {row.line}" if writers else ""
        exact = number_text(row.values[index]) if row.known[index] else "?"
        return f"<title>{_text(f'{row.array.element(index)} = {exact}{who}' + (f'; {bad}' if bad else ''))}</title>"

    def _threads(self, row: Row, number: int, index: int) -> str:
        """Return the number of the thread that writes a cell; in a grid without a writer, of the one that reads it."""
        writers = row.writers.get(index, [])
        if self._is_grid(row):
            threads = writers or self._readers(number, index)
            return f'<text class="lane" x="-9" y="-9">{threads[0]}</text>' if threads else ""
        return f'<text class="by" y="-21">{writers[0]}</text>' if writers else ""

    def _labels(self, row: Row, number: int) -> str:
        """Return the indices below a row's cells; a file of its own holds them, and frames, once per array."""
        array, top = id(row.array), self._tops[number]
        if array in self._labelled:
            first, label = self._labelled[array]
            return f'<g class="index"><use href="#{label}" y="{top - first}"/></g>'
        name = frames = ""
        if not self._has_hover:
            self._labelled[array] = top, f"indices-{number}"
            name = f' id="indices-{number}"'
            boxes = (f"M{CELL * n - CELL // 2}-{BASE + 17}h{CELL}v{HEIGHT}h-{CELL}z" for n in range(self._width(row)))
            frames = f'<path class="flow-frame" d="{"".join(boxes)}"/>'
        texts = [
            f'<text x="{CELL * position}">{row.array.label(index)}</text>'
            for position, index in enumerate(self._columns[array])
        ]
        y = top + THREADS + HEIGHT + 10
        return f'<g{name} class="index" transform="translate({LEFT + CELL // 2} {y})">{frames}{"".join(texts)}</g>'

    def _readers(self, number: int, index: int) -> list[int]:
        return [a.thread for row in self._rows for a in row.arrows if (a.source.row, a.source.index) == (number, index)]

    def _beyond(self, row: Row, number: int, mark: Mark) -> Iterator[str]:
        """Draw an element beside an array's end."""
        size = prod(row.array.shape)
        if 0 <= mark.index < size:
            return
        x = LEFT + CELL * (self._width(row) + 0.5) if mark.index >= size else LEFT - CELL * 1.2
        y = self._tops[number] + THREADS
        yield f'<g class="bad"><rect class="beyond" x="{x:g}" y="{y}" width="{CELL}" height="{HEIGHT}"/>'
        yield f'<text x="{x + CELL / 2:g}" y="{y + 16}">[{mark.index}]</text></g>'

    def _arrow(self, arrow: Arrow, number: int) -> str:
        begin, end = self._place(arrow.source.row, arrow.source.index), self._place(number, arrow.index)
        if begin is None or end is None:
            return ""
        x1, y1 = begin[0] + CELL / 2, begin[1] + HEIGHT + 13
        x2, y2 = end[0] + CELL / 2, end[1] - 15
        return f'<path d="M{x1:g} {y1:g} {x2:g} {y2:g}"/>'


def _lines_of(label: str) -> list[str]:
    """Return the lines of a label, as equally long as words allow; none if it is empty."""
    fewest = textwrap.wrap(label, LABEL)
    for columns in range(len(label) // max(len(fewest), 1), LABEL):
        if columns and len(lines := textwrap.wrap(label, columns)) == len(fewest):
            return lines
    return fewest


def _label_text(label: str, y: float, x: float = LEFT) -> str:
    """Return a label on a ground of its own, which covers arrows."""
    lines = _lines_of(label)
    width, height = LETTER * max(map(len, lines)), LINE * len(lines)
    ground = f'<rect class="under" x="{x - 2:g}" y="{y - 11:g}" width="{width:g}" height="{height}"/>'
    spans = (f'<tspan x="{x:g}" dy="{LINE if at else 0}">{_text(line)}</tspan>' for at, line in enumerate(lines))
    return f'{ground}<text class="bad-text" x="{x:g}" y="{y:g}">{" ".join(spans)}</text>'


def _stop_height(stop: Stop) -> int:
    return BARRIER + LINE * (len(_lines_of(stop.what)) - 1)


def _short(value: Any) -> str:
    """Return a value in a few letters, such as `-1.2e8`."""
    text = str(value) if isinstance(value, np.integer) and len(str(value)) <= MAX_DIGITS else f"{value:.4g}"
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.2g}") if "e" in text else text


def _text(text: str) -> str:
    return escape(visible(text))
