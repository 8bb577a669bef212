"""Limits of a multiprocessor (SM) of NVIDIA's GPU architectures: a table by the compiler's architecture names.

Sources: the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; the allocation unit of
shared memory is that of NVIDIA's `cuda_occupancy.h`.
"""

from collections.abc import Mapping
from typing import NamedTuple

_KIB = 1024
# limits of every architecture
SHARED_BYTES = 48 * _KIB  # per block, statically declared; more must be requested at the launch
CONSTANT_BYTES = 64 * _KIB
LOCAL_BYTES = 512 * _KIB  # per thread
BARRIERS = 16  # per block


class SmLimits(NamedTuple):
    """The resources of one SM that bound its resident blocks."""

    generation: str  # the architecture's name
    blocks: int  # resident at a time
    warps: int  # resident at a time
    shared_bytes: int  # of the resident blocks
    reserved_bytes: int = 1024  # shared memory that the system reserves per block
    shared_unit: int = 128  # the allocation unit of shared memory, in bytes
    registers: int = 65536  # of the resident blocks

    @property
    def largest_shared_bytes(self) -> int:
        """The most shared memory of one block."""
        return self.shared_bytes - self.reserved_bytes


LIMITS: Mapping[str, SmLimits] = {
    "sm_75": SmLimits("Turing", 16, 32, 64 * _KIB, reserved_bytes=0, shared_unit=256),
    "sm_80": SmLimits("Ampere", 32, 64, 164 * _KIB),
    "sm_86": SmLimits("Ampere", 16, 48, 100 * _KIB),
    "sm_87": SmLimits("Ampere", 16, 48, 164 * _KIB),
    "sm_88": SmLimits("Ampere", 16, 48, 100 * _KIB),
    "sm_89": SmLimits("Ada Lovelace", 24, 48, 100 * _KIB),
    "sm_90": SmLimits("Hopper", 32, 64, 228 * _KIB),
    "sm_100": SmLimits("Blackwell", 32, 64, 228 * _KIB),
    "sm_103": SmLimits("Blackwell", 32, 64, 228 * _KIB),
    "sm_110": SmLimits("Blackwell", 24, 48, 228 * _KIB),
    "sm_120": SmLimits("Blackwell", 24, 48, 100 * _KIB),
    "sm_121": SmLimits("Blackwell", 24, 48, 100 * _KIB),
}
"""Limits by the compiler's architecture name."""


def generation(architecture: str) -> str:
    """Return the name of an architecture's generation, such as `Hopper` for `sm_90`."""
    limits = LIMITS.get(architecture)
    return "unknown generation" if limits is None else limits.generation
