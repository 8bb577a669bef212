"""The words of a finding: what a device's error means to a student, and a hint for every code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pytest_gpulab.devices.compiler.limits import NOT_ENDED
from pytest_gpulab.devices.hazards import NO_DYNAMIC_SHARED
from pytest_gpulab.devices.protocol import (
    CannotSimulate,
    CompileError,
    DeviceError,
    Hazard,
    KernelFault,
    LaunchError,
    OutOfMemory,
)

from .grade import CheckResult, Finding, Verdict

MAX_EVIDENCE_LINES = 60

HINTS: Mapping[str, str] = {
    "compile-error": "Start with the first message: those after it often follow from it.",
    "missing-kernel": "A kernel is found by its name: `__global__ void name(...)`, spelled as in the skeleton.",
    "wrong-signature": "Compare names, order and types with the skeleton's.",
    "tunable-missing": "Write GPULAB_TUNABLE(NAME, value) at file scope, after #include <gpulab.cuh>.",
    "tunable-range": "The grader launches your kernel with this number, so only the listed values work.",
    "wrong-result": "Compare cases that pass with cases that fail: do sizes, input patterns or types differ?",
    "not-written": "Is there a thread for every element? Check the block count, the bounds check and the last block.",
    "input-changed": "Write to the output only; keep values that change in registers or in shared memory.",
    "not-repeatable": "Is there a __syncthreads() between the thread that writes and the one that reads? Is every "
    "element of shared memory written before it is read?",
    "out-of-bounds": "Compare the index with the length, above all in the last block and for lengths that no block "
    "size divides.",
    "misaligned": "An access of k bytes needs an address that k divides: a float4 starts at every fourth float only.",
    "barrier": "Every thread of a block must come to the same __syncthreads(): no return before it, no branch or loop "
    "around it that depends on the thread.",
    "deadlock": "Some threads wait for others that never come: look for a barrier that a branch or a return skips, "
    "and for a loop that waits for a value nobody writes.",
    "endless-loop": "Does the loop's variable change in every pass, and towards the end? An unsigned number never "
    "drops below 0.",
    "time-limit": "The loop may be finite but very long. How many rounds does a thread "
    "need, and how many does it make?",
    "stack-overflow": "Does every call come closer to the case that makes no further call? If so, the recursion is too "
    "deep for a GPU: halve the range in each call, or use a loop.",
    "assert": "An assert() in the kernel was false.",
    "trap": "The compiler, too, may put a __trap() where a line can only do what C++ does not allow, such as using a "
    "null pointer or writing to `__constant__` memory: look at that line.",
    "texture": "Fetches need the handle of a texture of the same kind; a pointer to an array is none.",
    "device-fault": "The GPU stopped the kernel without saying where: check indices and pointers first.",
    "launch-error": "Look at the block size, the shared memory and the registers that a block asks for.",
    "crash": "Look for what asks for too much: of memory, of templates, of output.",
    "race": "Two threads use the same element with no __syncthreads() between: one of them must wait.",
    "uninitialised": "An element of shared memory is read before any thread wrote it.",
    "not-started": "Write the kernel, then delete its GPULAB_TODO line.",
    "empty-source": "Start from the exercise's skeleton.",
    "not-utf8": "Save the file as plain text in UTF-8.",
    "cannot-simulate": "As far as can be told nothing is wrong with your kernel: it needs a real GPU to be graded.",
    "no-memory": "As far as can be told nothing is wrong with your kernel: this machine has too little memory for it.",
    "not-timed": "Nothing is wrong with your kernel; its speed is left out of the grade.",
    "concept": "The exercise's README says what it is about.",
    "not-graded": "As far as can be told nothing is wrong with your kernel: it has to be graded again.",
    "not-checked": "No race was found in the rest. Put fewer accesses between two barriers, or ask your instructor.",
    "not-counted": "Nothing is wrong with your kernel; this check is left out of the grade.",
    "inconclusive": "Noise decides here as much as your kernel: make it a little faster to be on the safe side.",
    "impossible-time": "Is every element read and written at this size, in every launch?",
    "reference-mismatch": "Nothing is wrong with your kernel: please tell your instructor.",
}

_TOO_SLOW = (
    f"{HINTS['endless-loop']} If every loop comes to its end, this may only be too slow: a very long loop, or a slow "
    "machine."
)

IN_ONE_LINE = "in the same line"

NO_VALUE = "A variable holds garbage until it is set: give it a value where it is declared."
UNSET = (
    "No race and no read of unwritten memory was seen. Does every variable get a value before it is read? Does the "
    "order of atomics decide anything?"
)

_CLOSER_HINTS: tuple[tuple[str, str, str], ...] = (
    ("out-of-bounds", re.escape(NO_DYNAMIC_SHARED), "The exercise chooses the launch. Declare a fixed size, such as "
     "`__shared__ float tile[BLOCK_SIZE];`, without `extern`."),
    ("out-of-bounds", r"\[-\d+\]", "The index is below 0: what does the first thread or the first block compute? An "
     "unsigned number never is: 0 - 1 wraps around."),
    ("out-of-bounds", "__local__", "An array without `__shared__` is each thread's own. Compare the index with its "
     "length."),
    ("out-of-bounds", "__shared__", "Compare the index with the array's length, for the last thread of a block and for "
     "the largest step of a loop."),
    ("barrier", "mask", "The mask of a _sync operation names the lanes that take part: exactly those that reach it."),
    ("barrier", "tensor-core", "All 32 threads of a warp call it together: no branch around it that divides the warp, "
     "no earlier return, and a block of whole warps."),
    ("barrier", "(?i)^grid synch", "Blocks of an ordinary launch cannot wait for each other. The exercise's next launch"
     " begins when all of them have ended."),
    ("barrier", "a shuffle from a lane", "Which lanes take part? A tree of k lanes begins with lanes k / 2 apart; a "
     "check after the shuffle drops what absent lanes give."),
    ("barrier", r"barrier \d+ is for|barrier numbers|thread counts", "Every warp that must meet gives the same barrier "
     "number and the same thread count, 32 for each warp."),
    ("race", "no fence between", "Call __threadfence() after the value is written and before the flag is."),
    ("race", "by different blocks", "Blocks run in no order: within one launch a block must not touch what another one "
     "writes, except by atomics."),
    ("race", rf"\(WAW\).*in one (?:warp|block).*{IN_ONE_LINE}", "Several threads write the same element in one line: "
     "does each need one of its own, should only one of them write, or is an atomic meant?"),
    ("race", rf"\(WAR\).*in one warp.*{IN_ONE_LINE}", "One line reads an element that another lane writes in the same "
     "line: read into a register, call __syncwarp(), then write."),
    ("race", rf"\(WAR\).*in one block.*{IN_ONE_LINE}", "One line reads an element that another thread writes in the "
     "same line: read into a register, call __syncthreads(), then write."),
    ("race", "in one warp", "The threads of a warp need not run in step: where one reads what another one writes, "
     "__syncwarp() must stand between."),
    ("uninitialised", r"__global__.*` is `\w+` of launch", "The earlier launch leaves this element out. Which of its "
     "threads should write it?"),
    ("uninitialised", "__global__", "The array holds garbage before the launch: write an element before you read it or "
     "add to it."),
    ("uninitialised", "__local__", "An array without `__shared__` is each thread's own: no thread sees what another "
     "one wrote to it."),
    ("endless-loop", "had not ended after", _TOO_SLOW),
    ("endless-loop", "ran too long", _TOO_SLOW),
)  # fmt: skip
"""Code, a pattern in the sentence, and the hint that then fits better than the code's usual one."""

