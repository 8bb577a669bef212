"""`gpulab run`: how programs end, and all that can go wrong with them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest
from running import ENDINGS, Ran, command, gpulab

HEADLINE = "gpulab: {} on the simulated GPU (cost model: NVIDIA H200)"
IN_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
ONE = HEADLINE.format("1 launch of 1 kernel")


def end(how: str, *options: str, stdin: str = "") -> Ran:
    return gpulab(ENDINGS.parent, *options, ENDINGS.name, how, stdin=stdin)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(ENDINGS.read_text().splitlines(), 1) if text in line)


def test_a_crash_is_named_by_signal_and_line_with_the_launches_so_far() -> None:
    ran = end("null")
    assert ran.code == 128 + signal.SIGSEGV
    assert ran.out == "launched\n"
    assert ran.err.startswith(f"{ONE}; 1 finding\n  crash: The host's code was ended by SIGSEGV: an invalid access\n")
    assert f"at endings.cu:{line_of('*nowhere = 1')}\n" in ran.err
    assert "hint: Usual causes: an index beyond an array, a null pointer, or argv[1] of a program" in ran.err


def test_an_abort_is_named() -> None:
    ran = end("abort")
    assert ran.code == 128 + signal.SIGABRT
    assert "crash: The program was ended by SIGABRT\n" in ran.err


def test_exit_anywhere_loses_nothing() -> None:
    ran = end("exit")
    assert ran.code == 5
    assert "leak: 1 allocation of cudaMalloc, 128 bytes, never freed\n" in ran.err
    assert f"at endings.cu:{line_of('cudaMalloc(')}\n" in ran.err


@pytest.mark.parametrize(
    ("how", "what", "call"),
    [
        ("dereference", "device memory", "cudaMalloc("),
        ("use after free", "memory that was freed", "cudaFree("),
    ],
)
def test_a_host_that_uses_device_memory(how: str, what: str, call: str) -> None:
    ran = end(how)
    assert ran.code == 128 + signal.SIGSEGV
    place = f"endings.cu:{line_of(call)}"
    assert f"host-access: The host accessed {what}: see {call[:-1]} ({place})\n" in ran.err
    assert "device[1]);" in ran.err


def test_a_kernel_that_uses_host_memory() -> None:
    ran = end("host pointer")
    assert (ran.code, ran.out) == (0, "launched\ncudaErrorIllegalAddress\n")
    assert "is a host pointer" in ran.said and "hint: A kernel can use memory of" in ran.said
    assert f"at endings.cu:{line_of('*out = 1')}\n" in ran.err


def test_a_kernel_that_uses_a_null_pointer() -> None:
    ran = end("null pointer")
    assert "is a null pointer" in ran.said and "hint: Was the pointer set?" in ran.said


def test_an_endless_kernel_ends() -> None:
    ran = end("wait")
    assert (ran.code, ran.out) == (0, "launched\ncudaErrorLaunchTimeout\n")
    assert "endless-loop: The kernel does not end" in ran.err
    assert f"at endings.cu:{line_of('while (flag')}\n" in ran.err


def test_a_function_that_is_not_there_ends_the_program_with_its_name() -> None:
    ran = end("missing")
    assert ran.code == 125
    assert "missing-function: cudaIpcGetMemHandle is not available with no GPU: the program was ended\n" in ran.err


def test_standard_input_passes_through() -> None:
    assert end("cat", stdin="one\ntwo\n").out == "launched\nread one\nread two\n"


@pytest.mark.parametrize("how", ["sleep", "child"])
def test_a_program_that_hangs_is_killed_with_its_children(how: str) -> None:
    words = command("--timeout=5", str(ENDINGS), how)  # not forked: the fork server kills what is left behind
    done = subprocess.run(words, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (124, "launched\n")
    assert done.stderr == f"{ONE}, stopped at its time limit; no findings\n"


def test_a_program_that_writes_to_the_socket_is_one_line() -> None:
    ran = end("socket")
    assert (ran.code, ran.out) == (2, "launched\n")
    assert ran.err.startswith("gpulab run: the program wrote to the simulated GPU's socket itself: a call of ")
    assert len(ran.err.splitlines()) == 1


def test_a_kernel_that_is_too_long_ends_with_its_line() -> None:
    ran = end("long", "--timeout=6")
    assert "time-limit: Time limit: the kernel cannot end within" in ran.err
    lines = [line_of("for (long i"), line_of("sum += i")]
    assert any(f"at endings.cu:{line}\n" in ran.err for line in lines)


def test_a_launch_that_is_too_large_ends_with_advice() -> None:
    ran = end("large", "--timeout=6", "--no-check")
    assert "time-limit: Time limit: the kernel had not ended after" in ran.err
    assert "hint: The simulated GPU is far slower than a real one: try fewer elements. If that takes" in ran.err


def test_a_wrong_time_limit_is_refused() -> None:
    ran = end("exit", "--timeout=0")
    assert ran.code == 2 and "0 is no positive number of seconds" in ran.err


def interrupted(process: subprocess.Popen[str]) -> Ran:
    assert process.stdout is not None
    assert process.stdout.readline() == "launched\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    return Ran(process.returncode, out, err)


@pytest.mark.parametrize("how", ["sleep", "long"])
def test_an_interrupt_ends_the_program_with_the_report(how: str) -> None:
    process = subprocess.Popen(
        command(ENDINGS.name, how), cwd=ENDINGS.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    ran = interrupted(process)
    assert ran.code in (130, 128 + signal.SIGKILL)
    assert ran.err.startswith("gpulab: ") and ", interrupted" in ran.err


def test_ctrl_c_in_a_terminal_reaches_the_program() -> None:
    """The program is the terminal's foreground job: it may read, and Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", IN_A_TERMINAL, *command(ENDINGS.name, "sleep")]
    process = subprocess.Popen(
        words, cwd=ENDINGS.parent, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    assert process.stdout is not None
    assert process.stdout.readline() == "launched\n"
    os.write(ours, b"\x03")
    _, err = process.communicate()
    os.close(ours)
    assert process.returncode == 130
    assert err == f"{ONE}, interrupted; no findings\n"
