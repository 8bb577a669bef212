"""Text of a submission, from the compiler or printf, cannot control the grader's terminal."""

import pytest

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.grading.diagnosis.compare import capped
from pytest_gpulab.grading.findings import of_error

pytestmark = pytest.mark.unit


def test_diagnostics_hold_no_control_characters() -> None:
    _, found = of_error(CompileError('a.cu(3): error: #error directive: "\x1b[32mall\x9b fine"\n\t#error\x07\n'))
    assert found.what == 'The file does not compile: #error directive: "?[32mall? fine"'
    assert found.evidence == ('a.cu(3): error: #error directive: "?[32mall? fine"', "\t#error?")


def test_printf_output_holds_no_control_characters() -> None:
    assert capped("sum \x1b[2J= 3\r\n\tdone: \u00fc\n") == "sum ?[2J= 3?\n\tdone: \u00fc\n"
