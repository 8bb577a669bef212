"""Grade a submission in a process of its own, so that nothing it does to a GPU or a compiler reaches any other.

A kernel fault breaks CUDA for the process it happens in; a hang, a crash or a fault ends that process, and the next
check goes on in a new one. The new one takes the check that ended the old one for failed and does not repeat it.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytest_gpulab.devices import LAUNCH_LIMIT_S
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable, OutOfMemory
from pytest_gpulab.devices.system.memory_kills import REMEDY
from pytest_gpulab.exercise import Size, SpeedTier, UsesCheck
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import Check, CheckGrader, checks_of
from pytest_gpulab.grading.findings import COMPILER_HINT, finding, lacks_device, of_error
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance
from pytest_gpulab.grading.grader import provenance_of
from pytest_gpulab.grading.time_limits import CHECK_S
from pytest_gpulab.grading.tools import ncu, sanitizer

from .cross_check import CrossCheck, was_stopped
from .worker_process import (
    Crashed,
    Hung,
    KilledForMemory,
    NeverBegan,
    ProcessScope,
    Worker,
    WorkerError,
    answered_under,
)

DEFAULT_TIMEOUT_S = CHECK_S
IMPATIENT_LAUNCH_S = 1.0  # for the other launches of a submission that hung once
ATTEMPTS = 2  # a process may also be killed because of others, when memory runs out

STARVED = 0.1  # of its time limit: a compilation that had a processor for less was kept waiting
JUDGED_FROM_S = 5.0  # below, the system's clock ticks are too coarse
REST = "take fewer processes (a smaller --gpulab-workers or -n)"


class RemoteGrader(CheckGrader):
    """A `Grader` in another process, which starts with the first check or before: the same interface, and `close`.

    Args:
        exercise: what to grade it for; the worker loads it again from its folder.
        path: the submission.
        device: as `open_device` takes it, but never `auto`.
        info: what that device says about itself; if None it must be asked, with `begin`.
        seed: of all input data.
        label: what the grade calls the submission; its path if None.
        timeout_s: the longest that a check may take, its wait for other processes' timing left out.
        sanitize: whether to run failed `correct` checks once more under compute-sanitizer.
        occupancy_architecture: as `open_device` takes it.
        profiler: whether, and on whose behalf, to count what the timed kernels do with Nsight Compute.
        annotate: whether to list what each source line does and costs.
        gpu: as `open_device` takes it.
        scope: of the processes; when it is over, whatever is asked raises `CancelledError`.
    """

    def __init__(
        self,
        exercise: LoadedExercise,
        path: Path,
        device: str,
        info: DeviceInfo | None,
        seed: int,
        label: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        occupancy_architecture: str | None = None,
        sanitize: bool = False,
        profiler: ncu.Profiler | None = None,
        annotate: bool = False,
        gpu: str | None = None,
        scope: ProcessScope | None = None,
    ) -> None:
        self._custody = scope or ProcessScope()
        self._loaded, self._timeout_s, self._seed = exercise, timeout_s, seed
        self._label = str(path) if label is None else label
        self._info, self._sanitize, self._profiler = info, sanitize, profiler
        self._on_gpu = device != "sim"
        self._profiles: dict[tuple[Size, str], ncu.Profile] = {}
        self._task = {
            "exercises": str(exercise.folder.parent),
            "exercise": exercise.name,
            "path": str(path.absolute()),
            "device": device,
            "occupancy_architecture": occupancy_architecture,
            "gpu": gpu,
            "seed": int(seed),
            "timeout_s": timeout_s,
            "thresholds": asdict(exercise.thresholds),
            "annotate": annotate,
        }
        self._known: dict[str, Finding] = {}
        self._begun: set[str] = set()
        self._worker: Worker | None = None
        self._missing: Finding | None = None
        self._second = CrossCheck(exercise.exercise, self._task, self._custody) if self._on_gpu else None
        self._is_built = True
        self._sha256 = _sha256(path)

    def begin(self) -> DeviceInfo:
        """Start the processes, and return what the device says about itself.

        Raises:
            DeviceUnavailable: it cannot be opened, or its process not be started; what is known already is opened, and
                perhaps missed, later.
            WorkerError: a mistake of this package.
        """
        if self._second is not None:  # the GPU takes longer
            self._second.prefetch(checks_of(self._loaded.exercise)[0])
        ending = ""
        for _ in range(ATTEMPTS):
            self._worker = Worker(self._task | self._lessons(), self._custody)
            try:
                opened = self._worker.info()
            except Crashed as crash:
                self._kill()
                ending = str(crash)
            else:
                self._info = self._info or opened
                return self._info
        raise DeviceUnavailable(f"the process that grades {ending}, {ATTEMPTS} times in a row")

    @property
    def provenance(self) -> Provenance:
        """What the grade depends on."""
        assert self._info is not None, "`begin` asks for it"
        return provenance_of(self._loaded, self._info, self._seed, self._sha256)

    def grade(self) -> Grade:
        """Grade all checks of the exercise, and end the process."""
        try:
            results = tuple(self.run(check) for check in checks_of(self._loaded.exercise))
        finally:
            self.close()
        return Grade(self._label, self._loaded.name, results, self.provenance)

    def run(self, check: Check) -> CheckResult:
        """Grade one check; whatever becomes of the process that does is in the result.

        Raises:
            WorkerError: a mistake of this package.
        """
        begin_s = time.perf_counter()
        try:
            result = self._judged(check)
            if self._sanitize and (_is_wrong(result) or was_stopped(result)):
                result = self._with_report(check, result)
            if self._profiler is not None and result.measurement is not None:
                result = self._with_counters(check, result, result.measurement)
        except BaseException:  # Ctrl-C above all
            self._kill()
            if self._second is not None:
                self._second.close()
            raise
        if lacks_device(result):
            self._missing = result.findings[0]
        return replace(result, duration_s=time.perf_counter() - begin_s)

    def close(self) -> None:
        """Have the processes ended, while others go on: the driver takes its time to clear up after one.

        They are killed: to give back one thing after the other first would take the driver longer.
        """
        worker, self._worker = self._worker, None
        if worker is not None:
            try:
                threading.Thread(target=worker.kill).start()
            except RuntimeError:  # no further one is allowed
                worker.kill()
        if self._second is not None:
            self._second.close()

    def _judged(self, check: Check) -> CheckResult:
        """Ask the GPU, unless it was missing before, and, where it is a real one, the simulated one as well."""
        if self._missing is not None:  # what is graded all the same would be so by chance
            return check.result("not gradable", (self._missing,))
        if self._second is None:
            return self._graded(check)
        if not self._is_built:
            return self._graded(check)
        self._second.prefetch(check)
        objection = self._second.objection(check)
        if objection is not None:
            return objection
        result = self._used(check) if isinstance(check.subject, UsesCheck) else self._graded(check)
        fails = result.verdict != "passed"
        if fails and (check.kind == "compile" or any(found.because == "compile" for found in result.findings)):
            self._is_built = False
            self._second.close()
            return result
        return self._second.added_to(result)

    def _used(self, check: Check) -> CheckResult:
        """Let the process with the simulated GPU count, which has compiled the submission already, if it can."""
        assert self._second is not None
        if self._task["annotate"]:
            return self._graded(check)
        countable = self._graded(check, "countable")
        if countable.verdict != "passed":
            return countable
        return self._second.count(check) or self._graded(check)

    def _graded(self, check: Check, asking: str = "check") -> CheckResult:
        """Grade a check, and first those that it rests on, if nobody has asked for them yet.

        They have time limits of their own, a compiler above all, and one that breaks the GPU for its process, as cases
        of a `safe` check may, leaves the next one to another process.
        """
        self._begun.add(check.name)
        for basis in self._bases(check):
            if basis.name not in self._begun and lacks_device(found := self._graded(basis)):
                self._missing = found.findings[0]
                return check.result("not gradable", (self._missing,))
        return self._graded_now(check, asking)

    def _bases(self, check: Check) -> list[Check]:
        if check.kind == "compile":
            return []
        kinds = ("compile", "correct") if check.kind == "safe" else ("compile",)
        return [basis for basis in checks_of(self._loaded.exercise) if basis.kind in kinds]

    def _graded_now(self, check: Check, asking: str) -> CheckResult:
        ending, had_begun, killed = "", False, False
        for _ in range(ATTEMPTS):
            try:
                return self._asked(check, asking)
            except DeviceUnavailable as missing:
                self._kill()
                return _not_graded(check, missing)
            except Hung:
                starved = self._starved(check)
                self._kill()
                if starved:
                    return _not_graded(check, DeviceUnavailable(starved))
                what = f"This check had not ended after {self._limit_s(check):g} s; it was stopped."
                hint = COMPILER_HINT if check.kind == "compile" else None
                return self._lost(check, finding("endless-loop", what, hint=hint))
            except Crashed as crash:
                self._kill()
                ending = f"{crash}, {ATTEMPTS} times in a row"
                had_begun = not isinstance(crash, NeverBegan)
                killed |= isinstance(crash, KilledForMemory)
        if killed:
            return _not_graded(check, OutOfMemory(f"the system killed the process that grades: {REMEDY}"))
        is_driver = self._on_gpu and check.kind == "compile"  # which crashed: nvcc has processes of its own
        if is_driver or not had_begun:
            return _not_graded(check, DeviceUnavailable(f"the process that grades {ending}"))
        return self._lost(check, finding("crash", f"The process that ran this check {ending}."))

    def _starved(self, check: Check) -> str:
        """Say how little processor time a compilation had that did not end, if that is to blame; empty if not.

        A text that makes a compiler work without end takes what it can get. Other checks may wait for a GPU.
        """
        had_s, limit_s = self._worker.processor_s() if self._worker else None, self._limit_s(check)
        if check.kind != "compile" or had_s is None or had_s >= STARVED * limit_s or limit_s < JUDGED_FROM_S:
            return ""
        return f"compiling had not ended after {limit_s:g} s, in which it had a processor for {had_s:.1f} s; {REST}"

    def _asked(self, check: Check, asking: str) -> CheckResult:
        if self._worker is None:
            self._worker = Worker(self._task | self._lessons(), self._custody)
        answer = self._worker.ask({asking: check.name}, self._limit_s(check))
        result = CheckResult.from_dict(answer["result"])
        if result.findings and result.findings[0].code == "assert":
            result = _with_message(result, self._worker.stderr())
        if answer["busy"] or not answer["usable"]:
            self._kill()  # a busy one disturbs what is timed; after a kernel fault the driver asks for a new process
        if result.verdict == "failed" and not answer["usable"]:
            self._known[check.name] = result.findings[0]
        return result

    def _with_report(self, check: Check, result: CheckResult) -> CheckResult:
        """Return the result with what compute-sanitizer says of it in another process, if it can."""
        self._stop()
        found, *others = result.findings
        no_room = contextlib.suppress(OSError)
        with no_room, tempfile.TemporaryDirectory(prefix="gpulab-") as folder:
            log = Path(folder) / "report"
            # WorkerError: a call that CUDA refuses under it is its matter, as under ncu
            with contextlib.suppress(DeviceUnavailable, Crashed, Hung, WorkerError):
                task = self._task | self._lessons(without=check.name)
                asked = {"run_timed" if check.kind == "speedup" else "check": check.name}  # once is enough
                answered_under(sanitizer.command(log), task, asked, self._limit_s(check), self._custody)
            found = replace(found, evidence=(*found.evidence, *sanitizer.report(log)))
        return replace(result, findings=(found, *others))

    def _with_counters(self, check: Check, result: CheckResult, measurement: Measurement) -> CheckResult:
        """Return the result with what Nsight Compute counts in another process, or why it does not."""
        assert isinstance(check.subject, SpeedTier)
        timed = (check.subject.size, check.subject.variant.name)
        if timed not in self._profiles:
            self._profiles[timed] = self._profiled(check)
        found = self._profiles[timed]
        return replace(result, measurement=replace(measurement, counters=found.kernels, counters_note=found.note))

    def _profiled(self, check: Check) -> ncu.Profile:
        assert self._profiler is not None
        if self._profiler.refused:
            return ncu.Profile(note=ncu.NO_PERMISSION)
        try:
            with tempfile.TemporaryDirectory(prefix="gpulab-") as folder:
                profile = self._counted(check, Path(folder) / "counters.csv")
        except OSError as error:
            return ncu.Profile(note=f"ncu: there is no room for the counters: {error.strerror or error}")
        self._profiler.refused = profile.note == ncu.NO_PERMISSION
        return profile

    def _counted(self, check: Check, log: Path) -> ncu.Profile:
        limit_s = self._limit_s(check)
        try:
            task = self._task | self._lessons()
            answer, said = answered_under(ncu.command(log), task, {"run_timed": check.name}, limit_s, self._custody)
            said += "" if answer["ran"] else f"==ERROR== {answer['why']}"
        except Hung:
            return ncu.Profile(note=ncu.NOT_ENDED.format(limit_s=limit_s))
        except DeviceUnavailable as missing:
            said = f"==ERROR== {missing}"
        except WorkerError as mistake:  # under ncu, a call that CUDA refuses is ncu's matter
            said = f"==ERROR== {mistake.traceback_end}"
        except Crashed as crash:
            said = f"==ERROR== the process that it watched {crash}"
        return ncu.profile(log, said)

    def _lessons(self, without: str = "") -> dict[str, Any]:
        """Return what a new process need not go through again, or ask for."""
        hung = any(found.code == "endless-loop" for found in self._known.values())
        known = {name: asdict(found) for name, found in self._known.items() if name != without}
        info = asdict(self._info) if self._info else None
        return {"known": known, "info": info, "launch_limit_s": IMPATIENT_LAUNCH_S if hung else LAUNCH_LIMIT_S}

    def _limit_s(self, check: Check) -> float:
        """Processes that use a GPU wait for those that time on it, which is nobody's fault."""
        if not self._on_gpu:
            return self._timeout_s
        from pytest_gpulab.devices.cuda import gpu_lock
        from pytest_gpulab.grading.speed.benchmark import MAX_SESSIONS

        waits_s = MAX_SESSIONS * gpu_lock.LOCK_WAIT_S if check.kind == "speedup" else 0
        return self._timeout_s + gpu_lock.SHARED_WAIT_S + waits_s

    def _lost(self, check: Check, found: Finding) -> CheckResult:
        self._known[check.name] = found
        return check.result("failed", (found,))

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _kill(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def _is_wrong(result: CheckResult) -> bool:
    """Say whether a kernel ran and did wrong, which a tool may explain."""
    return result.kind == "correct" and result.verdict == "failed" and not result.findings[0].because


def _not_graded(check: Check, missing: DeviceUnavailable) -> CheckResult:
    verdict, found = of_error(missing)
    return check.result(verdict, (found,))


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _with_message(result: CheckResult, stderr: str) -> CheckResult:
    """Return the result with the failed assertion that the driver wrote to stderr, once instead of once a thread."""
    first = next((line for line in stderr.splitlines() if "Assertion" in line), "")
    found, *others = result.findings
    return replace(
        result, findings=(replace(found, evidence=(first, *found.evidence)), *others) if first else result.findings
    )
