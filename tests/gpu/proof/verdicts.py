"""All solutions earn their points and all wrong kernels their verdicts on the GPU, several runs in a row.

Each run has a fresh seed. Run it on a machine with a GPU, with the package importable:

    python tests/gpu/proof/verdicts.py --json verdicts.json
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from figures import ROOT, Proof, arguments

TESTS = "tests/gpu/test_verdicts.py"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    runs = "1 run" if options.runs == 1 else f"{options.runs} runs in a row"
    proof = Proof(f"All verdicts, {runs}")
    for number in range(1, options.runs + 1):
        begin_s = time.perf_counter()
        counts, wrong = _run()
        took_s = time.perf_counter() - begin_s
        good = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
        value = f"{good} of {counts['tests']} as stated, in {took_s:.0f} s"
        proof.figure(f"run {number}: solutions and wrong kernels", value, "all", good == counts["tests"] > 0)
        proof.records[f"run {number}"] = wrong
        print(f"run {number}: {value}", *wrong, sep="\n", flush=True)
        proof.keep(options.json)
    return proof.finish(options.json)


def _run() -> tuple[dict[str, int], list[str]]:
    """Return how many tests there were and what became of them, and the names of those that did not pass."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            TESTS,
        ]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    return counts, [case.get("name", "") for case in suite.iter("testcase") if len(case)]


if __name__ == "__main__":
    sys.exit(main())
