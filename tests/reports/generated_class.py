"""A class whose grades are made up, but look like graded ones: for pages that must be tried with many students."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_gpulab.grading.findings import HINTS, because_of, finding
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance, Student, Verdict
from pytest_gpulab.grading.listing import TIME_SHARE, ListedFile, ListedLine, Listing
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair, result_properties

GIVEN = ("Ada", "Alan", "Barbara", "Claude", "Donald", "Edsger", "Frances", "Grace", "Hedy", "Ines", "John", "Leslie")
FAMILY = ("Arslan", "Becker", "Çelik", "Dubois", "Eriksson", "Fischer", "García", "Ivanova", "Kowalski", "Nguyễn")
EXERCISES = ("constant_memory", "divergence", "reduction", "scan")
THRESHOLDS = ((1.4, True, 8.0), (1.8, False, 6.0), (2.4, False, 8.0), (4.3, False, 9.0))
SIZES = (1, 31, 32, 33, 100, 255, 256, 257, 1023, 1024, 1025, 4096, 65537)
PEAK_GB_S = 4800.0
SOURCE = """#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

// Each block sums a tile of the input: first every thread its own elements, then the tree in shared memory.
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, int n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    int i = blockIdx.x * BLOCK_SIZE * 2 + threadIdx.x;
    GPULAB_T sum = GPULAB_IDENTITY;
    if (i < n)
        sum = in[i];
    if (i + BLOCK_SIZE < n)
        sum = GPULAB_OP(sum, in[i + BLOCK_SIZE]);
    tile[threadIdx.x] = sum;
    __syncthreads();
    for (int stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            tile[threadIdx.x] = GPULAB_OP(tile[threadIdx.x], tile[threadIdx.x + stride]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = tile[0];
}
"""
PROVENANCE = Provenance(
    "NVIDIA H200",
    "cuda",
    "sm_90",
    "nvcc 13.0",
    7130713,
    "1",
    "0.1.0",
    "0" * 64,
    {"UUID": "GPU-0", "driver": "580.65", "SM clock": "1980 MHz", "peak bandwidth": "4800 GB/s"},
)
CAUSES = (
    ("correct[n=1023]", finding("wrong-result", "out[0] is 511, expected 1023.", "", ("index 0: 511, expected 1023",))),
    ("correct[n=33]", finding("out-of-bounds", "Read of 4 bytes past the end of in.", "{name}.cu:13", ("by block 0",))),
    ("safe[races]", finding("race", "Read of tile[32] while thread 32 writes it, in one warp.", "{name}.cu:20")),
    ("safe[initialised]", finding("uninitialised", "Read of tile[200] that nobody wrote.", "{name}.cu:20")),
    ("compile", finding("compile-error", 'The file does not compile: expected a ";"', "{name}.cu:14", ("{name}.cu(14): "
     'error: expected a ";"', "      sum = in[i]", "      ^"))),
)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """How the class is made: the same seed gives the same class."""

    students: int
    seed: int = 1
    source_lines: int = 24
    exercises: tuple[str, ...] = EXERCISES
    sizes: tuple[int, ...] = SIZES

    def gradebook(self) -> Gradebook:
        """Return the class's gradebook, with some who are absent and some whose sources are alike."""
        names = [f"{given} {family}" for given in GIVEN for family in FAMILY]
        roster = tuple(Student(f"s{100 + n}", names[n % len(names)]) for n in range(self.students))
        absent = roster[7::20]
        problems = ("s103/scan: 2 files, the newest counts: scan_v2.cu", "s141/notes.docx: belongs to no exercise")
        alike = (SimilarPair("scan", ("class/s100/scan.cu", "class/s101/scan.cu"), 0.97),)
        book = Gradebook(roster=roster, absent=absent, problems=problems, duplicates=alike)
        book.ungraded["class/s104/sacn.cu"] = Finding("no-exercise", "No exercise is called sacn.")
        book.owners["class/s104/sacn.cu"] = "s104"
        for student in roster:
            for grade in self._grades(student) if student not in absent else ():
                add(book, grade)
        return book

    def _grades(self, student: Student) -> Iterator[Grade]:
        chance = random.Random(f"{self.seed} {student.id}")
        skill = chance.betavariate(3, 1.6)
        for name in self.exercises:
            if chance.random() < 0.96:
                yield self._grade(student, name, skill, chance)

    def _grade(self, student: Student, exercise: str, skill: float, chance: random.Random) -> Grade:
        cause = chance.choice(CAUSES) if chance.random() > 0.35 + 0.6 * skill else None
        correct = (f"correct[n={n}]" for n in self.sizes)
        names = ["compile", *correct, "safe[memory]", "safe[races]", "safe[initialised]"]
        checks = tuple(_check(name, exercise, cause) for name in names)
        checks += tuple(_tiers(exercise, cause, 0.7 * 9 ** (skill * chance.uniform(0.6, 1.1)), chance))
        if cause is None:
            checks = (*checks[:-1], replace(checks[-1], listing=_listing(exercise, self.source_lines, chance)))
        submission = f"class/{student.id}/{exercise}.cu"
        return Grade(submission, exercise, checks, PROVENANCE, student.id)


def add(book: Gradebook, grade: Grade) -> None:
    """Add a grade as it arrives from pytest: check by check."""
    for position, check in enumerate(grade.checks):
        book.add(result_properties(replace(grade, checks=(check,)), position))


def _check(name: str, exercise: str, cause: tuple[str, Finding] | None) -> CheckResult:
    kind, points = name.partition("[")[0], 3.0
    if cause is None or (cause[0] != name and cause[0] != "compile"):
        return CheckResult(name, kind, "passed", points, points, duration_s=0.1)  # type: ignore[arg-type]
    own = replace(
        cause[1],
        where=cause[1].where.format(name=exercise),
        evidence=tuple(line.replace("{name}", exercise) for line in cause[1].evidence),
    )
    found = own if cause[0] == name else because_of(cause[0], own)
    return CheckResult(name, kind, "failed", 0, points, (found,), duration_s=0.1)  # type: ignore[arg-type]


def _tiers(
    exercise: str, cause: tuple[str, Finding] | None, speedup: float, chance: random.Random
) -> Iterator[CheckResult]:
    width = chance.uniform(0.002, 0.03) * speedup
    low, high = speedup - width, speedup + width
    gb_s = min(441 * speedup, 0.93 * PEAK_GB_S)
    times = {"size": "2^26", "elapsed_ms": 2.1 / speedup, "baseline_ms": 2.1, "speedup": speedup, "estimated": False}
    for threshold, required, points in THRESHOLDS:
        name = f"speedup[{threshold:g}x]"
        if cause is not None:
            found = because_of(cause[0], cause[1])
            yield CheckResult(name, "speedup", "failed", 0, points, (found,), required=required)
            continue
        measured = Measurement(
            **times, threshold=threshold, bandwidth_gb_s=gb_s, occupancy=1.0, registers=24, low=low, high=high,
            bottleneck="shared memory: 12 % of its passes are bank conflicts", rounds=40, caches="cold",
            peak_bandwidth_gb_s=PEAK_GB_S,
        )  # fmt: skip
        yield _judged(CheckResult(name, "speedup", "passed", points, points, (), measured, required))


def _judged(check: CheckResult) -> CheckResult:
    timed = check.measurement
    assert timed is not None and timed.low is not None and timed.high is not None
    if timed.low >= timed.threshold:
        return check
    if timed.high >= timed.threshold:
        undecided = finding("inconclusive", f"The speedup lies between {timed.low:.3f}x and {timed.high:.3f}x.")
        return replace(check, verdict="inconclusive", findings=(undecided,))
    verdict: Verdict = "failed" if check.required else "missed"
    slow = Finding("too-slow", f"A speedup of {timed.speedup:.2f}x over naive.cu.", hint=HINTS["inconclusive"])
    return replace(check, verdict=verdict, points=0.0, findings=(slow,))


def _listing(exercise: str, lines: int, chance: random.Random) -> Listing:
    source = (SOURCE * (lines // 24 + 1)).splitlines()[:lines]
    listed = tuple(ListedLine(number, text, _counters(text, chance)) for number, text in enumerate(source, start=1))
    return Listing("2^20", "", "simulated GPU (cost model: NVIDIA H200)", 0.05, (ListedFile(f"{exercise}.cu", listed),))


def _counters(text: str, chance: random.Random) -> dict[str, float]:
    if not text.startswith("    ") or text.strip().startswith(("GPULAB_T", "}")):
        return {}
    issued = float(chance.randrange(1000, 90000))
    return {
        TIME_SHARE: chance.uniform(0.2, 18),
        "smsp__inst_executed.sum": issued,
        "smsp__thread_inst_executed_pred_on.sum": issued * chance.uniform(8, 32),
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 4096.0,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 1024.0,
    }
