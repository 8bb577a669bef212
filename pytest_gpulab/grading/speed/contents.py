"""Input contents of timed runs, shared by all processes that grade a class.

The contents are large. Touching new memory takes a process longer than everything else it does with them: 0.1 s for two
sets of 256 MiB, and over 1 s on a virtual machine that returns unused memory to its host. So the first process writes
them to files, and all processes map these. A process that changes a few elements gets private pages for these only.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_gpulab.exercise import Array, Buffer, Exercise, Plan, Problem
from pytest_gpulab.grading.compilation.builds import variant_key
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_inputs, rng_for

Inputs = Mapping[str, Array]

FOLDER = "GPULAB_CONTENTS"
"""The environment variable with a run's folder for the files; without it every process makes its own contents."""
LEAST_BYTES = 16 << 20  # smaller contents are not worth a file
FREE_BYTES = 2 << 30  # of the disk, always left free
WAIT_S = 10.0  # for another process that writes them


def timed_inputs(
    exercise: Exercise, problem: Problem, plan: Plan, pattern: str, seed: int, names: Sequence[str]
) -> Inputs:
    """Return the result of `make_inputs`, in shared memory if it is large and depends on no tunable.

    The names identify these contents among those of the run with the same shapes and dtypes; with `seed` they seed the
    generator. Raises InstructorsMistake as `make_inputs`.
    """

    def made(tunables: Mapping[str, int] = problem.tunables) -> Inputs:
        return make_inputs(exercise, replace(problem, tunables=tunables), plan, pattern, rng_for(seed, *names))

    buffers, folder = [buffer for buffer in plan.buffers if buffer.role == "input"], os.environ.get(FOLDER)
    is_worth_it = sum(buffer.nbytes for buffer in buffers) >= LEAST_BYTES
    if not folder or not is_worth_it or any(np.dtype(buffer.dtype).isbuiltin != 1 for buffer in buffers):
        return made()
    shared = _Shared(Path(folder), buffers, (seed, *names, pattern, variant_key(problem.variant)))
    recorded = _RecordedTunables(problem.tunables)
    inputs = None
    with suppress(OSError), shared.alone():
        inputs = shared.get()
        if inputs is None:
            # Raised again without sharing, if it is not because of `_RecordedTunables`.
            with suppress(InstructorsMistake):
                inputs = made(recorded)
            if inputs is None or recorded.was_read:
                shared.stay_apart()
            else:
                inputs = shared.put(inputs)
    return made() if inputs is None else inputs


def private_copy(values: Array) -> Array:
    """Return a writable copy; for an array mapped from a file only changed pages take memory."""
    if isinstance(values, np.memmap) and values.filename is not None:
        with suppress(OSError):
            return np.asarray(np.memmap(values.filename, values.dtype, "c", values.offset, values.shape))
    return np.array(values)


class _RecordedTunables(Mapping[str, int]):
    """Tunables that record reads: contents that depend on a tunable cannot be shared."""

    def __init__(self, tunables: Mapping[str, int]) -> None:
        self._tunables, self.was_read = tunables, False

    def __getitem__(self, name: str) -> int:
        self.was_read = True
        return self._tunables[name]

    def __iter__(self) -> Iterator[str]:
        self.was_read = True
        return iter(self._tunables)

    def __len__(self) -> int:
        self.was_read = True
        return len(self._tunables)

    def __repr__(self) -> str:
        self.was_read = True
        return repr(self._tunables)

    def __reduce__(self) -> Any:  # a copy is a plain dict, and its reads are not recorded
        self.was_read = True
        return dict, (dict(self._tunables),)


class _Shared:
    """The files of one set of contents, one per input buffer; all methods raise OSError if they are not available."""

    def __init__(self, folder: Path, buffers: Iterable[Buffer], which: Sequence[object]) -> None:
        shapes = [(buffer.name, np.dtype(buffer.dtype).str, buffer.shape) for buffer in buffers]
        key = hashlib.sha256(repr((*which, shapes)).encode()).hexdigest()
        self._lock, self._apart = folder / f"contents-{key}.lock", folder / f"contents-{key}.apart"
        self._files = {name: folder / f"contents-{key}-{nth}.npy" for nth, (name, *_) in enumerate(shapes)}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the files' lock, or raise OSError if the wait is too long, or an earlier holder could not share them."""
        from pytest_gpulab.devices.system.locks import SharedLock  # not on Windows, where nothing is timed

        with closing(SharedLock(self._lock)) as lock:
            if self._apart.exists() or not lock.take_exclusive(WAIT_S) or self._apart.exists():
                raise TimeoutError
            yield

    def get(self) -> Inputs | None:
        """Return the stored contents, read-only; None if there are none."""
        if not all(file.exists() for file in self._files.values()):
            return None
        return {name: np.load(file, mmap_mode="r") for name, file in self._files.items()}

    def put(self, inputs: Inputs) -> Inputs:
        """Write the files and return them mapped; without enough free disk space return the inputs as they are."""
        try:
            self._write(inputs)
        except (OSError, ValueError):
            self.stay_apart()
            return inputs
        return self.get() or inputs

    def _write(self, inputs: Inputs) -> None:
        nbytes = sum(values.nbytes for values in inputs.values())
        if shutil.disk_usage(self._lock.parent).free < FREE_BYTES + nbytes:
            raise OSError(errno.ENOSPC, "the disk would be nearly full")
        for name, values in inputs.items():
            new = self._files[name].with_suffix(".new")
            try:
                with new.open("wb") as file:
                    np.save(file, values)
                np.load(new, mmap_mode="r")  # np.save does not report that the disk is full at the last bytes
                new.replace(self._files[name])
            finally:
                new.unlink(missing_ok=True)

    def stay_apart(self) -> None:
        """Make all processes create their own contents from now on, in parallel."""
        with suppress(OSError):  # on a full disk the processes do so one after the other
            self._apart.touch()
