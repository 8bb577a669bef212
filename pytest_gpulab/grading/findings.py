"""Findings: a hint per code, the finding for a device's error, and one finding for several problems of a file.

Also numbers and lists as words, for all messages.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pytest_gpulab.devices.compiler.sandbox import NOT_ENDED
from pytest_gpulab.devices.errors import NO_DYNAMIC_SHARED
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

MAX_EVIDENCE_LINES = 60  # a compiler may print hundreds
OUT_OF_TIME = "out-of-time"
"""The code of a finding on checks for which the time limit of the whole grading left no time."""

HINTS: Mapping[str, str] = {
    "compile-error": "Start with the first message: later ones often follow from it.",
    "missing-kernel": "The grader finds a kernel by its name: `__global__ void name(...)`, spelled as in the skeleton.",
    "wrong-signature": "Compare names, order and types with the skeleton's.",
    "tunable-missing": "Write GPULAB_TUNABLE(NAME, value) at file scope, after #include <gpulab.cuh>.",
    "tunable-range": "The grader launches your kernel with this number, so only the listed values work.",
    "wrong-result": "Compare cases that pass with cases that fail: do sizes, input patterns or types differ?",
    "not-written": "Is there a thread for every element? Check the block count, the bounds check and the last block.",
    "input-changed": "Write to the output only; keep intermediate values in registers or in shared memory.",
    "not-repeatable": "Is there a __syncthreads() between the thread that writes and the one that reads? Is every "
    "element of shared memory written before it is read?",
    "out-of-bounds": "Compare the index with the length, above all in the last block and for lengths that are not a "
    "multiple of the block size.",
    "misaligned": "The address of a k-byte access must be a multiple of k: a float4 starts at every fourth float only.",
    "barrier": "Every thread of a block must reach the same __syncthreads(): no return before it, no branch or loop "
    "around it that depends on the thread.",
    "deadlock": "Some threads wait for others that never arrive: look for a barrier that a branch or a return skips, "
    "and for a loop that waits for a value that no thread writes.",
    "endless-loop": "Does the loop's variable change in every iteration, and towards the end? An unsigned number never "
    "drops below 0.",
    "block-order": "Take the block's number from an atomicAdd() on a counter instead of blockIdx. Then wait only for "
    "lower numbers: these blocks have started.",
    "time-limit": "The loop may be finite but very long. How many iterations does a thread "
    "need, and how many does it execute?",
    "stack-overflow": "Does every call get closer to the case that makes no further call? If so, the recursion is too "
    "deep for a GPU: halve the range in each call, or use a loop.",
    "assert": "An assert() in the kernel was false.",
    "trap": "The compiler also inserts a __trap() for code that C++ does not allow, such as the use of a null pointer "
    "or of one that was never set, or a write to `__constant__` memory: look at that line.",
    "breakpoint": "Without a debugger, a breakpoint stops the kernel: delete it.",
    "texture": "A fetch needs the handle of a texture of the same kind, not a pointer to an array.",
    "device-fault": "The GPU stopped the kernel without a location: check indices and pointers first.",
    "launch-error": "Check the block size, the shared memory and the registers that a block requires.",
    "crash": "Look for code that needs too much memory, too many templates or too much output.",
    "race": "Two threads use the same element with no __syncthreads() between: one of them must wait.",
    "uninitialised": "No thread has written this element of shared memory before. Which one should, and when?",
    "not-started": "Write the kernel, then delete its GPULAB_TODO line.",
    "empty-source": "Start from the exercise's skeleton.",
    "not-utf8": "Save the file as plain text in UTF-8.",
    "too-large": "A kernel has a few pages: hand in the source only, without data or output.",
    "cannot-simulate": "No error was found in your kernel: it needs a real GPU to be graded.",
    "no-memory": "No error was found in your kernel: this machine has too little memory for it.",
    "not-timed": "Your kernel is not at fault; its speed does not count in the grade.",
    "concept": "The exercise's README explains the concept.",
    "not-graded": "No error was found in your kernel: it needs to be graded again.",
    "not-checked": "The rest has no race. Put fewer accesses between two barriers, or ask your instructor.",
    "not-compared": "How often is each element read? Do the work of all threads and the size grow alike?",
    "not-counted": "Your kernel is not at fault; this check does not count in the grade.",
    OUT_OF_TIME: "A check without a result earns no points. Make slow kernels faster, then hand in again.",
    "inconclusive": "The noise is as large as the margin. A slightly faster kernel passes for certain.",
    "impossible-time": "Is every element read and written at this size, in every launch?",
    "reference-mismatch": "Your kernel is not at fault: please tell your instructor.",
}

_TOO_SLOW = (
    f"{HINTS['endless-loop']} If every loop ends, this may only be too slow: a very long loop, or a slow machine."
)

_STEPS_OVER = (
    "How many iterations should a thread execute? If the loop's variable begins beyond its bound or steps over it, "
    "`!=` stays true until the number wraps around."
)

IN_ONE_LINE = "in the same line"

NO_VALUE = "A variable holds garbage until it is set: initialise it where it is declared."
UNSET = (
    "No race and no read of unwritten memory was found. Does every variable get a value before it is read? Does a "
    "result depend on the order of atomics?"
)

_CLOSER_HINTS: tuple[tuple[str, str, str], ...] = (
    ("launch-error", "extents of at least 1", "Round the number of blocks up, so that a few elements have one, and "
     "launch nothing for no elements."),
    ("out-of-bounds", re.escape(NO_DYNAMIC_SHARED), "The exercise chooses the launch. Declare a fixed size, such as "
     "`__shared__ float tile[BLOCK_SIZE];`, without `extern`."),
    ("out-of-bounds", "is a host pointer", "A kernel can use memory of cudaMalloc, cudaMallocManaged and "
     "cudaMallocHost only. Copy the host's data with cudaMemcpy and pass the device's pointer."),
    ("out-of-bounds", "has freed", "The kernel runs after its memory was freed: free it when no launch needs it."),
    ("out-of-bounds", "the heap was full", "All threads share a heap of 8 MiB: free each block, compare each result of "
     "malloc() with nullptr, or use `__shared__` memory."),
    ("out-of-bounds", "is a null pointer", "Was the pointer set? Was the memory allocated before the launch, without "
     "an error?"),
    ("out-of-bounds", r"\[-128\].* thread (?:128|384|640|896)\b|\[-32768\]", "The index continues at its lowest "
     "number: a `signed char` ends at 127, a `short` at 32767. What type has each part of the index?"),
    ("out-of-bounds", r"\[-\d+\]", "The index is below 0: what does the first thread or the first block compute? An "
     "unsigned number is never negative: 0 - 1 wraps around. A `char` from 128 on is negative."),
    ("out-of-bounds", r"__global__.*\[(\d+)\].*block [1-9]\d* thread \1\b", "The index is the thread's number in its "
     "block, which is the same in each block. Which element belongs to this block, and which to this thread?"),
    ("out-of-bounds", "__local__", "An array without `__shared__` is private to each thread. Compare the index with "
     "its length."),
    ("out-of-bounds", "__shared__", "Compare the index with the array's length, for the last thread of a block and for "
     "the largest step of a loop."),
    ("barrier", "a block has the barriers", "A barrier's number is an operand of `bar.sync`; __syncthreads() is number "
     "0."),
    ("barrier", "(?i)divergent threads in warp: not all threads that the mask", "All lanes that the mask names must "
     "call the operation together. Is there a condition, a loop or a return that only some lanes of a warp take?"),
    ("barrier", "mask", "The mask of a _sync operation must name exactly the lanes that reach it."),
    ("barrier", "tensor-core", "All 32 threads of a warp must call it together: no divergent branch around it, no "
     "earlier return, and a block size that is a multiple of 32."),
    ("barrier", "(?i)^grid synch", "Blocks of an ordinary launch cannot wait for each other. The exercise's next launch"
     " begins when all of them have ended."),
    ("barrier", "a shuffle from a lane", "Which lanes take part? A tree of k lanes begins with lanes k / 2 apart; a "
     "check after the shuffle drops the values of inactive lanes."),
    ("barrier", r"barrier \d+ expects|barrier numbers|thread counts", "All warps of a barrier must use the same "
     "barrier number and the same thread count, 32 per warp."),
    ("race", "no fence between", "Call __threadfence() after the write of the value and before the write of the flag."),
    ("race", "the asynchronous copy", "An asynchronous copy reads and writes at any time until its thread waits for "
     "it. Wait, then call __syncthreads(), then use the elements."),
    ("race", "atomic within one block only", "A function such as atomicAdd_block(), or thread_scope_block, is atomic "
     "for the threads of one block: use atomicAdd(), or thread_scope_device."),
    ("race", rf"\(WAW\).*by different blocks.*{IN_ONE_LINE}", "One line writes the same element in several "
     "blocks. If each block has elements of its own: does the index contain blockIdx, and x and y in their places? If "
     "the values belong together, use an atomic function such as atomicAdd()."),
    ("race", "by different blocks", "Blocks run in no order: within one launch a block must not touch elements that "
     "another block writes, except by atomics. A flag orders other accesses only with a __threadfence() before it."),
    ("race", rf"\(WAW\).*in one (?:warp|block).*{IN_ONE_LINE}", "Several threads write the same element in one line: "
     "does each need one of its own, should only one of them write, or is an atomic meant?"),
    ("race", rf"\(WAR\).*in one warp.*{IN_ONE_LINE}", "One line reads an element that another lane writes in the same "
     "line. If both update it, use an atomic function such as atomicAdd(). Else read into a register, call "
     "__syncwarp(), then write."),
    ("race", rf"\(WAR\).*in one block.*{IN_ONE_LINE}", "One line reads an element that another thread writes in the "
     "same line. If both update it, use an atomic function such as atomicAdd(). Else read into a register, call "
     "__syncthreads(), then write."),
    ("race", r"\(WAW\).*in one block", "Two threads write the same element. Should each have one of its own? "
     "If not, one of them must wait for the other at a barrier."),
    ("race", "in one warp", "The threads of a warp need not run in lockstep: put a barrier between the two accesses, "
     "__syncthreads(), or __syncwarp() if only one warp uses the element."),
    ("uninitialised", r"__global__.*` is `\w+` of launch", "The earlier launch leaves this element out. Which of its "
     "threads should write it?"),
    ("uninitialised", "__global__", "The array holds garbage before the launch: write an element before you read it or "
     "add to it."),
    ("uninitialised", "__constant__", "Constant memory is 0 until the host sets it: call cudaMemcpyToSymbol before the "
     "launch, with the size of all values in bytes."),
    ("uninitialised", "__local__", "An array without `__shared__` is private to each thread: it holds garbage until "
     "this thread writes it, and no thread sees the writes of another one."),
    ("endless-loop", "blocks at once", "A block starts when an earlier one has ended: it must not wait for all others. "
     "Let the last block that arrives do the rest, or leave the rest to the next launch."),
    ("endless-loop", "a change that no thread makes", "Which thread makes this change? It must get there without "
     "waiting itself. A lock must be released, also in the last iteration."),
    ("endless-loop", "nothing in this loop can end it|this loop changes nothing",
     f"{HINTS['endless-loop']} If it waits for a flag of another thread, declare the flag `volatile`: the "
     "compiler reads other variables once."),
    ("endless-loop", "never meets its bound", _STEPS_OVER),
    ("time-limit", "are left", _STEPS_OVER),
    ("endless-loop", "had not ended after", _TOO_SLOW),
    ("endless-loop", "ran too long", _TOO_SLOW),
)  # fmt: skip
"""Code, a pattern in the sentence, and the hint that then fits better than the code's usual one."""

