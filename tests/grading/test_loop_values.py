"""Values of loop variables, by which a figure names the rows of a loop."""

from __future__ import annotations

import pytest

from pytest_gpulab.grading.explanation.loops import around, loops_of


@pytest.mark.parametrize(
    ("head", "values"),
    [
        ("for (unsigned s = blockDim.x / 2; s > 0; s /= 2)", (4, 2, 1)),
        ("for (int s = 1; s < N; s <<= 1)", (1, 2, 4)),
        ("for (int s = N - 1; s >= 5; --s)", (7, 6, 5)),
        ("for (int s = 0; s < 8u; s += N / 2)", (0, 4)),
        ("for (int s = 3; s != 0; s = s - 1)", (3, 2, 1)),
        ("for (int s = int(1); s < min(5, N); s += max(2, 1))", (1, 3)),
        ("unsigned twice = 2 * B; for (int s = twice; s > N; s /= 2)", (16,)),
        ("unsigned twice = 2; twice = B; for (int s = 1; s < twice; s *= 2)", None),  # set twice
        ("for (int s = first(); s < N; ++s)", None),
        ("for (int s = 0; s < other; ++s)", None),
        ("for (int s = 1; s < N; s /= 0)", None),
    ],
)
def test_values_of_a_loop_variable(head: str, values: tuple[int, ...] | None) -> None:
    source = f"constexpr int N = B;\n{head} {{\n    x[s] = s;\n}}\n"
    loops = loops_of(source, {"blockDim.x": 8, "B": 8})
    loop = around(loops, 3)
    assert (loop.values if loop else None) == values
    assert around(loops, 5) is None


def test_macros_are_constants_of_loops() -> None:
    (loop,) = loops_of("#define N (2 * BLOCK)  // of a tree\nfor (int d = N >> 1; d > 0; d >>= 1) {}", {"BLOCK": 4})
    assert loop.values == (4, 2, 1)


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("int i = blockDim.x / 2;\nwhile (i != 0) {\n  sync();\n  i /= 2;\n}", (4, 2, 1)),
        ("unsigned s = 1; while (s < blockDim.x) { if (t % s) { a[t] += a[t + s]; } s <<= 1; }", (1, 2, 4)),
        ("int i = 3; while (i > 0) { --i; }", (3, 2, 1)),
        ("int i = 3; while (i > 0) { i--; if (x) i--; }", None),  # two updates
        ("int i = start(); while (i > 0) { i /= 2; }", None),
        ("while (flag == 0) { k++; }", None),
    ],
)
def test_values_of_the_variable_of_a_while_loop(code: str, values: tuple[int, ...] | None) -> None:
    assert [loop.values for loop in loops_of(code, {"blockDim.x": 8})] == ([] if values is None else [values])


def test_an_endless_loop_head_ends() -> None:
    (loop,) = loops_of("for (int s = 1; s > 0; ++s)\n    x[s] = s;\n", {})
    assert len(loop.values) == 64


def test_a_condition_may_depend_on_the_thread() -> None:
    """The thread that goes round most often counts: the first one here, the last one below."""
    threads = ({"threadIdx.x": 0}, {"threadIdx.x": 7})
    (loop,) = loops_of("for (int s = 4; threadIdx.x < s; s /= 2) {}", {}, threads)
    assert loop.values == (4, 2, 1)
    (loop,) = loops_of("unsigned t = threadIdx.x;\nfor (int s = 1; s <= t; s *= 2) {}", {}, threads)
    assert loop.values == (1, 2, 4)
    assert loops_of("for (int i = threadIdx.x; i < 9; i += 8) {}", {}, threads) == []  # each thread has another value


def test_a_loop_without_end_is_named_until_its_variable_stays() -> None:
    (loop,) = loops_of("for (unsigned s = 4; s >= 0; s /= 2) {}", {})
    assert loop.until_steady == (4, 2, 1)
