"""Float sums, scans and fields in any honest order are within the tolerances; small mistakes fail at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pytest_gpulab.exercise import Array, Case, Exercise, Problem
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.diagnosis.compare import mismatches

EXERCISES = Catalogue(Path(__file__).resolve().parents[2] / "exercises")
F4 = np.float32
SEEDS = range(3)
Order = Callable[[Array], Array]


@dataclass(frozen=True)
class Shape:
    """How a block adds: its threads, the elements of each, and the order in which it adds a tile."""

    threads: int
    items: int
    inclusive: int = 1
    single_pass: int = 0

    @property
    def tunables(self) -> dict[str, int]:
        whole = {"BLOCK_SIZE": self.threads, "ITEMS_PER_THREAD": self.items, "MAX_BLOCKS": 0}
        return {**whole, "INCLUSIVE": self.inclusive, "SINGLE_PASS": self.single_pass, "TILE_X": 32, "TILE_Y": 8}

    @property
    def tile(self) -> int:
        return self.threads * self.items


SCANS = tuple(
    Shape(threads, items, inclusive, single_pass)
    for threads, items in ((32, 1), (256, 1), (64, 16), (1024, 16))
    for inclusive, single_pass in ((1, 0), (0, 1))
)
REDUCTIONS = tuple(Shape(threads, items) for threads, items in ((32, 1), (256, 8), (32, 64), (1024, 64)))


# Inclusive scans of the rows of an array, (tiles, elements), in float32.


def serial(rows: Array) -> Array:
    return np.cumsum(rows, axis=1, dtype=F4)


def kogge_stone(rows: Array) -> Array:
    step = 1
    while step < rows.shape[1]:
        rows = np.concatenate((rows[:, :step], rows[:, step:] + rows[:, :-step]), axis=1)
        step *= 2
    return rows


def brent_kung(rows: Array) -> Array:
    width = rows.shape[1]
    if width == 1:
        return rows
    pairs = brent_kung(rows[:, 0::2] + rows[:, 1::2])
    out = np.empty_like(rows)
    out[:, 1::2] = pairs
    out[:, 0] = rows[:, 0]
    out[:, 2::2] = pairs[:, :-1] + rows[:, 2::2]
    return out


def exclusive_by_subtraction(rows: Array) -> Array:
    """An exclusive scan made of an inclusive one less its own element, and made inclusive again."""
    return (kogge_stone(rows) - rows) + rows


def threads_first(threads: int, of_totals: Order) -> Order:
    """Each thread adds its own elements one by one, then the threads' totals are scanned."""

    def scan(rows: Array) -> Array:
        own = serial(rows.reshape(-1, rows.shape[1] // threads)).reshape(rows.shape[0], threads, -1)
        before = np.zeros(own.shape[:2], F4)
        before[:, 1:] = of_totals(own[:, :, -1])[:, :-1]
        return (before[:, :, None] + own).reshape(rows.shape)

    return scan


def scan_orders(shape: Shape) -> Iterator[tuple[str, Order]]:
    for order in (serial, kogge_stone, brent_kung, exclusive_by_subtraction):
        yield order.__name__, order
        yield f"threads first, {order.__name__}", threads_first(shape.threads, order)


def scanned(values: Array, shape: Shape, order: Order, looks_back: bool) -> Array:
    """An inclusive scan, tile by tile; totals are scanned likewise or, by a look-back, added one by one."""
    tiles = -(-values.size // shape.tile)
    rows = order(np.append(values, np.zeros(tiles * shape.tile - values.size, F4)).reshape(tiles, shape.tile))
    if tiles > 1:
        totals = rows[:, -1].copy()
        before = np.cumsum(totals, dtype=F4) if looks_back else scanned(totals, shape, order, looks_back)
        rows[1:] += before[:-1, None]
    return rows.reshape(-1)[: values.size]


def answer_of_scan(values: Array, shape: Shape, order: Order) -> Array:
    terms = values if shape.inclusive else np.concatenate([np.zeros(1, F4), values[:-1]])
    return scanned(terms, shape, order, bool(shape.single_pass))


# Reductions of a tile's rows, (tiles, elements).


def one_by_one(rows: Array) -> Array:
    return serial(rows)[:, -1]


def backwards(rows: Array) -> Array:
    return serial(rows[:, ::-1])[:, -1]


def largest_first(rows: Array) -> Array:
    return serial(np.take_along_axis(rows, np.argsort(-np.abs(rows), axis=1), axis=1))[:, -1]


def halves(rows: Array) -> Array:
    while rows.shape[1] > 1:
        rows = rows[:, : rows.shape[1] // 2] + rows[:, rows.shape[1] // 2 :]
    return rows[:, 0]


def neighbours(rows: Array) -> Array:
    while rows.shape[1] > 1:
        rows = rows[:, 0::2] + rows[:, 1::2]
    return rows[:, 0]


def atomics(rows: Array) -> Array:
    return serial(np.random.default_rng(rows.shape[0]).permuted(rows, axis=1))[:, -1]


REDUCED = (one_by_one, backwards, largest_first, halves, neighbours, atomics)


def reduced(values: Array, shape: Shape, order: Order) -> Array:
    while True:
        tiles = -(-values.size // shape.tile)
        values = order(np.append(values, np.zeros(tiles * shape.tile - values.size, F4)).reshape(tiles, shape.tile))
        if tiles == 1:
            return values


def named(name: str) -> Exercise:
    return EXERCISES.load(name).exercise


FLOAT_SUM = next(case for case in named("reduction").cases if case.name == "float32-sum")
IDS = {"ids": lambda value: getattr(value, "name", None) or str(value)}


def wrong_at(
    exercise: Exercise, problem: Problem, pattern: str, seed: int, answer: Callable[[Array, Array], Array]
) -> Array:
    """Where an answer is out of the tolerance, made from the input and the exact result."""
    inputs = exercise.inputs(problem, pattern, np.random.default_rng(seed))
    expected = exercise.reference(problem, inputs)
    exact = expected.values["out"]
    (values,) = inputs.values()
    made = np.asarray(answer(values, exact))  # type: ignore[attr-defined]
    return mismatches(made.astype(F4).reshape(exact.shape), exact, expected.tolerance["out"])


@pytest.mark.parametrize("shape", SCANS, **IDS)
@pytest.mark.parametrize("case", named("scan").cases, **IDS)
def test_a_float_scan_in_any_order_is_within_the_tolerance(case: Case, shape: Shape) -> None:
    problem = case.problem(shape.tunables)
    for pattern in case.patterns:
        for seed in SEEDS if problem.size < 20000 else SEEDS[:1]:
            for name, order in scan_orders(shape):
                wrong = wrong_at(named("scan"), problem, pattern, seed, lambda v, e: answer_of_scan(v, shape, order))  # noqa: B023
                assert not wrong.any(), (pattern, seed, name)


@pytest.mark.parametrize("shape", REDUCTIONS, **IDS)
def test_a_float_sum_in_any_order_is_within_the_tolerance(shape: Shape) -> None:
    problem = FLOAT_SUM.problem(shape.tunables)
    for pattern in FLOAT_SUM.patterns:
        for seed in SEEDS:
            for order in REDUCED:
                wrong = wrong_at(named("reduction"), problem, pattern, seed, lambda v, e: reduced(v, shape, order))  # noqa: B023
                assert not wrong.any(), (pattern, seed, order.__name__)


def squares(vectors: Array, problem: Problem) -> Array:
    width, height, _ = problem.size
    x, y = np.meshgrid(np.arange(width, dtype=F4), np.arange(height, dtype=F4))
    total = np.zeros((height, width), F4)
    for vx, vy in vectors:
        total += (x - vx) * (x - vx) + (y - vy) * (y - vy)
    return total


def expanded(vectors: Array, problem: Problem) -> Array:
    width, height, _ = problem.size
    x, y = np.meshgrid(np.arange(width, dtype=F4), np.arange(height, dtype=F4))
    total = np.zeros((height, width), F4)
    for vx, vy in vectors[::-1]:
        total = (total + (x * x - 2 * x * vx + vx * vx)) + (y * y - 2 * y * vy + vy * vy)
    return total


@pytest.mark.parametrize("field", [squares, expanded])
@pytest.mark.parametrize("case", named("constant_memory").cases, **IDS)
def test_a_float_field_in_any_order_is_within_the_tolerance(case: Case, field: Callable[..., Array]) -> None:
    problem = case.problem(Shape(32, 1).tunables)
    for pattern in case.patterns:
        for seed in SEEDS:
            wrong = wrong_at(named("constant_memory"), problem, pattern, seed, lambda v, e: field(v, problem))
            assert not wrong.any(), (pattern, seed)


def to_bfloat16(values: Array) -> Array:
    bits = np.asarray(values, F4).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(F4)


def to_half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float16).astype(F4)


ROUNDED = {"float16": to_half, "bfloat16": to_bfloat16, "int": np.trunc}


def wrong_scans(shape: Shape, n: int, place: int) -> Iterator[tuple[str, Callable[..., Array]]]:
    """Answers with one small mistake: exact otherwise."""
    last = n - 1 + shape.inclusive  # elements that count
    later = np.arange(n) >= place + 1 - shape.inclusive
    for name, to_type in ROUNDED.items():
        if last > 0:
            yield (
                f"loaded as {name}",
                lambda v, e, to=to_type: e + np.cumsum(to(v) - v)[np.arange(n) - 1 + shape.inclusive],
            )
            yield f"stored as {name}", lambda v, e, to=to_type: to(e)
    if last > place:
        yield "an element left out", lambda v, e: e - later * v[place]
        yield "an element counted twice", lambda v, e: e + later * v[place]
    firsts = np.arange(n) // shape.tile * shape.tile
    if n > shape.tile:
        for name, to_type in ROUNDED.items():
            yield (
                f"offset through {name}",
                lambda v, e, to=to_type: (
                    e + (to(np.append(0, np.cumsum(v))[firsts]) - np.append(0, np.cumsum(v))[firsts])
                ),
            )


@pytest.mark.parametrize("shape", SCANS, **IDS)
@pytest.mark.parametrize("case", named("scan").cases, **IDS)
def test_a_small_mistake_in_a_float_scan_fails_at_every_size(case: Case, shape: Shape) -> None:
    problem = case.problem(shape.tunables)
    n = problem.size
    for seed in SEEDS:
        for name, answer in wrong_scans(shape, n, int(np.random.default_rng(seed).integers(n))):
            seen = (wrong_at(named("scan"), problem, pattern, seed, answer).any() for pattern in case.patterns)
            assert any(seen), (name, seed)


@pytest.mark.parametrize("shape", REDUCTIONS, **IDS)
@pytest.mark.parametrize("mistake", ["loaded", "stored", "partial sums"])
@pytest.mark.parametrize("name", ROUNDED)
def test_a_float_sum_through_another_type_fails(shape: Shape, mistake: str, name: str) -> None:
    to = ROUNDED[name]
    answers = {
        "loaded": lambda v, e: np.sum(to(v), dtype=float),
        "stored": lambda v, e: to(np.sum(v, dtype=float)),
        "partial sums": lambda v, e: sum(
            to(np.sum(v[i : i + shape.tile], dtype=float)) for i in range(0, v.size, shape.tile)
        ),
    }
    problem = FLOAT_SUM.problem(shape.tunables)
    for seed in SEEDS:
        seen = (wrong_at(named("reduction"), problem, p, seed, answers[mistake]).any() for p in FLOAT_SUM.patterns)
        assert any(seen), seed


@pytest.mark.parametrize("operation", ["sum", "product"])
@pytest.mark.parametrize("shape", REDUCTIONS, **IDS)
def test_an_element_left_out_or_counted_twice_in_a_float_reduction_fails(shape: Shape, operation: str) -> None:
    (case,) = (case for case in named("reduction").cases if case.name == f"float32-{operation}")
    combine = {"sum": np.sum, "product": np.prod}[operation]
    problem = case.problem(shape.tunables)
    assert problem.size > shape.tile
    for seed in SEEDS:
        place = int(np.random.default_rng(seed).integers(problem.size))
        for times in (0, 2):
            chosen = [*range(place), *[place] * times, *range(place + 1, problem.size)]
            answer = lambda v, e, chosen=chosen: combine(v[chosen], dtype=float)  # noqa: E731
            seen = (wrong_at(named("reduction"), problem, p, seed, answer).any() for p in case.patterns)
            assert any(seen), (seed, times)


@pytest.mark.parametrize("case", named("constant_memory").cases, **IDS)
def test_a_small_mistake_in_a_field_fails_at_every_size(case: Case) -> None:
    problem = case.problem(Shape(32, 1).tunables)
    for seed in SEEDS:
        place = int(np.random.default_rng(seed).integers(problem.size[2]))
        answers: dict[str, Callable[..., Array]] = {
            "a vector left out": lambda v, e: e - squares(v[place : place + 1], problem),  # noqa: B023
            "a vector counted twice": lambda v, e: e + squares(v[place : place + 1], problem),  # noqa: B023
            **{f"stored as {name}": lambda v, e, to=to: to(e) for name, to in ROUNDED.items()},
            **{f"loaded as {name}": lambda v, e, to=to: squares(to(v), problem) for name, to in ROUNDED.items()},
        }
        for name, answer in answers.items():
            seen = (wrong_at(named("constant_memory"), problem, p, seed, answer).any() for p in case.patterns)
            assert any(seen), (name, seed)


def test_the_timed_scan_is_exact_at_its_size() -> None:
    exercise, shape = named("scan"), Shape(256, 16)
    for size in (1 << 21, 1 << 22, 1 << 25):
        problem = Problem(size, shape.tunables)
        inputs = exercise.inputs(problem, exercise.cases[0].patterns[0], np.random.default_rng(1))
        assert exercise.reference_at is not None
        places = np.array([1, size // 2, size - 1])
        assert exercise.reference_at(problem, inputs, {"out": places}).tolerance["out"].tolist() == [0, 0, 0]
