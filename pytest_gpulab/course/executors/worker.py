"""The program of a worker process that grades whole jobs on the simulated GPU, one after the other."""

import base64
import pickle
from typing import IO, Any

from pytest_gpulab.course.jobs import Job, NotGraded, graded, simulated_device
from pytest_gpulab.grading.isolation import worker
from pytest_gpulab.grading.isolation.worker_process import program_of

PROGRAM = program_of(__name__)
NO_MEMORY = "ran out of memory"


def task(job: Job) -> dict[str, Any]:
    """Return the first line for a worker: the device of a job, and of the later ones."""
    return {"architecture": job.settings.architecture, "gpu": job.settings.gpu}


def packed(job: Job) -> str:
    """Return a job as text."""
    return base64.b64encode(pickle.dumps(job)).decode()


def main(watchdog_pipe: int) -> None:
    """Grade the jobs of stdin."""
    worker.main(watchdog_pipe, _JobHandler)


class _JobHandler:
    """A handler of jobs, with a device for all of them."""

    def __init__(self, task: dict[str, Any], printed: IO[bytes]) -> None:
        self.device = simulated_device(task["architecture"], task["gpu"])

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a job's grade, or why there is none; `lost` if a new process may succeed."""
        try:
            return {"grade": graded(pickle.loads(base64.b64decode(request["job"]))).to_dict()}
        except NotGraded as error:
            return {"not graded": str(error)}
        except MemoryError:
            return {"lost": NO_MEMORY}
