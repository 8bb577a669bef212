"""Comparison of a compiled module with the plans: kernels, their parameters, the constants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.protocol import LaunchLimits, Module
from pytest_gpulab.devices.source.host_code import DeviceText
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.plans.parameter_names import Names

from .kernel_choice import KernelChoice, of_misfit
from .parameter_types import C_NAMES
from .problems import Problem


@dataclass(frozen=True)
class Comparison:
    """The differences between a module and the plans.

    Attributes:
        chosen: the exercise's kernels to those of the file, where the names differ.
        problems: the reasons why the plans cannot be launched.
    """

    chosen: Mapping[str, str]
    problems: tuple[Problem, ...]


def compare(
    module: Module,
    plans: Iterable[Plan],
    code: DeviceText | None,
    names: Names,
    elsewhere: Callable[[], Collection[str]] = tuple,
) -> Comparison:
    """Compare a module with the plans.

    Args:
        module: the compiled file.
        plans: the plans to launch.
        code: the device code of the file.
        names: names of the kernels' parameters.
        elsewhere: a function that returns the exercise's kernels in other variants.
    """
    launches: dict[str, tuple[Plan, Launch]] = {}
    constants: dict[str, Buffer] = {}
    for plan in plans:
        for launch in plan.launches:
            launches.setdefault(launch.kernel, (plan, launch))
        for symbol, name in plan.constants.items():
            buffer = plan.buffer(name)
            constants[symbol] = max(constants.get(symbol, buffer), buffer, key=lambda each: each.nbytes)
    choice = KernelChoice(module, launches, code, names, elsewhere)
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
    """Check each kind of launch once against the device's limits.

    Raises:
        LaunchError: the device refuses a launch with any arguments.
    """
    if isinstance(module, LaunchLimits):
        kinds = {
            (launch.kernel, launch.block, launch.shared_bytes): launch for plan in plans for launch in plan.launches
        }
        for launch in kinds.values():
            module.check_launch(launch.kernel, launch.grid, launch.block, launch.shared_bytes)


def _constant_problem(module: Module, symbol: str, buffer: Buffer) -> Problem | None:
    dtype = np.dtype(buffer.dtype).name
    declaration = f"`__constant__ {C_NAMES.get(dtype, dtype)} {symbol}[...]` of {buffer.nbytes} bytes"
    if symbol not in module.symbols:
        what = f"There is no array called `{symbol}` at file scope: the grader copies the input into it."
        return Problem(finding("wrong-signature", what), f"add {declaration} at file scope")
    holds = len(module.read_symbol(symbol))
    if holds < buffer.nbytes:
        what = f"The array `{symbol}` holds {holds} bytes, but the grader copies {buffer.nbytes} bytes into it."
        return Problem(finding("wrong-signature", what), f"enlarge `{symbol}` to {buffer.nbytes} bytes")
    return None
