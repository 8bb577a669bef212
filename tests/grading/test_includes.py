"""Includes that a submission may use."""

from __future__ import annotations

import time

import pytest

from pytest_gpulab.grading.compilation.includes import Include, changed_header, moved_line, unaccepted_include

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "source",
    [
        "#include <gpulab.cuh>\n# include \"paths.cuh\"\n#include <cub/block/block_scan.cuh> // fast\n",
        "#include <gpulab.cuh>\r\n#include <cstdio>\r\n",
        "// #include \"/etc/passwd\"\n/* #include \"/etc/passwd\" */\n",
        "const char *text = \"/*\";\n#define includes 1\nint included;\n",
        "#include <gpulab.cuh> /* all\nof it */ #pragma once\nint number; // of #include lines\n",
        "#if defined(__has_include)\n#if __has_include (<cuda/barrier>)\n#endif\n#endif\n#define J(a, b) a##b\n",
        "#if defined __has_include && __has_include(<cub/cub.cuh>)\n#endif\n#ifdef __has_include\n#endif\n",
    ],
)  # fmt: skip
def test_headers_by_name_are_accepted(source: str) -> None:
    assert unaccepted_include(source) is None


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('#include <gpulab.cuh>\n#include "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('#include "solutions/scan/01.cu"\n', Include(1, '"solutions/scan/01.cu"')),
        ("#include </etc/passwd>\n", Include(1, "</etc/passwd>")),
        ('#include "../../solutions/scan/01.cu"\n', Include(1, '"../../solutions/scan/01.cu"')),
        ('#define FILE "/etc/passwd"\n#include FILE\n', Include(2, "FILE")),
        ('%: include "/etc/passwd"\n', Include(1, '"/etc/passwd"')),
        ('int x; /* a */\n/* b */ #include "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('#inc\\\nlude "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('const char *text = "/*";\n#include "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('#include_next "c:/secret"\n', Include(1, '"c:/secret"')),
        ('#embed "/etc/passwd"\n', Include(1, '"/etc/passwd"')),
        ('#import "/etc/passwd"\n', Include(1, '"/etc/passwd"')),
        ('#if __has_include("/etc/passwd")\n', Include(1, '"/etc/passwd"')),
        ("#if __has_include (FILE)\n", Include(1, "FILE")),
        # whatever a compiler might take for a string, a comment or a joined line
        ('/* one */ # /* two */ include "/etc/passwd"\n', Include(1, '/* two */ include "/etc/passwd"')),
        ('int a; \\ \n#include "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('int a; \\\r\n#include "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('#inc\\ \nlude "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('#\rinclude "/etc/passwd"\n', Include(1, '"/etc/passwd"')),
        ('int a;\r#include "/etc/passwd"\r', Include(1, '"/etc/passwd"')),
        ('auto s = R"("/*)";\n#include "/etc/passwd"\n//*/', Include(2, '"/etc/passwd"')),
        ("""char c = '"', *s = "/*";\n#include "/etc/passwd"\n//*/""", Include(2, '"/etc/passwd"')),
        ("#define Q ' /*\n#include </etc/passwd>\n// */", Include(2, "</etc/passwd>")),
        ('#define Q " /*\n#include </etc/passwd>\n// */', Include(2, "</etc/passwd>")),
        ('/* a comment\n#include "../a.cu" */\n', Include(2, '"../a.cu" */')),
    ],
)
def test_paths_and_macros_are_not(source: str, found: Include) -> None:
    assert unaccepted_include(source) == found


@pytest.mark.parametrize("piece", ["#/*\n", "/**/", "*/#", "#", " ", "\\ ", "\\\r", "__has_include(", '#include "'])
def test_a_hostile_text_takes_no_longer_than_its_length(piece: str) -> None:
    """With a search that begins again at every place, this would take minutes."""
    begin_s = time.process_time()
    unaccepted_include(piece * (200_000 // len(piece)))
    assert time.process_time() - begin_s < 5


@pytest.mark.parametrize(
    "source", ['#line 7 "a.cu"', "# line 7", '# 12 "a.cu"', "%:line 3", "/* a */ #line 3", "??=line 3"]
)
def test_directives_that_move_lines_are_found(source: str) -> None:
    assert moved_line(f"int a;\n{source}\nint b;\n") == 2


@pytest.mark.parametrize("source", ["int line = 3;", "#define line 3", "#pragma line", "a #line 3", "// line 3"])
def test_other_lines_do_not_move(source: str) -> None:
    assert moved_line(source) is None


PATHS = {
    "paths.cuh": "#ifndef ROUNDS\n#define ROUNDS 64\n#endif\nfloat path(float x) { return sqrtf(x); }  // by hand\n"
}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('#define sqrtf(v) own(v)\n#include "paths.cuh"\n', 1),
        ("\n#define float Own\n#import <paths.cuh>\n#undef float\n", 2),
        ('#include "paths.cuh"\n#define float Own\nnamespace own {\n#include "paths.cuh"\n}\n', 2),
        ('#def\\\nine sqrtf own\n%: include_next "paths.cuh"\n', 2),  # approximate where lines are joined
        ('/* a */ # define x/**/ y\n#inc\\\nlude "paths.cuh"\n', 1),
    ],
)
def test_a_macro_that_changes_a_header_of_the_exercise_is_refused(source: str, line: int) -> None:
    found = changed_header(source, PATHS, "a.cu")
    assert found is not None and found.where == f"a.cu:{line}" and "would change the lines of paths.cuh" in found.what


@pytest.mark.parametrize(
    "source",
    [
        '#include "paths.cuh"\n#define x threadIdx.x\n',
        '#define ROUNDS 32\n#define hand 1\n#define BLOCK 256\n#include "paths.cuh"\n',
        "#define sqrtf own\n#define\n#include <gpulab.cuh>\n",
    ],
)
def test_other_macros_are_accepted(source: str) -> None:
    assert changed_header(source, PATHS, "a.cu") is None
