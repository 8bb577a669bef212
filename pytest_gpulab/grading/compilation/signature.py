"""Comparison of a compiled module with the exercise: kernels, also under other names, parameters, constants, tunables.

Macros and constants, `#define BLOCK_SIZE 256` and `const int BLOCK_SIZE = 256;`, declare tunables, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_gpulab.devices.protocol import LaunchLimits, Module
from pytest_gpulab.devices.source.host_code import DeviceText, file_constants
from pytest_gpulab.devices.source.tokens import Token, closing, tokens
from pytest_gpulab.exercise import Buffer, Launch, Plan, Tunable
from pytest_gpulab.grading.compilation.parameter_types import c_name, declaration, parameter_finding, type_finding
from pytest_gpulab.grading.findings import Problem, finding
from pytest_gpulab.grading.grade import Finding

if TYPE_CHECKING:
    from pytest_gpulab.grading.plans.parameter_names import Names


KERNEL_PREFIX = "gpulab_kernel_"
Launches = Mapping[str, tuple[Plan, Launch]]


class KernelChoice:
    """The choice of a kernel for each kernel of an exercise.

    A kernel is chosen by `GPULAB_KERNEL`, else by its name, else as the only one with fitting parameters.
    """

    def __init__(
        self,
        module: Module,
        launches: Launches,
        code: DeviceText | None,
        names: Callable[[], Names],
        elsewhere: Callable[[], Collection[str]] = tuple,
        has_all_instances: bool = False,
    ) -> None:
        """Choose for a launch of each kernel of the exercise, with its plan.

        `names` returns the names of the kernels' parameters. `elsewhere` returns the exercise's kernels in other
        variants, which a kernel of their name serves; it is called if a kernel is missing. `has_all_instances` is True
        if the instances that GPULAB_KERNEL names exist in any case.
        """
        self._elsewhere, self._has_all_instances = elsewhere, has_all_instances
        self._module, self._launches, self._code, self._names = module, launches, code, names
        self.chosen: dict[str, str] = {}  # the exercise's kernels to those of the file, where the names differ
        self.problems: list[Problem] = []  # a problem for each kernel of the exercise that the file lacks
        self._open, self._failed = set(launches), set[str]()
        for asked in launches:
            named = _named(module, asked)
            if named is not None or (asked not in module.kernels and _called(module, asked)):
                self._choose_by_name(asked, asked if named is None else named)
            elif asked in module.kernels:
                self._open.discard(asked)
        self._choose_by_parameters()

    def kernel_of(self, asked: str) -> str | None:
        """Return the kernel of the file that serves as a kernel of the exercise; None without one."""
        return self.chosen.get(asked, asked if asked in self._module.kernels and asked not in self._failed else None)

    def _choose_by_name(self, asked: str, named: str) -> None:
        """Choose a kernel, or one of its instances and overloads."""
        kernels = _called(self._module, named)
        if self._has_all_instances and not kernels:  # the only instance has the template's name
            kernels = tuple(kernel for kernel in self._module.kernels if kernel == _plain(named))
        self._open.discard(asked)
        fitting = [kernel for kernel in kernels if self.misfit(asked, kernel) is None]
        candidates = fitting or kernels
        if len(candidates) == 1:
            self.chosen[asked] = candidates[0]
        elif candidates:
            self._fail(asked, self._several(asked, candidates, named))
        else:
            self._fail(asked, self._unknown(asked, named))

    def _fail(self, asked: str, found: Finding) -> None:
        self._failed.add(asked)
        request = f"choose a kernel for `{asked}`" if "GPULAB_KERNEL" in found.hint else f"add a kernel `{asked}`"
        self.problems.append(of_misfit(found) if found.code == "wrong-signature" else Problem(found, request))

    def _choose_by_parameters(self) -> None:
        missing = [asked for asked in self._launches if asked in self._open]
        taken = {*self.chosen.values(), *self._launches, *(self._elsewhere() if missing else ())}
        free = [kernel for kernel in self._module.kernels if kernel not in taken]
        fitting = {asked: [kernel for kernel in free if self.misfit(asked, kernel) is None] for asked in missing}
        for asked, kernels in fitting.items():
            wanted_twice = any(kernel in fitting[other] for other in missing if other != asked for kernel in kernels)
            if len(kernels) == 1 and not wanted_twice:
                self.chosen[asked] = kernels[0]
            elif kernels:
                self._fail(asked, self._several(asked, kernels))
            else:
                self._fail(asked, self._missing(asked, free))

    def misfit(self, asked: str, kernel: str) -> Finding | None:
        """Return the finding of the first parameter of a kernel that does not fit; None if all fit."""
        plan, launch = self._launches[asked]
        launch = replace(launch, kernel=kernel)

        def names() -> tuple[str, ...]:
            return self._names().get(_unqualified(kernel), ())

        return type_finding(self._module, plan, launch, names) or parameter_finding(self._module, plan, launch)

    def _several(self, asked: str, kernels: Sequence[str], named: str = "") -> Finding:
        if named:
            what = f"There are {len(kernels)} kernels called `{named}`: the grader cannot tell which one to launch."
        else:
            what = f"There is no kernel called `{asked}`, and {len(kernels)} kernels have its parameters."
        others = [] if named else sorted({*self._elsewhere()} - {asked, *self._module.kernels})
        if others and len(others) < len(kernels):
            chosen = (
                f"GPULAB_KERNEL({each}, {kernel})" for each, kernel in zip((asked, *others), kernels, strict=False)
            )
            hint = f"Choose them with lines at file scope, after the kernels, such as: {' and '.join(chosen)}"
        else:
            hint = f"Choose one with a line at file scope, after the kernel: GPULAB_KERNEL({asked}, {kernels[-1]})"
        return finding("missing-kernel", what, evidence=(f"they are: {', '.join(kernels)}",), hint=hint)

    def _unknown(self, asked: str, named: str) -> Finding:
        template = self._uninstantiated(asked, named)
        if template is not None:
            return template
        what = f"GPULAB_KERNEL({asked}, {named}) names no kernel of this file."
        return finding("missing-kernel", what, evidence=(self._listed(),))

    def _missing(self, asked: str, free: Sequence[str]) -> Finding:
        found = self._uninstantiated(asked, asked) or self._unmarked(asked)
        if found is not None:
            return found
        required = f"required: {declaration(*self._launches[asked])}"
        misfits = [misfit for kernel in free if (misfit := self.misfit(asked, kernel)) is not None]
        if len(misfits) == 1 and len(self._launches) == 1:
            return misfits[0]
        templates = self._code.kernel_templates if self._code and not self._module.kernels else ()
        found = next((self._uninstantiated(asked, template) for template in templates), None)
        if found is not None:
            return replace(found, evidence=(required,))
        what = f"There is no kernel called `{asked}`{', and no other with its parameters' if free else ''}."
        return finding("missing-kernel", what, evidence=(required, self._listed(), *(each.what for each in misfits)))

    def _listed(self) -> str:
        kernels = self._module.kernels
        return f"kernels in the file: {', '.join(kernels)}" if kernels else "the file has no kernel"

    def _uninstantiated(self, asked: str, name: str) -> Finding | None:
        line = self._code.kernel_templates.get(name.partition("<")[0]) if self._code else None
        if line is None:
            return None
        what = f"`{name}` (line {line}) is a template that is not instantiated."
        hint = (
            f"Choose its arguments with a line at file scope, after the kernel: GPULAB_KERNEL({asked}, "
            f"{name.partition('<')[0]}<...>)"
        )
        return finding("missing-kernel", what, evidence=(self._listed(),) if self._module.kernels else (), hint=hint)

    def _unmarked(self, name: str) -> Finding | None:
        line = (self._code.host_names.get(name) or _line_of_function(self._code.text, name)) if self._code else None
        if line is None or self._module.kernels:
            return None
        what = f"`{name}` (line {line}) is not a kernel: it is declared without `__global__`."
        return finding("missing-kernel", what, evidence=(self._listed(),))


def _line_of_function(text: str, name: str) -> int | None:
    """Return the line of a function's declaration, such as that of a `__device__` function."""
    found = re.search(rf"(?<!return)[\w*&>]\s+{re.escape(name)}\s*\(", text)
    return text.count("\n", 0, found.end()) + 1 if found else None


