"""The table of truth kernels: what is launched with which inputs, on a real GPU when recording and simulated in tests.

Each launch runs one kernel of `kernels/` with arguments (inputs..., state if any, out if any, n). `out` has one row
for each `PUT(name, ...)` of the kernel, in order, so that a difference can be named.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from truth_values import Array, arguments, double_arguments, fractions, half_words, noise, operands

KERNELS = Path(__file__).parent / "kernels"
ROW = re.compile(r"\b(?:PUT|FETCH|EACH|FROM)\((\w+),")

ELEMENTS = {
    "signed char": "i1",
    "unsigned char": "u1",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "unsigned": "u4",
    "long long": "i8",
    "unsigned long long": "u8",
}
COMPARED = ("s16", "u16", "b16", "s32", "u32", "b32", "s64", "u64", "b64", "f32", "f64")


@dataclass(frozen=True)
class TruthLaunch:
    """One launch of one kernel.

    Attributes:
        name: the test's id and the key in the record.
        source, kernel: file stem under `kernels/` and function.
        inputs: read-only arrays.
        out: dtype of `out`, or None where the kernel has none.
        defines: macros for the compiler.
        grid, block, shared_bytes: the launch.
        state: start contents of an array that the kernel reads and writes, or None.
        columns: elements of `out` that each thread writes, where it has no rows.
        sorted_rows: whether the order within a row of `out` is open (old values of atomics).
        prints: whether what it prints is part of the record.
        hazard: whether the simulated GPU must warn of a barrier, although the launch is well defined on this GPU.
    """

    name: str
    source: str
    kernel: str
    inputs: tuple[Array, ...]
    out: npt.DTypeLike | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    defines: Mapping[str, str] = field(default_factory=dict)
    shared_bytes: int = 0
    state: Array | None = None
    columns: int | None = None
    sorted_rows: bool = False
    prints: bool = False
    hazard: bool = False

    @property
    def text(self) -> str:
        """The source file's text."""
        return (KERNELS / f"{self.source}.cu").read_text()

    @property
    def threads(self) -> int:
        """Threads of the launch, the kernel's `n`."""
        return int(np.prod(self.grid)) * int(np.prod(self.block))

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the kernel's results, in order."""
        body = self.text.split(f"__global__ void {self.kernel}(", 1)[1].split("__global__", 1)[0]
        return tuple(ROW.findall("\n".join(line for line in body.splitlines() if not line.startswith("#"))))

    @property
    def out_shape(self) -> tuple[int, int]:
        """The extents of `out`."""
        return (self.threads, self.columns) if self.columns else (len(self.rows), self.threads)

    @property
    def digest(self) -> str:
        """Tells whether a record belongs to this source (comments aside) and these inputs."""
        code = re.sub(r"//.*", "", self.text)
        what = [code, self.kernel, json.dumps(dict(self.defines)), str((self.grid, self.block, self.shared_bytes))]
        arrays = [array.tobytes() for array in (*self.inputs, *([] if self.state is None else [self.state]))]
        return hashlib.sha256(b"\0".join([*(text.encode() for text in what), *arrays])).hexdigest()[:16]


