"""What a submission may include."""

from __future__ import annotations

import pytest

from pytest_gpulab.grading.includes import Include, unaccepted_include


@pytest.mark.parametrize(
    "source",
    [
        "#include <gpulab.cuh>\n# include \"paths.cuh\"\n#include <cub/block/block_scan.cuh> // fast\n",
        "#include <gpulab.cuh>\r\n#include <cstdio>\r\n",
        "// #include \"/etc/passwd\"\n/* #include \"/etc/passwd\"\n#include \"../a.cu\" */\n",
        "const char *text = \"/*\";\n#define includes 1\nint included;\n",
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
        ('int x; /* a */\n/* b */ #/* c */include "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('#inc\\\nlude "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('const char *text = "/*";\n#include "/etc/passwd"\n', Include(2, '"/etc/passwd"')),
        ('#include_next "c:/secret"\n', Include(1, '"c:/secret"')),
        ('#embed "/etc/passwd"\n', Include(1, '"/etc/passwd"')),
    ],
)
def test_paths_and_macros_are_not(source: str, found: Include) -> None:
    assert unaccepted_include(source) == found
