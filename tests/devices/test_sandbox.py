"""bubblewrap, where it works: what a program in it sees; and what is said where it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hang_guard import HANG_S

from pytest_gpulab.devices.compiler import sandbox as module
from pytest_gpulab.devices.compiler.sandbox import LIBRARIES, PROGRAMS, Sandbox, refusal, sandbox

works = pytest.mark.skipif(bool(refusal()), reason=refusal())


def said(view: Sandbox, script: str, *options: str) -> str:
    """Run a shell script in a sandbox; return all that it says."""
    command = [*view.before(*options), "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    return done.stdout + done.stderr


@works
def test_a_program_sees_what_it_was_given_and_nothing_else(tmp_path: Path) -> None:
    for name in ("shown", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(f"{name}\n")
    view = sandbox((*LIBRARIES, *PROGRAMS, tmp_path / "shown", tmp_path / "missing"))
    assert said(view, f"cat {tmp_path}/shown/text; ls {tmp_path}; pwd; ls -a") == "shown\nshown\n/empty\n.\n..\n"
    for path in (tmp_path / "hidden/text", "/etc/passwd", "/proc/self/environ", Path.home(), Path(__file__)):
        assert "No such file" in said(view, f"cat '{path}'")


@works
def test_a_path_may_lead_over_links_which_show_nothing_else(tmp_path: Path) -> None:
    for name in ("far/shown", "near"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "text").write_text(f"{name}\n")
    (tmp_path / "far/hidden").write_text("hidden\n")
    (tmp_path / "near/relative").symlink_to("../far")
    (tmp_path / "near/absolute").symlink_to(tmp_path / "near/relative/shown")
    (tmp_path / "near/lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "near/round").symlink_to(tmp_path / "near/round")
    given = [tmp_path / "near" / name for name in ("absolute", "relative/shown/text", "lost", "round")]
    view = sandbox((*LIBRARIES, *PROGRAMS, *given, f"{tmp_path}/near/absolute/../shown"))
    for path in ("near/absolute/text", "near/absolute/../shown/text", "near/relative/shown/text", "far/shown/text"):
        assert said(view, f"cat {tmp_path}/{path}") == "far/shown\n"
    for path in ("near/text", "far/hidden", "near/relative/hidden", "near/absolute/../hidden"):
        assert "No such file" in said(view, f"cat {tmp_path}/{path}")


@works
def test_links_may_lie_in_folders_that_are_shown(tmp_path: Path) -> None:
    for name in ("programs", "alternatives", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "far/text").write_text("shown\n")
    (tmp_path / "alternatives/text").symlink_to(tmp_path / "far/text")
    (tmp_path / "programs/text").symlink_to(tmp_path / "alternatives/text")
    given = [tmp_path / name for name in ("programs", "alternatives", "programs/text")]
    for readable in (given, given[::-1]):
        assert said(sandbox((*LIBRARIES, *PROGRAMS, *readable)), f"cat {tmp_path}/programs/text") == "shown\n"


@works
@pytest.mark.parametrize("place", ["/", "/empty", "/usr/lib", "/tmp"])
def test_nothing_can_be_written(tmp_path: Path, place: str) -> None:
    view = sandbox((*LIBRARIES, *PROGRAMS, tmp_path))
    for folder in (place, tmp_path):
        assert "success" not in said(view, f"mkdir -p {folder}; echo a > {folder}/a && echo success")
    assert said(view, "echo a > /dev/null && echo thrown away") == "thrown away\n"


@works
def test_a_temporary_folder_is_empty_and_forgotten() -> None:
    view = sandbox((*LIBRARIES, *PROGRAMS), temporary=True)
    for _ in range(2):
        assert said(view, "ls /tmp; echo a > /tmp/a; cat /tmp/a") == "a\n"


@works
def test_a_folder_can_be_given_to_write_in(tmp_path: Path) -> None:
    folder = str(tmp_path)
    view = sandbox((*LIBRARIES, *PROGRAMS), temporary=True)
    assert said(view, "pwd; echo a > made", "--bind", folder, folder, "--chdir", folder) == f"{tmp_path}\n"
    assert (tmp_path / "made").read_text() == "a\n"


@works
def test_there_is_no_network_and_no_other_process() -> None:
    view = sandbox((*LIBRARIES, *PROGRAMS, "/proc/net"))
    assert said(view, "echo $$").strip() in ("1", "2", "3")  # numbers of its own: no other process has a name here
    script = "exec 3<>/dev/tcp/127.0.0.1/1"
    command = [*view.before(), "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode != 0


@works
def test_root_has_no_rights_there() -> None:
    view = sandbox((*LIBRARIES, *PROGRAMS))
    assert "done" not in said(view, "mount -t tmpfs none /empty && echo done")


@pytest.fixture
def retried() -> Iterator[None]:
    """The probe runs again in a test, and once more after it."""
    refusal.cache_clear()
    yield
    refusal.cache_clear()


@pytest.mark.usefixtures("retried")
def test_without_bubblewrap_there_are_limits_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    view = sandbox(())
    assert view == Sandbox("limits only: bubblewrap (bwrap) is not installed")
    assert view.before("--bind", "/a", "/a") == ()


@pytest.mark.usefixtures("retried")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create new namespace"),
        ("exit 7", "exit status 7"),
        (None, "Exec format error"),
        ("sleep 60", "it had not ended after 0.5 s"),
    ],
)
def test_a_sandbox_that_does_not_work_has_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, why: str
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n" if script else "no program")
    (tmp_path / "bwrap").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if script == "sleep 60":
        monkeypatch.setattr(module, "PROBE_LIMIT_S", 0.5)
    assert sandbox(()).words == f"limits only: bubblewrap does not work here: {why}"


@pytest.mark.usefixtures("retried")
def test_it_is_tried_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho tried >>{tmp_path}/log\n")
    (tmp_path / "bwrap").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert sandbox(()).bubblewrap[0] == shutil.which("bwrap") == str(tmp_path / "bwrap")
    sandbox(())
    assert (tmp_path / "log").read_text() == "tried\n"