# all but tab and line feed; and signs that turn text round, or that nobody sees
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def finding(code: str, what: str, where: str = "", evidence: Iterable[str] = (), hint: str | None = None) -> Finding:
    """Return a finding, without control characters, with its evidence capped and the hint that fits it best."""
    lines = tuple(plain(line) for line in evidence)
    if len(lines) > MAX_EVIDENCE_LINES:
        lines = (*lines[:MAX_EVIDENCE_LINES], f"... and {len(lines) - MAX_EVIDENCE_LINES} more lines")
    return Finding(
        code, plain(what), plain(where), lines, hint_of(code, " ".join((what, *lines))) if hint is None else hint
    )


def hint_for(hazard: Hazard) -> str:
    """Return the hint that fits a hazard: its kind, its memory space and, of a race, both accesses."""
    is_one_line = hazard.other is not None and hazard.where == hazard.other.where
    return hint_of(hazard.kind, f"{hazard} {IN_ONE_LINE if is_one_line else ''}")


def hint_of(code: str, told: str) -> str:
    """Return the hint that fits a code and the words that are told of it."""
    closer = (hint for of, pattern, hint in _CLOSER_HINTS if of == code and re.search(pattern, told))
    return next(closer, HINTS.get(code, ""))


def plain(text: str) -> str:
    """Return the text without control characters, which could clear, colour or reorder a terminal's text."""
    return _CONTROL.sub("?", text)


