"""The meaning of nvcc's messages, with stand-ins for nvcc and for the part of PyCUDA that starts it."""

from __future__ import annotations

import shlex
import tempfile
import time
from pathlib import Path

import pytest
from fake_nvcc import Compiler, stand_in

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.nvrtc import compile_ptx
from pytest_gpulab.devices.cuda.nvcc import compile
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc
from pytest_gpulab.devices.protocol import DeviceUnavailable, OutOfMemory

MET = "The compiler did not finish; the limits are 2 GiB of memory and 256 MiB per file."
NO_MEMORY = "k.cu(1): catastrophic error: out of memory"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return stand_in(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "words",
    [
        NO_MEMORY,
        "/usr/include/c++/12/limits(1204): catastrophic error: out of memory\n  min() noexcept {\n\n1 error detected.",
        "cc1plus: out of memory allocating 8572200 bytes after a total of 50728960 bytes",
        "LLVM ERROR: out of memory\nAborted",
        "ptxas fatal   : Memory allocation failure",
        "nvcc error   : 'cicc' died due to signal 6",
        "gcc: internal compiler error: File size limit exceeded signal terminated program cc1plus",
        "File size limit exceeded",
        "Segmentation fault",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        "",
    ],
)
def test_a_text_that_met_a_limit_is_not_compiled_again_in_any_variant(compiler: Compiler, words: str) -> None:
    compiler.says(f'cat <<"EOF" >&2\n{words}\nEOF\nexit 1')
    first = compiler.said("bomb", T="int")
    assert not list(Path(tempfile.gettempdir()).iterdir())
    assert first.endswith(f"\n{MET}" if words else MET) and first.startswith(words.partition("\n")[0])
    assert compiler.said("bomb", T="float") == compiler.said("bomb") == first
    assert compiler.runs == 1


@pytest.mark.parametrize(
    "words",
    [
        'k.cu(2): error: identifier "y" is undefined',
        "k.cu(2): error: #error directive: out of memory",
        '    2 | #error "LLVM ERROR: out of memory"',
        'k.cu(7): error: static assertion failed with "File size limit exceeded, died due to signal 9, bad_alloc"',
        "ptxas error   : Entry function 'f' uses too many registers",
    ],
)
def test_a_plain_error_is_each_variants_own(compiler: Compiler, words: str) -> None:
    compiler.says(f"cat <<'EOF' >&2\n{words}\nEOF\nexit 1")
    assert compiler.said("text", T="int") == words.strip()
    compiler.says("echo code >kernel.cubin")
    assert compiler.cubin("text", T="float") == b"code\n"
    assert compiler.runs == 3  # the first one with all headers, too


def test_too_much_shared_memory_is_reported_as_on_the_simulated_gpu(compiler: Compiler) -> None:
    words = "ptxas error   : Entry function '_Z4scanPf' uses too much shared data (0xc800 bytes, 0xc000 max)"
    compiler.says(f"cat <<'EOF' >&2\n{words}\nEOF\nexit 1")
    first, second = compiler.said("text").splitlines()
    assert first == "k.cu: error: `scan` needs 51,200 bytes of shared memory; the limit per block is 49,152"
    assert second == words


@pytest.mark.parametrize(
    "words",
    [
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",  # others took the machine's memory
        "gcc: fatal error: Killed signal terminated program cc1plus",
    ],
)
def test_a_compiler_ended_from_outside_met_no_limit_and_lacks_no_header(compiler: Compiler, words: str) -> None:
    compiler.says(f"echo {shlex.quote(words)} >&2; exit 1")
    assert compiler.said("text", T="int") == words
    assert compiler.runs == 1
    compiler.says("echo code >kernel.cubin")
    assert compiler.cubin("text", T="float") == b"code\n"


