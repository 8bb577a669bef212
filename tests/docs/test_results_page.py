"""The page of results is made from what the proofs write."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROOF = Path(__file__).parents[1] / "gpu" / "proof"


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PROOF))
    spec = importlib.util.spec_from_file_location(name, PROOF / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


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
    assert "**All of them**" in made and "| sum    | 0.077 |" in made


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
