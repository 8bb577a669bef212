"""Annotated listings as one HTML page, without network and scripts; source text is shown as text, whatever it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.listing import ListedFile, Listing
from pytest_gpulab.reports.annotated import COLUMNS, MEANING, NO_FIGURES, Row, listings, rows, title, visible

# Nothing is loaded and nothing runs, even if some text found a way to be taken for markup.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin-bottom: 2rem; font: 13px/1.35 ui-monospace, monospace; }
caption { text-align: left; font-weight: bold; padding: .4rem 0; }
th, td { padding: 0 .5rem; text-align: right; vertical-align: top; white-space: nowrap; }
thead th { border-bottom: 1px solid; }
.source { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; width: 100%; tab-size: 4; }
.number { font-weight: normal; opacity: .7; }
.note, .hazard { text-align: left; white-space: normal; padding-left: 1.5rem; }
.note { opacity: .85; }
.hazard { font-weight: bold; color: #b00020; }
.bar { background: linear-gradient(to right, #f6b26b99 var(--share), transparent var(--share)); }
@media (prefers-color-scheme: dark) { .hazard { color: #ff8a80; } }
"""


def write(path: Path, grades: Iterable[Grade]) -> None:
    """Write the page.

    Raises:
        OSError: it cannot be written.
    """
    path.write_text("\n".join(page(grades)) + "\n", encoding="utf-8")


def page(grades: Iterable[Grade]) -> Iterator[str]:
    """Yield the lines of a page with the listings of all grades."""
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>gpulab: annotated listings</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f"<h1>Annotated listings</h1>\n<p>{_text(MEANING)} {_text(NO_FIGURES)}</p>"
    for grade in grades:
        for listing in listings(grade):
            yield from _section(grade, listing)
    yield "</body>\n</html>"


def _section(grade: Grade, listing: Listing) -> Iterator[str]:
    yield f"<section>\n<h2>{_text(grade.submission)}</h2>\n<p>{_text(title(listing))}</p>"
    if listing.note:
        yield f'<p class="hazard">{_text(listing.note)}</p>'
    for file in listing.files:
        yield from _table(grade, listing, file)
    yield "</section>"


def _table(grade: Grade, listing: Listing, file: ListedFile) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{_text(column)}</th>' for column in COLUMNS)
    yield f"<table>\n<caption>{_text(file.name)}</caption>"
    yield f'<thead><tr><th scope="col">line</th><th scope="col" class="source">source</th>{heads}</tr></thead>\n<tbody>'
    for row in rows(file, grade, listing):
        yield from _rows(row)
    yield "</tbody>\n</table>"


def _rows(row: Row) -> Iterator[str]:
    cells = "".join(f"<td>{_text(figure)}</td>" for figure in row.figures)
    bar = f' style="--share: {100 * row.time_share:.1f}%"' if row.time_share else ""
    source = f'<td class="source{" bar" if bar else ""}"{bar}>{_text(row.text)}</td>'
    yield f'<tr><th scope="row" class="number">{row.number}</th>{source}{cells}</tr>'
    for kind, texts in (("hazard", row.hazards), ("note", row.notes)):
        for text in texts:
            yield f'<tr><td></td><td class="{kind}" colspan="{1 + len(COLUMNS)}">{_text(text)}</td></tr>'


def _text(text: str) -> str:
    return escape(visible(text.expandtabs(4)))
