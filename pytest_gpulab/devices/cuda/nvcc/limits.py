"""Limits for nvcc's processes.

PyCUDA starts nvcc itself and accepts any executable. So it gets a script that sets limits and runs nvcc; all of nvcc's
programs inherit them. The time limit is enforced elsewhere, by killing the whole process group.
"""

import os
import shlex
import subprocess
from pathlib import Path

from pytest_gpulab.devices.compiler.sandbox import KIB, Limits, Sandbox
from pytest_gpulab.devices.protocol import DeviceUnavailable

_FILE_BLOCK_BYTES = 512  # the unit of `ulimit -f` (POSIX)
NICENESS = 5  # of nvcc: a process that times needs a CPU core at once, as all others wait for it
_HERE = "(here)"
_SCRIPT = """#!/bin/sh
# Diagnostics go to files: they have a size limit, which ends a program with endless output.
(
    ulimit -v {memory_kib} 2>/dev/null  # fails if the user's own limit is lower, which is fine
    ulimit -f {file_blocks} 2>/dev/null
    export TMPDIR={folder}  # nvcc leaves files there after an error
    export SOURCE_DATE_EPOCH=0  # __DATE__ and __TIME__ are the same in every run
    touch -c -d @0 "$PWD"/kernel.cu  # and so is __TIMESTAMP__
    exec nice -n {niceness} {within}{program}{keep} "$@" >{folder}/stdout 2>{folder}/stderr
)
status=$?
{inspection}[ ! -s {folder}/stdout ] || head -c {said_bytes} {folder}/stdout
[ ! -s {folder}/stderr ] || head -c {said_bytes} {folder}/stderr >&2
exit $status
"""

# The preprocessed text must have no directives but the preprocessor's own: nvcc's later passes would execute them.
_INSPECTION = r"""LC_ALL=C sed -n -E '/^[[:space:]]*(#|%:)/{{/^[[:space:]]*(#|%:)[[:space:]]*([0-9]|pragma|$)/!q1}}' \
    {kept}/*.ii 2>/dev/null
if [ $? -eq 1 ]; then
    echo '{refused}' >&2
    exit 1
fi
"""
# The C compiler quotes the source line of an error from the file named by #line, which could be any file.
_QUOTE_NOTHING = "-Xcompiler=-fno-diagnostics-show-caret"
KEPT = "kept"
"""The folder of nvcc's intermediate files, among them the PTX, in that of the executable."""
REFUSED = "error: a macro of this file makes a directive such as #include: write it out"


def limited(program: str, folder: Path, limits: Limits, within: Sandbox | None = None, keep: bool = False) -> str:
    """Return the path of an executable that runs a program under limits, with the same arguments and exit status.

    The executable and its files are in `folder`, for one run at a time. The sandbox `within` can read the folder and
    write to `KEPT` and the working folder; its folder must be a real path, as bubblewrap creates no folders behind a
    link. With `keep`, for nvcc, intermediate files stay in `KEPT`. Without a sandbox, preprocessed text is then refused
    if macros create directives in it, and messages quote no files. Raises DeviceUnavailable if programs in the folder
    cannot be run.
    """
    text, script, quoted = folder / "limited.sh", folder / "limited", shlex.quote(str(folder))
    (folder / KEPT).mkdir(exist_ok=True)
    kept, inspect = shlex.quote(str(folder / KEPT)), keep and not (within and within.bubblewrap)
    text.write_text(
        _SCRIPT.format(
            program=shlex.quote(program),
            within=_prefix(within, folder) if within else "",
            keep=f" --keep --keep-dir {kept}{f' {_QUOTE_NOTHING}' if inspect else ''}" if keep else "",
            inspection=_INSPECTION.format(kept=kept, refused=REFUSED) if inspect else "",
            niceness=NICENESS,
            folder=quoted,
            memory_kib=limits.memory_bytes // KIB,
            file_blocks=limits.file_bytes // _FILE_BLOCK_BYTES,
            said_bytes=limits.said_bytes,
        ),
        encoding="utf-8",
    )
    text.chmod(0o700)
    # Linux does not run a file that is open for writing (ETXTBSY), and processes that other threads start inherit the
    # descriptor for a moment. So another process writes the script.
    subprocess.run(["cp", text, script], check=True)
    if not os.access(script, os.X_OK):  # the file system is mounted noexec
        raise DeviceUnavailable(f"no program can be run from {folder.parent}; set TMPDIR to a folder where one can")
    return str(script)


def said(folder: Path, limits: Limits) -> tuple[bytes, bytes]:
    """Return stdout and stderr of the latest run in a folder, up to the limit of the messages."""
    with (folder / "stdout").open("rb") as stdout, (folder / "stderr").open("rb") as stderr:
        return stdout.read(limits.said_bytes), stderr.read(limits.said_bytes)


def _prefix(within: Sandbox, folder: Path) -> str:
    """Return the sandbox's command prefix, quoted for the shell, which inserts the working folder at run time."""
    shown = ["--ro-bind", str(folder), str(folder), "--bind", str(folder / KEPT), str(folder / KEPT)]
    shown += ["--bind", _HERE, _HERE, "--chdir", _HERE, "--setenv", "TMPDIR"]
    quoted = shlex.join(within.before(*shown, "/tmp")).replace(shlex.quote(_HERE), '"$PWD"')
    return f"{quoted} " if quoted else ""
