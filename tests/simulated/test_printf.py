"""printf from kernels writes what C's printf writes: the host's own is the judge."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated.execution.wave import Wave
from pytest_gpulab.devices.simulated.memory import printf
from pytest_gpulab.devices.simulated.memory.printf import MAX_CHARACTERS, MAX_WIDTH, hexadecimal

CASES: dict[str, tuple[Any, ...]] = {
    "%d %i %u [%5d] [%-5d] [%05d] [%+d] [% d] [%.3d]": (1, -2, 3, 42, 42, -42, 42, 42, 7),
    "%x %X %o %#x %#X %#o %#x %#o [%#8o]": (255, 255, 8, 255, 255, 8, 0, 0, 64),
    "%hd %hu %hhd %hhu %hx": (70000, 70000, 200, 300, 65551),
    "[%*d] [%-*d] [%*d]": (6, 42, 6, 42, -6, 42),
    "[%.*f] [%.*f] [%.f] [%.0f] [%6.1f]": (2, 3.14159, -1, 3.14159, 2.5, 3.5, -2.25),
    "%f %e %g %G %E %F %+.2e": (1.5, 12345.678, 0.0001, 1e-20, 2.0, 0.1, 3.0),
    "%f %e %g %+f %F": (float("inf"), float("-inf"), float("nan"), float("inf"), float("-inf")),
    "%a %A %.2a [%12a] [%-12a] %+a % a %.0a": (1.0, 1.5, 3.14159, 2.0, -2.0, 5.0, 5.0, 1.75),
    "%p [%8p] [%-8p]": (None, None, None),
    "%c|%5c|%-5c|": (65, 66, 67),
    "%s|%8s|%-8s|%.2s|%5.1s": (b"plain", b"right", b"left", b"cut", b"both"),
    "100%% of %d": (7,),
}


def in_cuda(value: Any) -> str:
    if value is None:
        return "(void *)0"
    if isinstance(value, bytes):
        return f'"{value.decode()}"'
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "(1.0 / 0.0)", "-inf": "(-1.0 / 0.0)", "nan": 'nan("")'}[str(value)]
    return repr(value)


def in_c(template: str, values: tuple[Any, ...]) -> str:
    kinds = {int: ctypes.c_int, float: ctypes.c_double, bytes: ctypes.c_char_p, type(None): ctypes.c_void_p}
    text = ctypes.create_string_buffer(1000)
    ctypes.CDLL(None).snprintf(text, 1000, template.encode(), *(kinds[type(value)](value) for value in values))
    return text.value.decode()


@pytest.mark.parametrize("template", CASES)
def test_prints_as_the_host_does(run: Run, template: str) -> None:
    values = CASES[template]
    source = f"""#include <cstdio>
__global__ void f() {{ printf("{template}\\n", {", ".join(map(in_cuda, values))}); }}"""
    assert run(source, block=(1,)).output == in_c(template, values) + "\n"


def test_lanes_with_one_format_print_as_each_by_itself(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "%d/%5u/%-6lld|%+.2f %x %%\\n"
    source = f"""#include <cstdio>
__global__ void f() {{
    int t = threadIdx.x, y = threadIdx.y;
    if (t % 3) printf("{template}", -t, y, t * 10000000000ll, t / 8.0, blockIdx.x);
}}"""
    together = run(source, block=(8, 2), grid=(3,)).output
    monkeypatch.setattr(printf, "_alike_lines", lambda *call: None)
    assert together == run(source, block=(8, 2), grid=(3,)).output and together.count("\n") == 30


@pytest.mark.parametrize("digits", [None, 0, 1, 5, 12, 13, 16])
def test_hexadecimal_floats(digits: int | None) -> None:
    template = "%a" if digits is None else f"%.{digits}a"
    exponents = np.arange(-1074, 1024, 37).tolist()
    for value in (0.0, -0.0, 5e-324, 1.9999999999999998, *(2.0**n * (1 + n % 7 / 9) for n in exponents if n > -1070)):
        assert hexadecimal(value, digits, sign="") == in_c(template, (value,))


def test_order_is_by_block_then_thread(run: Run) -> None:
    source = """#include <cstdio>
__global__ void f() { if (threadIdx.x % 3 == 0) printf("%d.%d ", blockIdx.x, threadIdx.x); }"""
    assert run(source, grid=(2,), block=(7,)).output == "0.0 0.3 0.6 1.0 1.3 1.6 "


def test_wide_values_and_pointers(run: Run) -> None:
    source = """#include <cstdio>
__global__ void f(int *out) {
    printf("%lld %llu %llx %ld %zu|", -5000000000ll, ~0ull, 1ull << 40, 99l, (unsigned long)7);
    printf("%p|%s|%.99s", out, (const char *)0, "end\\n");
}"""
    text = run(source, np.zeros(1, np.int32), block=(1,)).output
    numbers, pointer, null, end = text.split("|")
    assert numbers == "-5000000000 18446744073709551615 10000000000 99 7"
    assert pointer.startswith("0x")
    assert (null, end) == ("(null)", "end\n")


def test_output_is_capped_with_a_note(run: Run) -> None:
    source = """#include <cstdio>
