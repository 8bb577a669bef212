"""Grade mutants of the ladders' last steps by `compile`, `correct` and `safe`; say which nothing has noticed.

    python tests/mutants/grade_mutants.py scan --count 500 --seed 1 --report /tmp/scan.jsonl

A line of JSON per mutant is appended to the report as soon as it is known; what the report has already is skipped, so a
run that was interrupted goes on. A mutant is

    refused     if it does not compile, which does not count,
    same        if the compiler makes the same code of it,
    killed      if a check fails (`by` says which),
    equivalent  if nothing fails and equivalent.toml says why that is right, for a pair of mistakes: of each,
    survived    if nothing fails otherwise: look whether it is right, then add it there, or mend the exercise,
    crashed     if the grader raised an error.

The exit status is 1 if any survived or crashed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomllib

from pytest_gpulab.authoring.mutants import machine_code, outcome_of
from pytest_gpulab.authoring.mutator import Mutant, mutants
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Catalogue(ROOT / "exercises")
KERNELS = tuple(name for name in CATALOGUE.names if (CATALOGUE.folder / name / "naive.cu").is_file())
EQUIVALENT = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text(encoding="utf-8"))
SECONDS = 30  # of processor time for one mutant; longer counts as killed


class TooLong(Exception):
    pass


def last_step(exercise: str) -> Path:
    return max((ROOT / "solutions" / exercise).glob("*.cu"))


def verdict_of(
    mutant: Mutant, loaded: LoadedExercise, folder: Path, original: list[str] | None, seed: int
) -> dict[str, Any]:
    """Return what becomes of a mutant: `status`, and for a killed one the first check that fails and its finding."""
    device = SimulatedDevice()
    try:
        with at_most(SECONDS):
            found = outcome_of(mutant.source, loaded, device, folder / f"{loaded.name}.cu", original, seed)
    except TooLong:
        return {"status": "killed", "by": "time", "code": "time-limit"}
    except Exception as error:  # of this package: to be mended, whatever the mutant is
        return {"status": "crashed", "code": repr(error)}
    finally:
        device.close()
    if found.status != "survived":
        return asdict(found)
    reason = reason_of(mutant, loaded, original)
    return {"status": "equivalent", "reason": reason} if reason else {"status": "survived"}


def reason_of(mutant: Mutant, loaded: LoadedExercise, original: list[str] | None) -> str:
    """Return why a mutant is right, or an empty text if no reason is known. A pair is right if each part of it is."""
    if known := EQUIVALENT[loaded.name].get(f"{mutant.line}: {mutant.what}"):
        return str(known)
    if original is not None and list(machine_code(mutant.source, loaded)) == original:
        return "the same code"
    reasons = [reason_of(part, loaded, original) for part in mutant.parts]
    return "; ".join(reasons) if all(reasons) else ""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercise", choices=KERNELS)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--step", type=Path, help="the kernel to change; the ladder's last step if not given")
    asked = parser.parse_args()
    loaded, step = CATALOGUE.load(asked.exercise), asked.step or last_step(asked.exercise)
    source = step.read_text(encoding="utf-8")
    original = list(machine_code(source, loaded))
    rows = [json.loads(line) for line in asked.report.read_text().splitlines()] if asked.report.exists() else []
    known = {row["source"]: row["status"] for row in rows}
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, asked.report.open("a", encoding="utf-8") as report:
        for mutant in mutants(source, 4 * asked.count, asked.seed):
            if sum(tally.values()) - tally["refused"] == asked.count:
                break
            if mutant.source in known:
                tally[known[mutant.source]] += 1
                continue
            found = verdict_of(mutant, loaded, Path(folder), original, asked.seed)
            tally[found["status"]] += 1
            row = {**found, "kind": mutant.kind, "line": mutant.line, "what": mutant.what, "source": mutant.source}
            print(json.dumps(row), file=report, flush=True)
            if found["status"] in ("survived", "crashed"):
                print(f"{found['status']}: {step.name}:{mutant.line}: {mutant.kind}: {mutant.what}", flush=True)
    print(dict(tally))
    return int(tally["survived"] + tally["crashed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
