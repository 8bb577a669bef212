"""A plugin of runs about programs that never end: each program has 2 s."""

from __future__ import annotations

from dataclasses import replace

LIMIT_S = 2.0


def pytest_collection_finish() -> None:
    from pytest_gpulab.devices.programs.confinement.running import ProgramLimits
    from pytest_gpulab.grading.programs import runs  # by now NumPy has been loaded with one thread

    def limits(*values: float) -> ProgramLimits:
        return replace(ProgramLimits(*values), timeout_s=LIMIT_S)

    runs.ProgramLimits = limits
