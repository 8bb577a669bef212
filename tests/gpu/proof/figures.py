"""The results of a proof: a table on the terminal, and JSON for the page of results."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Figure:
    """One figure with its bar: what was promised, and whether it holds (None: no promise, an aim or information)."""

    what: str
    value: str
    bar: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Table:
    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass
class Proof:
    """Collects figures and tables; `finish` prints and writes them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    records: dict[str, Any] = field(default_factory=dict)
    begin_s: float = field(default_factory=time.perf_counter)

    def figure(self, what: str, value: str, bar: str = "", met: bool | None = None) -> None:
        self.figures.append(Figure(what, value, bar, met))

    def table(self, title: str, headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self.tables.append(Table(title, tuple(headers), tuple(map(tuple, rows))))

    def finish(self, path: Path | None) -> int:
        """Print everything, write it, and return 1 if a bar is missed."""
        for table in self.tables:
            print(f"\n{table.title}\n{tabulate(table.rows, table.headers, disable_numparse=True)}")
        print(f"\n{self.title}\n{tabulate(figure_rows(map(asdict, self.figures)), FIGURE_HEADERS)}")
        self.keep(path)
        return int(any(figure.met is False for figure in self.figures))

    def keep(self, path: Path | None) -> None:
        """Write the results so far, so that a stopped proof loses none."""
        if path is not None:
            path.write_text(json.dumps(self.as_data(), indent=1) + "\n")

    def as_data(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "command": " ".join(["python", *map(_as_anywhere, sys.argv)]),
            "utc": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
            "took_s": round(time.perf_counter() - self.begin_s, 1),
            "machine": machine(),
            "figures": [asdict(figure) for figure in self.figures],
            "tables": [asdict(table) for table in self.tables],
            "records": self.records,
        }


def _as_anywhere(argument: str) -> str:
    """Return a file by its place in the checkout or its name, because folders differ between machines."""
    path = Path(argument)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name if path.is_absolute() else argument


FIGURE_HEADERS = ("figure", "value", "bar", "met")


def figure_rows(figures: Iterable[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    words = {True: "yes", False: "NO", None: ""}
    return [(figure["what"], figure["value"], figure["bar"], words[figure["met"]]) for figure in figures]


def machine() -> dict[str, str]:
    """Return the device and what drives it, as nvidia-smi and nvcc say."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    first, *others = _said(query).splitlines()
    name, _, driver = first.partition(", ")
    name = f"{1 + len(others)} x {name}" if others else name
    release = next((line for line in _said(["nvcc", "--version"]).splitlines() if "release" in line), "")
    return {"device": name, "driver": driver, "nvcc": release.rpartition(", ")[2], "python": sys.version.split()[0]}


def _said(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "n/a"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option that all proofs share."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where to write what was found")
    return parser
