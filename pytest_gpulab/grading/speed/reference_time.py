"""How long an exercise's reference takes on this machine's CPU: for information, so once for all submissions."""

from __future__ import annotations

import platform
import threading
import time
from contextlib import suppress
from pathlib import Path

from pytest_gpulab.devices.compiler.cache import key_of, users_cache
from pytest_gpulab.exercise import Plan, Problem
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import variant_key
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, expected_of

from .contents import Inputs

LIMIT_S = 10.0  # of the time that a check may take; an exercise may have a `reference_at` because this takes minutes
THREAD = "gpulab-reference"


def reference_ms(loaded: LoadedExercise, problem: Problem, plan: Plan, inputs: Inputs) -> float | None:
    """Return what was measured on this machine before, or is now.

    None while another process measures it or there is no room for a thread, and where it fails, takes longer than
    `LIMIT_S` or cannot be kept.
    """
    folder, variant = str(loaded.folder.resolve()), repr(variant_key(problem.variant))
    told = (platform.node(), folder, _code(loaded.folder), loaded.exercise.version, str(problem.size), variant)
    try:
        text = users_cache().text(key_of(("reference", *told)), lambda: _measured(loaded, problem, plan, inputs))
    except RuntimeError:  # no further thread is allowed
        return None
    return float(text) if text else None


def goes_on() -> bool:
    """Say whether one that took too long is still computed, which nothing can stop but the end of this process.

    Whoever times beside it would wait for it before each launch.
    """
    return any(thread.name == THREAD for thread in threading.enumerate())


def _measured(loaded: LoadedExercise, problem: Problem, plan: Plan, inputs: Inputs) -> str:
    """Return how many ms it takes; empty where that cannot be told."""
    took_ms: list[float] = []

    def compute() -> None:
        with suppress(InstructorsMistake):
            begin_s = time.perf_counter()
            expected_of(loaded.exercise, problem, plan, inputs)
            took_ms.append(1e3 * (time.perf_counter() - begin_s))

    thread = threading.Thread(target=compute, name=THREAD, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return "".join(map(str, took_ms))


def _code(folder: Path) -> str:
    """Return the exercise's own, without the kernels beside it, among which is the student's."""
    return "".join(path.read_bytes().hex() for path in sorted(folder.glob("*.py")))
