"""Turns among processes: who times on a GPU, and who may give it work meanwhile."""

import threading
import time

import pytest

from pytest_gpulab.devices.cuda import turns
from pytest_gpulab.devices.cuda.turns import Turns
from pytest_gpulab.devices.protocol import DeviceUnavailable

LIMIT_S = 20
WORKERS = []


@pytest.fixture
def of_process(tmp_path):
    """Return what makes the turns of one more process, here each with descriptors of its own."""
    made = []

    def make(identity="GPU-1"):
        made.append(Turns(identity, tmp_path))
        return made[-1]

    yield make
    for worker in WORKERS:
        worker.end()
    WORKERS.clear()
    for its in made:
        its.close()


class Worker(threading.Thread):
    """Gives the GPU work in another process's turn, until it is told to end."""

    def __init__(self, its):
        super().__init__()
        WORKERS.append(self)
        self.its, self.works, self.ends = its, threading.Event(), threading.Event()
        self.start()

    def run(self):
        with self.its.working():
            self.works.set()
            assert self.ends.wait(LIMIT_S)

    def end(self):
        self.ends.set()
        self.join(LIMIT_S)
        assert not self.is_alive()


def test_one_at_a_time_times_on_a_gpu(of_process, tmp_path):
    one, other = of_process("GPU-1/2:3"), of_process("GPU-1/2:3")
    with one.timing():
        once_more = other.timing(wait_s=0)
        with pytest.raises(DeviceUnavailable, match="another process has been timing on the GPU for 0 s"), once_more:
            pass
        with of_process("GPU-4").timing(wait_s=0):
            pass
    with other.timing(wait_s=0):
        assert (tmp_path / "pytest-gpulab-GPU-1-2-3.lock").exists()


def interrupted(its):
    with its.timing():
        raise KeyboardInterrupt


def test_a_turn_ends_with_an_error(of_process):
    one = of_process()
    with pytest.raises(KeyboardInterrupt):
        interrupted(one)
    assert can_begin(of_process())
    with of_process().timing(wait_s=0):
        pass


def test_many_work_at_once(of_process):
    workers = [Worker(of_process()), Worker(of_process())]
    assert all(worker.works.wait(LIMIT_S) for worker in workers)


def test_who_times_waits_for_those_at_work_and_lets_nobody_begin(of_process):
    timer, early, alone, late_asked = of_process(), Worker(of_process()), threading.Event(), threading.Event()

    def time_alone():
        with timer.timing():
            alone.set()
            assert late_asked.wait(LIMIT_S) and not late.works.wait(0.1)

    assert early.works.wait(LIMIT_S)
    thread = threading.Thread(target=time_alone)
    thread.start()
    assert not alone.wait(0.1)
    early.end()
    assert alone.wait(LIMIT_S)
    late = Worker(of_process())
    late_asked.set()
    thread.join(LIMIT_S)
    assert late.works.wait(LIMIT_S)


def test_who_times_can_work(of_process):
    timer = of_process()
    with timer.timing():
        with timer.working(), timer.working():
            pass
        assert not can_begin(of_process())
    assert can_begin(of_process())


def can_begin(its):
    worker = Worker(its)
    began = worker.works.wait(0.1)
    worker.ends.set()
    return began


def test_work_within_work_ends_with_the_outer_one(of_process):
    one, timer = of_process(), of_process()
    with one.working():
        with one.working():
            pass
        assert not timer._room.take_alone(0)
    assert timer._room.take_alone(0)


def begins_at_once(timer):
    begin_s = time.monotonic()
    with timer.timing():
        return time.monotonic() - begin_s < turns.SILENCE_WAIT_S / 2


def test_who_works_too_long_gives_way(of_process):
    slow = of_process()
    with slow.working():
        slow.give_way()
        assert begins_at_once(of_process())


def test_a_kernel_that_is_timed_may_take_long(of_process):
    timer = of_process()
    with timer.timing():
        timer.give_way()
        assert not can_begin(of_process())


def test_nobody_waits_for_ever_for_the_others(of_process, monkeypatch):
    monkeypatch.setattr(turns, "SILENCE_WAIT_S", 0.05)
    monkeypatch.setattr(turns, "PATIENCE_S", 0.3)
    busy = Worker(of_process())
    assert busy.works.wait(LIMIT_S)
    with of_process().timing():
        waits = of_process()
        assert Worker(waits).works.wait(LIMIT_S)
        begin_s = time.monotonic()
        WORKERS[-1].end()
        with waits.working():  # its patience is over, once for all
            assert time.monotonic() - begin_s < 0.2


def test_files_that_another_user_made_are_left_alone(of_process, tmp_path, monkeypatch):
    for ending in ("lock", "door", "room"):
        (tmp_path / f"pytest-gpulab-GPU-1.{ending}").touch()
    monkeypatch.setattr(turns.os, "access", lambda path, mode: False)
    monkeypatch.setattr(turns.os, "getuid", lambda: 77)
    with of_process().timing():
        pass
    made = {path.name for path in tmp_path.iterdir()}
    assert made >= {f"pytest-gpulab-GPU-1-77.{ending}" for ending in ("lock", "door", "room")}
