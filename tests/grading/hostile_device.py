"""A simulated GPU that brings its process down where the submission's comments say so, as a real one can.

`// launch 31: hang` does it at launches whose last argument is 31, `// compile: hang` at every compilation. What it did
is in `deeds.txt` beside the submission's folder, a line each: the process, the deed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.isolation import worker
from pytest_gpulab.grading.speed import reference_time

LOG_VARIABLE = "HOSTILE_DEEDS"


class HostileDevice(SimulatedDevice):
    usable = True

    @property
    def info(self) -> Any:
        return super().info._replace(kind="cuda")

    def compile(self, source: str, *args: Any, **kwargs: Any) -> Any:
        for deed in re.findall(r"// compile: (\w+)", source):
            self.do(deed)
        return HostileModule(self, super().compile(source, *args, **kwargs), source)

    def do(self, deed: str) -> None:
        log = Path(os.environ[LOG_VARIABLE])
        is_first = not log.exists() or deed not in log.read_text()
        with log.open("a") as file:
            file.write(f"{os.getpid()} {deed}\n")
        DEEDS[deed](self, is_first)


def hang(device: HostileDevice, is_first: bool) -> None:
    compiler = subprocess.Popen(["sleep", "1000"])
    with Path(os.environ[LOG_VARIABLE]).open("a") as file:
        file.write(f"{compiler.pid} sleep\n")
    time.sleep(1000)


def work_without_end(device: HostileDevice, is_first: bool) -> None:
    subprocess.run(["sh", "-c", "while :; do :; done"], check=False)


def crash(device: HostileDevice, is_first: bool) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def killed(device: HostileDevice, is_first: bool) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash_once(device: HostileDevice, is_first: bool) -> None:
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)


def fault(device: HostileDevice, is_first: bool) -> None:
    device.usable = False
    raise KernelFault("device-fault", "twice: the GPU stopped the kernel")


def fault_then_mistake(device: HostileDevice, is_first: bool) -> None:
    device.usable = False
    raise KernelFault("device-fault", "twice: given up") if is_first else RuntimeError("CUDA refuses this under a tool")


def gone(device: HostileDevice, is_first: bool) -> None:
    device.usable = False
    raise DeviceUnavailable("it does not answer")


def claim(device: HostileDevice, is_first: bool) -> None:
    device.usable = False
    for thread in range(2):
        os.write(2, b"twice.cu:3: twice: thread: [%d,0,0] Assertion `i < 31` failed.\n" % thread)
    raise KernelFault("assert", "twice: an assert() in the kernel failed")


def say(device: HostileDevice, is_first: bool) -> None:
    os.write(1, b"said by a kernel\n")


def reference_that_goes_on(device: HostileDevice, is_first: bool) -> None:
    threading.Thread(target=time.sleep, args=(1000,), name=reference_time.THREAD, daemon=True).start()


DEEDS: dict[str, Callable[[HostileDevice, bool], None]] = {
    deed.__name__: deed
    for deed in (
        hang,
        work_without_end,
        crash,
        killed,
        crash_once,
        fault,
        fault_then_mistake,
        gone,
        claim,
        say,
        reference_that_goes_on,
    )
}


class HostileModule:
    def __init__(self, device: HostileDevice, module: Any, source: str) -> None:
        self.device, self.module = device, module
        self.deeds = dict(re.findall(r"// launch (\d+): (\w+)", source))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def launch(self, kernel: str, grid: Any, block: Any, args: Any, *rest: Any) -> Any:
        if not self.device.usable:
            raise DeviceUnavailable("the GPU cannot be used any more in this process")
        if deed := self.deeds.get(str(args[-1])):
            self.device.do(deed)
        return self.module.launch(kernel, grid, block, args, *rest)


def opened(spec: str, launch_limit_s: float, *described: str | None, **options: Any) -> tuple[SimulatedDevice, str]:
    return SimulatedDevice() if spec == "sim" else HostileDevice(), "a test wants it"


def main(watchdog_pipe: int) -> None:
    worker.open_device = opened
    worker.main(watchdog_pipe)
