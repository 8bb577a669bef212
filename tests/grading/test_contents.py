"""Large contents of timed runs are made once for all processes of a run, and held once."""

from __future__ import annotations

import copy
import fcntl
import io
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from doubling import EXERCISE
from hang_guard import HANG_S

from pytest_gpulab.exercise import Array, Buffer, Exercise, Plan, Problem, Variant
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_inputs, rng_for
from pytest_gpulab.grading.speed import contents
from pytest_gpulab.grading.speed.contents import Inputs, timed_inputs
from pytest_gpulab.grading.speed.mixing import Mix, mixed

pytestmark = pytest.mark.unit

SIZE = 10_000
PROBLEM = Problem(SIZE, {"BLOCK_SIZE": 32})
NAMES = ("twice", "speedup", "0")
Ask = Callable[[Mapping[str, int]], object]
ASKING: tuple[Ask, ...] = (dict, len, repr, lambda asked: asked.get("BLOCK_SIZE"), dict.copy, copy.copy, copy.deepcopy)


class Counted:
    """The inputs of an exercise, counting how often they are made; `ask` may look at the tunables."""

    def __init__(self, ask: Ask = lambda tunables: None) -> None:
        self.times, self._ask = 0, ask

    def __call__(self, problem: Problem, pattern: str, rng: np.random.Generator) -> Mapping[str, Array]:
        self.times += 1
        self._ask(problem.tunables)
        return EXERCISE.inputs(problem, pattern, rng)

    @property
    def exercise(self) -> Exercise:
        return replace(EXERCISE, inputs=self)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contents of any size are shared."""
    monkeypatch.setenv(contents.FOLDER, str(tmp_path))
    monkeypatch.setattr(contents, "LEAST_BYTES", 0)
    monkeypatch.setattr(contents, "FREE_BYTES", 0)
    return tmp_path


def made(
    exercise: Exercise, names: tuple[str, ...] = NAMES, problem: Problem = PROBLEM, pattern: str = "random"
) -> Inputs:
    return timed_inputs(exercise, problem, exercise.plan(problem), pattern, 7, names)


def own() -> Inputs:
    return make_inputs(EXERCISE, PROBLEM, EXERCISE.plan(PROBLEM), "random", rng_for(7, *NAMES))


def files(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def test_they_are_made_once_and_mapped_by_all_whatever_their_tunables(folder: Path) -> None:
    counted = Counted()
    first, second = made(counted.exercise), made(counted.exercise, problem=Problem(SIZE, {"BLOCK_SIZE": 64}))
    assert counted.times == 1 and files(folder) == [".lock", ".npy"]
    for each in (first, second):
        assert isinstance(each["in"], np.memmap) and not each["in"].flags.writeable
        assert np.array_equal(each["in"], own()["in"])


@pytest.mark.parametrize(
    ("names", "problem"), [((*NAMES[:-1], "1"), PROBLEM), (NAMES, Problem(SIZE + 1, {})), (NAMES[:-1], PROBLEM)]
)
def test_others_are_others(folder: Path, names: tuple[str, ...], problem: Problem) -> None:
    counted = Counted()
    assert not np.array_equal(made(counted.exercise)["in"], made(counted.exercise, names, problem)["in"])
    assert counted.times == 2


def test_those_of_other_patterns_and_variants_are_others_whatever_their_names(folder: Path) -> None:
    counted = Counted()
    for pattern, defines in (("random", {}), ("other", {}), ("random", {"T": "int"})):
        made(counted.exercise, problem=replace(PROBLEM, variant=Variant("same", defines)), pattern=pattern)
    assert counted.times == 3


@pytest.mark.parametrize("ask", ASKING)
def test_inputs_that_depend_on_tunables_have_their_own_contents(folder: Path, ask: Ask) -> None:
    exercise = Counted(ask).exercise
    assert all(np.array_equal(made(exercise)["in"], own()["in"]) for _ in range(2))
    assert files(folder) == [".apart", ".lock"]


def test_a_mistake_of_the_instructors_is_one_here_too(folder: Path) -> None:
    with pytest.raises(InstructorsMistake, match="no such thing"):
        made(replace(EXERCISE, inputs=lambda *_: (_ for _ in ()).throw(RuntimeError("no such thing"))))


def test_small_ones_and_those_of_a_run_without_a_folder_are_not_shared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "LEAST_BYTES", 4 * SIZE + 1)
    assert not isinstance(made(EXERCISE)["in"], np.memmap)
    monkeypatch.setattr(contents, "LEAST_BYTES", 4 * SIZE)
    monkeypatch.delenv(contents.FOLDER)
    assert not isinstance(made(EXERCISE)["in"], np.memmap)
    assert files(folder) == []


def test_they_leave_room_on_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "FREE_BYTES", 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=999 + 4 * SIZE))
    assert not isinstance(made(EXERCISE)["in"], np.memmap)
    assert files(folder) == [".apart", ".lock"]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000 + 4 * SIZE))
    assert isinstance(made(EXERCISE, NAMES[1:])["in"], np.memmap)


def test_a_disk_that_is_full_all_the_same_leaves_them_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Any, values: Array) -> None:
        file.write(bytes(100))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert np.array_equal(made(EXERCISE)["in"], own()["in"])
    assert files(folder) == [".apart", ".lock"]


def test_a_write_to_a_full_disk_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NumPy does not, for the last bytes of a file."""
    monkeypatch.setattr(np, "save", lambda file, values: file.write(npy_of(values)[:-8]))
    assert all(np.array_equal(made(EXERCISE)["in"], own()["in"]) for _ in range(2))
    assert files(folder) == [".apart", ".lock"]


