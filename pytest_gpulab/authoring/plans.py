"""Plans against the sources: kernels, parameters, constants, and the use of every buffer."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.devices.source.host_code import encoding_of
from pytest_gpulab.devices.source.tokens import tokens
from pytest_gpulab.exercise import Case, Exercise, Plan, Problem, SpeedTier, UsesCheck
from pytest_gpulab.exercise_rules import NAIVE
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, variants_of
from pytest_gpulab.grading.compilation.signature import declarations
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, instructors_code, make_plan

from .defects import Defect, of_finding

TODO = re.compile(r"\bGPULAB_TODO\s*\(\s*(?P<kernel>\w+)\s*\)\s*;?")


def skeleton_of(loaded: LoadedExercise) -> Path:
    """Return the path of the students' skeleton."""
    return loaded.folder / f"{loaded.name}.cu"


def baselines_of(loaded: LoadedExercise) -> dict[str, Path]:
    """Return the baselines by name, `naive.cu` first."""
    names = dict.fromkeys([NAIVE, *(tier.baseline for tier in loaded.exercise.speed)])
    return {name: loaded.folder / name for name in names}


def text_of(path: Path) -> str:
    """Return the text of a source, which may be in Latin-1 as a submission may be."""
    contents = path.read_bytes()
    return contents.decode(encoding_of(contents))


def source_problems(loaded: LoadedExercise, device: Device) -> Iterator[Defect]:
    """Compile baselines and skeleton as every variant, and compare them with the plans."""
    for path in baselines_of(loaded).values():
        yield from _compiled(loaded, device, path, "the baseline")
    skeleton = skeleton_of(loaded)
    if not skeleton.is_file():
        yield Defect("there is no skeleton for students", str(skeleton), "Write it, with a line GPULAB_TODO(kernel);")
        return
    verdict = _verdict(loaded, device, skeleton)
    if verdict == "passed":
        marks = " ".join(f"GPULAB_TODO({name});" for name in sorted(kernels_of(loaded, device)))
        yield Defect("the skeleton counts as a finished submission", str(skeleton), f"Add at file scope: {marks}")
    elif verdict == "not started":
        yield from _misspelt_marks(loaded, device, skeleton)
        yield from _compiled_when_started(loaded, device, skeleton)
    else:
        yield from _compiled(loaded, device, skeleton, "the skeleton")


def tunables_of(loaded: LoadedExercise, device: Device) -> Mapping[str, Mapping[str, int]]:
    """Return the tunables of `naive.cu` by variant; the first allowed values for a variant without a build."""
    exercise, builds = loaded.exercise, Builds(loaded.folder / NAIVE, loaded, device)
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
            yield replace(defect, what=f"{defect.what} (in case {case.name!r})")
            return  # the same mistake in other cases would only repeat it
        for unused in buffer_use(loaded, plan):
            if unused.what not in seen:
                seen.add(unused.what)
                yield unused


def kernels_of(loaded: LoadedExercise, device: Device) -> set[str]:
    """Return the kernels that the plans of the cases launch; `plan_problems` must have found no error."""
    tunables = tunables_of(loaded, device)
    problems = [case.problem(tunables[case.variant.name]) for case in loaded.exercise.cases]
    return {launch.kernel for problem in problems for launch in make_plan(loaded.exercise, problem).launches}


def tunable_problems(loaded: LoadedExercise, device: Device) -> Iterator[Defect]:
    """Make every plan with the smallest and the largest value that each tunable allows.

    The others have the baseline's values, or their smallest: some values only go together with some of the others.
    """
    exercise, own = loaded.exercise, tunables_of(loaded, device)
    smallest = {tunable.name: min(tunable.allowed) for tunable in exercise.tunables}
    checks: list[Case | UsesCheck | SpeedTier] = [*exercise.cases, *exercise.uses, *exercise.speed]
    for tunable in exercise.tunables:
        for value in dict.fromkeys((min(tunable.allowed), max(tunable.allowed))):
            for check in checks:
                baselines = own[check.variant.name]
                chosen = ({**others, tunable.name: value} for others in (baselines, smallest))
                reasons = [_why_no_plan(exercise, check, tunables) for tunables in chosen]
                if all(reasons) and not _why_no_plan(exercise, check, baselines):
                    what = f"Tunable({tunable.name!r}) allows {value}, with which there is no plan: {reasons[0]}"
                    yield Defect(what, str(loaded.folder / "exercise.py"), f"Leave {value} out of `allowed`.")
                    break  # the same value in other checks would only repeat it