def because_of(check: str, cause: Finding, hidden: bool = False) -> Finding:
    """Return the one reason that a check gives when another one, hidden or not, which it builds on, did not pass."""
    what = f"Not graded, because `{check}` did not pass: {cause.what}"
    return Finding(cause.code, what, cause.where, because=check, hidden=hidden)


_NO_DEVICE = "device-fault"
NO_MEMORY = "no-memory"


def of_error(error: DeviceError) -> tuple[Verdict, Finding]:
    """Return what a device's error means: the student's fault (`failed`) or the machine's (`not gradable`)."""
    if isinstance(error, CompileError):
        return "failed", _of_diagnostics(error.diagnostics)
    if isinstance(error, KernelFault):
        return "failed", finding(error.code, _sentence(error.what), str(error.where or ""), evidence_of(error))
    if isinstance(error, LaunchError):
        return "failed", finding("launch-error", _sentence(f"the launch was refused: {error}"))
    if isinstance(error, CannotSimulate):
        what = f"the simulated GPU does not know {error.what}"
        return "not gradable", finding("cannot-simulate", _sentence(what), str(error.where or ""))
    if isinstance(error, OutOfMemory):
        return "not gradable", finding(NO_MEMORY, _sentence(str(error)))
    return "not gradable", finding(_NO_DEVICE, f"The device failed: {error}", hint=HINTS["not-graded"])


def evidence_of(seen: KernelFault | Hazard) -> tuple[str, ...]:
    """Return which thread was seen first, and in which of several launches."""
    first = (f"first by {seen.lane}",) if seen.lane else ()
    return (*first, f"in {seen.launch}") if seen.launch else first


def lacks_device(result: CheckResult) -> bool:
    """Say whether a submission has nowhere to run: then what follows would be graded by chance, if at all."""
    return result.kind == "compile" and result.verdict == "not gradable" and result.findings[0].code == _NO_DEVICE


_ERROR_LINE = re.compile(
    r"^(?P<file>[^\s(][^(\n]*?)(?:\((?P<line>\d+)\))?: (?:[a-z]+ )?error(?: #[\w-]+)?: (?P<text>.*)$", re.M
)


# NVRTC's advice is an option that a student cannot give.
_HOST_CODE = re.compile(r"is considered a host (function|variable)")
_HOST_CODE_HINT = (
    "A submission holds device code only: leave out main() and what belongs to it, and mark functions that kernels "
    "call with __device__, variables at file scope with __device__ or __constant__."
)


_NOT_ENDED = re.compile(f"^{NOT_ENDED}\\b", re.M)
COMPILER_HINT = "The compiler did not come to an end: look for templates and macros that multiply."


def _of_diagnostics(diagnostics: str) -> Finding:
    """Name the first error of messages in the form `file.cu(12): error: text` that nvcc and NVRTC share."""
    hint = COMPILER_HINT if _NOT_ENDED.search(diagnostics) else None
    first = _ERROR_LINE.search(diagnostics)
    if first is None:
        return finding("compile-error", "The file does not compile.", "", diagnostics.splitlines(), hint)
    what = f"The file does not compile: {first['text']}"
    hint = _HOST_CODE_HINT if _HOST_CODE.search(first["text"]) else hint
    where = f"{first['file']}:{first['line']}" if first["line"] else ""
    return finding("compile-error", what, where, diagnostics.splitlines(), hint)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
