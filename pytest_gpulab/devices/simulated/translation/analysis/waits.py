"""Loops that wait: for writes of other threads (spin loops), or for a phase of an mbarrier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Imm, Instruction, Label, Statement, Sym
from pytest_gpulab.devices.simulated.translation.control.graph import (
    MBARRIER_TESTS,
    Block,
    defined_and_used,
    with_sources,
)
from pytest_gpulab.devices.simulated.translation.program import Program, TranslatedBlock

FENCES = {"membar", "fence"}
_NEUTRAL = ("add", 0), ("or", 0), ("xor", 0), ("and", -1), ("and", 0xFFFFFFFF)
"""Atomic operations with the values that change nothing."""
_STRONG = {"volatile", "relaxed", "acquire"}


def is_strong_load(statement: Statement) -> bool:
    """Return whether a statement is a load that observes writes of other threads."""
    return isinstance(statement, Instruction) and statement.op[0] == "ld" and bool(_STRONG & set(statement.op))


def _observes(statement: Statement) -> bool:
    """Return whether a statement only observes writes of other threads, such as `atomicAdd(p, 0)`."""
    if not isinstance(statement, Instruction) or statement.op[0] != "atom":
        return is_strong_load(statement)
    value = statement.operands[2:]
    if "cas" in statement.op:
        return value[0] == value[1]
    return isinstance(value[0], Imm) and any(value[0].value == same for op, same in _NEUTRAL if op in statement.op)


def is_fence(statement: Statement) -> bool:
    """Return whether a statement is a memory fence."""
    return isinstance(statement, Instruction) and statement.op[0] in FENCES


def fence_scope(statement: Statement) -> str:
    """Return the scope of a fence, or of an access that releases, if it is larger than a block; else empty."""
    if not isinstance(statement, Instruction) or "proxy" in statement.op:
        return ""
    words = set(statement.op)
    if not (is_fence(statement) or words & {"release", "acq_rel"}):
        return ""
    return "system" if "sys" in words else "gpu" if words & {"gl", "gpu"} else ""


def polling_sites(program: Program) -> frozenset[int]:
    """Return the loads, by the index of their sites, with values that end an innermost loop that may wait.

    An atomic that changes nothing is such a load, too. A loop that repeats a compare-and-swap waits for no thread.
    """
    retried = {site.number for site in program.sites if site.is_retried}
    strong = {
        statement.number
        for loop in _innermost_loops(program.steps)
        for i in loop
        if retried.isdisjoint(statement.number for statement in program.steps[i].statements)
        for statement in program.steps[i].statements
        if isinstance(statement, Instruction) and _observes(statement)
    }
    sites = (site for site in program.sites if site.is_awaited and site.space != "shared")
    return frozenset(site.index for site in sites if site.number in strong)


def entries_of_waits(program: Program) -> list[tuple[int, int]]:
    """Return the basic blocks from which a loop is entered that waits for other threads, each with the first of it."""
    awaited = {site.number for site in program.sites if site.is_awaited}
    found = []
    for loop in _innermost_loops(program.steps):
        numbers = {statement.number for i in loop for statement in program.steps[i].statements}
        if not awaited.isdisjoint(numbers):
            before = (i for i, step in enumerate(program.steps) if i not in loop and loop.start in step.targets)
            found += [(i, loop.start) for i in before]
    return found


@dataclass(frozen=True)
class HopAccesses:
    """The accesses of a block from the flag of another block to its own flag."""

    loads: int  # loads that observe other threads' writes, with the one of the flag
    fences: float  # fences of the scope of the GPU
    system_fences: float  # fences of the scope of the system
    waiting: Sequence[int]  # basic blocks of loops that may wait


def hop_accesses(program: Program, walks: bool) -> HopAccesses:
    """Return the accesses of a hop; a block that `walks` over others publishes before and after the walk."""
    steps, polls = program.steps, {program.sites[i].number for i in polling_sites(program)}
    inside = sorted({i for loop in spin_loops(steps) for i in loop})
    outside = [i for i in range(len(steps)) if i not in inside]
    read = inside if walks else range(len(steps))
    loads = {
        (statement.number in polls, statement.where or statement.number)  # several at a line: copies of the compiler's
        for i in read
        for statement in steps[i].statements
        if isinstance(statement, Instruction) and _observes(statement)
    }
    share = 0.5 if walks else 1.0
    of_gpu, of_system = (
        _count(steps, inside, scope) + share * _count(steps, outside, scope) for scope in ("gpu", "system")
    )
    return HopAccesses(len(loads), of_gpu, of_system, inside)


def _count(steps: Sequence[TranslatedBlock], chosen: Sequence[int], scope: str) -> int:
    return sum(fence_scope(statement) == scope for i in chosen for statement in steps[i].statements)


def spin_loops(steps: Sequence[TranslatedBlock]) -> list[range]:
    """Return the loops that may wait for other threads, as ranges of basic blocks."""
    return [range(min(step.targets), i + 1) for i, step in enumerate(steps) if step.targets and step.spins]


def _innermost_loops(steps: Sequence[TranslatedBlock]) -> list[range]:
    loops = spin_loops(steps)
    return [loop for loop in loops if not any(other != loop and set(other) <= set(loop) for other in loops)]


_COMPUTES = {"mov", "selp", "setp", "and", "or", "xor", "not", "cvt", "add", "sub", "mul", "mad", "fma", "shl", "shr",
             "min", "max", "neg", "abs", "nanosleep"}  # from registers to registers, or nothing  # fmt: skip


def results_of_waits(blocks: Sequence[Block], index: Mapping[str, int]) -> dict[int, int]:
    """Return the registers that a loop that may wait computes but does not depend on, such as a count of its polls.

    As long as no lane leaves the loop, they change nothing else. Only loops that are left at their end have them. They
    are a bit set by the first block of the loop.
    """
    ends: dict[int, int] = {}
    for i, block in enumerate(blocks):
        ends.update((target, i) for target in block.targets if target <= i)
    found = {}
    for start, end in ends.items():
        loop, inside = blocks[start : end + 1], range(start, end + 1)
        is_left_at_end = all(target in inside for block in loop[:-1] for target in block.targets)
        if blocks[end].spins and blocks[end].end == "branch" and is_left_at_end:
            found[start] = sum(1 << index[name] for name in _results(loop) if name in index)
    return found


def _results(loop: Sequence[Block]) -> set[str]:
    """Return the registers that a loop only computes."""
    statements = [s for block in loop for s in (*block.body, block.last) if s is not None and not isinstance(s, Label)]
    flows = [(isinstance(s, Instruction) and s.op[0] in _COMPUTES, *defined_and_used(s, {})) for s in statements]
    relevant = {name for computes, _, read in flows if not computes for name in read}
    relevant = with_sources(relevant, ((written, read) for _, written, read in flows))
    computed = {name for computes, written, _ in flows if computes for name in written}
    return computed - relevant


_PASSED_ON = {"mov", "selp", "setp", "and", "or", "xor", "not", "cvt"}
_HARMLESS = {*_PASSED_ON, "add", "sub", "mul", "shl", "shr", "nanosleep", "bra", "mbarrier"}


def phase_waits(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the numbers of the basic blocks that end with the backward jump of such a loop."""
    found = []
    for i, block in enumerate(blocks):
        if block.spins and (start := min(block.targets)) <= i and _only_waits(blocks[start : i + 1], start):
            found.append(i)
    return frozenset(found)


