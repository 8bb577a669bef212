"""The build and the runs of a program, each made once."""

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from pytest_gpulab.devices.errors import CompileError, DeviceError, DeviceUnavailable
from pytest_gpulab.devices.programs.build import headers_of
from pytest_gpulab.devices.programs.call_sites import source_lines
from pytest_gpulab.devices.programs.confinement.compilers import ConfinedCompilers, confined_compilers
from pytest_gpulab.devices.programs.confinement.running import ProgramInput, ProgramLimits, ProgramOutput, run_confined
from pytest_gpulab.devices.programs.device import ProgramDevice, ProgramModule
from pytest_gpulab.devices.programs.outcome import Outcome
from pytest_gpulab.devices.programs.session import RunOptions, Session
from pytest_gpulab.devices.programs.stand_in import error_texts
from pytest_gpulab.devices.simulated.gpus import modelled_gpu
from pytest_gpulab.devices.source.tokens import tokens
from pytest_gpulab.grading.catalogue import LoadedProgram
from pytest_gpulab.grading.compilation.builds import BuildFailed, made_once, source_text
from pytest_gpulab.grading.compilation.includes import read_source
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import NOT_ENABLED, Finding
from pytest_gpulab.grading.plans.prepare import header_texts, instructors_code, rng_for
from pytest_gpulab.grading.program_findings import Errors, Sources, program_findings
from pytest_gpulab.program_exercise import MakeProgram, Program

TODO = "GPULAB_TODO"
LATER_S = 4.0  # the time limit once a run had to be stopped
NO_SANDBOX = "no-sandbox"
ENABLE = "Add --gpulab-programs, or `gpulab_programs = true` to pytest's configuration (docs/programs.md)."
INSTALL = "docs/programs.md lists the packages of the system that programs need."


@dataclass(frozen=True)
class ProgramRun:
    """A run of a program."""

    program: Program  # the exercise's data for it
    timeout_s: float
    output: ProgramOutput  # what the program wrote
    outcome: Outcome  # its course on the simulated GPU
    findings: tuple[Finding, ...]  # on its course: faults, hazards, failed calls, leaks


