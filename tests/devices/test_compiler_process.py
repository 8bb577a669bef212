"""NVRTC in a process of its own: the same results, and whatever a text does to the compiler ends there."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compiling import DEFINES, HEADERS, KERNEL, MAY, SMALL, TIGHT, TREE, compiled, gone, processes_of
from hang_guard import HANG_S

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.compiler import compiler_process, nvrtc
from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess
from pytest_gpulab.devices.compiler.machine_code import compile_machine_code
from pytest_gpulab.devices.compiler.nvrtc_program import Request
from pytest_gpulab.devices.compiler.sandbox import PROTECTION, Limits, Sandbox, none, refusal
from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable
from pytest_gpulab.devices.system.processes import Helpers

pytestmark = pytest.mark.unmeasured


def test_it_compiles_as_in_this_process(within: Sandbox | None) -> None:
    compiler = CompilerProcess(within=within)
    arguments = (KERNEL, "a.cu", "compute_90", DEFINES, HEADERS)
    there, here = nvrtc.compile_ptx(*arguments, compiler.compiled), nvrtc.compile_ptx(*arguments)
    assert there == here and "x" in there[1] and '"a.cu"' in there[0]
    arguments = (KERNEL, "a.cu", "sm_90", DEFINES, HEADERS)
    binary = compile_machine_code(*arguments, compiler.compiled)  # holds the working folder's name, too
    assert binary.cubin and binary.resources == compile_machine_code(*arguments).resources
    assert compiler.version == nvrtc.version()
    compiler.close()


def test_it_has_no_folder_that_could_outlive_it(
    within: Sandbox | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with closing(CompilerProcess(within=within)) as compiler:
        assert compiled(compiler, SMALL)
        assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("gpulab-cache-")] == []


def test_a_forked_child_starts_its_own() -> None:
    compiler = CompilerProcess(within=none(""))
    with closing(compiler):
        child = os.fork()
        if not child:
            try:
                os._exit(not compiled(compiler, SMALL))
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert compiled(compiler, SMALL)


def test_it_may_be_closed_twice_and_compiles_again() -> None:
    compiler = CompilerProcess()
    program = compiler._process
    assert program is not None
    program.end()
    assert program.end() == ""
    compiler.close(), compiler.close()
    assert "x" in compiled(compiler, "__global__ void x() {}")
    compiler.close()


def test_compile_errors_are_those_of_this_process(compiler: CompilerProcess) -> None:
    with pytest.raises(CompileError, match=r'a\.cu\(1\): error: identifier "nobody" is undefined'):
        compiled(compiler, "__global__ void f() { nobody(); }")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (TREE, f"time limit{MAY}"),
        ("\n".join(f"__global__ void f{n}() {{}}" for n in range(99)), rf"its output has \d{{4,}} bytes{MAY}"),
    ],
    ids=["time", "output"],
)
def test_limits_are_met_and_the_next_text_compiles(compiler: CompilerProcess, source: str, told: str) -> None:
    with pytest.raises(CompileError, match=rf"^The compiler did not finish \({told}\.$"):
        compiled(compiler, source)
    assert "entry" in compiled(compiler, SMALL)


def test_an_array_that_takes_all_memory_ends_one_translation(within: Sandbox | None) -> None:
    compiler = CompilerProcess(Limits(nvrtc_bytes=400 << 20), within)
    with pytest.raises(CompileError, match=r"^The compiler did not finish \(it was ended by SIGABRT\); the limits"):
        compiled(compiler, "__device__ char big[68719476736] = {1};\n")
    assert "entry" in compiled(compiler, SMALL)
    compiler.close()


def test_a_tree_that_takes_all_memory_is_explained(within: Sandbox | None) -> None:
    compiler = CompilerProcess(Limits(nvrtc_bytes=400 << 20), within)
    with pytest.raises(CompileError) as caught:
        compiled(compiler, TREE)
    lines = caught.value.diagnostics.splitlines()
    assert lines[0].endswith(": catastrophic error: out of memory")
    assert lines[-1].startswith(
        "The compiler did not finish; the limits are 20 s (45 s for all variants), 0.391 GiB of memory"
    )
    compiler.close()


def test_a_long_log_is_cut(compiler: CompilerProcess) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(compiler, "nobody" * 2000 + ";\n" + "__device__ int " + "x" * 90000 + " = y;\n")
    assert len(caught.value.diagnostics) <= TIGHT.said_bytes


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests for a tree that a compiler process gets."""
    requests: list[Request] = []
    original = CompilerProcess._request

    def noted(self: CompilerProcess, request: Request) -> dict[str, Any]:
        requests.extend([request] if TREE in request.text else [])
        return original(self, request)

    monkeypatch.setattr(CompilerProcess, "_request", noted)
    return requests


