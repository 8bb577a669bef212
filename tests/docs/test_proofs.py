"""The evaluation of the proofs: which bars are met by given gradings and times."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from proof_modules import loaded

Record = dict[str, Any]


def met(proof: Any) -> dict[str, bool | None]:
    """Return of each figure whether its bar is met."""
    return {figure.what: figure.met for figure in proof.figures}


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("figures", monkeypatch).Proof("of something")


@pytest.fixture
def gradings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded("gradings", monkeypatch)


def record(verdict: str, ratio: float = 4.0, **more: Any) -> Record:
    measured = {"ratio": ratio, "low": 0.99 * ratio, "high": 1.01 * ratio, "rounds": 16, "dropped": 4, "caches": "cold"}
    return {"verdict": verdict, **measured, **more}


RIGHT = [record("passed"), record("failed")]
UNSURE = record("inconclusive")
NO_ANSWER = {"verdict": "no answer"}


@pytest.mark.parametrize(
    ("records", "none_wrong", "few_unsure"),
    [
        (50 * RIGHT, True, True),
        (49 * RIGHT + [record("failed"), record("failed")], False, True),
        (49 * RIGHT + [record("passed"), record("passed")], False, True),
        (49 * RIGHT + [record("passed"), NO_ANSWER], False, True),
        (47 * RIGHT + [UNSURE, *RIGHT[1:]] + [UNSURE, UNSURE] * 2, True, True),
        (47 * RIGHT + [UNSURE, UNSURE] * 3, True, False),
    ],
)
def test_thresholds_are_met_without_wrong_verdicts_and_with_few_inconclusive_ones(
    monkeypatch: pytest.MonkeyPatch,
    gradings: ModuleType,
    proof: Any,
    records: Sequence[Record],
    none_wrong: bool,
    few_unsure: bool,
) -> None:
    loaded("thresholds", monkeypatch).judge(proof, 4.0, records, None)
    assert met(proof) == {"wrong verdicts": none_wrong, "inconclusive": few_unsure}


def test_beside_a_hammer_all_may_be_inconclusive_but_each_must_have_seen_it(
    monkeypatch: pytest.MonkeyPatch, gradings: ModuleType, proof: Any
) -> None:
    thresholds, hammer = loaded("thresholds", monkeypatch), gradings.Hammer(77, busy=0.7)
    beside = {**UNSURE, "shared_with": ["python (process 6)", "python (process 77)"]}
    thresholds.judge(proof, 4.0, [beside, beside], hammer)
    seen = "gradings that saw the other process"
    assert met(proof) == {
        "wrong verdicts": True,
        "inconclusive": None,
        seen: True,
        "it wanted the GPU": None,
        "rounds that were left out": None,
    }
    assert [figure.value for figure in proof.figures[-3:]] == ["2 of 2", "70% of the time", "25.0%"]
    proof.figures.clear()
    thresholds.judge(proof, 4.0, [beside, {**UNSURE, "shared_with": ["python (process 776)"]}], hammer)
    assert met(proof)[seen] is False


TORCH = """
import time
cuda, float16 = type("cuda", (), {"synchronize": lambda: time.sleep(0.001)}), None
class rand:
    def __init__(self, *_, **__): pass
    def __matmul__(self, other): return self
"""


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give it a PyTorch that waits a millisecond for whatever was asked of it."""
    path = tmp_path / "torch.py"
    path.write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return path


def test_a_hammer_says_how_much_of_the_time_it_wanted_the_gpu(gradings: ModuleType, torch: Path) -> None:
    with gradings.hammered(True) as hammer:
        time.sleep(0.3)
        assert hammer.busy == 0 and Path(f"/proc/{hammer.pid}").exists()
    assert 0 < hammer.busy <= 1 and not Path(f"/proc/{hammer.pid}").exists()
    with gradings.hammered(False) as nobody:
        assert nobody is None


@pytest.mark.parametrize(
    ("torch_is", "told"),
    [
        ("raise SystemExit(3)", "does not start"),
        (TORCH.replace("time.sleep(0.001)", "next(ends)") + "ends = iter([0, 0, 0])", "ended with 1 meanwhile"),
    ],
)
def test_a_hammer_that_is_not_there_proves_nothing(gradings: ModuleType, torch: Path, torch_is: str, told: str) -> None:
    torch.write_text(torch_is)
    with pytest.raises(RuntimeError, match=told), gradings.hammered(True):
        time.sleep(1)


