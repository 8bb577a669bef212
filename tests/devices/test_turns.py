"""GpuLock among processes: who times on a GPU, and who may give it work meanwhile."""

import threading
import time

import pytest

from pytest_gpulab.devices.cuda import gpu_lock
from pytest_gpulab.devices.cuda.gpu_lock import GpuLock
from pytest_gpulab.devices.protocol import DeviceUnavailable

LIMIT_S = 20
WORKERS = []


@pytest.fixture
def of_process(tmp_path):
    """Return what makes the turns of one more process, here each with descriptors of its own."""
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
    """Is in another process's turn, as a rule to give the GPU work, until it is told to end."""

    def __init__(self, its, turn=GpuLock.shared):
        super().__init__()
        WORKERS.append(self)
        self.turn, self.works, self.ends = turn(its), threading.Event(), threading.Event()
        self.start()

    def run(self):
        with self.turn:
            self.works.set()
            assert self.ends.wait(LIMIT_S)

    def end(self):
        self.ends.set()
        self.join(LIMIT_S)
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


def test_a_turn_ends_with_an_error(of_process):
    one = of_process()
    with pytest.raises(KeyboardInterrupt):
        interrupted(one)
    assert gets_in(of_process())
    with of_process().exclusive(wait_s=0):
        pass


def test_many_work_at_once(of_process):
    workers = [Worker(of_process()), Worker(of_process())]
    assert all(worker.works.wait(LIMIT_S) for worker in workers)


