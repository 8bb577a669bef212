"""Plans against the sources: kernels, parameters, constants, and the use of every buffer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Plan
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, variants_of
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, instructors_code, make_plan

from .defects import Defect, of_finding


def skeleton_of(loaded: LoadedExercise) -> Path:
    """Return the path of the students' skeleton."""
    return loaded.folder / f"{loaded.name}.cu"


def baselines_of(loaded: LoadedExercise) -> dict[str, Path]:
    """Return the baselines by name, `naive.cu` first."""
    names = dict.fromkeys(["naive.cu", *(tier.baseline for tier in loaded.exercise.speed)])
    return {name: loaded.folder / name for name in names}


def source_problems(loaded: LoadedExercise, device: Device) -> Iterator[Defect]:
    """Compile baselines and skeleton as every variant, and compare them with the plans."""
    for path in baselines_of(loaded).values():
        yield from _compiled(loaded, device, path, "the baseline")
    skeleton = skeleton_of(loaded)
    if not skeleton.is_file():
        yield Defect("there is no skeleton for students", str(skeleton), "Write it, with a line GPULAB_TODO(kernel);")
        return
    verdict, line = _state(loaded, device, skeleton)
    if verdict == "passed":
        yield Defect(
            "the skeleton counts as a finished submission", str(skeleton), "Add GPULAB_TODO(kernel); at file scope."
        )
    elif verdict == "not started":
        yield from _compiled_when_started(loaded, device, skeleton, line)
    else:
        yield from _compiled(loaded, device, skeleton, "the skeleton")


def tunables_of(loaded: LoadedExercise, device: Device) -> Mapping[str, Mapping[str, int]]:
    """Return the tunables of `naive.cu` by variant; the first allowed values for a variant without a build."""
    exercise, builds = loaded.exercise, Builds(loaded.folder / "naive.cu", loaded, device)
    first = {t.name: t.allowed[0] if t.default is None else t.default for t in exercise.tunables}
    found = dict[str, Mapping[str, int]]()
    for variant in (*variants_of(exercise), *(check.variant for check in exercise.uses)):
        try:
            found[variant.name] = builds.of(variant).tunables
        except BuildFailed:
            found[variant.name] = first
    return found


def buffer_use(loaded: LoadedExercise, plan: Plan) -> Iterator[Defect]:
    """Yield the buffers of a plan that no launch and no constant uses, and a plan without outputs."""
    where = str(loaded.folder / "exercise.py")
    used = {argument for launch in plan.launches for argument in launch.args if isinstance(argument, str)}
    for buffer in plan.buffers:
        if buffer.name not in used | set(plan.constants.values()):
            yield Defect(f"no launch of the plan uses the buffer {buffer.name!r}", where, "Pass it, or remove it.")
    if not any(buffer.role == "output" for buffer in plan.buffers):
        yield Defect("the plan has no output buffer, so that every kernel is correct", where)
    if not plan.launches:
        yield Defect("the plan has no launch", where)


def plan_problems(loaded: LoadedExercise, device: Device) -> Iterator[Defect]:
    """Make the plan of every case and every size of `uses` and `speedup` checks."""
    exercise, seen = loaded.exercise, set[str]()
    tunables = tunables_of(loaded, device)
    for case in exercise.cases:
        try:
            with instructors_code("size"):
                problem = case.problem(tunables[case.variant.name])
            plan = make_plan(exercise, problem)
        except InstructorsMistake as mistake:
            defect = of_finding(mistake.finding, str(loaded.folder / "exercise.py"))
            yield Defect(f"{defect.what} (in case {case.name!r})", defect.where)
            return  # the same mistake in other cases would only repeat it
        for unused in buffer_use(loaded, plan):
            if unused.what not in seen:
                seen.add(unused.what)
                yield unused


def _compiled(loaded: LoadedExercise, device: Device, path: Path, what: str) -> Iterator[Defect]:
    if not path.is_file():
        yield Defect(f"{what} {path.name} does not exist", str(path))
        return
    builds = Builds(path, loaded, device)
    try:
        made = [builds.of(variant) for variant in variants_of(loaded.exercise)]
    except BuildFailed as failed:
        found = failed.finding
        if failed.verdict == "not gradable":
            yield of_finding(found, str(path))
        else:
            shown = " ".join(found.evidence[:1])
            place = f"{path}{found.where.removeprefix(path.name)}"  # a finding names the file without its folder
            yield Defect(f"{what} does not fit the plan: {found.what}", place, shown)
        return
    for asked, kernel in sorted({pair for build in made for pair in build.chosen.items()}):
        what = f"{what} does not fit the plan: there is no kernel called `{asked}`"
        yield Defect(what, str(path), f"Its kernel `{kernel}` has the parameters: rename it, or the plan's launch.")


def _state(loaded: LoadedExercise, device: Device, path: Path) -> tuple[str, int]:
    """Return the verdict on a file's compilation, and the line of its GPULAB_TODO, 0 without one."""
    try:
        Builds(path, loaded, device).of_all(variants_of(loaded.exercise))
    except BuildFailed as failed:
        line = failed.finding.where.rpartition(":")[2]
        return failed.verdict, int(line) if line.isdigit() else 0
    return "passed", 0


def _compiled_when_started(loaded: LoadedExercise, device: Device, path: Path, line: int) -> Iterator[Defect]:
    """Compare the skeleton without its GPULAB_TODO lines with the plans."""
    lines = path.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        verdict = "not started"
        while verdict == "not started" and 0 < line <= len(lines):
            lines[line - 1] = ""
            copy.write_text("\n".join(lines) + "\n", encoding="utf-8")
            verdict, line = _state(loaded, device, copy)
        for problem in _compiled(loaded, device, copy, "the skeleton"):
            yield Defect(problem.what, problem.where.replace(str(copy), str(path)), problem.instead)
