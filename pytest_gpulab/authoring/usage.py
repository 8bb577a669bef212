"""Bounds of `uses` checks that an idle kernel passes: such a check gives points for nothing."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pytest_gpulab.devices.protocol import Device, LaunchOptions
from pytest_gpulab.exercise import Plan, Problem, Usage, UsesCheck
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, instructors_code, make_plan
from pytest_gpulab.grading.speed.costs import min_bytes
from pytest_gpulab.grading.usage.checks import kept

from .defects import Defect, of_finding
from .plans import tunables_of

IDLE = "__global__ void idle() {}"


def usage_problems(loaded: LoadedExercise, device: Device) -> Iterator[Defect]:
    """Measure every bound on launches of an idle kernel with the plan's grids and blocks."""
    where = str(loaded.folder / "exercise.py")
    tunables = tunables_of(loaded, device)
    for check in loaded.exercise.uses:
        try:
            problem = Problem(check.size, tunables[check.variant.name], check.variant)
            usage = idle_usage(device, make_plan(loaded.exercise, problem), problem, min_bytes(loaded, problem))
            with instructors_code(f"uses[{check.name}]"):
                is_met = met_by(check, usage)
        except InstructorsMistake as mistake:
            yield of_finding(mistake.finding, where)
            continue
        if is_met:
            what = f"uses[{check.name}] is passed by a kernel that does nothing of the kind"
            yield Defect(what, where, "Add a lower bound, such as concepts.shared_use(at_least=1).")


class _Counters(dict[str, float]):
    """Counters of which `get` has no default, so that it raises KeyError for a misspelt name, too."""

    def get(self, name: str, default: object = None) -> Any:
        """Return a counter."""
        return self[name]


def idle_usage(device: Device, plan: Plan, problem: Problem, least_bytes: float | None) -> Usage:
    """Return the counters of a plan with an idle kernel in every launch."""
    module, total = device.compile(IDLE), Counter[str]()
    for launch in plan.launches:
        profile = module.launch("idle", launch.grid, launch.block, (), 0, LaunchOptions(count=True, sample_blocks=1))
        total.update({name: value for name, value in profile.counters.items() if name.endswith(".sum")})
    return Usage(_Counters(total), {}, problem, least_bytes)


def met_by(check: UsesCheck, usage: Usage) -> bool:
    """Return True if a usage keeps all bounds of a check, without those for which no use at all is a good use."""
    bounds = [bound for bound in check.all_bounds if not bound.none_is_good]
    return bool(bounds) and all(kept(bound, bound.measure(usage)) for bound in bounds)
