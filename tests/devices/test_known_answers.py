"""NVRTC's answers on disk: kept for all processes, and only if no file of the user can change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.devices.compiler.cache import Cache, KnownAnswers
from pytest_gpulab.devices.compiler.nvrtc import ptx_request
from pytest_gpulab.devices.compiler.nvrtc_program import Answer, Request

pytestmark = pytest.mark.unit
KERNEL = "__global__ void kernel() {}\n"
ANSWER = Answer(b".version 9.0\n\0", "k.cu(1): warning: unused")
HEADERS = {"mine.cuh": "#define N 3\n"}


def _request(text: str = KERNEL, filename: str = "k.cu", n: str = "1", **headers: str) -> Request:
    return ptx_request(text, filename, "compute_90", {"N": n}, HEADERS | headers)


def _is_kept(folder: Path, request: Request) -> bool:
    KnownAnswers(Cache(folder), "13.0").put(request, ANSWER)
    return KnownAnswers(Cache(folder), "13.0").get(request) == ANSWER


@pytest.mark.parametrize(
    "text", ["", '#include "mine.cuh"\n', "  #  include <cuda/atomic>\n", "// #include <cub/block/block_scan.cuh>\n"]
)
def test_an_answer_is_known_to_other_processes(tmp_path: Path, text: str) -> None:
    assert _is_kept(tmp_path, _request(text + KERNEL))


@pytest.mark.parametrize(
    "text",
    [
        '#include "/home/own.cuh"\n',
        "#include <../own.cuh>\n",
        '#include "cuda/../../own.cuh"\n',
        '#inc\\\nlude "/own.cuh"\n',
        '#include \\\n "/own.cuh"\n',
        '%:include "/own.cuh"\n',
        '#define HEADER "/own.cuh"\n#include HEADER\n',
        '#if __has_include("/own.cuh")\n#endif\n',
        '#embed "/own.bin"\n',
    ],
)
def test_a_text_that_may_read_files_of_the_user_is_compiled_again(tmp_path: Path, text: str) -> None:
    assert not _is_kept(tmp_path, _request()._replace(text=text + KERNEL))
    assert not _is_kept(tmp_path, _request(**{"other.cuh": text}))


def test_each_part_of_a_request_counts(tmp_path: Path) -> None:
    assert _is_kept(tmp_path, _request())
    known = KnownAnswers(Cache(tmp_path), "13.0")
    assert known.get(_request()._replace(output="cubin")) is None
    for other in (
        _request(KERNEL + "\n"), _request(filename="other.cu"), _request(n="2"), _request(**{"mine.cuh": ""}),
    ):  # fmt: skip
        assert known.get(other) is None
    assert KnownAnswers(Cache(tmp_path), "13.1").get(_request()) is None


def test_other_headers_of_the_toolkit_ask_for_another_compilation(tmp_path: Path) -> None:
    folder = tmp_path / "include"
    folder.mkdir()
    request = _request()
    request = request._replace(options=[*request.options, f"--include-path={folder}"])
    assert _is_kept(tmp_path, request)
    (folder / "new.h").touch()
    assert KnownAnswers(Cache(tmp_path), "13.0").get(request) is None


def test_a_failed_compilation_is_not_kept(tmp_path: Path) -> None:
    known = KnownAnswers(Cache(tmp_path), "13.0")
    known.put(_request(), Answer(None, "error"))
    assert known.get(_request()) is None
