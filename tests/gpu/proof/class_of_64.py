"""64 submissions graded one after the other, by parallel workers, and with every fourth one hostile, on one GPU.

At least 200 gradings per minute, the verdicts of the sequential run, and no change by hostile neighbours. Run it
on a machine with a GPU, with the package importable, beside nothing else: its folder for temporary files is its own, so
other graders do not wait for it (about ten minutes; `--skip-sequential` compares with the parallel run only,
`--sequential FILE` with an earlier run's, `--only-sequential` is that run):

    python tests/gpu/proof/class_of_64.py --json class.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import ROOT, Proof, arguments

CLASS = 64
LEAST_PER_MINUTE = 200
EXERCISES = (
    *("reduction", "scan", "divergence", "constant_memory"),
    *("matrix_sum", "transpose", "histogram", "stencil"),
)
LIMIT_S = 560
DEVICE = "cuda"
NOT_GRADABLE = "not gradable"
UNDECIDED = (NOT_GRADABLE, "inconclusive")  # must not occur
PLUGIN = "pytest_gpulab.plugin"
Verdicts = dict[str, dict[str, str]]  # student -> check -> verdict

HOSTILE = """// A hostile submission: {what}.
#include <gpulab.cuh>
#include <cstdio>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)
GPULAB_TUNABLE(MAX_BLOCKS, 0)

{before}
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{{
    {deed}
    out[blockIdx.x] = in[blockIdx.x];
}}
"""
DEEDS = {
    "spins for ever": ("", "while (*(volatile unsigned *)&n || true) {}"),
    "writes to an illegal address": ("", "*(volatile int *)16 = 1;"),
    "traps": ("", "__trap();"),
    "floods printf": ("", 'for (int k = 0; k < 100000; ++k) printf("%d of many\\n", k);'),
    "bombs the compiler": (
        "template <int A, int B> struct Bomb { static constexpr int value ="
        " Bomb<A - 1, 2 * B>::value + Bomb<A - 1, 2 * B + 1>::value; };\n"
        "template <int B> struct Bomb<0, B> { static constexpr int value = B; };\n"
        "constexpr int boom = Bomb<26, 1>::value;",
        "if (n == boom) return;",
    ),
}


def sources() -> list[tuple[str, Path]]:
    """Return all solutions and naive kernels with their exercises: what a class hands in."""
    return [
        (exercise, path)
        for exercise in EXERCISES
        for path in (ROOT / "exercises" / exercise / "naive.cu", *sorted((ROOT / "solutions" / exercise).glob("*.cu")))
    ]


def make_class(folder: Path, hostile: bool) -> dict[str, str]:
    """Write the submissions and return who handed in what; every fourth one is hostile on request.

    A comment at the end makes all of them differ, or equal ones would be compiled, and even graded, once for all.
    """
    who = {}
    for nth in range(CLASS):
        exercise, path = sources()[nth % len(sources())]
        text, name = path.read_text(), f"{exercise}/{path.name}"
        if hostile and nth % 4 == 3:
            what, (before, deed) = list(DEEDS.items())[nth // 4 % len(DEEDS)]
            exercise, text, name = "reduction", HOSTILE.format(what=what, before=before, deed=deed), what
        text += f"\n// student {nth}\n"
        student = folder / f"student{nth:02d}"
        student.mkdir(parents=True)
        (student / f"{exercise}.cu").write_text(text)
        who[student.name] = name
    return who


LOOP = "import time; begin_s = time.perf_counter(); sum(range(20_000_000)); print(time.perf_counter() - begin_s)"


def loop_s(at_once: int) -> float:
    """Return how long the same work takes in so many processes at once: machines differ, and others may share them."""
    programs = [
        subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True) for _ in range(at_once)
    ]
    return max(float(program.communicate()[0]) for program in programs)


def machine_s() -> tuple[float, float]:
    """Return the CPU time of all programs, and of the system for them: those that graded were started by several."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split(maxsplit=4)[1:4])
    return (user + nice) / os.sysconf("SC_CLK_TCK"), system / os.sysconf("SC_CLK_TCK")


def graded(folder: Path, workers: int) -> tuple[Verdicts, float]:
    """Grade a folder with pytest; return the verdicts and how long it took.

    Raises:
        RuntimeError: pytest did not come to its end.
    """
    report = folder.with_suffix(".json")
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider"]
    command += ["-q", "--tb=no", *([f"--gpulab-workers={workers}"] if workers else [])]
    command += [
        "--gpulab",
        f"--gpulab-device={DEVICE}",
        "--gpulab-seed=1",
        f"--gpulab-exercises={ROOT / 'exercises'}",
        f"--gpulab-report=json:{report}",
        str(folder),
    ]
    temporary = folder.with_suffix(".tmp")  # a new one, or the second run would find all compiled
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # none but ours
    begin_s = time.perf_counter()
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    took_s = time.perf_counter() - begin_s
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-2000:]}")
    grades = json.loads(report.read_text())["grades"]
    print(f"{folder.name}: {len(grades)} graded in {took_s:.1f} s", flush=True)
    for grade in grades:
        for check in grade["checks"]:
            if check["verdict"] in UNDECIDED:
                print(f"{grade['submission']}: {check['name']}: {check['findings']}", flush=True)
    return {
        Path(grade["submission"]).parent.name: {check["name"]: check["verdict"] for check in grade["checks"]}
        for grade in grades
    }, took_s


