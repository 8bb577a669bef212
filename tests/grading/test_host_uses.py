"""Device code that uses host code gets a finding in plain words, the same for NVRTC's and nvcc's messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from any_nvcc import by_nvcc, needs_nvcc

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.source.host_code import device_text
from pytest_gpulab.grading.compilation.compile_errors import of_compile_error
from pytest_gpulab.grading.grade import Finding


def kernel(body: str) -> str:
    return f"__global__ void k(float *p) {{ {body} }}\n"


USES = {
    "float f(float x) { return x; }\n" + kernel("p[0] = f(1);"): "`f` (line 1), which is",
    "int n = 3;\n" + kernel("p[0] = n;"): "`n` (line 1), which is",
    "float f(float x) { return x; }\nint n;\n" + kernel("p[0] = f(1);\n p[1] = n;"):
    "`f` (line 1) and `n` (line 2), which are",
    "const float w[2] = {1, 2};\n" + kernel("p[0] = w[0];"): "`w`, which is",
    "__constant__ float f = 2;\nnamespace a { float f = 3;\n" + kernel("p[0] = f;") + "}": "`f` (line 2), which is",
    "struct S { static int n; };\nint S::n = 3;\n" + kernel("p[0] = S::n;"): "`n` (line 2), which is",
    "struct V { float x; V() { x = 1; } };\n" + kernel("p[0] = V().x;"): "`V::V`, which is",
    "struct V { float x; float get() { return x; } };\n__global__ void k(V v, float *p) { *p = v.get(); }":
    "`V::get` (line 1), which is",
    "int f(double a) { return 1; }\n__device__ int f(int a) { return a; }\n" + kernel("p[0] = f(1.5);"):
    "`f` (line 1), which is",
    "#include <vector>\n" + kernel("std::vector<int> v; v.push_back(p[0]);"): "`std::vector`, which is",
    "#include <iostream>\nusing namespace std;\n" + kernel("cout << p[0] << endl;"): "`cout` and `endl`, which are",
    "#include <string>\n" + kernel('std::string s = "a";'): "`std::string`, which is",
    "struct N { std::vector<int> v; };\n__global__ void k(N *p) { p->v[0] = 1; }": "`std::vector`, which is",
    "#include <thrust/device_vector.h>\n__global__ void k(thrust::device_ptr<int> p) { }": "`thrust`, which is",
    "#include <cstdlib>\n" + kernel("p[0] = rand() + time(0);"): "`rand` and `time`, which are",
    "#include <cstdlib>\n" + kernel("if (p[0] < 0) exit(1);"): "`exit`, which is",
    "#include <omp.h>\n" + kernel("p[0] = omp_get_thread_num();"): "`omp_get_thread_num`, which is",
}  # fmt: skip


def explained(error: CompileError, source: str) -> Finding:
    verdict, finding = of_compile_error(error, device_text(source, {}), source, "a.cu", {})
    assert verdict == "failed"
    return finding


def refused(source: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        SimulatedDevice().compile(source, "a.cu", {})
    return caught.value


@pytest.mark.parametrize(("source", "what"), USES.items(), ids=USES.values())
def test_host_code_in_kernels_is_named(source: str, what: str) -> None:
    error = refused(source)
    finding = explained(error, source)
    assert finding.code == "host-code-used"
    assert finding.what == f"Device code uses {what} host code."
    assert set(error.diagnostics.splitlines()) <= set(finding.evidence)
    assert finding.where in ("", *(f"a.cu:{line}" for line in range(1, 5)))
    is_library = "line" not in what and "`V" not in what and "`w`" not in what
    assert finding.hint.startswith("Libraries of the host" if is_library else "Mark a function `__device__`")


@needs_nvcc
@pytest.mark.parametrize(("source", "what"), USES.items(), ids=USES.values())
def test_nvccs_messages_are_explained_in_the_same_way(source: str, what: str, tmp_path: Path) -> None:
    done = by_nvcc(tmp_path, device_text(source, {}).text)
    said = explained(CompileError(done.stdout + done.stderr), source)
    assert (said.code, said.what) == ("host-code-used", f"Device code uses {what} host code.")


def test_headers_that_were_not_read_are_named() -> None:
    source = '#include "mine.h"\nint main() { }\n' + kernel("p[0] = std::chrono::seconds(1);")
    assert "not read: `mine.h` (line 1)" in explained(refused(source), source).evidence


@pytest.mark.parametrize(
    "source",
    [
        kernel("p[0] = many;"),
        "#include <vector>\n" + kernel("p[0] = many; std::vector<int> v;"),
        "struct V { V() = delete; };\nint f() { return 1; }\n" + kernel("p[0] = 1 +;"),
        "__device__ float f(float);\n" + kernel("p[0] = f(1);"),
    ],
)
def test_other_mistakes_come_first(source: str) -> None:
    assert explained(refused(source), source).code == "compile-error"
