"""How long the kernels of one submission may run on the simulated GPU, by the clock: in each case, and in all.

A simulated launch asks for the time between basic blocks, so this holds in pytest's own process, too. A real GPU cannot
be asked: there, each submission has a process that is killed (`remote`).
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from pytest_gpulab.devices.compiler.limits import charged_s
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
)

CHECK_S = 120.0  # the usual --gpulab-timeout
CASE_S, FILE_S = 20.0, 120.0
LATER_CASE_S = 2.0  # once a case was stopped; a case of a few blocks takes some hundredths
SHARE_OF_CHECK = 0.8  # so that a worker process says where the kernel was, before it is killed
TIME_LIMIT = "time-limit"


@dataclass(frozen=True)
class TimeLimits:
    """The longest that kernels may run: those of a case, a count or a cost estimate, and those of a file."""

    case_s: float = CASE_S
    file_s: float = FILE_S

    @classmethod
    def within(cls, check_s: float) -> TimeLimits:
        """Return the limits for a time limit of checks: shorter ones fit into it, longer ones give more time."""
        scale = check_s / CHECK_S
        return cls(min(CASE_S, SHARE_OF_CHECK * check_s) if scale <= 1 else CASE_S * scale, FILE_S * max(1.0, scale))


DEFAULT_LIMITS = TimeLimits()


class TimeBudget:
    """What is left of a submission's time."""

    def __init__(self, limits: TimeLimits) -> None:
        self._limits, self._file_left_s = limits, limits.file_s
        self._case_s = self._case_left_s = limits.case_s
        self._stopped: DeviceError | None = None

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left of the file's time."""
        return self._file_left_s <= 0

    def begin(self) -> None:
        """Begin another case, count or cost estimate."""
        self._case_left_s, self._stopped = self._case_s, None

    def be_short(self) -> None:
        """Give less time to each of the other cases: one has used up its own."""
        self._case_s = min(self._case_s, LATER_CASE_S)

    def launch(self, launch: Callable[[LaunchOptions], LaunchProfile], options: LaunchOptions) -> LaunchProfile:
        """Launch a kernel within what is left, or within a limit of its own if that is shorter.

        Raises:
            KernelFault: it had not ended then, or a launch before it had not; and as `Module.launch`.
            DeviceUnavailable: the machine left it too little time or memory.
        """
        if self._stopped is not None:
            raise self._stopped
        left_s = max(0.0, min(self._case_left_s, self._file_left_s))
        own_s = math.inf if options.time_limit_s is None else options.time_limit_s
        begin_s, begin_cpu_s, shortage = time.perf_counter(), time.thread_time(), ""
        try:
            return launch(replace(options, time_limit_s=min(left_s, own_s)))
        except MemoryError as error:  # what a launch needs is bounded, whatever the kernel does
            shortage = f"there is not enough memory to run the kernel: {error}".rstrip(": ")
        except DeviceUnavailable as busy:
            self._stopped = busy if left_s <= own_s else None
            raise
        except KernelFault as fault:
            if fault.code != TIME_LIMIT or own_s < left_s:
                raise
            self._stopped = KernelFault(TIME_LIMIT, self._told(), fault.where, fault.lane, fault.output)
            raise self._stopped from None
        finally:
            took_s = charged_s(time.perf_counter() - begin_s, time.thread_time() - begin_cpu_s)
            self._case_left_s -= took_s
            self._file_left_s -= took_s
        gc.collect()  # or what the launch had would be missing for the message, too
        raise OutOfMemory(shortage)

    def _told(self) -> str:
        if self._case_left_s < self._file_left_s:
            return f"time limit: the kernel had not ended after {self._case_s:g} s"
        return f"time limit: the kernels of this file have run for {self._limits.file_s:g} s in all"


class LimitedModule:
    """A module whose launches share a budget; all else is the module's own."""

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
        """Launch a kernel; see `TimeBudget.launch`."""
        call = partial(self._module.launch, kernel, grid, block, args, shared_bytes)
        return self._budget.launch(call, options)


def limited(module: Module, budget: TimeBudget) -> Module:
    """Return the module with its launches limited."""
    return cast(Module, LimitedModule(module, budget))
