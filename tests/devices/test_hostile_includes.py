"""Texts that want to have a file of this machine read: none shows a line of it, in the sandbox or without.

In the sandbox the file is not there. Without one, the check of includes (`grading.includes`) comes first, and what it
lets through does not make the compiler read anything. Both must hold alone, so both are tried with each text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess
from pytest_gpulab.devices.compiler.machine_code import compile_machine_code
from pytest_gpulab.devices.compiler.sandbox import none, refusal
from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.grading.compilation.includes import unaccepted_include

SECRET = "the_secret_line"
KERNEL = "\n__global__ void f(int *p) { p[threadIdx.x] = 1; }\n"
HOSTILE = {
    "quoted": '#include "@"',
    "angled": "#include <@>",
    "next": '#include_next "@"',
    "import": '#import "@"',
    "embed": '__device__ char stolen[] = {\n#embed "@"\n};',
    "macro": '#define PATH "@"\n#include PATH',
    "pasted macro": "#define ABOUT(x) <x>\n#include ABOUT(@)",
    "string of a macro": "#define TEXT(x) #x\n#define MORE(x) TEXT(x)\n#include MORE(@)",
    "digraph": '%:include "@"',
    "trigraph": '??=include "@"',
    "trigraph splice": '#inc??/\nlude "@"',
    "character name": '#inc\\u006cude "@"',
    "splice": '#inc\\\nlude "@"',
    "splice with a blank": '__device__ int a; \\ \n#include "@"',
    "splice with a return": '__device__ int a; \\\r\n#include "@"',
    "returns": '\r#\rinclude\r"@"\r',
    "other blanks": '\v#\finclude\v"@"',
    "comments": '/* */ # /* */ include /* */ "@"',
    "spliced comment": '/\\\n/ hello \\\n more\n#include "@"',
    "comment in a raw string": 'auto s = R"("/*)";\n#include "@"\n//*/',
    "comment in a character": 'char c = \'"\'; auto s = "/*";\n#include "@"\n//*/',
    "comment behind a lone quote": '#define LONE \' /*\n#include "@"\n// */',
    "comment behind a lone double quote": '#define LONE " /*\n#include "@"\n// */',
    "raw string end": '__device__ const char *s = R"(\n)" #include "@"\n;',
    "result of a macro": '#define NONE\nNONE # include "@"',
    "directive of a macro": '#define HASH #\nHASH include "@"',
    "digraph of a macro": '#define HASH %##:\nHASH include "@"',
    "other line ends": '__device__ int a;\u2028#include "@"\n__device__ int b;\x85#include "@"\n\ufeff#include "@"',
    "module": 'import "@";\nimport <@>;',
    "line": '#line 1 "@"\n__device__ int x = ;',
    "line marker": '# 1 "@"\n__device__ int x = ;',
    "line marker of an include": '# 1 "@" 1\n__device__ int x = ;\n# 2 "a.cu" 2',
    "pragmas": '#pragma include "@"\n#pragma GCC dependency "@"\n#pragma include_alias("a.h", "@")\n_Pragma("include")',
    "assembler's incbin": '__device__ void g() { asm(".incbin \\"@\\""); }\n__global__ void k() { g(); }',
    "assembler's include": '__global__ void k() { asm volatile(".include \\"@\\";"); }',
    "assembler's file": '__global__ void k() { asm volatile(".file 7 \\"@\\"\\n .loc 7 1 1;\\n wrong;"); }',
}
ASKING = {
    "has_include": '#if __has_include("@")\n#error it is there\n#endif',
    "has_include with angles": "#if __has_include( <@> )\n#error it is there\n#endif",
    "has_include by another name": '#define ASK __has_include\n#if ASK("@")\n#error it is there\n#endif',
    "has_include of parts": '#define J(a, b) a##b\n#if J(__has_, include)("@")\n#error it is there\n#endif',
    "has_include of small parts": '#define J(a, b) a%:%:b\n#if J(_, _has_include)("@")\n#error it is there\n#endif',
    "has_include behind a comment": '#if __has_include/**/("@")\n#error it is there\n#endif',
    "has_include behind another blank": '#if __has_include\v("@")\n#error it is there\n#endif',
    "has_include as an argument": '#define ASK(x) (__has_include x)\n#if ASK(("@"))\n#error it is there\n#endif',
    "has_include of brackets": '#define PATH ("@")\n#if __has_include PATH\n#error it is there\n#endif',
    "has_include of a macro": '#define PATH "@"\n#if __has_include(PATH)\n#error it is there\n#endif',
}


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secrets") / "secret.cu"
    path.write_text(f"{SECRET} is here\n")
    return path


@pytest.fixture(scope="module")
def sandboxed() -> Iterator[CompilerProcess]:
    if refusal():
        pytest.skip(refusal())
    compiler = CompilerProcess()
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def limited() -> Iterator[CompilerProcess]:
    compiler = CompilerProcess(within=none("it was not asked for"))
    yield compiler
    compiler.close()


def all_said(compiler: CompilerProcess, source: str) -> str:
    """Return messages, PTX and machine code."""
    try:
        ptx, log = nvrtc.compile_ptx(source + KERNEL, "a.cu", "compute_90", run=compiler.compiled)
        binary = compile_machine_code(source + KERNEL, "a.cu", "sm_90", run=compiler.compiled)
    except CompileError as error:
        return error.diagnostics
    return ptx + log + binary.cubin.decode("latin-1")


@pytest.mark.parametrize("trick", HOSTILE)
def test_in_the_sandbox_there_is_no_such_file(sandboxed: CompilerProcess, secret: Path, trick: str) -> None:
    assert SECRET not in all_said(sandboxed, HOSTILE[trick].replace("@", str(secret)))


@pytest.mark.parametrize("trick", HOSTILE)
def test_without_one_it_is_refused_or_nothing_is_read(limited: CompilerProcess, secret: Path, trick: str) -> None:
    source = HOSTILE[trick].replace("@", str(secret))
    assert unaccepted_include(source) or SECRET not in all_said(limited, source)


def test_the_compiler_alone_would_show_it(limited: CompilerProcess, secret: Path) -> None:
    """So these tests can fail."""
    assert SECRET in all_said(limited, f'#include "{secret}"')


@pytest.mark.parametrize("trick", ASKING)
def test_the_existence_of_a_file_is_not_revealed(
    sandboxed: CompilerProcess, limited: CompilerProcess, secret: Path, trick: str
) -> None:
    source = ASKING[trick].replace("@", str(secret))
    assert "it is there" in all_said(limited, source) and unaccepted_include(source)
    assert "it is there" not in all_said(sandboxed, source)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/cmdline", "/dev/zero", "/dev/stdin", "."]
)
def test_system_files_are_not_there(sandboxed: CompilerProcess, path: str) -> None:
    said = all_said(sandboxed, f'#include "{path}"')
    assert "cannot open source file" in said


def test_neither_are_the_course_and_the_home(sandboxed: CompilerProcess, pytestconfig: pytest.Config) -> None:
    for path in (pytestconfig.rootpath / "solutions/reduction", pytestconfig.rootpath / "exercises", Path.home()):
        found = path.iterdir() if path == Path.home() else path.rglob("*")  # where other programs come and go
        files = [file for file in sorted(found)[:50] if file.is_file()]
        for file in [*files[:1], *files[-1:]]:
            assert "cannot open source file" in all_said(sandboxed, f'#include "{file}"')


def test_a_plain_name_is_not_looked_for_where_pytest_runs(
    limited: CompilerProcess, monkeypatch: pytest.MonkeyPatch, secret: Path
) -> None:
    monkeypatch.chdir(secret.parent)
    compiler = CompilerProcess(within=none("it was not asked for"))
    assert SECRET not in all_said(compiler, f'#include "{secret.name}"')
    assert "it is there" not in all_said(compiler, f'#if __has_include("{secret.name}")\n#error it is there\n#endif')
    compiler.close()


def test_no_text_changes_the_compilers_arguments() -> None:
    """Options come from the device alone: pragmas, tunables and names of files stay text."""
    asked = []

    def run(request: nvrtc.Request) -> nvrtc.Answer:
        own = (option for option in request.options if not option.startswith("--pre-include=gpulab_"))
        asked.append((*own, request.filename.startswith("-")))
        return nvrtc.Answer(b"", "")

    hostile = (
        "#include <gpulab.cuh>\n#pragma nvrtc --use_fast_math\n// --std=c++11 -I/etc\n"
        'GPULAB_TUNABLE(BLOCK_SIZE, 256 --include-path=/etc)\n_Pragma("--use_fast_math")\n'
    )
    for source, name in (("", "a.cu"), (hostile, "--include-path=.cu")):
        nvrtc.compile_ptx(source, name, "compute_90", {"N": "1"}, run=run)
        compile_machine_code(source, name, "sm_90", {"N": "1"}, run=run)
    assert asked[:2] == asked[2:] and not any("etc" in str(option) or "fast" in str(option) for option in asked[2])
