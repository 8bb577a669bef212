"""Limits of a submission's compilation and kernels on the simulated GPU, and of an exercise's own functions.

A simulated launch checks the clock between basic blocks, so the limits also work in pytest's own process. A launch on a
real GPU cannot be interrupted: there, the submission's worker process is killed (`isolation.remote`).
"""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from pytest_gpulab.devices.launch import stall_limit_s
from pytest_gpulab.devices.protocol import (
    DEFAULT_OPTIONS,
    DeviceError,
    DeviceUnavailable,
    KernelFault,
    LaunchOptions,
    LaunchProfile,
    Memory,
    Module,
    OutOfMemory,
    WorkLimit,
)
from pytest_gpulab.devices.system.processes import Helpers, charged_s

CHECK_S = 120.0  # the default of --gpulab-timeout
CASE_S, FILE_S = 20.0, 100.0  # what begins before the end of the file's time takes at most as long as a case
LATER_CASE_S = 2.0  # once a case was stopped; a case of a few blocks takes a few hundredths of a second
LATER_STALL = 1 / 4  # of the limit of a launch without progress, once a case was stopped
SHARE_OF_CHECK = 0.8  # so that the worker process can report the kernel's location before it is killed
LEAST_OWN_S = 2.0  # for the exercise's own functions: with a shorter limit of checks, the whole process ends
TIME_LIMIT = "time-limit"
IN_TOTAL = "compilation and kernels of this file have taken"
NO_VERDICT = f"this is no verdict, because a grading allows {CASE_S:g} s per case"
ITS_CLASSES = str(Path(__file__).parents[1] / "exercise.py")


class TimeLimits(NamedTuple):
    """Time limits: of kernels per input pattern of a case, count or cost estimate, and per file with its builds."""

    case_s: float = CASE_S
    file_s: float = FILE_S
    is_verdict: bool = True  # False for searches and figures: a kernel that reaches a limit may still pass a grading
    has_builds: bool = True  # False if compilation takes nothing from the file's time, which is short

    @classmethod
    def within(cls, check_s: float) -> TimeLimits:
        """Return the limits that fit a time limit of checks; a longer one scales them up."""
        scale = check_s / CHECK_S
        return cls(min(CASE_S, SHARE_OF_CHECK * check_s) if scale <= 1 else CASE_S * scale, FILE_S * max(1.0, scale))


DEFAULT_LIMITS = TimeLimits()
Searched = Literal["all", "later", "none"]


class CaseLimits(NamedTuple):
    """Limits on the cases of a grading."""

    time: TimeLimits = DEFAULT_LIMITS  # of kernels on the simulated GPU
    max_elements: int | None = None  # the largest product of a case's extents; larger cases are not run
    # True to run every pattern twice; False to run again only one, and only if the order of warps may matter
    again: bool = True
    beside_a_gpu: bool = False  # True if a real GPU runs everything again; a timeout is then no verdict
    smallest: Searched = "all"  # smallest failing inputs to search: `all` with rules, `later` on request, or `none`
    causes: bool = True  # False to leave out the likely causes of wrong results that other cases reveal
    ahead: bool = False  # True to share the work with second processes; the results are the same


USUAL = CaseLimits()
BESIDE_A_GPU = CaseLimits(
    TimeLimits(case_s=2.0, file_s=20.0, has_builds=False), 1 << 21, again=False, beside_a_gpu=True
)
"""Limits to cases of a second or two on the simulated GPU; the real GPU runs everything again."""


