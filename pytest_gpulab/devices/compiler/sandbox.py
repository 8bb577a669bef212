"""Protection from what a submission makes a compiler do: resource limits, and a sandbox.

A submission can make a compiler compute, allocate and write without end; limits stop it. With bubblewrap, a compiler
sees only its own files and its input.

bubblewrap (the command `bwrap`) gives a program its own file system view with chosen files, no network, and its own
process namespace, which ends with it. It requires user namespaces, which many containers forbid. It is tried once with
a real command.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

KIB = 1024
PROTECTION = "compiled under"  # the name of the sandbox in reports
NOT_ENDED = "The compiler did not finish"
"""Beginning of the message that is added when a limit stops a compiler."""

PROBE_LIMIT_S = 10.0
# Shared libraries, and the files by which the system finds them; missing ones are left out.
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/null")
# For programs that start others, such as a C compiler.
PROGRAMS = ("/bin", "/usr/bin", "/usr/include", "/usr/libexec", "/etc/alternatives")
_ALONE = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


class Limits(NamedTuple):
    """Limits of each process of a compiler."""

    memory_bytes: int = 2 << 30  # address space of a process of nvcc; docs/security.md has the needs of real kernels
    nvrtc_bytes: int = 1 << 30  # address space of NVRTC
    file_bytes: int = 256 << 20  # size of each file that nvcc writes, machine code included
    said_bytes: int = 64 * KIB  # size of the messages that are kept
    compile_s: int = 20  # processor time of one compilation by NVRTC; nvcc has the time of its check instead
    all_variants_s: int = 45  # processor time of all compilations of one text by NVRTC; CUB takes 2 s each
    refused_s: int = 2  # processor time: if a compilation with errors takes more, no other variant is compiled
    output_bytes: int = 32 << 20  # size of NVRTC's output, PTX or machine code; a course's kernels have some ten KiB
    at_once: int = 4  # number of variants of one text that nvcc compiles in parallel, each with the whole memory limit

    @property
    def words(self) -> str:
        """The limits of nvcc, in words."""
        return f"{self.memory_bytes / 2**30:g} GiB of memory and {self.file_bytes / 2**20:g} MiB per file"

    @property
    def nvrtc_words(self) -> str:
        """The limits of NVRTC, in words."""
        memory, output = self.nvrtc_bytes / 2**30, self.output_bytes / 2**20
        time = f"{self.compile_s} s ({self.all_variants_s} s for all variants)"
        return f"{time}, {memory:.3g} GiB of memory and {output:.3g} MiB of output"


class Sandbox(NamedTuple):
    """The protection of a program."""

    words: str  # the protection in words, with the reason if there is no sandbox
    bubblewrap: tuple[str, ...] = ()  # the beginning of its command line; empty without a sandbox

    def before(self, *options: str) -> tuple[str, ...]:
        """Return the command line that precedes the program's.

        `options` are further ones of bubblewrap, with `--chdir`. Without them the working folder is an empty one.
        """
        if not self.bubblewrap:
            return ()
        return (*self.bubblewrap, *(options or ("--chdir", "/empty")), "--remount-ro", "/", "--")


def none(why: str) -> Sandbox:
    """Return a `Sandbox` without bubblewrap, for the given reason."""
    return Sandbox(f"limits only: {why}")


def sandbox(readable: Iterable[str | Path], temporary: bool = False) -> Sandbox:
    """Return a sandbox if bubblewrap works here; else `none` with the reason.

    Missing ones of the `readable` absolute paths are left out. Links on them are recreated, without the rest of their
    folders. With `temporary` there is an empty, writable folder /tmp. Nothing else is writable.
    """
    why = refusal()
    return none(why) if why else Sandbox("bubblewrap and limits", _command(readable, temporary))


@lru_cache(maxsize=1)
def refusal() -> str:
    """Return the reason why bubblewrap does not work here, after a trial; empty if it works."""
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    command = [*_command((*LIBRARIES, *PROGRAMS)), "--remount-ro", "/", "--", "sh", "-c", "exit 0"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"bubblewrap does not work here: it had not ended after {PROBE_LIMIT_S:g} s"
    except OSError as error:
        return f"bubblewrap does not work here: {error.strerror}"
    if tried.returncode == 0:
        return ""
    message = tried.stderr.strip().partition("\n")[0].removeprefix("bwrap: ")
    return f"bubblewrap does not work here: {message or f'exit status {tried.returncode}'}"


def _command(readable: Iterable[str | Path], temporary: bool = False) -> tuple[str, ...]:
    command = [shutil.which("bwrap") or "bwrap", *_ALONE, *(("--tmpfs", "/tmp") if temporary else ())]
    links: dict[Path, str] = {}
    found = dict.fromkeys(str(_followed(Path(path), links)) for path in readable if os.access(path, os.F_OK))
    for link, target in links.items():  # before the folders: a folder's own links come with it
        command += ["--symlink", target, str(link)]
    for path in found:
        command += ["--dev-bind-try" if path.startswith("/dev/") else "--ro-bind-try", path, path]
    return (*command, "--dir", "/empty")


def _followed(path: Path, links: dict[Path, str]) -> Path:
    """Return the resolved path, and add the links on it to `links`: resolved location of each, and its target text.

    Binding the unresolved path instead would make `..` after a link lead elsewhere than on this machine.
    """
    if path == path.parent:
        return path
    folder = _followed(path.parent, links)
    if path.name == "..":
        return folder.parent
    found = folder / path.name
    if not found.is_symlink():
        return found
    links[found] = os.fspath(found.readlink())
    return _followed(folder / links[found], links)