# all but tab and line feed; and invisible characters, also those that reverse the direction of text
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def finding(code: str, what: str, where: str = "", evidence: Iterable[str] = (), hint: str | None = None) -> Finding:
    """Return a finding without control characters, with capped evidence and the hint that fits best."""
    lines = tuple(plain(line) for line in evidence)
    if len(lines) > MAX_EVIDENCE_LINES:
        lines = (*lines[:MAX_EVIDENCE_LINES], f"... and {len(lines) - MAX_EVIDENCE_LINES} more lines")
    return Finding(
        code, plain(what), plain(where), lines, hint_of(code, " ".join((what, *lines))) if hint is None else hint
    )


def hint_for(hazard: Hazard) -> str:
    """Return the hint for a hazard, by its kind, its memory space and both accesses of a race."""
    is_one_line = hazard.other is not None and hazard.where == hazard.other.where
    return hint_of(hazard.kind, f"{hazard} {IN_ONE_LINE if is_one_line else ''}")


def hint_of(code: str, words: str) -> str:
    """Return the hint for a code and the words of its finding."""
    return closer_hint(code, words) or HINTS.get(code, "")


def closer_hint(code: str, words: str) -> str | None:
    """Return the hint that fits the words of a finding better than the code's usual one, if there is such a hint."""
    return next((hint for of, pattern, hint in _CLOSER_HINTS if of == code and re.search(pattern, words)), None)


