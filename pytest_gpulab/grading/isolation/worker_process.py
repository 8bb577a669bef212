"""A worker process, seen from its parent: it is started, answers requests within time limits, and is killed."""

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
from pytest_gpulab.devices.system.processes import memory_kills, with_one_thread
from pytest_gpulab.grading.catalogue import importing
from pytest_gpulab.grading.speed.contents import FOLDER

from .fork_server import ForkedProcess, fork, temporary_folder
from .worker import STOP

START_LIMIT_S = 120.0  # long, because many processes may start at the same time
STOP_LIMIT_S = 10.0
KILL_LIMIT_S = 15.0  # until a killed process is gone; a driver may block that, then it is left to the system
MAX_STDERR_BYTES = 100_000  # a process may write without end


# The worker has the `sys.path` of this process. `-I` keeps the current folder out of it.
def program_of(module: str) -> str:
    """Return the program of a worker: it calls the module's `main`."""
    return f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main(int(sys.argv[2]))"


PROGRAM = program_of("pytest_gpulab.grading.isolation.worker")
COMMAND = (sys.executable, "-I", "-c", PROGRAM)

RESOURCES = {
    errno.EAGAIN: "the limit on processes is reached: ",
    errno.ENOSPC: "the folder for temporary files (TMPDIR) is full: ",
}


class WorkerError(Exception):
    """A bug of this package in the worker process: its traceback and the stderr of the process."""

    def __init__(self, traceback_text: str, stderr: str) -> None:
        super().__init__(f"{traceback_text}\nstderr of the process:\n{stderr}")
        self.traceback_end = traceback_text.rstrip().rpartition("\n")[2]


class Hung(Exception):
    """A request that was not answered in time."""


class Crashed(Exception):
    """A process that ended without an answer; the message says how and continues "the process ..."."""


class KilledForMemory(Crashed):
    """A process that the system killed because memory had run out."""


class NeverBegan(Crashed):
    """A process that ended before it had read the submission."""


class ProcessScope:
    """The processes of one job: their folder for files, and a way for other threads to end them all.

    The folder also has the buffer contents that the processes share; None for the default one and separate contents.
    `memory_bytes` limits the address space of each process; None for no limit.
    """

    def __init__(self, folder: str | None = None, memory_bytes: int | None = None) -> None:
        self.folder, self.memory_bytes = folder, memory_bytes
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._is_over = False

    def end(self) -> None:
        """End all processes, so that pending requests raise `Crashed`, and refuse further ones."""
        with self._lock:
            self._is_over = True
            for worker in self._workers:
                worker.end()

    def check(self) -> None:
        """Raise CancelledError if the job was cancelled, because its processes may have been ended."""
        if self._is_over:
            raise CancelledError

    def add(self, worker: Worker) -> None:
        """Add a process that has just started; if the job was cancelled, kill it and raise CancelledError."""
        with self._lock:
            if not self._is_over:
                self._workers.add(worker)
                return
        worker.kill()
        raise CancelledError

    def remove(self, worker: Worker) -> None:
        """Remove a process that its own thread is about to end."""
        with self._lock:
            self._workers.discard(worker)


def answer_under(
    tool: Sequence[str], task: dict[str, Any], request: dict[str, Any], limit_s: float, scope: ProcessScope
) -> tuple[dict[str, Any], str]:
    """Send one request to a process under a tool, and stop the process, so that the tool writes its report.

    Return the answer, and the stderr of the process and the tool. Raises the errors of `Worker` and its `ask`.
    """
    worker = Worker(task, scope, tool)
    try:
        answer, stderr = worker.ask(request, limit_s), worker.stderr()
    except BaseException:
        worker.kill()
        raise
    worker.stop()
    return answer, stderr


class NewProcess(subprocess.Popen[str]):
    """A newly started process, which leads its process group."""

    def kill(self) -> None:
        """Kill it and everything that it started."""
        if self.returncode is None:  # else the system may have given its process id to another one
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


