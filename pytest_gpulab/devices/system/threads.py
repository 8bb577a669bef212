"""One thread for NumPy's linear algebra in graders, instead of one per core.

Threads that wait for each other on busy cores cost more than they save: the simulated GPU's small systems of equations
take four to ten times the CPU time with two threads. In a container with a share of one core, NumPy still starts one
thread per core of the machine. NumPy reads the environment when it is loaded, so this module must not load it.
"""

from __future__ import annotations

from collections.abc import Mapping

_OPENBLAS = "OPENBLAS_NUM_THREADS"  # the library in NumPy's own wheels
ONE_THREAD: Mapping[str, str] = dict.fromkeys((_OPENBLAS, "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""The environment variables of all libraries that NumPy may be built with."""


def with_one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with one thread per library, unless it sets another number."""
    return {**ONE_THREAD, **environment}


def has_one_thread(environment: Mapping[str, str]) -> bool:
    """Return True if a process with that environment uses one thread."""
    return environment.get(_OPENBLAS) == "1"
