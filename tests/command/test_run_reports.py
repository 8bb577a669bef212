"""`gpulab run`: hazards, the table of launches, the annotated listing, estimated times."""

from __future__ import annotations

from pathlib import Path

from running import PROGRAMS, Ran, gpulab

from pytest_gpulab.devices.programs.outcome import Outcome
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.reports.terminal.program import report

SUMS = (PROGRAMS / "sums.cu").read_text().splitlines()
ESTIMATES = "gpulab: Times between events are estimates (~) of the cost model"


def sums(*words: str) -> Ran:
    return gpulab(PROGRAMS, *words)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SUMS, 1) if text in line)


def test_a_race_is_found_with_both_lines() -> None:
    ran = sums("--nvcc=-DBARRIER=0", "sums.cu")
    assert ran.code == 0 and ran.out.startswith("16384 ")
    assert "race: Potential read-after-write (RAW) hazard on __shared__ memory in one block" in ran.said
    assert f"at sums.cu:{line_of('tile[threadIdx.x] +=')}\n" in ran.err
    assert "in kernel `sums`\n" in ran.err


def test_an_exit_code_for_findings() -> None:
    assert sums("--error-exitcode=9", "--nvcc=-DBARRIER=0", "sums.cu").code == 9
    assert sums("--error-exitcode=9", "sums.cu").code == 0


def test_races_are_not_looked_for_without_the_check() -> None:
    ran = sums("--no-check", "--nvcc=-DBARRIER=0", "sums.cu")
    assert "races and uninitialised reads not checked; no findings\n" in ran.err


def test_memory_that_was_never_written_is_found_by_its_name() -> None:
    ran = sums("sums.cu", "1", "without input")
    assert "uninitialised: Uninitialized __global__ memory read of size 4 bytes: `in[0]` was never written" in ran.said


def test_events_measure_the_estimate_and_the_report_says_so() -> None:
    ran, strided = sums("sums.cu"), sums("sums.cu", "32")
    assert ESTIMATES in ran.err
    times = [float(of.out.split()[1]) for of in (ran, strided)]
    assert 3 * 0.001 < times[0] < times[1] < 1


def test_the_table_of_launches() -> None:
    ran = sums("--profile", "sums.cu")
    lines = ran.err.splitlines()
    (header,) = (line.split() for line in lines if line.startswith("kernel "))
    (row,) = (line.split() for line in lines if line.startswith("sums  "))
    assert header == ["kernel", "grid", "block", "launches", "regs", "occup.", "ms", "sectors", "conflicts", "lanes"]
    found = dict(zip(header, row, strict=True))
    assert (found["grid"], found["block"], found["launches"], found["occup."]) == ("64", "256", "3", "100%")
    assert int(found["regs"]) > 8 and found["ms"].startswith("~0.00") and found["conflicts"] == "0"
    assert 3 < float(found["sectors"]) <= 4 and 8 < float(found["lanes"]) < 32
    assert any(line.startswith("sums 64 x 256: ") for line in lines)
    assert "an estimate of the cost model" in ran.said


def test_bank_conflicts_and_sectors_of_a_stride() -> None:
    ran = sums("--profile", "sums.cu", "32")
    (row,) = (line.split() for line in ran.err.splitlines() if line.startswith("sums  "))
    assert float(row[7]) > 20


def test_the_annotated_listing() -> None:
    ran = sums("--annotate", "--nvcc=-DBARRIER=0", "sums.cu")
    lines = ran.err.splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[:2] == ["sums.cu", "time"])
    number = line_of("tile[threadIdx.x] +=")
    (row,) = (line for line in lines[at:] if line.startswith(f"{number:>4}  "))
    assert "%" in row
    assert any("! potential read-after-write" in line for line in lines[at:])
    assert f"{len(SUMS):>4}  }}" in lines


def test_another_gpu_is_modelled() -> None:
    ran = sums("--gpu=t4", "--profile", "sums.cu")
    assert "(cost model: NVIDIA T4); no findings" in ran.err
    (row,) = (line.split() for line in ran.err.splitlines() if line.startswith("sums  "))
    assert row[5] == "100%" and row[6].startswith("~")


def test_an_unknown_gpu_is_one_line() -> None:
    ran = sums("--gpu=voodoo", "sums.cu")
    assert ran.code == 2 and ran.err.startswith("gpulab run: no GPU model is named 'voodoo'; available: ")
    assert len(ran.err.splitlines()) == 1


CLUSTER = """
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;
__global__ void clustered(int *out) {
    *out = cg::this_cluster().block_rank();
}
__global__ void plain(int *out) { *out = 2; }
void launch(int size, void (*kernel)(int *), int *out)
{
    cudaLaunchAttribute cluster[1] = {};
    cluster[0].id = cudaLaunchAttributeClusterDimension;
    cluster[0].val.clusterDim = {(unsigned)size, 1, 1};
    cudaLaunchConfig_t how = {2, 32, 0, 0, cluster, 1};
    int host = -1;
    puts(cudaGetErrorName(cudaLaunchKernelEx(&how, kernel, out)));
    cudaMemcpy(&host, out, 4, cudaMemcpyDeviceToHost);
    printf("%d\\n", host);
}
int main()
{
    int *device;
    cudaMalloc(&device, 4);
    cudaMemset(device, 1, 4);
    launch(1, clustered, device);
    launch(2, clustered, device);
    launch(2, plain, device);
    cudaFree(device);
}
"""


def test_a_kernel_beyond_the_simulated_gpu_is_named_and_others_run(tmp_path: Path) -> None:
    (tmp_path / "cluster.cu").write_text(CLUSTER)
    ran = gpulab(tmp_path, "--no-check", "cluster.cu")
    assert (ran.code, ran.out) == (0, "cudaSuccess\n0\ncudaErrorNotSupported\n0\ncudaSuccess\n2\n")
    assert "does not support thread block clusters at cluster.cu:6 " in ran.said
    assert "hint: No error was found in this kernel: it needs a real GPU." in ran.said


def test_the_line_of_a_call_in_the_first_function_of_a_file(tmp_path: Path) -> None:
    lines = ("static void fail() { cudaMemset(nullptr, 0, 4); }", "int main() { fail(); fail(); fail(); }")
    (tmp_path / "fail.cu").write_text("\n".join(lines))
    ran = gpulab(tmp_path, "fail.cu")
    assert f"(3 times): the destination is a null pointer at fail.cu:1 1 | {lines[0]}" in ran.said


def test_printing_without_a_synchronisation(tmp_path: Path) -> None:
    source = '#include <cstdio>\n__global__ void hello() { printf("hello\\n"); }\nint main() { hello<<<1, 1>>>(); }\n'
    (tmp_path / "hello.cu").write_text(source)
    ran = gpulab(tmp_path, "hello.cu")
    assert ran.out == ""
    assert "unseen-output: Kernels printed after the program's last synchronisation" in ran.said
    assert "hint: Call cudaDeviceSynchronize()" in ran.said


def test_a_hint_is_given_once() -> None:
    leaks = [Finding("leak", f"{size} bytes, never freed", f"a.cu:{size}", hint="Free each.") for size in (4, 8)]
    lines = list(report(Outcome(), [*leaks, Finding("race", "a hazard", hint="Wait.")], "GPU", is_checked=True))
    assert [line.strip() for line in lines[1:]] == [
        *("leak: 4 bytes, never freed", "at a.cu:4", "hint: Free each."),
        *("leak: 8 bytes, never freed", "at a.cu:8"),
        *("race: a hazard", "hint: Wait."),
    ]
