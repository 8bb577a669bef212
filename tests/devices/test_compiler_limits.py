"""A compiler that takes without end is ended, by limits that its own children inherit; honest ones do not notice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices.compiler.sandbox import KIB, Limits
from pytest_gpulab.devices.cuda.nvcc import limits as limits_module
from pytest_gpulab.devices.cuda.nvcc.limits import NICENESS, limited
from pytest_gpulab.devices.protocol import DeviceUnavailable

SMALL = Limits(memory_bytes=256 << 20, file_bytes=64 * KIB, said_bytes=1000)
PYTHON = f"#!{sys.executable} -I\n"


def run(folder: Path, text: str, *arguments: str, limits: Limits = SMALL) -> subprocess.CompletedProcess[str]:
    """Run a stand-in for nvcc under limits, in a folder with an awkward name."""
    folder = folder / "it's a folder"
    folder.mkdir()
    compiler = folder / "nvcc $(x)"
    compiler.write_text(text)
    compiler.chmod(0o700)
    command = [limited(str(compiler), folder, limits), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_an_honest_compiler_gets_its_arguments_and_returns_its_words_and_status(tmp_path: Path) -> None:
    done = run(tmp_path, '#!/bin/sh\nprintf "%s|" "$@"; echo trouble >&2; exit 3\n', "-I a b", "", "$HOME", "k.cu")
    assert (done.stdout, done.stderr, done.returncode) == ("-I a b||$HOME|k.cu|", "trouble\n", 3)


def test_a_compiler_lets_those_go_first_that_time(tmp_path: Path) -> None:
    done = run(tmp_path, "#!/bin/sh\nexec nice\n")
    assert int(done.stdout) == min(os.nice(0) + NICENESS, 19)


def test_memory_is_limited(tmp_path: Path) -> None:
    done = run(tmp_path, PYTHON + "blocks = []\nfor _ in range(64): blocks.append(bytearray(16 << 20))\n")
    assert done.returncode != 0 and "MemoryError" in done.stderr


def test_memory_of_the_programs_that_it_starts_is_limited(tmp_path: Path) -> None:
    child = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-Ic', 'bytearray(512 << 20)']))\n"
    done = run(tmp_path, PYTHON + child)
    assert done.returncode == 1 and "MemoryError" in done.stderr


def test_a_program_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    done = run(tmp_path, "#!/bin/sh\nexec head -c 10000000 /dev/zero >kernel.cubin\n")
    assert done.returncode != 0
    assert (tmp_path / "it's a folder" / "kernel.cubin").stat().st_size == SMALL.file_bytes


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_program_that_talks_without_end_is_ended_and_its_first_words_are_kept(tmp_path: Path, stream: str) -> None:
    done = run(tmp_path, f"#!/bin/sh\nexec yes warning >&{stream}\n")
    assert done.returncode != 0
    said = (done.stdout, done.stderr)[int(stream) - 1]
    assert said.removeprefix("File size limit exceeded\n") == "warning\n" * 125  # 1000 bytes; the shell may say why


def test_a_lower_limit_of_the_users_own_stays(tmp_path: Path) -> None:
    """Root may raise limits again, so what is looked at is that nothing is said of it, and that the rest goes on."""
    (tmp_path / "nvcc").write_text("#!/bin/sh\necho compiled\n")
    (tmp_path / "nvcc").chmod(0o700)
    script = limited(str(tmp_path / "nvcc"), tmp_path, Limits())
    command = ["sh", "-c", f"ulimit -v 1000000; exec '{script}'"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("compiled\n", "", 0)


def test_its_temporary_files_are_beside_the_script(tmp_path: Path) -> None:
    done = run(tmp_path, '#!/bin/sh\ntouch "$TMPDIR/kernel.lgenfe.bc"\n')
    assert done.returncode == 0 and (tmp_path / "it's a folder" / "kernel.lgenfe.bc").exists()


def test_a_program_that_cannot_be_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as on a file system that is mounted noexec
    with pytest.raises(
        DeviceUnavailable, match=r"^no program can be run from .*; set TMPDIR to a folder where one can"
    ):
        limited("/usr/bin/nvcc", tmp_path, SMALL)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_other_threads_may_start_programs_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it runs, a program that is started holds all open files, and what may be written to cannot be run."""
    monkeypatch.setattr(limits_module, "_SCRIPT", limits_module._SCRIPT + "exit 1\n" + 2**27 * "#")  # takes a while
    ends = threading.Event()

    def start_programs() -> None:
        while not ends.is_set():
            subprocess.run(["true"], preexec_fn=lambda: time.sleep(0.1), check=True)

    threads = [threading.Thread(target=start_programs) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        assert run(tmp_path, "#!/bin/sh\necho compiled\n").stdout == "compiled\n"
    finally:
        ends.set()
        for thread in threads:
            thread.join()
