"""`gpulab run`: builds, their cache, and what is missing on a machine."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from running import PROGRAMS, gpulab

from pytest_gpulab.command.main import main
from pytest_gpulab.command.run import add_arguments, normalized
from pytest_gpulab.devices.cuda.nvcc.toolkit import tools_of
from pytest_gpulab.devices.errors import CompileError
from pytest_gpulab.devices.programs import build_cache, toolchain
from pytest_gpulab.devices.programs.build import with_reason
from pytest_gpulab.devices.programs.device import assemble

TINY = '#include "answer.h"\nint main() { return ANSWER; }\n'


def write(folder: Path, answer: str = "3") -> None:
    (folder / "tiny.cu").write_text(TINY)
    (folder / "answer.h").write_text(f"#define ANSWER {answer}\n")


def path_without(folder: Path, *names: str) -> str:
    """Return a PATH with a folder of links to all programs but some."""
    links = folder / "bin"
    links.mkdir()
    for path in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(path).iterdir() if Path(path).is_dir() else ():
            link = links / program.name
            if program.name not in names:
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(links)


def write_toolkit(folder: Path) -> toolchain.Toolchain:
    """Write a toolkit with the installed ptxas; the wheels have their headers in another place."""
    real = toolchain.find_toolchain()
    includes = folder / "targets" / "x86_64-linux" / "include"
    includes.mkdir(parents=True)
    (includes / "cuda_runtime_api.h").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "ptxas").symlink_to(tools_of(str(real.nvcc)) / "ptxas")
    nvcc = folder / "bin" / "nvcc"
    lines = (f"#$ _HERE_={nvcc.parent}", f'#$ INCLUDES="-I{includes}"')
    nvcc.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines))
    nvcc.chmod(0o755)
    return toolchain.Toolchain(nvcc, real.host_compiler)


def write_nvcc(folder: Path) -> Path:
    """Write an nvcc that does nothing, and return its path."""
    folder.mkdir(parents=True)
    (folder / "nvcc").write_text("#!/bin/sh\n")
    (folder / "nvcc").chmod(0o755)
    return folder / "nvcc"


def install_wheels(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    """Let NVIDIA's wheels be those of a folder, or none, in place of the installed ones."""
    package = None  # Python raises ImportError for it
    if folder is not None:
        package = ModuleType("nvidia")
        package.__path__ = [str(folder)]
    monkeypatch.setitem(sys.modules, "nvidia", package)


def test_a_missing_host_compiler_is_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    ran = gpulab(tmp_path, "tiny.cu", env={**os.environ, "PATH": path_without(tmp_path, "g++")})
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "gpulab run: g++ is missing; on Debian and Ubuntu: apt-get install g++\n"


def test_a_missing_nvcc_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    monkeypatch.setenv("PATH", path_without(tmp_path, "nvcc"))
    install_wheels(monkeypatch, None)
    assert main(["run", str(tmp_path / "tiny.cu")]) == 2
    line = "gpulab run: nvcc is missing; install it with: python -m pip install 'pytest-gpulab[programs]'\n"
    assert capsys.readouterr().err == line


def test_the_wheels_nvcc_comes_first_but_a_toolkits_serves_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_toolkit = write_nvcc(tmp_path / "toolkit")
    monkeypatch.setenv("PATH", str(of_toolkit.parent), prepend=os.pathsep)
    wheels = tmp_path / "nvidia"
    install_wheels(monkeypatch, wheels)
    assert toolchain.find_toolchain().nvcc == of_toolkit  # other wheels of NVIDIA, but not nvcc's
    of_wheels = write_nvcc(wheels / "cu13" / "bin")
    assert toolchain.find_toolchain().nvcc == of_wheels
    assert toolchain.find_toolchain(prefer_toolkit=True).nvcc == of_toolkit
    install_wheels(monkeypatch, None)
    assert toolchain.find_toolchain().nvcc == of_toolkit


def test_the_wheels_nvcc_serves_with_no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_wheels = write_nvcc(tmp_path / "nvidia" / "cu13" / "bin")
    install_wheels(monkeypatch, tmp_path / "nvidia")
    monkeypatch.setenv("PATH", path_without(tmp_path, "nvcc"))
    assert toolchain.find_toolchain(prefer_toolkit=True).nvcc == of_wheels