@pytest.mark.parametrize(
    ("passed", "missed", "is_met"), [(0, 5, (True, True)), (1, 0, (False, True)), (0, 6, (True, False))]
)
def test_a_kernel_against_itself_passes_nothing_and_19_of_20_intervals_hold_1(
    monkeypatch: pytest.MonkeyPatch,
    gradings: ModuleType,
    proof: Any,
    passed: int,
    missed: int,
    is_met: tuple[bool, bool],
) -> None:
    records = [record("passed", 1.0)] * passed + [record("failed", 1.1)] * missed
    records += [record("failed", 1.0)] * (99 - len(records)) + [record("failed", 1.0)]
    loaded("itself", monkeypatch).judged(proof, "kernel", records, 1.0)
    assert met(proof) == dict(zip(("kernel: passed 1.02x", "kernel: interval holds 1"), is_met, strict=True))


LADDER = [
    ("copy", "driver's device copy", 8000, 2.0),
    ("PyTorch", "torch.sum int32", 4000, 1.3),
    ("PyTorch", "torch.sum int32, dtype=int32", 4000, 1.1),
    ("PyTorch", "torch.cumsum float32", 8000, 3.1),
    ("reduction", "01", 4000, 9.0),
    ("reduction", "02", 4000, 1.0),
    ("scan", "01", 8000, 3.0),
    ("scan", "02", 8000, 4.0),
]


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, set()),
        ({"02": 1.05, "torch.sum int32, dtype=int32": 1.04}, {"last reduction step over torch.sum"}),
        ({"torch.cumsum float32": 2.9}, {"best scan over torch.cumsum, 2^26 float32"}),
        ({"reduction 02": 1.12, "torch.sum int32, dtype=int32": 1.2}, {"last reduction step, 2^26 int32"}),
    ],
)
def test_a_ladder_is_held_against_its_bars_and_pytorch(
    monkeypatch: pytest.MonkeyPatch, proof: Any, changed: dict[str, float], missed: set[str]
) -> None:
    rows = [
        (group, name, 1_000_000 * size, changed.get(f"{group} {name}", changed.get(name, ms)))
        for group, name, size, ms in LADDER
    ]
    loaded("ladder", monkeypatch).judge(proof, rows, "2.9.0+cu130")
    assert {what for what, is_met in met(proof).items() if is_met is False} == missed
    assert ("PyTorch", "2.9.0+cu130") in [(figure.what, figure.value) for figure in proof.figures]


NCU_HEADERS = "Kernel Name,Grid Size,Metric Name,Metric Unit,Metric Value"


def ncu_says(monkeypatch: pytest.MonkeyPatch, proof: ModuleType, launches: Sequence[tuple[str, int, str, str]]) -> None:
    lines = [
        f'"timed_{name}(args)","({grid}, 1, 1)","{proof.METRIC}","{unit}","{us}"' for name, grid, unit, us in launches
    ]
    table = "\n".join(["==PROF== Connected", '"' + NCU_HEADERS.replace(",", '","') + '"', *lines])
    ended = subprocess.CompletedProcess("ncu", 0, table, "")
    monkeypatch.setattr(proof.subprocess, "run", lambda *_, **__: ended)


def test_ncus_times_are_taken_launch_by_launch_as_means_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded("figures", monkeypatch)
    proof = loaded("against_ncu", monkeypatch)
    monkeypatch.setitem(proof.ROWS, "warm", (proof.Row("scale", 512, 64), proof.Row("scale", 512, 16)))
    launches = [("scale", 64, "us", us) for us in ("1", "3", "5", "9", "2", "2")]
    launches += [("scale", 16, "ns", "1,500"), ("scale", 16, "ms", "0.0025")]
    ncu_says(monkeypatch, proof, launches)
    assert proof.ncu_times_us("warm", [2, 1]) == [2, 2]  # of 2, 7 and 2; of 1.5 and 2.5
    ncu_says(monkeypatch, proof, [("scale", 7, "us", "1")])
    with pytest.raises(RuntimeError, match="ncu saw a launch of scale with 7 blocks that nobody made"):
        proof.ncu_times_us("warm", [2, 1])
    ncu_says(monkeypatch, proof, [])
    monkeypatch.setattr(proof.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess("ncu", 9, "", "refused"))
    with pytest.raises(RuntimeError, match="ncu failed: refused"):
        proof.ncu_times_us("warm", [2, 1])
