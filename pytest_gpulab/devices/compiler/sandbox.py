"""What a compiler may see of this machine: its own files and what it is to compile, through bubblewrap where it works.

bubblewrap (the command `bwrap`) gives a program its own view of the file system, which holds what it was given and
nothing else, no network, and processes of its own, which end with it. It needs namespaces that an ordinary user may
make; many containers forbid them. Whether it works is tried, once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PROTECTION = "compiled under"  # what a report calls it
PROBE_LIMIT_S = 10.0
# Shared libraries and how the system finds them; what is missing is left out.
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/null")
# For programs that start others, a C compiler among them.
PROGRAMS = ("/bin", "/usr/bin", "/usr/include", "/usr/libexec", "/etc/alternatives")
_ALONE = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


@dataclass(frozen=True)
class Sandbox:
    """What a program is started under.

    Attributes:
        words: which protection there is and, if it is none, why.
        bubblewrap: its command line until now; empty where there is none.
    """

    words: str
    bubblewrap: tuple[str, ...] = ()

    def before(self, *options: str) -> tuple[str, ...]:
        """Return what to put before a program's command line.

        Args:
            options: further ones of bubblewrap, `--chdir` among them; without any, an empty folder is worked in.
        """
        if not self.bubblewrap:
            return ()
        return (*self.bubblewrap, *(options or ("--chdir", "/empty")), "--remount-ro", "/", "--")


def none(why: str) -> Sandbox:
    """Return a sandbox that is none, for a reason."""
    return Sandbox(f"limits only: {why}")


def sandbox(readable: Iterable[str | Path], temporary: bool = False) -> Sandbox:
    """Return a sandbox if bubblewrap works here; else none, and why.

    Args:
        readable: absolute paths of folders and files that may be read there; what is missing is left out. Where links
            lead to them these are there, too, but nothing else of the folders that they lie in.
        temporary: whether there is a folder /tmp, empty at first; nowhere else can anything be written.
    """
    why = refusal()
    return none(why) if why else Sandbox("bubblewrap and limits", _command(readable, temporary))


@lru_cache(maxsize=1)
def refusal() -> str:
    """Say why bubblewrap does not work here, having tried; empty where it does."""
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
    said = tried.stderr.strip().partition("\n")[0].removeprefix("bwrap: ")
    return f"bubblewrap does not work here: {said or f'exit status {tried.returncode}'}"


def _command(readable: Iterable[str | Path], temporary: bool = False) -> tuple[str, ...]:
    command = [shutil.which("bwrap") or "bwrap", *_ALONE, *(("--tmpfs", "/tmp") if temporary else ())]
    links: dict[Path, str] = {}
    found = dict.fromkeys(str(_followed(Path(path), links)) for path in readable if os.access(path, os.F_OK))
    for link, target in links.items():  # before the folders: one that holds a link brings it along
        command += ["--symlink", target, str(link)]
    for path in found:
        command += ["--dev-bind-try" if path.startswith("/dev/") else "--ro-bind-try", path, path]
    return (*command, "--dir", "/empty")


def _followed(path: Path, links: dict[Path, str]) -> Path:
    """Return what a path leads to, and note the links on the way: where each lies, without links, and what it says.

    bubblewrap could show it by its own name, but then that name with `..` behind it leads elsewhere than here.
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
