"""IPython magics and HTML views for notebooks: `%load_ext pytest_gpulab`.

`%%gpulab EXERCISE` grades the cell, `%%cuda NAME` compiles it into the variable NAME, to be launched by hand. Grades,
profiles of launches and devices are shown as tables.
"""

import argparse
import html
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.errors import CompileError, DeviceUnavailable
from pytest_gpulab.devices.protocol import Device, DeviceInfo, LaunchProfile, Module
from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue, LoadedExercise
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.reports.students import Points, points_text
from pytest_gpulab.reports.terminal.check_text import check_text

MAX_SHOWN = 40  # counters of a profile


class Magics:
    """The magics of one notebook (IPython's `shell`), which share its device."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._devices: dict[str, Device] = {}

    def gpulab(self, line: str, cell: str) -> Grade | None:
        """Grade the cell: `%%gpulab EXERCISE [--exercises DIR] [--device sim] [--seed N]`."""
        given = _parsed("gpulab", line, ("--exercises", "exercises"), ("--seed", "1"))
        if given is None:
            return None
        catalogue = Catalogue(Path(given.exercises))
        if given.name not in catalogue.names:
            there = ", ".join(catalogue.names) or "it has none; `gpulab course DIR` writes a folder with them"
            _tell(f"There is no exercise {given.name} in {given.exercises}: {there}.")
            return None
        try:
            exercise, device = catalogue.load(given.name), self._device(given.device)
        except (BrokenExercise, DeviceUnavailable) as error:
            _tell(str(error))
            return None
        if not isinstance(exercise, LoadedExercise):
            _tell(f"{given.name} asks for a whole program, which a cell cannot be.")
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{given.name}.cu"
            path.write_text(cell, encoding="utf-8")
            return Grader(exercise, path, device, int(given.seed), label=path.name).grade()

    def cuda(self, line: str, cell: str) -> None:
        """Compile the cell into a variable: `%%cuda NAME [--device sim]`."""
        given = _parsed("cuda", line)
        if given is None:
            return
        try:
            module: Module = self._device(given.device).compile(cell, f"{given.name}.cu")
        except (CompileError, DeviceUnavailable) as error:
            _tell(error.diagnostics if isinstance(error, CompileError) else str(error))
            return
        self._shell.user_ns[given.name] = module
        self._shell.user_ns.setdefault("device", self._devices[given.device])

    def _device(self, spec: str) -> Device:
        if spec not in self._devices:
            self._devices[spec], _ = open_device(spec)
            kind = type(self._devices[spec])
            self._shell.display_formatter.formatters["text/html"].for_type(
                kind, lambda device: device_html(device.info)
            )
        return self._devices[spec]


def _parsed(magic: str, line: str, *options: tuple[str, str]) -> argparse.Namespace | None:
    """Return the arguments of a magic; None if they are wrong, which argparse has printed beside the cell."""
    parser = argparse.ArgumentParser(f"%%{magic}", add_help=False)
    parser.add_argument("name")
    parser.add_argument("--device", default="auto")
    for option, default in options:
        parser.add_argument(option, default=default)
    try:
        return parser.parse_args(shlex.split(line))
    except SystemExit:  # would end in a warning about leaving the notebook
        return None


def _tell(message: str) -> None:
    from IPython.core.display_functions import publish_display_data

    publish: Any = publish_display_data
    publish({"text/html": f"<pre>{html.escape(message)}</pre>", "text/plain": message})


def load(shell: Any) -> None:
    """Register the magics and the views."""
    magics = Magics(shell)
    shell.register_magic_function(magics.gpulab, "cell", "gpulab")
    shell.register_magic_function(magics.cuda, "cell", "cuda")
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(Grade, grade_html)
    formatter.for_type(LaunchProfile, profile_html)
    formatter.for_type(DeviceInfo, device_html)


def grade_html(grade: Grade) -> str:
    """Return a grade's points, its checks, and the findings of checks that did not pass."""
    points = Points.of(grade.checks)
    heading = f"{grade.exercise}: {points_text(points.earned)} of {points_text(points.graded)} points"
    rows = [(each.name, each.verdict, points_text(each.points), points_text(each.max_points)) for each in grade.checks]
    texts = {check_text(each): each.name for each in grade.checks if any(not f.because for f in each.findings)}
    notes = (f"<p><b>{html.escape(name)}</b></p><pre>{html.escape(text)}</pre>" for text, name in texts.items())
    return _table(heading, ("check", "verdict", "points", "of"), rows) + "".join(notes)


def profile_html(profile: LaunchProfile) -> str:
    """Return the figures of a launch, its hazards and its first counters."""
    rows: list[Sequence[str]] = [("grid", str(profile.grid)), ("block", str(profile.block))]
    if profile.estimated_ms is not None:
        rows.append(("estimated time, ms", f"{profile.estimated_ms:.3g}"))
    rows += [("limited by", profile.bottleneck)] if profile.bottleneck else []
    rows += [("occupancy", f"{profile.occupancy:.0%}")] if profile.occupancy is not None else []
    rows += [("hazard", f"{hazard.where}: {hazard.what}") for hazard in profile.hazards]
    rows += [("printed", profile.output)] if profile.output else []
    rows += [(name, f"{value:g}") for name, value in list(profile.counters.items())[:MAX_SHOWN]]
    return _table(profile.kernel, ("", ""), rows)


def device_html(info: DeviceInfo) -> str:
    """Return the description of a device."""
    rows = {"architecture": info.architecture, "compiler": info.compiler, **info.details}
    return _table(info.name, ("", ""), list(rows.items()))


def _table(caption: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in headers)
    body = ("".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) for row in rows)
    lines = "".join(f"<tr>{cells}</tr>" for cells in body)
    return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{lines}</table>"
