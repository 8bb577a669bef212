"""The GPU lock among processes: exclusive for timing, shared by work."""

import threading
import time

import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices.cuda import gpu_lock
from pytest_gpulab.devices.cuda.gpu_lock import GpuLock
from pytest_gpulab.devices.protocol import DeviceUnavailable

WORKERS = []


@pytest.fixture
def of_process(tmp_path):
    """Return a factory of locks, each with file descriptors of its own, as in one more process."""
    made = []

    def make(identity="GPU-1"):
        made.append(GpuLock(identity, tmp_path))
        return made[-1]

    yield make
    for worker in WORKERS:
        worker.end()
    WORKERS.clear()
    for its in made:
        its.close()


class Worker(threading.Thread):
    """Another process that holds the lock, shared by default, until `end`."""

    def __init__(self, its, phase=GpuLock.shared):
        super().__init__()
        WORKERS.append(self)
        self.phase, self.works, self.ends = phase(its), threading.Event(), threading.Event()
        self.start()

    def run(self):
        with self.phase:
            self.works.set()
            assert self.ends.wait(HANG_S)

    def end(self):
        self.ends.set()
        self.join(HANG_S)
        assert not self.is_alive()


def test_one_at_a_time_times_on_a_gpu(of_process, tmp_path):
    one, other = of_process("GPU-1/2:3"), of_process("GPU-1/2:3")
    with one.exclusive():
        once_more = other.exclusive(wait_s=0)
        with pytest.raises(DeviceUnavailable, match="another process has been timing on the GPU for 0 s"), once_more:
            pass
        with of_process("GPU-4").exclusive(wait_s=0):
            pass
    with other.exclusive(wait_s=0):
        assert (tmp_path / "pytest-gpulab-GPU-1-2-3.lock").exists()


def interrupted(its):
    with its.exclusive():
        raise KeyboardInterrupt


def test_an_error_releases_the_lock(of_process):
    one = of_process()
    with pytest.raises(KeyboardInterrupt):
        interrupted(one)
    assert acquires(of_process())
    with of_process().exclusive(wait_s=0):
        pass


def test_many_work_at_once(of_process):
    workers = [Worker(of_process()), Worker(of_process())]
    assert all(worker.works.wait(HANG_S) for worker in workers)


