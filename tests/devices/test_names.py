"""Kernel and variable names as the student wrote them."""

import pytest

from pytest_gpulab.devices.names import unmangle

SYMBOLS = {
    "_Z6reducePKiPij": "reduce",
    "_Z10scan_blockPKfPfS1_j": "scan_block",
    "_Z4scanIfLi4EEvPKT_PS0_": "scan",
    "_ZL7vectors": "vectors",
    "_ZL2stPi": "st",
    "_ZN3lab6in_labEPf": "lab::in_lab",
    "_ZN3lab3tinIiEEvPT_": "lab::tin",
    "_ZN36_GLOBAL__N__ed7ff006_4_n_cu_bfbb1e8c11anon_kernelEPi": "anon_kernel",
    "_ZN34_INTERNAL_ed7ff006_4_n_cu_bfbb1e8c36_GLOBAL__N__ed7ff006_4_n_cu_bfbb1e8c8anon_varE": "anon_var",
}


@pytest.mark.parametrize(("symbol", "name"), SYMBOLS.items())
def test_symbols_that_nvcc_made(symbol, name):
    assert unmangle(symbol) == name


@pytest.mark.parametrize("symbol", ["reduce", "gpulab_tunable_BLOCK_SIZE", "vectors", "6reduce", ""])
def test_a_plain_symbol_is_its_own_name(symbol):
    assert unmangle(symbol) == symbol


@pytest.mark.parametrize("symbol", ["_Z", "_ZplRK3VecS1_", "_Z9short", "_ZN3lab"])
def test_what_is_no_plain_name_stays_as_it_is(symbol):
    assert unmangle(symbol) == symbol
