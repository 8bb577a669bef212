"""The console command: help, wrong words, and what it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pytest_gpulab.command import CommandError, include, main
from pytest_gpulab.devices.system.processes import ONE_THREAD

HEAVY = ("numpy", "pytest", "tabulate", "cuda", "pycuda", "pytest_gpulab.devices.protocol", "pytest_gpulab.grading")


def test_the_console_command_is_the_module() -> None:
    (command,) = entry_points(group="console_scripts", name="gpulab")
    assert command.load() is main.main


def test_help_lists_each_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name} " in shown and line.split(",")[0] in shown for name, line in main.SUBCOMMANDS.items())


@pytest.mark.parametrize("name", main.SUBCOMMANDS)
def test_each_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: gpulab {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", main.SUBCOMMANDS)
def test_help_fits_narrow_terminals(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main.main([name, "--help"])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 60] == []


def test_a_wrong_subcommand_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["inclde"])
    assert end.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "'inclde'" in message and "include" in message


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--version"])
    assert capsys.readouterr().out.startswith("pytest-gpulab ")


def test_mistakes_and_interrupts_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code, line in (
        (CommandError("no such file: x.cu"), 2, "gpulab include: no such file: x.cu\n"),
        (KeyboardInterrupt(), 130, "gpulab include: interrupted\n"),
    ):
        monkeypatch.setattr(include, "run", lambda _, error=error: (_ for _ in ()).throw(error))
        assert main.main(["include"]) == code
        assert capsys.readouterr().err == line


def test_include_prints_the_folder_of_the_header() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpulab", "include"], capture_output=True, text=True, check=True
    )
    assert (Path(done.stdout.removesuffix("\n")) / "gpulab.cuh").is_file()


@pytest.mark.parametrize("words", [[], ["explain", "--help"]], ids=" ".join)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    script = "import sys; from pytest_gpulab.command.main import main\n"
    script += f"try: main({words})\nexcept SystemExit: pass\n"
    script += f"sys.exit(' '.join(name for name in {HEAVY} if name in sys.modules) or None)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize(("name", "threads"), [("explain", "1"), ("watch", "1"), ("run", "None")])
def test_numpy_has_one_thread_in_subcommands_that_start_no_program(name: str, threads: str) -> None:
    script = "import os, sys; from pytest_gpulab.command.main import main\n"
    script += f"try: main(['{name}', '--help'])\nexcept SystemExit: print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    environment = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == threads


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_the_terminal_lacks_are_escaped(tmp_path: Path, encoding: str) -> None:
    folder = tmp_path / "Привет"
    script = "import sys; from pytest_gpulab.command import include, main; from pathlib import Path\n"
    script += (
        f"include.run = lambda _: sys.stdout.write({str(folder)!r} + '\\n') and 0\nsys.exit(main.main(['include']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.decode() == str(folder).encode("ascii", "backslashreplace").decode() + "\n"


def test_a_file_name_in_another_encoding_is_printed_as_it_is() -> None:
    script = "import sys; from pytest_gpulab.command import include, main\n"
    script += "include.run = lambda _: sys.stdout.write('caf\\udce9\\n') and 0\nsys.exit(main.main(['include']))"
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert done.stdout == b"caf\xe9\n"
