"""The toolkit's folders, and the sandbox for nvcc, tested with a real compilation."""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_gpulab.devices.compiler.cache import Cache, key_of
from pytest_gpulab.devices.compiler.sandbox import LIBRARIES, PROGRAMS, Limits, Sandbox, none, sandbox

from .limits import limited

TRIAL_LIMIT_S = 60.0
_TRIAL = "#include <cstdio>\n#include <cuda_runtime.h>\n__global__ void trial() {}\n"
_ENVIRONMENT = ("PATH", "CPATH", "CPLUS_INCLUDE_PATH")
_PREFIXES = ("NVCC_", "PYCUDA_")
_HERE = re.compile(r"^#\$ _HERE_=(.+)$", re.MULTILINE)
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_INCLUDES = re.compile(r'^#\$ INCLUDES="-I([^"\n]+)"', re.MULTILINE)


def nvcc_sandbox(nvcc: str, headers: Path, limits: Limits, cache: Cache) -> Sandbox:
    """Return a sandbox for nvcc with a folder of headers; none if bubblewrap, or nvcc in it, does not work.

    The cache records a successful test, which takes half a second.
    """
    within = sandbox((*LIBRARIES, *PROGRAMS, nvcc, *_toolkit(nvcc), headers), temporary=True)
    key = key_of(("sandbox", *within.bubblewrap, *environment_settings()))
    if not within.bubblewrap or cache.get(key) is not None:
        return within
    refusal = _refusal(nvcc, limits, within)
    if refusal:
        return none(f"nvcc does not work in bubblewrap ({refusal})")
    cache.put(key, b"", "")
    return within


def environment_settings() -> list[str]:
    """Return the environment variables that influence nvcc's result."""
    names = sorted(name for name in os.environ if name in _ENVIRONMENT or name.startswith(_PREFIXES))
    return [f"{name}={os.environ[name]}" for name in names]


def headers_of(nvcc: str) -> Path | None:
    """Return the folder of CUDA's headers; None if unknown."""
    found = _INCLUDES.search(_dry_run(nvcc))
    return Path(found[1]).resolve() if found else None


def tools_of(nvcc: str) -> Path:
    """Return the folder of nvcc's tools, such as ptxas: a toolkit's headers are elsewhere than those of the wheels."""
    found = _HERE.search(_dry_run(nvcc))
    return Path(found[1]).resolve() if found else Path(nvcc).resolve().parent


def _toolkit(nvcc: str) -> Iterator[str]:
    """Yield the paths that nvcc reads, as it names them: its profile, which may be a link, and the toolkit's folder."""
    output = _dry_run(nvcc)
    for found, name in ((_HERE.search(output), "/nvcc.profile"), (_TOP.search(output), "")):
        if found:
            yield found[1] + name


@lru_cache(maxsize=1)
def _dry_run(nvcc: str) -> str:
    """Return the output of a dry run: `nvcc` may be a link, or a script that starts another nvcc."""
    command = [nvcc, "--dryrun", "--cubin", "trial.cu"]
    try:
        with TemporaryDirectory(prefix="gpulab-") as name:  # a script may write to its working folder
            return subprocess.run(
                command, cwd=name, capture_output=True, text=True, timeout=TRIAL_LIMIT_S, check=False
            ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _refusal(nvcc: str, limits: Limits, within: Sandbox) -> str:
    """Return the reason why nvcc fails in a sandbox; empty if it works."""
    with TemporaryDirectory(prefix="gpulab-") as name:
        folder = Path(name).resolve()
        (folder / "trial.cu").write_text(_TRIAL)
        command = [limited(nvcc, folder, limits, within), "--cubin", "trial.cu"]
        try:
            done = subprocess.run(command, cwd=name, capture_output=True, text=True, timeout=TRIAL_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"it had not ended after {TRIAL_LIMIT_S:g} s"
    said = done.stderr.strip().partition("\n")[0]
    return "" if done.returncode == 0 else said or f"exit status {done.returncode}"
