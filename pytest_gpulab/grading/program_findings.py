"""Findings of a whole program's run: hazards and faults of its kernels, failed calls, leaks, and how it ended."""

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from pytest_gpulab.devices.errors import NO_DYNAMIC_SHARED, Hazard, Location, SourceLine
from pytest_gpulab.devices.programs.outcome import (
    CallSite,
    EarlyAccess,
    FailedCall,
    LaunchFailure,
    Leak,
    Outcome,
    ShareCopy,
    ShortLaunch,
    UnwrittenCopy,
)
from pytest_gpulab.devices.protocol import KernelFault

from .findings import HINTS as KERNEL_HINTS
from .findings import closer_hint, counted, evidence_of, finding, hint_for, listed, of_error
from .grade import Finding
from .plans.parameter_names import Names, parameter_names

CODE_OF_KIND = {"memory": "out-of-bounds"}  # all other kinds of hazards are codes themselves
MANAGED = "a __managed__ variable"
MAX_FINDINGS = 50
MAX_QUOTED = 90  # characters of a source line

HINTS: Mapping[str, str] = {
    "cannot-simulate": "No error was found in this kernel: it needs a real GPU.",
    "api-error": "Check the error of each call of the runtime library: later results cannot be trusted.",
    "leak": "Free each allocation when it is no longer needed: cudaFree, or cudaFreeHost for pinned memory.",
    "host-race": "Launches and asynchronous copies return before the GPU has run them. Call cudaDeviceSynchronize() "
    "before the host uses their memory.",
    "host-access": "Memory of cudaMalloc is the device's: copy it with cudaMemcpy and free it with cudaFree, or "
    "allocate with cudaMallocManaged.",
    "uninitialised": "Memory of cudaMalloc holds garbage until a copy or a kernel writes it. Is it copied before the "
    "launch, in this direction, and with its size in bytes?",
    "never-written": "Is the kernel launched before the copy, with this pointer, and does it write to it?",
    "unseen-result": "Copy the result with cudaMemcpy and cudaMemcpyDeviceToHost after the launch.",
    "shared-arrays": "All `extern __shared__` arrays of a kernel begin at the same address. Declare one, and let a "
    "pointer begin behind the elements of the first array.",
    "crash": "Usual causes: an index beyond an array, a null pointer, or argv[1] of a program without arguments.",
    "missing-function": "Run the program on a GPU, or without this function.",
    "time-limit": "The simulated GPU is far slower than a real one: try fewer elements. If that takes as long, look at "
    "the loop: how many iterations does a thread need, and how many does it execute?",
    "unseen-output": "Call cudaDeviceSynchronize() before the program ends.",
}

_SIZE_OF_NUMBER = re.compile(
    r"sizeof\s*\(?\s*(?:(?:un)?signed\s+|long\s+)*(?:int|float|double|long|short|unsigned|size_t)\b"
)

FILL = "A set changes each byte. Use it for numbers that are 0, and a kernel or a copy from the host for others."
SHARE = "The size is in bytes. If all elements are meant, multiply their number by the size of one, with sizeof."
THIRD = "A launch needs the bytes of `extern __shared__` arrays as its third argument: <<<grid, block, bytes>>>."
SYMBOL = "Pass the variable itself, without & and without quotes. It must be a `__constant__` or `__device__` variable."
NO_THREAD = KERNEL_HINTS["not-written"]

Errors = Mapping[int, tuple[str, str]]
"""Name and description of each error of the runtime library."""