def test_a_compiler_killed_for_lack_of_memory_is_not_gradable(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter(range(9))
    monkeypatch.setattr(compile, "memory_kills", lambda: next(kills))
    compiler.says("echo 'gcc: fatal error: Killed signal terminated program cc1plus' >&2; exit 1")
    with pytest.raises(OutOfMemory, match=r"^the system killed the compiler: the machine or its container needs more"):
        compiler.cubin("text")
    compiler.says("echo 'k.cu(1): error: no' >&2; exit 1")
    assert compiler.said("text") == "k.cu(1): error: no"


def test_a_rejection_applies_to_one_text_and_one_run(compiler: Compiler) -> None:
    compiler.says(f"echo '{NO_MEMORY}' >&2; exit 1")
    assert compiler.said("bomb").startswith(NO_MEMORY)
    compiler.says("echo code >kernel.cubin")
    assert compiler.cubin("another") == b"code\n"
    assert compiler.said("bomb").startswith(NO_MEMORY)
    compiler.nvcc = Nvcc(cache=Cache(compiler.folder.parent / "cache"))  # which knows nothing of it
    assert compiler.cubin("bomb") == b"code\n"


@pytest.mark.parametrize("name", ["NVCC_APPEND_FLAGS", "CPATH", "PYCUDA_DEFAULT_NVCC_FLAGS"])
def test_variables_of_nvcc_make_another_compilation(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (compiler.folder / "cache").mkdir()
    compiler.says("echo code >kernel.cubin")
    assert compiler.cubin("text") == compiler.cubin("text") and compiler.runs == 1
    monkeypatch.setenv(name, "something")
    assert compiler.cubin("text") == b"code\n" and compiler.runs == 2


MEETING = """
touch "$PWD.was-here"
for try in $(seq 200); do
    [ $(ls "$(dirname "$PWD")"/*.was-here | wc -l) -ge 2 ] && break
    sleep 0.05
done
ls "$(dirname "$PWD")"/*.was-here | wc -l
grep -h define kernel.cu >kernel.cubin
"""


def test_variants_are_compiled_side_by_side_and_no_more_when_they_are_asked_for(compiler: Compiler) -> None:
    compiler.says(MEETING)
    compiler.nvcc.ahead("text", "k.cu", "sm_90", [{"T": "int"}, {"T": "float"}], {})
    assert compiler.runs == 2
    compiler.says("exit 1")
    assert compiler.nvcc.cubin("text", "k.cu", "sm_90", {"T": "int"}, {}) == (b"#define T int\n", "2")
    assert compiler.nvcc.cubin("text", "k.cu", "sm_90", {"T": "float"}, {}) == (b"#define T float\n", "2")
    assert compiler.runs == 2


def test_of_two_compilations_of_one_text_one_waits_for_the_other(compiler: Compiler) -> None:
    (compiler.folder / "cache").mkdir()
    compiler.says("sleep 0.1; echo code >kernel.cubin")
    compiler.nvcc.ahead("text", "k.cu", "sm_90", [{"T": "int"}, {"T": "int"}], {})
    assert compiler.runs == 1


def test_a_variant_that_does_not_compile_says_so_when_it_is_asked_for_and_costs_the_others_nothing(
    compiler: Compiler,
) -> None:
    compiler.says("grep -q float kernel.cu && { echo 'k.cu(1): error: no' >&2; exit 1; }; echo code >kernel.cubin")
    compiler.nvcc.ahead("text", "k.cu", "sm_90", [{"T": "int"}, {"T": "float"}], {})
    assert compiler.cubin("text", T="int") == b"code\n"
    assert compiler.said("text", T="float") == "k.cu(1): error: no"
    assert compiler.runs == 3  # the second one with all headers, too


@pytest.mark.parametrize(
    "words",
    [
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "gcc: fatal error: Killed signal terminated program cc1plus",
    ],
)
def test_a_variant_that_others_hunger_for_memory_ended_is_compiled_again_alone(compiler: Compiler, words: str) -> None:
    compiler.says(f"cat <<'EOF' >&2\n{words}\nEOF\nexit 1")
    compiler.nvcc.ahead("text", "k.cu", "sm_90", [{"T": "int"}, {"T": "float"}], {})
    compiler.says("echo code >kernel.cubin")
    assert compiler.cubin("text", T="int") == compiler.cubin("text", T="float") == b"code\n"


def test_warnings_are_kept_with_the_output_up_to_a_length(compiler: Compiler) -> None:
    compiler.says("echo note; echo 'k.cu(1): warning #177-D: unused' >&2; echo code >kernel.cubin")
    for _ in "compiled", "known":
        assert compiler.nvcc.cubin("text", "k.cu", "sm_90", {}, {})[1] == "note\nk.cu(1): warning #177-D: unused"
    compiler.says("yes | head -c 1000000 >&2; echo code >kernel.cubin")
    assert len(compiler.nvcc.cubin("another", "k.cu", "sm_90", {}, {})[1]) == 64 * 1024 - 1


SPARED = "error: namespace std has no member riemann_zeta"
WITHOUT_ALL = f"""case "$*" in
*/include/nvcc*) echo 'k.cu(1): {SPARED}' >&2; exit 1 ;;
esac
"""


def test_a_file_that_needs_headers_that_nvcc_is_spared_gets_them_in_all_variants(compiler: Compiler) -> None:
    compiler.says(f"{WITHOUT_ALL}\necho code >kernel.cubin")
    assert compiler.cubin("the text", T="int") == b"code\n"
    assert compiler.runs == 2
    assert compiler.cubin("the text", T="float") == b"code\n"
    assert compiler.runs == 3


@pytest.mark.parametrize("place", ["source", "header"])
def test_a_text_that_could_detect_missing_headers_gets_all_at_once(compiler: Compiler, place: str) -> None:
    compiler.says(f"{WITHOUT_ALL}\necho code >kernel.cubin")
    text = "using namespace std;"
    source, headers = (text, {}) if place == "source" else ("the text", {"more.cuh": text})
    assert compiler.nvcc.cubin(source, "k.cu", "sm_90", {}, headers)[0] == b"code\n"
    assert compiler.runs == 1
    assert compiler.cubin("the text") == b"code\n"
    assert compiler.runs == 3  # others are spared them as before


def test_each_variant_gets_the_headers_that_it_speaks_of(compiler: Compiler) -> None:
    compiler.says('echo "$@" | grep -o -e "-D__MATH_FUNCTIONS_H__" >kernel.cubin; exit 0')
    assert compiler.cubin("OP", OP="a + b") == b"-D__MATH_FUNCTIONS_H__\n"
    assert compiler.cubin("OP", OP="sqrtf(a)") == b""


def test_where_nvcc_does_not_tell_where_its_headers_are_it_gets_all(compiler: Compiler) -> None:
    compiler.says(f"{WITHOUT_ALL}\necho code >kernel.cubin")
    compiler.script.write_text(compiler.script.read_text().replace("INCLUDES=", "OTHERS="))
    assert compiler.cubin("the text") == b"code\n"
    assert compiler.runs == 1


def test_a_text_that_repeats_itself_is_looked_through_at_once(compiler: Compiler) -> None:
    compiler.says("echo code >kernel.cubin")
    begin_s = time.process_time()
    for text in (
        "using ",
        "/*",
        "'",
        '"\\',
        "# ",
        "\\ \n",
        " \r",
        "#if BLOCK_H\n",
        "#if 0 +",
        "\n#if BLOCK" + 9 * "BLOCK",
    ):
        compiler.cubin(text * (2**20 // len(text)))  # as long as a submission may be
    assert time.process_time() - begin_s < 40  # 2 to 5 s where each is read once; hours where a search begins anew


def test_the_compilers_messages_with_all_headers_count(compiler: Compiler) -> None:
    compiler.says(f"{WITHOUT_ALL}\necho 'k.cu(1): error: no' >&2; exit 1")
    assert compiler.said("the text") == "k.cu(1): error: no"


def test_assembly_that_moves_source_lines_is_refused(compiler: Compiler) -> None:
    """PTX without line information is looked at, only where a text may hold assembly."""
    told = (
        'case "$*" in *--ptx*line-info*) exit 1;; *--ptx*) cp kernel.cu kernel.ptx;; *) echo code >kernel.cubin; esac'
    )
    compiler.says(told)
    assert compiler.cubin("no such thing\n.loc 1 7 0\n") == b"code\n"
    assert compiler.runs == 1
    assert compiler.cubin('asm("bar.sync 0;");') == b"code\n"
    assert compiler.runs == 3
    for directive in (".loc", ".file"):
        said = compiler.said(f'asm("\n{directive} 1 7 0\n");')
        assert said == f"k.cu: error: inline assembly with `{directive}` is refused: it moves source lines"


def test_the_compilers_messages_for_assembly_count(compiler: Compiler) -> None:
    compiler.says('case "$*" in *--ptx*) echo "k.cu(1): error: no" >&2; exit 1;; *) echo code >kernel.cubin; esac')
    assert compiler.said('asm("bar.sync 0;");') == "k.cu(1): error: no"


FACES = """__global__ void face(int *p)
{
#ifdef __CUDACC_RTC__
    *p = 1;
#else
    *p = 2;
#endif
}
"""
REPORT = """ptxas info    : Compiling entry function '_Z4facePi' for 'sm_86'
ptxas info    : Function properties for _Z4facePi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 7 registers, used 0 barriers
"""


def test_beside_a_gpu_the_simulated_one_runs_nvccs_code_of_a_text_with_another_face_for_nvrtc(
    compiler: Compiler,
) -> None:
    seen_by_nvcc, _ = compile_ptx(FACES.replace("__CUDACC_RTC__", "NOTHING"), "/work/k.cu", "compute_86")
    (compiler.folder / "made.ptx").write_text(seen_by_nvcc)
    device, _ = open_device("sim", beside="sm_86")
    told = f"echo code >kernel.cubin; cat <<'EOF' >&2\nk.cu(1): warning: so\n{REPORT}EOF\n"
    compiler.says(told)
    with pytest.raises(DeviceUnavailable, match="nvcc has kept no PTX file"):
        device.compile("text", "k.cu")
    compiler.says(f"cp {compiler.folder}/made.ptx $3/kernel.ptx; {told}")
    module, out = device.compile(FACES, "k.cu"), device.array([0], "int32")
    module.launch("face", (1,), (1,), [out])
    assert (out.get().tolist(), module.log) == ([2], "k.cu(1): warning: so")
    assert (module.resources("face").registers, device.info.compiler) == (7, "nvcc 13.0.88")
    assert '.file\t1 "k.cu"' in compiler.nvcc.compiled(FACES, "k.cu", "sm_86", {}, {}).ptx
