"""NVRTC accepts the names and headers that nvcc accepts in device code, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from any_nvcc import IS_OF_PACKAGES, by_nvcc, needs_nvcc
from known_names import ALWAYS, HEADERS, KNOWN_DIFFERENCES, NEVER, WITH_HEADERS

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.protocol import CompileError

pytestmark = pytest.mark.unmeasured

STATEMENTS = (*ALWAYS, *WITH_HEADERS, *NEVER)
INCLUDES = "".join(f"#include <{name}>\n" for name in HEADERS)


def accepted(compiled: Callable[[str], str], statements: Sequence[str], includes: str = "") -> set[str]:
    """Return the statements that compile; those that do not are left out until the rest does."""
    left = list(statements)
    for _ in range(20):
        if not left:
            return set()
        kernels = (f"__global__ void k{at}(int *o, float *f, double *d) {{ {text} }}\n" for at, text in enumerate(left))
        said = compiled(includes + "".join(kernels))
        if not said:
            return set(left)
        lines = {
            int(line) - includes.count("\n") - 1 for line in re.findall(r"^[^\n(]*a\.cu\((\d+)\): error", said, re.M)
        }
        assert lines, said
        left = [text for at, text in enumerate(left) if at not in lines]
    raise AssertionError("the compiler found new errors each time")


def by_nvrtc(source: str) -> str:
    try:
        nvrtc.compile_ptx(source, "a.cu", "compute_90")
    except CompileError as error:
        return error.diagnostics
    return ""


def test_without_headers_nvrtc_knows_what_nvcc_knows() -> None:
    assert accepted(by_nvrtc, STATEMENTS) - set(KNOWN_DIFFERENCES) == set(ALWAYS) - set(KNOWN_DIFFERENCES)


def test_with_headers_nvrtc_knows_what_nvcc_knows() -> None:
    expected = {*ALWAYS, *WITH_HEADERS} - set(KNOWN_DIFFERENCES)
    assert accepted(by_nvrtc, STATEMENTS, INCLUDES) - set(KNOWN_DIFFERENCES) == expected


def test_templates_of_libcuxx_are_unrolled_as_by_nvcc() -> None:
    name = "cuda/std/__type_traits/type_list.h"
    texts = [path.read_text() for folder in nvrtc.include_folders() if (path := folder / name).is_file()]
    (limit,) = re.findall(r"#\s*if _CCCL_CUDA_COMPILER\(NVCC\).*\n#\s*define _CCCL_META_UNROLL_LIMIT (\d+)\n", texts[0])
    assert not by_nvrtc(f"#include <{name}>\nstatic_assert(_CCCL_META_UNROLL_LIMIT == {limit});\n")


@needs_nvcc
def test_the_record_is_what_nvcc_says(tmp_path: Path) -> None:
    def said(source: str) -> str:
        done = by_nvcc(tmp_path, source)
        return done.stderr + done.stdout if done.returncode else ""

    headers = INCLUDES.replace("#include <cuda_profiler_api.h>\n", "\n") if IS_OF_PACKAGES else INCLUDES
    assert accepted(said, STATEMENTS) == set(ALWAYS)
    assert accepted(said, (*ALWAYS, *WITH_HEADERS), headers) == {*ALWAYS, *WITH_HEADERS}
    assert not accepted(said, NEVER, headers)
