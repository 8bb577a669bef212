"""The page of results is made from what the proofs write."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT
from proof_modules import PROOF, loaded

RESULTS = (ROOT / "docs" / "results-h200.md").read_text(encoding="utf-8")
# What was promised of grading on a GPU: which program proves it, with the title that its section must have.
PROMISED = {
    "verdicts": ("verdicts.py", r"All verdicts, 3 runs in a row"),
    "ladder": ("ladder.py", r"Bandwidth of the ladders at 2\^26 elements, cold level-2 cache"),
    "itself": ("itself.py", r"A kernel against itself, 200 gradings from fresh processes"),
    "quiet": ("thresholds.py", r"Thresholds 0\.5 % from the true ratio of \S+, quiet"),
    "hammer": (
        "thresholds.py --hammer",
        r"Thresholds 0\.5 % from the true ratio of \S+, while another process hammers the GPU",
    ),
    "ncu": ("against_ncu.py", r"Times against Nsight Compute's gpu__time_duration"),
    "class": ("class_of_64.py", r"64 submissions on one GPU, by \d+ workers"),
}
# Where it was measured, when, and how long it took.
MEASURED = r"[\w ]*NVIDIA [\w ]+, driver [\d.]+, nvcc V[\d.]+, Python [\d.]+; \d{4}-\d\d-\d\d \d\d:\d\d UTC, \d+ s:"


def sections(page: str) -> dict[str, list[str]]:
    """Return title to lines."""
    _, *parts = page.split("\n## ")
    return {title: lines for title, *lines in map(str.splitlines, parts)}


def missed(part: str) -> list[str]:
    """Return the figures whose bars are missed."""
    rows = (re.split(r" *\| *", line.strip("| ")) for line in part.splitlines() if line.startswith("| "))
    return [row[0] for row in rows if row[-1] == "NO"]


def test_a_missed_bar_is_printed_written_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, page = loaded("figures", monkeypatch), loaded("page", monkeypatch)
    proof = figures.Proof("How fast it is")
    proof.figure("copy", "4149 GB/s")
    proof.figure("sum", "3500 GB/s", "at least 3600 GB/s", False)
    proof.table("All of them", ("what", "ms"), [("copy", "0.129"), ("sum", "0.077")])
    path = tmp_path / "speed.json"
    assert proof.finish(path) == 1
    assert "NO" in capsys.readouterr().out
    made = page.page([json.loads(path.read_text())])
    assert "## How fast it is\n" in made
    assert "| sum      | 3500 GB/s | at least 3600 GB/s | NO    |" in made
    assert missed(made) == ["sum"]
    assert "**All of them**" in made and "| sum    | 0.077 |" in made


def test_a_section_says_where_when_and_how_it_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures, page = loaded("figures", monkeypatch), loaded("page", monkeypatch)
    machine = {"device": "NVIDIA H200", "driver": "580.1", "nvcc": "V13.0.88", "python": "3.12.3"}
    monkeypatch.setattr(figures, "machine", lambda: machine)
    monkeypatch.setattr(sys, "argv", [str(PROOF / "ladder.py"), "--json", str(tmp_path / "ladder.json")])
    proof = figures.Proof("How fast it is")
    proof.figure("copy", "4149 GB/s")
    proof.finish(tmp_path / "ladder.json")
    lines = page.page([json.loads((tmp_path / "ladder.json").read_text())]).splitlines()
    title = lines.index("## How fast it is")
    assert re.fullmatch(MEASURED, lines[title + 2]) and lines[title + 2].startswith(
        "NVIDIA H200, driver 580.1, nvcc V13"
    )
    assert lines[title + 4] == "    python tests/gpu/proof/ladder.py --json ladder.json"


@pytest.mark.parametrize("name", ["results-h100.md", "results-h200.md"])
def test_each_section_of_a_page_says_how_it_was_measured(name: str) -> None:
    for title, (_, measured, _, command, *_) in sections((ROOT / "docs" / name).read_text(encoding="utf-8")).items():
        assert re.fullmatch(MEASURED, measured), title
        program = re.fullmatch(r"    python tests/gpu/proof/(\w+\.py)( .*)?", command)
        assert program and (PROOF / program[1]).exists(), title


@pytest.mark.parametrize("title", sections(RESULTS))
def test_no_bar_is_missed(title: str) -> None:
    """Correct a missed bar, or state the limit in docs/timing.md and drop the bar."""
    section = sections(RESULTS)[title]
    assert any(re.fullmatch(r"\| figure +\| value +\| bar +\| met +\|", line) for line in section)
    assert any(re.search(r"\| yes +\|$", line) for line in section)
    assert missed("\n".join(section)) == []


@pytest.mark.parametrize("name", PROMISED)
def test_every_proof_has_its_section(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, wanted = PROMISED[name]
    assert program.split()[0] == loaded("everything", monkeypatch).PROOFS[name][0]
    (title,) = (title for title in sections(RESULTS) if re.fullmatch(wanted, title))
    _, _, _, command, *_ = sections(RESULTS)[title]
    assert command.startswith(f"    python tests/gpu/proof/{program} ")


def test_sections_of_other_proofs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures, page = loaded("figures", monkeypatch), loaded("page", monkeypatch)

    def proved(title: str, value: str) -> dict[str, Any]:
        proof = figures.Proof(title)
        proof.figure("value", value)
        proof.finish(tmp_path / "proof.json")
        return dict(json.loads((tmp_path / "proof.json").read_text()))

    first = page.page([proved("One", "1"), proved("Two", "2")])
    assert page.page([], first) == first
    later = page.page([proved("One", "11"), proved("Three", "3")], first)
    assert [line for line in later.splitlines() if line[:2] == "##"] == ["## One", "## Two", "## Three"]
    assert "| value    | 11 " in later and "| value    | 2 " in later and "| value    | 1 " not in later


def test_a_class_has_every_solution_and_every_fourth_is_hostile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded("figures", monkeypatch)
    proof = loaded("class_of_64", monkeypatch)
    who = proof.make_class(tmp_path / "kind", hostile=False)
    assert len(who) == 64 and set(who.values()) == {f"{exercise}/{path.name}" for exercise, path in proof.sources()}
    hostile = proof.make_class(tmp_path / "hostile", hostile=True)
    changed = [student for student in who if hostile[student] != who[student]]
    assert len(changed) == 16 and {hostile[student] for student in changed} == set(proof.DEEDS)
    assert "__trap();" in (tmp_path / "hostile" / "student11" / "reduction.cu").read_text()


def test_runs_that_came_to_their_end_are_kept_when_a_later_one_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded("figures", monkeypatch)
    proof = loaded("verdicts", monkeypatch)
    counts = {"tests": 3, "failures": 1, "errors": 0, "skipped": 0}
    ended = iter([(counts, ["test_a_wrong_kernel[x]"])])
    monkeypatch.setattr(proof, "_run", lambda: next(ended))
    monkeypatch.setattr(sys, "argv", ["verdicts.py", "--json", str(tmp_path / "verdicts.json")])
    with pytest.raises(StopIteration):
        proof.main()
    assert capsys.readouterr().out == "run 1: 2 of 3 as stated, in 0 s\ntest_a_wrong_kernel[x]\n"
    (figure,) = json.loads((tmp_path / "verdicts.json").read_text())["figures"]
    assert (figure["value"], figure["met"]) == ("2 of 3 as stated, in 0 s", False)


def test_verdicts_that_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded("figures", monkeypatch)
    proof = loaded("class_of_64", monkeypatch)
    expected = {"ann": {"compile": "passed", "correct[n=1]": "passed"}, "bob": {"compile": "passed"}}
    found = {"ann": {"compile": "passed", "correct[n=1]": "failed"}}
    who = {"ann": "reduction/naive.cu", "bob": "scan/naive.cu"}
    assert proof.differences(expected, found, who, ["ann", "bob"]) == [
        ("ann", "reduction/naive.cu", "correct[n=1]", "passed", "failed"),
        ("bob", "scan/naive.cu", "compile", "passed", "nothing"),
    ]


def run_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Prove it with a pytest that grades once and then never comes to its end; return the status and the figures."""
    loaded("figures", monkeypatch)
    proof = loaded("class_of_64", monkeypatch)
    graded: list[Path] = []

    def grade(folder: Path, workers: int) -> tuple[dict[str, dict[str, str]], float]:
        graded.append(folder)
        if len(graded) > 1:
            raise subprocess.TimeoutExpired("pytest", 560)
        return {path.name: {"compile": "passed"} for path in folder.iterdir()}, 10.0

    monkeypatch.setattr(proof, "graded", grade)
    monkeypatch.setattr(sys, "argv", ["class_of_64.py", "--json", str(tmp_path / "class.json"), *options])
    return proof.main(), json.loads((tmp_path / "class.json").read_text())["figures"]


