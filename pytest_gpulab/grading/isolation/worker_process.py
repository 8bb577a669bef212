"""A worker process as its parent sees it: to start, to ask with a time limit, and to end with all that it started."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import Any

from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable
from pytest_gpulab.devices.system import processes
from pytest_gpulab.devices.system.memory_kills import memory_kills
from pytest_gpulab.devices.system.threads import with_one_thread
from pytest_gpulab.grading.catalogue import importing
from pytest_gpulab.grading.speed.contents import FOLDER

from .forked import Forked, forked
from .worker import STOP

START_LIMIT_S = 120.0  # many processes may start at once
STOP_LIMIT_S = 10.0
KILL_LIMIT_S = 15.0  # until a process that ends is gone: one that a driver does not let go is left to the system
MAX_STDERR_BYTES = 100_000

# The same modules as in this process, wherever that found them; but nothing from where it happens to run.
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pytest_gpulab.grading.isolation.worker import main; "
)
PROGRAM += "main(int(sys.argv[2]))"
COMMAND = (sys.executable, "-I", "-c", PROGRAM)

MISSING = {
    errno.EAGAIN: "no further one is allowed: ",
    errno.ENOSPC: "the folder for temporary files (TMPDIR) is full: ",
}


class WorkerError(Exception):
    """A mistake of this package, met in the worker process: its traceback, and what the process wrote to stderr."""

    def __init__(self, traceback_text: str, stderr: str) -> None:
        super().__init__(f"{traceback_text}\nstderr of the process:\n{stderr}")
        self.traceback_end = traceback_text.rstrip().rpartition("\n")[2]


class Hung(Exception):
    """There was no answer in time."""


class Crashed(Exception):
    """The process ended instead of answering: how, in words that follow "the process"."""


class KilledForMemory(Crashed):
    """The system killed it, as memory had run out."""


class NeverBegan(Crashed):
    """It did so before it had seen the submission."""


class ProcessScope:
    """Of one grading's processes: where they leave their files, and how another thread ends them.

    Args:
        folder: for temporary files, and for contents that all of its processes share; None for the usual one, and for
            contents of their own.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._is_over = False

    def end(self) -> None:
        """End all processes, whose askers meet a crash, and let there be no further ones."""
        with self._lock:
            self._is_over = True
            for worker in self._workers:
                worker.end()

    def check(self) -> None:
        """Raise what tells that nobody wants to know any more, if so: processes may have been ended.

        Raises:
            CancelledError: it is over.
        """
        if self._is_over:
            raise CancelledError

    def take(self, worker: Worker) -> None:
        """Take in a process that has just begun.

        Raises:
            CancelledError: there are to be none; this one, too, is ended.
        """
        with self._lock:
            if not self._is_over:
                self._workers.add(worker)
                return
        worker.kill()
        raise CancelledError

    def release(self, worker: Worker) -> None:
        """Let go of a process that its own thread is about to end."""
        with self._lock:
            self._workers.discard(worker)


def answered_under(
    tool: Sequence[str], task: dict[str, Any], request: dict[str, Any], limit_s: float, scope: ProcessScope
) -> tuple[dict[str, Any], str]:
    """Ask one thing of a process that runs under a tool, and end it, whereupon the tool writes its report.

    Returns:
        The answer, and what the process and the tool wrote to stderr.

    Raises:
        DeviceUnavailable, WorkerError, Crashed, Hung: as `Worker` and its `ask`.
    """
    worker = Worker(task, scope, tool)
    try:
        answer, said = worker.ask(request, limit_s), worker.stderr()
    except BaseException:
        worker.kill()
        raise
    worker.stop()
    return answer, said


class StartedAnew(subprocess.Popen[str]):
    """A process that ends with its whole group."""

    def kill(self) -> None:
        """End it, at once, with all that it started."""
        if self.returncode is None:  # else its number may be another process's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


