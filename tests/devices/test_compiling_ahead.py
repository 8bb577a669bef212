"""Variants of a text are compiled ahead, in several processes where that is worth it, and each once."""

from __future__ import annotations

import pytest
from compiling import HEADERS, KERNEL, SMALL, TREE

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.compiler import compiler_process, nvrtc
from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess
from pytest_gpulab.devices.compiler.nvrtc_program import Request
from pytest_gpulab.devices.protocol import CompileError, PrefetchingDevice


def test_variants_are_worked_on_side_by_side_and_no_more_when_they_are_asked_for(
    compiler: CompilerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [("__global__ void f(T *p) { *p = 1; }", {"T": f"{name}"}) for name in ("int", "long", "nobody", "float")]
    texts.append((TREE, {"T": "double"}))
    requests = [nvrtc.ptx_request(text, "a.cu", "compute_90", defines) for text, defines in texts]
    shares: list[int] = []
    original = CompilerProcess._work_on
    monkeypatch.setattr(
        CompilerProcess, "_work_on", lambda self, share: (shares.append(len(share)), original(self, share))[1]
    )
    monkeypatch.setattr(compiler_process, "WORTH_A_PROCESS_S", 0.0)
    compiler.ahead(requests)
    assert sorted(shares) == [1, 1, 1, 2]
    compiler.close()
    monkeypatch.setattr(CompilerProcess, "_started", None)  # nothing is compiled any more
    for number, mangled in ((0, "_Z1fPi"), (1, "_Z1fPl"), (3, "_Z1fPf")):
        assert f".entry {mangled}(".encode() in (compiler.compiled(requests[number]).output or b"")
    assert 'identifier "nobody" is undefined' in compiler.compiled(requests[2]).log
    with pytest.raises(CompileError, match="time limit"):
        compiler.compiled(requests[4])


def test_quick_compilations_start_no_further_process(
    compiler: CompilerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = [nvrtc.ptx_request(SMALL, "a.cu", "compute_90", {"T": str(n)}) for n in range(3)]
    compiler.compiled(first)
    monkeypatch.setattr(compiler_process, "WORTH_A_PROCESS_S", 2 * compiler._longest_s)
    compiler.ahead(others)
    assert not compiler._ahead
    monkeypatch.setattr(compiler_process, "WORTH_A_PROCESS_S", 0.5 * compiler._longest_s)
    compiler.ahead(others)
    assert len(compiler._ahead) == 2


def test_a_text_rejected_ahead_is_not_compiled_again(
    compiler: CompilerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_process, "WORTH_A_PROCESS_S", 0.0)
    request = nvrtc.ptx_request(TREE, "a.cu", "compute_90", {"T": "int"})
    compiler.ahead([nvrtc.ptx_request(SMALL, "a.cu", "compute_90"), request])
    monkeypatch.setattr(CompilerProcess, "_request", None)  # nothing is compiled any more
    for _ in range(2):
        with pytest.raises(CompileError, match="time limit"):
            compiler.compiled(request)


@pytest.mark.parametrize("command", ["false", "there is no such program"])
def test_where_no_further_process_starts_all_is_compiled_in_turn(
    compiler: CompilerProcess, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Nor does one start outside of the sandbox that this one is in."""
    requests = [nvrtc.ptx_request(SMALL, "a.cu", "compute_90", {"T": str(n)}) for n in range(3)]
    monkeypatch.setattr(compiler_process, "_command", lambda *_: [command])
    monkeypatch.setattr(compiler_process, "none", None)
    monkeypatch.setattr(compiler_process, "WORTH_A_PROCESS_S", 0.0)
    compiler.ahead(requests)
    assert len(compiler._ahead) == 1
    assert all(compiler.compiled(request).output for request in requests)


@pytest.mark.parametrize("prefetching", [False, True])
def test_a_device_compiles_ahead_if_it_may(prefetching: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_process, "WORTH_A_PROCESS_S", 0.0)
    monkeypatch.setattr(compiler_process, "users_cache", lambda: Cache(None))
    device, _ = open_device("sim", isolated=True, prefetching=prefetching)
    assert isinstance(device, PrefetchingDevice)
    variants = [{"WHAT": str(what)} for what in range(3)]
    device.compile_ahead(KERNEL, "a.cu", variants, HEADERS)
    asked: list[Request] = []
    original = CompilerProcess._compiled
    monkeypatch.setattr(
        CompilerProcess, "_compiled", lambda self, request: (asked.append(request), original(self, request))[1]
    )
    for what, variant in enumerate(variants):
        array = device.array([0], "int32")
        device.compile(KERNEL, "a.cu", variant, HEADERS).launch("f", (1,), (1,), (array,))
        assert array.get()[0] == 7 + what
    assert len(asked) == (0 if prefetching else 3)
    device.close()
