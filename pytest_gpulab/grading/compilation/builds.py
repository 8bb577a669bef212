"""The builds of a source file: a compiled module per variant, or the reason why there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_gpulab.devices.protocol import (
    CompileError,
    Device,
    DeviceError,
    Memory,
    Module,
    PrefetchingDevice,
    at_work_on,
)
from pytest_gpulab.devices.source.host_code import DeviceText, device_text
from pytest_gpulab.exercise import BlockTooLarge, Case, Exercise, Plan, SpeedTier, Variant
from pytest_gpulab.exercise_rules import MAX_BLOCK_THREADS
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.signature import check_limits, compare, named_kernels, with_defined_tunables
from pytest_gpulab.grading.findings import finding, joined, of_error
from pytest_gpulab.grading.grade import Finding, Verdict
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, header_texts, make_plan, problem_of
from pytest_gpulab.grading.time_limits import TIME_LIMIT, TimeBudget, TimeLimits, limited

from .includes import accepted_text, changed_header, read_source
from .parameter_types import with_type_macros
from .signature import TUNABLE_BYTES, read_tunables

if TYPE_CHECKING:
    from pytest_gpulab.grading.plans.parameter_names import Names, Scene

UNFIT = ("wrong-signature", "missing-kernel", "tunable-missing")  # of a file that may fit another variant
LONG = "Do templates, macros or unrolled loops expand too far? A usual file compiles in a second."
TODO_PREFIX = "gpulab_todo_"
Defines = tuple[tuple[str, str], ...]
VariantKey = tuple[str, Defines]
Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Build:
    """A compiled module that fits the exercise's plans."""

    module: Module
    tunables: Mapping[str, int]  # the submission's values
    source: str = ""  # the compiled text
    # kernels of the exercise to those of the file, where the names differ
    chosen: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> Names:
        """The names of each kernel's parameters, as far as known."""
        names = _names_in(self.source)
        return {**names, **{asked: names[kernel] for asked, kernel in self.chosen.items() if kernel in names}}

    def scene(self, plan: Plan, memories: Mapping[str, Memory]) -> Scene:
        """Return the names for the hazards of a replay; see `replay`."""
        from pytest_gpulab.grading.plans.parameter_names import Scene, vector_arrays

        return Scene(plan, memories, self.parameters, vector_arrays(self.source))


class BuildFailed(Exception):
    """There is no module to launch; `fits_others` says if the file can be graded as other variants of the exercise."""

    def __init__(self, verdict: Verdict, finding: Finding, fits_others: bool = False) -> None:
        super().__init__(finding.what)
        self.verdict: Verdict = verdict
        self.finding, self.fits_others = finding, fits_others

    def __reduce__(self) -> tuple[type[BuildFailed], tuple[Any, ...]]:
        return BuildFailed, (self.verdict, self.finding, self.fits_others)  # it passes between processes


def made_once(made: dict[Key, Made | BuildFailed], key: Key, make: Callable[[], Made]) -> Made:
    """Return the cached value of a key, or make it; a BuildFailed is cached and raised again, too."""
    if key not in made:
        try:
            made[key] = make()
        except BuildFailed as blocked:
            made[key] = blocked
    found = made[key]
    if isinstance(found, BuildFailed):
        raise BuildFailed(found.verdict, found.finding, found.fits_others)
    return found


