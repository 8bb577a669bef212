"""Make a page of results from what the proofs wrote; sections of proofs that are not named stay as they are:

python tests/gpu/proof/page.py ladder.json itself.json ... --output docs/results-h200.md
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import FIGURE_HEADERS, figure_rows
from tabulate import tabulate

INTRODUCTION = """# Results on an {gpu}

Measurements of what pytest-gpulab promises of grading on a real GPU. Each section names its command. Run it from a
checkout, on a machine with a GPU, with the package installed or its folder on `PYTHONPATH`. The column *met* says if a
bar is met. `tests/gpu/proof/page.py` makes this page from the output of these commands.
"""


def page(proofs: list[dict[str, Any]], earlier: str = "") -> str:
    """Return the page as Markdown: an earlier page's sections, with those of the proofs in the place of their like.

    The first proof names the GPU of a new page.
    """
    introduction, *kept = f"{earlier}\n".split("\n## ")
    if not earlier:
        introduction = INTRODUCTION.format(gpu=re.sub(r"^\d+ x ", "", proofs[0]["machine"]["device"]))
    sections = {text.partition("\n")[0]: f"## {text.rstrip()}\n" for text in kept}
    sections |= {proof["title"]: "\n".join(section(proof)) for proof in proofs}
    return "\n".join([f"{introduction.rstrip()}\n", *sections.values()])


def section(proof: dict[str, Any]) -> Iterator[str]:
    """Yield a proof's part of the page."""
    machine = proof["machine"]
    yield f"## {proof['title']}\n"
    yield (
        f"{machine['device']}, driver {machine['driver']}, nvcc {machine['nvcc']}, Python {machine['python']}; "
        f"{proof['utc']} UTC, {proof['took_s']:.0f} s:\n"
    )
    yield f"    {proof['command']}\n"
    yield _table(figure_rows(proof["figures"]), FIGURE_HEADERS)
    for table in proof["tables"]:
        yield f"**{table['title']}**\n"
        yield _table(table["rows"], table["headers"])


def _table(rows: Any, headers: Any) -> str:
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the page of results from what the proofs wrote.")
    parser.add_argument("proofs", nargs="+", type=Path, help="their JSON files, in the page's order")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    proofs = [json.loads(path.read_text()) for path in options.proofs]
    earlier = options.output.read_text() if options.output.exists() else ""
    options.output.write_text(page(proofs, earlier))


if __name__ == "__main__":
    main()
