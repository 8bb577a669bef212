"""Input contents of timed runs, which all submissions of a class are timed on: made and held once for all processes.

They are large, and memory that a process touches for the first time takes a processor longer than anything that is done
with the contents: two sets of 256 MiB 0.1 s, on a virtual machine that gives back what nobody uses over a second. So
the first process to need them writes them to files, which all map into their memory. Whoever changes a few elements
has new memory for these alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.exercise import Exercise, Plan, Problem
from pytest_gpulab.grading.prepare import InstructorsMistake, make_inputs, rng_for

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]

FOLDER = "GPULAB_CONTENTS"
"""Names the folder for the files, of one run; without it every process makes its own contents."""
LEAST_BYTES = 16 << 20
FREE_BYTES = 2 << 30  # of the disk, which are left to others


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
    folder = os.environ.get(FOLDER)
    nbytes = sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "input")
    if not folder or nbytes < LEAST_BYTES:
        return make_inputs(exercise, problem, plan, pattern, rng_for(seed, *names))
    files = _files(Path(folder), plan, seed, names)
    with _alone(Path(folder) / "contents.lock"):
        if all(file.exists() for file in files.values()):
            return {name: _mapped(file) for name, file in files.items()}
        noted = _Noted(problem.tunables)
        try:
            inputs = make_inputs(exercise, replace(problem, tunables=noted), plan, pattern, rng_for(seed, *names))
        except InstructorsMistake:  # unless it does more with the tunables than any mapping can
            return make_inputs(exercise, problem, plan, pattern, rng_for(seed, *names))
        has_room = shutil.disk_usage(folder).free >= FREE_BYTES + nbytes
        return inputs if noted.asked or not has_room else _kept(inputs, files)


def private_copy(values: Array) -> Array:
    """Return a copy that can be changed; of what is mapped from a file only changed pages take memory."""
    if isinstance(values, np.memmap):
        assert values.filename is not None, "it was mapped by name"
        return np.asarray(np.memmap(values.filename, values.dtype, "c", values.offset, values.shape))
    copy: Array = values.copy()
    return copy


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


def _files(folder: Path, plan: Plan, seed: int, names: Sequence[str]) -> dict[str, Path]:
    """Return the file of each input buffer."""
    found = {}
    for buffer in plan.buffers:
        if buffer.role == "input":
            told = (str(seed), *names, buffer.name, np.dtype(buffer.dtype).str, str(buffer.shape))
            found[buffer.name] = folder / f"contents-{hashlib.sha256(repr(told).encode()).hexdigest()}.npy"
    return found


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process is in here; the system lets the next one in if one ends."""
    import fcntl  # not on Windows, where nothing is timed

    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kept(inputs: Inputs, files: Mapping[str, Path]) -> Inputs:
    """Write the files, and return what is mapped from them; the contents as they are if that fails."""
    try:
        for name, values in inputs.items():
            with tempfile.NamedTemporaryFile(dir=files[name].parent) as new:
                np.save(new, values)
                new.flush()
                os.link(new.name, files[name])
        return {name: _mapped(file) for name, file in files.items()}
    except OSError:
        return inputs


def _mapped(file: Path) -> Array:
    contents: Array = np.load(file, mmap_mode="r")
    return contents