def npy_of(values: Array) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values)
    return file.getvalue()


def test_unshared_contents_need_no_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "WAIT_S", HANG_S)
    asks = Counted(dict).exercise
    made(asks)
    (lock,) = folder.glob("*.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        begin_s = time.monotonic()
        made(asks)
        assert time.monotonic() - begin_s < 0.5 * contents.WAIT_S


def test_after_waiting_in_vain_a_process_makes_its_own_contents(folder: Path) -> None:
    lock = lock_of(folder)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = threading.Thread(target=made, args=(EXERCISE,))
        waiting.start()
        waiting.join(0.2)
        lock.with_suffix(".apart").touch()
    waiting.join(60)
    assert files(folder) == [".apart", ".lock"]


def test_errors_of_the_system_cost_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = made(EXERCISE)["in"]

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(np, "memmap", type("memmap", (np.memmap,), {"__new__": refuse}))
        assert np.array_equal(contents.private_copy(mapped), own()["in"])
        patch.setattr(np, "load", refuse)
        assert np.array_equal(made(EXERCISE)["in"], own()["in"])
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        assert np.array_equal(made(EXERCISE)["in"], own()["in"])
    shutil.rmtree(folder)
    assert np.array_equal(made(EXERCISE)["in"], own()["in"])


@pytest.mark.parametrize("dtype", [np.dtype(">f4"), np.dtype([("x", np.int32)])])
def test_types_that_numpy_does_not_come_with_are_not_shared(folder: Path, dtype: np.dtype[Any]) -> None:
    plan = Plan((Buffer("in", "input", dtype, (SIZE,)),), ())
    exercise = replace(EXERCISE, plan=lambda problem: plan, inputs=lambda *_: {"in": np.zeros(SIZE, dtype)})
    assert made(exercise)["in"].dtype == dtype
    assert files(folder) == []


def lock_of(folder: Path) -> Path:
    """Make contents and forget them, but for the lock."""
    made(EXERCISE)
    for path in folder.glob("*.npy"):
        path.unlink()
    (lock,) = folder.iterdir()
    return lock


def test_the_second_process_waits_for_the_first(folder: Path) -> None:
    with lock_of(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=made, args=(EXERCISE,))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and files(folder) == [".lock"]
        assert isinstance(made(EXERCISE, NAMES[1:])["in"], np.memmap), "others wait for their own only"
    waiting.join(60)
    assert not waiting.is_alive() and files(folder) == [".lock", ".lock", ".npy", ".npy"]


def test_the_wait_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "WAIT_S", 0.05)
    with lock_of(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert np.array_equal(made(EXERCISE)["in"], own()["in"])
        assert files(folder) == [".lock"]


def test_one_that_is_killed_while_it_makes_them_is_succeeded(folder: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=hangs)
    process.start()
    while not (folder / "begun").exists():
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    assert isinstance(made(EXERCISE)["in"], np.memmap)


def hangs() -> None:
    def begin(tunables: Mapping[str, int]) -> None:
        (Path(os.environ[contents.FOLDER]) / "begun").touch()
        time.sleep(60)

    contents.LEAST_BYTES = 0
    made(Counted(begin).exercise)


def test_mixing_them_changes_no_file_and_hands_on_plain_arrays(folder: Path) -> None:
    sets = [made(EXERCISE, (*NAMES, str(number))) for number in range(2)]
    copies = [{"in": np.array(each["in"])} for each in sets]
    for mix in (Mix(0), Mix(1, (0.9, 0.5))):
        found = mixed(sets, mix)["in"]
        assert type(found) is np.ndarray and not found.flags.writeable
        assert np.array_equal(found, mixed(copies, mix)["in"])
    assert all(np.array_equal(mapped["in"], copy["in"]) for mapped, copy in zip(sets, copies, strict=True))
