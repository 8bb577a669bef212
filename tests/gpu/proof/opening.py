"""How long processes wait for each other that open a GPU at once, take memory, and end: what limits a class's rate.

Every submission is graded in a process of its own, and the driver serves one at a time. Run it on a machine with a GPU,
with PyCUDA importable (about a minute):

    python tests/gpu/proof/opening.py --json opening.json
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from figures import Proof, arguments

COUNTS = (1, 8, 24)
ARRAYS, ARRAY_BYTES = 8, 256 << 20
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
STEPS = ("cuInit", "context", "NVML", f"{ARRAYS} arrays", "given back")
ENDINGS = ("closed", "killed")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--one", choices=ENDINGS, help="be one of the processes")
    options = parser.parse_args()
    if options.one:
        return one(options.one)
    proof = Proof("Processes that open a GPU at once")
    for queues in ("1", "8"):
        for ending in ENDINGS:
            rows = [together(count, ending, queues) for count in COUNTS]
            proof.table(f"{QUEUES}={queues}, {ending}", ("processes", *STEPS, "all open, s", "all gone, s"), rows)
            (_, *_, open_1, gone_1), (count, *_, open_n, gone_n) = rows[0], rows[-1]
            each_s = (float(open_n) - float(open_1) + float(gone_n) - float(gone_1)) / (int(count) - 1)
            proof.figure(f"each further one, {queues} queues, {ending}", f"{each_s:.3f} s")
    return proof.finish(options.json)


def one(ending: str) -> int:
    """Do each step when all others do, say how long it took, and end when told."""
    import numpy as np
    import pycuda.driver as driver
    import pynvml

    _say("ready")
    sys.stdin.readline()
    took_s: list[float] = []
    _timed(took_s, driver.init)
    gpu = driver.Device(0)
    context = _timed(took_s, gpu.retain_primary_context)
    _timed(took_s, lambda: (pynvml.nvmlInit(), pynvml.nvmlDeviceGetHandleByPciBusId(gpu.pci_bus_id())))
    context.push()
    arrays = _timed(took_s, lambda: [driver.mem_alloc(ARRAY_BYTES) for _ in range(ARRAYS)])
    _timed(took_s, lambda: [array.free() for array in arrays])
    kept = driver.to_device(np.zeros(1000, np.float32))
    driver.Context.pop()
    _say(took_s)
    sys.stdin.readline()
    if ending == "closed":
        context.push()
        kept.free()
        driver.Context.pop()
        context.detach()
    else:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def together(count: int, ending: str, queues: str) -> tuple[str, ...]:
    """Return the mean time of each step of so many processes, and until all were open and gone."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--one", ending],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {QUEUES: queues},
        )
        for _ in range(count)
    ]
    for process in processes:
        _heard(process)
    begin_s = time.perf_counter()
    _tell(processes)
    answers = [_heard(process) for process in processes]
    open_s, begin_s = time.perf_counter() - begin_s, time.perf_counter()
    _tell(processes)
    for process in processes:
        process.wait()
    gone_s = time.perf_counter() - begin_s
    means = [sum(took_s) / count for took_s in zip(*answers, strict=True)]
    return (str(count), *(f"{mean:.3f}" for mean in means), f"{open_s:.3f}", f"{gone_s:.3f}")


def _timed(took_s: list[float], step: Callable[[], Any]) -> Any:
    begin_s = time.perf_counter()
    made = step()
    took_s.append(time.perf_counter() - begin_s)
    return made


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


def _heard(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def _tell(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


if __name__ == "__main__":
    sys.exit(main())
