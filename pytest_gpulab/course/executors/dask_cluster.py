"""Grading jobs on a Dask cluster: the executor for more than one machine.

Workers share only the network: a job carries its source and the files of its exercise, which a worker keeps for later
jobs. Processes of the worker grade it, which may hang, crash or be killed, as on a single machine. The job of a worker
that is lost goes to another one.
"""

import gc
import pkgutil
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest_gpulab
from pytest_gpulab.course.jobs import Job, NotGraded, device_model
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.grade import Grade

from .dask_worker import forget, graded_there, looked_at, packed
from .processes import ExecutorUnavailable

RESOURCE = "GPU"
CONNECT_LIMIT_S = 10.0
WORKERS_LIMIT_S = 60.0
"""Wait for the first worker."""
DESERTED_LIMIT_S = 600.0
"""Wait for a new worker when all are lost."""
ANSWER_LIMIT_S = 30.0
"""Time limit for fetching a finished grade."""
POLL_S = 1.0
"""Interval of looking for new and lost workers."""
ATTEMPTS = 3
"""Times that a job is sent after its worker or the connection was lost, before the job is blamed."""

HOW_TO_START = f'start one for each GPU with: dask worker ADDRESS --nthreads 1 --resources "{RESOURCE}=1"'


@dataclass
class _Sent:
    """A job and Dask's future of its answer."""

    job: Job
    future: Future[Grade]
    attempts: int = 0
    worker: str = ""
    answer: Any = None