def test_a_changed_header_is_compiled_again(tmp_path: Path) -> None:
    write(tmp_path)
    assert gpulab(tmp_path, "tiny.cu").code == 3
    write(tmp_path, "int(std::riemann_zeta(2.0) * 3)")  # and with the functions that most programs are built without
    assert gpulab(tmp_path, "tiny.cu").code == 4


def test_options_and_further_files_go_to_nvcc(tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text("int two();\nint main() { return two() + MORE * int(std::beta(1.0, 1.0)); }\n")
    (tmp_path / "two.cu").write_text("int two() { return 2; }\n")
    assert gpulab(tmp_path, "--nvcc", "-DMORE=5 two.cu", "one.cu").code == 7


def test_a_name_of_a_special_function_is_ambiguous_if_a_header_defines_it_too(tmp_path: Path) -> None:
    (tmp_path / "names.h").write_text("int beta = 4;\nusing namespace std;\nint four() { return beta; }\n")
    (tmp_path / "one.cu").write_text('#include "names.h"\nint main() { return four(); }\n')
    ran = gpulab(tmp_path, "one.cu")
    assert ran.code == 2 and "is ambiguous" in ran.err


@pytest.mark.unit
def test_the_options_of_nvcc_may_be_a_word_of_their_own() -> None:
    assert normalized(["run", "--nvcc", "-O3", "a.cu"]) == ["run", "--nvcc=-O3", "a.cu"]
    for words in (["run", "a.cu", "--nvcc", "-O3"], ["run", "--nvcc", "b.cu", "a.cu"], ["run", "--nvcc"]):
        assert normalized(words) == words


@pytest.mark.unit
def test_arguments_of_the_program_may_look_like_options() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args(["--no-check", "a.cu", "--n=4", "--pro", "--no-check", "-t"])
    assert given.arguments == ["--n=4", "--pro", "--no-check", "-t"] and given.no_check and not given.profile


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--nvcc=-D'x", "gpulab run: --nvcc: No closing quotation"),
        ("--timeout=soon", "gpulab run: error: argument --timeout: soon is no positive number of seconds"),
        ("--timeout=nan", "gpulab run: error: argument --timeout: nan is no positive number of seconds"),
    ],
)
def test_an_option_without_meaning_is_one_line(
    tmp_path: Path, option: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    with suppress(SystemExit):  # of argparse
        assert main(["run", option, str(tmp_path / "tiny.cu")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == line


def test_the_compilers_messages_may_quote_text_of_any_encoding(tmp_path: Path) -> None:
    (tmp_path / "old.cu").write_bytes(b"int main() { return nothing; } // Gr\xfc\xdfe\n")
    ran = gpulab(tmp_path, "old.cu")
    assert ran.code == 2 and 'identifier "nothing" is undefined' in ran.err
    assert ran.err.endswith("gpulab run: old.cu does not compile\n")


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "blas.cu").write_text("#include <cublas_v2.h>\nint main() {}\n")
    ran = gpulab(tmp_path, "blas.cu")
    assert ran.code == 2
    *_, reason, last = ran.err.splitlines()
    assert reason == "cuBLAS is not available with no GPU (`cublas_v2.h`)"
    assert last == "gpulab run: blas.cu does not compile"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("(.text+0x1f): undefined reference to `cufftPlan1d'", "cuFFT is not available with no GPU (`cufftPlan1d`)"),
        ("ld: cannot find -lcurand: No such file", "cuRAND is not available with no GPU (`curand`)"),
        ("a.cu:2:10: fatal error: cupti.h: No such file", "CUPTI is not available with no GPU (`cupti.h`)"),
        (
            "a.cu:2:10: fatal error: curand_kernel.h: No such file",
            "cuRAND's functions for kernels (`curand_kernel.h`) need: python -m pip install nvidia-curand",
        ),
        ("a.cu:2:10: fatal error: GL/gl.h: No such file", "OpenGL is not installed (`GL/gl.h`)"),
        ("a.cu:2:10: fatal error: GL/freeglut.h: No such file", "GLUT is not installed (`GL/freeglut.h`)"),
        ("a.cu:2:10: fatal error: opencv2/core.hpp: No such file", "OpenCV is not installed (`opencv2/core.hpp`)"),
        ("(.text+0x1f): undefined reference to `MPI_Init'", "MPI is not installed (`MPI_Init`)"),
        ("cc1plus: fatal error: more.cu: No such file", "no such file: more.cu"),
        ("a.cu:2:10: fatal error: sub\\my.h: No such file", "`sub\\my.h` was not found: write it with `/`: `sub/my.h`"),
        (
            "a.cu:2:10: fatal error: boost/any.hpp: No such file",
            "`boost/any.hpp` was not found: put its folder in --nvcc=-IFOLDER before the program",
        ),
        (
            "(.text+0x1f): undefined reference to `Shape::area(int)'",
            "`Shape::area` was not found: put its file or library in --nvcc='FILE.cu -lLIBRARY' before the program",
        ),
        (
            "(.text+0x1f): undefined reference to `omp_get_thread_num'",
            "OpenMP (`omp_get_thread_num`) needs --nvcc=-Xcompiler=-fopenmp before the program",
        ),
        ("crt1.o: in function `_start': undefined reference to `main'", "the program has no main()"),
        (
            "a.cu:2:10: fatal error: helper_cuda.h: No such file or directory",
            "helper_cuda.h is part of NVIDIA's cuda-samples: "
            "put their folder Common in --nvcc=-IFOLDER before the program",
        ),
    ],
)
def test_the_last_line_names_what_is_not_available(message: str, reason: str) -> None:
    assert with_reason(f"{message}\n") == f"{message}\n{reason}\n"