def _flat(
    source: str, kernel: str, inputs: tuple[Array, ...], out: npt.DTypeLike, suffix: str = "", **more: Any
) -> TruthLaunch:
    """Return a launch with one thread for each element of the first input, in blocks of 128 where that fits."""
    count = len(inputs[0])
    block = more.pop("block", 128 if count % 128 == 0 else count)
    name = kernel + (f"-{suffix}" if suffix else "")
    return TruthLaunch(name, source, kernel, inputs, out, (count // block,), (block,), **more)


def _integers() -> list[TruthLaunch]:
    launches = []
    for width in (16, 32, 64):
        a, b, c = operands(f"u{width // 8}", 768, 3)
        for sign in "su":
            defines = {"WIDTH": str(width), "SIGN": sign}
            kernels = {"arithmetic": True, "sign": sign == "s", "bits": width >= 32, "widening": width <= 32}
            for kernel in (name for name, exists in kernels.items() if exists):
                inputs = (a,) if kernel == "sign" else (a, b, c)
                out = f"u{width // 4 if kernel == 'widening' else width // 8}"
                launches.append(_flat("integer", kernel, inputs, out, f"{sign}{width}", defines=defines))
    words = operands("u4", 768, 3)
    launches += [_flat("integer32", kernel, words, "u4") for kernel in ("only_32", "carries")]
    for element, dtype in ELEMENTS.items():
        values, suffix = operands(dtype, 768), element.replace(" ", "_")
        launches.append(_flat("cplusplus_integer", "operators", values, dtype, suffix, defines={"ELEMENT": element}))
    return launches


def _floats() -> list[TruthLaunch]:
    launches = []
    for width in (32, 64):
        dtype, defines = f"f{width // 8}", {"WIDTH": str(width)}
        values = operands(dtype, 1280, 3)
        for kernel in ("ieee", "approximations", "single") if width == 32 else ("ieee", "coarse"):
            launches.append(_flat("float", kernel, values, dtype, f"f{width}", defines=defines))
        launches.append(_flat("float", "classes", values, "u1", f"f{width}", defines=defines))
    angles = ((fractions(768, 3) - 0.5) * 4 * np.pi).astype("f4")
    angles[:6] = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40)
    return [*launches, _flat("float", "approximate_waves", (angles,), "f4", defines={"WIDTH": "32"})]


def _comparisons() -> list[TruthLaunch]:
    launches = []
    for compared in COMPARED:
        kind, width = compared[0], int(compared[1:])
        dtype = f"{'f' if kind == 'f' else 'u'}{width // 8}"
        values, defines = operands(dtype, 1280), {"WIDTH": str(width), "KIND": kind}
        outs: dict[str, npt.DTypeLike] = {"setp": "u1", "selections": dtype}
        if kind != "b":
            outs |= {"setp_ordered": "u1", "set_values": "u4"}
        outs |= {"setp_unsigned": "u1"} if kind == "u" else {"setp_unordered": "u1"} if kind == "f" else {}
        if (kind, width) == ("f", 32):
            outs["setp_flushed"] = "u1"
        launches += [_flat("compare", kernel, values, out, compared, defines=defines) for kernel, out in outs.items()]
    return [*launches, _flat("predicates", "predicates", operands("u4", 768), "u1")]


def _conversions() -> list[TruthLaunch]:
    singles, doubles, longs = (operands(dtype, 1280, 1)[0] for dtype in ("f4", "f8", "u8"))
    with np.errstate(all="ignore"):
        singles[:200] = ((fractions(200, 9) - 0.5) * 2.0 ** (np.arange(200) % 70)).astype("f4")
        singles[200:260] = np.arange(-30, 30) / 2
        singles[260:293], doubles = operands("f4", 1280)[1][:33], operands("f8", 1280)[1]
    doubles[200:400] = (fractions(200, 8) - 0.5) * 2.0 ** (np.arange(200) % 70)
    doubles[400:460] = np.arange(-30, 30) / 2
    doubles[460:660] = (1 + fractions(200, 7)) * 2.0 ** (np.arange(200) % 32 - 152)  # float32's denormals
    halves = np.arange(0, 1 << 16, 37, dtype="u2")[:1664]
    to_half = np.concatenate([singles, ((fractions(384, 6) - 0.5) * 2.0 ** (np.arange(384) % 44 - 26)).astype("f4")])
    return [
        _flat("convert", "float_to_integer", (singles,), "i8", "f32", defines={"WIDTH": "32"}),
        _flat("convert", "float_to_integer", (doubles,), "i8", "f64", defines={"WIDTH": "64"}),
        *(
            _flat("convert", kernel, (values,), out, defines={"WIDTH": "32"})
            for kernel, values, out in (
                ("float32_to_float32", singles, "f4"),
                ("to_float64", doubles, "f8"),
                ("float64_to_float32", doubles, "f4"),
                ("integer_to_float32", longs, "f4"),
                ("integer_to_float64", longs, "f8"),
                ("integer_to_integer", longs, "i8"),
                ("casts", doubles, "i8"),
            )
        ),
        _flat("half", "to_half", (to_half,), "u2"),
        _flat("half", "from_half", (halves,), "f4"),
        _flat("half", "half_arithmetic", (halves, np.roll(halves[::-1], 5)), "u2"),
    ]


def _formats() -> list[TruthLaunch]:
    patterns = half_words(1280)
    singles = tuple(values.view("u4") for values in operands("f4", 1280, 3))
    mixed = tuple(np.where(np.arange(1280) % 2, x, y) for x, y in zip(patterns, singles, strict=True))
    return [
        _flat("formats", "halves", patterns, "u4"),
        _flat("formats", "half_conversions", mixed, "u4"),
        _flat("formats", "flushed", singles, "f4"),
        _flat("formats", "packed", mixed, "u4"),
    ]


def _memory_and_control() -> list[TruthLaunch]:
    words = noise(512, 11).astype("u4")
    words[:64] = np.arange(64)
    records = noise(8 * 128, 12).view("u1")
    return [
        _bytes("global_loads", records),
        _bytes("structures", records),
        _flat("memory", "global_stores", (noise(128, 13),), "u1", columns=128),
        _flat("memory", "constants_and_variables", (words,), "u8"),
        _flat("memory", "local_memory", (words,), "u8"),
        _flat("memory", "shared_memory", (words,), "u8", block=64, shared_bytes=64 * 13),
        *(_flat("control", kernel, (words,), "u4") for kernel in ("branches", "early_exit", "calls")),
        *(_flat("control", kernel, (words,), "u4") for kernel in ("indirect_calls", "waits")),
    ]


def _bytes(kernel: str, records: Array) -> TruthLaunch:
    """Return a launch of a kernel that reads 64 bytes a thread."""
    return TruthLaunch(kernel, "memory", kernel, (records,), "u8", (len(records) // 64 // 64,), (64,))


def _warps_and_blocks() -> list[TruthLaunch]:
    words = noise(512, 21).astype("u4")
    launches = [_flat("warp", kernel, (words,), "u4") for kernel in ("shuffles", "votes", "reductions")]
    for kernel in ("barriers", "named_barriers", "warp_barriers", "leavers"):
        launches.append(_flat("block", kernel, (words,), "u4", block=256, hazard=kernel == "leavers"))
    return [*launches, _flat("cooperative", "groups", (words,), "u4")]


def _atomics() -> list[TruthLaunch]:
    words = noise(256, 31).astype("u4")
    launches = []
    for space, number in (("global", "1"), ("shared", "2")):
        more: dict[str, Any] = {"block": 64, "defines": {"SPACE": number}}
        own = _flat("atomics", "own_word", (words,), "u8", space, **more)
        own_state = noise(len(own.rows) * 256, 32)
        own_state[::5] = 0
        launches.append(_flat("atomics", "own_word", (words,), "u8", space, state=own_state, **more))
        same_state = np.zeros(64 + 16, "u8")
        same_state.view("u4")[9] = same_state.view("u4")[11] = 0xFFFFFFFF
        inputs = words if space == "global" else words[:64]
        more |= {"state": same_state, "sorted_rows": True}
        launches.append(_flat("atomics", "same_word", (inputs,), "u8", space, **more))
    return launches


def _special_and_printing() -> list[TruthLaunch]:
    none: tuple[Array, ...] = ()
    return [
        TruthLaunch("indices", "special", "indices", none, "u4", (3, 2, 2), (5, 4, 3), shared_bytes=400),
        TruthLaunch("indices-flat", "special", "indices", none, "u4", (4,), (96,)),
        TruthLaunch("prints", "printing", "prints", (np.array([7, 1, 11], "i4"),), None, (1,), (32,), prints=True),
    ]


def _math() -> list[TruthLaunch]:
    singles = arguments(768, 41), arguments(768, 47)
    doubles = tuple(double_arguments())
    narrow = ((fractions(768, 5) - 0.5) * 2 * np.pi).astype("f4"), (10 ** (fractions(768, 4) * 4 - 2)).astype("f4")
    return [
        _flat("math_single", "single_exact", singles, "f4"),
        _flat("math_single", "single_library", singles, "f4"),
        _flat("math_single", "single_intrinsics", narrow, "f4"),
        _flat("math_double", "double_exact", doubles, "f8"),
        _flat("math_double", "double_library", doubles, "f8"),
    ]


LAUNCHES = (
    *_integers(),
    *_floats(),
    *_comparisons(),
    *_conversions(),
    *_formats(),
    *_memory_and_control(),
    *_warps_and_blocks(),
    *_atomics(),
    *_special_and_printing(),
    *_math(),
)