class ClusterExecutor:
    """The workers of a Dask cluster: as many jobs at a time as they have GPUs, or threads for simulated ones.

    `info` is the description of the workers' devices, `reason` why they were chosen. The scheduler's address is such as
    `tcp://login1:8786`. Raises ExecutorUnavailable if Dask is not installed, there is no scheduler at that address or
    no worker with a GPU, or the workers have other versions of this package or different devices.
    """

    def __init__(
        self, address: str, device: str = "auto", architecture: str | None = None, gpu: str | None = None
    ) -> None:
        self.address = address
        self._client = _connected(address)
        self._needs_gpu = device != "sim"
        try:
            workers = self._first_workers()
            _check_versions(self._client, workers)
            self.info, self.reason = _common_device(self._client, workers, (device, architecture, gpu))
        except BaseException:
            self._client.close()
            raise
        self._needs_gpu = self.info.kind == "cuda"
        self._model, self._run = device_model(self.info), uuid4().hex
        self._lock, self._is_due, self._is_open = threading.RLock(), threading.Event(), True
        self._last_seen_s = time.monotonic()
        self._waiting: deque[_Sent] = deque()
        self._running: dict[str, _Sent] = {}
        self._sender = threading.Thread(target=self._send_what_waits, name="gpulab-cluster", daemon=True)
        self._sender.start()

    @property
    def capacity(self) -> int:
        """Number of jobs that the workers can run at present."""
        return sum(self._capacities().values())

    def all_say(self, question: Callable[[], bool]) -> bool:
        """Return whether a function returns True on every worker."""
        answers = self._client.run(question, workers=list(self._capacities()), on_error="return")
        return all(answer is True for answer in answers.values())

    def submit(self, job: Job) -> Future[Grade]:
        """Send a job as soon as a worker is free."""
        sent = _Sent(job, Future())
        self._queue(sent)
        return sent.future

    def cancel(self) -> None:
        """Cancel waiting jobs and stop running ones."""
        self._end_all(CancelledError())
        with suppress(Exception):  # without a connection there is no worker to notify
            if self._client.status == "running":
                self._client.run(forget, self._run, on_error="ignore")

    def close(self) -> None:
        """Cancel the jobs and disconnect from the cluster. Idempotent."""
        if not self._is_open:
            return
        self.cancel()
        self._is_open = False
        self._is_due.set()
        self._sender.join()
        self._client.close()

    def _queue(self, sent: _Sent) -> None:
        with self._lock:  # or it might go to the queue that `_end_all` is just emptying
            self._waiting.append(sent)
        self._is_due.set()

    def _send_what_waits(self) -> None:
        """Send jobs to free workers, in a thread of its own, until the executor is closed."""
        while self._is_open:
            self._is_due.wait(POLL_S)
            self._is_due.clear()
            try:
                self._supervise_jobs(self._capacities())
            except Exception as error:  # a thread that joins this one would wait for ever
                self._end_all(NotGraded(f"the cluster at {self.address} failed: {error!r}"))

    def _supervise_jobs(self, capacities: Mapping[str, int]) -> None:
        if capacities:
            self._last_seen_s = time.monotonic()
            self._take_back(capacities)
            self._fill(capacities)
        elif self._client.status == "closed":
            self._end_all(NotGraded(f"the scheduler at {self.address} was lost"))
        elif time.monotonic() - self._last_seen_s > DESERTED_LIMIT_S:
            self._end_all(NotGraded(f"the cluster at {self.address} has had no worker for {DESERTED_LIMIT_S:g} s"))

    def _take_back(self, capacities: Mapping[str, int]) -> None:
        """Send the jobs of lost workers to others."""
        with self._lock:
            lost = {key: sent for key, sent in self._running.items() if sent.worker not in capacities}
            for key in lost:
                del self._running[key]
        for sent in lost.values():
            _let_go(sent)
            self._send_again(sent, f"the worker that graded it was lost, the last time {sent.worker}")

    def _fill(self, capacities: Mapping[str, int]) -> None:
        """Send a job to a chosen worker: Dask would queue it behind another one while a worker is idle."""
        with self._lock:
            taken = Counter(sent.worker for sent in self._running.values())
            free = [worker for worker, capacity in capacities.items() for _ in range(capacity - taken[worker])]
            while self._waiting and free:
                sent = self._waiting.popleft()
                if sent.attempts or sent.future.set_running_or_notify_cancel():
                    self._send(sent, free.pop())

    def _send(self, sent: _Sent, worker: str) -> None:
        key, resources = f"gpulab-{uuid4().hex}", {RESOURCE: 1} if self._needs_gpu else None
        sent.attempts, sent.worker = sent.attempts + 1, worker
        self._running[key] = sent
        try:
            work = packed(sent.job, self._run, self._model)
        except OSError as error:
            del self._running[key]
            sent.future.set_exception(NotGraded(f"the exercise {sent.job.exercise} cannot be sent: {error}"))
            return
        sent.answer = self._client.submit(graded_there, work, key=key, workers=[worker], resources=resources)
        sent.answer.add_done_callback(self._ended)

    def _ended(self, answer: Any) -> None:
        """Pass on a grade, or try another worker if there was no answer.

        Dask calls this in the one thread for all answers of the process, so that it must not block.
        """
        from distributed import KilledWorker

        if answer.key not in self._running:
            return  # the job was cancelled
        try:
            grade, error = answer.result(timeout=ANSWER_LIMIT_S), None
        except (Exception, CancelledError) as raised:
            grade, error = None, raised
        with self._lock:
            sent = self._running.pop(answer.key, None)
        self._is_due.set()
        if sent is None:
            return
        if error is None:
            sent.future.set_result(grade)
        elif answer.status == "cancelled":  # Dask cancels all futures of a broken connection
            self._send_again(sent, f"the connection to the scheduler at {self.address} broke")
        elif answer.status != "error":
            self._send_again(sent, f"its grade could not be fetched from the scheduler at {self.address}: {error!r}")
        elif isinstance(error, KilledWorker):
            self._send_again(sent, f"the worker that graded it was lost, the last time {sent.worker}")
        elif isinstance(error, NotGraded):
            sent.future.set_exception(error)
        else:
            sent.future.set_exception(NotGraded(f"the worker {sent.worker} failed: {error!r}"))

    def _send_again(self, sent: _Sent, why: str) -> None:
        if sent.attempts < ATTEMPTS:
            self._queue(sent)
        else:
            sent.future.set_exception(NotGraded(f"{why}; it was sent {ATTEMPTS} times"))

    def _end_all(self, error: BaseException) -> None:
        """End all unfinished jobs with that error, or cancel the waiting ones."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            running, self._running = self._running, {}
        for sent in waiting:
            if isinstance(error, CancelledError) and sent.future.cancel():
                continue
            if sent.attempts or sent.future.set_running_or_notify_cancel():
                sent.future.set_exception(error)
        for sent in running.values():
            sent.future.set_exception(error)
            _let_go(sent)

    def _first_workers(self) -> list[str]:
        """Wait for a free worker, or raise ExecutorUnavailable if there is none in time."""
        end_s = time.monotonic() + WORKERS_LIMIT_S
        while not (capacities := self._capacities()) and time.monotonic() < end_s:
            time.sleep(min(POLL_S, WORKERS_LIMIT_S))
        if not capacities:
            found = "no worker has a GPU" if _workers(self._client) else "there is no worker"
            otherwise = ", or grade on the simulated GPU with --gpulab-device=sim" if self._needs_gpu else ""
            raise ExecutorUnavailable(f"the cluster at {self.address}: {found}; {HOW_TO_START}{otherwise}")
        return list(capacities)

    def _capacities(self) -> dict[str, int]:
        """Return the number of jobs that each suitable worker can run."""
        capacities = {}
        for address, worker in _workers(self._client).items():
            capacities[address] = int(worker["resources"].get(RESOURCE, 0)) if self._needs_gpu else worker["nthreads"]
        return {address: capacity for address, capacity in capacities.items() if capacity}


def _let_go(sent: _Sent) -> None:
    """Cancel a job in Dask, unless the connection is lost and all futures with it."""
    with suppress(Exception):
        sent.answer.cancel()


def _connected(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise ExecutorUnavailable(
            "grading on a cluster needs Dask; get it with: python -m pip install 'pytest-gpulab[cluster]'"
        ) from None
    client: Any = distributed.Client  # Dask is typed in parts only
    # If the garbage collector finds an unclosed client while Dask starts another one, it waits for ever for the
    # lock that Dask holds meanwhile.
    gc.collect()
    try:
        return client(address, timeout=CONNECT_LIMIT_S, set_as_default=False)
    except AssertionError:  # the thread of Dask's loop has not started in ten seconds
        raise ExecutorUnavailable(
            "Dask has not started within 10 s; this machine is overloaded: try again later"
        ) from None
    except (OSError, ValueError) as error:
        reason = str(error).rstrip(".") or "no answer"
        text = f"there is no Dask scheduler at {address} ({reason}); start one with: dask scheduler"
        raise ExecutorUnavailable(text) from None


def _workers(client: Any) -> Mapping[str, Any]:
    """Return the scheduler's facts about its workers by address; empty while it cannot be reached."""
    if client.status != "running":  # Dask would return old facts
        return {}
    try:
        return dict(client.scheduler_info(n_workers=-1).get("workers", {}))
    except (OSError, RuntimeError):
        return {}


