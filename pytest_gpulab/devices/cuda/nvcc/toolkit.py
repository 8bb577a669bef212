"""Where nvcc's toolkit lies, and what nvcc needs to see of a machine: tried with a real translation."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_gpulab.devices.compiler.cache import Cache, key_of
from pytest_gpulab.devices.compiler.limits import Limits
from pytest_gpulab.devices.compiler.sandbox import LIBRARIES, PROGRAMS, Sandbox, none, sandbox

from .limits import limited

TRIAL_LIMIT_S = 60.0
_TRIAL = "#include <cstdio>\n#include <cuda_runtime.h>\n__global__ void trial() {}\n"
_ENVIRONMENT = ("PATH", "CPATH", "CPLUS_INCLUDE_PATH")
_PREFIXES = ("NVCC_", "PYCUDA_")
_HERE = re.compile(r"^#\$ _HERE_=(.+)$", re.MULTILINE)
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_INCLUDES = re.compile(r'^#\$ INCLUDES="-I([^"\n]+)"', re.MULTILINE)


def nvcc_sandbox(nvcc: str, headers: Path, limits: Limits, cache: Cache) -> Sandbox:
    """Return the sandbox that nvcc works in; none where bubblewrap or nvcc in it does not work.

    Args:
        nvcc: its path.
        headers: a folder with headers that may be included, too.
        limits: what it may take.
        cache: where to note that it worked, which takes half a second to find out.
    """
    within = sandbox((*LIBRARIES, *PROGRAMS, nvcc, *_toolkit(nvcc), headers), temporary=True)
    key = key_of(("sandbox", *within.bubblewrap, *told_by_environment()))
    if not within.bubblewrap or cache.get(key) is not None:
        return within
    refusal = _refusal(nvcc, limits, within)
    if refusal:
        return none(f"nvcc does not work in bubblewrap ({refusal})")
    cache.put(key, b"", "")
    return within


def told_by_environment() -> list[str]:
    """Return what the environment tells nvcc, on which depends what it makes of a text."""
    names = sorted(name for name in os.environ if name in _ENVIRONMENT or name.startswith(_PREFIXES))
    return [f"{name}={os.environ[name]}" for name in names]


def headers_of(nvcc: str) -> Path | None:
    """Return the folder of CUDA's headers; None where nvcc does not tell."""
    found = _INCLUDES.search(_described(nvcc))
    return Path(found[1]).resolve() if found else None


def _toolkit(nvcc: str) -> Iterator[str]:
    """Yield what nvcc reads, by the names that it uses: its profile, which may be a link, and the folder of it all."""
    told = _described(nvcc)
    for found, name in ((_HERE.search(told), "/nvcc.profile"), (_TOP.search(told), "")):
        if found:
            yield found[1] + name


@lru_cache(maxsize=1)
def _described(nvcc: str) -> str:
    """Ask nvcc what it would do: it may be a link, or a script that starts another one."""
    command = [nvcc, "--dryrun", "--cubin", "trial.cu"]
    try:
        with TemporaryDirectory(prefix="gpulab-") as name:  # a script may well write where it is
            return subprocess.run(
                command, cwd=name, capture_output=True, text=True, timeout=TRIAL_LIMIT_S, check=False
            ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _refusal(nvcc: str, limits: Limits, within: Sandbox) -> str:
    """Say why nvcc does not work in a sandbox; empty where it does."""
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
