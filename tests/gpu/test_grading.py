"""Grading on a real GPU. Each submission has a process of its own, because a fault breaks the process's GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]

PROGRAM = """
import json, sys
from pathlib import Path
from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grader import Grader

path = Path(sys.argv[1])
catalogue = Catalogue(Path("exercises"))
loaded = catalogue.load(catalogue.exercise_of(path))
grader = Grader(loaded, path, open_device("cuda")[0], seed=1)
results = [grader.run(check) for check in checks_of(loaded.exercise) if check.kind != "speedup"]
print(json.dumps({result.name: [result.verdict, [found.code for found in result.findings]] for result in results}))
"""


def grade(submission):
    program = [sys.executable, "-c", PROGRAM, str(ROOT / submission)]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize(
    "submission",
    [
        "solutions/reduction/10_shuffle_unroll8.cu",
        "solutions/scan/06_single_pass.cu",
        "solutions/divergence/02_eight_way_by_warp.cu",
        "solutions/constant_memory/01_constant.cu",
    ],
)
def test_a_solution_is_correct_and_safe(submission):
    results = grade(submission)
    bad = {name: verdict for name, (verdict, _) in results.items() if verdict not in ("passed", "missed")}
    assert bad == {}


def test_another_kernel_for_nvrtc_earns_no_points(tmp_path):
    """Barriers are counted in the code that is timed, which nvcc makes."""
    few, many = (
        (ROOT / f"solutions/reduction/{name}.cu").read_text() for name in ("10_shuffle_unroll8", "06_shared_modulo")
    )
    path = tmp_path / "reduction.cu"
    path.write_text(f"#ifdef __CUDACC_RTC__\n{few}\n#else\n{many}\n#endif\n")
    assert grade(path)["uses[few-barriers]"] == ["missed", ["concept"]]


# A check that each must fail. What only the simulated GPU sees (reads outside, barriers, races) is not among them, and
# after a fault no later check can be graded, so any one of the kind must do.
WRONG = {
    "reduction/misaligned_vector": ("correct", "misaligned"),
    "reduction/endless_loop": ("correct", "endless-loop"),
    "reduction/recursion_without_end": ("correct", "out-of-bounds"),  # an H100 says no more; the simulated GPU does
    "reduction/half_precision": ("correct", "wrong-result"),
    "reduction/tunable_out_of_range": ("compile", "tunable-range"),
    "scan/one_barrier_write_read": ("correct", "wrong-result"),
    "scan/compile_error": ("compile", "compile-error"),
    "divergence/no_guard": ("safe", "out-of-bounds"),
    "divergence/input_changed": ("correct", "input-changed"),
    "constant_memory/guard_one_too_far": ("safe", "out-of-bounds"),
    "constant_memory/wrong_signature": ("compile", "wrong-signature"),
}


@pytest.mark.parametrize(("submission", "expected"), WRONG.items())
def test_a_wrong_kernel_is_found_out(submission, expected):
    kind, code = expected
    results = grade(f"tests/wrong/{submission}.cu")
    assert any(
        name.startswith(kind) and verdict == "failed" and code in codes for name, (verdict, codes) in results.items()
    ), results