def _why_no_plan(exercise: Exercise, check: Case | UsesCheck | SpeedTier, tunables: Mapping[str, int]) -> str:
    """Return the reason why a check has no plan for some values of the tunables; empty if it has one."""
    try:
        with instructors_code("size"):
            size = check.problem(tunables).size if isinstance(check, Case) else check.size
        problem = Problem(size, tunables, check.variant)
        make_plan(exercise, problem)
    except InstructorsMistake as mistake:
        return str(mistake.__cause__ or mistake)
    return ""


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
            is_missing = found.code == "tunable-missing"  # its hint is for instructors, too
            shown = found.hint if is_missing and found.hint else " ".join(found.evidence[:1])
            place = f"{path}{found.where.removeprefix(path.name)}"  # a finding names the file without its folder
            yield Defect(f"{what} does not fit the plan: {found.what}", place, shown)
        return
    yield from _undeclared(loaded, path)
    for missing, kernel in sorted({pair for build in made for pair in build.chosen.items()}):
        what = f"{what} does not fit the plan: there is no kernel called `{missing}`"
        yield Defect(what, str(path), f"Its kernel `{kernel}` has the parameters: rename it, or the plan's launch.")


def _verdict(loaded: LoadedExercise, device: Device, path: Path) -> str:
    """Return the verdict on a file's compilation."""
    try:
        Builds(path, loaded, device).of_all(variants_of(loaded.exercise))
    except BuildFailed as failed:
        return failed.verdict
    return "passed"


def _compiled_when_started(loaded: LoadedExercise, device: Device, path: Path) -> Iterator[Defect]:
    """Compare the skeleton without its GPULAB_TODO lines with the plans."""
    with started(path) as copy:
        for problem in _compiled(loaded, device, copy, "the skeleton"):
            yield replace(problem, where=problem.where.replace(str(copy), str(path)))


@contextmanager
def started(skeleton: Path) -> Iterator[Path]:
    """Write a copy of a skeleton without its GPULAB_TODO lines, with the same line numbers; remove it afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / skeleton.name
        copy.write_text(TODO.sub("", text_of(skeleton)), encoding="utf-8")
        yield copy


def _misspelt_marks(loaded: LoadedExercise, device: Device, skeleton: Path) -> Iterator[Defect]:
    """Yield the GPULAB_TODO lines that name no kernel of the plans; students read the name in a message."""
    text, kernels = text_of(skeleton), kernels_of(loaded, device)
    for mark in TODO.finditer(text):
        if mark["kernel"] not in kernels:
            line = text.count("\n", 0, mark.start()) + 1
            instead = "Write " + " or ".join(f"GPULAB_TODO({name});" for name in sorted(kernels))
            what = f"GPULAB_TODO({mark['kernel']}) names no kernel of the plan"
            yield Defect(what, f"{skeleton}:{line}", instead, level="warning")


def _undeclared(loaded: LoadedExercise, path: Path) -> Iterator[Defect]:
    """Yield the required tunables that a file declares by a macro or constant: students read and copy the file."""
    words = tokens(text_of(path))
    for tunable in loaded.exercise.tunables:
        if tunable.default is None and not any(declarations(words, tunable.name)):
            instead = f"Write GPULAB_TUNABLE({tunable.name}, value) in its place: students copy this line."
            yield Defect(f"{tunable.name} is not declared as a tunable", str(path), instead, level="warning")


def solution_in(skeleton: Path, solutions: Path) -> Path | None:
    """Return a solution that the skeleton contains; comments, blanks and GPULAB_TODO lines do not matter."""
    return next((path for path in sorted(solutions.glob("*.cu")) if _code(path) == _code(skeleton)), None)


def _code(path: Path) -> list[str]:
    text = TODO.sub("", path.read_text(encoding="utf-8", errors="replace"))
    return [word.text for token in tokens(text) for word in (token, *token.within)]