def of_misfit(misfit: Finding) -> Problem:
    """Return the problem of a parameter that does not fit."""
    return Problem(misfit, f"change the kernel: {misfit.what[:1].lower()}{misfit.what[1:].rstrip('.')}")


def _named(module: Module, asked: str) -> str | None:
    """Return the kernel that GPULAB_KERNEL names, or None."""
    symbol = KERNEL_PREFIX + asked
    if symbol not in module.symbols:
        return None
    return module.read_symbol(symbol).rstrip(b"\0").decode(errors="replace").strip()


def _called(module: Module, name: str) -> tuple[str, ...]:
    """Return the kernel of that name, or its instances and overloads."""
    plain = name.replace(" ", "")
    kernels = {kernel: kernel.replace(" ", "") for kernel in module.kernels}
    exact = tuple(kernel for kernel, text in kernels.items() if text == plain)
    return exact or tuple(kernel for kernel, text in kernels.items() if plain in (_plain(text), _unqualified(text)))


def _plain(kernel: str) -> str:
    """Return the name without template arguments and parameters."""
    return kernel.partition("(")[0].partition("<")[0]


def _unqualified(kernel: str) -> str:
    return _plain(kernel).rpartition("::")[2]


class Comparison(NamedTuple):
    """The differences between a module and the plans."""

    chosen: Mapping[str, str]  # the exercise's kernels to those of the file, where the names differ
    problems: tuple[Problem, ...]  # the reasons why the plans cannot be launched

    @property
    def lacks_kernel(self) -> bool:
        """True if one of the exercise's kernels is missing in the file."""
        return any(problem.finding.code == "missing-kernel" for problem in self.problems)


