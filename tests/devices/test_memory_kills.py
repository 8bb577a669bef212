"""The count of processes that the system killed for want of memory, wherever a kernel or a container shows it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from pytest_gpulab.devices.system.processes import memory_kills, prefer_this_process

EVENTS = "low 0\nhigh 0\nmax 41\noom 3\noom_kill {}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
BOTH = "9:name=systemd:/\n5:cpuacct,memory:/jobs/7\n0::/jobs/7\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": "0::/jobs/7\n", "sys/fs/cgroup/jobs/7/memory.events": EVENTS.format(3)}, 3),
        ({"proc/self/cgroup": "0::/docker/ab\n", "sys/fs/cgroup/memory.events": EVENTS.format(2)}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": EVENTS.format(1)}, 1),
        ({"proc/self/cgroup": BOTH, "sys/fs/cgroup/memory/jobs/7/memory.oom_control": CONTROL.format(4)}, 4),
        ({"proc/self/cgroup": BOTH, "sys/fs/cgroup/memory/memory.oom_control": CONTROL.format(5)}, 5),
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "pgfault 17\noom_kill 6\n"}, 6),
        ({"proc/vmstat": "oom_kill 7\n"}, 7),
        ({"proc/vmstat": "pgfault 17\n"}, 0),
        ({}, 0),
    ],
    ids=["v2", "v2 as a container sees it", "v2 root", "v1", "v1 root", "machine", "no groups", "no count", "nothing"],
)
def test_the_count_is_found(tmp_path: Path, files: dict[str, str], count: int) -> None:
    assert memory_kills(machine(tmp_path, files)) == count


def test_this_machine_is_read_as_well() -> None:
    assert memory_kills() >= 0


def test_a_process_may_be_preferred() -> None:
    child = multiprocessing.get_context("spawn").Process(target=_preferred)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def _preferred() -> None:
    prefer_this_process()
    assert int(Path("/proc/self/oom_score_adj").read_text()) == 500
