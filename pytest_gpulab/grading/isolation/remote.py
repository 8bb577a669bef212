"""A grader that sends its checks to a worker process, so that no submission can disturb another.

A kernel fault breaks CUDA for its process. A hang, a crash or a fault therefore ends the worker process, and the next
check gets a new one. The new process is given the failures that ended earlier ones, and does not repeat those checks.
"""

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
from pytest_gpulab.devices.system.processes import REMEDY
from pytest_gpulab.exercise import Size, SpeedTier, UsesCheck
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import Check, CheckGrader, checks_of
from pytest_gpulab.grading.compilation.includes import read_source
from pytest_gpulab.grading.findings import COMPILER_HINT, finding, lacks_device, of_error
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance
from pytest_gpulab.grading.grader import provenance_of
from pytest_gpulab.grading.time_limits import CHECK_S
from pytest_gpulab.grading.tools import ncu, sanitizer

from .cross_check import CrossCheck, was_stopped
from .worker_process import Crashed, Hung, KilledForMemory, NeverBegan, ProcessScope, Worker, WorkerError, answer_under

DEFAULT_TIMEOUT_S = CHECK_S
SHORT_LAUNCH_LIMIT_S = 1.0  # of a submission that hung once
ATTEMPTS = 2  # when memory runs out, the system may kill a process that did not cause it

STARVED = 0.1  # share of the time limit; a compilation with less processor time was starved by other processes
JUDGED_FROM_S = 5.0  # for shorter limits the system's clock ticks are too coarse
ADVICE = "use fewer processes (a smaller --gpulab-workers or -n)"


