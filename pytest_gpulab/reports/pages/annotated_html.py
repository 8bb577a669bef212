"""Annotated listings as one HTML page, without network access and scripts; source text is escaped."""

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.listing import ListedFile, Listing
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.formats import write_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.terminal.annotated import COLUMNS, MEANING, NO_FIGURES, Row, listings, rows, title
from pytest_gpulab.reports.terminal.text import visible

# A second line of defence: nothing is loaded or run, even if escaping failed somewhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
LISTING_STYLE = """
.listing { border-collapse: collapse; width: 100%; margin-bottom: 2rem; font: 13px/1.35 ui-monospace, monospace; }
.listing caption { text-align: left; font-weight: bold; padding: .4rem 0; }
.listing th, .listing td { padding: 0 .5rem; text-align: right; vertical-align: top; white-space: nowrap; border: 0; }
.listing thead th { border-bottom: 1px solid; }
.listing tr > :nth-child(2) { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; width: 100%;
  min-width: 34ch; tab-size: 4; }
.listing tbody th { font-weight: normal; opacity: .7; }
.listing td.note, .listing td.hazard { white-space: normal; padding-left: 1.5rem; }
.note { opacity: .85; }
.hazard { font-weight: bold; color: #b00020; }
.bar { --bar: #f6b26b99; background: linear-gradient(to right, var(--bar) var(--share), transparent var(--share)); }
@media screen and (prefers-color-scheme: dark) { .hazard { color: #ff8a80; } .bar { --bar: #f6b26b4d; } }
"""
"""Style rules of the tables of `section`, besides `SHARES`."""

SHARES = "".join(f".share{percent} {{ --share: {percent}%; }}\n" for percent in range(1, 101))
"""A class per width of a bar: the page's strict policy blocks inline styles."""

STYLE = f"""
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }}
{LISTING_STYLE}{SHARES}"""


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the page."""
    write_text(path, "\n".join(page(gradebook.grades)) + "\n")


def page(grades: Iterable[Grade]) -> Iterator[str]:
    """Yield the lines of a page with the listings of all grades."""
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>gpulab: annotated listings</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f"<h1>Annotated listings</h1>\n<p>{_text(MEANING)} {_text(NO_FIGURES)}</p>"
    for grade in grades:
        for listing in listings(grade):
            yield f"<section>\n<h2>{_text(grade.submission)}</h2>\n<p>{_text(title(listing))}</p>"
            yield from section(grade, listing)
            yield "</section>"
    yield "</body>\n</html>"


def section(grade: Grade, listing: Listing) -> Iterator[str]:
    """Yield a listing's part of a page: its title, then a table per file, as HTML."""
    if listing.note:
        yield f'<p class="hazard">{_text(listing.note)}</p>'
    for file in listing.files:
        yield from _table(grade, listing, file)


def _table(grade: Grade, listing: Listing, file: ListedFile) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{_text(column)}</th>' for column in COLUMNS)
    yield f'<table class="listing">\n<caption>{_text(file.name)}</caption>'
    yield f'<thead><tr><th scope="col">line</th><th scope="col">source</th>{heads}</tr></thead>\n<tbody>'
    for row in rows(file, grade, listing):
        yield from _rows(row)
    yield "</tbody>\n</table>"


def _rows(row: Row) -> Iterator[str]:
    cells = "".join(f"<td>{_text(figure)}</td>" for figure in row.figures) if any(row.figures) else ""
    percent = round(100 * (row.time_share or 0))
    bar = f' class="bar share{percent}"' if percent else ""
    yield f'<tr><th scope="row">{row.number}</th><td{bar}>{_text(row.text)}</td>{cells}</tr>'
    for kind, texts in (("hazard", row.hazards), ("note", row.notes)):
        for text in texts:
            yield f'<tr><td></td><td class="{kind}" colspan="{1 + len(COLUMNS)}">{_text(text)}</td></tr>'


def _text(text: str) -> str:
    return escape(visible(text.expandtabs(4)))