class TimeBudget:
    """The time left to a submission, and the `work` of its kernels as in `WorkLimit`; None for no limit."""

    def __init__(self, limits: TimeLimits, work: int | None = None) -> None:
        self._limits, self._file_left_s = limits, limits.file_s
        self._work = None if work is None else WorkLimit(work)
        self._case_s = self._case_left_s = limits.case_s
        self._stopped: DeviceError | None = None
        self._stall = 1.0
        self._reset: Callable[[], None] | None = None  # of the module that was launched last

    @property
    def is_used_up(self) -> bool:
        """True if the file's time or work is used up."""
        return self._file_left_s <= 0 or (self._work is not None and self._work.left < 0)

    @property
    def ends_builds(self) -> bool:
        """True if no further variant may be compiled."""
        return self._limits.has_builds and self.is_used_up

    @property
    def used_up(self) -> str:
        """The statement that the file's time is used up."""
        return f"{IN_TOTAL} {self._limits.file_s:g} s in total"

    def begin(self, least_s: float = 0.0) -> None:
        """Begin the next input pattern of a case, count or cost estimate, with at least this time."""
        self._file_left_s = max(self._file_left_s, least_s)
        self._case_left_s, self._stopped = self._case_s, None

    def be_short(self) -> None:
        """Reduce the limit of later cases, because one case used up its time."""
        self._case_s, self._stall = min(self._case_s, LATER_CASE_S), LATER_STALL

    def grant(self, options: LaunchOptions, args: Sequence[Memory | np.generic] = ()) -> LaunchOptions:
        """Return a launch's options with its time limits: the rest of the budget, or its own limit if that is shorter.

        The limit of a launch without progress grows with its largest array and number. There is none beside a limit of
        work, because what that one stops must not depend on the clock. Raises KernelFault if a launch before it has
        reached the limit of this case, and DeviceUnavailable if the machine left that one too little time.
        """
        if self._stopped is not None:
            raise self._stopped
        limit_s = min(self._left_s, _own_limit_s(options))
        work = self._work or options.work_limit
        stall_s = self._stall * max(1.0, self._limits.case_s / CASE_S) * stall_limit_s(_size(args))
        return replace(
            options, time_limit_s=limit_s, stall_limit_s=None if work is not None else stall_s, work_limit=work
        )

    def switch_to(self, module: Module) -> None:
        """Reset the variables of the module that was launched last, if it is another one.

        A file has a module per variant, and the variables of all of them may need more memory than the machine has.
        """
        reset = module.reset_variables  # equal for all proxies of a module
        if self._reset is not None and self._reset != reset:
            self._reset()
        self._reset = reset

    @contextmanager
    def charging(self, is_launch: bool) -> Iterator[None]:
        """Subtract the time of a launch, or of a compilation, with that of the compiler's process."""
        begin_s, begin_cpu_s = time.perf_counter(), time.thread_time() + Helpers.processor_s
        try:
            yield
        finally:
            processor_s = time.thread_time() + Helpers.processor_s - begin_cpu_s
            if is_launch or self._limits.has_builds:
                self.charge(charged_s(time.perf_counter() - begin_s, processor_s), is_launch)

    def charge(self, took_s: float, is_launch: bool = True) -> None:
        """Subtract a time from the file's, and that of a launch from the case's."""
        self._case_left_s -= took_s if is_launch else 0.0
        self._file_left_s -= took_s

    def stop(self, error: KernelFault | DeviceUnavailable, options: LaunchOptions) -> DeviceError:
        """Return the error that ends a launch; the rest of the case ends with it, if the budget set the time limit.

        The options are those of the launch before `grant`.
        """
        if isinstance(error, DeviceUnavailable):
            self._stopped = error if self._left_s <= _own_limit_s(options) else None
            return error
        if error.code != TIME_LIMIT or _own_limit_s(options) < self._left_s:
            return error
        what = error.what if error.is_stalled else self._reason(error.remains)
        self._stopped = KernelFault(TIME_LIMIT, what, error.where, error.lane, error.output, remains=error.remains)
        return self._stopped

    @property
    def _left_s(self) -> float:
        return max(0.0, min(self._case_left_s, self._file_left_s))

    def _reason(self, remains: str) -> str:
        if remains:
            what = f"the kernel cannot end within {min(self._case_s, self._file_left_s):.3g} s: {remains}"
        elif self._case_left_s < self._file_left_s:
            what = f"the kernel had not ended after {self._case_s:g} s"
        else:
            what = self.used_up
        return f"time limit: {what}" if self._limits.is_verdict else f"time limit: {what}; {NO_VERDICT}"


