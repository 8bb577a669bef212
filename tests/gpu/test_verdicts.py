"""On a real GPU, too, every solution earns its stated points and every known-wrong kernel gets its stated verdict.

One pytest process with a fresh seed grades all solutions, speed included, another one all wrong kernels.
"""

import os

import pytest
from graded_folders import ROOT, SOLUTIONS, WRONG, assert_points, assert_verdicts, grade, named

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]

OPTIONS = ("--gpulab-device=cuda", f"-n{min(16, os.cpu_count() or 1)}")


@pytest.fixture(scope="module")
def solutions(opened_device, tmp_path_factory):
    return grade(ROOT / "solutions", tmp_path_factory.mktemp("solutions"), *OPTIONS)


@pytest.fixture(scope="module")
def wrong_kernels(opened_device, tmp_path_factory):
    return grade(ROOT / "tests" / "wrong", tmp_path_factory.mktemp("wrong"), *OPTIONS)


def test_all_solutions_pass_as_expected(solutions):
    assert solutions.exit_code == 0, solutions.output


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solution_earns_its_stated_points(solutions, path):
    assert_points(solutions.grades[path], path)


# It cheats at the size of estimates only, so a GPU times an honest kernel.
CHEATS_ESTIMATES = ("reduction/idles_in_evenly_spread_blocks",)
# Found otherwise in a GPU's timed runs: by their many launches, because it cheats at another size, by all its blocks.
ON_A_GPU = {
    "reduction/works_in_its_first_launches_only": ("speedup[1.4x]", "wrong-result"),
    "reduction/leaves_where_it_finds_poison": ("speedup[1.4x]", "too-slow"),
    "constant_memory/leaves_out_where_sampled": ("speedup[2x]", "not-written"),
}


@pytest.mark.parametrize("path", [path for path in WRONG if named(path) not in CHEATS_ESTIMATES], ids=named)
def test_a_wrong_kernel_gets_its_stated_verdict(wrong_kernels, path):
    if named(path) not in ON_A_GPU:
        assert_verdicts(wrong_kernels.grades[path], path)
        return
    name, code = ON_A_GPU[named(path)]
    (check,) = [check for check in wrong_kernels.grades[path]["checks"] if check["name"] == name]
    assert check["verdict"] == "failed" and check["findings"][0]["code"] == code