def test_a_rejected_text_is_not_compiled_again_in_any_variant(compiler: CompilerProcess, trees: list[Request]) -> None:
    for defines in ({}, {"T": "int"}, {"T": "float"}):
        with pytest.raises(CompileError, match="time limit"):
            nvrtc.compile_ptx(TREE, "a.cu", "compute_90", defines, run=compiler.compiled)
    assert len(trees) == 1


def test_a_text_that_took_all_memory_is_not_compiled_again(within: Sandbox | None, trees: list[Request]) -> None:
    compiler, said = CompilerProcess(Limits(nvrtc_bytes=400 << 20), within), []
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            compiled(compiler, TREE)
        said.append(caught.value.diagnostics)
    assert said[0] == said[1] and len(trees) == 1
    compiler.close()


@pytest.mark.parametrize(("refused_s", "translations"), [(-1, 1), (9, 2)])
def test_a_text_with_errors_that_take_long_is_not_compiled_as_other_variants(
    within: Sandbox | None, monkeypatch: pytest.MonkeyPatch, refused_s: int, translations: int
) -> None:
    source, asked = "__global__ void f() { T x = ; }\n", []
    with closing(CompilerProcess(Limits(refused_s=refused_s), within)) as compiler:
        original = compiler._request
        monkeypatch.setattr(compiler, "_request", lambda request: asked.append(request.text) or original(request))
        said = []
        for define in ("int", "float"):
            with pytest.raises(CompileError, match="expected an expression") as caught:
                nvrtc.compile_ptx(source, "a.cu", "compute_90", {"T": define}, run=compiler.compiled)
            said.append("no other variant was compiled" in caught.value.diagnostics)
    assert asked.count(source) == translations and said == [False, refused_s < 0]


def test_each_text_has_its_time_for_itself(within: Sandbox | None) -> None:
    """A process that compiled them one after the other would have used up its limit."""
    compiler, begin_s = CompilerProcess(Limits(compile_s=1), within), children_s()
    compile_for_more_than_a_second(compiler)
    group = compiler._process._popen.pid
    compiler.close()
    assert gone(group) and (within is None or children_s() - begin_s > 1)


def compile_for_more_than_a_second(compiler: CompilerProcess) -> None:
    for number in range(64):
        compiled(compiler, TREE.replace("28", "11").replace("x =", f"x{number} ="))
        if sum(compiler._spent_s.values()) > 2:  # `children_s` reports about a fifth less
            return
    raise AssertionError("the texts are too small for this machine")


HUGE = "__device__ char big[68719476736] = {1};\n"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompilerProcess]:
    """The compiler of own texts, which compiles all of them itself: no fork per text."""
    monkeypatch.setattr(compiler_process, "BUSY_FACTOR", 60.0)
    with closing(CompilerProcess(Limits(compile_s=1), none("it was not asked for"), forks=False)) as compiler:
        yield compiler


def test_an_own_text_that_takes_too_long_is_ended_and_the_next_text_compiles(own: CompilerProcess) -> None:
    for _ in range(2):  # the second time from memory
        with pytest.raises(CompileError, match=r"^The compiler did not finish \(time limit\); the limits are 1 s"):
            compiled(own, TREE)
    assert "entry" in compiled(own, SMALL)


@pytest.mark.parametrize(
    ("source", "message"),
    [(HUGE, r"it was ended by SIGABRT\); the limits"), (TREE, "catastrophic error: out of memory")],
)
def test_an_own_text_that_takes_all_memory_is_explained_and_the_next_text_compiles(source: str, message: str) -> None:
    limits = Limits(nvrtc_bytes=400 << 20)
    with closing(CompilerProcess(limits, none("it was not asked for"), forks=False)) as compiler:
        with pytest.raises(CompileError, match=message):
            compiled(compiler, source)
        assert "entry" in compiled(compiler, SMALL)


def test_each_own_text_has_its_time_for_itself(own: CompilerProcess) -> None:
    compile_for_more_than_a_second(own)


def test_variants_of_a_text_share_its_time() -> None:
    """Each of them ends in time, but a file of many variants would not."""
    limits, tree = Limits(compile_s=30, all_variants_s=1), TREE.replace("28", "WHAT")
    with closing(CompilerProcess(limits, none("it was not asked for"))) as compiler:
        compiler._spent_s[tree] = 0.5
        before_s = Helpers.processor_s
        with pytest.raises(CompileError, match=r"\(time limit\); the limits are 30 s \(1 s for all variants\)"):
            nvrtc.compile_ptx(tree, "a.cu", "compute_90", {"WHAT": "20"}, run=compiler.compiled)
        assert Helpers.processor_s == before_s + 1
        assert compiled(compiler, SMALL.replace("f", "first_of_this_name"))
        assert before_s + 1 < Helpers.processor_s < before_s + 2


def test_devices_of_a_process_share_the_compiler_of_own_texts() -> None:
    (one, _), (another, _) = open_device("sim"), open_device("sim")
    assert one._compiler is another._compiler
    one.close()
    another.compile(SMALL, "a.cu")


