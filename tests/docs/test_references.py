"""References in the documentation exist, and its lists are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, blocks, prose

from pytest_gpulab.devices.hardware.metrics import METRICS
from pytest_gpulab.devices.simulated.cost import model
from pytest_gpulab.devices.simulated.gpus import modelled_gpu, sources
from pytest_gpulab.grading import counters
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.findings import HINTS
from pytest_gpulab.reports.terminal import hardware

INSTRUCTOR, STUDENT = ROOT / "docs" / "instructor.md", ROOT / "docs" / "student.md"
CONTRIBUTOR = ROOT / "docs" / "contributor.md"
ALL_PAGES = [*PAGES, *sorted(ROOT.glob("exercises/*/README.md"))]
KINDS = ("correct", "safe", "speedup")
FOLDERS = ("docs", "exercises", "solutions", "tests", "pytest_gpulab", ".ci")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        aimed = (page.parent / path).resolve() if path else page
        assert aimed.exists(), f"{name_of(page)}: there is no {target}"
        if anchor:
            assert anchor in anchors(aimed), f"{name_of(page)}: {target} has no such heading"


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of the page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tree_for_contributors_lists_every_package() -> None:
    tree = re.search(r"^```text\n(pytest_gpulab/\n.*?)^```", CONTRIBUTOR.read_text(encoding="utf-8"), re.M | re.S)
    assert tree
    packages = {path.parent.name for path in (ROOT / "pytest_gpulab").rglob("__init__.py")}
    others = {"include", "exercises", "solutions", "tests"}
    assert set(re.findall(r"\b(\w+)/", tree[1])) == packages | others


def test_the_table_for_contributors_lists_every_folder_of_tests() -> None:
    listed = re.findall(r"tests/(\w+)/", " ".join(cells[0] for cells in rows(CONTRIBUTOR, "Tests and benchmarks")))
    assert set(listed) == {path.name for path in ROOT.glob("tests/[!_.]*") if path.is_dir()}


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_named_paths_exist(page: Path) -> None:
    folders = "|".join(map(re.escape, FOLDERS))
    for named in re.findall(rf"`((?:{folders})/[^`\s]*)`", prose(page)):
        pattern = re.sub(r"<\w+>", "*", named).rstrip("/")
        assert list(ROOT.glob(pattern)), f"{name_of(page)}: there is no {named}"


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_checks_in_commands_can_be_selected(page: Path) -> None:
    """`-k` refuses an equals sign, which the names of many checks contain."""
    for expression in re.findall(r"""pytest[^`\n]* -k (?:"([^"]*)"|(\S+))""", page.read_text(encoding="utf-8")):
        assert "=" not in "".join(expression), f"{name_of(page)}: -k {expression}"


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, its head aside, without backticks."""
    section = re.split(rf"^#+ {re.escape(heading)}$", page.read_text(encoding="utf-8"), flags=re.M)[1]
    table = re.search(r"^\|.*\n\|---.*\n((?:\|.*\n)+)", section, re.M)
    assert table, f"{name_of(page)}: there is no table below {heading}"
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table[1].splitlines()]


def test_the_table_of_options_is_the_plugins() -> None:
    told = subprocess.run([sys.executable, "-m", "pytest", "--help"], cwd=ROOT, capture_output=True, text=True).stdout
    options = set(re.findall(r"^  (--gpulab\S*)", told, re.M))
    keys = set(re.findall(r"^  (gpulab_\w+) ", told, re.M))
    table = rows(INSTRUCTOR, "Options and ini keys")
    assert {cells[0] for cells in table} - {""} == options
    assert {cells[1] for cells in table} - {""} == keys


def test_the_readmes_commands_are_those_that_ci_runs() -> None:
    first = blocks(ROOT / "README.md", "sh")[0]
    written = [line.partition("#")[0].strip() for line in first.text.splitlines()]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    run = re.findall(r'^step "[^"]*" "(python -m pip install .*)"$', ci, re.M)
    assert written == run and len(run) == 2


def test_every_finding_is_explained_to_students() -> None:
    page = STUDENT.read_text(encoding="utf-8")
    unexplained = {code for code in HINTS if f"`{code}`" not in page}
    assert not unexplained


def test_the_cost_models_constants_are_the_codes() -> None:
    table = {cells[0]: (float(cells[1]), cells[2]) for cells in rows(ROOT / "docs" / "cost-model.md", "The constants")}
    gpu = modelled_gpu()
    numbers = [name for name, value in gpu._asdict().items() if not isinstance(value, str)]
    assert table == {name: (getattr(gpu, name), sources()[name]) for name in numbers}


def test_the_cost_models_docstring_has_the_exponents_of_the_code() -> None:
    formulas = re.findall(r"\bt\^(\d+)\)\^\(1/(\d+)\)", model.__doc__ or "")
    assert formulas == [(f"{power:g}",) * 2 for power in (model.BUSY_OVERLAP, model.OVERLAP)]


@pytest.mark.parametrize("exercise", sorted(path.parent for path in ROOT.glob("exercises/*/exercise.py")), ids=name_of)
def test_an_exercises_page_promises_the_points_that_it_gives(exercise: Path) -> None:
    """The points beside each kind of check in the README add up to what exercise.py says."""
    checks = checks_of(Catalogue(exercise.parent).load(exercise.name).exercise)
    table = rows(exercise / "README.md", "Grading")
    promised = {kind: sum(points(cells[-1]) for cells in table if cells[0].startswith(kind)) for kind in KINDS}
    given = {kind: sum(check.max_points for check in checks if check.kind == kind) for kind in KINDS}
    assert promised == given
    tiers = set(re.findall(r"speedup\[[^]]*\]", " ".join(cells[0] for cells in table)))
    assert tiers == {check.name for check in checks if check.kind == "speedup"}


def points(cell: str) -> float:
    """Return the sum of the numbers in a cell such as `8, 10, 12`."""
    return sum(float(number) for number in re.findall(r"[\d.]+", cell))


def test_the_table_of_counters_is_that_of_the_metrics() -> None:
    table = [tuple(cells) for cells in rows(ROOT / "docs" / "counters.md", "The table")]
    assert table == [(m.name, m.unit, m.level, m.meaning) for m in METRICS]


def test_ncus_counters_are_those_that_are_asked_for_and_shown() -> None:
    table = rows(ROOT / "docs" / "cuda.md", "Counters")
    explained = {column: tuple(re.findall(r"[\w.]{2,}", names)) for column, names, _ in table}
    assert explained == hardware.COUNTERS
    assert sorted(name for names in explained.values() for name in names) == sorted(counters.METRICS)