def test_an_exclusive_lock_waits_for_shared_holders_and_closes_the_gate(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", HANG_S)
    timer, early, alone, late_asked = of_process(), Worker(of_process()), threading.Event(), threading.Event()

    def time_alone():
        with timer.exclusive():
            alone.set()
            assert late_asked.wait(HANG_S) and not late.works.wait(0.1)

    assert early.works.wait(HANG_S)
    thread = threading.Thread(target=time_alone)
    thread.start()
    assert not alone.wait(0.1)
    early.end()
    assert alone.wait(HANG_S)
    late = Worker(of_process())
    late_asked.set()
    thread.join(HANG_S)
    assert late.works.wait(HANG_S)


@pytest.mark.parametrize(("stay_s", "is_first"), [(0.0, True), (1e9, False)])
def test_a_long_shared_holder_lets_a_waiting_process_time_between_operations(of_process, monkeypatch, stay_s, is_first):
    monkeypatch.setattr(gpu_lock, "HOLD_S", stay_s)
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", HANG_S)
    its, timer, timed = of_process(), of_process(), threading.Event()

    def time_once():
        with timer.exclusive():
            timed.set()

    thread = threading.Thread(target=time_once)
    with its.shared():
        with its.shared():  # no process waits: the lock is kept
            assert its._work.is_held
        thread.start()
        end_s = time.monotonic() + HANG_S
        while not its._work.is_gate_closed() and time.monotonic() < end_s:
            time.sleep(0.001)
        assert not timed.is_set()
        with its.shared():
            assert its._work.is_held and timed.is_set() == is_first
    thread.join(HANG_S)
    assert timed.is_set()


def test_an_exclusive_holder_can_work(of_process):
    timer = of_process()
    with timer.exclusive():
        with timer.shared(), timer.shared():
            pass
        assert is_excluded(of_process())
    assert acquires(of_process())


def acquires(its, wait_s=HANG_S):
    worker = Worker(its)
    began = worker.works.wait(wait_s)
    worker.ends.set()
    return began


def is_excluded(its):
    return not acquires(its, 0.1)


@pytest.mark.parametrize("inner", [GpuLock.shared, GpuLock.creating_context])
def test_a_nested_shared_phase_ends_with_the_outer_one(of_process, inner, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", 0.5)
    one, timer = of_process(), of_process()
    with one.shared():
        with inner(one):
            pass
        assert not begins_at_once(timer)
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", HANG_S)
    assert begins_at_once(timer)


def begins_at_once(timer):
    begin_s = time.monotonic()
    with timer.exclusive():
        return time.monotonic() - begin_s < gpu_lock.WORK_WAIT_S / 2


def test_long_work_yields_the_gpu(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", HANG_S)
    slow = of_process()
    with slow.shared():
        slow.yield_gpu()
        assert begins_at_once(of_process())


class Draining(Worker):
    """Times after a drain."""

    def __init__(self, its):
        super().__init__(its, lambda its: its.exclusive(drain=True))


class Slow(Worker):
    """Works for long, and yields the GPU."""

    def __init__(self, its):
        self.its = its
        super().__init__(its)

    def run(self):
        with self.phase:
            self.its.yield_gpu()
            self.works.set()
            assert self.ends.wait(HANG_S)


def test_a_drain_waits_for_processes_that_yielded_and_keeps_the_gate_closed(of_process):
    slow = Slow(of_process())
    assert slow.works.wait(HANG_S)
    draining = Draining(of_process())
    assert not draining.works.wait(0.2)
    late = Worker(of_process())
    slow.end()
    assert draining.works.wait(HANG_S) and not late.works.wait(0.1)
    draining.end()
    assert late.works.wait(HANG_S)


def test_a_drain_waits_for_processes_that_work_without_the_lock_after_a_long_wait(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "SHARED_WAIT_S", 0.05)
    first = Worker(of_process(), GpuLock.exclusive)
    assert first.works.wait(HANG_S)
    hasty = Worker(of_process())
    assert hasty.works.wait(HANG_S)
    first.end()
    draining = Draining(of_process())
    assert not draining.works.wait(0.2)
    hasty.end()
    assert draining.works.wait(HANG_S)


@pytest.mark.parametrize("phase", [GpuLock.shared, GpuLock.exclusive])
def test_a_drain_waits_for_a_hanging_kernel_until_its_process_ends(of_process, phase):
    stuck = of_process()
    with phase(stuck):
        stuck.stay_unlocked()
    with stuck.shared():
        pass
    draining = Draining(of_process())
    assert not draining.works.wait(0.2)
    stuck.close()
    assert draining.works.wait(HANG_S)


def test_a_drain_has_a_time_limit(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "DRAIN_WAIT_S", 0.1)
    slow = Slow(of_process())
    assert slow.works.wait(HANG_S)
    assert Draining(of_process()).works.wait(HANG_S)


def test_a_process_that_yielded_acquires_the_lock_again_for_new_work(of_process):
    slow = of_process()
    with slow.shared():
        slow.yield_gpu()
        timer = Worker(of_process(), GpuLock.exclusive)
        assert timer.works.wait(HANG_S)
        begin_s = time.monotonic()
        threading.Timer(0.2, timer.end).start()
        with slow.shared():
            assert time.monotonic() - begin_s >= 0.2
            assert not slow._unlocked.is_held


def test_a_drain_does_not_wait_for_a_process_that_waits_to_work_again(of_process):
    slow, yielded, goes_on = of_process(), threading.Event(), threading.Event()

    def work():
        with slow.shared():
            slow.yield_gpu()
            yielded.set()
            assert goes_on.wait(HANG_S)
            with slow.shared():  # waits for the draining process
                pass

    thread = threading.Thread(target=work)
    thread.start()
    assert yielded.wait(HANG_S)
    draining = Draining(of_process())
    assert not draining.works.wait(0.2)
    goes_on.set()
    assert draining.works.wait(0.5 * gpu_lock.DRAIN_WAIT_S)
    draining.end()
    thread.join(HANG_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("phase", [GpuLock.shared, GpuLock.creating_context])
def test_a_drain_waits_longer_for_shared_holders(of_process, phase, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", 0.01)
    monkeypatch.setattr(gpu_lock, "CONTEXT_WAIT_S", 0.01)
    holder = Worker(of_process(), phase)
    assert holder.works.wait(HANG_S)
    draining = Draining(of_process())
    assert not draining.works.wait(0.2)
    holder.end()
    assert draining.works.wait(HANG_S)


def test_a_process_that_cannot_mark_itself_unlocked_during_a_drain_does_so_later(of_process, monkeypatch):
    slow = of_process()
    with slow.shared():
        with monkeypatch.context() as patch:
            patch.setattr(gpu_lock, "DRAIN_WAIT_S", 0.01)
            hasty = Draining(of_process())
            assert hasty.works.wait(HANG_S)
        slow.yield_gpu()
        hasty.end()
        slow.yield_gpu()
        draining = Draining(of_process())
        assert not draining.works.wait(0.2)
    assert draining.works.wait(HANG_S)


def test_a_kernel_that_is_timed_may_take_long(of_process):
    timer = of_process()
    with timer.exclusive():
        timer.yield_gpu()
        assert is_excluded(of_process())


def test_waits_for_the_shared_lock_have_a_limit(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", 0.05)
    monkeypatch.setattr(gpu_lock, "SHARED_WAIT_S", 1.5)
    busy = Worker(of_process())
    assert busy.works.wait(HANG_S)
    with of_process().exclusive():
        waits = of_process()
        assert Worker(waits).works.wait(HANG_S)
        begin_s = time.monotonic()
        WORKERS[-1].end()
        with waits.shared():  # its time to wait is used up
            assert time.monotonic() - begin_s < 0.5 * gpu_lock.SHARED_WAIT_S


def test_others_work_while_a_timer_waits_for_the_context_lock(of_process):
    maker = Worker(of_process(), GpuLock.creating_context)
    assert maker.works.wait(HANG_S)
    timer = Worker(of_process(), GpuLock.exclusive)
    assert not timer.works.wait(0.1)
    assert acquires(of_process())
    second = Worker(of_process(), GpuLock.creating_context)
    assert not second.works.wait(0.1)
    maker.end()
    assert timer.works.wait(HANG_S)
    assert not second.works.is_set() and is_excluded(of_process())
    timer.end()
    assert second.works.wait(HANG_S)


def test_the_wait_for_the_context_lock_has_a_limit(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "CONTEXT_WAIT_S", 0.05)
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", HANG_S)
    maker = Worker(of_process(), GpuLock.creating_context)
    assert maker.works.wait(HANG_S)
    assert begins_at_once(of_process())


def follower(of_process, waits_s):
    """Return a process that waited so long to time, and one that waits to work, once the first timing has ended."""
    first = Worker(of_process(), GpuLock.exclusive)
    assert first.works.wait(HANG_S)
    second = Worker(of_process(), GpuLock.exclusive)
    time.sleep(waits_s)
    worker = Worker(of_process())
    assert not worker.works.wait(0.05)
    first.end()
    return second, worker


def test_timing_processes_follow_each_other(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "GATE_KEPT_S", HANG_S)
    second, worker = follower(of_process, waits_s=0.1)
    assert second.works.wait(HANG_S)
    assert not worker.works.wait(0.1)
    second.end()
    assert worker.works.wait(HANG_S)


@pytest.mark.unmeasured
def test_a_process_that_waits_long_to_time_lets_others_work_first(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "GATE_KEPT_S", 0.1)
    monkeypatch.setattr(gpu_lock, "POLL_S", 3.0)  # it polls again two seconds after the others have ended
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", HANG_S)
    second, worker = follower(of_process, waits_s=4.0)
    assert worker.works.wait(HANG_S)
    assert not second.works.wait(3.0)
    worker.end()
    assert second.works.wait(HANG_S)


def test_a_process_that_waits_to_time_closes_no_open_gate(of_process, monkeypatch):
    """The first one waits for a context; meanwhile the second one does not keep others from work."""
    monkeypatch.setattr(gpu_lock, "CONTEXT_WAIT_S", 2 * HANG_S)
    monkeypatch.setattr(gpu_lock, "GATE_KEPT_S", 2 * HANG_S)
    maker = Worker(of_process(), GpuLock.creating_context)
    assert maker.works.wait(HANG_S)
    timers = [Worker(of_process(), GpuLock.exclusive) for _ in range(2)]
    time.sleep(0.1)
    assert all(acquires(of_process()) for _ in range(3))
    maker.end()
    end_s = time.monotonic() + HANG_S
    while timers and time.monotonic() < end_s:
        for timer in [timer for timer in timers if timer.works.wait(0.01)]:
            timer.end()
            timers.remove(timer)
    assert not timers