class Worker:
    """The other end of `worker.main`: a process, with all that it starts in one group.

    Its temporary folder goes with it: a compiler that is killed leaves large files. A tool that it runs under keeps the
    common one, where Nsight Compute has a lock.

    It opens its device while whoever started it does something else; the first answer says if it could not, or, with a
    GPU that is known, the first that needs it.
    """

    def __init__(self, task: dict[str, Any], scope: ProcessScope | None = None, under: Sequence[str] = ()) -> None:
        """Start it.

        Raises:
            CancelledError: whoever has the scope wants no further processes.
            DeviceUnavailable: there is no room for one; says what is missing.
        """
        self._custody = scope or ProcessScope()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._info: DeviceInfo | None = None
        self._number: int | None = None
        self._memory_kills = memory_kills()
        self._ending_lock, self._is_killed = threading.Lock(), False
        try:
            self._start(under)
        except OSError as error:
            raise _no_room(error) from None
        try:
            self._listener.start()
        except RuntimeError as error:  # to the system a thread is a process
            self.kill()
            raise _no_room(OSError(errno.EAGAIN, str(error))) from None
        self._custody.take(self)
        self.send(task)

    def _start(self, under: Sequence[str]) -> None:
        processes.mark_what_is_started()
        known = with_one_thread(os.environ)
        if self._custody.folder is not None:
            known |= {FOLDER: self._custody.folder}
        with contextlib.ExitStack() as if_it_fails, contextlib.ExitStack() as in_any_case:
            self._errors = if_it_fails.enter_context(tempfile.TemporaryFile())
            for_guard, self._lifeline = os.pipe()
            in_any_case.callback(os.close, for_guard)
            if_it_fails.callback(os.close, self._lifeline)
            if not under:
                self._folder = tempfile.TemporaryDirectory(
                    prefix="gpulab-", dir=self._custody.folder, ignore_cleanup_errors=True
                )
                if_it_fails.callback(self._folder.cleanup)
                known = {processes.LOCKS: tempfile.gettempdir()} | known | {"TMPDIR": self._folder.name}
            self._process = _started(under, known, self._errors.fileno(), for_guard)
            if_it_fails.pop_all()

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a request and wait for its answer; see `answer`."""
        self.send(request)
        return self.answer(limit_s)

    def send(self, request: dict[str, Any]) -> None:
        """Send a request, which is answered when those before it are."""
        assert self._process.stdin is not None
        if self._is_killed:
            return
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Wait for the answer to the first request that has none yet.

        Raises:
            DeviceUnavailable: the process cannot open its device, or did not start in time.
            Hung, Crashed, WorkerError: see there.
        """
        self.info()
        return self._next_answer(limit_s)

    def info(self) -> DeviceInfo:
        """Return what its device says about itself, once that is open.

        Raises:
            DeviceUnavailable, Crashed, WorkerError: as `answer`.
        """
        if self._info is None:
            answer = self._first_answer()
            self._info, self._number = DeviceInfo(**answer["ready"]), answer.get("process")
        return self._info

    def processor_s(self) -> float | None:
        """Return the processor time that it has had with all that it started; None if that is not known."""
        return None if self._number is None else processes.processor_s(self._number)

    def _first_answer(self) -> dict[str, Any]:
        try:
            answer = self._next_answer(START_LIMIT_S)
        except Hung:
            raise DeviceUnavailable(f"the process that grades had not started after {START_LIMIT_S:g} s") from None
        except Crashed as crash:
            raise NeverBegan(*crash.args) from None
        if "unavailable" in answer:
            raise DeviceUnavailable(answer["unavailable"])
        return answer

    def _next_answer(self, limit_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=limit_s)
        except Empty:
            raise Hung from None
        if not line:
            raise self._crash()
        self._memory_kills = memory_kills()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:  # a tool that it runs under speaks up
            raise Crashed(f"could not be heard: {line.strip()}") from None
        if "error" in answer:
            raise WorkerError(answer["error"], self.stderr())
        return answer

    def stop(self) -> None:
        """Let the process give the device back and end; kill it, and what it left behind, if it takes too long."""
        self.send(STOP)
        self._listener.join(STOP_LIMIT_S)
        self.kill()

    def end(self) -> None:
        """Have the process ended by another thread than that which uses it; that one has to `kill` what is left."""
        if self._process.returncode is None:
            self._process.kill()

    def kill(self) -> None:
        """End the process and all that it started, at once; do nothing if that was done."""
        self._custody.release(self)
        with self._ending_lock:
            if self._is_killed:
                return
            self._is_killed = True
        os.close(self._lifeline)
        if self._process.returncode is None:  # as long as nobody waited for it the group's number is its own
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_LIMIT_S)
        if self._listener.ident is not None:  # else there was no room for it
            self._listener.join(KILL_LIMIT_S)
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if not self._listener.is_alive():  # else it would be waited for
            self._process.stdout.close()
        self._errors.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _crash(self) -> Crashed:
        try:
            code = self._process.wait(KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            return Crashed(f"closed its answers and had not ended {KILL_LIMIT_S:g} s later")
        if code == -signal.SIGKILL and memory_kills() > self._memory_kills:
            return KilledForMemory("was killed by the system, which had no memory left")
        if code < 0:
            return Crashed(f"was ended by {signal.Signals(-code).name}")
        return Crashed(f"ended with exit status {code}")

    def stderr(self) -> str:
        """Return what the process and its driver wrote there until now."""
        contents = os.pread(self._errors.fileno(), MAX_STDERR_BYTES, 0)  # the process goes on writing at its own place
        return contents.decode("utf-8", "replace")


def _no_room(error: OSError) -> DeviceUnavailable:
    missing = MISSING.get(error.errno or 0, "")
    return DeviceUnavailable(f"there is no room for its process: {missing}{error.strerror or error}")


def _started(under: Sequence[str], known: dict[str, str], errors: int, lifeline: int) -> StartedAnew | Forked:
    """Start a process with an environment: by fork if that is possible, or anew."""
    *python, program = COMMAND
    with importing:  # another thread may have put an exercise's folder there
        path = json.dumps([str(entry) for entry in sys.path])
    child = None if under else forked(program, [path], known, errors, lifeline)
    return child or StartedAnew(
        [*under, *python, program, path, str(lifeline)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        env=known,
        start_new_session=True,
        pass_fds=(lifeline,),
    )
