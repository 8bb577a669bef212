"""`--gpulab-annotate`: the source with counters and cost of each line, on the terminal and as a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from course import BROKEN, NAIVE, RIGHT, Course

from pytest_gpulab.grading.grade import from_plain
from pytest_gpulab.grading.listing import ListedFile, ListedLine, Listing
from pytest_gpulab.reports.terminal.annotated import BESIDE, Row, compact, file_lines
from pytest_gpulab.reports.terminal.text import WIDTH, as_wide_as, fitted, visible

RACE = """
__global__ void twice(const int *in, int *out, int n) {
    __shared__ int tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x % 32] = 0;
    if (i < n) out[i] = 2 * in[i] + tile[threadIdx.x % 32];
}
"""
CONFLICTS = """
__shared__ int tile[64 * 32];
__global__ void twice(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x * 32] = i < n ? in[i] : 0;
    __syncthreads();
    int more = 0;
    if (threadIdx.x % 2)
        for (int k = tile[threadIdx.x * 32]; k > 5000; --k) more ^= k * more + in[0];
    if (i < n) out[i] = 2 * tile[threadIdx.x * 32] + more;
    if (i > 5000) atomicAdd(out, 0);
}
"""
HOSTILE = RIGHT.replace("out[i] =", "/* <script>alert('\x1b[31m\u202e')</script> \"&amp; */ out[i] =")


def listed(course: Course, source: str, *options: str) -> list[str]:
    course.write("twice.cu", source)
    result = course.grade("--gpulab-annotate", "twice.cu", *options)
    text = result.stdout.str().split(" gpulab: listings ")[-1]
    return text.splitlines()[1:]


def row(lines: list[str], source: str) -> tuple[str, list[str]]:
    """Return the row whose source contains a text, and what stands below it."""
    (at,) = [n for n, line in enumerate(lines) if source in line]
    below = []
    for line in lines[at + 1 :]:
        if not line.startswith("     "):
            break
        below.append(line.strip())
    return lines[at], below


@pytest.mark.parametrize(("columns", "used"), [(60, 60), (100, 100), (200, 75 + BESIDE)])
def test_figures_are_close_to_the_source_on_a_wide_terminal(columns: int, used: int) -> None:
    shown = [Row(1, "x" * 75, ("8.0 %", "1", "1", "1", "1")), Row(2, "y" * 50)]
    with as_wide_as(columns):
        header, first, second = file_lines(ListedFile("a.cu", ()), shown)
    assert (len(header), len(first), second) == (used, used, "   2  " + "y" * 50)


def test_each_line_stands_with_its_figures(course: Course) -> None:
    lines = listed(course, RIGHT)
    assert lines[0] == "twice.cu"
    assert lines[1].startswith("  size 2^12 on the simulated GPU (cost model: NVIDIA H200), estimated ")
    assert lines[2].split() == ["twice.cu", "time", "instr", "lanes", "sectors", "waves"]
    text, below = row(lines, "if (i < n) out[i] = 2 * in[i];")
    share, percent, instructions, lanes, sectors = text.split(";")[1].split()
    assert 10 < float(share) <= 100 and percent == "%"
    assert instructions.endswith("k") and 24 < float(lanes) <= 32 and sectors == "4.0"
    assert below == []
    shares = [float(found) for found in re.findall(r"([\d.]+) %", "\n".join(lines))]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert lines[3] == "   1" and max(map(len, lines)) <= WIDTH


def test_avoidable_costs_are_below_their_line(course: Course) -> None:
    lines = listed(course, CONFLICTS)
    text, below = row(lines, "tile[threadIdx.x * 32] = i < n")
    assert text.split()[-2:] == ["4.0", "32.0"]
    assert below == ["^ bank conflicts: 3.97k of 4.1k passes of shared memory"]
    assert row(lines, "__syncthreads")[1] == ["^ barrier: 128 warp arrivals"]
    assert row(lines, "if (threadIdx.x % 2)")[1][0].startswith("^ divergence: at 128 of ")


def test_hazards_stand_below_their_line(course: Course) -> None:
    _, below = row(listed(course, RACE), "tile[threadIdx.x % 32] = 0")
    assert any(line.startswith("! ") for line in below), below


def test_elements_that_a_sample_of_blocks_does_not_write_are_no_hazard(course: Course) -> None:
    """The partial sums of a reduction: most of them are never made where a sample of the blocks runs."""
    root = Path(__file__).resolve().parents[2]
    course.write("reduction.cu", (root / "solutions" / "reduction" / "07_shared_strided.cu").read_bytes())
    exercises = f"--gpulab-exercises={root / 'exercises'}"
    text = course.grade(exercises, "--gpulab-annotate", "reduction.cu", "-k", "speedup").stdout.str()
    assert "size 2^23 on the simulated GPU" in text
    assert "uninitialized" not in text and "     ! " not in text.replace("! concept", "")


def test_findings_are_below_their_line_and_a_failed_run_has_a_note(course: Course) -> None:
    lines = listed(course, RIGHT.replace("in[i]", "in[i + 1]"))
    assert lines[2].startswith("  ! Invalid ")
    _, below = row(lines, "in[i + 1]")
    assert below[0].startswith("! out-of-bounds: Invalid ")


@pytest.mark.parametrize(("name", "told"), [("exercise.py", "import numpy"), ("naive.cu", "int *in, int *out")])
def test_a_line_directive_is_refused_and_shows_no_file(course: Course, name: str, told: str) -> None:
    lines = listed(course, RIGHT.replace("if (i < n)", f'\n#line 2 "{name}"\nif (i < n)'))
    assert any("The file uses `#line`." in line for line in lines)
    assert not any(line.startswith(f"      {name}") for line in lines)
    own = [line for line in lines if told in line]
    assert len(own) == (name == "naive.cu"), "the student's own line alone"


def test_a_file_that_does_not_compile_is_listed_with_the_first_message(course: Course) -> None:
    lines = listed(course, BROKEN)
    assert lines[1:3] == ["  as it was handed in", "  ! This was not run: see the findings."]
    line, below = row(lines, BROKEN.splitlines()[4])
    assert line.split()[0] == "5" and below[0].startswith("! compile-error: The file does not compile: ")
    assert not any("%" in line for line in lines if line.startswith("   "))


def test_variants_that_can_be_launched_are_listed_with_figures_beside_one_that_cannot(course: Course) -> None:
    exercises = Path(__file__).parents[2] / "exercises"
    naive = (exercises / "divergence" / "naive.cu").read_text()
    course.write("divergence.cu", naive.replace("__global__ void transform2", "__device__ void transform2"))
    options = ("--gpulab-annotate", f"--gpulab-exercises={exercises}", "-k", "speedup")
    result = course.grade("divergence.cu", *options)
    listings = result.stdout.str().split(" gpulab: listings ")[-1]
    assert listings.count("  ! There is no kernel called `transform2`.\n") == 1
    assert re.search(r"^  \S.* on the simulated GPU \(.*estimated ~[\d.]+ ms$", listings, re.MULTILINE)


@pytest.mark.parametrize("source", ["", "// GPULAB\n#include <gpulab.cuh>\nGPULAB_TODO(twice)\n"])
def test_a_file_that_is_not_started_is_not_listed(course: Course, source: str) -> None:
    course.write("twice.cu", source)
    assert "gpulab: listings" not in course.grade("--gpulab-annotate", "twice.cu").stdout.str()


@pytest.mark.parametrize("options", [("-x",), ("-k", "correct"), ("-x", "--gpulab-timeout=60"), ("-x", "-n", "1"), ()])
def test_a_run_that_stops_at_a_failed_check_lists_the_source_once(course: Course, options: tuple[str, ...]) -> None:
    wrong = RIGHT.replace("2 * in[i]", "3 * in[i]")
    lines = listed(course, wrong, *options)
    assert row(lines, "out[i] = 3 * in[i]")
    assert sum(line.startswith("  size 2^12 on the simulated GPU") for line in lines) == 1


def test_a_run_that_stops_at_a_source_that_does_not_compile_lists_it(course: Course) -> None:
    lines = listed(course, BROKEN, "-x")
    assert "  as it was handed in" in lines


@pytest.mark.parametrize("option", ["--gpulab-annotate", "--gpulab-report=annotated:listing.html"])
def test_a_case_without_a_computable_size_changes_no_other_points(course: Course, option: str) -> None:
    exercise = course.folder / "exercises" / "twice" / "exercise.py"
    exercise.write_text(exercise.read_text().replace('Case("n=100", 100, 20)', 'Case("n=100", lambda t: t["N"], 20)'))
    course.write("twice.cu", RIGHT)
    points = []
    for options in ((), (option,)):
        course.grade("twice.cu", "--gpulab-report=json:grades.json", *options)
        (grade,) = json.loads((course.folder / "grades.json").read_text())["grades"]
        points.append({check["name"]: (check["verdict"], check["points"]) for check in grade["checks"]})
    assert points[0] == points[1]
    assert points[0]["correct[n=31]"] == ("passed", 20)


def test_a_process_with_a_time_limit_lists_the_same(course: Course) -> None:
    here, elsewhere = listed(course, RIGHT), listed(course, RIGHT, "--gpulab-timeout=60")
    assert row(here, "out[i]") == row(elsewhere, "out[i]")


def test_processes_of_xdist_list_the_same(course: Course) -> None:
    assert row(listed(course, NAIVE, "-n", "1"), "out[i] = 2") == row(listed(course, NAIVE), "out[i] = 2")


def test_a_long_file_is_listed_up_to_a_limit_and_says_so(course: Course) -> None:
    lines = listed(course, RIGHT + "// more\n" * 3000)
    assert "  ! Only the first 2000 lines of twice.cu are listed." in lines
    assert [line.split()[0] for line in lines if line.endswith("// more")][-1] == "2000"


def test_without_the_option_nothing_is_listed(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("twice.cu", "--gpulab-report=json:grades.json")
    assert "gpulab: listings" not in result.stdout.str()
    (grade,) = json.loads((course.folder / "grades.json").read_text())["grades"]
    assert {check["listing"] for check in grade["checks"]} == {None}


class Page(HTMLParser):
    """The tags of a page, balanced, and the texts of its table cells."""

    VOID = ("meta", "br")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_a_page_shows_source_as_text_whatever_it_is(course: Course) -> None:
    course.write("<b>twice.cu", HOSTILE)
    course.write("sub/twice.cu", HOSTILE)
    course.grade("sub", "--gpulab-report=annotated:listings.html")
    page = Page(course.folder / "listings.html")
    names = {tag for tag, _ in page.tags}
    assert "script" not in names and "link" not in names and "img" not in names
    assert any("<script>alert('?[31m?')</script> \"&amp; */ out[i]" in cell for cell in page.cells)
    assert not any("src" in attributes or "href" in attributes for _, attributes in page.tags)
    policy = dict(page.tags[3][1])
    assert policy == {
        "http-equiv": "Content-Security-Policy",
        "content": "default-src 'none'; style-src 'unsafe-inline'",
    }


def test_a_page_is_accessible_to_screen_readers(course: Course) -> None:
    course.write("twice.cu", CONFLICTS)
    course.grade("twice.cu", "--gpulab-report=annotated:listings.html")
    page = Page(course.folder / "listings.html")
    scopes = [attributes.get("scope") for tag, attributes in page.tags if tag == "th"]
    assert set(scopes) == {"col", "row"}
    assert ("html", {"lang": "en"}) in page.tags and "caption" in {tag for tag, _ in page.tags}
    assert any(cell.startswith("bank conflicts: ") for cell in page.cells)


def test_the_terminal_is_left_alone_by_hostile_source(course: Course) -> None:
    text, _ = row(listed(course, HOSTILE), "script")
    assert "\x1b" not in text and "\u202e" not in text and len(text) <= WIDTH


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short     "),
        ("exactly 10", "exactly 10"),
        ("more than 10", "more th..."),
        ("\tif", "    if    "),
        ("数数数数数", "数数数数数"),
        ("数数数数数数", "数数数... "),
        ("e\u0301e\u0301", "e\u0301e\u0301        "),
        ("a\x1b[2Jb\u202ec", "a?[2Jb?c  "),
    ],
)
def test_a_text_takes_exactly_its_columns(text: str, shown: str) -> None:
    assert fitted(text, 10) == shown


def test_counts_are_short() -> None:
    values = (0, 7, 999, 1000, 12345, 999_400, 1.5e6, 2e9)
    assert [compact(value) for value in values] == ["0", "7", "999", "1k", "12.3k", "999k", "1.5M", "2G"]


def test_invisible_characters_are_marked() -> None:
    assert visible("a\u200bb\ufeffc") == "a?b?c"


def test_a_listing_survives_its_journey_as_json() -> None:
    files = (ListedFile("x.cu", (ListedLine(1, "text", {"gpulab__time_share.pct": 12.5}), ListedLine(2, ""))),)
    listing = Listing("2^20", "two-way", "simulated GPU", 1.5, files, (), "a note")
    from dataclasses import asdict

    data: dict[str, Any] = json.loads(json.dumps(asdict(listing)))
    assert from_plain(Listing, data) == listing
    assert [line.time_share for line in listing.files[0].lines] == [0.125, None]
