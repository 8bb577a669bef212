"""Programs with one mistake each: the report names it at its line, and the output is what hardware gives."""

from __future__ import annotations

import pytest
from program_runs import run


@pytest.mark.parametrize(
    ("name", "out", "code", "told"),
    [
        (
            "race", "done\n", 0,
            ("race: ", "at race.cu:8\n", "write of 4 bytes by block 0 thread 127 at race.cu:7", "kernel `reverse`"),
        ),
        (
            "out_of_bounds", "after the launch: cudaErrorIllegalAddress\n", 1,
            ("out-of-bounds: ", "`x[1000]` read, `x` has 1000 elements", "at out_of_bounds.cu:9\n",
             "first by block 3 thread 232"),
        ),
        (
            "uninitialised", "256 numbers\n", 0,
            ("uninitialised: ", "`counts[32]` was never written", "at uninitialised.cu:14\n", "block 0 thread 32"),
        ),
        (
            "barrier", "0.5\n", 0,
            ("barrier: ", "28 threads of the block had already ended", "at barrier.cu:10\n", "block 1 thread 0"),
        ),
        (
            "leak", "5\n", 0,
            ("leak: 1 allocation of cudaMalloc, 4,096 bytes, never freed", "at leak.cu:12\n"),
        ),
        (
            "host_pointer", "an illegal memory access was encountered\n", 1,
            ("the address is a host pointer", "at host_pointer.cu:9\n", "first by block 0 thread 0"),
        ),
        (
            "device_pointer", "the squares are computed\n", 139,
            ("host-access: The host accessed device memory: see cudaMalloc (device_pointer.cu:12)",
             "at device_pointer.cu:16\n", "copy it with cudaMemcpy"),
        ),
        (
            "missing_copy", "wrong\n", 0,
            ("uninitialised: ", "`b[0]` was never written", "at missing_copy.cu:9\n", "kernel `add`"),
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_named_at_its_line(name: str, out: str, code: int, told: tuple[str, ...]) -> None:
    ran = run(name)
    assert (ran.out, ran.code) == (out, code)
    assert "; 1 finding\n" in ran.report
    for words in told:
        assert words in (ran.report if words.endswith("\n") else ran.said)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("no address", ("cudaMalloc returned cudaErrorInvalidValue", "for the address: pass &pointer", "null pointer")),
        ("short", ("the destination has 1,000 bytes left", "`in[250]` read, `in` has 250 elements")),
        ("direction", ("device to host, but the destination is device memory", "`in[0]` was never written")),
        ("elements", ("`in[250]` was never written", "with its size in bytes?")),
    ],
)
def test_the_failed_call_comes_before_the_launch_that_it_spoils(mistake: str, told: tuple[str, ...]) -> None:
    ran = run("wrong_calls", mistake)
    places = [ran.said.find(words) for words in told]
    assert -1 not in places and places == sorted(places), ran.said


def test_a_failed_call_after_the_launch_comes_behind_the_kernels_findings() -> None:
    said = run("wrong_calls", "late").said
    assert -1 < said.find("was never written") < said.find("cudaMemcpy returned cudaErrorInvalidValue")


def test_free_of_device_memory_is_named_with_its_allocation() -> None:
    ran = run("wrong_calls", "free")
    assert ran.code == 139
    assert "host-access: The host accessed device memory: see cudaMalloc (wrong_calls.cu:24)" in ran.said
    assert "free it with cudaFree" in ran.said


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (
            "no launch",
            (
                "uninitialised: cudaMemcpy copies 4,000 bytes to the host that nothing has written",
                "at wrong_calls.cu:33",
                "no kernel was launched before it",
                "memory of cudaMalloc (wrong_calls.cu:24)",
                "hint: Is the kernel launched before the copy",
            ),
        ),
        (
            "rounded down",
            (
                "uninitialised: cudaMemcpy copies 4,000 bytes to the host; nothing has written 928 of them",
                "at wrong_calls.cu:33",
                "the others are 4 bytes for each of the 768 threads of a launch of `twice`",
                "hint: Is there a thread for every element?",
            ),
        ),
        (
            "no copy back",
            (
                "unseen-result: No result left the GPU: after 1 launch, nothing was copied to the host",
                "hint: Copy the result with cudaMemcpy",
            ),
        ),
    ],
)
def test_results_that_never_get_to_the_host_are_found(mistake: str, told: tuple[str, ...]) -> None:
    ran = run("wrong_calls", mistake)
    assert "; 1 finding\n" in ran.report and ran.code == 0
    assert all(words in ran.said for words in told), ran.said


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("rounded down", "too-few-threads: `add` uses 1,024 of 1,200 elements: this launch has 1,024 threads"),
        ("managed", "`add` uses 1,024 of 1,200 elements"),
        ("row of blocks", "`add_to_plane` uses 640 of 1,200 elements: this launch has 768 threads"),
        ("column of blocks", "`add_to_plane` uses 960 of 1,200 elements: this launch has 1,024 threads"),
        ("stride", "no findings"),
        ("halves", "no findings"),
        ("parts", "no findings"),
        ("rest", "no findings"),
    ],
)
def test_elements_that_no_thread_uses_are_found(way: str, told: str) -> None:
    ran = run("few_threads", way)
    assert told in ran.said and "2 findings" not in ran.report, ran.report


