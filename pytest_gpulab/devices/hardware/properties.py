"""Properties of a GPU, as a device query prints them."""

from dataclasses import dataclass

from .architectures import CONSTANT_BYTES, SHARED_BYTES, generation
from .occupancy import MAX_BLOCK_THREADS, WARP

MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
BLOCK_REGISTERS = 65536
COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")  # cuda.h, CUcomputemode
_UNKNOWN = "n/a"


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a GPU that do not change, in the units of their names.

    The limits per thread block and grid are the same for all architectures that CUDA 13 compiles for; source: the CUDA
    C++ Programming Guide, table "Technical Specifications per Compute Capability".
    """

    name: str  # such as `NVIDIA H200`
    architecture: str  # such as `sm_90`
    sms: int  # number of multiprocessors (SMs)
    global_bytes: int  # size of the device memory
    sm_shared_bytes: int  # shared memory per SM
    largest_block_shared_bytes: int  # shared memory per block, on request
    sm_registers: int  # 32-bit registers per SM
    sm_threads: int  # resident at a time, per SM
    sm_blocks: int  # resident at a time, per SM
    clock_mhz: int  # highest clock
    memory_mhz: int  # highest clock of the memory
    memory_bus_bits: int  # width of the memory's bus
    l2_bytes: int  # size of the L2 cache
    peak_bandwidth_gb_s: float | None  # 1e9 bytes per second; None if unknown
    constant_bytes: int = CONSTANT_BYTES  # limit of the `__constant__` variables of a file
    block_shared_bytes: int = SHARED_BYTES  # shared memory per block, by default
    block_registers: int = BLOCK_REGISTERS  # 32-bit registers per block
    warp_size: int = WARP
    block_threads: int = MAX_BLOCK_THREADS  # resident at a time, per block
    max_block: tuple[int, int, int] = MAX_BLOCK  # largest extents in x, y and z
    max_grid: tuple[int, int, int] = MAX_GRID  # largest extents in x, y and z
    concurrent_kernels: bool = True  # True if kernels of several streams can run at a time
    ecc: bool | None = None  # setting of a real GPU; None for a modelled one
    compute_mode: str | None = None  # setting of a real GPU; None for a modelled one

    @property
    def compute_capability(self) -> str:
        """Major and minor number, such as `9.0`."""
        digits = self.architecture.removeprefix("sm_")
        return f"{digits[:-1]}.{digits[-1]}"

    def rows(self) -> dict[str, str]:
        """Return the most asked properties, label to text."""
        ecc = {None: _UNKNOWN, False: "off", True: "on"}[self.ecc]
        peak = self.peak_bandwidth_gb_s
        return {
            "compute capability": f"{self.compute_capability} ({generation(self.architecture)})",
            "multiprocessors (SMs)": str(self.sms),
            "global memory": f"{self.global_bytes / 2**30:.1f} GiB",
            "constant memory": f"{self.constant_bytes // 1024} KiB",
            "shared memory per block": f"{self.block_shared_bytes // 1024} KiB, "
            f"on request {self.largest_block_shared_bytes // 1024} KiB",
            "shared memory per SM": f"{self.sm_shared_bytes // 1024} KiB",
            "registers per block": str(self.block_registers),
            "registers per SM": str(self.sm_registers),
            "warp size": f"{self.warp_size} threads",
            "threads per block": f"at most {self.block_threads}",
            "threads per SM": f"at most {self.sm_threads}",
            "blocks per SM": f"at most {self.sm_blocks}",
            "block dimensions": f"at most {_extents(self.max_block)}",
            "grid dimensions": f"at most {_extents(self.max_grid)}",
            "clock": f"{self.clock_mhz} MHz",
            "memory clock": f"{self.memory_mhz} MHz",
            "memory bus": f"{self.memory_bus_bits} bits",
            "L2 cache": f"{self.l2_bytes / 2**20:.0f} MiB",
            "peak bandwidth": _UNKNOWN if peak is None else f"{peak:.0f} GB/s",
            "concurrent kernels": "yes" if self.concurrent_kernels else "no",
            "ECC": ecc,
            "compute mode": self.compute_mode or _UNKNOWN,
        }


def _extents(xyz: tuple[int, int, int]) -> str:
    return " x ".join(map(str, xyz))
