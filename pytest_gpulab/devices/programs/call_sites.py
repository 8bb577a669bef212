"""Source lines of calls in an executable, by g++'s own addr2line."""

import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pytest_gpulab.devices.errors import SourceLine

_ADDRESS = re.compile(r"0x[0-9a-f]+$")
_PLACE = re.compile(r"(/.+):(\d+)(?: \(discriminator \d+\))?$")


def source_lines(
    executable: Path, addresses: Collection[int], headers: Path, within: Sequence[str] = ()
) -> Mapping[int, SourceLine]:
    """Return the source line of each call, as far as it is known, by its return address relative to the executable.

    A call in a header of CUDA's folder `headers` is that of the function that includes it. `within` is the beginning of
    the command line, for a sandbox.
    """
    if not addresses:
        return {}
    ordered = sorted(addresses)
    command = [*within, "addr2line", "-e", str(executable), "-i", "-a", *(hex(address - 1) for address in ordered)]
    try:
        output = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[int, SourceLine] = {}
    inside = str(headers.parent)
    at = -1
    for line in output.splitlines():
        if _ADDRESS.match(line):
            at += 1
        elif (place := _PLACE.match(line)) and ordered[at] not in found:
            file = str(Path(place[1]).resolve())
            if not file.startswith(inside):
                found[ordered[at]] = SourceLine(file, int(place[2]))
    return found
