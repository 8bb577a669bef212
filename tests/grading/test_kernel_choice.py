"""Kernels with other names and types are graded as far as they fit, and the grader says which one it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from any_nvcc import by_nvcc, needs_nvcc

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.compilation.deduced_instances import with_instances
from pytest_gpulab.grading.grade import CheckResult, Finding
from pytest_gpulab.grading.grader import Grader

EXERCISES = Path(__file__).parents[2] / "exercises"
BODY = """
{
    __shared__ TYPE tile[BLOCK_SIZE];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t] = i < n ? in[i] : TYPE(0);
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (t < stride)
            tile[t] = tile[t] + tile[t + stride];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}
"""
Run = Callable[..., dict[str, CheckResult]]


def kernel(name: str, of: str = "int", before: str = "__global__ void", count: str = "int") -> str:
    return f"{before} {name}(const {of} *in, {of} *out, {count} n){BODY.replace('TYPE', of)}"


@pytest.fixture(scope="module")
def gpu() -> Device:
    return open_device("sim")[0]


@pytest.fixture
def run(gpu: Device, tmp_path: Path) -> Run:
    def results(source: str, *names: str, before: str = "#define BLOCK_SIZE 128\n") -> dict[str, CheckResult]:
        (tmp_path / "mine.cu").write_text(before + source)
        exercise = Catalogue(EXERCISES).load("reduction")
        grader = Grader(exercise, tmp_path / "mine.cu", gpu, seed=3)
        return {check.name: grader.run(check) for check in checks_of(exercise.exercise) if check.name in names}

    return results


def compiled(run: Run, source: str, **options: str) -> tuple[str, list[str]]:
    """Return the verdict of `compile` and what its findings say."""
    result = run(source, "compile", **options)["compile"]
    return result.verdict, [f"{found.code}: {found.what}" for found in result.findings]


INTS = "own-type: The kernel fits some variants only: default, int32-max, int32-min, int32-product. "


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        (kernel("sum_in_shared_memory"), "sum_in_shared_memory"),
        (kernel("total", before='extern "C" __global__ void'), "total"),
        (kernel("total", count="unsigned"), "total"),
        (kernel("total", count="const unsigned int"), "total"),
        (f"namespace app {{ {kernel('reduce')} }}", "app::reduce"),
        (f"namespace {{ {kernel('hidden')} }}", "hidden"),
        (kernel("total") + "__global__ void fill(float *p, float value) { p[threadIdx.x] = value; }", "total"),
        (kernel("total") + kernel("other") + "GPULAB_KERNEL(reduce, total)", "total"),
        (kernel("reduce") + kernel("other") + "GPULAB_KERNEL(reduce, other)", "other"),
        ("template <int N>\n" + kernel("part") + "template __global__ void part<64>(const int *, int *, int);", "part"),
        ("template <int N>\n" + kernel("part") + "int main() { part<64><<<1, 64>>>(0, 0, 3); }", "part"),
        ("template <int N>\n" + kernel("part") + "void go() { part<64><<<1, 64>>>(0, 0, 3); "
         "part<32><<<1, 32>>>(0, 0, 3); } GPULAB_KERNEL(reduce, part<64>)", "part<64>"),
        (kernel("sum", "double") + kernel("sum"), "sum(const int *, int *, int)"),
    ],
)  # fmt: skip
def test_the_only_kernel_that_fits_is_taken(run: Run, source: str, taken: str) -> None:
    result = run(source, "compile", "correct[n=33]")
    notes = {found.code: found for found in result["compile"].findings}
    assert notes["kernel-chosen"].what == f"`{taken}` is graded as `reduce`."
    assert result["compile"].verdict == result["correct[n=33]"].verdict == "passed"


def test_a_kernel_of_the_right_name_needs_no_note(run: Run) -> None:
    verdict, notes = compiled(run, kernel("reduce") + kernel("other"))
    assert verdict == "passed" and not any("kernel-chosen" in note for note in notes)


def test_of_several_kernels_one_must_be_chosen(run: Run) -> None:
    source = kernel("first") + kernel("second") + kernel("third", "double")
    found = run(source, "compile", "correct[float32-sum]")
    (finding,) = found["compile"].findings
    assert finding.what == "There is no kernel called `reduce`, and 2 kernels have its parameters."
    assert finding.evidence == ("they are: first, second",)
    assert finding.hint.endswith(
        "Choose one with a line at file scope, after the kernel: GPULAB_KERNEL(reduce, second)"
    )
    (other,) = found["correct[float32-sum]"].findings
    assert other.what == f"Not graded, because `compile` did not pass: {finding.what}"


def test_of_several_instances_one_must_be_chosen(run: Run) -> None:
    launches = "int main() { reduce<64><<<1, 64>>>(0, 0, 3); reduce<32><<<1, 32>>>(0, 0, 3); }"
    (finding,) = run(f"template <int N>\n{kernel('reduce')}{launches}", "compile")["compile"].findings
    assert finding.what == "There are 2 kernels called `reduce`: the grader cannot tell which one to launch."
    assert finding.evidence == ("they are: reduce<64>, reduce<32>",)
    assert "GPULAB_KERNEL(reduce, reduce<32>)" in finding.hint


@pytest.mark.parametrize("named", ["misspelt", "third<3>"])
def test_a_chosen_kernel_must_exist(run: Run, named: str) -> None:
    (finding,) = run(f"{kernel('total')}GPULAB_KERNEL(reduce, {named})", "compile")["compile"].findings
    assert finding.what == f"GPULAB_KERNEL(reduce, {named}) names no kernel of this file."
    assert finding.evidence == ("kernels in the file: total",)


@pytest.mark.parametrize(
    "source",
    [
        f"template <int N>\n{kernel('part')}GPULAB_KERNEL(reduce, part<64>)",
        f"template <int N>\n{kernel('part')}auto p = &part<32>; GPULAB_KERNEL(reduce, part<64>)",
        f"namespace app {{ template <int N>\n{kernel('part')} }} GPULAB_KERNEL(reduce, app::part<64>)",
        f"namespace app {{ namespace {{ template <class T, int N = 2>\n{kernel('part', 'T')} }} }}",
        "template <class T> void go(T *p) { part<<<1, 1>>>(p, p, 0); }\ntemplate <class T>\n" + kernel("part", "T"),
        "template <class T>\n" + kernel("part", "T") + "template <class T, class... More>\n" + kernel("other", "T"),
    ],
)  # fmt: skip
def test_a_template_serves_though_no_line_instantiates_it(run: Run, source: str) -> None:
    verdict, notes = compiled(run, source)
    assert verdict == "passed" and any("part" in note and note.endswith("graded as `reduce`.") for note in notes)


@needs_nvcc
def test_nvcc_instantiates_the_same_templates(tmp_path: Path) -> None:
    templates = (
        "namespace app { template <class T, int N = 4> __global__ void one(const T *a, T *b, int) { b[N] = a[0]; }"
    )
    templates += "}\ntemplate <class T, int N> __global__ void two(const T *a, T *b, int n) { b[N] = a[n]; }\n"
    buffers = Buffer("in", "input", np.int32, (4,)), Buffer("out", "output", np.int32, (4,))
    plan = Plan(buffers, (Launch("reduce", (1,), (1,), ("in", "out", np.uint32(4))),))
    text = with_instances(templates, {}, [(plan, plan.launches[0])], ["two<int, 7>", "misspelt<3>"])
    done = by_nvcc(tmp_path, text)
    assert done.returncode == 0, done.stderr
    kernels = [symbol in (tmp_path / "a.cubin").read_bytes() for symbol in (b"3oneIiLi4EE", b"3twoIiLi7EE")]
    assert kernels == [True, True]


def test_a_template_of_unknown_arguments_is_named(run: Run) -> None:
    (finding,) = run(f"template <int N>\n{kernel('part')}", "compile")["compile"].findings
    assert finding.what == "`part` (line 2) is a template that is not instantiated."
    assert finding.evidence == ("required: __global__ void reduce(const int *, int *, unsigned int)",)
    assert finding.hint.endswith("after the kernel: GPULAB_KERNEL(reduce, part<...>)")


def test_a_template_that_does_not_compile_is_a_compile_error(run: Run) -> None:
    source = f"template <class T>\n{kernel('part', 'T')}".replace("out[blockIdx.x]", "out[T::size]")
    verdict, (finding,) = compiled(run, source)
    assert verdict == "failed" and finding.startswith("compile-error") and "T" in finding


def test_a_kernel_of_other_parameters_names_the_parameter(run: Run) -> None:
    found = run(kernel("total", "double"), "compile")["compile"]
    assert [finding.what for finding in found.findings] == [
        "Parameter 1 (`in`) of `total` is `const double *`, but the grader passes `const int *` (`in`)."
    ]
    assert (found.verdict, found.findings[0].code) == ("failed", "wrong-signature")


def test_several_kernels_of_other_parameters_are_all_named(run: Run) -> None:
    source = kernel("total", "double") + "__global__ void fill(float *p, float value) { p[threadIdx.x] = value; }"
    (finding,) = run(source, "compile")["compile"].findings
    assert finding.what == "There is no kernel called `reduce`, and no other with its parameters."
    assert finding.evidence == (
        "required: __global__ void reduce(const int *, int *, unsigned int)",
        "kernels in the file: total, fill",
        "Parameter 1 (`in`) of `total` is `const double *`, but the grader passes `const int *` (`in`).",
        "`fill` has 2 parameters, but it is called with 3.",
    )


@pytest.mark.parametrize("name", ["reduce", "sum_of_floats"])
def test_a_kernel_for_floats_is_graded_for_floats(run: Run, name: str) -> None:
    checks = ("compile", "correct[n=33]", "correct[float32-sum]", "safe[race]", "uses[coalesced]", "speedup[1.4x]")
    found = run(kernel(name, "float"), *checks)
    misfit = f"Parameter 1 (`in`) of `{name}` is `const float *`, but the grader passes `const int *` (`in`)."
    passed = [check for check, result in found.items() if result.verdict == "passed"]
    assert passed == ["compile", "correct[float32-sum]", "safe[race]"]
    note = next(note for note in found["compile"].findings if note.code == "own-type")
    assert note.what.startswith("The kernel fits some variants only: float32-sum, float32-max,")
    assert note.what.endswith(misfit) and "GPULAB_T" in note.hint
    for check in set(checks) - set(passed):
        (finding,) = found[check].findings
        assert (finding.code, finding.what, finding.because) == ("wrong-signature", misfit, "")


def test_the_reason_does_not_depend_on_the_order_of_checks(run: Run) -> None:
    (finding,) = run(kernel("reduce", "float"), "correct[n=33]")["correct[n=33]"].findings
    assert finding.what.startswith("Parameter 1 (`in`) of `reduce` is `const float *`")


def test_a_template_serves_each_type(run: Run) -> None:
    head = "template <typename T> __global__ void total(const T *in, T *out, int n)"
    launches = "int main() { total<int><<<1, 1>>>(0, 0, 3); total<float><<<1, 1>>>(0, 0, 3); }"
    verdict, notes = compiled(run, head + BODY.replace("TYPE", "T") + launches)
    assert verdict == "passed" and "kernel-chosen: `total<int>` and `total<float>` are graded as `reduce`." in notes


@pytest.mark.parametrize(
    "declared", ["const int BLOCK_SIZE = 64;", "constexpr unsigned BLOCK_SIZE = 8 * 8;", "enum { BLOCK_SIZE = 64 };",
                 "#ifndef BLOCK_SIZE\n#define BLOCK_SIZE 64\n#endif", "GPULAB_TUNABLE(BLOCK_SIZE, 64)"]
)  # fmt: skip
def test_constants_serve_as_tunables(run: Run, declared: str) -> None:
    assert compiled(run, kernel("reduce"), before=f"{declared}\n")[0] == "passed"
    source = kernel("reduce").replace("BLOCK_SIZE", "200")
    verdict, (finding,) = compiled(run, source, before=f"{declared.replace('64', '200').replace('8 * 8', '200')}\n")
    assert (verdict, finding) == (
        "failed", "tunable-range: The tunable BLOCK_SIZE is 200, which this exercise does not accept."
    )  # fmt: skip


@pytest.mark.parametrize(
    "declared", ["namespace sizes { const int BLOCK_SIZE = 64; }", "#ifdef LARGE\nconst int BLOCK_SIZE = 64;\n#endif",
                 "#define BLOCK_SIZE 64\n#undef BLOCK_SIZE", "// #define BLOCK_SIZE 64"]
)  # fmt: skip
def test_constants_of_other_scopes_do_not(run: Run, declared: str) -> None:
    verdict, found = compiled(run, kernel("reduce").replace("BLOCK_SIZE", "64"), before=f"{declared}\n")
    missing = "The file does not declare the tunable BLOCK_SIZE."
    if declared.endswith(("; }", "#endif")):
        line = declared.count("\n", 0, declared.index("const")) + 1
        missing = f"`BLOCK_SIZE` (line {line}) is no constant at file scope, so the grader cannot read the tunable."
    assert (verdict, found) == ("failed", [f"tunable-missing: {missing}"])


def test_one_finding_names_everything_that_is_missing(run: Run) -> None:
    source = (kernel("first") + kernel("second")).replace("BLOCK_SIZE", "64")
    (finding,) = run(source, "compile", before="")["compile"].findings
    assert finding.what == (
        "To grade this file: add GPULAB_TUNABLE(BLOCK_SIZE, value) at file scope; choose a kernel for `reduce`."
    )
    assert finding.evidence == (
        "accepted for BLOCK_SIZE: 32, 64, 128, 256, 512, 1024",
        "There is no kernel called `reduce`, and 2 kernels have its parameters.",
        "they are: first, second",
    )
    assert "GPULAB_TUNABLE" not in finding.hint and "GPULAB_KERNEL(reduce, second)" in finding.hint


@pytest.mark.parametrize(
    ("kernels", "request_"),
    [
        ("", "add a kernel `reduce`"),
        (kernel("total", "double"), "change the kernel: parameter 1 (`in`) of `total` is `const double *`, but the "
         "grader passes `const int *` (`in`)"),
    ],
)  # fmt: skip
def test_each_kind_of_lack_has_a_request(run: Run, kernels: str, request_: str) -> None:
    (found,) = run(kernels.replace("BLOCK_SIZE", "64") or "// empty", "compile", before="")["compile"].findings
    assert found.what == f"To grade this file: add GPULAB_TUNABLE(BLOCK_SIZE, value) at file scope; {request_}."


def test_two_kernels_and_an_array_are_missing(gpu: Device, tmp_path: Path) -> None:
    def finding(name: str, source: str) -> str:
        (tmp_path / "mine.cu").write_text(source)
        exercise = Catalogue(EXERCISES).load(name)
        grader = Grader(exercise, tmp_path / "mine.cu", gpu, seed=3)
        return grader.run(next(c for c in checks_of(exercise.exercise) if c.name == "compile")).findings[0].what

    assert finding("scan", "__device__ int nothing;") == (
        "To grade this file: add GPULAB_TUNABLE(BLOCK_SIZE, value) at file scope; add GPULAB_TUNABLE(INCLUSIVE, value) "
        "at file scope; add a kernel `scan_block`; add a kernel `add_offsets`."
    )
    assert finding("constant_memory", "__device__ int nothing;") == (
        "To grade this file: add GPULAB_TUNABLE(TILE_X, value) at file scope; add GPULAB_TUNABLE(TILE_Y, value) "
        "at file scope; add a kernel `field`; add `__constant__ float vectors[...]` of 512 bytes at file scope."
    )


def test_a_variable_with_the_name_of_a_tunable_is_named(run: Run) -> None:
    source = kernel("reduce").replace("BLOCK_SIZE", "128")
    (finding,) = run(source, "compile", before="#include <iostream>\nint BLOCK_SIZE = 128;\n")["compile"].findings
    assert finding.what.startswith("`BLOCK_SIZE` (line 2) is no constant at file scope")
    assert finding.hint == "Write `const int BLOCK_SIZE = value;` at file scope."


def test_a_macro_of_the_header_is_named_with_its_include(run: Run) -> None:
    source = kernel("first") + kernel("second")
    (finding,) = run(source, "compile")["compile"].findings
    assert finding.hint.startswith("With nvcc, the macros need `#include <gpulab.cuh>`. Choose one")
    (finding,) = run(f"#include <gpulab.cuh>\n{source}", "compile")["compile"].findings
    assert "#include" not in finding.hint


def test_a_note_names_macros_that_a_kernel_of_one_operation_lacks(run: Run) -> None:
    note = (
        "macro-unread: The file uses no GPULAB_IDENTITY, no GPULAB_OP, no GPULAB_T, so it computes the same in each "
        "variant."
    )
    assert note in compiled(run, kernel("reduce"))[1]
    assert note not in compiled(run, kernel("reduce", "GPULAB_T"))[1]


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (kernel("reduce").replace("tile[0];\n}", "tile[0];\n"),
         "A closing brace is missing: a `{` in line 3 or after it has no `}`."),
        ('#include "mine.cuh"\n' + kernel("reduce"),
         "The grader compiles this file alone: move the code of `mine.cuh` that the kernels need into it."),
        ("const double PI = acos(-1.0);\n" + kernel("reduce").replace("= tile[0]", "= PI"),
         "A kernel can use only a constant of known value: write it as a number, or pass it to the kernel."),
        (kernel("reduce").replace("= tile[0]", "= __shfl_down(tile[0], 1)"),
         "`__shfl_down` is now `__shfl_down_sync`. Its first argument is the mask of the lanes, 0xffffffff for a whole "
         "warp."),
        ("<<<<<<< HEAD\n" + kernel("reduce"),
         "Line 2 is a mark of a merge conflict. Keep one of the versions, and delete the marks."),
        ("```cuda\n" + kernel("reduce"), "Line 2 is from a Markdown text, not from a program. Delete it."),
        ("{\\rtf1\\ansi " + kernel("reduce"), "Line 2 is that of an RTF file. Save the file as plain text."),
        ("__device__ int a\u00f1o() { return 2; }\n" + kernel("reduce"),
         "Names of kernels, device functions and global variables may have only the letters a to z, without accents."),
    ],
)  # fmt: skip
def test_mistakes_that_the_compiler_does_not_explain_have_a_hint(run: Run, source: str, hint: str) -> None:
    (finding,) = run(source, "compile")["compile"].findings
    assert (finding.code, finding.hint) == ("compile-error", hint)
    assert "gpulab_tunable" not in "".join(finding.evidence)  # after the end of the file


def divergence(gpu: Device, tmp_path: Path, source: str) -> Finding:
    """Return the first finding of `compile` on a file of the divergence exercise."""
    (tmp_path / "divergence.cu").write_text("#include <gpulab.cuh>\nGPULAB_TUNABLE(BLOCK_SIZE, 256)\n" + source)
    loaded = Catalogue(EXERCISES).load("divergence")
    return Grader(loaded, tmp_path / "divergence.cu", gpu, seed=3).run(checks_of(loaded.exercise)[0]).findings[0]


PATH = "__global__ void NAME(const float *in, float *out, unsigned n) { out[0] = take_path(n % 8, in[0]); }\n"


def test_the_header_of_an_exercise_is_asked_for(gpu: Device, tmp_path: Path) -> None:
    found = divergence(gpu, tmp_path, PATH.replace("NAME", "transform8"))
    assert found.what == 'The file does not compile: identifier "take_path" is undefined'
    assert found.hint == 'Include the exercise\'s header: #include "paths.cuh"'


def test_kernels_of_several_variants_are_chosen_at_once(gpu: Device, tmp_path: Path) -> None:
    kernels = "".join(PATH.replace("NAME", name) for name in ("by_two", "by_eight"))
    found = divergence(gpu, tmp_path, f'#include "paths.cuh"\n{kernels}')
    assert found.what == "There is no kernel called `transform2`, and 2 kernels have its parameters."
    assert found.hint.endswith("such as: GPULAB_KERNEL(transform2, by_two) and GPULAB_KERNEL(transform8, by_eight)")


def test_a_kernel_of_another_variant_is_not_taken_for_the_missing_one(gpu: Device, tmp_path: Path) -> None:
    """The divergence exercise launches `transform2` and, in other checks, `transform8`, with the same parameters."""
    found = divergence(gpu, tmp_path, f'#include "paths.cuh"\n{PATH.replace("NAME", "transform2")}')
    assert found.what.endswith("There is no kernel called `transform8`.")
