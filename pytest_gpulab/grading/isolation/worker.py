"""The program of a worker process: it holds the device and the `Grader` of one submission, and can be killed.

`worker_process.Worker` starts it. Requests and answers are JSON, one per line. No other output gets between them: the
output of printf in kernels goes to a file.
"""

import codecs
import ctypes
import json
import os
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Protocol

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import BreakableDevice, Device, DeviceError, DeviceInfo, DeviceUnavailable
from pytest_gpulab.devices.system.processes import limit_memory, prefer_this_process
from pytest_gpulab.exercise import SpeedTier
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise, Thresholds
from pytest_gpulab.grading.checks import Check, checks_of
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds
from pytest_gpulab.grading.diagnosis.compare import capped
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.plans.prepare import InstructorsMistake
from pytest_gpulab.grading.speed import reference_time
from pytest_gpulab.grading.time_limits import (
    BESIDE_A_GPU,
    LEAST_OWN_S,
    OWN_CODE,
    SHARE_OF_CHECK,
    CaseLimits,
    TimeLimits,
)
from pytest_gpulab.grading.tools import ncu

STOP: dict[str, Any] = {"stop": True}
# The parent-death watchdog: its `read` returns when the parent has died; then it kills the process group, with the
# worker and every compiler. It is a process, because the driver and Python's global lock could block a thread.
WATCHDOG = "read _; kill -KILL 0"
PIECE_BYTES = 1 << 16  # read at a time of the kernels' output; more than the part that is reported
_Request = dict[str, Any]


class Handler(Protocol):
    """A handler of requests, with a device."""

    device: Device

    def answer(self, request: _Request) -> dict[str, Any]:
        """Return the answer to a request."""


HandlerType = Callable[[_Request, IO[bytes]], Handler]
"""A function of the first line, and of the file with the output of kernels."""


def main(watchdog_pipe: int, handler: HandlerType | None = None) -> None:
    """Answer the requests of stdin until `STOP`, by default those about one submission.

    Only the parent holds the other end of the pipe, which closes when it dies.
    """
    prefer_this_process()
    limit_memory()
    watchdog = subprocess.Popen(["/bin/sh", "-c", WATCHDOG], stdin=watchdog_pipe, stdout=subprocess.DEVNULL)
    requests = _taken_over(0, "r", os.open(os.devnull, os.O_RDONLY))
    with tempfile.TemporaryFile() as printed:
        _serve(handler or _RequestHandler, requests, _taken_over(1, "w", os.dup(printed.fileno())), printed)
    watchdog.kill()
    watchdog.wait()


def _serve(make: HandlerType, requests: IO[str], answers: IO[str], printed: IO[bytes]) -> None:
    try:
        handler = make(json.loads(requests.readline()), printed)
    except DeviceUnavailable as missing:
        _send(answers, {"unavailable": str(missing)})
        return
    except Exception:
        _send(answers, {"error": traceback.format_exc()})
        return
    _send(answers, {"ready": handler.device.info._asdict(), "process": os.getpid()})
    for line in requests:
        request = json.loads(line)
        if request == STOP:
            break
        try:
            answer = handler.answer(request)
        except Exception:
            answer = {"error": traceback.format_exc()}
        _send(answers, answer)
    handler.device.close()


class _RequestHandler:
    """A handler of requests, with a device and the grader of one submission on it."""

    def __init__(self, task: _Request, printed: IO[bytes]) -> None:
        OWN_CODE.limit_s = max(LEAST_OWN_S, SHARE_OF_CHECK * task["timeout_s"])
        model = (task["occupancy_architecture"], task["gpu"])
        self.device, _ = open_device(
            task["device"],
            task["launch_limit_s"],
            *model,
            isolated=True,
            known=DeviceInfo(**task["info"]) if task["info"] else None,
            beside=task.get("beside", ""),
        )
        loaded = Catalogue(Path(task["exercises"])).load(task["exercise"])
        assert isinstance(loaded, LoadedExercise), "programs are graded by a grader of their own"
        loaded = loaded._replace(thresholds=Thresholds(**task["thresholds"]))
        self._loaded, self._path, self._seed = loaded, Path(task["path"]), task["seed"]
        self._checks = {check.name: check for check in checks_of(loaded.exercise)}
        limits = BESIDE_A_GPU if task.get("beside") else CaseLimits(TimeLimits.within(task["timeout_s"]))
        self._grader = Grader(loaded, self._path, self.device, self._seed, None, limits, task.get("annotate", False))
        self._printed = printed
        for name, found in task["known"].items():
            self._grader.record_failure(self._checks[name], Finding.from_dict(found))

    def answer(self, request: _Request) -> dict[str, Any]:
        OWN_CODE.check_began_s = time.perf_counter()
        if "run_timed" in request:
            return self._run_timed(self._checks[request["run_timed"]])
        judge = {"check": self._grader.run, "countable": self._grader.countable, "count": self._grader.count}
        ((kind, name),) = request.items()
        result = judge[kind](self._checks[name])
        # The C library buffers the kernels' output.
        ctypes.pythonapi.fflush(None)
        if result.kind == "correct" and not result.printed:
            result = replace(result, printed=self._printed_since())
        self._clear_printed()
        usable = not isinstance(self.device, BreakableDevice) or self.device.usable
        return {"result": result.to_dict(), "usable": usable, "busy": reference_time.goes_on()}

    def _run_timed(self, check: Check) -> dict[str, Any]:
        assert isinstance(check.subject, SpeedTier)
        builds = Builds(self._path, self._loaded, self.device)
        try:
            ncu.run_timed_plan(self._loaded, self.device, builds, check.subject, self._seed)
        except (BuildFailed, InstructorsMistake, DeviceError) as error:
            return {"ran": False, "why": str(error)}
        return {"ran": True}

    def _printed_since(self) -> str:
        """Return the driver's output on stdout since `_clear_printed`, capped.

        The rest is only counted: each launch may add the driver's whole buffer, 1 MiB or more.
        """
        self._printed.seek(0)
        texts = codecs.iterdecode(iter(lambda: self._printed.read(PIECE_BYTES), b""), "utf-8", "replace")
        return capped(next(texts, ""), more=sum(map(len, texts)))

    def _clear_printed(self) -> None:
        self._printed.seek(0)
        self._printed.truncate()


def _taken_over(descriptor: int, mode: str, instead: int) -> IO[str]:
    """Return a private copy of a standard stream, and replace the stream by another file."""
    stream = os.fdopen(os.dup(descriptor), mode, encoding="utf-8")
    os.dup2(instead, descriptor)
    os.close(instead)
    return stream


def _send(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
