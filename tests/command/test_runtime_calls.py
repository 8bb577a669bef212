"""The runtime library's calls, in programs that check themselves, and what the report says of calls that fail."""

from __future__ import annotations

import pytest
from running import PROGRAMS, Ran, gpulab


def ran(*words: str) -> Ran:
    return gpulab(PROGRAMS, *words)


@pytest.mark.parametrize(
    "name", ["launch_calls.cu", "texture_calls.cu", "graph_calls.cu", "threads.cu", "earlier_cuda.cu"]
)
def test_calls_do_what_the_manual_says(name: str) -> None:
    end = ran(name)
    assert (end.out, end.code) == ("0 failures\n", 0), end.err
    assert "leak" not in end.err and "race" not in end.err


def test_device_functions_and_variables_of_several_files_are_linked() -> None:
    end = ran("--profile", "--nvcc=-rdc=true linked_more.cu", "linked.cu")
    assert (end.out, end.code) == ("0 failures\n", 0), end.err
    assert "no findings" in end.said and "add 1 2 1" in end.said


def test_kernels_launch_kernels() -> None:
    end = ran("--nvcc=-rdc=true", "nested_launches.cu")
    assert (end.out, end.code) == ("0 failures\n", 0), end.err
    for reason in (
        "2,500 launches by one kernel; at most 2,048 may be pending",
        "kernels launch kernels to a depth of more than 2,048",
        "a block of (2000, 1, 1) is too large",
        "4 findings",
    ):
        assert reason in end.said


def test_calls_on_memory_and_the_reasons_of_those_that_fail() -> None:
    end = ran("memory_calls.cu")
    assert (end.out, end.code) == ("0 failures\n", 0), end.err
    assert "leak" not in end.err
    for reason in (
        "cudaFree returned cudaErrorInvalidValue (invalid argument): the pointer is pinned memory of cudaHostAlloc",
        "cudaMemcpy2D returned cudaErrorInvalidPitchValue (invalid pitch argument)",
        "cudaMemcpyToSymbol returned cudaErrorInvalidSymbol (invalid device symbol)",
        "cudaErrorInvalidValue (invalid argument): host to device, but the destination is a host pointer",
        "404 bytes, but the destination has 400 bytes left",
        "4 bytes, but the destination has 1 byte left",
        "device to host, but the destination is device memory",
        "the host's memory at 0x8 cannot be accessed",
        "the pointer is memory that cudaFreeAsync has freed",
        "the pointer is 4 bytes behind the start of an allocation",
        "bytes left on this machine",
    ):
        assert reason in end.said