def named_kernels(module: Module, launches: Iterable[str]) -> list[str]:
    """Return the kernels that GPULAB_KERNEL names for some of the exercise's kernels."""
    return [named for asked in launches if (named := _named(module, asked)) is not None]


def compare(
    module: Module,
    plans: Iterable[Plan],
    code: DeviceText | None,
    names: Callable[[], Names],
    elsewhere: Callable[[], Collection[str]] = tuple,
    has_all_instances: bool = False,
) -> Comparison:
    """Compare a module with the plans; the other arguments are as for `KernelChoice`."""
    launches: dict[str, tuple[Plan, Launch]] = {}
    constants: dict[str, Buffer] = {}
    for plan in plans:
        for launch in plan.launches:
            launches.setdefault(launch.kernel, (plan, launch))
        for symbol, name in plan.constants.items():
            buffer = plan.buffer(name)
            constants[symbol] = max(constants.get(symbol, buffer), buffer, key=lambda each: each.nbytes)
    choice = KernelChoice(module, launches, code, names, elsewhere, has_all_instances)
    problems = [*choice.problems, *_misfits(choice, launches)]
    found = (_constant_problem(module, symbol, buffer) for symbol, buffer in constants.items())
    return Comparison(choice.chosen, (*problems, *(problem for problem in found if problem is not None)))


def _misfits(choice: KernelChoice, launches: Iterable[str]) -> Iterator[Problem]:
    """Yield the first parameter that does not fit."""
    for asked in launches:
        kernel = choice.kernel_of(asked)
        misfit = None if kernel is None else choice.misfit(asked, kernel)
        if misfit is not None:
            yield of_misfit(misfit)
            return


def check_limits(module: Module, plans: Sequence[Plan]) -> None:
    """Check each kind of launch once; raise LaunchError if the device refuses it with any arguments."""
    if isinstance(module, LaunchLimits):
        kinds = {
            (launch.kernel, launch.block, launch.shared_bytes): launch for plan in plans for launch in plan.launches
        }
        for launch in kinds.values():
            module.check_launch(launch.kernel, launch.grid, launch.block, launch.shared_bytes)


def _constant_problem(module: Module, symbol: str, buffer: Buffer) -> Problem | None:
    declaration = f"`__constant__ {c_name(buffer.dtype)} {symbol}[...]` of {buffer.nbytes} bytes"
    if symbol not in module.symbols:
        what = f"There is no array called `{symbol}` at file scope: the grader copies the input into it."
        own = [name for name in module.symbols if not name.startswith("gpulab_")]
        large = [name for name in own if len(module.read_symbol(name)) >= buffer.nbytes]
        near = difflib.get_close_matches(symbol, large, n=1, cutoff=0)
        what += f" The file has `{near[0]}`." if near else ""
        return Problem(finding("wrong-signature", what), f"add {declaration} at file scope")
    holds = len(module.read_symbol(symbol))
    if holds < buffer.nbytes:
        what = f"The array `{symbol}` holds {holds} bytes, but the grader copies {buffer.nbytes} bytes into it."
        return Problem(finding("wrong-signature", what), f"enlarge `{symbol}` to {buffer.nbytes} bytes")
    return None


