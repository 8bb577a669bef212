"""Failures that an exercise's own baseline shares are the exercise's fault: wrong results, accesses, faults, builds."""

import pytest
from every_element_twice import EXERCISE, KERNEL

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.isolation.remote import RemoteGrader

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]

READS_BEYOND = ("if (i < n)", "int next = in[i + 1];\n    if (i < n && next != 1 << 30)")
FAR = ("if (i < n)", "if (n == 31 && i == 0) out[1 << 30] = 1;\n    if (i < n)")
CASES = ["correct[n=1]", "correct[n=31]", "correct[n=100]"]
MISTAKES = {
    "wrong results": (("2 * inputs", "3 * inputs"), None, CASES),
    "another parameter": (("np.int32(n))", "np.int64(n))"), None, ["compile", *CASES]),
    "reads beyond the end": (None, READS_BEYOND, CASES),
    "a fault": (None, FAR, ["correct[n=31]"]),
    "wrong at the timed size": (("2 * inputs", "(2 + (problem.size > 2000)) * inputs"), None, ["speedup[0.5x]"]),
}


def results(folder, info, exercise, kernel):
    """Grade a kernel; the baseline adds instead of multiplying, with the same mistake."""
    text = EXERCISE.replace(*exercise) if exercise else EXERCISE
    submission = KERNEL.replace(*kernel) if kernel else KERNEL
    (folder / "exercises" / "twice").mkdir(parents=True)
    (folder / "exercises" / "twice" / "exercise.py").write_text(text)
    (folder / "exercises" / "twice" / "naive.cu").write_text(submission.replace("2 * in", "in[i] + in"))
    (folder / "twice.cu").write_text(submission)
    loaded = Catalogue(folder / "exercises").load("twice")
    grade = RemoteGrader(loaded, folder / "twice.cu", "cuda", info, 1).grade()
    return {result.name: result for result in grade.checks}


@pytest.mark.parametrize(("exercise", "kernel", "names"), MISTAKES.values(), ids=MISTAKES)
def test_the_exercise_is_at_fault(exercise, kernel, names, tmp_path, opened_device):
    found = results(tmp_path, opened_device.info, exercise, kernel)
    wrong = [name for name, result in found.items() if result.verdict != "passed"]
    assert set(names) <= set(wrong)
    assert all(found[name].is_exercises_mistake and found[name].points == 0 for name in wrong), found


def test_a_failure_of_its_own_stays_one(tmp_path, opened_device):
    results(tmp_path, opened_device.info, None, None)
    (tmp_path / "twice.cu").write_text(KERNEL.replace("2 *", "3 *"))
    loaded = Catalogue(tmp_path / "exercises").load("twice")
    grade = RemoteGrader(loaded, tmp_path / "twice.cu", "cuda", opened_device.info, 1).grade()
    assert [result.verdict for result in grade.checks if result.kind == "correct"] == ["failed"] * 3