def _check_versions(client: Any, workers: list[str]) -> None:
    own = pytest_gpulab.__version__
    # Neither a function of this package, which may be missing, nor pip's metadata, which PYTHONPATH lacks.
    versions = client.run(pkgutil.resolve_name, "pytest_gpulab:__version__", workers=workers, on_error="return")
    for address, version in sorted(versions.items()):
        if version != own:
            there = "no pytest-gpulab" if isinstance(version, Exception) else f"pytest-gpulab {version}"
            here = f"this machine has {own}: install the same version there"
            raise ExecutorUnavailable(f"the worker {address} has {there}, and {here}")


def _common_device(
    client: Any, workers: list[str], device: tuple[str, str | None, str | None]
) -> tuple[DeviceInfo, str]:
    """Return the description that all workers' devices share.

    Raises ExecutorUnavailable if a worker has none, or another one than the others.
    """
    found = client.run(looked_at, *device, workers=workers, on_error="return")
    for address, answer in sorted(found.items()):
        if isinstance(answer, Exception):
            raise ExecutorUnavailable(f"the worker {address} cannot grade: {answer}")
    models = {device_model(info): address for address, (info, _) in found.items()}
    if len(models) > 1:
        each = ", ".join(sorted(f"{address} has {model}" for model, address in models.items()))
        raise ExecutorUnavailable(f"the workers have different devices, and grades would not compare: {each}")
    info, reason = next(iter(found.values()))
    return info, reason