class RemoteGrader(CheckGrader):
    """A `Grader` that works in a worker process, which the first check starts; it must be closed.

    The worker loads the exercise again from its folder. Devices are as `open_device` takes them, but never `auto`.
    Without `info`, the device's description, `begin` must be called to query it. `timeout_s` limits a check, without
    its wait for other processes that time on the GPU. With `sanitize`, failed `correct` checks run once more under
    compute-sanitizer. With the session's `profiler`, Nsight Compute counts timed kernels; with `annotate`, the counters
    of each source line are listed. Once the job's process scope has ended, all methods raise `CancelledError`.
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
        self._scope = scope or ProcessScope()
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
            "thresholds": exercise.thresholds._asdict(),
            "annotate": annotate,
        }
        self._known: dict[str, Finding] = {}
        self._begun: set[str] = set()
        self._worker: Worker | None = None
        self._missing: Finding | None = None
        self._cross_check = CrossCheck(exercise.exercise, self._task, self._scope) if self._on_gpu else None
        if info is not None:
            self._describe_gpu(info)
        self._is_built = True
        self._sha256 = _sha256(path)

    def begin(self) -> DeviceInfo:
        """Start the processes, and return the device's description.

        Raises DeviceUnavailable if the device cannot be opened, or the process cannot be started, and WorkerError for a
        bug of this package. If the description is known, the device is opened later, and its absence is not noticed
        here.
        """
        if self._info is not None and self._cross_check is not None:  # first, because the GPU takes longer
            self._cross_check.prefetch(checks_of(self._loaded.exercise)[0])
        ending = ""
        for _ in range(ATTEMPTS):
            self._worker = Worker(self._task | self._known_failures(), self._scope)
            try:
                opened = self._worker.info()
            except Crashed as crash:
                self._kill()
                ending = str(crash)
            else:
                self._info = self._info or opened
                self._describe_gpu(self._info)
                return self._info
        raise DeviceUnavailable(f"the worker process {ending}, {ATTEMPTS} times in a row")

    def _describe_gpu(self, info: DeviceInfo) -> None:
        if self._cross_check is not None:
            self._cross_check.architecture = info.architecture

    @property
    def provenance(self) -> Provenance:
        """The provenance of the grade: everything that it depends on."""
        assert self._info is not None, "`begin` was not called"
        return provenance_of(self._loaded, self._info, self._seed, self._sha256)

    def grade(self) -> Grade:
        """Grade all checks of the exercise, and end the process."""
        try:
            results = tuple(self.run(check) for check in checks_of(self._loaded.exercise))
        finally:
            self.close()
        return Grade(self._label, self._loaded.name, results, self.provenance)

    def run(self, check: Check) -> CheckResult:
        """Grade one check; a hang or crash of the worker process becomes part of the result.

        Raises WorkerError for a bug of this package.
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
            if self._cross_check is not None:
                self._cross_check.close()
            raise
        if lacks_device(result):
            self._missing = result.findings[0]
        return replace(result, duration_s=time.perf_counter() - begin_s)

    def close(self) -> None:
        """Kill the processes, in a thread, because the driver takes long to clean up after a process.

        Killing is faster than an orderly exit: the driver takes longer to free one resource after the other.
        """
        worker, self._worker = self._worker, None
        if worker is not None:
            try:
                threading.Thread(target=worker.kill).start()
            except RuntimeError:  # the limit on processes is reached, which counts threads
                worker.kill()
        if self._cross_check is not None:
            self._cross_check.close()

    def _judged(self, check: Check) -> CheckResult:
        """Grade a check; one on a real GPU is combined with the cross-check on the simulated GPU."""
        if self._missing is not None:  # without this, the checks that happen to succeed would be arbitrary
            return check.result("not gradable", (self._missing,))
        if self._cross_check is None or not self._is_built:
            return self._graded(check)
        self._cross_check.prefetch(check)
        veto = self._cross_check.veto(check)
        if veto is not None:
            return veto
        result = self._used(check) if isinstance(check.subject, UsesCheck) else self._graded(check)
        fails = result.verdict != "passed"
        if fails and (check.kind == "compile" or any(found.because == "compile" for found in result.findings)):
            self._is_built = False
            self._cross_check.close()
            return result
        return self._cross_check.combined_with(result)

    def _used(self, check: Check) -> CheckResult:
        """Grade a `uses` check by the simulated GPU's counters if possible: it has compiled the submission already."""
        assert self._cross_check is not None
        if self._task["annotate"]:
            return self._graded(check)
        countable = self._graded(check, "countable")
        if countable.verdict != "passed":
            return countable
        return self._cross_check.count(check) or self._graded(check)

    def _graded(self, check: Check, kind: str = "check") -> CheckResult:
        """Grade a check, after the checks that it depends on and that were not requested yet.

        Each of them is a request with its own time limit, above all the compilation. If one breaks the GPU for its
        process, as a case of a `safe` check may, the next one runs in a new process.
        """
        self._begun.add(check.name)
        for basis in self._bases(check):
            if basis.name not in self._begun and lacks_device(found := self._graded(basis)):
                self._missing = found.findings[0]
                return check.result("not gradable", (self._missing,))
        return self._graded_now(check, kind)

    def _bases(self, check: Check) -> list[Check]:
        if check.kind == "compile":
            return []
        kinds = ("compile", "correct") if check.kind == "safe" else ("compile",)
        return [basis for basis in checks_of(self._loaded.exercise) if basis.kind in kinds]

    def _graded_now(self, check: Check, kind: str) -> CheckResult:
        ending, had_begun, killed = "", False, False
        for _ in range(ATTEMPTS):
            try:
                return self._request(check, kind)
            except DeviceUnavailable as missing:
                self._kill()
                return _not_graded(check, missing)
            except Hung:
                starved = self._starved(check)
                self._kill()
                if starved:
                    return _not_graded(check, DeviceUnavailable(starved))
                message = f"This check had not ended after {self._limit_s(check):g} s; it was stopped."
                hint = COMPILER_HINT if check.kind == "compile" else None
                return self._failed(check, finding("endless-loop", message, hint=hint))
            except Crashed as crash:
                self._kill()
                ending = f"{crash}, {ATTEMPTS} times in a row"
                had_begun = not isinstance(crash, NeverBegan)
                killed |= isinstance(crash, KilledForMemory)
        if killed:
            return _not_graded(check, OutOfMemory(f"the system killed the worker process: {REMEDY}"))
        is_driver = self._on_gpu and check.kind == "compile"  # nvcc runs in other processes, so the driver crashed
        if is_driver or not had_begun:
            return _not_graded(check, DeviceUnavailable(f"the worker process {ending}"))
        return self._failed(check, finding("crash", f"The process that ran this check {ending}."))

    def _starved(self, check: Check) -> str:
        """Return the reason if a compilation timed out only for lack of processor time, else nothing.

        A source that makes the compiler loop uses all the processor time available. Checks other than `compile` are
        not judged, because they may wait for the GPU.
        """
        had_s, limit_s = self._worker.processor_s() if self._worker else None, self._limit_s(check)
        if check.kind != "compile" or had_s is None or had_s >= STARVED * limit_s or limit_s < JUDGED_FROM_S:
            return ""
        return f"compiling had not ended after {limit_s:g} s, with {had_s:.1f} s of CPU time; {ADVICE}"

    def _request(self, check: Check, kind: str) -> CheckResult:
        if self._worker is None:
            self._worker = Worker(self._task | self._known_failures(), self._scope)
        answer = self._worker.ask({kind: check.name}, self._limit_s(check))
        result = CheckResult.from_dict(answer["result"])
        if result.findings and result.findings[0].code == "assert":
            result = _with_message(result, self._worker.stderr())
        if answer["busy"] or not answer["usable"]:
            self._kill()  # a busy process would disturb timing; after a kernel fault CUDA requires a new process
        if result.verdict == "failed" and not answer["usable"]:
            self._known[check.name] = result.findings[0]
        return result

    def _with_report(self, check: Check, result: CheckResult) -> CheckResult:
        """Return the result with the report of compute-sanitizer, which runs the check in another process."""
        self._stop()
        found, *others = result.findings
        disk_full = contextlib.suppress(OSError)
        with disk_full, tempfile.TemporaryDirectory(prefix="gpulab-") as folder:
            log = Path(folder) / "report"
            # WorkerError: under a tool CUDA may refuse calls that work without it
            with contextlib.suppress(DeviceUnavailable, Crashed, Hung, WorkerError):
                task = self._task | self._known_failures(without=check.name)
                request = {"run_timed" if check.kind == "speedup" else "check": check.name}  # one run suffices
                answer_under(sanitizer.command(log), task, request, self._limit_s(check), self._scope)
            found = replace(found, evidence=(*found.evidence, *sanitizer.report(log)))
        return replace(result, findings=(found, *others))

    def _with_counters(self, check: Check, result: CheckResult, measurement: Measurement) -> CheckResult:
        """Return the result with the counters of Nsight Compute, or the reason why there are none."""
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
            return ncu.Profile(note=f"ncu: the counters cannot be stored: {error.strerror or error}")
        self._profiler.refused = profile.note == ncu.NO_PERMISSION
        return profile

    def _counted(self, check: Check, log: Path) -> ncu.Profile:
        limit_s = self._limit_s(check)
        try:
            task = self._task | self._known_failures()
            answer, stderr = answer_under(ncu.command(log), task, {"run_timed": check.name}, limit_s, self._scope)
            stderr += "" if answer["ran"] else f"==ERROR== {answer['why']}"
        except Hung:
            return ncu.Profile(note=ncu.NOT_ENDED.format(limit_s=limit_s))
        except DeviceUnavailable as missing:
            stderr = f"==ERROR== {missing}"
        except WorkerError as mistake:  # under ncu CUDA may refuse calls that work without it
            stderr = f"==ERROR== {mistake.traceback_end}"
        except Crashed as crash:
            stderr = f"==ERROR== the profiled process {crash}"
        return ncu.profile(log, stderr)

    def _known_failures(self, without: str = "") -> dict[str, Any]:
        """Return the task entries that spare a new process known failures and queries."""
        hung = any(found.code == "endless-loop" for found in self._known.values())
        known = {name: asdict(found) for name, found in self._known.items() if name != without}
        info = self._info._asdict() if self._info else None
        return {"known": known, "info": info, "launch_limit_s": SHORT_LAUNCH_LIMIT_S if hung else LAUNCH_LIMIT_S}

    def _limit_s(self, check: Check) -> float:
        """Return the time limit of a check, including its wait for other processes that time on the GPU."""
        if not self._on_gpu:
            return self._timeout_s
        from pytest_gpulab.devices.cuda import gpu_lock
        from pytest_gpulab.grading.speed.benchmark import MAX_SESSIONS

        waits_s = MAX_SESSIONS * gpu_lock.LOCK_WAIT_S if check.kind == "speedup" else 0
        return self._timeout_s + gpu_lock.SHARED_WAIT_S + waits_s

    def _failed(self, check: Check, found: Finding) -> CheckResult:
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
    """Return whether a kernel ran and gave a wrong result, which compute-sanitizer may explain."""
    return result.kind == "correct" and result.verdict == "failed" and not result.findings[0].because


def _not_graded(check: Check, missing: DeviceUnavailable) -> CheckResult:
    verdict, found = of_error(missing)
    return check.result(verdict, (found,))


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(read_source(path)).hexdigest()
    except OSError:
        return ""


def _with_message(result: CheckResult, stderr: str) -> CheckResult:
    """Return the result with the failed assertion from the driver's stderr, once instead of once per thread."""
    first = next((line for line in stderr.splitlines() if "Assertion" in line), "")
    found, *others = result.findings
    return replace(
        result, findings=(replace(found, evidence=(first, *found.evidence)), *others) if first else result.findings
    )
