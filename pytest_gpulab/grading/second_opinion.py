"""What the simulated GPU says of a case that failed on a real one, which saw neither line, block, thread nor race."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device, DeviceError
from pytest_gpulab.exercise import Case
from pytest_gpulab.grading.build import Blocked, Builds, cases_of
from pytest_gpulab.grading.cases import BESIDE_A_GPU, CaseOutcome, CaseRuns
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.prepare import InstructorsMistake

MAX_HAZARDS = 5


def seconded(found: Finding, loaded: LoadedExercise, path: Path, seed: int, case: Case) -> Finding:
    """Return the finding with what the simulated GPU sees added to its evidence, and the place if it had none.

    Unchanged where there is no simulated GPU, or where it cannot run the case.
    """
    try:
        device, _ = open_device("sim")
    except DeviceError:
        return found
    try:
        seen = _seen(device, loaded, path, seed, case)
    except (Blocked, InstructorsMistake):
        return found
    finally:
        device.close()
    if seen is None or seen[1].verdict == "not gradable":
        return found
    simulated, outcome = seen
    which = "the same case" if simulated is case else f"the case {simulated.name}"
    lines = [f"{which} on the simulated GPU: {line}" for line in _told(outcome)]
    where = next((str(fault.where) for fault in outcome.faults if fault.where), "")
    return replace(found, evidence=(*found.evidence, *lines), where=found.where or where)


def _seen(device: Device, loaded: LoadedExercise, path: Path, seed: int, case: Case) -> tuple[Case, CaseOutcome] | None:
    builds = Builds(path, loaded, device)
    tunables = builds.of(case.variant).tunables
    for candidate in (case, *cases_of(loaded.exercise, case.variant)):
        if np.prod(candidate.problem(tunables).size) <= (BESIDE_A_GPU.max_elements or 0):
            return candidate, CaseRuns(loaded, device, builds, seed, BESIDE_A_GPU).outcome(candidate)
    return None


def _told(outcome: CaseOutcome) -> Iterator[str]:
    hazards = dict.fromkeys(str(hazard) for hazard in outcome.hazards)
    yield from list(hazards)[:MAX_HAZARDS]
    yield from (str(fault) for fault in outcome.faults)
    if outcome.verdict == "passed" and not hazards:
        yield "right, and nothing unsafe"
    elif outcome.verdict == "failed" and not outcome.faults:
        yield outcome.findings[0].what