def test_of_a_class_that_is_not_graded_to_the_end_all_is_written_that_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, figures = run_class(tmp_path, monkeypatch, "--skip-sequential")
    met = {figure["what"]: figure["met"] for figure in figures}
    assert status == 1
    graded, ended = "graded by parallel workers", "a run that did not come to its end"
    assert met == {"a loop in Python": None, "CPU time": None, graded: True, ended: False}
    assert figures[-1]["value"] == "Command 'pytest' timed out after 560 seconds"


def test_nothing_is_graded_if_there_is_no_earlier_run_to_compare_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        run_class(tmp_path, monkeypatch, "--sequential", str(tmp_path / "nowhere.json"))
    assert not (tmp_path / "class.json").exists()


FAKE = """
import json, os, sys, time
import figures
name = sys.argv[sys.argv.index("--json") + 1]
proof = figures.Proof(f"{sys.argv[2]} on GPU {os.environ['CUDA_VISIBLE_DEVICES']}")
proof.records["began"] = time.time()
time.sleep(0.3)
if sys.argv[1] == "missed":
    proof.figure("speed", "1", "2", False)
sys.exit(proof.finish(figures.Path(name)) if sys.argv[1] != "broken" else 3)
"""


def test_everything_runs_side_by_side_but_the_class_and_renews_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = loaded("everything", monkeypatch)
    (tmp_path / "fake.py").write_text(FAKE)
    names = {"verdicts": "good", "quiet": "missed", "itself": "broken", "sequential": "good", "class": "good"}
    monkeypatch.setattr(everything, "HERE", tmp_path)
    monkeypatch.setattr(everything, "PROOFS", {name: ("fake.py", what, name) for name, what in names.items()})
    monkeypatch.setenv("PYTHONPATH", str(PROOF))
    results, page = tmp_path / "results", tmp_path / "page.md"
    results.mkdir()
    (results / "itself.json").write_text("of an earlier run")
    monkeypatch.setattr(sys, "argv", ["everything.py", str(results), "--gpus", "4", "7", "--page", str(page)])
    assert everything.main() == 1
    said = capsys.readouterr().out
    assert "verdicts: all bars are met, after " in said and f"; see {results / 'verdicts'}.txt" in said
    assert "quiet: a bar is missed, or it failed" in said and "itself: failed with 3" in said
    sections = [line for line in page.read_text().splitlines() if line[:2] == "##"]
    shown = ("verdicts", "quiet", "sequential", "class")
    assert [line[:-1] for line in sections] == [f"## {name} on GPU " for name in shown]
    assert {line[-1] for line in sections[:3]} <= {"4", "7"} and sections[3][-1] == "4"
    began = {path.stem: json.loads(path.read_text())["records"]["began"] for path in results.glob("*.json")}
    assert began.keys() == set(shown)
    assert began["class"] > max(began[name] for name in ("verdicts", "quiet", "sequential")) + 0.3
    assert "1" in (results / "quiet.txt").read_text()


def test_one_proof_alone_and_the_gpus_that_cuda_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = loaded("everything", monkeypatch)
    ran = []
    monkeypatch.setattr(everything, "_run", lambda name, gpu, folder: ran.append((name, gpu)) or 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert everything.gpus() == ["2", "3"]
    assert everything.run(["class", "ladder"], ["2"], tmp_path) == {"ladder": 0, "class": 0}
    assert ran == [("ladder", "2"), ("class", "2")]


def test_every_proof_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = loaded("everything", monkeypatch)
    assert sorted((*everything.LONGEST_FIRST, *everything.ALONE)) == sorted(everything.PROOFS)
    assert all((PROOF / program).exists() for program, *_ in everything.PROOFS.values())