def plain(text: str) -> str:
    """Return the text without control characters: they could clear, colour or reorder text in a terminal."""
    return _CONTROL.sub("?", text)


def because_of(check: str, cause: Finding, hidden: bool = False) -> Finding:
    """Return the finding of a check that was not graded because a check that it needs, maybe hidden, did not pass."""
    what = f"Not graded, because `{check}` did not pass: {cause.what}"
    return Finding(cause.code, what, cause.where, because=check, hidden=hidden)


_NO_DEVICE = "device-fault"
NO_MEMORY = "no-memory"


def of_error(error: DeviceError) -> tuple[Verdict, Finding]:
    """Return the verdict and finding for a device's error: `failed` if the student caused it, else `not gradable`."""
    if isinstance(error, CompileError):
        return "failed", _of_diagnostics(error.diagnostics)
    if isinstance(error, KernelFault):
        return "failed", finding(error.code, _sentence(error.what), str(error.where or ""), evidence_of(error))
    if isinstance(error, LaunchError):
        return "failed", finding("launch-error", _sentence(f"the launch was refused: {error}"))
    if isinstance(error, CannotSimulate):
        what = f"the simulated GPU does not support {error.what}"
        return "not gradable", finding("cannot-simulate", _sentence(what), str(error.where or ""))
    if isinstance(error, OutOfMemory):
        return "not gradable", finding(NO_MEMORY, _sentence(str(error)))
    return "not gradable", finding(_NO_DEVICE, f"The device failed: {error}", hint=HINTS["not-graded"])


