"""An nvcc that compiles nothing on this machine costs no student a point, whatever it says."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fake_nvcc import Compiler, pycuda_for, stand_in

from pytest_gpulab.course import jobs
from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.cuda.nvcc import compile as nvcc_module
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc
from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.devices.simulated.device import SimulatedDevice
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.grader import Grader

FEW = f"-I{Path(nvcc_module.__file__).parents[3] / 'include/nvcc'}"
UNSUPPORTED = "nvcc fatal   : Unsupported gpu architecture 'compute_120'"
USELESS = {
    UNSUPPORTED: "nvcc fatal : Unsupported gpu architecture 'compute_120'; is the CUDA toolkit as new as the GPU?",
    "In file included from /usr/local/cuda/include/cuda_runtime.h:82,\n                 from <command-line>:\n"
    "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version!": (
        "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version!"
    ),
    "sh: c++: not found\nnvcc fatal   : Failed to preprocess host compiler properties.": (
        "sh: c++: not found; nvcc fatal : Failed to preprocess host compiler properties."
    ),
    "fatal error: error writing to /tmp/tmpxft.o: No space left on device": (
        "fatal error: error writing to /tmp/tmpxft.o: No space left on device"
    ),
    "gcc: fatal error: cannot execute 'cc1plus': execvp: No such file": (
        "gcc: fatal error: cannot execute 'cc1plus': execvp: No such file"
    ),
    "x" * 1000: "x" * 300,
}


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return stand_in(tmp_path, monkeypatch)


@pytest.mark.parametrize(("words", "told"), USELESS.items())
def test_an_nvcc_that_compiles_nothing_at_all_is_the_machines_fault(compiler: Compiler, words: str, told: str) -> None:
    compiler.says_of_all(words)
    assert compiler.missing("text") == f"nvcc compiles no kernel at all here: {told}"
    with pytest.raises(DeviceUnavailable, match=r"^nvcc compiles no kernel at all here: "):
        compiler.nvcc.ahead("text", "k.cu", "sm_90", [{"T": "int"}, {"T": "float"}], {})
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_an_nvcc_that_fails_without_a_word_is_useless_too(compiler: Compiler) -> None:
    compiler.says("exit 1", "exit 1")
    with pytest.raises(DeviceUnavailable, match=r"^nvcc compiles no kernel at all here: no message$"):
        compiler.nvcc.try_out("sm_90")


def test_one_that_compiles_with_few_headers_or_at_least_with_all_is_not_useless(compiler: Compiler) -> None:
    compiler.nvcc.try_out("sm_90")
    few = 'case "$*" in */include/nvcc*) echo no >&2; exit 1 ;; esac\n'
    compiler.says("exit 1", f"{few}echo code >kernel.cubin; exit")
    compiler.nvcc.try_out("sm_90")
    first, *others = compiler.trials
    assert "-D__MATH_FUNCTIONS_H__" in first and [f"{FEW} " in trial for trial in others] == [True, False]


@pytest.mark.parametrize("words", USELESS)
def test_messages_caused_by_a_text_are_not_believed_if_nvcc_works(compiler: Compiler, words: str) -> None:
    """It may say anything, with an #error; and one that compiles nothing after all is not asked a second time."""
    compiler.says(f"cat <<'EOF' >&2\n{words}\nEOF\nexit 1")
    assert compiler.said("text", T="int") == compiler.said("text", T="float") == words
    (trial,) = compiler.trials
    assert "--cubin -std=c++17 --generate-line-info" in trial
    assert trial.split().count(f"-I{Path(nvcc_module.__file__).parents[3] / 'include'}") == 1


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")
def test_the_real_one_compiles_the_trial_for_gpus_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    pycuda_for(monkeypatch)
    nvcc = Nvcc(cache=Cache(None))
    nvcc.try_out("sm_90")
    with pytest.raises(
        DeviceUnavailable, match=r"^nvcc compiles no kernel at all here: nvcc fatal : Unsupported gpu arch.*'sm_1'; is"
    ):
        nvcc.cubin("__global__ void f() {}", "k.cu", "sm_1", {}, {})


def test_an_nvcc_that_works_again_is_used(compiler: Compiler) -> None:
    compiler.says_of_all("No space left on device")
    compiler.missing("text")
    compiler.says("echo 'k.cu(1): error: no' >&2; exit 1")
    assert compiler.said("text") == "k.cu(1): error: no"
    assert len(compiler.trials) == 2


def test_success_of_nvcc_in_another_process_proves_nothing(compiler: Compiler) -> None:
    """The C compiler may be another one by now, or the disk be full."""
    compiler.says("echo code >kernel.cubin")
    compiler.nvcc.try_out("sm_90")
    compiler.nvcc = Nvcc(cache=Cache(compiler.folder.parent / "cache"))
    compiler.says_of_all("No space left on device")
    assert compiler.missing("text").endswith("No space left on device")


def test_a_text_that_compiled_with_all_headers_is_trial_enough(compiler: Compiler) -> None:
    compiler.says("echo code >kernel.cubin")
    compiler.cubin("using namespace std;")
    compiler.says("echo 'k.cu(1): error: no' >&2; exit 1")
    assert compiler.said("text") == "k.cu(1): error: no"
    assert not compiler.trials


@pytest.mark.parametrize(
    "words", ["k.cu(1): catastrophic error: out of memory", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"]
)
def test_where_a_limit_was_met_or_others_took_the_memory_nothing_is_tried(compiler: Compiler, words: str) -> None:
    compiler.says(f'echo "{words}" >&2; exit 1')
    compiler.said("text")
    assert not compiler.trials


def test_where_there_is_no_room_for_nvccs_files_it_is_the_machines_fault(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "limited.sh")

    monkeypatch.setattr(nvcc_module, "limited", full)
    assert compiler.missing("text") == "nvcc cannot be run here: [Errno 28] No space left on device: 'limited.sh'"


class Compiling(SimulatedDevice):
    """A GPU, as far as nvcc knows."""

    nvcc: Nvcc

    def compile(self, source: str, filename: str = "k.cu", *others: Any) -> Any:
        cubin, _ = self.nvcc.cubin(source, filename, "sm_120", *others)
        raise AssertionError(f"{source} became {cubin!r}")


def test_no_student_pays_for_a_useless_nvcc_and_the_class_says_why(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.says_of_all(UNSUPPORTED)
    course = Path(__file__).parents[2] / "exercises"
    submission = (course / "reduction" / "naive.cu").read_bytes()
    device, graders = Compiling(), []
    device.nvcc = compiler.nvcc

    def grader(loaded: LoadedExercise, path: Path, *_: object) -> Grader:
        graders.append(Grader(loaded, path, device, seed=1))
        graders[0].begin = lambda: device.info  # type: ignore[attr-defined]
        return graders[0]

    monkeypatch.setattr(jobs, "RemoteGrader", grader)
    settings = jobs.GradingSettings("cuda", seed=1, timeout_s=60.0)
    hash_of = jobs.content_sha256(course / "reduction")
    job = jobs.Job("ann/r.cu", "ann", "reduction", "r.cu", submission, course, hash_of, settings)
    with pytest.raises(jobs.NotGraded, match=r"nvcc compiles no kernel at all here: .* 'compute_120'; is the CUDA"):
        jobs.graded_apart(job)
    assert {check.verdict for check in graders[0].grade().checks} == {"not gradable"}
