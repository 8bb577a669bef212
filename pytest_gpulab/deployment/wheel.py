"""The plugin as a wheel, from its installed files, with the versions of all that it needs.

An instructor may have installed the plugin from a repository, from a wheel or in editable mode. The wheel has the files
that run here, so no package index must have this version.
"""

import base64
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import pytest_gpulab

DISTRIBUTION = "pytest-gpulab"
_KEPT = ("METADATA", "WHEEL", "entry_points.txt")
_TIME = (1980, 1, 1, 0, 0, 0)  # the same files give the same bytes


def wheel_name() -> str:
    """Return the file name of the wheel."""
    return f"pytest_gpulab-{pytest_gpulab.__version__}-py3-none-any.whl"


def wheel() -> bytes:
    """Return the wheel (PEP 427): the package's files, its metadata, and RECORD with their hashes."""
    info = f"pytest_gpulab-{pytest_gpulab.__version__}.dist-info"
    package = Path(pytest_gpulab.__file__).parent
    paths = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    contents = {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in paths}
    distribution = metadata.distribution(DISTRIBUTION)
    contents |= {f"{info}/{name}": (distribution.read_text(name) or "").encode() for name in _KEPT}
    lines = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in contents.items()]
    contents[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def python_version() -> str:
    """Return the version of Python that the constraints are for, such as 3.12."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def constraints() -> str:
    """Return the installed versions of all direct and indirect dependencies.

    Each is for this version of Python and for the older ones that it supports, such as that of a platform's image.
    """
    pins = sorted(f"{name}=={version}; {_pythons(name)}" for name, version in _dependencies(DISTRIBUTION, set()))
    return "".join(f"{pin}\n" for pin in pins)


def _pythons(name: str) -> str:
    stated = ",".join(metadata.metadata(name).get_all("Requires-Python", []))
    oldest = sorted(spec.version for spec in SpecifierSet(stated) if spec.operator == ">=")
    bounds = [f"python_version >= '{version}'" for version in oldest]
    return " and ".join([*bounds, f"python_version <= '{python_version()}'"])


def _dependencies(name: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        needed = canonicalize_name(requirement.name)
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if needed in seen or not is_wanted:
            continue
        seen.add(needed)
        try:
            version = metadata.version(needed)
        except metadata.PackageNotFoundError:  # optional, or for another system
            continue
        yield needed, version
        yield from _dependencies(needed, seen)
