"""Forked workers: they equal newly started ones, and neither they nor the fork server outlive their client."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hang_guard import HANG_S
from remote_class import KERNEL, Class, is_alive, verdicts, wait_for_end

from pytest_gpulab.devices.system import processes
from pytest_gpulab.grading.isolation import fork_server, worker_process
from pytest_gpulab.grading.isolation.fork_server import ForkedProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")

Start = Callable[[str], ForkedProcess]


@pytest.fixture
def own_server() -> Iterator[None]:
    """Give the test its own fork server, which ends with it."""
    fork_server._server.cache_clear()
    yield
    fork_server._server.cache_clear()


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def start(one_thread: None, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a child with a program."""
    children = []
    watchdog_pipe, cut = os.pipe()
    with (tmp_path / "errors").open("wb") as errors:

        def start(program: str) -> ForkedProcess:
            child = fork_server.fork(program, ["told"], os.environ, errors.fileno(), watchdog_pipe)
            assert child is not None
            children.append(child)
            return child

        yield start
    os.close(cut)
    os.close(watchdog_pipe)
    for child in children:
        child.kill()
        child.wait(HANG_S)
        child.close()


def server_pid() -> int:
    made = fork_server._server()
    assert made is not None
    return made.pid


def said_by(child: ForkedProcess) -> Any:
    return json.loads(child.stdout.read())


ABOUT_ITSELF = """
import json, os, sys, threading, pathlib
status = pathlib.Path("/proc/self/status").read_text()
print(json.dumps({
    "arguments": sys.argv, "environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path,
    "is its group": os.getpgrp() == os.getpid(), "session": os.getsid(0),
    "threads": status.partition("Threads:")[2].split()[0],
    "files": [int(name) for name in os.listdir("/proc/self/fd")],
}))
"""


def test_a_child_has_the_surroundings_of_a_newly_started_process(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONLY_NOW", "ä \udcff")
    sibling = start("input()")
    said = said_by(start(ABOUT_ITSELF))
    assert said["environment"] == dict(os.environ)
    assert said["folder"] == str(tmp_path)
    assert said["path"] == [str(entry) for entry in sys.path]
    assert said["is its group"] and said["session"] not in (os.getsid(0), 0)
    assert said["threads"] == "1"
    *arguments, watchdog_pipe = said["arguments"]
    assert arguments == ["-c", "told"]
    assert {0, 1, 2, int(watchdog_pipe)} < set(said["files"])
    assert len(said["files"]) == 5, "the fifth is the list's own"
    assert sibling.returncode is None


def test_a_folder_may_have_been_removed(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert start("print('[]')").stdout.read() == "[]\n"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise ValueError('of a child')", 1),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    ],
)
def test_the_client_receives_the_exit_status(start: Start, tmp_path: Path, program: str, status: int) -> None:
    child = start(program)
    assert (child.wait(HANG_S), child.wait(HANG_S), child.returncode) == (status, status, status)
    errors = (tmp_path / "errors").read_text()
    assert ("ValueError: of a child" in errors) == (status == 1)


STARTS_ANOTHER = """
import subprocess
print(subprocess.Popen(["sleep", "1000"], stdin=-3, stdout=-3).pid, flush=True)
"""


@pytest.mark.parametrize("then", ["input()", "os.kill(os.getpid(), 9)", ""])
def test_a_child_ends_with_its_process_group_and_delays_no_other(start: Start, then: str) -> None:
    other = start("input()")
    child = start(STARTS_ANOTHER + "import os; " + then)
    started = int(child.stdout.readline())
    if then == "input()":
        assert is_alive(started)
        child.kill()
    assert child.wait(HANG_S) == (0 if not then else -signal.SIGKILL)
    wait_for_end([started])
    other.stdin.write("\n")
    other.stdin.flush()
    assert other.wait(HANG_S) == 0


def test_siblings_draw_different_numbers_and_names(start: Start) -> None:
    draw = (
        "import json, random, tempfile, uuid; import numpy as np\n"
        "name = next(tempfile._get_candidate_names())\n"
        "print(json.dumps([name, str(uuid.uuid4()), random.random(), np.random.default_rng().random()]))"
    )
    ones, others = said_by(start(draw)), said_by(start(draw))
    assert all(one != other for one, other in zip(ones, others, strict=True))


def test_the_order_of_births_is_in_nothing_that_a_child_inherits(start: Start) -> None:
    seen = "import json, tempfile; import numpy as np; "
    seen += "print(json.dumps([tempfile.tempdir, np.random.get_state(legacy=False)['state']['key'].tolist()]))"
    first = said_by(start(seen))
    said_by(start("import numpy as np; print(np.random.random())"))
    assert said_by(start(seen)) == first
    assert first[0] is None, "the folder for temporary files is in the environment, which may be another by then"


def test_the_fork_server_has_one_thread_and_a_session_of_its_own(start: Start) -> None:
    start("").wait(HANG_S)
    status = Path(f"/proc/{server_pid()}/status").read_text()
    assert re.search(r"^Threads:\s+1$", status, re.M)
    assert os.getsid(server_pid()) == server_pid()


def test_bubblewrap_is_tried_once_for_all_children(start: Start) -> None:
    child = start("from pytest_gpulab.devices.compiler import sandbox; print(sandbox.refusal.cache_info().currsize)")
    assert child.stdout.read() == "1\n"


NVCC = """#!/bin/sh
echo asked >>$0.log
echo '#$ INCLUDES="-I{folder}/include"' >&2
"""


def test_the_declarations_of_cudas_headers_are_read_once_for_all_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_server: None, start: Start
) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include/vector_functions.h").write_text("int2 make_int2(int x, int y);\n")
    (tmp_path / "nvcc").write_text(NVCC.format(folder=tmp_path))
    (tmp_path / "nvcc").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asks = "from pathlib import Path; from pytest_gpulab.devices.cuda.nvcc import headers, toolkit; "
    asks += f"headers.unneeded_headers(toolkit.headers_of('{tmp_path}/nvcc'), '', {{}}); "
    asks += "print([*headers._optional.cache_info()[:2]])"
    assert [said_by(start(asks)) for _ in range(2)] == [[1, 1], [1, 1]]  # found, and read before
    assert (tmp_path / "nvcc.log").read_text() == "asked\n"