@dataclass(frozen=True)
class Sources:
    """The program's source."""

    folder: Path  # the folder that paths are shown relative to
    lines: Mapping[int, SourceLine]  # source lines of calls, by address in the executable
    errors: Errors
    # whether only files in the folder are read: a program of other people can name any file as its source
    own_only: bool = False

    def text_of(self, file: str) -> tuple[str, ...]:
        """Return the lines of a source file; none if it cannot or must not be read."""
        path = (self.folder / file).resolve()
        return () if self.own_only and not path.is_relative_to(self.folder) else _lines(str(path))

    def at(self, site: CallSite) -> str:
        """Return the source line of a call, or an empty text."""
        return self.shown(self.lines.get(site.address))

    def statement(self, site: CallSite) -> tuple[str, str]:
        """Return the text of a call up to the semicolon, and the whole source file; both empty if unknown."""
        where = self.lines.get(site.address)
        lines = self.text_of(where.file) if where else ()
        rest = "\n".join(lines[where.line - 1 :]) if where else ""
        return rest.partition(";")[0], "\n".join(lines)

    def shown(self, where: SourceLine | None) -> str:
        """Return a source line with its path relative to the folder."""
        return "" if where is None else self.shown_path(str(where))

    def shown_path(self, path: str) -> str:
        """Return a path relative to the folder if it is in it."""
        return path.removeprefix(f"{self.folder}/")

    def plain(self, text: str) -> str:
        """Return a text with paths relative to the folder."""
        return text.replace(f"{self.folder}/", "")


def program_findings(outcome: Outcome, sources: Sources) -> list[Finding]:
    """Return the findings of a run: failed calls before the kernels' own findings if they came first.

    Harmless hazards are left out.
    """
    calls = [_of_call(failed, count, sources) for failed, count in outcome.failed_calls.items()]
    found = calls[: outcome.causes]
    found += [_of_failure(failure, sources) for failure in outcome.failures.values()]
    found += [_of_hazard(*seen, sources) for seen in outcome.hazards.values() if not seen[1].harmless]
    found += [_of_early(access, sources) for access in outcome.early]
    found += [_of_unwritten(copy, sources) for copy in outcome.unwritten]
    found += [_of_dynamic(kernel, *launched, sources) for kernel, launched in outcome.dynamic.items()]
    shares = (_of_share(share, sources) for share in outcome.shares.values() if share is not None)
    reported = {copy.kernel for copy in outcome.unwritten}
    short = {part.at: part for part in outcome.short.values() if part and part.kernel not in reported}
    found += [_of_short(part, sources) for part in short.values()]
    fills = (_of_fill(call, value, sources) for call, value in outcome.fills.items())
    found += filter(None, [*shares, *fills, *(_of_pointer(call, sources) for call in outcome.pointer_sized)])
    found += _of_end(outcome, sources)
    found += calls[outcome.causes :]
    found += [_of_leak(leak, sources) for leak in outcome.leaks]
    return list(dict.fromkeys(found))[:MAX_FINDINGS]


def _of_failure(failure: LaunchFailure, sources: Sources) -> Finding:
    _, of_device = of_error(failure.error)
    where = getattr(failure.error, "where", None)
    what, fault = of_device.what, failure.error
    if isinstance(fault, KernelFault) and fault.location is not None:
        what = _named(what, fault.location, failure.kernel, fault.where, sources)
    place = sources.shown(where) or sources.at(failure.site)
    evidence = tuple(map(sources.plain, of_device.evidence))
    lines = (*evidence, f"in kernel `{failure.kernel}`")
    hint = closer_hint(of_device.code, " ".join((what, *lines))) or HINTS.get(of_device.code)
    made = finding(of_device.code, sources.plain(what), place, lines, THIRD if NO_DYNAMIC_SHARED in what else hint)
    return _quoted(made, where or sources.lines.get(failure.site.address), sources)


def _of_hazard(kernel: str, hazard: Hazard, sources: Sources) -> Finding:
    what = hazard.what
    if hazard.location is not None and (name := _array(hazard.location, kernel, hazard.where, sources)):
        what += f": {hazard.location.elements(name, hazard.location.element)} was never written"
    first, *more = evidence_of(hazard) or ("",)
    against = f", against the {hazard.other}" if hazard.other else ""
    evidence = [line for line in (f"{first}{against}", *more, f"in kernel `{kernel}`") if line]
    code = CODE_OF_KIND.get(hazard.kind, hazard.kind)
    made = finding(code, what[:1].upper() + what[1:], sources.shown(hazard.where),
                   map(sources.plain, evidence), _hint(hazard))  # fmt: skip
    return _quoted(made, hazard.where, sources)


def _hint(hazard: Hazard) -> str:
    is_copied = hazard.kind == "uninitialised" and "__global__" in hazard.what
    return HINTS["uninitialised"] if is_copied else hint_for(hazard)