def evidence_of(seen: KernelFault | Hazard) -> tuple[str, ...]:
    """Return the first thread of a fault or hazard, and its launch if there are several."""
    first = (f"first by {seen.lane}",) if seen.lane else ()
    return (*first, f"in {seen.launch}") if seen.launch else first


def lacks_device(result: CheckResult) -> bool:
    """Return whether the device failed before compilation: later checks would then have random results."""
    return result.kind == "compile" and result.verdict == "not gradable" and result.findings[0].code == _NO_DEVICE


_ERROR_LINE = re.compile(
    r"^(?P<file>[^\s(][^(\n]*?)(?:\((?P<line>\d+)\))?: (?:[a-z]+ )?error(?: #[\w-]+)?: (?P<text>.*)$", re.M
)


_COMPILER_HINTS = (
    # NVRTC suggests a compiler option that a student cannot set
    (r"is considered a host (function|variable)", "A submission holds device code only: leave out main() and its "
     "helpers. Mark functions that kernels call with __device__, and variables at file scope with __device__ or "
     "__constant__."),
    ("device-side kernel launch|kernel launch from __device__", "A kernel of this exercise cannot launch another one. "
     "Call a `__device__` function without `<<<...>>>` instead."),
    ("function call must be configured", "A kernel is launched, as `<<<blocks, threads>>>`. A function that a kernel "
     "calls is marked `__device__`."),
)  # fmt: skip
"""A pattern in a compiler's message, and the hint for it."""


_NOT_ENDED = re.compile(f"^{NOT_ENDED}\\b", re.M)
_FOLLOWING = re.compile(
    r"""^(?:[^\s(][^(\n]*\(\d+\):\ warning\ \#(?:177|550)-D:.*(?:\n[ \t]+\S.*)*  # unused: the compiler left out its use
    |(?:[^\s(][^(\n]*\(\d+\):\ )?[Nn]ote\ \#33\d\d-D:.*\ does\ not\ match\b.*(?:\n[ \t]+\S.*)*  # an overload
    |Remark:\ The\ warnings\ can\ be\ suppressed.*)\n+""",
    re.M | re.X,
)
"""Messages that an error causes, or that name an option which students cannot set."""
COMPILER_HINT = (
    "The compiler did not finish: look for templates and macros that expand without end, and for large arrays with "
    "start values."
)


def _of_diagnostics(diagnostics: str) -> Finding:
    """Return the finding for the first error, in the form `file.cu(12): error: text` of nvcc and NVRTC."""
    hint = COMPILER_HINT if _NOT_ENDED.search(diagnostics) else None
    first = _ERROR_LINE.search(diagnostics)
    lines = _FOLLOWING.sub("", diagnostics).splitlines()
    if first is None:
        return finding("compile-error", "The file does not compile.", "", lines, hint)
    what = f"The file does not compile: {first['text']}"
    hint = next((hint for pattern, hint in _COMPILER_HINTS if re.search(pattern, first["text"])), hint)
    where = f"{first['file']}:{first['line']}" if first["line"] else ""
    return finding("compile-error", what, where, lines, hint)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


class Problem(NamedTuple):
    """A reason why a file cannot be graded."""

    finding: Finding  # the finding if it is the only reason
    request: str  # the change that would solve it, in the imperative: `add ...`
    is_complete: bool = False  # whether the request says all that the finding says, its evidence aside


def joined(problems: Sequence[Problem]) -> Finding:
    """Return one finding for all problems; there is at least one."""
    first = problems[0].finding
    if len(problems) == 1:
        return first
    what = f"To grade this file: {'; '.join(problem.request for problem in problems)}."
    evidence = dict[str, None]()
    for problem in problems:
        said = () if problem.is_complete else (problem.finding.what,)
        evidence |= dict.fromkeys((*said, *problem.finding.evidence))
    hints = dict.fromkeys(problem.finding.hint for problem in problems if not problem.is_complete)
    return finding(first.code, what, first.where, evidence, " ".join(filter(None, hints)))


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in singular or plural: `1 file`, `2,000 files`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def listed(names: Iterable[object], word: str) -> str:
    """Return the names as a list in words, with `and` or `or` before the last: `a, b and c`."""
    *first, last = map(str, names)
    return f"{', '.join(first)} {word} {last}" if first else last