LOADS = worker_process.PROGRAM + "; print(*sorted(set(sys.modules) - before), file=sys.stderr)"
LOADS = LOADS.replace("sys.path[:]", "before = set(sys.modules); sys.path[:]")


def test_the_fork_server_has_loaded_the_modules_that_grading_needs(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", LOADS))
    bench = Class(tmp_path)
    grader = bench.grader()
    assert {grader.run(check).verdict for check in bench.checks.values()} == {"passed"}
    worker = grader._worker
    assert worker is not None and isinstance(worker._process, ForkedProcess)
    worker.send(worker_process.STOP)
    worker._process.wait(HANG_S)
    loaded = worker.stderr().split()
    grader.close()
    assert not [name for name in loaded if name.startswith(("pytest_gpulab", "numpy", "cuda", "pycuda", "pynvml"))]


def test_a_process_with_several_threads_is_started_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in ("4", ""):
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", number)
        assert fork_server.fork("", [], os.environ, 2, 0) is None


DIES = """
import os, signal, sys
from pathlib import Path
from pytest_gpulab.grading.isolation import fork_server

WRITES = "import os, tempfile; print(os.getpid(), flush=True)\\nwhile True: tempfile.mkdtemp(dir=os.environ['FOLDER'])"
watchdog_pipe, _ = os.pipe()
server = fork_server.ensure_running()
child = fork_server.fork(WRITES, [], {**os.environ, "FOLDER": server.folder}, 2, watchdog_pipe)
print(server.folder, server.pid, child.stdout.readline(), end="", flush=True)
while not any(Path(server.folder).iterdir()):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_if_the_client_is_killed_the_server_kills_its_children_and_removes_their_files(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-c", DIES]
    ended = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=HANG_S)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    folder, *numbers = ended.stdout.split()
    wait_for_end(list(map(int, numbers)))
    assert Path(folder).parent == tmp_path and not list(tmp_path.iterdir())


def test_the_client_removes_a_folder_that_the_fork_server_could_not_remove_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "END_LIMIT_S", 0.1)
    for name in ("server", "server.ended"):
        (tmp_path / name).mkdir()
    control, theirs = socket.socketpair()
    endless = subprocess.Popen(["sleep", "1000"])
    with theirs:
        fork_server._shut_down(endless, control, str(tmp_path / "server"))
    assert endless.returncode == -signal.SIGKILL and not list(tmp_path.iterdir())


def test_the_fork_server_polls_many_descriptors() -> None:
    """A process may have more open files than the 1024 that `select` looks at."""
    resource = pytest.importorskip("resource")
    many = 1100
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= many:
        pytest.skip("this machine allows no process so many open files")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(many + 1, before[0]), before[1]))
    read, write = os.pipe()
    try:
        os.dup2(read, many)
        os.write(write, b"1")
        assert fork_server._wait_readable([many]) == {many}
    finally:
        for descriptor in (read, write, many):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("own_server", "one_thread")
def test_after_the_fork_server_died_workers_are_started_anew(tmp_path: Path) -> None:
    bench = Class(tmp_path)
    grader = bench.grader(KERNEL)
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    worker = grader._worker
    assert worker is not None and isinstance(worker._process, ForkedProcess)
    os.kill(server_pid(), signal.SIGKILL)
    wait_for_end([server_pid()])
    assert grader.run(bench.checks["correct[n=1]"]).verdict == "passed"
    grader._kill()
    assert worker._process.returncode == -signal.SIGKILL
    assert {grader.run(check).verdict for check in bench.checks.values()} == {"passed"}
    assert grader._worker is not None and isinstance(grader._worker._process, subprocess.Popen)
    grader.close()


@pytest.mark.usefixtures("own_server", "one_thread")
@pytest.mark.parametrize("because", ["old Linux", "Python for an old Linux", "not Linux", "no process"])
def test_without_a_fork_server_workers_are_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, because: str
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError

    bench = Class(tmp_path)
    with monkeypatch.context() as patch:
        if because == "not Linux":
            patch.setattr(fork_server.sys, "platform", "darwin")
        elif because == "old Linux":
            patch.setattr(os, "pidfd_open", refuse)
        elif because == "Python for an old Linux":
            patch.delattr(os, "memfd_create")
        else:
            patch.setattr(fork_server.subprocess, "Popen", refuse)
        assert fork_server._server() is None
    assert verdicts({result.name: result for result in bench.grader().grade().checks}).keys() == bench.checks.keys()
    assert fork_server._server() is None


@pytest.mark.usefixtures("own_server", "one_thread")
def test_a_fork_server_that_hangs_while_loading_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "PROGRAM", "import time; time.sleep(1000)")
    monkeypatch.setattr(fork_server, "END_LIMIT_S", 0.2)
    child = fork_server.fork("", [], os.environ, 2, 0)
    assert child is not None
    child.kill()
    assert child.wait(0.2) == -signal.SIGKILL
    child.close()
    number = server_pid()
    fork_server._server.cache_clear()
    assert not is_alive(number)


PARENT = """
import sys, time
from pathlib import Path
from pytest_gpulab.grading.isolation import fork_server
from remote_class import Class

bench = Class(Path(sys.argv[1]))
grader = bench.grader()
grader.run(bench.checks["compile"])
print(fork_server._server().pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("one_thread")
def test_neither_the_fork_server_nor_a_folder_outlives_the_client(tmp_path: Path, ending: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 background shells let children ignore it
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=heed
    ) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        assert len(children) == 1 and is_alive(number)
        parent.send_signal(ending)
        parent.wait(HANG_S)
    wait_for_end([number, *map(int, children)])
    assert {path.name for path in temporary.iterdir()} <= {f"gpulab-cache-{os.getuid()}"}


def test_a_request_says_how_many_descriptors_it_has() -> None:
    assert fork_server._become_worker.__code__.co_argcount == fork_server.DESCRIPTORS


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_pause_of_the_collector_leaves_the_frozen_objects_as_they_are(
    is_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_frozen", [])
    gc.unfreeze()  # tests before may have frozen something
    try:
        if is_frozen:
            processes.freeze()
        with processes.without_collector():
            pass
        assert bool(gc.get_freeze_count()) == is_frozen and gc.isenabled()
    finally:
        gc.unfreeze()
