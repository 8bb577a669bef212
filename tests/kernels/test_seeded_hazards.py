"""Wrong kernels with a hazard get its line; that correct ones have none is a matter of the tests that grade them.

`// BUG: kind` marks the line of a kernel in `tests/wrong` where a hazard of that kind must be seen, whatever else is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product, zip_longest
from pathlib import Path

import pytest

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.compilation.builds import Builds
from pytest_gpulab.grading.expected import Expectations
from pytest_gpulab.grading.plans.prepare import make_plan, prepare, rng_for
from pytest_gpulab.grading.plans.replay import FIRST, Run, replay

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Catalogue(ROOT / "exercises")
WRONG = sorted(path for path in ROOT.glob("tests/wrong/*/*.cu") if path.parent.name != "reduction_host")  # programs
EXPECTED = Expectations.load(ROOT.glob("tests/wrong/*/expected.toml"))
KINDS = {
    "out-of-bounds": "memory",
    "misaligned": "memory",
    "race": "race",
    "uninitialised": "uninitialised",
    "barrier": "barrier",
    "deadlock": "barrier",
}
BUG = re.compile(r"// BUG: (\w+)$", re.M)
MARKED = [path for path in WRONG if BUG.search(path.read_text(encoding="utf-8"))]


def runs(path: Path) -> Iterator[Run]:
    """Yield watched runs: each case with its first input pattern, then with its second one, and so on."""
    loaded, device = CATALOGUE.load(path.parent.name), SimulatedDevice()
    builds = Builds(path, loaded, device)
    patterns = zip_longest(*(product([case], case.patterns) for case in loaded.exercise.cases))
    for case, pattern in filter(None, chain.from_iterable(patterns)):
        build = builds.of(case.variant)
        problem = case.problem(build.tunables)
        rng = rng_for(1, loaded.name, case.name)
        prepared = prepare(loaded.exercise, problem, make_plan(loaded.exercise, problem), pattern, rng)
        yield replay(device, build.module, prepared.plan, prepared.inputs, FIRST)
    device.close()


def seen(run: Run) -> Iterator[tuple[str, int]]:
    """Yield kind and line of everything unsafe in a run."""
    for hazard in run.hazards:
        if hazard.where and not hazard.harmless:
            yield hazard.kind, hazard.where.line
    if isinstance(run.error, KernelFault) and run.error.where:
        yield KINDS.get(run.error.code, run.error.code), run.error.where.line


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", MARKED, ids=named)
def test_seeded_bugs_are_seen_at_their_lines(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    unseen = {(found[1], number) for number, text in enumerate(lines, 1) if (found := BUG.search(text))}
    for run in runs(path):
        unseen -= set(seen(run))
        if not unseen:
            break
    assert not unseen


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_every_kernel_that_must_fail_for_a_hazard_is_marked(path: Path) -> None:
    expectation = EXPECTED.for_path(path)
    assert expectation is not None
    in_cases = {code for name, code in expectation.fails.items() if not name.startswith("speedup")}
    kinds = {KINDS[code] for code in in_cases if code in KINDS}
    assert kinds <= set(BUG.findall(path.read_text(encoding="utf-8")))


def test_each_kind_of_hazard_is_seeded() -> None:
    assert {kind for path in MARKED for kind in BUG.findall(path.read_text(encoding="utf-8"))} == {*KINDS.values()}


def test_the_baseline_that_is_not_called_naive_has_no_hazard_not_even_a_harmless_one() -> None:
    for run in runs(ROOT / "exercises" / "scan" / "blelloch.cu"):
        assert run.error is None
        assert run.hazards == ()