def _named(what: str, location: Location, kernel: str, where: SourceLine | None, sources: Sources) -> str:
    name = _array(location, kernel, where, sources)
    return what.replace(str(location), location.named(name, location.element)) if name else what


def _array(location: Location, kernel: str, where: SourceLine | None, sources: Sources) -> str:
    """Return the name of the parameter that points to an array, or of the variable; empty if unknown."""
    if location.symbol or location.parameter is None or where is None:
        return location.symbol
    names = _parameter_names(sources.text_of(where.file)).get(kernel.partition("<")[0].partition("(")[0], ())
    return names[location.parameter] if location.parameter < len(names) else ""


@lru_cache(maxsize=32)
def _parameter_names(lines: tuple[str, ...]) -> Names:
    return parameter_names("\n".join(lines))


@lru_cache(maxsize=32)
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def _quoted(made: Finding, where: SourceLine | None, sources: Sources) -> Finding:
    """Return a finding with its source line."""
    lines = sources.text_of(where.file) if where else ()
    return replace(made, line=_cut(lines[where.line - 1].strip())) if where and where.line <= len(lines) else made


def _cut(line: str) -> str:
    return line if len(line) <= MAX_QUOTED else f"{line[: MAX_QUOTED - 3]}..."


def _at(
    site: CallSite, sources: Sources, code: str, what: str, evidence: Iterable[str] = (), hint: str | None = None
) -> Finding:
    """Return a finding at a call, with the source line."""
    made = finding(code, what, sources.at(site), evidence, HINTS[code] if hint is None else hint)
    return _quoted(made, sources.lines.get(site.address), sources)


def _in_brackets(site: CallSite, sources: Sources, before: str = "") -> str:
    return f" ({before}{sources.at(site)})" if sources.at(site) else ""


def _of_call(failed: FailedCall, count: int, sources: Sources) -> Finding:
    name, text = sources.errors.get(failed.error, (f"error {failed.error}", "unknown"))
    why = f": {failed.why}" if failed.why else ""
    times = f" ({count} times)" if count > 1 else ""
    what = f"{failed.site.function} returned {name} ({text}){times}{why}"
    return _at(failed.site, sources, "api-error", what, hint=SYMBOL if "Symbol" in name else None)


def _of_early(access: EarlyAccess, sources: Sources) -> Finding:
    what = f"kernel `{access.kernel}`" if access.kernel else access.work.function
    does, may = ("writes", "use") if access.is_write else ("reads", "write")
    begun = _in_brackets(access.work, sources, "begun at ")
    told = f"The host {does} memory that {what} may still {may}{begun}: it has not waited"
    memory = MANAGED if access.memory.function == "variable" else access.memory.function
    evidence = f"memory of {memory}{_in_brackets(access.memory, sources)}"
    return _at(access.at, sources, "host-race", told, [evidence])


