"""Findings of a program's run: how it ended, what it printed and wrote, and what it launched."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from pytest_gpulab.devices.programs.outcome import Outcome
from pytest_gpulab.grading.findings import counted, finding
from pytest_gpulab.grading.grade import NEEDS_A_GPU, Finding
from pytest_gpulab.grading.plans.prepare import instructors_code
from pytest_gpulab.program_exercise import Output, Program

from .runs import ProgramRun

MAX_LAUNCHES = 4  # distinct ones to show with a wrong output
MAX_SHOWN = 80  # characters of a line of output
CONCEPT = "concept"
CODES_OF_KIND: Mapping[str, Sequence[str]] = {
    "memory": ("out-of-bounds", "misaligned", "host-access", "texture"),
    "barrier": ("barrier", "deadlock"),
    "race": ("race", "host-race"),
    "uninitialised": ("uninitialised",),
    "leak": ("leak",),
    "errors": ("api-error", "launch-error"),
}
"""Codes of findings by the kind of a `safe` check."""
_LATER = ("leak", "unseen-output", "race", "uninitialised")
"""Codes of findings that follow the wrong output, or that never explain it."""
_NO_MEMORY = re.compile(rb"std::(?:bad_alloc|bad_array_new_length|length_error)")

HINTS: Mapping[str, str] = {
    "time-limit": "Does every loop end? A kernel is simulated: it takes much longer than on a GPU.",
    "too-much-output": "Print only what the exercise asks for: is there a print statement in a long loop?",
    "no-memory": "How many bytes does the largest array need? Is its length set, and not negative?",
    "exit-code": "main() returns 0 for success. Is there an error that the program itself reports?",
    "wrong-result": "Does every result travel from the device to the host, and is it the one that is printed?",
    "not-written": "Write the file into the working folder, under exactly this name.",
    "invalid-request": "Call the runtime library's functions only.",
    "launches": "Which launches does the exercise ask for?",
}


def ungradable(run: ProgramRun) -> tuple[Finding, ...]:
    """Return the findings of features that need a real GPU; with one, the run says nothing about the program."""
    return tuple(found for found in run.findings if found.code in NEEDS_A_GPU)


def problems(run: ProgramRun) -> tuple[Finding, ...]:
    """Return the findings if end, output or launches of a run are wrong; faults first, as they explain the others.

    Raises InstructorsMistake if the exercise's own function fails.
    """
    wrong = list(_wrong_end(run)) or _early(run) or list(_wrong_output(run.program, run))
    if not wrong:
        return tuple(_wrong_launches(run))
    is_cut = run.output.is_cut  # the program then ends by SIGPIPE, which says nothing about it
    faults = [found for found in run.findings if found.code not in _LATER and not (is_cut and found.code == "crash")]
    later = [found for found in run.findings if found.code in _LATER[1:]]
    return tuple(dict.fromkeys(_with_exception(found, run.output.stderr) for found in (*faults, *wrong, *later)))


def _with_exception(found: Finding, stderr: bytes) -> Finding:
    """Return a crash with its cause if the exception is one of `new` or of a vector's size."""
    if found.code != "crash" or not _NO_MEMORY.search(stderr):
        return found
    what = f"{found.what}: the host asked for more memory than it can have"
    return replace(found, what=what, hint=HINTS["no-memory"])


def _early(run: ProgramRun) -> list[Finding]:
    """Return the accesses by the host that came too early: on a GPU, it may find any value there."""
    return [found for found in run.findings if found.code == "host-race"]


def _wrong_end(run: ProgramRun) -> Iterator[Finding]:
    if run.output.invalid_request:
        what = f"The program wrote to the simulated GPU's socket itself: {run.output.invalid_request}"
        yield _made("invalid-request", what)
    elif run.outcome.timed_out:
        kernel = f", in kernel `{run.outcome.running}`" if run.outcome.running else ""
        yield _made("time-limit", f"The program had not ended after {run.timeout_s:g} s{kernel}: it was stopped")
    elif run.output.is_cut:
        limit = min(run.program.output_bytes, run.program.disk_bytes)
        yield _made("too-much-output", f"The program wrote more than {limit:,} bytes")
    elif run.outcome.returncode < 0:
        yield from (found for found in run.findings if found.code in ("crash", "host-access"))
    elif run.outcome.returncode != run.program.exit_code:
        code, wanted = run.outcome.returncode, run.program.exit_code
        said = run.output.stderr.decode(errors="replace").strip().splitlines()[-3:]
        yield _made("exit-code", f"The program ended with exit code {code} instead of {wanted}", said)


def _wrong_output(program: Program, run: ProgramRun) -> Iterator[Finding]:
    for name, contents in run.output.files.items():
        if not contents:
            yield _made("not-written", f"The file {name} was not written")
            return
    stdout = run.output.stdout.decode(errors="replace")
    if isinstance(program.expected, str):
        what = _difference(stdout, program.expected)
    else:
        with instructors_code("expected"):
            what = program.expected(Output(stdout, run.output.files))
            if not isinstance(what, str):
                raise TypeError(f"it returned {what!r} instead of a text")
    if what:
        yield finding("wrong-result", what, evidence=_launches(run), hint=program.hint or HINTS["wrong-result"])


def _difference(printed: str, expected: str) -> str:
    """Return a sentence on the first line that differs; empty if none does."""
    for number, (got, wanted) in enumerate(zip_longest(_lines(printed), _lines(expected)), 1):
        if got != wanted:
            shown = "nothing" if got is None else f"`{_cut(got)}`"
            instead = "nothing" if wanted is None else f"`{_cut(wanted)}`"
            return f"Wrong output in line {number}: printed {shown}, expected {instead}"
    return ""


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}..."


def _launches(run: ProgramRun) -> Iterator[str]:
    """Yield a line on the kernels that the program launched, as in its source."""
    groups = list(run.outcome.launches.values())
    shown = [
        f"{group.kernel}<<<{_extents(group.grid)}, {_extents(group.block)}>>>"
        + (f" ({group.count} times)" if group.count > 1 else "")
        for group in groups[:MAX_LAUNCHES]
    ]
    more = ", ..." if len(groups) > MAX_LAUNCHES else ""
    yield f"the program launched {', '.join(shown) or 'no kernel'}{more}"


def _extents(extents: Sequence[int]) -> str:
    """Return the extents as in a launch: `256`, or `(16, 16, 1)`."""
    return str(extents[0]) if tuple(extents[1:]) in ((), (1,), (1, 1)) else str(tuple(extents))


def _wrong_launches(run: ProgramRun) -> Iterator[Finding]:
    for bound in run.program.launches:
        count = _count(run.outcome, bound.kernel)
        of = f" of `{bound.kernel}`" if bound.kernel else ""
        launches = counted(count, f"launch{of}", f"launches{of}")
        hint = bound.hint or HINTS["launches"]
        if count < bound.at_least:
            yield finding(CONCEPT, f"Too few launches: {launches}; this check requires {bound.at_least}", hint=hint)
        elif bound.at_most is not None and count > bound.at_most:
            yield finding(CONCEPT, f"Too many launches: {launches}; this check allows {bound.at_most}", hint=hint)


def _count(outcome: Outcome, kernel: str) -> int:
    """Return the number of launches of a kernel that ran to their end; of all kernels for an empty name."""
    return sum(group.ended for group in outcome.launches.values() if kernel in ("", group.kernel.partition("<")[0]))


def _made(code: str, what: str, evidence: Sequence[str] = ()) -> Finding:
    return finding(code, what, evidence=evidence, hint=HINTS[code])
