"""A platform's machine for tests: bubblewrap with the platform's folders, no network, no HOME and an unknown user.

The root is read-only except for the platform's folders and /tmp. pip finds the dependencies in a folder of links to
those of the tests, but not this package. Commands that change a system are stand-ins.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hang_guard import HANG_S

STAND_INS = ("apt-get", "useradd", "sudo")
PYTHON = """#!/bin/bash
# A virtual environment has the links instead of pip, which is among them.
if [[ " $* " == *" -m venv "* ]]; then
    {real} -I -m venv --without-pip "${{@: -1}}"
    echo {links} > "${{@: -1}}/lib/python{version}/site-packages/dependencies.pth"
else
    exec {real} "$@"
fi
"""
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass
class Machine:
    """A machine with folders of its own.

    Attributes:
        folder: the place of the machine's folders on this machine.
        mounts: top folders, such as /autograder.
        environment: variables of all commands.
    """

    folder: Path
    mounts: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for mount in self.mounts:
            self.path(mount).mkdir(parents=True)
        links = self.folder / "dependencies"
        links.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if "pytest_gpulab" not in path.name and path.suffix != ".pth":
                (links / path.name).symlink_to(path)
        (self.folder / "bin").mkdir()
        self.script("python3", PYTHON.format(real=sys.executable, links=links, version=VERSION))
        self.script("pytest", '#!/bin/bash\nexec python3 -m pytest "$@"\n')  # it is among the links
        for name in STAND_INS:
            self.script(name, "#!/bin/bash\n")

    def script(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def give_python(self, place: str, makes_further_ones: bool = False) -> None:
        """Make a fresh virtual environment the machine's Python; it can make further ones with the stand-in."""
        done = self.run(f"python3 -m venv {place}")
        assert done.returncode == 0, done.stderr
        startup = self.path(place) / "lib" / f"python{VERSION}" / "site-packages" / "stand_in.pth"
        if makes_further_ones:
            startup.write_text(f"import sys; sys.executable = {str(self.folder / 'bin/python3')!r}\n")
        self.environment["PATH"] = f"{place}/bin:{self.folder}/bin:/usr/bin:/bin"

    def path(self, place: str) -> Path:
        """The place of a file of the machine on this one."""
        return self.folder / "root" / place.lstrip("/")

    def run(self, command: str, folder: str = "/", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command line of bash."""
        words = ["bwrap", "--die-with-parent", "--unshare-user", "--uid", "1234", "--gid", "1234", *_system()]
        words += ["--unshare-net", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/var"]
        for visible in dict.fromkeys((sys.prefix, sys.base_prefix, str(self.folder))):
            words += ["--ro-bind", visible, visible]
        for mount in self.mounts:
            words += ["--bind", str(self.path(mount)), mount]
        given: Mapping[str, str] = {
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",  # a third of the modules is imported
            **self.environment,
            **variables,
        }
        words += ["--remount-ro", "/", "--chdir", folder, "--clearenv"]
        for name, value in given.items():
            words += ["--setenv", name, value]
        return subprocess.run(
            [*words, "bash", "-c", command], capture_output=True, text=True, timeout=HANG_S, check=False
        )


def _system() -> Iterator[str]:
    for path in sorted(Path("/").iterdir()):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.name in ("usr", "bin", "sbin", "lib", "lib64", "etc"):
            yield from ("--ro-bind", str(path), str(path))


def works() -> bool:
    """Whether bubblewrap works here."""
    words = ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"]
    try:
        return subprocess.run(words, capture_output=True, env=os.environ, check=False).returncode == 0
    except OSError:
        return False
