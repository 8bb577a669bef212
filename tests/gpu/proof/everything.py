"""Run the proofs, side by side on as many GPUs as there are, and renew the page of results.

Each has a GPU for itself; the class comes last, with the machine for itself, because it needs all processor cores. Run
it on a machine with a GPU, with the package importable (about half an hour on one GPU, a quarter of one on two):

    python tests/gpu/proof/everything.py results
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue

from page import page

HERE = Path(__file__).parent
RESULTS = HERE.parents[2] / "docs" / "results-h200.md"
# In the page's order.
PROOFS: dict[str, tuple[str, ...]] = {
    "verdicts": ("verdicts.py",),
    "ladder": ("ladder.py",),
    "itself": ("itself.py",),
    "quiet": ("thresholds.py",),
    "hammer": ("thresholds.py", "--hammer"),
    "ncu": ("against_ncu.py",),
    "late_launches": ("late_launches.py",),
    "sequential": ("class_of_64.py", "--only-sequential"),
    "class": ("class_of_64.py", "--sequential", "{folder}/sequential.json"),
    "neighbours": ("neighbours.py",),
}
LONGEST_FIRST = ("hammer", "itself", "quiet", "neighbours", "verdicts", "sequential", "ncu", "late_launches", "ladder")
ALONE = ("class",)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="for what the proofs write and print")
    parser.add_argument("--only", nargs="*", choices=PROOFS, default=list(PROOFS), metavar="PROOF", help="not all")
    parser.add_argument("--gpus", nargs="*", default=None, help="as CUDA_VISIBLE_DEVICES takes them (default: all)")
    parser.add_argument("--page", type=Path, default=RESULTS, help="what to renew")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ended = run(options.only, gpus() if options.gpus is None else options.gpus, options.folder)
    written = (options.folder / f"{name}.json" for name in PROOFS if name in ended)
    proofs = [json.loads(path.read_text()) for path in written if path.exists()]
    options.page.write_text(page(proofs, options.page.read_text() if options.page.exists() else ""))
    return int(any(ended.values()))


def gpus() -> list[str]:
    """Return the GPUs that CUDA may use, as CUDA_VISIBLE_DEVICES takes them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return chosen.split(",")
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    return [str(number) for number, _ in enumerate(listed.splitlines())]


def run(names: Sequence[str], gpus: Sequence[str], folder: Path) -> dict[str, int]:
    """Run proofs and return their exit statuses: 0 if all bars are met, 1 if not, another one if it failed."""
    waiting: SimpleQueue[str] = SimpleQueue()
    for name in LONGEST_FIRST:
        if name in names:
            waiting.put(name)
    ended: dict[str, int] = {}
    with ThreadPoolExecutor(len(gpus)) as pool:
        for some in pool.map(lambda gpu: dict(_in_turn(waiting, gpu, folder)), gpus):
            ended |= some
    return ended | {name: _run(name, gpus[0], folder) for name in ALONE if name in names}


def _in_turn(waiting: SimpleQueue[str], gpu: str, folder: Path) -> Iterable[tuple[str, int]]:
    while True:
        try:
            name = waiting.get_nowait()
        except Empty:
            return
        yield name, _run(name, gpu, folder)


def _run(name: str, gpu: str, folder: Path) -> int:
    program, *arguments = (part.format(folder=folder.absolute()) for part in PROOFS[name])
    written = folder.absolute() / f"{name}.json"
    written.unlink(missing_ok=True)  # from an earlier run
    command = [sys.executable, str(HERE / program), *arguments, "--json", str(written)]
    begin_s = time.monotonic()
    with (folder / f"{name}.txt").open("w") as printed:
        status = subprocess.run(
            command, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu}, stdout=printed, stderr=subprocess.STDOUT
        ).returncode
    words = {0: "all bars are met", 1: "a bar is missed, or it failed"}.get(status, f"failed with {status}")
    print(f"{name}: {words}, after {time.monotonic() - begin_s:.0f} s; see {folder / name}.txt", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