__global__ void f() { for (int k = 0; k < 40; ++k) printf("%100d\\n", threadIdx.x); }"""
    text = run(source, block=(32,)).output
    head, note = text.rsplit("\n", 1)
    assert len(head) == MAX_CHARACTERS
    printed = -(-MAX_CHARACTERS // 101)
    assert note == f"[... {40 * 32 - printed} more printf calls left out]"


UNDEFINED = {
    'printf("%f|", 3)': None,
    'printf("%d|", 1.5)': "0|",
    'printf("%d %d %d|", 1)': None,
    'printf("%d|", 1, 2)': "1|",
    'printf("%s|", 5)': None,
    'printf("%s|", (const char *)8)': "(bad pointer)|",
    'printf("%s|", (const char *)~0ull)': "(bad pointer)|",
    'printf("%s|", (const char *)0)': "(null)|",
    'printf("%n|", &d)': "%n|",
    'printf("%y %d|", 4)': "%y 4|",
    'printf("%ld|", 7)': None,
    'printf("%lld|", 7)': None,
    'printf("%p|", 7)': None,
    'printf("%c%c|", 321, 0x42)': "AB|",
    'printf("%|")': "%|",
    'printf("%*d|", 1)': None,
    'printf("%5%|")': "%|",
    'printf("%hhd %Lf|", 1, 2.0)': "1 2.000000|",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("call", UNDEFINED)
def test_an_undefined_format_prints_something_and_changes_nothing(run: Run, call: str) -> None:
    source = f"""#include <cstdio>
__global__ void f(int *out) {{ int d = 4; {call}; printf("after"); out[threadIdx.x] = d; }}"""
    out = np.zeros(32, np.int32)
    profile = run(source, out, block=(32,), options=LaunchOptions(check=True))
    assert (out == 4).all()
    assert profile.hazards == ()
    printed, last = profile.output[: profile.output.index("after")], profile.output[-5:]
    assert last == "after"
    expected = UNDEFINED[call]
    assert printed == 32 * expected if expected is not None else printed.count("|") == 32


@pytest.mark.parametrize(
    ("call", "length"),
    [
        ('printf("%*d|", 2000000000, 1)', MAX_WIDTH),
        ('printf("%*d|", (int)0x80000000, 1)', MAX_WIDTH),
        ('printf("%999999999999d|", 1)', MAX_WIDTH),
        ('printf("%.999999999d|", 1)', MAX_WIDTH),
        ('printf("%.*f|", 2000000000, 1.0)', MAX_WIDTH + 2),
        ('printf("%.999999999e|", 1.0)', MAX_WIDTH + 6),
        ('printf("%.*a|", 2000000000, 1.0)', MAX_WIDTH + 7),
        ('printf("%999999999s|", "x")', MAX_WIDTH),
        ('printf("%.*s|", 2000000000, "abc")', 3),
    ],
)
def test_widths_and_precisions_are_capped(run: Run, call: str, length: int) -> None:
    text = run(f"#include <cstdio>\n__global__ void f() {{ {call}; }}", block=(1,)).output
    assert text.endswith("|")
    assert len(text) == length + 1


def test_a_string_may_lie_in_any_memory(run: Run) -> None:
    source = """#include <cstdio>
__device__ char global_text[8] = "global";
__global__ void f() {
    __shared__ char shared_text[8];
    volatile char local_text[8];
    for (int k = 0; k < 8; ++k) { shared_text[k] = "shared!"[k]; local_text[k] = "local--"[k] + (k ? 0 : threadIdx.x); }
    __syncthreads();
    printf("%s %s %s ", global_text, shared_text, (char *)local_text);
}"""
    assert run(source, block=(3,)).output == "global shared! local-- global shared! mocal-- global shared! nocal-- "


def test_printing_costs_little_once_the_output_is_full(run: Run) -> None:
    source = """#include <cstdio>
__global__ void f() { for (int k = 0; k < 200; ++k) printf("t=%d k=%d\\n", threadIdx.x, k); }"""
    begin_s = time.process_time()
    text = run(source, grid=(64,), block=(256,)).output
    assert time.process_time() - begin_s < 3  # seconds; 3.3 million calls take a tenth
    assert text.endswith("more printf calls left out]")
    assert len(text) < MAX_CHARACTERS + 100


FILL = 'for (int k = 0; k < 400; ++k) printf("%1000d %f\\n", k, 1.0 * n);'


@pytest.mark.parametrize(("reads", "stores"), [("", False), ("out[threadIdx.x] = own[n + 1];", True)])
def test_arguments_are_stored_only_while_something_reads_them(
    run: Run, monkeypatch: pytest.MonkeyPatch, reads: str, stores: bool
) -> None:
    calls, store, out = [], Wave._store_banked, np.zeros(32, np.int32)
    monkeypatch.setattr(Wave, "_store_banked", staticmethod(lambda *args: calls.append(1) or store(*args)))
    source = f"""#include <cstdio>
__global__ void f(int *out, int n) {{ volatile int own[4]; {FILL} own[n + 1] = 7; {reads} }}"""
    run(source, out, np.int32(1), block=(32,))
    assert (len(calls) > 400) == stores
    assert (out == 7).all() == stores


def test_a_store_after_the_output_is_full_may_still_miss_its_array(run: Run) -> None:
    source = f"""#include <cstdio>
__global__ void f(int *out, int n) {{ volatile int own[4]; {FILL} own[n] = 7; }}"""
    with pytest.raises(KernelFault, match="invalid __local__ write"):
        run(source, np.zeros(32, np.int32), np.int32(1 << 20), block=(32,))