@pytest.mark.unit
def test_each_missing_library_is_named_once() -> None:
    calls = ("cublasCreate_v2", "cublasSgemm_v2", "curandGenerate", "main_of_mine")
    messages = "".join(f"(.text+0x1f): undefined reference to `{call}'\n" for call in calls)
    assert with_reason(messages).splitlines()[len(calls) :] == [
        "cuBLAS is not available with no GPU (`cublasCreate_v2`)",
        "cuRAND is not available with no GPU (`curandGenerate`)",
    ]
    assert with_reason("program.cu(3): error: expected a `;`\n") == "program.cu(3): error: expected a `;`\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "__global__ void down(int n) { if (n) down<<<1, 1>>>(n - 1); }",
            "kernels that launch kernels (dynamic parallelism) need --nvcc=-rdc=true",
        ),
        (
            "__global__ void wait() { cudaDeviceSynchronize(); }",
            "CUDA 12 has removed cudaDeviceSynchronize() in kernels: a kernel cannot wait for those that it launches",
        ),
        ("texture<float, 2> image;", "CUDA 12 has removed texture references: use cudaCreateTextureObject"),
        (
            "__global__ void sum(int *x) { *x = __shfl_down(*x, 1); }",
            "GPUs since Volta have no __shfl: use __shfl_sync and its variants",
        ),
    ],
)
def test_the_last_line_names_what_cannot_be_compiled(tmp_path: Path, code: str, reason: str) -> None:
    (tmp_path / "old.cu").write_text(f"{code}\nint main() {{}}\n")
    assert gpulab(tmp_path, "old.cu").err.splitlines()[-2:] == [
        reason,
        "gpulab run: old.cu does not compile",
    ]


@pytest.mark.parametrize("call", ["cuInit(0)", "cuMemGetAddressRange(0, 0, 0)", "cuStreamSynchronize(0)"])
def test_a_function_of_the_driver_is_named(tmp_path: Path, call: str) -> None:
    (tmp_path / "driver.cu").write_text(f"#include <cuda.h>\nint main() {{ return {call}; }}\n")
    ran = gpulab(tmp_path, "--nvcc=-lcuda -lcudart -lcudadevrt", "driver.cu")
    assert ran.code == 125 and "at driver.cu:2\n" in ran.err and "warning" not in ran.err
    assert f"missing-function: {call.partition('(')[0]} is not available with no GPU: the program was ended" in ran.err


def test_a_default_stream_per_thread_is_accepted() -> None:
    ran = gpulab(PROGRAMS, "--nvcc=--default-stream=per-thread", "threads.cu")
    assert (ran.out, ran.code) == ("0 failures\n", 0), ran.err


