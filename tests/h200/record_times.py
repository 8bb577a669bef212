"""Time launches on the first CUDA device: cold level-2 cache, median of 30, fresh contents.

Run it on a machine with an NVIDIA GPU, nvcc and PyCUDA, with the package importable:

    python tests/h200/record_times.py OUTPUT.json SET [SAMPLES]

It times the launches of the module with the set's name, such as more_launches.py; of two sizes, the large ones. The
sets are more, atomic, waiting, student, retry, lab, tutorial, homework, variants and seminar.
"""

import json
import sys
from pathlib import Path

import atomic_launches
import homework_launches
import lab_launches
import more_launches
import numpy as np
import retry_launches
import seminar_launches
import student_launches
import tutorial_launches
import variants_launches
import waiting_launches

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import DeviceError
from pytest_gpulab.devices.stopwatch import Copy, KernelLaunch


def record(output, which, samples):
    device, _ = open_device("cuda", 60.0)
    about = {"device": device.info.name, "compiler": device.info.compiler, **device.info.details}
    module = device.compile((Path(__file__).parent / f"{which}_kernels.cu").read_text(), f"{which}_kernels.cu")
    modules = (more_launches, atomic_launches, waiting_launches, student_launches, retry_launches, lab_launches,
               tutorial_launches, homework_launches, variants_launches, seminar_launches)  # fmt: skip
    launches = next(module.launches for module in modules if module.__name__ == f"{which}_launches")
    times = {}
    with device.stopwatch() as watch:
        for _ in range(20):  # until the GPU's clock is up
            watch.calibrate()
        for row in launches():
            try:
                times[row.name] = timed(device, module, watch, row, samples)
            except DeviceError as error:
                times[row.name] = {"error": str(error)}
            print(row.name, times[row.name], flush=True)
            device.reset()
    Path(output).write_text(json.dumps({"about": about, "rows": times}, indent=1) + "\n")
    device.close()


def timed(device, module, watch, row, samples):
    for name, values in row.constants.items():
        module.set_constant(name, values)
    pairs = {i: (device.array(a), device.array(a)) for i, a in enumerate(row.args) if isinstance(a, np.ndarray)}
    args = tuple(pairs[i][1] if i in pairs else a for i, a in enumerate(row.args))
    call = KernelLaunch(row.kernel, row.grid, row.block, args, row.shared_bytes)
    copies = [Copy(*pair) for pair in pairs.values()]
    sampled_ms = [watch.cold_ms(module, [call], copies) for _ in range(samples)]
    taken_ms = sorted(elapsed_ms - watch.overhead_ms(launches=1) for elapsed_ms in sampled_ms)
    resources = module.resources(row.kernel)
    return {
        "median_ms": round(taken_ms[samples // 2], 6),
        "min_ms": round(taken_ms[0], 6),
        "max_ms": round(taken_ms[-1], 6),
        "registers": resources.registers,
        "local_bytes": resources.local_bytes,
    }


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 30)