class ProgramRuns:
    """The build and the runs of one submission, if the instructor allows its native code (`is_enabled`).

    `sha256` is the hash of the file's bytes; empty if it cannot be read. `gpu` is as `open_device` takes it.
    """

    def __init__(self, loaded: LoadedProgram, path: Path, gpu: str | None, seed: int, is_enabled: bool) -> None:
        self._loaded, self._path, self._seed, self._is_enabled = loaded, path, seed, is_enabled
        self._gpu = modelled_gpu(gpu) if gpu else modelled_gpu()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._built: dict[Path, tuple[ConfinedCompilers, Path] | BuildFailed] = {}
        self._has_hung = False
        self._runs: dict[str, ProgramRun | BuildFailed] = {}
        try:
            self._contents = read_source(path)
        except OSError as error:
            found = finding("empty-source", f"The file cannot be read: {error.strerror}.")
            self._contents, self._built[path] = b"", BuildFailed("failed", found)
        self.sha256 = "" if self._built else hashlib.sha256(self._contents).hexdigest()

    def build(self) -> tuple[ConfinedCompilers, Path]:
        """Return the compilers and the executable.

        Raises BuildFailed, which is cached, and InstructorsMistake if the exercise's headers cannot be read.
        """
        return made_once(self._built, self._path, self._make)

    @property
    def lacks_build(self) -> bool:
        """True if the build has failed."""
        return isinstance(self._built.get(self._path), BuildFailed)

    def _make(self) -> tuple[ConfinedCompilers, Path]:
        source = source_text(self._contents, self._path.name)
        _check_started(source, self._path.name)
        if not self._is_enabled:
            what = "This exercise runs the program's host code natively: it is graded only with --gpulab-programs"
            raise BuildFailed("not gradable", finding(NOT_ENABLED, what, hint=ENABLE))
        try:
            compilers = confined_compilers()
        except DeviceUnavailable as missing:
            what = f"The program cannot be run safely here: {missing}"
            raise BuildFailed("not gradable", finding(NO_SANDBOX, what, hint=INSTALL)) from missing
        folder = self._filled(source)
        try:
            return compilers, compilers.build(folder, self._path.name, self._gpu.target)
        except DeviceError as error:
            raise BuildFailed(*of_error(error)) from error

    def _filled(self, source: str) -> Path:
        """Return a new folder with the source and the exercise's headers."""
        headers = header_texts(self._loaded.folder, self._loaded.exercise.headers)
        self._folder = tempfile.TemporaryDirectory(prefix="gpulab-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name).resolve()
        for name, text in headers.items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / self._path.name).write_text(source, encoding="utf-8")
        return folder

    def run(self, check: str, make: MakeProgram) -> ProgramRun:
        """Return the run of a check; the check's name chooses the random numbers.

        Raises BuildFailed, which is cached, and InstructorsMistake if the exercise's function fails.
        """

        def made() -> ProgramRun:
            try:
                return self._made(check, make)
            except DeviceError as error:
                raise BuildFailed(*of_error(error)) from error

        return made_once(self._runs, check, made)

    def _made(self, check: str, make: MakeProgram) -> ProgramRun:
        compilers, executable = self.build()
        with instructors_code("program"):
            program = make(rng_for(self._seed, self._loaded.name, check))
            if not isinstance(program, Program):
                raise TypeError(f"it returned {program!r} instead of a Program")
        timeout_s = min(program.timeout_s, LATER_S) if self._has_hung else program.timeout_s
        limits = ProgramLimits(
            timeout_s, program.memory_bytes, program.device_bytes, program.output_bytes, program.disk_bytes
        )
        device = ProgramDevice(self._gpu, compilers.toolchain, limits.device_bytes, compilers.before_ptxas)
        session = Session(device, RunOptions(), memory_limit=limits.device_bytes)
        session.given = self._given(compilers, device, program.defines)
        given = ProgramInput(program.args, program.stdin_bytes, program.files, program.writes)
        try:
            output = run_confined(executable, given, session, limits)
        finally:
            device.arena.close()
        outcome = session.outcome
        self._has_hung |= outcome.timed_out
        return ProgramRun(program, timeout_s, output, outcome, self._findings(compilers, executable, outcome))

    def _given(
        self, compilers: ConfinedCompilers, device: ProgramDevice, defines: Mapping[str, str]
    ) -> ProgramModule | None:
        """Return the given kernels as the exercise has them, on the device."""
        if not self._loaded.exercise.given:
            return None
        headers = header_texts(self._loaded.folder, self._loaded.exercise.given)
        with instructors_code("given"):
            try:
                return ProgramModule(device, compilers.kernels(headers, defines, self._gpu.target))
            except CompileError as error:
                raise ValueError(error.diagnostics) from None

    def _findings(self, compilers: ConfinedCompilers, executable: Path, outcome: Outcome) -> tuple[Finding, ...]:
        folder = executable.parents[1]
        within = compilers.before_reader(folder)
        lines = source_lines(executable, outcome.addresses(), headers_of(compilers.toolchain), within)
        errors = _error_texts() if outcome.failed_calls else {}
        return tuple(program_findings(outcome, Sources(folder, lines, errors, own_only=True)))

    def close(self) -> None:
        """Remove the files of the build."""
        if self._folder is not None:
            self._folder.cleanup()


@lru_cache(maxsize=1)
def _error_texts() -> Errors:
    return {code: (name, text) for code, name, text in error_texts()}


def _check_started(source: str, filename: str) -> None:
    """Raise `BuildFailed` if the file has a GPULAB_TODO line; nothing is compiled for that."""
    found = tokens(source)
    for word, sign in pairwise(found):
        if (word.kind, word.text, sign.text) == ("word", TODO, "("):
            line = source.count("\n", 0, word.start) + 1
            what = "The program still has its GPULAB_TODO line."
            hint = "Write the program, then delete its GPULAB_TODO line."
            found_at = finding("not-started", what, f"{filename}:{line}", hint=hint)
            raise BuildFailed("not started", replace(found_at, line=source.splitlines()[line - 1].strip()))
