"""Kernels that launch kernels (dynamic parallelism): launches that `runtime/device.cu` has recorded in device memory.

A parent kernel cannot wait for the kernels that it launches (CUDA 12 and later), so they may run after its end.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_gpulab.devices.programs.build_cache import built
from pytest_gpulab.devices.programs.device import ProgramModule
from pytest_gpulab.devices.programs.session import Kernel
from pytest_gpulab.devices.programs.stand_in import SOURCES
from pytest_gpulab.devices.programs.toolchain import Toolchain, messages_of
from pytest_gpulab.devices.simulated.translation.calls.inline import DEVICE_RUNTIME

MOST_LAUNCHES = 2048  # per kernel: device.cu has as many records
MAX_DEPTH = 2048  # of launches within launches, as measured on an H100
_SOURCE = SOURCES / "device.cu"
_RECORD = np.dtype(
    {
        "names": ["kernel", "grid", "block", "shared_bytes", "parameters"],
        "formats": ["<u8", ("<u4", 3), ("<u4", 3), "<u4", ("u1", 4096)],
        "offsets": [0, 8, 20, 32, 48],
    }
)


class DeviceLaunch(NamedTuple):
    """A launch by a kernel, with its parameters as bytes without gaps."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: bytes


def device_runtime(toolchain: Toolchain) -> str:
    """Return the PTX of the runtime library's functions for kernels, perhaps from the cache, or raise CompileError."""

    def produce(folder: Path) -> Iterable[Path]:
        options = ("-rdc=true", "-arch=compute_75", "-ptx", str(_SOURCE), "-o", str(folder / "device.ptx"))
        messages_of([*toolchain.command, *options])
        return (_SOURCE,)

    folder = built(("device runtime", *toolchain.identity, str(_SOURCE)), produce)
    return (folder / "device.ptx").read_text(encoding="utf-8").replace("cdp_", DEVICE_RUNTIME)


def set_attributes(module: ProgramModule, values: Sequence[int]) -> None:
    """Write the values that `cudaDeviceGetAttribute` returns in kernels, if the module calls it."""
    if (variable := module.variable("gpulab_attributes")) is not None:
        variable.data[: 4 * len(values)] = np.array(values, np.int32).view(np.uint8)


def taken(module: ProgramModule) -> tuple[list[DeviceLaunch], int]:
    """Return the launches that a kernel has recorded, in their order, and the number of those that were lost."""
    counter, records = module.variable("gpulab_launch_count"), module.variable("gpulab_launches")
    if counter is None or records is None:
        return [], 0
    count = int(counter.data[:4].view("<u4")[0])
    counter.data[:4] = 0
    recorded = records.data[: records.nbytes].view(_RECORD)[:count]
    return [_launch(module, record) for record in recorded], count - len(recorded)


def _launch(module: ProgramModule, record: np.void) -> DeviceLaunch:
    name = module.kernel_at(int(record["kernel"]))
    parameters = module.packed_parameters(name, record["parameters"].tobytes())
    (x, y, z), (width, height, depth) = record["grid"].tolist(), record["block"].tolist()
    kernel = Kernel.of(module, name)
    return DeviceLaunch(kernel, (x, y, z), (width, height, depth), int(record["shared_bytes"]), parameters)
