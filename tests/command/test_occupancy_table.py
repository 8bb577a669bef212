"""`gpulab occupancy`: a launch's occupancy, its limits, and the table over block sizes."""

from __future__ import annotations

import pytest

from pytest_gpulab.command import main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main.main(["occupancy", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_launch_has_its_occupancy_and_the_limiting_resource(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--block", "256", "--registers", "40", "--shared", "8192", "--gpu", "h100")
    assert lines[0].startswith("NVIDIA H100 SXM 80GB, 256 threads per block, 40 registers per thread, 8,192 bytes")
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
    first = printed(capsys, "--block", "1", "--registers", "1", "--shared", "1", "--gpu", "l4")[0]
    assert first == "NVIDIA L4, 1 thread per block, 1 register per thread, 1 byte of shared memory per block"
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


@pytest.mark.parametrize(
    ("gpu", "block", "registers", "shared", "occupancy", "limiter", "blocks"),
    [
        # 37 registers are 1184 per warp, allocated as 1280: 51 warps fit, in fours 48, so 16 blocks of 3 warps
        ("a100", 96, 37, 8192, "75%: 48 of 64 warps, 16 blocks", "registers", (21, 32, 16, 18)),
        # a block has 8192 bytes and 1024 of the system; 100 KiB hold 11
        ("rtx3090", 128, 40, 8192, "92%: 44 of 48 warps, 11 blocks", "shared memory", (12, 16, 12, 11)),
        # 255 registers are 8160 per warp, allocated as 8192
        ("l4", 1, 255, 0, "17%: 8 of 48 warps, 8 blocks", "registers", (48, 24, 8, 100)),
        ("h100", 32, 16, 232448, "2%: 1 of 64 warps, 1 block", "shared memory", (64, 32, 128, 1)),
    ],
)
def test_occupancies_calculated_by_hand(
    gpu: str,
    block: int,
    registers: int,
    shared: int,
    occupancy: str,
    limiter: str,
    blocks: tuple[int, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--gpu", gpu, "--block", str(block), "--registers", str(registers), "--shared", str(shared)]
    lines = printed(capsys, *words)
    allowed = "warps {}, blocks {}, registers {}, shared memory {}".format(*blocks)
    assert lines[1:4] == [
        f"occupancy   {occupancy} per SM",
        f"limited by  {limiter}",
        f"limits      blocks per SM that each resource allows: {allowed}",
    ]
