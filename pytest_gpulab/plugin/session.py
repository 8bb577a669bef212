"""The grading session: the exercises, the device, and the speed thresholds for it.

Knows no pytest. Grading itself is imported on first use, so that the plugin does not slow down the start of pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from pytest_gpulab.course.executors.dask_cluster import ClusterExecutor
    from pytest_gpulab.devices.protocol import Device, DeviceInfo
    from pytest_gpulab.grading.calibration.choice import DeviceThresholds
    from pytest_gpulab.grading.catalogue import Catalogue, Loaded, LoadedExercise, LoadedProgram
    from pytest_gpulab.grading.checks import CheckGrader
    from pytest_gpulab.grading.expected import Expectation, Expectations
    from pytest_gpulab.grading.tools.ncu import Profiler


@dataclass
class GradingSession:
    """A grading session; all nodes share it."""

    settings: Settings
    catalogue: Catalogue
    expectations: Expectations | None = None  # the expected verdicts, if the settings name files of them
    # the speed thresholds for the device; None where times are estimates, which have no calibration
    thresholds: DeviceThresholds | None = None
    device: Device | None = None  # None before it is opened, under `--collect-only`, and where worker processes open it
    device_info: DeviceInfo | None = None  # the device's own description, once it was opened
    # the device and the reason for it; then its properties, and the source of its thresholds
    device_lines: tuple[str, ...] = ("collecting only, no device opened",)
    # texts about the instructor's mistakes that were shown; each is shown once for all submissions
    explained: set[str] = field(default_factory=set)
    sanitizes: bool = False  # whether failing checks run under compute-sanitizer
    profiler: Profiler | None = None  # counts shared by the graders, if Nsight Compute profiles the kernels
    cluster: ClusterExecutor | None = None  # the Dask cluster that grades instead of this machine

    @classmethod
    def prepare(cls, settings: Settings) -> GradingSession:
        """Read the exercises folder and the expected verdicts.

        Raises SettingsError if a file of expected verdicts or the weight of an exercise is wrong.
        """
        from pytest_gpulab.grading.catalogue import Catalogue

        expectations = None
        if settings.expected:
            from pytest_gpulab.grading.expected import Expectations

            expectations = Expectations.load(settings.expected)
        catalogue = Catalogue(settings.exercises)
        if unknown := sorted(set(settings.weights) - set(catalogue.names)):
            there = ", ".join(catalogue.names)
            raise SettingsError(f"gpulab_weights: there is no exercise {unknown[0]!r}; exercises: {there}")
        return cls(settings, catalogue, expectations)

    def expectation(self, path: Path) -> Expectation | None:
        """Return the expected verdict of a `.cu` file, or None."""
        return None if self.expectations is None else self.expectations.for_path(path)

    def check_arguments(self, paths: Iterable[Path]) -> None:
        """Refuse files that can never be graded; pytest itself reports missing ones.

        Raises SettingsError if a file is not a `.cu` file, or belongs to an exercise.
        """
        for path in paths:
            if path.is_file() and path.suffix != ".cu":
                raise SettingsError(f"{path} is not a .cu file: --gpulab grades nothing else")
            if path.is_file() and not self.catalogue.is_submission(path):
                raise SettingsError(f"{path} belongs to the exercise itself: copy it elsewhere to have it graded")

    def open_device(self, will_grade: bool = True) -> None:
        """Open the requested device, or connect to the cluster that has it.

        A GPU is only checked for availability: each submission gets its own process on it, with a time limit, because a
        kernel can hang or break the GPU for its process. The simulated GPU needs that only with a time limit.
        `will_grade` is False if only other processes grade. Raises SettingsError with a remedy if the device is not
        available.
        """
        from pytest_gpulab.devices.compiler.sandbox import PROTECTION
        from pytest_gpulab.devices.system import processes

        processes.mark_what_is_started()
        if will_grade and self._will_fork():
            from pytest_gpulab.grading.isolation import fork_server

            fork_server.preload()  # concurrently, because it takes as long as opening the device
        info, reason = self._opened() if self.settings.course.scheduler is None else self._joined()
        why = reason.partition("; ")[0]  # without the advice on what to install, which the header need not repeat
        self.device_info = info
        self.device_lines = (f"{info.name}, because {why}", info.summary)
        if PROTECTION in info.details:
            self.device_lines += (f"submissions are compiled under {info.details[PROTECTION]}",)
        if info.kind == "cuda" and self.settings.gpu is not None:
            self.device_lines += ("--gpulab-gpu has no effect: the GPU is a real one",)
        if info.kind == "cuda" and self.settings.architecture is not None:
            self.device_lines += ("--gpulab-arch has no effect: the GPU is a real one",)
        self.device_lines += self._choose_thresholds(info)
        if info.kind == "cuda" or self.settings.timeout_s is not None:
            self.close_device()
        self._look_for_tools(info)

    def _will_fork(self) -> bool:
        """Return whether submissions most probably get worker processes forked from this one."""
        settings = self.settings
        if settings.course.scheduler is not None:
            return False
        may_be_gpu = settings.device != "sim" and PathFinder.find_spec("pycuda") is not None
        return may_be_gpu or settings.timeout_s is not None or settings.course.is_asked_for

    def _opened(self) -> tuple[DeviceInfo, str]:
        from pytest_gpulab.devices import LAUNCH_LIMIT_S, open_device
        from pytest_gpulab.devices.protocol import DeviceUnavailable

        settings = self.settings
        isolated = settings.course.is_asked_for or settings.timeout_s is not None
        described = (settings.architecture, settings.gpu)
        try:
            self.device, reason = open_device(settings.device, LAUNCH_LIMIT_S, *described, isolated=isolated)
        except DeviceUnavailable as error:
            raise SettingsError(str(error)) from None
        return self.device.info, reason

    def _joined(self) -> tuple[DeviceInfo, str]:
        from pytest_gpulab.course.executors.dask_cluster import ClusterExecutor

        settings = self.settings
        assert settings.course.scheduler is not None
        self.cluster = ClusterExecutor(settings.course.scheduler, settings.device, settings.architecture, settings.gpu)
        return self.cluster.info, self.cluster.reason

    def _look_for_tools(self, info: DeviceInfo) -> None:
        self.sanitizes = self.settings.sanitize and info.kind == "cuda"
        if not self.settings.sanitize and not self.settings.count:
            return
        from pytest_gpulab.grading.tools import ncu, sanitizer

        path = "every worker's PATH" if self.cluster else "the PATH"

        def find(is_there: Callable[[], bool]) -> bool:
            return self.cluster.all_say(is_there) if self.cluster else is_there()

        if self.sanitizes and not find(sanitizer.is_there):
            raise SettingsError(f"--gpulab-sanitizer: compute-sanitizer, of the CUDA toolkit, is not on {path}")
        if self.settings.sanitize and not self.sanitizes:
            self.device_lines += ("--gpulab-sanitizer has no effect: the simulated GPU already checks every access",)
        if self.settings.count and info.kind == "simulated":
            self.device_lines += ("--gpulab-ncu has no effect: the simulated GPU has its own counters, shown with -v",)
        elif self.settings.count and not find(ncu.is_there):
            self.device_lines += (f"--gpulab-ncu has no effect: ncu, of Nsight Compute, is not on {path}",)
        elif self.settings.count:
            self.profiler = ncu.Profiler()

    def _choose_thresholds(self, info: DeviceInfo) -> tuple[str, ...]:
        settings = self.settings
        if info.estimates and not settings.calibrate:
            return ()
        from pytest_gpulab.grading.calibration.choice import DeviceThresholds

        self.thresholds = DeviceThresholds(settings.calibration, settings.exercises, settings.calibrate)
        line = self.thresholds.choose(info)
        return (line,) if line else ()

    @property
    def device_spec(self) -> str:
        """The opened device, in the form of `open_device`; never `auto`."""
        assert self.device_info is not None, "a device is opened before anything runs"
        return "sim" if self.device_info.kind == "simulated" else self.settings.device.replace("auto", "cuda")

    def grader(self, exercise: Loaded, path: Path, label: str) -> CheckGrader:
        """Return the grader of a submission: in this process if the device is open here, or for a program."""
        from pytest_gpulab.grading.catalogue import LoadedProgram

        if isinstance(exercise, LoadedProgram):
            return self._program_grader(exercise, path, label)
        exercise = self.calibrated(exercise)
        if self.device is not None:
            from pytest_gpulab.grading.grader import Grader

            annotate = self.settings.annotate
            return Grader(exercise, path, self.device, self.settings.seed, label, annotate=annotate)
        from pytest_gpulab.grading.isolation.remote import DEFAULT_TIMEOUT_S, RemoteGrader

        spec, info = self.device_spec, self.device_info
        assert info is not None
        timeout_s = self.settings.timeout_s or DEFAULT_TIMEOUT_S
        settings = self.settings
        more = (settings.architecture, self.sanitizes, self.profiler, settings.annotate)
        return RemoteGrader(exercise, path, spec, info, settings.seed, label, timeout_s, *more, gpu=settings.gpu)

    def calibrated(self, exercise: LoadedExercise) -> LoadedExercise:
        """Return an exercise with its thresholds on the device."""
        return exercise if self.thresholds is None else self.thresholds.applied_to(exercise)

    def _program_grader(self, exercise: LoadedProgram, path: Path, label: str) -> CheckGrader:
        from pytest_gpulab.grading.programs.grader import ProgramGrader

        settings = self.settings
        return ProgramGrader(exercise, path, settings.seed, settings.programs, label, settings.gpu)

    def close_device(self) -> None:
        """Close the device, if one is open."""
        if self.device is not None:
            self.device.close()
            self.device = None