def _only_waits(loop: Sequence[Block], start: int) -> bool:
    """Return whether a loop only tests mbarriers, and these tests alone decide when it ends."""
    if any(block.end not in ("goto", "branch") for block in loop):
        return False
    statements = [s for block in loop for s in (*block.body, block.last) if s is not None and not isinstance(s, Label)]
    instructions = [s for s in statements if isinstance(s, Instruction) and s.op[0] != "bra"]
    tests = [s for s in instructions if _is_test(s)]
    if not tests or any(isinstance(s, Call) or not _is_harmless(s) for s in statements):
        return False
    changed = {name for s in instructions if not _is_constant(s) for name in defined_and_used(s, {})[0]}
    if any(changed.intersection(defined_and_used(test, {})[1]) for test in tests):
        return False
    inside = range(start, start + len(loop))
    leaving = [block.last for block in loop if any(target not in inside for target in block.targets)]
    guards = {last.guard[0].name for last in leaving if last is not None and last.guard is not None}
    return len(guards) > 0 and _is_decided_by_tests(guards, instructions)


def _is_decided_by_tests(relevant: set[str], instructions: Sequence[Instruction]) -> bool:
    """Return whether registers depend only on tests of mbarriers and on values that are constant in the loop."""
    flows = [(i, *defined_and_used(i, {})) for i in instructions if not _is_test(i)]
    relevant = with_sources(relevant, ((written, read) for _, written, read in flows))
    return all(
        relevant.isdisjoint(written) or (i.op[0] in _PASSED_ON and not any(map(_is_special, i.operands)))
        for i, written, _ in flows
    )


def _is_test(statement: Instruction) -> bool:
    return statement.op[0] == "mbarrier" and statement.op[1] in MBARRIER_TESTS


def _is_harmless(statement: Instruction | Call) -> bool:
    if not isinstance(statement, Instruction) or statement.op[0] not in _HARMLESS:
        return False
    return statement.op[0] != "mbarrier" or _is_test(statement)


def _is_constant(instruction: Instruction) -> bool:
    source = instruction.operands[-1] if instruction.op[0] == "mov" else None
    return isinstance(source, Imm | Sym) and not _is_special(source)


def _is_special(operand: object) -> bool:
    """Return whether an operand is a special register, such as the clock."""
    return isinstance(operand, Sym) and operand.name.startswith("%")
