"""NVRTC gets rarely needed headers only if a text does not compile without them."""

from __future__ import annotations

import pytest

from pytest_gpulab.devices.compiler import nvrtc, nvrtc_program
from pytest_gpulab.devices.compiler.nvrtc_program import Answer, Request, compiled

KERNEL = "__global__ void f(float *x) { x[0] = 1; }\n"
NEEDS_MORE = "__global__ void f(cudaTextureObject_t t, float *x) { x[0] = tex1Dfetch<float>(t, 0); }\n"


def asked(monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[Answer, list[bool]]:
    """Compile; return also which translations were with few declarations."""
    with_few: list[bool] = []
    once = nvrtc_program._compiled

    def noted(request: Request, options: list[str]) -> Answer:
        with_few.append(options[-1:] == [nvrtc_program._MINIMAL])
        return once(request, options)

    monkeypatch.setattr(nvrtc_program, "_compiled", noted)
    return compiled(nvrtc.ptx_request(text, "k.cu", "compute_90")), with_few


def test_most_kernels_are_compiled_once_with_few_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, with_few = asked(monkeypatch, KERNEL)
    request = nvrtc.ptx_request(KERNEL, "k.cu", "compute_90")
    assert answer.output is not None and with_few == [True]
    assert answer == nvrtc_program._compiled(request, request.options)


def test_a_text_that_needs_more_gets_all_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, with_few = asked(monkeypatch, NEEDS_MORE)
    assert answer.output is not None and b"tex.1d" in answer.output and with_few == [True, False]


def test_the_messages_with_all_headers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, with_few = asked(monkeypatch, f"{NEEDS_MORE}__device__ int y = nothing;\n")
    assert answer.output is None and with_few == [True, False]
    assert 'k.cu(2): error: identifier "nothing" is undefined' in answer.log and "cudaTexture" not in answer.log
