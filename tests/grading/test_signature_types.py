"""The types of a kernel's parameters must match the plan's; a function that is no kernel is reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.compilation.builds import Builds
from pytest_gpulab.grading.compilation.compile_errors import strange_sign
from pytest_gpulab.grading.findings import HINTS
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.grader import Grader

EXERCISES = Path(__file__).parents[2] / "exercises"
BODY = """
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (t < stride)
            tile[t] = GPULAB_OP(tile[t], tile[t + stride]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}
"""
START = "#include <gpulab.cuh>\nGPULAB_TUNABLE(BLOCK_SIZE, 256)\n"


@pytest.fixture(scope="module")
def gpu() -> Device:
    return open_device("sim")[0]


def compiled(gpu: Device, tmp_path: Path, head: str, after: str = "") -> tuple[str, tuple[Finding, ...]]:
    """Return the verdict of `compile` on a reduction whose kernel has that head, and the findings."""
    path = tmp_path / "reduction.cu"
    path.write_text(START + head + BODY + after)
    exercise = Catalogue(EXERCISES).load("reduction")
    grader = Grader(exercise, path, gpu, seed=3)
    result = grader.run(next(check for check in checks_of(exercise.exercise) if check.name == "compile"))
    return result.verdict, result.findings


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)",
        "__global__ void reduce(GPULAB_T *in, GPULAB_T *out, int n)",
        "__global__ void reduce(const GPULAB_T *__restrict__ in, GPULAB_T *__restrict__ out, const unsigned n)",
        'extern "C" __global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)',
        "__global__ void reduce(volatile GPULAB_T *in, volatile GPULAB_T *out, unsigned n)",
    ],
)
def test_usual_ways_to_write_them_are_accepted(gpu: Device, tmp_path: Path, head: str) -> None:
    assert compiled(gpu, tmp_path, head)[0] == "passed"


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ("__global__ void reduce(GPULAB_T *out, const GPULAB_T *in, unsigned n)",
         "Parameter 2 (`in`) of `reduce` is `const int *`, but the grader passes `int *` (`out`) to write to."),
        ("__global__ void reduce(const double *in, double *out, unsigned n)",
         "Parameter 1 (`in`) of `reduce` is `const double *`, but the grader passes `const int *` (`in`)."),
        ("__global__ void reduce(const GPULAB_T *in, double *out, unsigned n)",
         "Parameter 2 (`out`) of `reduce` is `double *`, but the grader passes `int *` (`out`)."),
        ("__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, float n)",
         "Parameter 3 (`n`) of `reduce` is `float`, but the grader passes `unsigned int`."),
        ("__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, size_t n)",
         "Parameter 3 (`n`) of `reduce` is `unsigned long`, but the grader passes `unsigned int`."),
        ("__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, const unsigned &n)",
         "Parameter 3 (`n`) of `reduce` is `const unsigned int &`, but the grader passes `unsigned int`."),
    ],
)  # fmt: skip
def test_other_types_are_one_finding(gpu: Device, tmp_path: Path, head: str, what: str) -> None:
    verdict, (finding,) = compiled(gpu, tmp_path, head)
    assert (verdict, finding.code, finding.what) == ("failed", "wrong-signature", what)


@pytest.mark.parametrize("exercise", ["reduction", "scan"])
def test_the_hint_names_only_macros_that_the_variant_defines(gpu: Device, tmp_path: Path, exercise: str) -> None:
    path = tmp_path / f"{exercise}.cu"
    solution = (EXERCISES / exercise / "naive.cu").read_text()
    path.write_text(re.sub(r"(__global__ void \w+\([^)]*?)(\w+) \*", r"\1double *", solution, count=1))
    loaded = Catalogue(EXERCISES).load(exercise)
    result = Grader(loaded, path, gpu, seed=3).run(checks_of(loaded.exercise)[0])
    macros = " Where that says GPULAB_T, write it as well: it is another type in each variant."
    assert result.findings[0].hint == (
        "Declare the parameter as in the skeleton." + (macros if exercise == "reduction" else "")
    )


@pytest.mark.parametrize(
    "head", ["const T *in, T *out, unsigned n", "const T *in, T *out, int n", "T *in, T *out, T n"]
)
def test_a_template_without_instances_gets_the_types_that_the_grader_passes(
    gpu: Device, tmp_path: Path, head: str
) -> None:
    verdict, found = compiled(gpu, tmp_path, f"template <typename T>\n__global__ void reduce({head})")
    assert (verdict == "passed") == ("T n" not in head)
    if verdict == "failed":
        assert found[0].what == "`reduce` (line 3) is a template that is not instantiated."
        assert found[0].hint.endswith("after the kernel: GPULAB_KERNEL(reduce, reduce<...>)")


def test_of_several_instances_the_one_that_fits_is_taken(gpu: Device, tmp_path: Path) -> None:
    head = "template <typename T>\n__global__ void reduce(const T *in, T *out, unsigned n)"
    instance = "template __global__ void reduce<GPULAB_T>(const GPULAB_T *, GPULAB_T *, unsigned);"
    assert compiled(gpu, tmp_path, head, instance)[0] == "passed"
    two = "template __global__ void reduce<char>(const char *, char *, unsigned);"
    assert compiled(gpu, tmp_path, head, instance + two)[0] == "passed"


@pytest.mark.parametrize("mark", ["", "__device__ "])
def test_a_function_without_the_mark_is_no_kernel(gpu: Device, tmp_path: Path, mark: str) -> None:
    _, (finding,) = compiled(gpu, tmp_path, f"{mark}void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)")
    assert finding.what == "`reduce` (line 3) is not a kernel: it is declared without `__global__`."


@pytest.mark.parametrize(
    ("sign", "name"),
    [("\u00a0", "a no-break space"), ("\u200b", "a zero-width space"), ("\u202e", "right-to-left override"),
     ("\u201c", "a curly quotation mark"), ("\x07", "a control character"), ("\uff1b", "fullwidth semicolon"),
     ("\u0430", "cyrillic small letter a"), ("\U0001d465", "mathematical italic small x")],
)  # fmt: skip
def test_signs_that_cannot_be_seen_are_named(gpu: Device, tmp_path: Path, sign: str, name: str) -> None:
    head = "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)"
    comment = f"// a {sign} in a comment\n"
    assert compiled(gpu, tmp_path, comment + head)[0] == "passed"
    _, (finding,) = compiled(gpu, tmp_path, comment + head.replace("void reduce", f"void{sign} reduce"))
    assert name in finding.what and "line 4, column 16" in finding.what and finding.where == "reduction.cu:4"
    assert sign not in finding.what + "".join(finding.evidence)


@pytest.mark.parametrize(
    ("name", "strange"), [("\u0394", ""), ("\u0394x", ""), ("\u00b5", ""), ("\u0441\u0443\u043c\u043c\u0430", ""),
                          ("st\u0435p", "U+0435"), ("\u0441", "U+0441"), ("\u039cIN", "U+039C")],
)  # fmt: skip
def test_a_letter_of_another_alphabet_is_strange_only_where_it_looks_like_a_latin_one(name: str, strange: str) -> None:
    found = strange_sign(f"int {name} = 1", "reduction.cu")
    assert (found is None) == (not strange)
    assert found is None or strange in found.what


@pytest.mark.parametrize(
    ("right", "wrong", "hint"), [("    __syncthreads", "    _syncthreads", "Is `__syncthreads` meant?"),
                                 ("tile[t] = i", "tlie[t] = i", None),
                                 ("tile[t + stride]", "tile[t + stirde]", "Is `stride` meant?"),
                                 ("t = threadIdx.x", "t = threadIdx", "have three parts, such as `threadIdx.x`."),
                                 ("blockIdx.x * ", "blockIdx * ", "have three parts, such as `threadIdx.x`.")],
)  # fmt: skip
def test_a_name_that_is_nearly_right_has_a_hint(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str, hint: str | None
) -> None:
    monkeypatch.setitem(globals(), "BODY", BODY.replace(right, wrong, 1))
    _, (finding,) = compiled(gpu, tmp_path, "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)")
    assert finding.hint.endswith(hint or HINTS["compile-error"])


def test_an_array_beyond_the_constant_memory_has_a_line(gpu: Device, tmp_path: Path) -> None:
    head = "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)"
    constants = "__constant__ float small[4];\n__constant__ float table[20000];\n"
    _, (finding,) = compiled(gpu, tmp_path, constants + head)
    assert "`table` and `small` need 80,016 bytes of constant memory" in finding.what
    assert finding.where == "reduction.cu:4" and finding.hint.startswith("A `__device__` array")


def test_curly_quotation_marks_around_a_header_are_named(gpu: Device, tmp_path: Path) -> None:
    head = "#include \u201cgpulab.cuh\u201d\n__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)"
    verdict, (finding,) = compiled(gpu, tmp_path, head)
    assert verdict == "failed" and "column 10 holds a curly quotation mark (U+201C)" in finding.what


def test_line_directives_are_refused(gpu: Device, tmp_path: Path) -> None:
    head = '#line 7 "other.cu"\n__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)'
    verdict, (finding,) = compiled(gpu, tmp_path, head)
    assert (verdict, finding.what, finding.where) == ("failed", "The file uses `#line`.", "reduction.cu:3")


def test_host_code_is_reported_once(gpu: Device, tmp_path: Path) -> None:
    head = "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)"
    verdict, (note,) = compiled(gpu, tmp_path, head, "int main()\n{\n    return 0;\n}\n")
    assert verdict == "passed" and note.where == "reduction.cu:17"
    assert note.what == "Host code (lines 17 to 20) is not used: the grader launches your kernels."


@pytest.mark.parametrize(
    ("declared", "is_told"),
    [("(ITEMS_PER_THREAD, 2)", True), ("(ITEMS_PER_THREAD, 1)", False),
     ("(ITEMS_PER_THREAD, 2)\n__constant__ int items = ITEMS_PER_THREAD;", False),
     ("(ITEMS_PER_THREAD, 2)\n__device__ unsigned blocks() { return gridDim.x; }", False)],
)  # fmt: skip
def test_an_unread_tunable_is_reported(gpu: Device, tmp_path: Path, declared: str, is_told: bool) -> None:
    head = "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)"
    verdict, notes = compiled(gpu, tmp_path, f"GPULAB_TUNABLE{declared}\n{head}")
    told = ["ITEMS_PER_THREAD is declared as 2, but nothing reads it."] if is_told else []
    assert (verdict, [note.what for note in notes]) == ("passed", told)


@pytest.mark.parametrize(
    "declared",
    ["#define BLOCK_SIZE 128", "#define BLOCK_SIZE (64 * 2) // threads\nGPULAB_TUNABLE(BLOCK_SIZE, (256))",
     "GPULAB_TUNABLE(BLOCK_SIZE,\n 256)\n#define BLOCK_SIZE 128"],
)  # fmt: skip
def test_a_macro_serves_as_a_tunable(gpu: Device, tmp_path: Path, declared: str) -> None:
    head = "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)"
    path = tmp_path / "reduction.cu"
    path.write_text(f"#include <gpulab.cuh>\n{declared}\n{head}{BODY}")
    exercise = Catalogue(EXERCISES).load("reduction")
    builds = Builds(path, exercise, gpu)
    assert builds.of(exercise.exercise.cases[0].variant).tunables["BLOCK_SIZE"] == 128


def test_a_macro_that_is_no_number_is_the_compilers_to_name(gpu: Device, tmp_path: Path) -> None:
    head = "#define BLOCK_SIZE many\n__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)"
    verdict, (finding,) = compiled(gpu, tmp_path, head)
    assert verdict == "failed" and 'identifier "many" is undefined' in finding.what


@pytest.mark.parametrize(
    ("declared", "is_told"),
    [("float2 vectors[64]", ""), ("float vectors[128]", ""), ("float1 vectors[128]", ""),
     ("float4 vectors[64]", "float4"), ("int2 vectors[64]", "int2"), ("double2 vectors[64]", "double2"),
     ("unsigned int vectors[128]", "unsigned int"),
     ("struct Pair { float x, y; };\n__constant__ Pair vectors[64]", "")],
)  # fmt: skip
def test_constants_of_another_type_are_named(gpu: Device, tmp_path: Path, declared: str, is_told: str) -> None:
    field = "__global__ void field(float *out, int width, int height, int count) { out[0] = *(float *)vectors; }"
    constants = declared if declared.startswith("struct") else f"__constant__ {declared}"
    path = tmp_path / "constant_memory.cu"
    tunables = "GPULAB_TUNABLE(TILE_X, 16)\nGPULAB_TUNABLE(TILE_Y, 16)"
    path.write_text(f"#include <gpulab.cuh>\n{tunables}\n{constants};\n{field}\n")
    exercise = Catalogue(EXERCISES).load("constant_memory")
    builds = Builds(path, exercise, gpu)
    builds.of_all([exercise.exercise.cases[0].variant])
    told = f"`vectors` is an array of `{is_told}`, but the grader copies values of type `float2` into it."
    assert [note.what for note in builds.notes()] == ([told] if is_told else [])
    assert all(note.hint.endswith("`__constant__ float2 vectors[...];`.") for note in builds.notes())
