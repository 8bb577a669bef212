"""PTX of several files as one text."""

from __future__ import annotations

import pytest

from pytest_gpulab.devices.programs.linking import link
from pytest_gpulab.devices.simulated.ptx.reader import parse
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction

pytestmark = pytest.mark.unit

HEADER = """// made by hand
.version 9.0
.target sm_90
.address_size 64
"""
USES = f"""{HEADER}
.extern .func (.param .b32 result) helper(.param .b32 helper_param_0);
.extern .global .align 4 .u32 counter;
.global .align 1 .b8 $str[3] = {{97, 59, 0}};
.weak .func twice() {{ ret; }}
.visible .entry use()
{{
    .reg .b64 %rd<3>;
    .loc 1 7 5
    mov.u64 %rd1, $str; // the first file's
    mov.u64 %rd2, counter;
    call.uni (result), helper, (result);
    .loc 1 8 5, function_name $L__info_string0, inlined_at 1 9 3
    ret;
}}
    .file 1 "use.cu"
    .section .debug_str
    {{
$L__info_string0:
.b8 97,0
    }}
"""
DEFINES = f"""{HEADER}
.visible .global .align 4 .u32 counter = 10;
.global .align 1 .b8 $str[2] = {{98, 0}};
.weak .func twice() {{ ret; }}
.visible .func (.param .b32 result) helper(.param .b32 helper_param_0)
{{
    .reg .b64 %rd<2>;
    .loc 1 3 5
    mov.u64 %rd1, $str;
$L__BB0_2:
    .loc 1 4 5, function_name $L__info_string0, inlined_at 1 9 3
    ret;
}}
    .file 1 "helper.cu"
    .section .debug_str
    {{
$L__info_string0:
.b8 98,0
    }}
"""


def test_one_text_stays() -> None:
    assert link([USES]) is USES


@pytest.mark.parametrize("texts", [[USES, DEFINES], [DEFINES, USES]])
def test_names_are_bound_across_files(texts: list[str]) -> None:
    linked = link(texts)
    module = parse(linked)
    assert linked.count(".version") == linked.count(".func twice") == 1
    assert module.variables["counter"].data == (10).to_bytes(4, "little")
    assert len(module.functions["helper"].body) > 1
    assert ".extern" not in linked  # the assembler refuses one beside a definition
    first, second = (texts.index(text) for text in (USES, DEFINES))
    strings = [module.variables[name].data for name in ("$str", "$str$1")]
    assert (strings[first], strings[second]) == (b"a;\0", b"b\0")
    moved = [s.operands[1].name for s in module.functions["helper"].body if isinstance(s, Instruction) and s.operands]
    assert moved == [("$str", "$str$1")[second]]


@pytest.mark.parametrize("texts", [[USES, DEFINES], [DEFINES, USES]])
def test_lines_stay_those_of_their_file(texts: list[str]) -> None:
    module = parse(link(texts))
    used = [(s.where.file, s.where.line) for s in module.functions["use"].body if s.where and isinstance(s, Call)]
    assert used == [("use.cu", 7)]
    places = {(s.where.file, s.where.line) for s in module.functions["helper"].body if isinstance(s, Instruction)}
    assert places == {("helper.cu", 3), ("helper.cu", 4)}
