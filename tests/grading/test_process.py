"""A worker process as its parent sees it: what it is given, and that nothing of it stays."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path

import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.devices.system.processes import LOCKS, ONE_THREAD
from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue
from pytest_gpulab.grading.isolation import fork_server, worker_process
from pytest_gpulab.grading.isolation.worker_process import Crashed, ProcessScope, Worker

LEAVES = """
import json, os, sys, tempfile
DEVICE = {"kind": "cuda", "name": "GPU", "compiler": "nvcc", "architecture": "sm_90", "estimates": False}
sys.stdin.readline()
folder = tempfile.mkdtemp()
open(folder + "/kernel.cubin", "w").close()
threads = os.environ["OPENBLAS_NUM_THREADS"]
shared = {"locks": os.environ["GPULAB_LOCKS"], "contents": os.environ.get("GPULAB_CONTENTS")}
for answer in ({"ready": DEVICE}, {"left": folder, "threads": threads, **shared}):
    print(json.dumps(answer), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["1", "2"], ids=["forked", "anew"])
def threads(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Let workers be such that leave something, and tell them how many threads to have: with one they are forked."""
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", LEAVES))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(request.param))
    return str(request.param)


@pytest.mark.parametrize("ending", [Worker.stop, Worker.kill])
def test_its_temporary_folder_is_deleted_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str, ending: object
) -> None:
    monkeypatch.setattr(worker_process, "STOP_LIMIT_S", 0.1)
    server = fork_server.ensure_running()
    assert server is not None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(LOCKS, raising=False)
    started = Worker({})
    answer = started.ask({}, 60.0)
    left = Path(answer["left"])
    within = Path(server.folder) if threads == "1" else tmp_path
    assert (left / "kernel.cubin").exists() and left.parent.parent == within
    assert answer["locks"] == str(tmp_path), "what processes share does not lie there"
    assert callable(ending)
    ending(started)
    assert not left.parent.exists() and not list(tmp_path.iterdir())


def test_it_may_be_killed_twice(threads: str) -> None:
    started = Worker({})
    started.ask({}, 60.0)
    started.kill()
    before = os.open(os.devnull, os.O_RDONLY)  # may have the number of a descriptor that was closed
    started.kill()
    started.end()
    started.stop()
    os.close(before)


def test_of_a_run_it_shares_a_folder_for_contents_and_leaves_its_files_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    monkeypatch.delenv(LOCKS, raising=False)
    scope = ProcessScope(str(tmp_path))
    started = Worker({}, scope)
    answer = started.ask({}, 60.0)
    started.kill()
    assert Path(answer["left"]).parent.parent == tmp_path and not list(tmp_path.iterdir())
    assert (answer["contents"], answer["locks"]) == (str(tmp_path), tempfile.gettempdir())


def test_another_thread_ends_it_and_whatever_would_follow(tmp_path: Path, threads: str) -> None:
    scope, before = ProcessScope(str(tmp_path)), ProcessScope(str(tmp_path))
    ended, unharmed, first = Worker({}, scope), Worker({}, before), Worker({}, scope)
    first.kill()
    ended.ask({}, 60.0)
    ender = threading.Timer(0.2, scope.end)
    ender.start()
    with pytest.raises(Crashed, match="was ended by SIGKILL"):
        ended.ask({}, 60.0)
    ended.kill()
    with pytest.raises(CancelledError):
        Worker({}, scope)
    with pytest.raises(CancelledError):
        worker_process.answer_under(["env"], {}, {}, 60.0, scope)
    with pytest.raises(CancelledError):
        scope.check()
    before.check()
    assert unharmed.ask({}, 60.0)["threads"] == threads
    unharmed.kill()
    scope.end()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("asked", "threads"), [(None, "1"), ("3", "3")])
def test_it_has_one_thread_for_numpy_unless_someone_asks_for_more(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, threads: str
) -> None:
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", LEAVES))
    for name in ONE_THREAD:
        monkeypatch.delenv(name, raising=False)
    if asked is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)
    started = Worker({})
    assert started.ask({}, 60.0)["threads"] == threads
    started.kill()


def test_it_is_there_without_nvidias_packages() -> None:
    script = "import sys; sys.modules['cuda'] = sys.modules['pycuda'] = None\n"
    script += "import pytest_gpulab.grading.isolation.remote, pytest_gpulab.devices.compiler.cache"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_tool_shares_the_temporary_folder_with_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nsight Compute keeps its lock there."""
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", LEAVES))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(LOCKS, "elsewhere")
    monkeypatch.setattr(worker_process, "STOP_LIMIT_S", 0.1)  # this one does not stop
    answer, _ = worker_process.answer_under(["env"], {}, {}, 60.0, ProcessScope())
    assert (Path(answer["left"]).parent, answer["locks"]) == (tmp_path, "elsewhere")


HELD = """
import os, sys, time
if not os.fork():
    os.setsid()
    time.sleep(1000)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_one_that_is_killed_and_does_not_go_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here another process holds its output; a driver may hold the process itself."""
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", HELD))
    monkeypatch.setattr(worker_process, "KILL_LIMIT_S", 0.2)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    started = Worker({})
    number = int(started._answers.get(timeout=HANG_S))
    (held,) = (int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == number)
    started.kill()
    os.kill(held, signal.SIGKILL)  # it would have ended by itself if it had been waited for
    started._listener.join()
    assert started._process.stdout is not None
    started._process.stdout.close()


CLOSES = "import os, time; os.close(1); time.sleep(1000)"


@pytest.mark.usefixtures("threads")
def test_one_that_closes_its_answers_and_does_not_end_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a driver does not let go some that were killed from outside, or that ended by themselves."""
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", CLOSES))
    started = Worker({})
    with monkeypatch.context() as patch:
        patch.setattr(worker_process, "KILL_LIMIT_S", 0.2)
        with pytest.raises(Crashed, match=r"^closed its output and had not ended 0\.2 s later$"):
            started.ask({}, 60.0)
    started.kill()
    assert started._process.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("threads")
def test_a_signal_without_a_name_is_reported_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", "import os; os.kill(os.getpid(), 35)"))
    started = Worker({})
    with pytest.raises(Crashed, match=r"^was ended by signal 35$"):
        started.ask({}, 60.0)
    started.kill()


def _parent(path: Path) -> int:
    with suppress(OSError):
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


@pytest.mark.usefixtures("threads")
def test_importing_an_exercise_does_not_change_the_path_of_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow").mkdir()
    text = "import time; from pathlib import Path; (Path(__file__).parent / 'begun').touch(); time.sleep(0.5)\n"
    (tmp_path / "slow/exercise.py").write_text(text)
    says = "import json, sys; print(json.dumps(sys.path), flush=True); sys.stdin.read()"
    monkeypatch.setattr(
        worker_process,
        "COMMAND",
        (sys.executable, "-I", "-c", f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); {says}"),
    )
    before = [str(entry) for entry in sys.path]

    def load() -> None:
        with suppress(BrokenExercise):
            Catalogue(tmp_path).load("slow")

    importing = threading.Thread(target=load)
    importing.start()
    while not (tmp_path / "slow/begun").exists():
        time.sleep(0.01)
    started = Worker({})
    importing.join()
    assert json.loads(started._answers.get(timeout=HANG_S)) == before
    started.kill()


NO_PROCESS = BlockingIOError(11, "Resource temporarily unavailable")
NO_THREAD = RuntimeError("can't start new thread")
FULL = OSError(28, "No space left on device")
MANY_FILES = OSError(24, "Too many open files")
NO_FURTHER = "the limit on processes is reached"
IS_FULL = r"the folder for temporary files \(TMPDIR\) is full"


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [
        ("os.pipe", MANY_FILES, "Too many open files"),
        ("tempfile.TemporaryFile", FULL, f"{IS_FULL}: No space left on device"),
        ("tempfile.TemporaryDirectory", FULL, f"{IS_FULL}: No space left on device"),
        ("_start_process", NO_PROCESS, f"{NO_FURTHER}: Resource temporarily unavailable"),
        ("threading.Thread.start", NO_THREAD, f"{NO_FURTHER}: can't start new thread"),
    ],
)
@pytest.mark.usefixtures("threads")
def test_a_worker_that_cannot_be_started_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, error: Exception, words: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise error

    fork_server.ensure_running()  # which has a folder and files of its own
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()
    before = open_files()
    monkeypatch.setattr(f"pytest_gpulab.grading.isolation.worker_process.{missing}", refused)
    with pytest.raises(DeviceUnavailable, match=f"^its process cannot be started: {words}$"):
        Worker({})
    monkeypatch.undo()
    assert not open_files() - before and not list(tmp_path.iterdir())


def open_files() -> set[tuple[str, str]]:
    """Return this process's by number and name, but for the folder that is read for them."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add((link.name, str(link.readlink())))
    return {file for file in found if file[1] != f"/proc/{os.getpid()}/fd"}