def children_s() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def test_a_device_compiles_there_and_says_how() -> None:
    device, _ = open_device("sim", isolated=True)
    found = device.info.details[PROTECTION]
    assert found == "bubblewrap and limits" if not refusal() else found == f"limits only: {refusal()}"
    module = device.compile(KERNEL, "a.cu", DEFINES, HEADERS)
    array = device.array([0, 0], "int32")
    module.launch("f", (1,), (2,), (array,))
    assert array.get().tolist() == [8, 8] and module.resources("f").registers
    device.close()
    plain, _ = open_device("sim")
    assert PROTECTION not in plain.info.details


def test_close_ends_all_of_it(within: Sandbox | None) -> None:
    compiler = CompilerProcess(TIGHT, within)
    group = compiler._process._popen.pid
    assert processes_of(group)
    compiler.close()
    assert gone(group)


@pytest.mark.parametrize("doing", ["nothing", "a tree"])
def test_it_ends_with_a_killed_parent(within: Sandbox | None, doing: str) -> None:
    script = (
        "import os, signal, sys\n"
        "from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess\n"
        "from pytest_gpulab.devices.compiler.nvrtc_program import Request\n"
        "from pytest_gpulab.devices.compiler.sandbox import none\n"
        "compiler = CompilerProcess(within=none('so') if sys.argv[1] == 'none' else None)\n"
        "print(compiler._process._popen.pid, flush=True)\n"
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.5)\n"
        "if sys.argv[2]:\n"
        "    compiler.compiled(Request(sys.argv[2], 'a.cu', {}, ['--gpu-architecture=compute_90'], 'ptx'))\n"
        "signal.pause()\n"
    )
    text = {"nothing": "", "a tree": TREE}[doing]
    command = [sys.executable, "-c", script, "none" if within else "sandbox", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == -signal.SIGKILL and gone(int(done.stdout))


def test_a_translation_cannot_read_the_next_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not even where code of a student's ran in the compiler."""
    program = Path(compiler_process._program()).read_text(encoding="utf-8")
    reads = (
        "def compiled(request: Request) -> Answer:\n    return Answer(None, repr(sys.stdin.buffer.raw.read()))\n\n\n"
    )
    (tmp_path / "program.py").write_text(program.replace("def main()", f"{reads}def main()"), encoding="utf-8")
    monkeypatch.setattr(compiler_process, "_program", lambda: str(tmp_path / "program.py"))
    compiler = CompilerProcess(TIGHT, none("it is a test"), cache=Cache(None))
    with pytest.raises(DeviceUnavailable, match=r"NVRTC does not work here: b''$"):
        compiled(compiler, SMALL)
    compiler.close()


def test_one_that_somebody_killed_is_started_again(compiler: CompilerProcess) -> None:
    os.killpg(compiler._process._popen.pid, signal.SIGKILL)
    assert "entry" in compiled(compiler, SMALL)


LINKER_TELLS = {**os.environ, "LD_DEBUG": "libs"}  # glibc's, of every library that is looked for, on stderr
COMPILES = (
    "from pytest_gpulab.devices.compiler.{module} import {how}\n"
    "print({how}('__global__ void k() {{}}', 'k.cu', '{of}'))"
)


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
@pytest.mark.parametrize(
    ("module", "how", "of"),
    [("nvrtc", "compile_ptx", "compute_90"), ("machine_code", "compile_machine_code", "sm_90")],
)
def test_no_translation_calls_the_gpus_driver(module: str, how: str, of: str) -> None:
    """Where NVRTC keeps what it compiled it does, each time, and the driver serves one process at a time."""
    program = [sys.executable, "-c", COMPILES.format(module=module, how=how, of=of)]
    done = subprocess.run(program, env=LINKER_TELLS, capture_output=True, text=True, check=True)
    assert "find library=libnvrtc" in done.stderr
    assert "libcuda.so" not in done.stderr


def test_a_text_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Request] = []
    run = CompilerProcess._compiled
    monkeypatch.setattr(CompilerProcess, "_compiled", lambda self, request: sent.append(request) or run(self, request))
    for _ in range(2):  # another process has the answer, too
        with closing(CompilerProcess(within=none("it is a test"), cache=Cache(tmp_path))) as compiler:
            assert compiled(compiler, SMALL) and len(sent) == 1
    for is_known in (False, True):  # the compiler's version: with it, NVRTC is not even loaded
        with closing(CompilerProcess(within=none(""), forks=False, cache=Cache(tmp_path))) as compiler:
            assert compiled(compiler, SMALL) and compiler.version == nvrtc.version() and len(sent) == 1
            assert (compiler._process is None) == is_known
    for _ in range(2):
        with pytest.raises(CompileError):
            compiled(compiler, "__global__ void wrong() { missing; }")
    assert len(sent) == 4  # a failure twice, and once a right kernel, which shows that the text is at fault
    compiler.close()
