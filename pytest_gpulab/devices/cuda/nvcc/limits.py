"""nvcc under limits.

PyCUDA starts nvcc itself and takes any executable for it. So nvcc gets a script in front of it that sets the limits,
which all of nvcc's own programs inherit. Time is limited elsewhere, by killing the whole process group.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from pytest_gpulab.devices.compiler.limits import KIB, Limits
from pytest_gpulab.devices.compiler.sandbox import Sandbox
from pytest_gpulab.devices.protocol import DeviceUnavailable

_FILE_BLOCK_BYTES = 512  # POSIX, of `ulimit -f`
NICENESS = 5  # of nvcc: who times needs a processor core at once, and all others wait for that one
_HERE = "(here)"
_SCRIPT = """#!/bin/sh
# Diagnostics go through files: those have a limit, and a program that talks without end is ended by it.
(
    ulimit -v {memory_kib} 2>/dev/null  # refused where the user's own limit is lower, which will do
    ulimit -f {file_blocks} 2>/dev/null
    export TMPDIR={folder}  # some files are left there when a text does not compile
    exec nice -n {niceness} {within}{program}{keep} "$@" >{folder}/stdout 2>{folder}/stderr
)
status=$?
{inspection}[ ! -s {folder}/stdout ] || head -c {said_bytes} {folder}/stdout
[ ! -s {folder}/stderr ] || head -c {said_bytes} {folder}/stderr >&2
exit $status
"""

# What the preprocessor leaves must have no directives but its own: nvcc's other parts would obey those, too.
_INSPECTION = r"""LC_ALL=C sed -n -E '/^[[:space:]]*(#|%:)/{{/^[[:space:]]*(#|%:)[[:space:]]*([0-9]|pragma|$)/!q1}}' \
    {folder}/*.ii 2>/dev/null
if [ $? -eq 1 ]; then
    echo '{refused}' >&2
    exit 1
fi
"""
# The C compiler shows the line that it complains of, from whatever file the text claims to be with #line.
_QUOTE_NOTHING = "-Xcompiler=-fno-diagnostics-show-caret"
REFUSED = "error: a macro of this file makes a directive such as #include: write it out"


def limited(program: str, folder: Path, limits: Limits, within: Sandbox | None = None, inspect: bool = False) -> str:
    """Return the path of an executable that runs a program under limits, with the same arguments and exit status.

    Args:
        program: its path.
        folder: for the executable and for what it keeps while it runs; one run at a time. In a sandbox by its real
            path: bubblewrap makes no folders behind a link that is there already.
        limits: see there.
        within: the sandbox to run it in, where it sees the folder, and the working folder to write in; None for none.
        inspect: whether the program is nvcc, whose output counts only if macros make no directives, and whose
            messages quote no file.

    Raises:
        DeviceUnavailable: programs in the folder cannot be run.
    """
    text, script, quoted = folder / "limited.sh", folder / "limited", shlex.quote(str(folder))
    text.write_text(
        _SCRIPT.format(
            program=shlex.quote(program),
            within=_prefix(within, folder) if within else "",
            keep=f" --keep --keep-dir {quoted} {_QUOTE_NOTHING}" if inspect else "",
            inspection=_INSPECTION.format(folder=quoted, refused=REFUSED) if inspect else "",
            niceness=NICENESS,
            folder=quoted,
            memory_kib=limits.memory_bytes // KIB,
            file_blocks=limits.file_bytes // _FILE_BLOCK_BYTES,
            said_bytes=limits.said_bytes,
        )
    )
    text.chmod(0o700)
    # What this process wrote to might not be run: programs that other threads start hold it open for a moment, too.
    subprocess.run(["cp", text, script], check=True)
    if not os.access(script, os.X_OK):  # so it is on a file system that is mounted noexec
        raise DeviceUnavailable(f"no program can be run from {folder.parent}; set TMPDIR to a folder where one can")
    return str(script)


def said(folder: Path, limits: Limits) -> tuple[bytes, bytes]:
    """Return what the program of a folder wrote to stdout and stderr in its latest run, as far as anybody listens."""
    with (folder / "stdout").open("rb") as stdout, (folder / "stderr").open("rb") as stderr:
        return stdout.read(limits.said_bytes), stderr.read(limits.said_bytes)


def _prefix(within: Sandbox, folder: Path) -> str:
    """Return what to put before a command line, in the shell's words: the working folder is known only when it runs."""
    shown = ["--ro-bind", str(folder), str(folder), "--bind", _HERE, _HERE, "--chdir", _HERE, "--setenv", "TMPDIR"]
    quoted = shlex.join(within.before(*shown, "/tmp")).replace(shlex.quote(_HERE), '"$PWD"')
    return f"{quoted} " if quoted else ""