TUNABLE_PREFIX = "gpulab_tunable_"
TUNABLE_BYTES = 4


def read_tunables(
    module: Module, tunables: Sequence[Tunable], host_names: Mapping[str, int]
) -> tuple[dict[str, int], list[Problem]]:
    """Return the values by name, and a problem per tunable without an accepted value.

    Such a tunable gets an accepted value, so that the rest of the file can be compared with the plans. `host_names` are
    declared in host code, by their lines.
    """
    values, problems = dict[str, int](), list[Problem]()
    for tunable in tunables:
        value = _value_or_problem(module, tunable, host_names.get(tunable.name))
        if isinstance(value, Problem):
            problems.append(value)
            value = tunable.allowed[len(tunable.allowed) // 2]
        values[tunable.name] = value
    return values, problems


def _value_or_problem(module: Module, tunable: Tunable, line: int | None) -> int | Problem:
    symbol, name, accepted = (
        TUNABLE_PREFIX + tunable.name,
        tunable.name,
        f"accepted for {tunable.name}: {_listed(tunable.allowed)}",
    )
    if symbol not in module.symbols:
        if line is not None:
            what = f"`{name}` (line {line}) is no constant at file scope, so the grader cannot read the tunable."
            hint = f"Write `const int {name} = value;` at file scope."
            request = f"make `{name}` (line {line}) a constant"
            return Problem(finding("tunable-missing", what, "", (accepted,), hint), request, is_complete=True)
        if tunable.default is not None:
            return tunable.default
        hint = f"Write GPULAB_TUNABLE({name}, value) at file scope, after #include <gpulab.cuh>."
        found = finding("tunable-missing", f"The file does not declare the tunable {name}.", "", (accepted,), hint)
        return Problem(found, f"add GPULAB_TUNABLE({name}, value) at file scope", is_complete=True)
    contents = module.read_symbol(symbol)
    if len(contents) != TUNABLE_BYTES:
        what = f"The tunable {name} cannot be read back: it is {len(contents)} bytes wide, not {TUNABLE_BYTES}."
        return Problem(finding("tunable-missing", what), f"declare {name} by GPULAB_TUNABLE")
    value = int.from_bytes(contents, "little", signed=True)
    if value not in tunable.allowed:
        what = f"The tunable {name} is {value}, which this exercise does not accept."
        return Problem(finding("tunable-range", what, evidence=(accepted,)), f"change {name} from {value}")
    return value


def _listed(allowed: Sequence[int]) -> str:
    if isinstance(allowed, range):
        step = "" if allowed.step == 1 else f" in steps of {allowed.step}"
        return f"{allowed[0]} to {allowed[-1]}{step}"
    return ", ".join(map(str, allowed))


_DECLARED = "GPULAB_TUNABLE"
READ_BACK = '\nextern "C" __device__ const int gpulab_tunable_{0} = ({1});\n'


def with_defined_tunables(source: str, names: Collection[str]) -> str:
    """Return a text with a symbol per macro and constant, so that the compiled module contains their values.

    A macro would corrupt a GPULAB_TUNABLE of the same name, so that is blanked. The kernels use the macro's value.
    Line numbers do not change.
    """
    found = tokens(source)
    defined = {token.within[1].text for token in found if _is_constant(token)}
    for name in sorted(defined.intersection(names)):
        for start, end in declarations(found, name):
            blank = "".join(sign if sign == "\n" else " " for sign in source[start:end])
            source = source[:start] + blank + source[end:]
        source += f"\n#ifdef {name}{READ_BACK.format(name, name)}#endif\n"
    absent = [name for name in names if name not in defined and not any(declarations(found, name))]
    constants = file_constants(source) if absent else frozenset()
    return source + "".join(f"\n{READ_BACK.format(name, name)}" for name in absent if name in constants)


def _is_constant(token: Token) -> bool:
    """Return True if the line defines a macro with a value and no parameters."""
    if token.kind != "directive" or token.text != "define" or len(token.within) <= len(("define", "NAME")):
        return False
    name, after = token.within[1:3]
    return after.text != "(" or after.start > name.end


def declarations(found: Sequence[Token], name: str) -> Iterable[tuple[int, int]]:
    """Yield start and end of each `GPULAB_TUNABLE(name, ...)`."""
    for at in range(len(found) - 2):
        if [token.text for token in found[at : at + 3]] == [_DECLARED, "(", name]:
            yield found[at].start, found[closing(found, at + 1)].end