class LimitedModule:
    """A proxy of a module that limits its launches by a shared budget."""

    def __init__(self, module: Module, budget: TimeBudget) -> None:
        self._module, self._budget = module, budget

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Memory | np.generic],
        shared_bytes: int = 0,
        options: LaunchOptions = DEFAULT_OPTIONS,
    ) -> LaunchProfile:
        """Launch a kernel within the budget.

        Raises the errors of `Module.launch`, KernelFault if this launch or one before it has not ended within the
        limit, DeviceUnavailable if the machine left it too little time, and OutOfMemory if there is too little memory.
        """
        granted = self._budget.grant(options, args)
        self._budget.switch_to(self._module)
        with self._budget.charging(is_launch=True):
            try:
                return self._module.launch(kernel, grid, block, args, shared_bytes, granted)
            except MemoryError as error:  # the simulated GPU bounds a launch's memory, so the machine has too little
                shortage = f"there is not enough memory to run the kernel: {error}".rstrip(": ")
            except (KernelFault, DeviceUnavailable) as error:
                raise self._budget.stop(error, options) from None
        gc.collect()  # frees the launch's memory, which the message needs
        raise OutOfMemory(shortage)


def _size(args: Sequence[Memory | np.generic]) -> int:
    """Return the most elements of an array in a launch's arguments, or its largest whole number if that is larger."""
    numbers = (abs(int(arg)) for arg in args if isinstance(arg, np.integer))
    return max((*numbers, *(math.prod(arg.shape) for arg in args if not isinstance(arg, np.generic))), default=0)


def _own_limit_s(options: LaunchOptions) -> float:
    return math.inf if options.time_limit_s is None else options.time_limit_s


def limited(module: Module, budget: TimeBudget) -> Module:
    """Return the module with limited launches."""
    return cast(Module, LimitedModule(module, budget))


@dataclass
class OwnCodeLimit:
    """The time limit of a call of an exercise's own function: a loop without an end there is not the student's."""

    # the limit; less than that of a check, so that a worker process reports the call before it is killed
    limit_s: float = SHARE_OF_CHECK * CHECK_S
    # where a check has a limit, the `perf_counter` of its begin, from which on the limit counts; but a call has a
    # fourth of it in any case
    check_began_s: float | None = None
    notice_s: float = 10.0  # time between two notices of a call that still runs
    notify: Callable[[str], None] | None = None  # function that shows a notice: the function, its time so far, its line

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Raise TimeoutError where the exercise's code runs at the end of the limit.

        A signal interrupts it. So there is no limit outside the main thread, beside another timer, and on Windows.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
            yield
            return
        begin_s = time.perf_counter()
        before_s = 0.0 if self.check_began_s is None else begin_s - self.check_began_s
        limit_s = max(self.limit_s - before_s, self.limit_s / 4)
        step_s = limit_s / math.ceil(limit_s / self.notice_s)

        def ring(_: int, frame: FrameType | None) -> None:
            took_s = time.perf_counter() - begin_s
            if took_s > limit_s - step_s / 2:
                raise TimeoutError(f"it had not ended after {limit_s:.3g} s")
            if self.notify is not None:
                self.notify(f"`{what}` has run for {took_s:.1f} s{_line_of(frame)}")

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, step_s, step_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


OWN_CODE = OwnCodeLimit()


def _line_of(frame: FrameType | None) -> str:
    while frame is not None and (Path(file := frame.f_code.co_filename).name != "exercise.py" or file == ITS_CLASSES):
        frame = frame.f_back
    return "" if frame is None else f", now in line {frame.f_lineno} of exercise.py"
