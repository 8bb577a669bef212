"""nvcc in bubblewrap: with the real one where a toolkit is installed, with a stand-in everywhere."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvcc import pycuda_for
from hang_guard import HANG_S

from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.sandbox import Limits, Sandbox, none, refusal
from pytest_gpulab.devices.cuda.nvcc import toolkit
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc
from pytest_gpulab.devices.cuda.nvcc.limits import REFUSED, limited
from pytest_gpulab.devices.cuda.nvcc.toolkit import nvcc_sandbox

pytestmark = pytest.mark.unmeasured

NVCC = shutil.which("nvcc") or ""
works = pytest.mark.skipif(bool(refusal()), reason=refusal())
real = pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
OPEN = none("it was not asked for")
KERNEL = "\n__global__ void f(int *p) { p[0] = 1; }\n"


def compiled(nvcc: str, folder: Path, source: str, within: Sandbox | None) -> subprocess.CompletedProcess[str]:
    """Compile as PyCUDA does: the text in a working folder of its own, the script elsewhere."""
    for name in ("script", "working"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "working/kernel.cu").write_text(source)
    script = limited(nvcc, folder / "script", Limits(), within, keep=within == OPEN)
    command = [script, "--cubin", "-std=c++17", "kernel.cu"]
    return subprocess.run(command, cwd=folder / "working", capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """A script for nvcc that shows what it sees."""
    script = tmp_path / "nvcc"
    script.write_text(
        '#!/bin/sh\necho "$@"; pwd; cat kernel.cu; cat "$(sed -n 2p kernel.cu)"; echo made > made.cubin\n'
    )
    script.chmod(0o700)
    return str(script)


@works
def test_a_compiler_sees_its_text_and_no_other_file(tmp_path: Path, stand_in: str) -> None:
    (tmp_path / "secret").write_text("the secret\n")
    within = nvcc_sandbox(stand_in, tmp_path / "nothing", Limits(), Cache(None))
    assert within.words == "bubblewrap and limits"
    done = compiled(stand_in, tmp_path, f"the text\n{tmp_path}/secret\n", within)
    assert done.stdout.startswith(f"--cubin -std=c++17 kernel.cu\n{tmp_path}/working\nthe text\n")
    assert "the secret" not in done.stdout and "No such file" in done.stderr
    assert (tmp_path / "working/made.cubin").read_text() == "made\n"
    assert "the secret" in compiled(stand_in, tmp_path, f"the text\n{tmp_path}/secret\n", none("so")).stdout


def test_finding_out_about_it_leaves_nothing_behind(
    tmp_path: Path, stand_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "here"))
    nvcc_sandbox(stand_in, tmp_path, Limits(), Cache(None))
    assert not list((tmp_path / "here").iterdir())


@works
def test_nvcc_that_fails_in_the_sandbox_is_used_without_it_and_the_reason_shown(tmp_path: Path, stand_in: str) -> None:
    Path(stand_in).write_text("#!/bin/sh\necho 'gcc: not found' >&2; exit 1\n")
    within = nvcc_sandbox(stand_in, tmp_path, Limits(), Cache(tmp_path))
    assert within == none("nvcc does not work in bubblewrap (gcc: not found)")


@works
def test_it_is_tried_once_for_many_processes(tmp_path: Path, stand_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    first = nvcc_sandbox(stand_in, tmp_path, Limits(), cache)
    monkeypatch.setattr(toolkit, "_refusal", lambda *_: "tried again")
    assert nvcc_sandbox(stand_in, tmp_path, Limits(), cache) == first != none("x")
    assert nvcc_sandbox(stand_in, tmp_path, Limits(), Cache(None)).words.endswith("(tried again)")


def test_without_bubblewrap_it_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: str) -> None:
    monkeypatch.setattr("pytest_gpulab.devices.compiler.sandbox.refusal", lambda: "bubblewrap (bwrap) is not installed")
    monkeypatch.setattr(toolkit, "_refusal", lambda *_: pytest.fail("it was tried"))
    within = nvcc_sandbox(stand_in, tmp_path, Limits(), Cache(None))
    assert within == none("bubblewrap (bwrap) is not installed")
    assert "the text" in compiled(stand_in, tmp_path, "the text\nnothing\n", within).stdout


@works
@real
def test_the_real_one_compiles_there_and_reads_no_other_file(tmp_path: Path) -> None:
    within = nvcc_sandbox(NVCC, tmp_path / "headers", Limits(), Cache(None))
    assert within.words == "bubblewrap and limits"
    done = compiled(NVCC, tmp_path, f"#include <cub/cub.cuh>\n{KERNEL}", within)
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "working/kernel.cubin").stat().st_size > 1000
    (tmp_path / "secret").write_text("the_secret is here\n")
    for text in (f'#include "{tmp_path}/secret"', f'#define HASH #\nHASH include "{tmp_path}/secret"'):
        done = compiled(NVCC, tmp_path, text + KERNEL, within)
        assert done.returncode != 0 and "the_secret" not in done.stdout + done.stderr
    for path in ("/etc/passwd", "/proc/self/environ", str(Path(__file__).resolve())):
        assert compiled(NVCC, tmp_path, f'#include "{path}"{KERNEL}', within).returncode != 0


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


def link(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


# As nvcc does: beside the name that it was started by is its profile, which says where all else is.
LIKE_NVCC = """here=$(dirname "$0")
if [ "$1" = --dryrun ]; then printf '#$ _HERE_=%s\\n#$ TOP=%s/..\\n' "$here" "$here" >&2; exit; fi
for option; do case $option in -I*) ls "${option#-I}" >&2 || exit 1; esac; done
cat "$here/nvcc.profile" "$here/../targets/cuda_runtime.h" >kernel.cubin"""


@pytest.fixture(params=["stand-in", pytest.param("the real one", marks=real)])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a toolkit."""
    if request.param == "the real one":
        top = [Path(path).resolve() for path in toolkit._toolkit(NVCC)][-1]
        return top if top.is_dir() else pytest.skip("nvcc's toolkit lies among the system's folders")
    folder = tmp_path / "cuda-13.0"
    for name in ("bin/nvcc.profile", "targets/cuda_runtime.h"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    return script(folder / "bin/nvcc", LIKE_NVCC).parents[1]


# How nvcc is come by, in a folder, of a toolkit's folder.
WAYS: dict[str, Callable[[Path, Path], Path]] = {
    "itself": lambda folder, cuda: cuda / "bin/nvcc",
    "the folder is a link": lambda folder, cuda: link(folder / "cuda", cuda) / "bin/nvcc",
    "the folder is one of the alternatives": lambda folder, cuda: (
        link(folder / "cuda", link(folder / "alternatives/cuda", cuda)) / "bin/nvcc"
    ),
    "the folder of programs is a link": lambda folder, cuda: link(folder / "programs", cuda / "bin") / "nvcc",
    "a script": lambda folder, cuda: script(folder / "programs/nvcc", f'exec {cuda}/bin/nvcc "$@"'),
    "a script that follows a link": lambda folder, cuda: script(
        folder / "programs/nvcc", f'exec {link(folder / "cuda", cuda)}/bin/nvcc "$@"'
    ),
    "a link to a script": lambda folder, cuda: link(
        folder / "programs/nvcc",
        link(folder / "alternatives/nvcc", script(folder / "tools/nvcc", f'exec {cuda}/bin/nvcc "$@"')),
    ),
}


@works
@pytest.mark.parametrize("way", WAYS)
def test_the_toolkit_is_found_over_links_and_nothing_beside_them(tmp_path: Path, installed: Path, way: str) -> None:
    folder = tmp_path / "home"
    nvcc = WAYS[way](folder, installed)
    beside = [path for path in (folder, folder / "programs", folder / "alternatives") if path.is_dir()]
    secrets = [path / "secret" for path in beside if not path.is_symlink()]
    for secret in secrets:
        secret.write_text("the secret\n")
    within = nvcc_sandbox(str(nvcc), tmp_path / "nothing", Limits(), Cache(None))
    assert within.words == "bubblewrap and limits"
    done = compiled(str(nvcc), tmp_path, KERNEL, within)
    assert (done.returncode, done.stderr) == (0, "")
    for secret in secrets:
        seen = subprocess.run([*within.before(), "cat", secret], capture_output=True, text=True, check=False)
        assert "No such file" in seen.stderr


@works
def test_its_profile_may_be_a_link(tmp_path: Path) -> None:
    """Debian's leads to /etc and names no folder: programs and headers lie among the system's, as in `lib` here."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nvcc.profile").touch()
    link(tmp_path / "lib/bin/nvcc.profile", tmp_path / "etc/nvcc.profile")
    headers_elsewhere = LIKE_NVCC.replace("TOP=", "NO_TOP=").replace('"$here/../targets/cuda_runtime.h"', "")
    script(tmp_path / "lib/bin/nvcc", headers_elsewhere)
    nvcc = script(tmp_path / "programs/nvcc", f'exec {tmp_path}/lib/bin/nvcc "$@"')
    assert nvcc_sandbox(str(nvcc), tmp_path / "lib", Limits(), Cache(None)).words == "bubblewrap and limits"


@works
def test_a_home_may_be_a_link_with_the_toolkit_and_the_temporary_files_in_it(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk/tmp").mkdir(parents=True)
    home = link(tmp_path / "home", tmp_path / "disk")
    link(home / "cuda", installed)
    pycuda_for(monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(home / "tmp"))
    monkeypatch.setenv("PATH", f"{home}/cuda/bin:/usr/bin:/bin")
    nvcc = Nvcc(cache=Cache(None))
    assert nvcc.within.words == "bubblewrap and limits"
    made, said = nvcc.cubin(f'#include "mine.h"{KERNEL}', "k.cu", "sm_90", {}, {"mine.h": ""})
    assert made or "mine.h" in said  # the stand-in's is empty, and it tells which headers it sees


@real
@pytest.mark.parametrize("within", ["bubblewrap", "nothing"])
def test_a_text_cannot_tell_two_runs_of_the_compiler_apart(tmp_path: Path, within: str) -> None:
    sandbox = nvcc_sandbox(NVCC, tmp_path / "nothing", Limits(), Cache(None)) if within == "bubblewrap" else OPEN
    made = compiled(NVCC, tmp_path, f"__device__ char a[] = __DATE__ __TIME__ __TIMESTAMP__;{KERNEL}", sandbox)
    text = (tmp_path / "working/kernel.cubin").read_bytes()
    assert made.returncode == 0 and b"Jan  1 197000:00:00Thu Jan  1 00:00:00 1970" in text


MADE = {
    "hash": "#define HASH #\nHASH include @",
    "all": "#define HASH #\n#define WORD include\nHASH WORD @",
    "nothing before": "#define NONE\nNONE # include @",
    "nothing before, with arguments": '#define NONE(x)\nNONE(R"(\n//)") # include @',
    "pasted": "#define PASTED(a, b) a##b\nPASTED(%, :) include @",
}


@real
@pytest.mark.parametrize("made", MADE)
def test_without_a_sandbox_macros_make_no_directives(tmp_path: Path, made: str) -> None:
    """nvcc's own parts would obey what the preprocessor leaves: the text never shows such an include."""
    (tmp_path / "secret").write_text("the_secret is here\n")
    source = MADE[made].replace("@", f'"{tmp_path}/secret"') + KERNEL
    assert "the_secret" in compiled(NVCC, tmp_path, source, none("and not looked at")).stderr
    done = compiled(NVCC, tmp_path, source, OPEN)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{REFUSED}\n")


QUOTING = {
    "line": '#line 1 "@"\n#warning look',
    "line of a macro": '#define PATH "@"\n#line 1 PATH\n#warning look',
    "line marker": '# 1 "@"\n#error look',
    "wrong text": '#line 1 "@"\n#define LONE "\n#if 1 +\n#endif',
}


@real
@pytest.mark.parametrize("quoting", QUOTING)
def test_messages_quote_no_line_of_a_file_that_the_text_claims_to_be(tmp_path: Path, quoting: str) -> None:
    """gcc looks for the line where #line says that it is."""
    (tmp_path / "secret").write_text("the_secret is here\n")
    source = QUOTING[quoting].replace("@", f"{tmp_path}/secret") + KERNEL
    assert "the_secret" in compiled(NVCC, tmp_path, source, none("and not looked at")).stderr
    done = compiled(NVCC, tmp_path, source, OPEN)
    assert f"{tmp_path}/secret:1:" in done.stderr and "the_secret" not in done.stderr


@real
def test_honest_macros_are_not_refused(tmp_path: Path) -> None:
    source = """#include <cub/cub.cuh>
#include <cooperative_groups.h>
#include <cstdio>
#define TEXT(x) #x
#define JOIN(a, b) a##b
#define UNROLL _Pragma("unroll 4")
__device__ const char *number = "# include " TEXT(#);
"""
    done = compiled(
        NVCC, tmp_path, source + KERNEL.replace("p[0]", "UNROLL for (int JOIN(k, 1) = 0; k1 < 9; ++k1) p[k1]"), OPEN
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stand_in_is_looked_at_likewise(tmp_path: Path, stand_in: str) -> None:
    Path(stand_in).write_text(
        f'#!/bin/sh\necho "$1 $2"; printf " %%: include \\"a\\"\\n" >{tmp_path}/script/kept/kernel.ii\n'
    )
    done = compiled(stand_in, tmp_path, "", OPEN)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{REFUSED}\n")
    Path(stand_in).write_text(
        f'#!/bin/sh\necho "$1 $2"; printf "# 1 \\"a\\"\\n#pragma once\\n" >{tmp_path}/script/kept/kernel.ii\n'
    )
    assert compiled(stand_in, tmp_path, "", OPEN).stdout == "--keep --keep-dir\n"