class Builds:
    """The builds of one source file for an exercise on a device, each compiled once, within the time of the file."""

    def __init__(self, path: Path, loaded: LoadedExercise, device: Device, budget: TimeBudget | None = None) -> None:
        self.path, self.loaded, self.device = path, loaded, device
        self.budget = budget or TimeBudget(TimeLimits())
        self._made: dict[VariantKey, Build | BuildFailed] = {}
        self._compiled: dict[Defines, Module] = {}
        self._source: str | BuildFailed
        try:
            contents = read_source(path)
        except OSError as error:
            self.sha256 = ""
            self._source = BuildFailed("failed", finding("empty-source", f"The file cannot be read: {error.strerror}."))
        else:
            self.sha256 = hashlib.sha256(contents).hexdigest()  # hash of the file's bytes; empty if it cannot be read
            text = accepted_text(contents, path.name)
            self._source = text if isinstance(text, str) else BuildFailed("failed", text)
        if isinstance(self._source, str):
            self._lines = self._source.count("\n") + 1
            names = [tunable.name for tunable in loaded.exercise.tunables]
            self._source = with_defined_tunables(self._source, names)

    @property
    def source(self) -> str:
        """The file's text; empty if it cannot be read or compiled."""
        return self._source if isinstance(self._source, str) else ""

    @property
    def code(self) -> DeviceText:
        """The file's device code; empty if the file cannot be read or compiled."""
        return device_text(self.source, _headers(self.loaded))

    def notes(self) -> tuple[Finding, ...]:
        """Return notes on the file; all variants must be compiled."""
        from . import compile_notes

        exercise, found = self.loaded.exercise, compile_notes.host_code_note(self.code, self.path.name)
        built = [made for made in self._made.values() if isinstance(made, Build)]
        if built:
            found += compile_notes.chosen_kernels([build.chosen for build in built])
            found += compile_notes.unread_macros(self.code, _headers(self.loaded), variants_of(exercise))
            found += compile_notes.unread_tunables(self.code, _headers(self.loaded), exercise, built[0].tunables)
            found += compile_notes.other_constants(self.code, exercise, built[0].tunables)
        unfit = [failed for failed in self._made.values() if isinstance(failed, BuildFailed) and failed.fits_others]
        if unfit:
            names = [name for (name, _), made in self._made.items() if isinstance(made, Build)]
            found += compile_notes.own_type(unfit[0].finding, names)
        return tuple(found)

    @property
    def logs(self) -> tuple[str, ...]:
        """The compiler's messages for each module so far."""
        return tuple(module.log for module in self._compiled.values())

    def block(self, found: Finding) -> None:
        """Record that the compilation failed in another process; nothing is compiled from now on."""
        self._source = BuildFailed("failed", found)

    def of(self, variant: Variant) -> Build:
        """Return the build of a variant, or raise BuildFailed, which is cached."""
        try:
            return made_once(self._made, variant_key(variant), partial(self._make, variant))
        except BuildFailed as failed:
            if failed.finding.code not in UNFIT or failed.fits_others:
                raise
            fits_others = self._fits_another(variant)
            first = self._made[variant_key(variants_of(self.loaded.exercise)[0])]
            if not fits_others and isinstance(first, BuildFailed):
                failed = first  # one reason for all variants
            made = BuildFailed(failed.verdict, failed.finding, fits_others)
            self._made[variant_key(variant)] = made
            raise made from None

    def has(self, variant: Variant) -> bool:
        """Return whether a variant has been compiled, with success."""
        return isinstance(self._made.get(variant_key(variant)), Build)

    def _fits_another(self, variant: Variant) -> bool:
        """Return whether the file can be graded as another variant, as a kernel for one type can."""
        variants = variants_of(self.loaded.exercise)
        self._look_ahead(variants)
        return sum(self._is_built(other) for other in variants if variant_key(other) != variant_key(variant)) > 0

    def _is_built(self, variant: Variant) -> bool:
        with suppress(BuildFailed):
            made_once(self._made, variant_key(variant), partial(self._make, variant))
            return True
        return False

    def of_all(self, variants: Sequence[Variant]) -> None:
        """Compile all variants, in parallel if the device can; raise BuildFailed if one of them has no build, see `of`.

        The first one is compiled alone: a file that does not compile as one variant hardly compiles as another. A
        kernel that fits some of the variants raises nothing.
        """
        for variant in variants[:1]:
            self._of_own_type(variant)
        others = variants[1:]
        self._look_ahead(others)
        if not others:
            return
        with at_work_on(self.device):  # once, before all of them are loaded
            for variant in others:
                self._of_own_type(variant)

    def _of_own_type(self, variant: Variant) -> None:
        try:
            self.of(variant)
        except BuildFailed as failed:
            if not failed.fits_others:
                raise

    def _look_ahead(self, variants: Sequence[Variant]) -> None:
        missing = {variant_key(variant)[1]: dict(variant.defines) for variant in variants}
        unmade = [defines for key, defines in missing.items() if key not in self._compiled]
        if unmade and isinstance(self._source, str) and isinstance(self.device, PrefetchingDevice):
            try:
                self.device.compile_ahead(self._source, self.path.name, unmade, _headers(self.loaded))
            except DeviceError as error:
                raise BuildFailed(*of_error(error)) from error

    def _make(self, variant: Variant) -> Build:
        if isinstance(self._source, BuildFailed):
            raise self._source
        if self.budget.ends_builds:
            what = f"Time limit: {self.budget.used_up}"
            raise BuildFailed("failed", finding(TIME_LIMIT, what, hint=LONG))
        try:
            if changed := changed_header(self._source, _headers(self.loaded), self.path.name):
                raise BuildFailed("failed", changed)
            with self.budget.charging(is_launch=False):
                module = self._compile(self._source, variant)
                _check_started(module, self.path.name)
                build = self._fitted(self._source, module, variant)
        except CompileError as error:
            raise BuildFailed(*self._why_not_compiled(error, self._source)) from error
        except DeviceError as error:
            raise BuildFailed(*of_error(error)) from error
        except InstructorsMistake as mistake:
            raise BuildFailed("not gradable", mistake.finding) from mistake
        is_simulated = self.device.info.kind == "simulated"  # a real GPU is stopped by killing its process
        return replace(build, module=limited(build.module, self.budget)) if is_simulated else build

    def _instantiated(self, source: str, variant: Variant, plans: Iterable[Plan], module: Module) -> tuple[str, Module]:
        """Return a text with instances of kernel templates for the plans' launches, and its module."""
        from .deduced_instances import with_instances

        headers = _headers(self.loaded)
        launches = {each.kernel: (plan, each) for plan in plans for each in plan.launches}
        more = with_instances(source, headers, launches.values(), named_kernels(module, launches))
        return more, self.device.compile(more, self.path.name, dict(variant.defines), headers)

    def _fitted(self, source: str, module: Module, variant: Variant) -> Build:
        """Return the build of a module that the plans can launch, if need be by other names of its kernels."""
        tunables, problems = read_tunables(module, self.loaded.exercise.tunables, self.code.host_names)
        plans, names = _plans(self.loaded.exercise, variant, tunables), partial(_names_in, source)
        elsewhere, is_first = partial(_kernels, self.loaded.exercise, tunables), source == self._source
        compared = compare(module, plans, self.code, names, elsewhere, has_all_instances=not is_first)
        if is_first and compared.lacks_kernel and self.code.kernel_templates:
            return self._fitted(*self._instantiated(source, variant, plans, module), variant)
        if problems or compared.problems:
            defines = (each.defines for each in variants_of(self.loaded.exercise))
            found = with_type_macros(joined((*problems, *compared.problems)), defines)
            raise BuildFailed("failed", _with_include(found, source))
        for asked, kernel in compared.chosen.items():
            module.alias(asked, kernel)
        check_limits(module, plans)
        return Build(module, tunables, source, compared.chosen)

    def _why_not_compiled(self, error: CompileError, source: str) -> tuple[Verdict, Finding]:
        from .compile_errors import lacks_header, messages_of_file, of_compile_error
        from .missing_headers import cudas_missing_header

        texts = (self.code.text, *_headers(self.loaded).values())
        missing = cudas_missing_header(error.diagnostics, texts, partial(self.device.compile, filename="trial.cu"))
        if missing is not None:
            return "not gradable", lacks_header(missing, error)
        error = CompileError(messages_of_file(error.diagnostics, self.path.name, self._lines))
        return of_compile_error(error, self.code, source, self.path.name, _headers(self.loaded))

    def _compile(self, source: str, variant: Variant) -> Module:
        """Return the module of a variant; variants that differ only in their launches share one."""
        _, defines = variant_key(variant)
        if defines not in self._compiled:
            headers = _headers(self.loaded)
            self._compiled[defines] = self.device.compile(source, self.path.name, dict(variant.defines), headers)
        return self._compiled[defines]