def test_a_device_function_of_a_missing_file_is_named(tmp_path: Path) -> None:
    code = "__device__ int other(int);\n__global__ void use(int *x) { *x = other(1); }\n"
    (tmp_path / "use.cu").write_text(f"{code}int main() {{ use<<<1, 1>>>(nullptr); }}\n")
    ran = gpulab(tmp_path, "--nvcc=-dc", "use.cu")
    assert "use.cu(2): error: the function `other` is called, but not defined (_Z5otheri)" in ran.err


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    build_cache.cache_folder.cache_clear()
    monkeypatch.setenv("GPULAB_LOCKS", str(tmp_path))
    yield tmp_path / f"gpulab-programs-{os.getuid()}"
    build_cache.cache_folder.cache_clear()


class Build:
    """A build that counts its calls; it reads one file and writes one."""

    def __init__(self, source: Path) -> None:
        self.source, self.calls = source, 0

    def __call__(self, folder: Path) -> list[Path]:
        self.calls += 1
        (folder / "product").write_text(self.source.read_text().upper())
        return [self.source]


def test_the_cache_builds_once_per_contents(cache: Path) -> None:
    source = cache.parent / "source"
    source.write_text("one")
    build = Build(source)
    for _ in range(2):
        assert (build_cache.built(["key"], build) / "product").read_text() == "ONE"
    assert build.calls == 1
    source.write_text("two")
    assert (build_cache.built(["key"], build) / "product").read_text() == "TWO"
    assert build.calls == 2
    assert len(list(cache.iterdir())) == 1


def test_a_failed_build_leaves_nothing(cache: Path) -> None:
    def fail(folder: Path) -> list[Path]:
        (folder / "half").touch()
        raise CompileError("no")

    with pytest.raises(CompileError):
        build_cache.built(["key"], fail)
    assert list(cache.iterdir()) == []


def test_a_build_that_another_process_ended_first_stays_because_it_may_be_in_use(cache: Path) -> None:
    source = cache.parent / "source"
    source.write_text("faster")

    def overtaken(folder: Path) -> list[Path]:
        build_cache.built(["key"], Build(source))
        (folder / "product").write_text("slower")
        return [source]

    assert (build_cache.built(["key"], overtaken) / "product").read_text() == "FASTER"
    assert len(list(cache.iterdir())) == 1


def test_the_cache_keeps_the_newer_half_of_too_many_and_what_may_be_in_use(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_cache, "MAX_ENTRIES", 4)
    source = cache.parent / "source"
    source.write_text("one")
    for key in range(8):
        build_cache.built([str(key)], Build(source))
    assert len(list(cache.iterdir())) == 8
    for path in cache.iterdir():
        os.utime(path, (0, 0))
    build_cache.built(["8"], Build(source))
    assert len(list(cache.iterdir())) == 7


def test_a_cache_that_others_may_write_to_is_not_used(cache: Path) -> None:
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    assert build_cache.cache_folder() != cache
    shutil.rmtree(build_cache.cache_folder())


def test_warnings_are_shown_in_each_run(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "tiny.cu").write_text(TINY + "void unused() { int never_used = 3; }\n")
    first, second = gpulab(tmp_path, "tiny.cu"), gpulab(tmp_path, "tiny.cu")
    for ran in (first, second):
        assert '"never_used" was declared but never referenced' in ran.err


def test_the_program_sees_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "name.cu").write_text("#include <cstdio>\nint main(int, char **words) { puts(words[0]); }\n")
    assert gpulab(tmp_path, "name.cu").out == "./name\n"


def test_a_native_build_runs_with_nvidias_library(tmp_path: Path) -> None:
    """Without a GPU the program says so itself; with one it finds it."""
    call = "int n; puts(cudaGetErrorName(cudaGetDeviceCount(&n)));"
    (tmp_path / "count.cu").write_text(f"#include <cstdio>\nint main() {{ {call} }}\n")
    ran = gpulab(tmp_path, "--device=cuda", "count.cu")
    assert ran.code == 0 and "cuda" in ran.out
    assert "simulated GPU" not in ran.err


def test_other_systems_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    monkeypatch.delattr(os, "memfd_create")
    assert main(["run", str(tmp_path / "tiny.cu")]) == 2
    assert capsys.readouterr().err == "gpulab run: whole programs run on Linux only\n"


def test_ptxas_of_a_toolkit_is_beside_nvcc_and_not_beside_the_headers(tmp_path: Path) -> None:
    kernel = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry empty() { ret; }\n"
    assert assemble(write_toolkit(tmp_path / "cuda-13.0"), kernel, "sm_90", lambda folder: ()).cubin[:4] == b"\x7fELF"