def _of_unwritten(copy: UnwrittenCopy, sources: Sources) -> Finding:
    what, hint = f"{copy.at.function} copies {counted(copy.nbytes, 'byte')} to the host", HINTS["never-written"]
    if copy.written:
        what += f"; nothing has written {copy.nbytes - copy.written:,} of them"
        size = counted(copy.written // copy.threads, "byte")
        evidence = [f"the others are {size} for each of the {copy.threads:,} threads of a launch of `{copy.kernel}`"]
        hint = NO_THREAD
    else:
        what += " that nothing has written"
        evidence = [] if copy.launches else ["no kernel was launched before it"]
    evidence.append(f"memory of {copy.memory.function}{_in_brackets(copy.memory, sources)}")
    return _at(copy.at, sources, "uninitialised", what, evidence, hint)


def _of_dynamic(kernel: str, site: CallSite, names: list[str], sources: Sources) -> Finding:
    what = f"{listed((f'`{name}`' for name in names), 'and')} of kernel `{kernel}` are the same memory"
    return _at(site, sources, "shared-arrays", what)


def _of_pointer(call: CallSite, sources: Sources) -> Finding | None:
    """Return the finding of a call that takes the size of a pointer for that of the array; None if it means both."""
    text, source = sources.statement(call)
    name = named[1] if (named := re.search(r"sizeof\s*\(?\s*(\w+)\s*\)?\s*[,)]", text)) else ""
    is_pointer = re.search(rf"\*\s*(?:const\s+|__restrict__\s+)?{name}\s*[,;=)]", source) if name else None
    if is_pointer is None or re.search(rf"&\s*{name}\b", text):
        return None
    what = f"{call.function} takes 8 bytes: `sizeof({name})` is the size of a pointer, not of the array"
    return _at(call, sources, "bytes", what, hint=SHARE)


def _are_elements(call: CallSite, sources: Sources) -> bool:
    """Return True if nothing in the size of a copy makes bytes of elements, as far as its names are known."""
    text, source = sources.statement(call)
    arguments = re.findall(r"(?:[^,()]|\([^()]*\))+", text.partition(f"{call.function}(")[2])
    size = arguments[2:3]
    names = set(re.findall(r"[a-zA-Z_]\w*", re.sub(r"\w+\.size\(\)", "", size[0]))) if size else {"sizeof"}
    values = [re.findall(rf"(?:#define\s+{name}\b|\b{name}\s*=(?!=))(.*)", source) for name in names]
    return all(values) and not re.search(
        r"sizeof|byte|\b[48]\s*\*|\*\s*[48]\b|<<",
        " ".join((*size, *names, *(text for each in values for text in each))),
    )


def _of_share(copy: ShareCopy, sources: Sources) -> Finding | None:
    if not _are_elements(copy.at, sources):
        return None
    what = f"{copy.at.function} copies {copy.nbytes:,} of {copy.total:,} bytes to the host; the others are never copied"
    evidence = f"memory of {copy.memory.function}{_in_brackets(copy.memory, sources)}"
    return _at(copy.at, sources, "bytes", what, [evidence], SHARE)


def _of_short(part: ShortLaunch, sources: Sources) -> Finding:
    what = f"`{part.kernel}` uses {part.used:,} of {part.total:,} elements: this launch has {part.threads:,} threads"
    evidence = f"memory of {part.memory.function}{_in_brackets(part.memory, sources)}"
    return _at(part.at, sources, "too-few-threads", what, [evidence], NO_THREAD)


def _of_fill(call: CallSite, value: int, sources: Sources) -> Finding | None:
    """Return the finding of bytes that are set to a small number, if the line has the size of a number's type."""
    what = f"{call.function} sets each byte to {value}, so an int becomes {value * 0x01010101:,}"
    made = _at(call, sources, "bytes", what, hint=FILL)
    return made if _SIZE_OF_NUMBER.search(made.line) else None


def _of_leak(leak: Leak, sources: Sources) -> Finding:
    what = f"{counted(leak.count, 'allocation')} of {leak.site.function}, {leak.nbytes:,} bytes, never freed"
    return _at(leak.site, sources, "leak", what)


def _of_end(outcome: Outcome, sources: Sources) -> Iterator[Finding]:
    """Yield the finding of an abnormal end, and of output that a GPU would have lost."""
    if (missing := outcome.missing) is not None:
        what = f"{missing.function} is not available with no GPU: the program was ended"
        yield _at(missing, sources, "missing-function", what)
    if outcome.returncode < 0 and not (outcome.timed_out or outcome.interrupted):
        yield _of_crash(outcome, sources)
    is_seen = outcome.has_seen_results or outcome.used_events or outcome.returncode or outcome.failures
    if outcome.has_results and not is_seen:
        after = counted(outcome.launch_count, "launch", "launches")
        what = f"No result left the GPU: after {after}, nothing was copied to the host"
        yield finding("unseen-result", what, hint=HINTS["unseen-result"])
    if outcome.unseen_output:
        what = "Kernels printed after the program's last synchronisation, so on a GPU their output would be lost"
        yield finding("unseen-output", what, hint=HINTS["unseen-output"])


def _of_crash(outcome: Outcome, sources: Sources) -> Finding:
    name, fault = signal.Signals(-outcome.returncode).name, outcome.host_fault
    if fault is None:
        return finding("crash", f"The program was ended by {name}", hint="")
    if fault.site is None:
        return _at(fault.at, sources, "crash", f"The host's code was ended by {name}: an invalid access")
    what = f"The host accessed {fault.what}: see {fault.site.function}{_in_brackets(fault.site, sources)}"
    return _at(fault.at, sources, "host-access", what)