def test_who_times_waits_for_those_at_work_and_lets_nobody_begin(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", LIMIT_S)
    timer, early, alone, late_asked = of_process(), Worker(of_process()), threading.Event(), threading.Event()

    def time_alone():
        with timer.exclusive():
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


@pytest.mark.parametrize(("stay_s", "is_first"), [(0.0, True), (1e9, False)])
def test_who_has_been_inside_for_long_lets_others_time_before_it_goes_on(of_process, monkeypatch, stay_s, is_first):
    monkeypatch.setattr(gpu_lock, "HOLD_S", stay_s)
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", LIMIT_S)
    its, timer, timed = of_process(), of_process(), threading.Event()

    def time_once():
        with timer.exclusive():
            timed.set()

    thread = threading.Thread(target=time_once)
    with its.shared():
        with its.shared():  # nobody waits: it stays
            assert its._work.is_held
        thread.start()
        end_s = time.monotonic() + LIMIT_S
        while not its._work.is_gate_closed() and time.monotonic() < end_s:
            time.sleep(0.001)
        assert not timed.is_set()
        with its.shared():
            assert its._work.is_held and timed.is_set() == is_first
    thread.join(LIMIT_S)
    assert timed.is_set()


def test_who_times_can_work(of_process):
    timer = of_process()
    with timer.exclusive():
        with timer.shared(), timer.shared():
            pass
        assert is_kept_out(of_process())
    assert gets_in(of_process())


def gets_in(its, wait_s=LIMIT_S):
    worker = Worker(its)
    began = worker.works.wait(wait_s)
    worker.ends.set()
    return began


def is_kept_out(its):
    return not gets_in(its, 0.1)


@pytest.mark.parametrize("inner", [GpuLock.shared, GpuLock.creating_context])
def test_work_within_work_ends_with_the_outer_one(of_process, inner, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", 1.5)
    one, timer = of_process(), of_process()
    with one.shared():
        with inner(one):
            pass
        assert not begins_at_once(timer)
    assert begins_at_once(timer)


def begins_at_once(timer):
    begin_s = time.monotonic()
    with timer.exclusive():
        return time.monotonic() - begin_s < gpu_lock.WORK_WAIT_S / 2


def test_who_works_too_long_gives_way(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", LIMIT_S)
    slow = of_process()
    with slow.shared():
        slow.yield_gpu()
        assert begins_at_once(of_process())


class Patient(Worker):
    """Times in silence."""

    def __init__(self, its):
        super().__init__(its, lambda its: its.exclusive(drain=True))


class Slow(Worker):
    """Works too long, and gives way."""

    def __init__(self, its):
        self.its = its
        super().__init__(its)

    def run(self):
        with self.turn:
            self.its.yield_gpu()
            self.works.set()
            assert self.ends.wait(LIMIT_S)


def test_in_silence_those_are_waited_for_who_gave_way_and_nobody_else_begins(of_process):
    slow = Slow(of_process())
    assert slow.works.wait(LIMIT_S)
    patient = Patient(of_process())
    assert not patient.works.wait(0.2)
    late = Worker(of_process())
    slow.end()
    assert patient.works.wait(LIMIT_S) and not late.works.wait(0.1)
    patient.end()
    assert late.works.wait(LIMIT_S)


def test_in_silence_those_are_waited_for_who_began_because_they_had_waited_too_long(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "SHARED_WAIT_S", 0.05)
    first = Worker(of_process(), GpuLock.exclusive)
    assert first.works.wait(LIMIT_S)
    hasty = Worker(of_process())
    assert hasty.works.wait(LIMIT_S)
    first.end()
    patient = Patient(of_process())
    assert not patient.works.wait(0.2)
    hasty.end()
    assert patient.works.wait(LIMIT_S)


@pytest.mark.parametrize("turn", [GpuLock.shared, GpuLock.exclusive])
def test_in_silence_those_are_waited_for_whose_work_never_ends_until_their_process_does(of_process, turn):
    stuck = of_process()
    with turn(stuck):
        stuck.stay_unlocked()
    with stuck.shared():
        pass
    patient = Patient(of_process())
    assert not patient.works.wait(0.2)
    stuck.close()
    assert patient.works.wait(LIMIT_S)


def test_silence_is_not_waited_for_for_ever(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "DRAIN_WAIT_S", 0.1)
    slow = Slow(of_process())
    assert slow.works.wait(LIMIT_S)
    assert Patient(of_process()).works.wait(LIMIT_S)


def test_who_gave_way_and_begins_something_else_is_as_others_are(of_process):
    slow = of_process()
    with slow.shared():
        slow.yield_gpu()
        timer = Worker(of_process(), GpuLock.exclusive)
        assert timer.works.wait(LIMIT_S)
        begin_s = time.monotonic()
        threading.Timer(0.2, timer.end).start()
        with slow.shared():
            assert time.monotonic() - begin_s >= 0.2
            assert not slow._unlocked.is_held


def test_who_gave_way_and_begins_something_else_is_no_longer_waited_for(of_process):
    slow, gave_way, goes_on = of_process(), threading.Event(), threading.Event()

    def work():
        with slow.shared():
            slow.yield_gpu()
            gave_way.set()
            assert goes_on.wait(LIMIT_S)
            with slow.shared():  # which waits for the patient one
                pass

    thread = threading.Thread(target=work)
    thread.start()
    assert gave_way.wait(LIMIT_S)
    patient = Patient(of_process())
    assert not patient.works.wait(0.2)
    goes_on.set()
    assert patient.works.wait(0.5 * gpu_lock.DRAIN_WAIT_S)
    patient.end()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("turn", [GpuLock.shared, GpuLock.creating_context])
def test_in_silence_those_inside_are_waited_for_longer(of_process, turn, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", 0.01)
    monkeypatch.setattr(gpu_lock, "CONTEXT_WAIT_S", 0.01)
    inside = Worker(of_process(), turn)
    assert inside.works.wait(LIMIT_S)
    patient = Patient(of_process())
    assert not patient.works.wait(0.2)
    inside.end()
    assert patient.works.wait(LIMIT_S)


def test_who_cannot_go_outside_because_of_one_who_times_there_goes_later(of_process, monkeypatch):
    slow = of_process()
    with slow.shared():
        with monkeypatch.context() as patch:
            patch.setattr(gpu_lock, "DRAIN_WAIT_S", 0.01)
            hasty = Patient(of_process())
            assert hasty.works.wait(LIMIT_S)
        slow.yield_gpu()
        hasty.end()
        slow.yield_gpu()
        patient = Patient(of_process())
        assert not patient.works.wait(0.2)
    assert patient.works.wait(LIMIT_S)


def test_a_kernel_that_is_timed_may_take_long(of_process):
    timer = of_process()
    with timer.exclusive():
        timer.yield_gpu()
        assert is_kept_out(of_process())


def test_nobody_waits_for_ever_for_the_others(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", 0.05)
    monkeypatch.setattr(gpu_lock, "SHARED_WAIT_S", 1.5)
    busy = Worker(of_process())
    assert busy.works.wait(LIMIT_S)
    with of_process().exclusive():
        waits = of_process()
        assert Worker(waits).works.wait(LIMIT_S)
        begin_s = time.monotonic()
        WORKERS[-1].end()
        with waits.shared():  # its retry_budget is over, once for all
            assert time.monotonic() - begin_s < 0.5 * gpu_lock.SHARED_WAIT_S


def test_others_work_while_a_context_is_made_that_a_timer_waits_for(of_process):
    maker = Worker(of_process(), GpuLock.creating_context)
    assert maker.works.wait(LIMIT_S)
    timer = Worker(of_process(), GpuLock.exclusive)
    assert not timer.works.wait(0.1)
    assert gets_in(of_process())
    second = Worker(of_process(), GpuLock.creating_context)
    assert not second.works.wait(0.1)
    maker.end()
    assert timer.works.wait(LIMIT_S)
    assert not second.works.is_set() and is_kept_out(of_process())
    timer.end()
    assert second.works.wait(LIMIT_S)


def test_nobody_waits_for_ever_for_contexts(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "CONTEXT_WAIT_S", 0.05)
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", LIMIT_S)
    maker = Worker(of_process(), GpuLock.creating_context)
    assert maker.works.wait(LIMIT_S)
    assert begins_at_once(of_process())


def follower(of_process, waits_s):
    """Return who waited so long for another one's timing and follows it, and who waited to work; both have begun."""
    first = Worker(of_process(), GpuLock.exclusive)
    assert first.works.wait(LIMIT_S)
    second = Worker(of_process(), GpuLock.exclusive)
    time.sleep(waits_s)
    worker = Worker(of_process())
    assert not worker.works.wait(0.05)
    first.end()
    return second, worker


def test_those_that_time_follow_each_other(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "GATE_KEPT_S", LIMIT_S)
    second, worker = follower(of_process, waits_s=0.1)
    assert second.works.wait(LIMIT_S)
    assert not worker.works.wait(0.1)
    second.end()
    assert worker.works.wait(LIMIT_S)


def test_who_waits_long_to_time_lets_others_work_before(of_process, monkeypatch):
    monkeypatch.setattr(gpu_lock, "GATE_KEPT_S", 0.1)
    monkeypatch.setattr(gpu_lock, "POLL_S", 3.0)  # it looks again two seconds after the others have ended
    monkeypatch.setattr(gpu_lock, "WORK_WAIT_S", LIMIT_S)
    second, worker = follower(of_process, waits_s=4.0)
    assert worker.works.wait(LIMIT_S)
    assert not second.works.wait(3.0)
    worker.end()
    assert second.works.wait(LIMIT_S)


def test_who_waits_to_time_leaves_the_door_alone_that_nobody_keeps_shut(of_process, monkeypatch):
    """The first one waits for a context; meanwhile the second one does not keep others from work."""
    monkeypatch.setattr(gpu_lock, "CONTEXT_WAIT_S", 2 * LIMIT_S)
    monkeypatch.setattr(gpu_lock, "GATE_KEPT_S", 2 * LIMIT_S)
    maker = Worker(of_process(), GpuLock.creating_context)
    assert maker.works.wait(LIMIT_S)
    timers = [Worker(of_process(), GpuLock.exclusive) for _ in range(2)]
    time.sleep(0.1)
    assert all(gets_in(of_process()) for _ in range(3))
    maker.end()
    end_s = time.monotonic() + LIMIT_S
    while timers and time.monotonic() < end_s:
        for timer in [timer for timer in timers if timer.works.wait(0.01)]:
            timer.end()
            timers.remove(timer)
    assert not timers
