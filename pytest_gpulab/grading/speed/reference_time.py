"""The time of an exercise's CPU reference, measured once per machine, for information."""

import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pytest_gpulab.devices.compiler.cache import key_of, users_cache
from pytest_gpulab.exercise import Plan, Problem
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import variant_key
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, expected_of

from .contents import Inputs

LIMIT_S = 10.0  # within the time limit of a check; the reference of an exercise with `reference_at` may take minutes
THREAD = "gpulab-reference"


def reference_ms(loaded: LoadedExercise, problem: Problem, prepare: Callable[[], tuple[Plan, Inputs]]) -> float | None:
    """Return the reference's time on this machine, from the cache or measured now, on the data that `prepare` makes.

    None while another process measures it, if no thread can start, and if the reference fails, takes longer than
    `LIMIT_S` or cannot be cached.
    """
    folder, variant = str(loaded.folder.resolve()), repr(variant_key(problem.variant))
    identity = (platform.node(), folder, _code(loaded.folder), loaded.exercise.version, str(problem.size), variant)
    try:
        text = users_cache().text(key_of(("reference", *identity)), lambda: _measured(loaded, problem, *prepare()))
    except RuntimeError:  # the system allows no further thread
        return None
    return float(text) if text else None


def goes_on() -> bool:
    """Return whether a reference that exceeded the limit still runs; only the end of the process stops its thread.

    Timed launches in this process would wait for it.
    """
    return any(thread.name == THREAD for thread in threading.enumerate())


def _measured(loaded: LoadedExercise, problem: Problem, plan: Plan, inputs: Inputs) -> str:
    """Return the time in ms as text; empty if it fails or takes too long."""
    took_ms: list[float] = []

    def compute() -> None:
        with suppress(InstructorsMistake, MemoryError):
            begin_s = time.perf_counter()
            expected_of(loaded.exercise, problem, plan, inputs)
            took_ms.append(1e3 * (time.perf_counter() - begin_s))

    thread = threading.Thread(target=compute, name=THREAD, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return "".join(map(str, took_ms))


def _code(folder: Path) -> str:
    """Return the exercise's Python code; kernels are left out, because the student's is among them."""
    return "".join(path.read_bytes().hex() for path in sorted(folder.glob("*.py")))
