"""`gpulab run`: run a whole CUDA program, with no GPU."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from . import CommandError

if TYPE_CHECKING:  # loaded while nvcc works
    from pytest_gpulab.devices.programs.outcome import Outcome
    from pytest_gpulab.devices.programs.toolchain import Toolchain
    from pytest_gpulab.devices.simulated.gpus import Gpu

BUILD_FAILED = 2
TIMED_OUT = 124  # as of coreutils' `timeout`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.usage = "gpulab run [OPTIONS] PROGRAM.cu [ARGUMENTS...]"
    parser.add_argument("program", metavar="PROGRAM.cu", type=Path, help="the CUDA C++ file with main()")
    parser.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim", help="sim (default), or cuda: a real GPU")
    parser.allow_abbrev = False  # an argument of the program may look like the start of an option
    parser.add_argument("--gpu", metavar="MODEL", help="the GPU to model, such as t4; default: h200")
    parser.add_argument("--nvcc", metavar="OPTIONS", default="", help="nvcc's options and further files, as one word")
    parser.add_argument("--timeout", metavar="SECONDS", type=_seconds, help="time limit of the program")
    parser.add_argument("--profile", action="store_true", help="count and estimate each launch; print a table")
    parser.add_argument("--annotate", action="store_true", help="print the source with each line's share of the cost")
    parser.add_argument("--no-check", action="store_true", help="do not look for races and uninitialised reads")
    parser.add_argument(
        "--error-exitcode", metavar="CODE", type=int, default=0, help="exit code if there are findings, but no error"
    )


def normalized(words: list[str]) -> list[str]:
    """Return a command line with `--nvcc -O3` as one word: argparse takes such a value for an option."""
    at = words.index("--nvcc") if "--nvcc" in words[:-1] else 0
    if not at or not words[at + 1].startswith("-") or any(word.endswith(".cu") for word in words[:at]):
        return words
    return [*words[:at], f"--nvcc={words[at + 1]}", *words[at + 2 :]]


def _seconds(text: str) -> float:
    value = 0.0
    with suppress(ValueError):
        value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Build and run the program; return its exit code."""
    from pytest_gpulab.devices.errors import CompileError, DeviceUnavailable

    if not arguments.program.is_file():
        raise CommandError(f"no such file: {arguments.program}")
    try:
        return _run(arguments)
    except CompileError as error:
        sys.stderr.write(error.diagnostics.rstrip("\n") + "\n")
        sys.stderr.write(f"gpulab run: {arguments.program} does not compile\n")
        return BUILD_FAILED
    except DeviceUnavailable as missing:
        raise CommandError(str(missing)) from missing


def _run(arguments: argparse.Namespace) -> int:
    from pytest_gpulab.devices.programs.build import Program, build, build_native
    from pytest_gpulab.devices.programs.toolchain import find_toolchain
    from pytest_gpulab.devices.simulated.gpus import DEFAULT_GPU, modelled_gpu

    toolchain = find_toolchain(prefer_toolkit=arguments.device == "cuda")
    try:
        options = tuple(shlex.split(arguments.nvcc))
    except ValueError as error:
        raise CommandError(f"--nvcc: {error}") from error
    program = Program(arguments.program, options)
    if arguments.device == "cuda":
        executable = build_native(program, toolchain, sys.stderr.write)
        os.execv(executable, [f"./{arguments.program.stem}", *arguments.arguments])
    gpu = modelled_gpu(arguments.gpu or DEFAULT_GPU)
    executable = build(program, toolchain, gpu.target, sys.stderr.write)
    return _simulated(arguments, toolchain, executable, gpu)


def _simulated(arguments: argparse.Namespace, toolchain: Toolchain, executable: Path, gpu: Gpu) -> int:
    from pytest_gpulab.devices.programs.device import ProgramDevice
    from pytest_gpulab.devices.programs.messages import InvalidRequest
    from pytest_gpulab.devices.programs.process import run as run_program
    from pytest_gpulab.devices.programs.session import RunOptions, Session

    device = ProgramDevice(gpu, toolchain)
    options = RunOptions(check=not arguments.no_check, profile=arguments.profile or arguments.annotate)
    words = [f"./{arguments.program.stem}", *arguments.arguments]
    try:
        outcome = run_program(executable, words, Session(device, options), arguments.timeout)
    except InvalidRequest as error:
        raise CommandError(f"the program wrote to the simulated GPU's socket itself: {error}") from error
    found = _report(arguments, toolchain, executable, outcome, device.gpu.name)
    if outcome.timed_out:
        return TIMED_OUT
    code = 128 - outcome.returncode if outcome.returncode < 0 else outcome.returncode
    return code or (arguments.error_exitcode if found else 0)


def _report(arguments: argparse.Namespace, toolchain: Toolchain, executable: Path, outcome: Outcome, gpu: str) -> bool:
    """Print the report; return True if there are findings."""
    from pytest_gpulab.devices.programs.build import headers_of
    from pytest_gpulab.devices.programs.call_sites import source_lines
    from pytest_gpulab.devices.programs.stand_in import error_texts
    from pytest_gpulab.grading.program_findings import Sources, program_findings
    from pytest_gpulab.reports.terminal.program import launch_table, listing_lines, report

    lines = source_lines(executable, outcome.addresses(), headers_of(toolchain))
    errors = {code: (name, text) for code, name, text in error_texts()} if outcome.failed_calls else {}
    sources = Sources(Path.cwd(), lines, errors)
    findings, device = program_findings(outcome, sources), f"simulated GPU (cost model: {gpu})"
    printed = [*report(outcome, findings, device, not arguments.no_check)]
    if arguments.profile:
        printed += launch_table(outcome, sources.plain)
    if arguments.annotate:
        from pytest_gpulab.grading.program_listing import program_listing

        printed += listing_lines(program_listing(outcome, arguments.program, sources, device))
    sys.stdout.flush()
    sys.stderr.write("\n".join(printed) + "\n")
    return bool(findings)
