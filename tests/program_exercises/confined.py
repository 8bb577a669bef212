"""Programs in a sandbox, for tests."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_gpulab.devices.programs.confinement.compilers import ConfinedCompilers, confined_compilers
from pytest_gpulab.devices.programs.confinement.running import ProgramInput, ProgramLimits, ProgramOutput, run_confined
from pytest_gpulab.devices.programs.device import ProgramDevice
from pytest_gpulab.devices.programs.outcome import Outcome
from pytest_gpulab.devices.programs.session import RunOptions, Session
from pytest_gpulab.devices.simulated.gpus import modelled_gpu

HOSTILE = Path(__file__).parent / "hostile.cu"


@dataclass(frozen=True)
class Confined:
    """An executable, and the compilers that have made it."""

    compilers: ConfinedCompilers
    executable: Path


@dataclass(frozen=True)
class Ended:
    """The end of a run."""

    output: ProgramOutput
    outcome: Outcome

    @property
    def lines(self) -> list[str]:
        return self.output.stdout.decode().splitlines()


@cache
def compilers() -> ConfinedCompilers:
    return confined_compilers()


def built(source: Path, folder: Path) -> Confined:
    shutil.copy(source, folder)
    return Confined(compilers(), compilers().build(folder.resolve(), source.name, modelled_gpu().target))


def run(program: Confined, given: ProgramInput, limits: ProgramLimits) -> Ended:
    device = ProgramDevice(modelled_gpu(), program.compilers.toolchain, limits.device_bytes)
    session = Session(device, RunOptions(), memory_limit=limits.device_bytes)
    return Ended(run_confined(program.executable, given, session, limits), session.outcome)