@pytest.mark.parametrize(
    ("mistake", "out", "told"),
    [
        ("set", "16843011 16843011\n", "sets each byte to 1, so an int becomes 16,843,009 at bytes_for_numbers.cu:23"),
        ("copy", "2 0\n", "copies 16 of 64 bytes to the host; the others are never copied"),
        ("quarters", "2 2\n", "no findings"),
        ("none", "2 2\n", "no findings"),
    ],
)
def test_bytes_that_are_meant_as_numbers_are_found(mistake: str, out: str, told: str) -> None:
    ran = run("bytes_for_numbers", mistake)
    assert (ran.out, told in ran.said) == (out, True), ran.report


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("no constants", ("uninitialised: Uninitialized __constant__ memory read", "`weights[0]` was never written",
                          "hint: Constant memory is 0 until the host sets it")),
        ("half of the columns", ("cudaMemcpy copies 256 bytes to the host; nothing has written 128 of them",
                                 "4 bytes for each of the 32 threads of a launch of `weigh_first`")),
        ("part of the constants", ("`weights[1]` was never written at sizes_of_calls.cu:12",)),
        ("size of a pointer", ("bytes: cudaMemcpy takes 8 bytes: `sizeof(host)` is the size of a pointer, not of the",
                               "at sizes_of_calls.cu:54")),
        ("elements", ("bytes: cudaMemcpy copies 64 of 256 bytes to the host", "at sizes_of_calls.cu:56")),
        ("two arrays", ("shared-arrays: `factors` and `tile` of kernel `weigh_shared` are the same memory",
                        "at sizes_of_calls.cu:48", "hint: All `extern __shared__` arrays")),
    ],
)  # fmt: skip
def test_a_wrong_size_or_a_missing_copy_of_constants_is_found(mistake: str, told: tuple[str, ...]) -> None:
    ran = run("sizes_of_calls", mistake)
    assert "; 1 finding\n" in ran.report and all(words in ran.said for words in told), ran.said


def test_a_symbol_is_passed_by_its_name() -> None:
    said = run("sizes_of_calls", "address of the constants").said
    assert "returned cudaErrorInvalidSymbol" in said and "hint: Pass the variable itself, without &" in said


@pytest.mark.parametrize("argument", ["none", "first row"])
def test_sizes_in_bytes_and_constants_with_values_are_no_finding(argument: str) -> None:
    ran = run("sizes_of_calls", argument)
    assert (ran.out, "no findings" in ran.report) == ("7.5\n", True), ran.report


def test_dynamic_shared_memory_is_an_argument_of_the_programs_own_launch() -> None:
    said = run("shared_bytes_missing").said
    assert "`tile[0]` written, but the kernel is launched without dynamic shared memory" in said
    assert "hint: A launch needs the bytes of `extern __shared__` arrays as its third argument" in said


def test_a_result_shorter_than_its_copy_is_no_finding() -> None:
    assert "no findings" in run("partly_filled").report


def test_the_host_waits_before_it_uses_memory_of_kernels_and_copies() -> None:
    ran = run("host_too_early")
    assert (ran.out, ran.code) == ("999\n1000\n0\n7\n2\n", 0)
    assert "; 5 findings\n" in ran.report
    reads = "The host reads memory that kernel `fill` may still write (begun at host_too_early.cu:36)"
    for told, line, memory in (
        (reads, 38, "memory of cudaMallocManaged (host_too_early.cu:26)"),
        (reads, 40, "memory of a __managed__ variable"),
        ("The host writes memory that kernel `fill` may still use", 39, "cudaMallocManaged (host_too_early.cu:27)"),
        ("The host writes memory that cudaMemcpyAsync may still use", 43, "cudaHostAlloc (host_too_early.cu:30)"),
        ("The host reads memory that cudaMemcpyAsync may still write", 46, "cudaHostAlloc (host_too_early.cu:30)"),
    ):
        assert told in ran.said and f"at host_too_early.cu:{line}\n" in ran.report and memory in ran.said
    assert "Call cudaDeviceSynchronize() before the host uses their memory." in ran.said
    assert "no findings" in run("host_too_early", options=("--no-check",)).report


def test_an_error_exit_code_of_its_own_for_findings() -> None:
    assert run("race", options=("--error-exitcode=42",)).code == 42
    assert run("race", options=("--error-exitcode=42", "--no-check")).code == 0


def test_an_error_that_breaks_the_device_is_returned_by_every_later_call() -> None:
    ran = run("sticky_error")
    assert ran.out == (
        "launch: cudaSuccess\nsynchronize: cudaErrorIllegalAddress\nsecond launch: cudaErrorIllegalAddress\n"
        "copy: cudaErrorIllegalAddress\nmalloc: cudaErrorIllegalAddress\nfree: cudaErrorIllegalAddress\n"
        "text: an illegal memory access was encountered\n"
    )
    assert ran.code == 3
    assert "the address 0x0 is a null pointer" in ran.said and "at sticky_error.cu:6\n" in ran.report


def test_refused_launches_leave_an_error_that_is_read_once() -> None:
    ran = run("bad_launch")
    refused = "cudaErrorInvalidConfiguration"
    assert ran.out == (
        f"1025 threads: {refused}\nread again: cudaSuccess\nno block: {refused}\n70000 blocks along y: {refused}\n"
        f"65 threads along z: {refused}\n60000 bytes of shared memory: cudaErrorInvalidValue\n"
        "attribute: cudaSuccess\n60000 bytes after the attribute: cudaSuccess\nsynchronize: cudaSuccess\n"
        "free: cudaSuccess\n"
    )
    assert ran.code == 0
    assert ran.report.count("launch-error: ") == 5
    for line in (26, 29, 31, 33, 35):
        assert f"at bad_launch.cu:{line}\n" in ran.report
    assert "hint: Round the number of blocks up" in ran.said
    assert "60,000 bytes of dynamic shared memory; 49,152 are allowed" in ran.said
