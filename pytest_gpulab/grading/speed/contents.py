"""Input contents of timed runs, which all submissions of a class are timed on: made and held once for all processes.

They are large, and memory that a process touches for the first time takes a processor longer than anything that is done
with the contents: two sets of 256 MiB 0.1 s, on a virtual machine that gives back what nobody uses over a second. So
the first process to need them writes them to files, which all map into their memory. Whoever changes a few elements
has new memory for these alone.
"""

from __future__ import annotations

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
import numpy.typing as npt

from pytest_gpulab.exercise import Buffer, Exercise, Plan, Problem
from pytest_gpulab.grading.compilation.builds import variant_key
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_inputs, rng_for

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]

FOLDER = "GPULAB_CONTENTS"
"""Names the folder for the files, of one run; without it every process makes its own contents."""
LEAST_BYTES = 16 << 20
FREE_BYTES = 2 << 30  # of the disk, which are left to others
WAIT_S = 10.0  # for another process that makes them


def timed_inputs(
    exercise: Exercise, problem: Problem, plan: Plan, pattern: str, seed: int, names: Sequence[str]
) -> Inputs:
    """Return what `make_inputs` returns; in memory that is shared if they are large and no tunable was asked for.

    Args:
        exercise, problem, plan, pattern: of `make_inputs`.
        seed: with the names, of the generator.
        names: tell these contents from all others of the run that are made for buffers of the same shape and dtype.

    Raises:
        InstructorsMistake: as `make_inputs`.
    """

    def made(tunables: Mapping[str, int] = problem.tunables) -> Inputs:
        return make_inputs(exercise, replace(problem, tunables=tunables), plan, pattern, rng_for(seed, *names))

    buffers, folder = [buffer for buffer in plan.buffers if buffer.role == "input"], os.environ.get(FOLDER)
    is_worth_it = sum(buffer.nbytes for buffer in buffers) >= LEAST_BYTES
    if not folder or not is_worth_it or any(np.dtype(buffer.dtype).isbuiltin != 1 for buffer in buffers):
        return made()
    shared = _Shared(Path(folder), buffers, (seed, *names, pattern, variant_key(problem.variant)))
    noted = _Noted(problem.tunables)
    inputs = None
    with suppress(OSError), shared.alone():
        inputs = shared.get()
        if inputs is None:
            with suppress(InstructorsMistake):  # none without sharing: it does more with tunables than a mapping can
                inputs = made(noted)
            if inputs is None or noted.asked:
                shared.stay_apart()
            else:
                inputs = shared.put(inputs)
    return made() if inputs is None else inputs


def private_copy(values: Array) -> Array:
    """Return a copy that can be changed; of what is mapped from a file only changed pages take memory."""
    if isinstance(values, np.memmap) and values.filename is not None:
        with suppress(OSError):
            return np.asarray(np.memmap(values.filename, values.dtype, "c", values.offset, values.shape))
    return np.array(values)


class _Noted(Mapping[str, int]):
    """Tunables that note whether anyone asks for one: then a submission's contents are its own."""

    def __init__(self, tunables: Mapping[str, int]) -> None:
        self._tunables, self.asked = tunables, False

    def __getitem__(self, name: str) -> int:
        self.asked = True
        return self._tunables[name]

    def __iter__(self) -> Iterator[str]:
        self.asked = True
        return iter(self._tunables)

    def __len__(self) -> int:
        self.asked = True
        return len(self._tunables)

    def __repr__(self) -> str:
        self.asked = True
        return repr(self._tunables)

    def __reduce__(self) -> Any:  # whoever copies them asks the copy
        self.asked = True
        return dict, (dict(self._tunables),)


class _Shared:
    """The files of one set of contents, one an input buffer.

    Raises, in all it does:
        OSError: the files cannot be had; what is made without them is the same.
    """

    def __init__(self, folder: Path, buffers: Iterable[Buffer], which: Sequence[object]) -> None:
        shapes = [(buffer.name, np.dtype(buffer.dtype).str, buffer.shape) for buffer in buffers]
        key = hashlib.sha256(repr((*which, shapes)).encode()).hexdigest()
        self._lock, self._apart = folder / f"contents-{key}.lock", folder / f"contents-{key}.apart"
        self._files = {name: folder / f"contents-{key}-{nth}.npy" for nth, (name, *_) in enumerate(shapes)}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process is in here; the system lets the next one in if one is killed.

        Raises:
            OSError: that takes too long, or one that was in here found that they are not to be shared.
        """
        from pytest_gpulab.devices.system.locks import SharedLock  # not on Windows, where nothing is timed

        with closing(SharedLock(self._lock)) as lock:
            if self._apart.exists() or not lock.take_exclusive(WAIT_S) or self._apart.exists():
                raise TimeoutError
            yield

    def get(self) -> Inputs | None:
        """Return what was put there, read-only; None if nothing was."""
        if not all(file.exists() for file in self._files.values()):
            return None
        return {name: np.load(file, mmap_mode="r") for name, file in self._files.items()}

    def put(self, inputs: Inputs) -> Inputs:
        """Write the files, unless that leaves little room on the disk, and return what others will see."""
        try:
            self._write(inputs)
        except (OSError, ValueError):
            self.stay_apart()
            return inputs
        return self.get() or inputs

    def _write(self, inputs: Inputs) -> None:
        nbytes = sum(values.nbytes for values in inputs.values())
        if shutil.disk_usage(self._lock.parent).free < FREE_BYTES + nbytes:
            raise OSError(errno.ENOSPC, "little would be left to others")
        for name, values in inputs.items():
            new = self._files[name].with_suffix(".new")
            try:
                with new.open("wb") as file:
                    np.save(file, values)
                np.load(new, mmap_mode="r")  # NumPy does not notice that a disk has no room for the last bytes
                new.replace(self._files[name])
            finally:
                new.unlink(missing_ok=True)

    def stay_apart(self) -> None:
        """Let all processes make their own from now on, side by side."""
        with suppress(OSError):  # of a full disk: then they do so one after the other
            self._apart.touch()
