"""Causes of a wrong result: hazards of the same run, variables without a value, other cases."""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from pytest_gpulab.devices.protocol import LaunchProfile
from pytest_gpulab.exercise import Launch, Plan
from pytest_gpulab.grading.findings import NO_VALUE, UNSET, hint_for
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.parameter_names import unset_variables
from pytest_gpulab.grading.plans.replay import Run

from .arithmetic_patterns import PER_BLOCK
from .causes import PITCH
from .coincidence import CERTAIN
from .compare import WRONG_RESULTS

MAX_HAZARDS = 3  # reported with a wrong result
EXPLAINING = ("race", "uninitialised", "barrier")  # hazards that end no launch
WORD_BYTES = 4
MOST_OF_ARRAY = 3 / 4
SAME_RUN = "in the same run: "


def with_best_explanation(
    findings: tuple[Finding, ...], others: Iterable[tuple[str, tuple[Finding, ...]]]
) -> tuple[Finding, ...]:
    """Add the most informative of the findings of other checks, and its hint, to a wrong result.

    The first certain one ends the search: it takes time, and none is more informative.
    """
    first, *rest = findings
    name, best = "", first
    for other, found in others:
        if found and found[0].code in WRONG_RESULTS and found[0].bits > best.bits:
            name, best = other, found[0]
            if best.bits >= CERTAIN:
                break
    if best is first:
        return findings
    lines = (f"{name} shows more: {best.what}", *best.evidence)
    return (replace(first, evidence=(*first.evidence, *lines), hint=best.hint), *rest)


def with_hazards(findings: tuple[Finding, ...], runs: list[Run], source: str | None) -> tuple[Finding, ...]:
    """Add the hazards of the same runs, the likely cause of wrong results, with line and hint.

    A barrier that some threads miss comes first: races may follow from it. `source` is the submission's text if the
    device sees races and unwritten memory, else None. Without a hazard, a result that varies then has another cause,
    such as a variable without a value.
    """
    explaining = (each for run in runs for each in run.hazards if each.kind in EXPLAINING and not each.harmless)
    seen = {(hazard.what, hazard.where): hazard for hazard in explaining}
    hazards = sorted(seen.values(), key=lambda hazard: hazard.kind != "barrier")[:MAX_HAZARDS]
    if not hazards:
        is_luck = any(found.by_luck or found.code == "not-repeatable" for found in findings)
        return _with_unset(findings, runs, source) if is_luck and source is not None else findings
    lines = tuple(f"{SAME_RUN}{hazard}" for hazard in hazards)
    clause, _ = _unset(runs, source or "") or ("", "")
    is_unset = "`" in clause and all(hazard.kind == "uninitialised" for hazard in hazards)
    lines += (clause,) if is_unset else ()
    place = next((str(hazard.where) for hazard in hazards if hazard.where), "")
    hint = f"{NO_VALUE} {hint_for(hazards[0])}" if is_unset else hint_for(hazards[0])
    return tuple(
        replace(
            found,
            evidence=(*found.evidence, *lines),
            where=found.where or place,
            hint=PITCH if found.hint == PITCH else hint,  # blocks then write the same elements
            bits=CERTAIN,
        )
        if found.code in WRONG_RESULTS
        else found
        for found in findings
    )


def _with_unset(findings: tuple[Finding, ...], runs: list[Run], source: str) -> tuple[Finding, ...]:
    """Add lines that may read a variable without a value to results that vary without any hazard in memory."""
    unset = _unset(runs, source)
    if not unset:
        return tuple(found if found.hint == PER_BLOCK else replace(found, hint=UNSET) for found in findings)
    clause, place = unset
    return tuple(
        replace(found, evidence=(*found.evidence, clause), where=found.where or place, hint=NO_VALUE, bits=CERTAIN)
        for found in findings
    )


def _unset(runs: list[Run], source: str) -> tuple[str, ...]:
    """Return a clause on variables that may be read before they have a value, and the place; nothing without any."""
    lines = list(dict.fromkeys(line for run in runs for profile in run.profiles for line in profile.unset))
    names = list(dict.fromkeys(name for line in lines for name in unset_variables(source, line.line)))
    which = " or ".join(f"`{name}`" for name in names[:MAX_HAZARDS]) or "a variable"
    return (f"{SAME_RUN}{lines[0]}: {which} may be read before it has a value", str(lines[0])) if lines else ()


def with_notes(
    findings: tuple[Finding, ...], notes: Iterable[Finding], plan: Plan, runs: Iterable[Run]
) -> tuple[Finding, ...]:
    """Add a note on the file that explains wrong results, and its hint, to them.

    It is that an array of constants has another type, or that nothing reads a tunable. A kernel may use the tunable's
    value without a read of it: threads of the first launch then take more than one word, or leave none unread.
    """
    is_unread = any(_leaves_unread(plan.launches[0], plan, profile) for run in runs for profile in run.profiles[:1])
    codes = ("constant-type", "tunable-unread") if is_unread else ("constant-type",)
    note = next((note for note in notes if note.code in codes), None)
    if note is None:
        return findings
    return tuple(
        replace(found, evidence=(*found.evidence, note.what), hint=note.hint, bits=CERTAIN)
        if found.code in WRONG_RESULTS and not any(line.startswith(SAME_RUN) for line in found.evidence)
        else found
        for found in findings
    )


def _leaves_unread(launch: Launch, plan: Plan, profile: LaunchProfile) -> bool:
    """Return True if the threads of a launch read one word each, and together much less than the array.

    If few words are left, other mistakes look the same, such as vectors of four without the rest.
    """
    threads = prod((*launch.grid, *launch.block))
    for at, read in profile.read_per_thread.items():
        name = launch.args[at]
        is_a_word = WORD_BYTES <= read < 2 * WORD_BYTES
        if isinstance(name, str) and is_a_word and read * threads <= MOST_OF_ARRAY * plan.buffer(name).nbytes:
            return True
    return False
