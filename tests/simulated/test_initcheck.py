"""Reads of unwritten memory are found, byte by byte; reads of written memory are not reported."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.compiler.nvrtc import compile_ptx
from pytest_gpulab.devices.protocol import Hazard, Lane, LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice

CHECKED = LaunchOptions(check=True)
KERNEL = (
    "__global__ void f(int *out, int n) {{\n __shared__ __align__(16) int tile[64];\n"
    " int t = threadIdx.x, i = blockIdx.x * 64 + t;\n {body}\n}}\n"
)

UNWRITTEN = {
    "nobody writes": "out[i] = tile[t]; // HERE\n if (n > 9) tile[t] = 0;",
    "half is written": "if (t < 32) tile[t] = t; __syncthreads();\n out[i] = tile[t]; // HERE",
    "one word is not": "if (t != 40) tile[t] = t; __syncthreads();\n out[i] = tile[63 - t]; // HERE",
    "one byte is not": "char *c = (char *)tile; for (int k = 0; k < 4; k++) if (4 * t + k != 161) c[4 * t + k] = k;\n"
    " __syncthreads(); out[i] = tile[t]; // HERE",
    "one byte is read": "short *h = (short *)tile; h[2 * t] = t;\n out[i] = ((char *)tile)[4 * t + 3]; // HERE",
    "vectors": "if (t < 15) ((int4 *)tile)[t] = make_int4(1, 2, 3, n); __syncthreads();\n"
    " if (t < 16) out[i] = ((int4 *)tile)[t].w; // HERE",
    "64-bit words": "if (t != 7) tile[t] = t; __syncthreads();\n if (t < 32) out[i] = ((double *)tile)[t] > 0; // HERE",
    "an atomic": "if (t > 3) tile[t] = 0; __syncthreads();\n atomicAdd(&tile[t], 1); // HERE",
    "other blocks only write": "if (blockIdx.x == 1) tile[t] = t;\n out[i] = tile[t]; // HERE",
    "data-dependent": "tile[(t * 3 + n) % 63] = t; __syncthreads();\n"
    " out[i] = tile[(t * 5 + blockIdx.x) % 64]; // HERE",
    "local": "int own[8]; for (int k = 0; k < n; k++) own[k] = t;\n out[i] = own[t % 8]; // HERE",
    "local of some threads": "int own[8]; if (t > 9) for (int k = 0; k < 8; k++) own[k] = n + k;\n"
    " out[i] = own[(t + n) % 8]; // HERE",
}


def check(run: Run, source: str) -> LaunchProfile:
    return run(source, np.zeros(128, np.int32), np.int32(5), grid=(2,), block=(64,), options=CHECKED)


def uninitialised(profile: LaunchProfile) -> list[Hazard]:
    return [hazard for hazard in profile.hazards if hazard.kind == "uninitialised"]


@pytest.mark.parametrize("body", UNWRITTEN.values(), ids=UNWRITTEN.keys())
def test_read_of_unwritten_memory(run: Run, body: str) -> None:
    source = KERNEL.format(body=body)
    (hazard,) = uninitialised(check(run, source))
    assert hazard.where == marked(source)


HOISTED = {
    "into both branches": "if (odd) tile[t] = t;\n __syncthreads();\n if (odd)\n out[i] = tile[t] * 3; // HERE\n"
    " else\n out[i] = tile[t] + 5; // HERE",
    "in a loop": "int sum = 0; if (odd) tile[t] = t;\n for (int k = 0; k < n; k++) {\n if (odd) // HERE\n"
    " sum += tile[(t + k) % 64]; // HERE\n else\n sum -= tile[(t + k) % 64]; // HERE\n __syncthreads();\n }\n"
    " out[i] = sum;",
    "of global memory": "int sum = t; if (odd) sum = n;\n __syncthreads();\n if (odd)\n sum += out[i]; // HERE\n"
    " else\n sum ^= out[i]; // HERE\n __syncthreads();\n out[i] = sum;",
}


@pytest.mark.parametrize("body", HOISTED.values(), ids=HOISTED.keys())
def test_a_load_that_the_compiler_moved_has_no_barriers_line(device: SimulatedDevice, body: str) -> None:
    """Both branches begin with the same load, so the compiler loads once before them, at no line."""
    source = KERNEL.format(body=f"const bool odd = t < n;\n{body}")
    out = device.empty(64, np.int32)
    profile = device.compile(source).launch("f", (1,), (64,), [out, np.int32(5)], options=CHECKED)
    here = {number for number, line in enumerate(source.splitlines(), 1) if "// HERE" in line}
    (hazard,) = uninitialised(profile)
    assert hazard.where is not None and hazard.where.line in here


WRITTEN = {
    "by all": "tile[t] = t; __syncthreads(); out[i] = tile[63 - t];",
    "byte by byte": "char *c = (char *)tile; for (int k = 0; k < 4; k++) c[4 * t + k] = k; out[i] = tile[t];",
    "in halves, read whole": "((short *)tile)[2 * t] = 1; ((short *)tile)[2 * t + 1] = 2; out[i] = tile[t];",
    "in vectors": "if (t < 16) ((int4 *)tile)[t] = make_int4(t, n, t, n); __syncthreads(); out[i] = tile[t];",
    "only what is read": "if (t < 9) tile[t] = t; __syncthreads(); out[i] = tile[t % 9];",
    "by an exchange": "if (t < 9) tile[t] = t; __syncthreads(); if (t < 9) out[i] = atomicExch(&tile[t], 3);",
    "local": "int own[8]; for (int k = 0; k < 8; k++) own[k] = t * k; out[i] = own[(t + n) % 8];",
    "local of some threads": "int own[8]; if (t > 9) { for (int k = 0; k < 8; k++) own[k] = t * k;\n"
    " out[i] = own[t % 8]; }",
    "in divergent branches": "if (t & 1) tile[t] = t; else tile[t] = -t; __syncthreads(); out[i] = tile[t ^ 1];",
}


@pytest.mark.parametrize("body", WRITTEN.values(), ids=WRITTEN.keys())
def test_read_of_written_memory(run: Run, body: str) -> None:
    assert check(run, KERNEL.format(body=body)).hazards == ()


def test_the_finding_names_memory_size_and_threads(run: Run) -> None:
    source = KERNEL.format(body="if (t < 60) tile[t] = t; __syncthreads();\n out[i] = tile[t]; // HERE")
    (hazard,) = uninitialised(check(run, source))
    assert hazard.what == "uninitialized __shared__ memory read of size 4 bytes"
    assert (hazard.lane, hazard.count) == (Lane((0, 0, 0), (60, 0, 0)), 8)


SUM = "__global__ void f(const int *a, int *b, int n) { for (int i = threadIdx.x; i < n; i += 32) b[i] += a[i]; }"


def launch(device: SimulatedDevice, *args: object, source: str = SUM, options: LaunchOptions = CHECKED) -> list[Hazard]:
    profile = device.compile(source).launch("f", (1,), (32,), args, options=options)  # type: ignore[arg-type]
    return uninitialised(profile)


def test_global_memory_counts_as_written_once_it_was_set(device: SimulatedDevice) -> None:
    a, b = device.array(np.arange(50, dtype=np.int32)), device.empty(50, np.int32)
    (hazard,) = launch(device, a, b, np.int32(50))
    assert hazard.what == "uninitialized __global__ memory read of size 4 bytes" and hazard.count == 32
    b.set(np.zeros(50, np.int32))
    assert launch(device, a, b, np.int32(50)) == []


@pytest.mark.parametrize(
    ("statement", "is_read"),
    [
        ("atomicExch(b + threadIdx.x, n);", False),
        ("a0 = atomicExch(b + threadIdx.x, n); b[32 + threadIdx.x] = a0;", True),
        ("atomicCAS(b + threadIdx.x, 0, n);", True),
        ("atomicMax(b + threadIdx.x, n);", True),
    ],
)
def test_an_exchange_with_an_unused_old_value_is_a_write(
    device: SimulatedDevice, statement: str, is_read: bool
) -> None:
    source = f"__global__ void f(const int *a, int *b, int n) {{ int a0 = a[0]; {statement} if (n == a0) b[0] = 7; }}"
    a, b = device.array(np.arange(50, dtype=np.int32)), device.empty(64, np.int32)
    assert bool(launch(device, a, b, np.int32(5), source=source)) == is_read


def test_memory_can_be_marked_as_unwritten_whatever_it_holds(device: SimulatedDevice) -> None:
    a, b = device.array(np.arange(50, dtype=np.int32)), device.array(np.zeros(50, np.int32))
    b.mark_unwritten()
    assert len(launch(device, a, b, np.int32(50))) == 1
    assert launch(device, a, b, np.int32(50)) == [], "the first launch has written it"


def test_the_next_launch_may_read_written_memory(device: SimulatedDevice) -> None:
    fill = "__global__ void f(int *b, int n) { for (int i = threadIdx.x; i < n; i += 32) b[i] = i; }"
    a, b = device.array(np.arange(50, dtype=np.int32)), device.empty(50, np.int32)
    assert launch(device, b, np.int32(49), source=fill) == []
    (hazard,) = launch(device, a, b, np.int32(50))
    assert (hazard.count, hazard.lane) == (1, Lane((0, 0, 0), (17, 0, 0)))


def test_a_launch_that_does_not_look_counts_as_writing_everything(device: SimulatedDevice) -> None:
    a, b = device.array(np.arange(50, dtype=np.int32)), device.empty(50, np.int32)
    assert launch(device, a, b, np.int32(3), options=LaunchOptions()) == []
    assert launch(device, a, b, np.int32(50)) == []


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_global_memory_is_looked_at_byte_by_byte(device: SimulatedDevice, size: int) -> None:
    kind = {1: "char", 2: "short", 4: "int", 8: "long long", 16: "int4"}[size]
    fill = "__global__ void f(char *b, int n) { for (int i = threadIdx.x; i < n; i += 32) b[i] = i; }"
    value = "b[at]" if size < 16 else "make_int4(b[at].x + 1, b[at].y + 1, b[at].z + 1, b[at].w + 1)"
    read = f"__global__ void f(const {kind} *b, {kind} *c, int at) {{ c[0] = {value}; }}"
    b, c = device.empty(64, np.uint8), device.empty(16, np.uint8)
    launch(device, b, np.int32(31), source=fill)
    last = 31 // size
    assert launch(device, b, c, np.int32(last - 1), source=read) == []
    (hazard,) = launch(device, b, c, np.int32(last), source=read)
    assert f"size {size} byte" in hazard.what


STRUCTS = {
    "between members": "struct P { char a; int b; };",
    "in one vector": "struct alignas(8) P { char a; int b; };",
    "before a double": "struct P { char a; double b; };",
    "behind the last member": "struct P { double b; int a; };",
    "of a member": "struct Q { double b; char d; }; struct P { Q q; char a; int b; };",
    "behind a char": "struct P { float b; char a; };",
}
COPY = """{struct}
__global__ void f(P *out, int n) {{
    __shared__ P tile[64];
    P own[4];
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) {{ own[k].a = k; {written} }}
    tile[t] = own[(t + n) % 4];
    __syncthreads();
    P mine = tile[t], other = tile[63 - t]; // HERE
    out[t] = mine.a > other.a ? mine : other;
    __syncthreads();
    out[t + 64] = out[63 - t];
}}
"""


def copies(device: SimulatedDevice, struct: str, written: str) -> LaunchProfile:
    source = COPY.format(struct=struct, written=written)
    return device.compile(source).launch("f", (1,), (64,), [device.empty(128 * 32, np.uint8), np.int32(5)], 0, CHECKED)


@pytest.mark.parametrize("struct", STRUCTS.values(), ids=STRUCTS.keys())
def test_a_struct_is_copied_with_its_padding(device: SimulatedDevice, struct: str) -> None:
    member = "own[k].q.b = n; own[k].q.d = 1;" if "Q" in struct else ""
    assert copies(device, struct, f"own[k].b = n; {member}").hazards == ()


@pytest.mark.parametrize("struct", STRUCTS.values(), ids=STRUCTS.keys())
def test_a_struct_of_which_nothing_was_written_is_more_than_padding(device: SimulatedDevice, struct: str) -> None:
    source = COPY.format(struct=struct, written="own[k].b = n;").replace("tile[t] =", "if (t != 5) tile[t] =")
    profile = device.compile(source).launch(
        "f", (1,), (64,), [device.empty(128 * 32, np.uint8), np.int32(5)], 0, CHECKED
    )
    assert marked(source) in {hazard.where for hazard in uninitialised(profile)}


def test_a_struct_is_copied_byte_by_byte(run: Run) -> None:
    body = "struct P { char a; int b; } *p = (P *)tile; if (t < 32) { p[t].a = t; p[t].b = n; }\n __syncthreads();"
    assert (
        check(
            run, KERNEL.format(body=f"{body} if (t < 32) memcpy((P *)out + 32 * blockIdx.x + t, p + 31 - t, 8);")
        ).hazards
        == ()
    )


def test_padding_that_is_computed_with(run: Run) -> None:
    source = KERNEL.format(
        body="char *c = (char *)tile; if (t < 32) { c[8 * t] = t; tile[2 * t + 1] = n; }\n __syncthreads();\n"
        " long long v = ((long long *)tile)[t % 32]; // HERE\n out[i] = v % 7;"
    )
    (hazard,) = uninitialised(check(run, source))
    assert hazard.where == marked(source)


POPPED = """__device__ __noinline__ bool pop(int *top, int &e) {
    int at = atomicAdd(top, -1);
    if (at >= 0) e = at;
    return at >= 0;
}
__global__ void f(int *top, int *out) {
    int v, w;
    bool found = pop(top, v); pop(top, w);
    out[threadIdx.x] = USE; // HERE
}
"""


PARTS = (
    "__shared__ {kind} part[64]; if (i < n) part[t] = t;\n __syncthreads();\n"
    " {kind} sum = 0; for (unsigned k = 0; k < 64; k++) {{\n {sum} }}\n out[i] = sum;"
)
SUM = "if (blockIdx.x * 64 + k {} n)\n sum += part[k];\n"
DISCARDED = {
    "integers": ("int", SUM, "<", "<="),
    "floats": ("float", SUM, "<", "<="),
    "otherwise": ("int", "sum ^= blockIdx.x * 64 + k {} n ? 3 : part[k];\n", ">=", ">"),
}


def selecting(body: str) -> str:
    """Return a kernel in which the compiler has made a selection of a branch."""
    source = KERNEL.format(body=body)
    assert "selp" in compile_ptx(source, "kernel.cu", "compute_90", {}, {})[0]
    return source


@pytest.mark.parametrize(("kind", "text", "right", "wrong"), DISCARDED.values(), ids=DISCARDED.keys())
def test_shared_memory_is_read_ahead_of_the_selection_that_discards_it(
    run: Run, kind: str, text: str, right: str, wrong: str
) -> None:
    """All threads load, as the compiler has removed the branch; only the values of some are used."""
    assert not uninitialised(check(run, selecting(PARTS.format(kind=kind, sum=text.format(right)))))
    assert uninitialised(check(run, selecting(PARTS.format(kind=kind, sum=text.format(wrong)))))


def test_a_long_chain_is_selected(run: Run) -> None:
    chain = "int sum = tile[t];" + "sum = (sum ^ n) * 3;" * 1500
    select = "{ .reg .pred p; setp.lt.s32 p, %2, %3; selp.b32 %0, %1, 0, p; }"
    use = f'asm("{select}" : "=r"(out[i]) : "r"(sum), "r"(t), "r"(n));'
    assert not uninitialised(check(run, selecting(f"if (t < n) tile[t] = t; __syncthreads();\n{chain}\n{use}")))
    assert uninitialised(check(run, selecting(f"if (t > 0) tile[t] = t; __syncthreads();\n{chain}\n{use}")))


@pytest.mark.parametrize(("reader", "races"), [("==", []), (">=", ["race"])])
def test_a_discarded_read_does_not_race(run: Run, reader: str, races: list[str]) -> None:
    read = f"tile[t] = t; __syncthreads();\n int v = n;\n if (t {reader} n + 35) v += tile[3];"
    source = selecting(f"{read}\n out[i] = v;\n if (t == 40) tile[3] = v;")
    assert [hazard.kind for hazard in check(run, source).hazards] == races


def test_a_local_variable_is_read_ahead_of_the_selection_that_discards_it(run: Run) -> None:
    top, out = np.array([9], np.int32), np.zeros(32, np.int32)
    assert run(POPPED.replace("USE", "found ? v : -1"), top, out, options=CHECKED).hazards == ()
    for use in ("found ? v : w", "v", "found ? v + 1 : v"):
        profile = run(POPPED.replace("USE", use), top, out, options=CHECKED)
        assert [hazard.where for hazard in uninitialised(profile)] == [marked(POPPED)], use


MEMBERS = """struct alignas(16) P {{ int a, b, c, d; }};
__global__ void f(P *out, P *kept, int n) {{
    __shared__ P tile[64], more[64];
    P own[4];
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) {{ own[k].a = k; own[k].b = t; own[k].c = n; {set} }}
    {body}
}}
"""
COPIES = {
    "shared memory": "tile[t] = own[(t + n) % 4]; __syncthreads(); kept[t].a = tile[63 - t].{member};",
    "shared memory twice": "tile[t] = own[(t + n) % 4]; __syncthreads(); more[t] = tile[63 - t]; __syncthreads();"
    " kept[t].a = more[t ^ 1].{member};",
    "global memory": "out[t] = own[(t + n) % 4]; __syncthreads(); kept[t].a = out[63 - t].{member};",
    "memory that was written": "kept[t] = own[(t + n) % 4]; __syncthreads(); out[t].a = kept[63 - t].{member};",
    "a thread's own": "P copy[4]; for (int k = 0; k < 4; k++) copy[(k + n) & 3] = own[(t + k) & 3];"
    " out[t].a = copy[(t * n) & 3].{member};",
    "a loop": "for (int k = 0; k < n; k++) {{ tile[t] = own[(t + k) & 3]; __syncthreads();"
    " kept[t].b += tile[63 - t].{member}; __syncthreads(); }}",
}  # fmt: skip


def copied(device: SimulatedDevice, body: str, member: str, set: str = "") -> list[Hazard]:
    source = MEMBERS.format(body=body.format(member=member), set=set)
    kept = device.array(np.zeros(64 * 4, np.int32))
    args = [device.empty(64 * 4, np.int32), kept, np.int32(5)]
    return uninitialised(device.compile(source).launch("f", (1,), (64,), args, 0, CHECKED))


@pytest.mark.parametrize("body", COPIES.values(), ids=COPIES.keys())
def test_a_member_that_was_never_set_is_unwritten_in_the_copy_too(device: SimulatedDevice, body: str) -> None:
    hazards = copied(device, body, "d")
    assert hazards and {hazard.what.rpartition("size ")[2] for hazard in hazards} == {"4 bytes"}
    assert copied(device, body, "b") == copied(device, body, "d", "own[k].d = 1;") == []


def test_a_copy_that_is_overwritten_by_a_whole_one_is_written(device: SimulatedDevice) -> None:
    body = (
        "for (int k = 0; k < 2; k++) {{ if (k) own[0].d = own[1].d = own[2].d = own[3].d = n;"
        " tile[t] = own[(t + n) % 4]; __syncthreads(); if (k) kept[t].a = tile[63 - t].{member}; __syncthreads(); }}"
    )
    assert copied(device, body, "d") == []
