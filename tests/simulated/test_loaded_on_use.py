"""Modules for rare opcodes are imported on use: the tables that say which module must be complete."""

from __future__ import annotations

from importlib import import_module

import pytest

from pytest_gpulab.devices.simulated.translation import translator
from pytest_gpulab.devices.simulated.translation.emission import block

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", sorted({*block.RARE.values()}))
def test_the_table_of_rare_opcodes_names_all_opcodes_of_a_module(name: str) -> None:
    module = import_module(f"pytest_gpulab.devices.simulated.translation.emission.{name}")
    registered = {opcode for opcode, (emitter, _) in block.EMITTERS.items() if emitter.__module__ == module.__name__}
    assert registered == {opcode for opcode, rare in block.RARE.items() if rare == name}


@pytest.mark.parametrize("name", sorted({*translator.BUILTINS_IN.values()} - {"execution.launch_state"}))
def test_the_table_of_builtins_names_all_public_functions_of_a_module(name: str) -> None:
    module = import_module(f"pytest_gpulab.devices.simulated.{name}")
    public = {
        function
        for function, value in vars(module).items()
        if callable(value) and function[0].islower() and getattr(value, "__module__", "") == module.__name__
    }
    assert public == {function for function, of in translator.BUILTINS_IN.items() if of == name}
