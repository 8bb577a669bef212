"""`gpulab run`: whole programs with no GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hang_guard import HANG_S
from running import Ran, command, gpulab

PROGRAM = """
#include <cstdio>
#include <cstdlib>

__global__ void scale(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 2 * in[i];
    if (i == 0)
        printf("a block of %d threads\\n", blockDim.x);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    float *host = (float *)malloc(4 * n), *in, *out, sum = 0;
    for (int i = 0; i < n; i++)
        host[i] = 1;
    cudaMalloc(&in, 4 * n);
    cudaMalloc(&out, 4 * n);
    cudaMemcpy(in, host, 4 * n, cudaMemcpyHostToDevice);
    scale<<<(n + 255) / 256, 256>>>(in, out, n);
    cudaMemcpy(host, out, 4 * n, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++)
        sum += host[i];
    printf("sum %g, %s\\n", sum, cudaGetErrorString(cudaGetLastError()));
    cudaFree(in);
    cudaFree(out);
    return argc;
}
"""


def run(folder: Path, source: str, *words: str, options: tuple[str, ...] = (), stdin: str = "") -> Ran:
    (folder / "program.cu").write_text(source)
    return gpulab(folder, *options, "program.cu", *words, stdin=stdin)


def test_a_program_runs_unchanged(tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAM, "512", "--mine")
    assert ran.out == "a block of 256 threads\nsum 1024, no error\n"
    assert ran.code == 3
    assert ran.err == ("gpulab: 1 launch of 1 kernel on the simulated GPU (cost model: NVIDIA H200); no findings\n")


def test_an_access_out_of_bounds_is_a_finding_with_its_line(tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAM.replace("i < n)\n        out", "i <= n)\n        out"))
    assert ran.out == "sum 1000, an illegal memory access was encountered\n"
    assert "`in[1000]` read, `in` has 1000 elements" in ran.err
    assert "at program.cu:9\n" in ran.err and "first by block 3 thread 232" in ran.err
    assert "leak" not in ran.err


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    ran = gpulab(tmp_path, "absent.cu")
    assert (ran.code, ran.err) == (2, "gpulab run: no such file: absent.cu\n")


def test_compile_errors_are_the_compilers(tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAM.replace("2 * in[i]", "2 * on[i]"))
    assert ran.code == 2
    assert "program.cu(9): error: identifier" in ran.err
    assert ran.err.endswith("gpulab run: program.cu does not compile\n")


@pytest.mark.parametrize("option", ["--profile", "--annotate"])
def test_options_before_the_file_are_the_commands(tmp_path: Path, option: str) -> None:
    ran = run(tmp_path, PROGRAM, options=(option,))
    assert "sum 2000" in ran.out and "no findings" in ran.err


def test_a_program_runs_where_the_locale_has_ascii_letters_only(tmp_path: Path) -> None:
    (tmp_path / "редукция.cu").write_text(f"// Grüße\n{PROGRAM}".replace("sum %g", "Σ %g"), encoding="utf-8")
    (tmp_path / "cache").mkdir()
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TMPDIR": str(tmp_path / "cache")}
    done = subprocess.run(
        command("редукция.cu"), cwd=tmp_path, env=os.environ | locale, capture_output=True, timeout=HANG_S, check=False
    )
    assert b"Traceback" not in done.stderr and done.returncode == 1, done.stderr.decode(errors="replace")
    assert done.stdout.decode() == "a block of 256 threads\nΣ 2000, no error\n"