class Worker:
    """A worker process, running `worker.main`, in a process group with everything that it starts.

    Its temporary folder is removed with it, because a killed compiler leaves large files. Under a tool it uses the
    common temporary folder, where Nsight Compute has its lock.

    The worker opens its device while its parent continues. If that fails, the first answer says so. If `task` has the
    `DeviceInfo` of a GPU, the first answer that needs the GPU says so.
    """

    def __init__(
        self,
        task: dict[str, Any],
        scope: ProcessScope | None = None,
        under: Sequence[str] = (),
        program: str | None = None,
    ) -> None:
        """Start the process.

        Raises CancelledError if the scope was ended, and DeviceUnavailable with the missing resource if no process can
        be started.
        """
        self._scope = scope or ProcessScope()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._info: DeviceInfo | None = None
        self._number: int | None = None
        self._memory_kills = memory_kills()
        self._ending_lock, self._is_killed = threading.Lock(), False
        try:
            self._start(under, program or COMMAND[-1])
        except OSError as error:
            raise _cannot_start(error) from None
        try:
            self._listener.start()
        except RuntimeError as error:  # the system's limit on processes counts threads
            self.kill()
            raise _cannot_start(OSError(errno.EAGAIN, str(error))) from None
        # From now on another thread may end the process.
        self._scope.add(self)
        self.send(task)

    def _start(self, under: Sequence[str], program: str) -> None:
        processes.mark_what_is_started()
        environment = with_one_thread(os.environ)
        if self._scope.folder is not None:
            environment |= {FOLDER: self._scope.folder}
        if self._scope.memory_bytes is not None:
            environment |= {processes.MEMORY: str(self._scope.memory_bytes)}
        with contextlib.ExitStack() as if_it_fails, contextlib.ExitStack() as in_any_case:
            self._errors = if_it_fails.enter_context(tempfile.TemporaryFile())
            watchdog_end, self._watchdog_pipe = os.pipe()
            in_any_case.callback(os.close, watchdog_end)
            if_it_fails.callback(os.close, self._watchdog_pipe)
            if not under:
                self._folder = temporary_folder(self._scope.folder)
                if_it_fails.callback(self._folder.cleanup)
                environment = {processes.LOCKS: tempfile.gettempdir()} | environment | {"TMPDIR": self._folder.name}
            self._process = _start_process(under, program, environment, self._errors.fileno(), watchdog_end)
            if_it_fails.pop_all()

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a request and wait for its answer; see `answer`."""
        self.send(request)
        return self.answer(limit_s)

    def send(self, request: dict[str, Any]) -> None:
        """Send a request; answers come in the order of the requests."""
        assert self._process.stdin is not None
        if self._is_killed:
            return
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Wait for the answer to the oldest open request; raise Hung, Crashed or WorkerError.

        Raises DeviceUnavailable if the process cannot open its device, or did not start in time.
        """
        self.info()
        return self._next_answer(limit_s)

    def info(self) -> DeviceInfo:
        """Wait until its device is open and return the description; raise DeviceUnavailable, Crashed or WorkerError."""
        if self._info is None:
            answer = self._first_answer()
            self._info, self._number = DeviceInfo(**answer["ready"]), answer.get("process")
        return self._info

    def processor_s(self) -> float | None:
        """Return the processor time of its process group, in seconds; None if unknown."""
        return None if self._number is None else processes.processor_s(self._number)

    def _first_answer(self) -> dict[str, Any]:
        try:
            answer = self._next_answer(START_LIMIT_S)
        except Hung:
            raise DeviceUnavailable(f"the worker process had not started after {START_LIMIT_S:g} s") from None
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
        except ValueError:  # output of a tool that it runs under
            raise Crashed(f"wrote something other than an answer: {line.strip()}") from None
        if "error" in answer:
            raise WorkerError(answer["error"], self.stderr())
        return answer

    def stop(self) -> None:
        """Let the process close its device and exit; then kill the rest of its group."""
        self.send(STOP)
        # The listener ends when the process closes its output.
        self._listener.join(STOP_LIMIT_S)
        self.kill()

    def end(self) -> None:
        """End the process from another thread. The thread that uses it must still call `kill`."""
        if self._process.returncode is None:
            self._process.kill()

    def kill(self) -> None:
        """Kill the process and everything that it started; further calls do nothing."""
        self._scope.remove(self)
        with self._ending_lock:
            if self._is_killed:
                return
            self._is_killed = True
        os.close(self._watchdog_pipe)
        if self._process.returncode is None:  # before `wait` the system cannot reuse the group's id
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_LIMIT_S)
        if self._listener.ident is not None:  # else it could not be started
            self._listener.join(KILL_LIMIT_S)
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if not self._listener.is_alive():  # else `close` would block
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
            return Crashed(f"closed its output and had not ended {KILL_LIMIT_S:g} s later")
        if code == -signal.SIGKILL and memory_kills() > self._memory_kills:
            return KilledForMemory("was killed by the system, which had no memory left")
        if code < 0:
            named = -code in set(signal.Signals)
            return Crashed(f"was ended by {signal.Signals(-code).name if named else f'signal {-code}'}")
        return Crashed(f"ended with exit status {code}")

    def stderr(self) -> str:
        """Return the stderr of the process and its driver so far."""
        # not `read`: the process shares the file's position, at which it writes
        contents = os.pread(self._errors.fileno(), MAX_STDERR_BYTES, 0)
        return contents.decode("utf-8", "replace")


def _cannot_start(error: OSError) -> DeviceUnavailable:
    missing = RESOURCES.get(error.errno or 0, "")
    return DeviceUnavailable(f"its process cannot be started: {missing}{error.strerror or error}")


def _start_process(
    under: Sequence[str], program: str, environment: dict[str, str], errors: int, watchdog_pipe: int
) -> NewProcess | ForkedProcess:
    """Start a process: by the fork server if possible, else anew."""
    with importing:  # while another thread imports an exercise, `sys.path` has its folder
        path = json.dumps([str(entry) for entry in sys.path])
    child = None if under else fork(program, [path], environment, errors, watchdog_pipe)
    return child or NewProcess(
        [*under, *COMMAND[:-1], program, path, str(watchdog_pipe)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        env=environment,
        start_new_session=True,
        pass_fds=(watchdog_pipe,),
    )
