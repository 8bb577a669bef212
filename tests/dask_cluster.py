"""A Dask cluster of real processes on the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from hang_guard import wait_for

WITH_GPU = ("--resources", "GPU=1")


class DaskCluster:
    """A scheduler, and the workers that are added to it; all of them end with `close`."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder, self._environment = folder, os.environ | environment
        self._processes: list[subprocess.Popen[bytes]] = []
        told = folder / "scheduler.json"
        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(told))
        self.scheduler = self._start("scheduler", *options)
        self.address = str(json.loads(wait_for(lambda: told.exists() and told.read_text()))["address"])

    def add_worker(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker; the options overrule those that all have."""
        fixed = ("--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--local-directory", str(self._folder))
        return self._start("worker", self.address, *fixed, *options, **environment)

    def _start(self, role: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"{role}{len(self._processes)}.log"
        command = (sys.executable, "-m", f"distributed.cli.dask_{role}", *options)
        given = self._environment | environment
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=given, cwd=self._folder)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


def logs_in(folder: Path) -> dict[str, str]:
    """Return what each process of a cluster has said there so far, by its name."""
    return {log.stem: log.read_text(errors="replace") for log in sorted(folder.glob("*.log"))}
