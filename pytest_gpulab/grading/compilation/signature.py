"""Comparison of a compiled module with the plans: kernels, their parameters, the constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pytest_gpulab.devices.protocol import LaunchLimits, Module
from pytest_gpulab.devices.source.host_code import DeviceText
from pytest_gpulab.exercise import Launch, Plan
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.parameter_names import Names

from .parameter_types import C_NAMES, type_finding

POINTER_BYTES = 8


def signature_finding(
    module: Module, plans: Iterable[Plan], code: DeviceText | None = None, names: Names | None = None
) -> Finding | None:
    """Return the finding of the first difference between the module and the plans, or None.

    Args:
        module: the compiled file.
        plans: the plans to launch.
        code: the device code of the file.
        names: names of the kernels' parameters.

    Raises:
        LaunchError: the device refuses a launch with any arguments.
    """
    plans = tuple(plans)
    launches: dict[str, tuple[Plan, Launch]] = {}
    constants: dict[str, int] = {}
    for plan in plans:
        for launch in plan.launches:
            launches.setdefault(launch.kernel, (plan, launch))
        for symbol, name in plan.constants.items():
            constants[symbol] = max(constants.get(symbol, 0), plan.buffer(name).nbytes)
    missing = [name for name in launches if name not in module.kernels]
    if missing:
        return _missing(missing[0], module, code)
    found = [_parameter_finding(module, launch) for _, launch in launches.values()]
    names = names or {}
    found += [type_finding(module, plan, launch, names.get(name, ())) for name, (plan, launch) in launches.items()]
    found_constants = (_constant_finding(module, symbol, nbytes) for symbol, nbytes in constants.items())
    problem = next((problem for problem in (*found, *found_constants) if problem is not None), None)
    if problem is None:
        _check_limits(module, plans)
    return problem


def _missing(name: str, module: Module, code: DeviceText | None) -> Finding:
    has = f"kernels in the file: {', '.join(module.kernels)}" if module.kernels else "the file has no kernel"
    line = code.kernel_templates.get(name) if code else None
    several = [kernel for kernel in module.kernels if kernel.startswith((f"{name}<", f"{name}("))]
    if several:
        what = f"There are {len(several)} kernels called `{name}`: the grader cannot tell which one to launch."
        return finding("missing-kernel", what, evidence=(has,), hint="Leave one of them; rename the others.")
    if line is not None:
        what = f"`{name}` (line {line}) is a template that is not instantiated."
        hint = (
            f"Instantiate it behind its definition, `template __global__ void {name}<...>(...);`, or leave out "
            "`template <...>` and name the type itself, such as GPULAB_T."
        )
        return finding("missing-kernel", what, evidence=(has,), hint=hint)
    line = code.host_names.get(name) if code else None
    if line is not None:
        what = f"`{name}` (line {line}) is not a kernel: it is declared without `__global__`."
        return finding("missing-kernel", what, evidence=(has,))
    return finding("missing-kernel", f"There is no kernel called `{name}`.", evidence=(has,))


def _check_limits(module: Module, plans: Sequence[Plan]) -> None:
    """Check each kind of launch once against the device's limits."""
    if isinstance(module, LaunchLimits):
        kinds = {
            (launch.kernel, launch.block, launch.shared_bytes): launch for plan in plans for launch in plan.launches
        }
        for launch in kinds.values():
            module.check_launch(launch.kernel, launch.grid, launch.block, launch.shared_bytes)


def _parameter_finding(module: Module, launch: Launch) -> Finding | None:
    declared = module.parameter_bytes(launch.kernel)
    given = tuple(POINTER_BYTES if isinstance(arg, str) else arg.dtype.itemsize for arg in launch.args)
    if declared is None or declared == given:
        return None
    if len(declared) != len(given):
        what = f"`{launch.kernel}` has {_count(len(declared), 'parameter')}, but it is called with {len(given)}."
    else:
        at = next(index for index, sizes in enumerate(zip(declared, given, strict=True)) if sizes[0] != sizes[1])
        what = (
            f"Parameter {at + 1} of `{launch.kernel}` is {declared[at]} bytes wide, "
            f"but it is called with {_type_name(launch.args[at])} ({given[at]} bytes)."
        )
    evidence = (
        f"called with: {', '.join(map(_type_name, launch.args))}",
        f"declared: {_count(len(declared), 'parameter')} of {', '.join(map(str, declared)) or 'no'} bytes",
    )
    return finding("wrong-signature", what, evidence=evidence)


def _constant_finding(module: Module, symbol: str, nbytes: int) -> Finding | None:
    if symbol not in module.symbols:
        what = f"There is no array called `{symbol}` at file scope: the grader copies the input into it."
        return finding("wrong-signature", what)
    holds = len(module.read_symbol(symbol))
    if holds < nbytes:
        what = f"The array `{symbol}` holds {holds} bytes, but the grader copies {nbytes} bytes into it."
        return finding("wrong-signature", what)
    return None


def _type_name(argument: str | np.generic) -> str:
    return "a pointer" if isinstance(argument, str) else C_NAMES.get(argument.dtype.name, argument.dtype.name)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
