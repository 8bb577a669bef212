"""Kernel and variable names as the student wrote them."""

import pytest

from pytest_gpulab.devices.source.names import signature, unique_names, unmangle

pytestmark = pytest.mark.unit

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
def test_names_that_are_not_plain_are_unchanged(symbol):
    assert unmangle(symbol) == symbol


FULL = {
    "_Z6reducePKiPij": "reduce(const int *, int *, unsigned int)",
    "_Z1kPKfPfS1_S0_": "k(const float *, float *, float *, const float *)",
    "_Z1kIiEvPT_": "k<int>(int *)",
    "_Z1kI3AddIiEEvPiT_": "k<Add<int>>(int *, Add<int>)",
    "_Z1kILb1ELin3EEvv": "k<true, -3>()",
    "_ZN3lab1kIdLi4EEEvPT_": "lab::k<double, 4>(double *)",
    "_Z1kP6float4RKiPPf": "k(float4 *, const int &, float **)",
    "_Z1kPVjPKdPdS2_": "k(volatile unsigned int *, const double *, double *, const double *)",
    "_Z1kPFiiE": "k",
    "_Z1kIZ4mainEUliE_EvPiT_": "k<main::{lambda(int)#1}>(int *, main::{lambda(int)#1})",
    "_Z1kIZ4mainEUlifE0_EvPiT_": "k<main::{lambda(int, float)#2}>(int *, main::{lambda(int, float)#2})",
    "_Z1kIZ4mainEUlvE_EvT_": "k<main::{lambda()#1}>(main::{lambda()#1})",
    "_Z1kIZ4mainE3AddEvPiT_": "k<main::Add>(int *, main::Add)",
    "_Z4eachILi64ELi4EZ5innerIiEvPT_PKS1_PKlllllllEUliE_EviT1_": (
        "each<64, 4, inner::{lambda(int)#1}>(int, inner::{lambda(int)#1})"
    ),
    "k": "k",
}


@pytest.mark.parametrize(("symbol", "full"), FULL.items())
def test_types_are_read_from_a_symbol(symbol, full):
    assert signature(symbol).full == full


def test_kernels_of_one_name_have_names_of_their_own():
    assert unique_names(["_Z1kIiEvPT_", "_Z1kIdEvPT_"]) == {"k<int>": "_Z1kIiEvPT_", "k<double>": "_Z1kIdEvPT_"}
    assert unique_names(["_Z1kPi", "_Z1kPf", "_Z1mPi"]) == {"k(int *)": "_Z1kPi", "k(float *)": "_Z1kPf", "m": "_Z1mPi"}


@pytest.mark.parametrize(
    "symbol", ["_Z" + "9" * 5000, "_Z1k" + "P" * 5000 + "i", "_Z1kS99999999999999999999_", "_ZN" * 900]
)
def test_hostile_symbols_are_read(symbol):
    assert signature(symbol).name