def _names_in(source: str) -> Names:
    from pytest_gpulab.grading.plans.parameter_names import parameter_names  # needed only by findings

    return parameter_names(source)


def _with_include(found: Finding, source: str) -> Finding:
    """Return a finding that names a macro of `gpulab.cuh` with the include that nvcc needs for it."""
    if "GPULAB_" not in found.what + found.hint or "gpulab.cuh" in source + found.hint:
        return found
    hint = f"With nvcc, the macros need `#include <gpulab.cuh>`. {found.hint}".rstrip()
    return replace(found, hint=hint)


def _kernels(exercise: Exercise, tunables: Mapping[str, int]) -> set[str]:
    """Return the kernels that the exercise launches in any variant."""
    plans = (plan for variant in variants_of(exercise) for plan in _plans(exercise, variant, tunables))
    return {launch.kernel for plan in plans for launch in plan.launches}


def variant_key(variant: Variant) -> VariantKey:
    """Return the hashable identity of a variant."""
    return variant.name, tuple(sorted(variant.defines.items()))


def variants_of(exercise: Exercise) -> tuple[Variant, ...]:
    """Return the variants of the exercise's checks, each once, in the order of the checks."""
    subjects: tuple[Case | SpeedTier, ...] = (*exercise.cases, *exercise.speed)
    return tuple({variant_key(subject.variant): subject.variant for subject in subjects}.values())


