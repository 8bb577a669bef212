"""A file with other values of its tunables: every form of declaration, and lines stay where they are."""

from __future__ import annotations

import pytest

from pytest_gpulab.grading.compilation.swept_source import CannotSweep, swept

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("GPULAB_TUNABLE(B, 256)\n", "GPULAB_TUNABLE(B, 7)\n"),
        ("GPULAB_TUNABLE( B , (1 << 4) * f(2, 3) ) // 8\n", "GPULAB_TUNABLE(B, 7) // 8\n"),
        ("#define B 256 // threads\n", "#define B 7 // threads\n"),
        ("#define B (2 * \\\n  128)\nint c;\n", "#define B 7\n\nint c;\n"),
        (
            "#ifndef B\n#define B 1\n#else\n#define B 2\n#endif\n",
            "#ifndef B\n#define B 7\n#else\n#define B 7\n#endif\n",
        ),
        ("const int B = 256, C = 3;\n", "const int B = 7, C = 3;\n"),
        ("constexpr unsigned B{f(1, 2)};\n", "constexpr unsigned B{7};\n"),
        ("enum { A = 1, B = 2 * (A + 1) };\n", "enum { A = 1, B = 7 };\n"),
    ],
)
def test_every_form_of_declaration(before: str, after: str) -> None:
    assert swept(before.encode(), {"B": 7}).decode() == after


def test_two_tunables_in_one_file() -> None:
    source = b"#define Y 1\nGPULAB_TUNABLE(X, 2)\n"
    assert swept(source, {"X": 10, "Y": 20}) == b"#define Y 20\nGPULAB_TUNABLE(X, 10)\n"


def test_a_tunable_that_is_not_declared_is_declared_at_the_end() -> None:
    source = "// B in a comment\nint a;\n"
    added = swept(source.encode(), {"B": 7}).decode().removeprefix(source)
    assert added == '\nextern "C" __device__ const int gpulab_tunable_B = (7);\n'


def test_other_encodings_are_kept() -> None:
    source = "// Größe\nGPULAB_TUNABLE(B, 1)\n".encode("latin-1")
    assert swept(source, {"B": 2}) == source.replace(b"1", b"2")


def test_a_use_without_a_declaration() -> None:
    with pytest.raises(CannotSweep, match=r"B is not declared with a value, as by GPULAB_TUNABLE\(B, 7\)"):
        swept(b"#ifdef B\n#endif\nint a = B;\n", {"B": 7})
