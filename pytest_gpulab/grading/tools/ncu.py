"""NVIDIA's Nsight Compute (ncu), which reads a GPU's counters: command line, output, refusals."""

import csv
import re
import shutil
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pytest_gpulab.devices.protocol import Device, alone_on
from pytest_gpulab.exercise import Problem, SpeedTier
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import Builds
from pytest_gpulab.grading.counters import METRICS, Counter, KernelCounters, first_of_each
from pytest_gpulab.grading.plans.prepare import make_inputs, make_plan, rng_for
from pytest_gpulab.grading.plans.replay import FIRST, replay
from pytest_gpulab.grading.speed.costs import pattern_of

PROGRAM = "ncu"
NO_PERMISSION = "ncu: no permission to read the GPU's counters; docs/cuda.md explains how to allow it"
NOT_ENDED = "ncu: the kernels had not ended after {limit_s:g} s"
NOTHING = "ncu: it ended without counters"
_ERROR = re.compile(r"^==ERROR== *(.*\S)", re.M)


@dataclass(frozen=True)
class Profile:
    """The counters of a run under ncu, per distinct launch; or the reason why there are none."""

    kernels: tuple[KernelCounters, ...] = ()
    note: str = ""


@dataclass
class Profiler:
    """Profiling state of a session, shared by its graders: if ncu refuses one of them, it refuses all."""

    refused: bool = False  # whether ncu has refused for lack of permission


def is_there() -> bool:
    """Return whether ncu is on the PATH."""
    return shutil.which(PROGRAM) is not None


def command(log: Path) -> tuple[str, ...]:
    """Return the ncu command line that precedes a command and writes the table of its launches to a file.

    The clocks stay unchanged, because changing them requires privileges, and no times are taken from ncu.
    """
    options = ("--clock-control=none", "--target-processes=all", "--csv", "--print-units=base")
    return (PROGRAM, *options, f"--metrics={','.join(METRICS)}", f"--log-file={log}")


def run_timed_plan(loaded: LoadedExercise, device: Device, builds: Builds, tier: SpeedTier, seed: int) -> None:
    """Run the plan that a tier times, once and alone on the GPU, for ncu, which profiles this process.

    Raises BuildFailed, InstructorsMistake or DeviceError if the plan does not run, as in the grade.
    """
    build = builds.of(tier.variant)
    problem = Problem(tier.size, build.tunables, tier.variant)
    plan = make_plan(loaded.exercise, problem)
    pattern = pattern_of(loaded.exercise, tier.variant)
    inputs = make_inputs(loaded.exercise, problem, plan, pattern, rng_for(seed, loaded.name, "ncu", tier.variant.name))
    with alone_on(device):
        run = replay(device, build.module, plan, inputs, FIRST, read_back=False)
    if run.error is not None:
        raise run.error


def profile(log: Path, stderr: str) -> Profile:
    """Return the counters of a run from the file that `command` names, if it exists, or the reason why there are none.

    ncu reports on stderr why it did not start.
    """
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    kernels = read(text)
    return Profile(kernels) if kernels else Profile(note=refusal(f"{text}\n{stderr}"))


def read(text: str) -> tuple[KernelCounters, ...]:
    """Return the launches of ncu's table in order; launches with equal kernel, grid and block appear once.

    The table has a row per launch and metric; the lines before it begin with `==`.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = [row for row in csv.DictReader(lines) if row.get("Metric Name")]
    return first_of_each(_launch(list(group)) for _, group in groupby(rows, key=lambda row: row["ID"]))


def refusal(text: str) -> str:
    """Return the reason why there are no counters, as one line, from the output of ncu.

    It is the first error, which may be two lines long.
    """
    if "ERR_NVGPUCTRPERM" in text:
        return NO_PERMISSION
    errors = _ERROR.findall(text)
    first = errors[:2] if errors and errors[0].endswith(":") else errors[:1]
    return f"ncu: {' '.join(first)}" if first else NOTHING


def _launch(rows: list[dict[str, str]]) -> KernelCounters:
    counters = tuple(Counter(row["Metric Name"], value, row["Metric Unit"]) for row in rows for value in _number(row))
    first = rows[0]
    return KernelCounters(
        _name(first["Kernel Name"]), _extents(first["Grid Size"]), _extents(first["Block Size"]), counters
    )


def _name(signature: str) -> str:
    """Return a kernel's name from its signature: `void scan<float>(const float *)` is `scan`."""
    found = re.search(r"(\w+)\s*[<(]", signature)
    return found[1] if found else signature


def _extents(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _number(row: dict[str, str]) -> list[float]:
    """Return the value as a list, empty if the GPU lacks the counter (`n/a`); ncu separates thousands by commas."""
    text = row["Metric Value"].replace(",", "")
    return [float(text)] if re.fullmatch(r"-?\d+(\.\d*)?([eE][+-]?\d+)?", text) else []