def cases_of(exercise: Exercise, variant: Variant) -> tuple[Case, ...]:
    """Return the cases that run a variant."""
    return tuple(case for case in exercise.cases if variant_key(case.variant) == variant_key(variant))


def source_text(contents: bytes, filename: str) -> str:
    """Return the text of a submission, or raise BuildFailed if it is no text, or has a directive that is refused."""
    found = accepted_text(contents, filename)
    if isinstance(found, Finding):
        raise BuildFailed("failed", found)
    return found


def _headers(loaded: LoadedExercise) -> dict[str, str]:
    return header_texts(loaded.folder, loaded.exercise.headers)


def _check_started(module: Module, filename: str) -> None:
    """Raise `BuildFailed` if a kernel has a GPULAB_TODO, which leaves a symbol that holds its line number."""
    todos = [name for name in module.symbols if name.startswith(TODO_PREFIX)]
    if todos:
        line = int.from_bytes(module.read_symbol(todos[0])[:TUNABLE_BYTES], "little")
        kernels = ", ".join(f"`{name.removeprefix(TODO_PREFIX)}`" for name in todos)
        what = f"{kernels} {'still has its GPULAB_TODO line' if len(todos) == 1 else 'still have GPULAB_TODO lines'}."
        raise BuildFailed("not started", finding("not-started", what, f"{filename}:{line}"))


def _plans(exercise: Exercise, variant: Variant, tunables: Mapping[str, int]) -> list[Plan]:
    """Return the plans of the variant's cases; a plan that cannot be built is reported by its own case."""
    plans = []
    for case in cases_of(exercise, variant):
        try:
            plans.append(make_plan(exercise, problem_of(case, tunables)))
        except InstructorsMistake as mistake:
            if tunables and isinstance(mistake.__cause__, BlockTooLarge):
                raise BuildFailed("failed", _block_too_large(tunables)) from mistake
    return plans


def _block_too_large(tunables: Mapping[str, int]) -> Finding:
    values = " and ".join(f"{name} = {value}" for name, value in tunables.items())
    what = f"With {values}, a block has more than {MAX_BLOCK_THREADS} threads, the limit of every GPU."
    return finding("tunable-range", what)
