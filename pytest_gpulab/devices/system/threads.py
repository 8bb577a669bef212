"""How many threads NumPy's linear algebra has in a process that grades: one, instead of one for every core.

Threads that wait for each other on busy cores cost far more than they save: the simulated GPU's small systems of
equations take four to ten times the CPU time with two threads, and in a container with a part of a core's time on a
machine of many cores there is a thread for each of those. NumPy reads the environment when it is loaded, so nothing
here loads it.
"""

from __future__ import annotations

from collections.abc import Mapping

_OPENBLAS = "OPENBLAS_NUM_THREADS"  # which NumPy's own wheels come with
ONE_THREAD: Mapping[str, str] = dict.fromkeys((_OPENBLAS, "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""In an environment: for each library that NumPy may have been built with."""


def with_one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with one thread, as far as it does not ask for more."""
    return {**ONE_THREAD, **environment}


def has_one_thread(environment: Mapping[str, str]) -> bool:
    """Say whether a process with that environment is content with one."""
    return environment.get(_OPENBLAS) == "1"
