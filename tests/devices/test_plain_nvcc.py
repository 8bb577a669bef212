"""Whole programs with gpulab.cuh compile with nvcc alone, and host code reads the tunables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from any_nvcc import NVCC, needs_nvcc
from doc_pages import blocks

ROOT = Path(__file__).parents[2]
PROGRAM = """#include <gpulab.cuh>
#include <algorithm>
#include <cstdio>
#include <vector>
GPULAB_TUNABLE(BLOCK_SIZE, 64 * 2)
GPULAB_TUNABLE(ITEMS, 4);
GPULAB_KERNEL(reduce, doubled<BLOCK_SIZE>)
const unsigned TILE = BLOCK_SIZE * ITEMS;
template <int THREADS> __global__ void doubled(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    tile[threadIdx.x] = GPULAB_OP(in[threadIdx.x], GPULAB_IDENTITY) + TILE;
    out[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}
template <int N> int twice() { return 2 * N; }
int main()
{
    std::vector<int> values(BLOCK_SIZE);
    int local = BLOCK_SIZE, array[BLOCK_SIZE];
    if (values.empty())
        doubled<BLOCK_SIZE><<<1, BLOCK_SIZE>>>(array, array, ITEMS);
    std::printf("%d %d %d %d %u %d", int(values.size()), ITEMS, std::max(BLOCK_SIZE, 3), local, TILE, twice<ITEMS>());
}
"""
pytestmark = needs_nvcc


def include_folder() -> str:
    command = [sys.executable, "-m", "pytest_gpulab", "include"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def compiled(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [NVCC, *options, "-I", include_folder(), "program.cu"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_host_code_reads_the_tunables(tmp_path: Path) -> None:
    (tmp_path / "program.cu").write_text(PROGRAM)
    done = compiled(tmp_path, "-o", "program")
    if "cannot find -lcuda" in done.stderr:  # packages of nvcc without the runtime library for linking
        done = compiled(tmp_path, "-c")
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
        return
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert subprocess.check_output([tmp_path / "program"], text=True) == "128 4 128 128 512 8"


def test_the_program_of_the_page_for_students_compiles(tmp_path: Path) -> None:
    page = ROOT / "docs" / "student.md"
    first = next(block.text for block in blocks(page, "cuda") if block.file == "exercises/reduction/reduction.cu")
    main = next(block.text for block in blocks(page, "diff") if "int main()" in block.text)
    added = "".join(f"{line[1:]}\n" for line in main.splitlines() if line.startswith("+"))
    (tmp_path / "program.cu").write_text(first + added)
    done = compiled(tmp_path, "-c")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("before", ["", "#define BLOCK_SIZE 64\n#include <gpulab.cuh>\nGPULAB_TODO(reduce)\n"])
def test_the_header_may_be_included_twice_and_beside_a_macro(tmp_path: Path, before: str) -> None:
    kernel = "__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n) { }\nint main() { }\n"
    (tmp_path / "program.cu").write_text(f"{before}#include <gpulab.cuh>\n{kernel}")
    done = compiled(tmp_path, "-c")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
