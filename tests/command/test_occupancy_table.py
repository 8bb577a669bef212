"""`gpulab occupancy`: a launch's occupancy, its limits, and the table over block sizes."""

from __future__ import annotations

import pytest

from pytest_gpulab.command import main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main.main(["occupancy", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_launch_has_its_occupancy_and_the_limiting_resource(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--block", "256", "--registers", "40", "--shared", "8192", "--gpu", "h100")
    assert lines[0].startswith("NVIDIA H100 SXM 80GB, 256 threads per block, 40 registers per thread, 8192 bytes")
    assert lines[1] == "occupancy   75%: 48 of 64 warps, 6 blocks per SM"
    assert lines[2] == "limited by  registers"
    assert lines[3].endswith("warps 8, blocks 32, registers 6, shared memory 25")


def test_the_table_has_a_row_per_block_size_and_marks_the_chosen_one(capsys: pytest.CaptureFixture[str]) -> None:
    table = printed(capsys, "--block", "100", "--gpu", "t4")[5:]
    assert " ".join(table[0].split()) == "block warps per SM blocks per SM occupancy limited by"
    sizes = [row.split()[0] for row in table[1:]]
    assert sizes == ["32", "64", "*100", *map(str, range(128, 1025, 64))]
    assert table[-1].split() == ["1024", "32", "1", "100%", "warps"]


def test_one_block_is_singular(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--block", "1024", "--gpu", "t4")[1] == "occupancy   100%: 32 of 32 warps, 1 block per SM"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--block", "0"], "--block 0 is out of range: 1 to 1024"),
        (["--block", "2000"], "--block 2000 is out of range: 1 to 1024"),
        (["--block", "32", "--registers", "256"], "--registers 256 is out of range: 1 to 255"),
        (["--block", "32", "--shared", "70000", "--gpu", "t4"], "--shared 70000 is out of range: 0 to 65536"),
        (
            ["--block", "1024", "--registers", "72"],
            "--registers 72 are too many for 1024 threads: see __launch_bounds__",
        ),
        (["--block", "32", "--gpu", "h20"], "no GPU model is named 'h20'"),
    ],
)
def test_a_launch_that_no_gpu_accepts_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["occupancy", *words]) == 2
    assert capsys.readouterr().err.startswith(f"gpulab occupancy: {message}")
