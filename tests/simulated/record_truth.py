"""Record what a real GPU computes for every launch of the table: writes `truth.npz` beside this file.

Run it on a machine with an NVIDIA GPU, nvcc and PyCUDA, from anywhere, after changing a kernel or an input:

    python tests/simulated/record_truth.py [OUTPUT]

The record holds outputs only, keyed by the launch's name: `name` (the array `out`), `name/state`, `name/printed`; and
`about`, a JSON text with device, driver, compiler, date and the digest of each launch's source and inputs, by which
the tests notice that a record is older than its kernel.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pycuda.driver as cuda
from pycuda.compiler import compile as compile_cubin
from truth_launches import LAUNCHES, TruthLaunch
from truth_values import Array


def record(output: Path) -> None:
    """Run the whole table on the first CUDA device and write the record."""
    cuda.init()
    device = cuda.Device(0)
    context = device.retain_primary_context()
    context.push()
    try:
        modules = {_key(launch): _module(launch) for launch in {_key(launch): launch for launch in LAUNCHES}.values()}
        arrays: dict[str, Array] = {}
        for launch in LAUNCHES:
            print(launch.name, file=sys.stderr)
            arrays |= _run(modules[_key(launch)], launch)
        np.savez_compressed(output, about=np.array(json.dumps(_about(device))), **arrays)
    finally:
        context.pop()


def _key(launch: TruthLaunch) -> tuple[str, str]:
    return launch.source, json.dumps(dict(launch.defines))


def _module(launch: TruthLaunch) -> Any:
    options = ["-std=c++17", "--disable-warnings", *(f"-D{name}={value}" for name, value in launch.defines.items())]
    return cuda.module_from_buffer(compile_cubin(launch.text, options=options, no_extern_c=True, arch="sm_90"))


def _run(module: Any, launch: TruthLaunch) -> dict[str, Array]:
    results: dict[str, Array] = {}
    if launch.state is not None:
        results[f"{launch.name}/state"] = launch.state.copy()
    if launch.out is not None:
        results[launch.name] = np.zeros(launch.out_shape, launch.out)
    held = [cuda.to_device(np.ascontiguousarray(array)) for array in (*launch.inputs, *results.values())]
    block = (*launch.block, 1, 1)[:3]
    with tempfile.TemporaryFile() as printed:
        _with_stdout_to(
            printed,
            lambda: module.get_function(launch.kernel)(
                *held, np.int32(launch.threads), grid=launch.grid, block=block, shared=launch.shared_bytes
            ),
        )
        printed.seek(0)
        text = printed.read()
    for array, pointer in zip(results.values(), held[len(launch.inputs) :], strict=True):
        cuda.memcpy_dtoh(array, pointer)
    if launch.sorted_rows:
        results[launch.name].sort(axis=1)
    if launch.prints:
        results[f"{launch.name}/printed"] = np.frombuffer(text, np.uint8)
    return results


def _with_stdout_to(file: Any, action: Any) -> None:
    """Do something on the GPU and wait for it; what its printf writes to the process's own stdout goes to `file`."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        action()
        cuda.Context.synchronize()
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _about(device: Any) -> dict[str, Any]:
    nvcc = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    smi = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return {
        "device": device.name(),
        "driver": subprocess.run(smi, capture_output=True, text=True, check=True).stdout.split()[0],
        "compiler": "nvcc " + re.search(r"release ([\d.]+)", nvcc)[1],  # type: ignore[index]
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "digests": {launch.name: launch.digest for launch in LAUNCHES},
    }


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("truth.npz"))
