"""A driver and a context for parts of the CUDA device that need little of them."""

from contextlib import nullcontext
from weakref import WeakSet

from pytest_gpulab.devices.cuda.memory import _GUARD, APART_BYTES

ATTRIBUTES = {"MULTIPROCESSOR_COUNT": 100, "MAX_THREADS_PER_MULTIPROCESSOR": 2000, "L2_CACHE_SIZE": 1 << 20}
ATTRIBUTES |= {"MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 1 << 16, "MEMORY_CLOCK_RATE": 1000, "GLOBAL_MEMORY_BUS_WIDTH": 64}
ATTRIBUTES |= {"CLOCK_RATE": 1_980_000, "INTEGRATED": 0}


class Driver:
    """Counts pieces of memory that were taken from it and not given back."""

    class Error(Exception):
        """As PyCUDA's: memory's is one of them."""

    class MemoryError(Error):
        """There is none left."""

    def __init__(self):
        self.taken = 0

    def mem_alloc(self, nbytes):
        self.taken += 1
        return self

    def __int__(self):
        return 1 << 40

    def memcpy_htod(self, target, values):
        assert target == int(self) + APART_BYTES and values is _GUARD

    def free(self):
        self.taken -= 1


class Context:
    """Has a driver, and is always current."""

    def __init__(self):
        self.driver, self.users, self.usable, self.latest = Driver(), WeakSet(), True, ""

    def current(self):
        return nullcontext()

    at_work = current