def differences(expected: Verdicts, found: Verdicts, who: dict[str, str], students: list[str]) -> list[tuple[str, ...]]:
    """Return what each of the students got instead of what was expected."""
    return [
        (student, who[student], check, verdict, found.get(student, {}).get(check, "nothing"))
        for student in students
        for check, verdict in expected[student].items()
        if found.get(student, {}).get(check) != verdict
    ]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="(default: as many as a class would have)")
    parser.add_argument("--sequential", type=Path, help="a file of an earlier run: takes its sequential verdicts")
    parser.add_argument("--skip-sequential", action="store_true", help="compare the hostile run with the parallel one")
    parser.add_argument("--only-sequential", action="store_true", help="for another run's --sequential")
    parser.add_argument("--skip-hostile", action="store_true")
    options = parser.parse_args()
    how = "one after the other" if options.only_sequential else f"by {options.workers} workers"
    proof = Proof(f"{CLASS} submissions on one GPU, {how}")
    folder = Path(tempfile.mkdtemp(prefix="gpulab-class-"))
    try:
        _prove(proof, folder, options)
    except (RuntimeError, subprocess.TimeoutExpired) as error:  # what was found before is kept
        proof.figure("a run that did not come to its end", str(error)[:500], "none", False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # processes that were cut off clear up themselves
    return proof.finish(options.json)


def _prove(proof: Proof, folder: Path, options: argparse.Namespace) -> None:
    if options.only_sequential:
        proof.records["sequential"] = _sequential(proof, folder)
        return
    earlier = json.loads(options.sequential.read_text())["records"]["sequential"] if options.sequential else None
    who = make_class(folder / "parallel", hostile=False)
    cores = os.cpu_count() or 1
    proof.figure("a loop in Python", f"{loop_s(1):.2f} s alone, {loop_s(cores):.2f} s on all {cores} cores at once")
    before = machine_s()
    parallel, took_s = graded(folder / "parallel", options.workers)
    per_minute = 60 * len(parallel) / took_s
    there = [student for student, verdicts in parallel.items() if NOT_GRADABLE not in verdicts.values()]
    met = len(there) == CLASS and per_minute >= LEAST_PER_MINUTE
    graded_there = f"{len(there)} in {took_s:.1f} s, {per_minute:.0f} per minute"
    own_s, system_s = (now - then for now, then in zip(machine_s(), before, strict=True))
    each_s = (own_s + system_s) / CLASS
    proof.figure("CPU time", f"{own_s:.0f} s and {system_s:.0f} s of the system's, {each_s:.1f} s per grading")
    proof.figure("graded by parallel workers", graded_there, f"all, at least {LEAST_PER_MINUTE} per minute", met)
    proof.records["parallel"] = expected = parallel
    if not options.skip_sequential:
        expected = proof.records["sequential"] = earlier or _sequential(proof, folder)
        _compare(proof, "verdicts unlike the sequential run's", expected, parallel, who, sorted(who))
    if not options.skip_hostile:
        hostile_who = make_class(folder / "hostile", hostile=True)
        hostile, took_s = graded(folder / "hostile", options.workers)
        proof.records["hostile"] = hostile
        proof.figure("with every fourth one hostile", f"{len(hostile)} in {took_s:.1f} s")
        others = [student for student in sorted(who) if hostile_who[student] == who[student]]
        _compare(proof, "verdicts of others that hostile ones changed", expected, hostile, who, others)
        enemies = [student for student in sorted(who) if student not in others]
        rows = ((student, hostile_who[student], _summary(hostile.get(student, {}))) for student in enemies)
        proof.table("Verdicts of the hostile submissions", ("student", "behaviour", "verdicts"), rows)


def _sequential(proof: Proof, folder: Path) -> Verdicts:
    make_class(folder / "sequential", hostile=False)
    verdicts, took_s = graded(folder / "sequential", 0)
    proof.figure("graded one after the other", f"{len(verdicts)} in {took_s:.1f} s")
    return verdicts


def _compare(
    proof: Proof, what: str, expected: Verdicts, found: Verdicts, who: dict[str, str], students: list[str]
) -> None:
    different = differences(expected, found, who, students)
    checks = sum(len(expected[student]) for student in students)
    proof.figure(what, f"{len(different)} of {checks}", "none", not different)
    if different:
        proof.table(what, ("student", "submission", "check", "expected", "found"), different)


def _summary(verdicts: dict[str, str]) -> str:
    counts = {verdict: list(verdicts.values()).count(verdict) for verdict in sorted(set(verdicts.values()))}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
