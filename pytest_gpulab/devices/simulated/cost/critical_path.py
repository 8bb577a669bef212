"""The critical path of a warp: its time without other warps, by the longest chain of dependent instructions.

It comes from the machine code (`machine_path`), or without that from PTX. Then the model combines the assembler and an
SM. In a *region*, code that the assembler can reorder, an instruction starts as soon as its operands are ready. At the
end of the region the warp waits for every value that the region needed. A load is waited for in the region that needs
its value. Short bodies of `if` belong to the region around them, because the assembler predicates them.
"""

from collections import defaultdict
from collections.abc import Sequence

from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.ptx.syntax import Imm, Instruction, Statement
from pytest_gpulab.devices.simulated.sass.executions import Executions, MachineKernel
from pytest_gpulab.devices.simulated.translation.analysis.regions import StoreOrder, regions
from pytest_gpulab.devices.simulated.translation.analysis.waits import is_strong_load, spin_loops
from pytest_gpulab.devices.simulated.translation.control.graph import defined_and_used, space_of
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock
from pytest_gpulab.devices.simulated.translation.weights import weight

from .machine_path import issue_cycles
from .pipes import JUMP, SPECIAL, TABLE_JUMP, pipes

_FREE = {"mov", "cvta"}
_WARP_WIDE = {"shfl", "vote", "match", "redux"}
_CALL_CYCLES = 1000.0  # printf and similar functions

Machine = tuple[MachineKernel, Executions]


def warp_cycles(
    steps: Sequence[TranslatedBlock], warps: Sequence[int], gpu: Gpu, machine: Machine | None
) -> list[float]:
    """Return the cycles that each basic block adds to the path of a warp, per execution.

    `warps` are their executions by warps; one that did not run has the cycles of its PTX. `machine` is the machine code
    with its executions, if it can be read.
    """
    by_rules = step_cycles(steps, gpu)
    if machine is None:
        return by_rules
    kernel, executed = machine
    homes = {statement.number: i for i, step in enumerate(steps) for statement in step.statements}
    strong = frozenset(
        s.number for step in steps for s in step.statements if isinstance(s, Instruction) and is_strong_load(s)
    )
    total = [0.0] * len(steps)
    for number, cycles in issue_cycles(kernel, executed, strong, gpu):
        home = homes.get(number, 0)
        total[home if warps[home] else 0] += cycles
    slept = _sleeps(steps, gpu)
    asleep = [sum(slept.get(s.number, 0.0) for s in step.statements) for step in steps]
    return [
        cycles / ran + pause if ran else rules
        for cycles, ran, pause, rules in zip(total, warps, asleep, by_rules, strict=True)
    ]


def step_cycles(steps: Sequence[TranslatedBlock], gpu: Gpu) -> list[float]:
    """Return the same by the PTX; all loads hit L1, but for those that observe other threads' writes."""
    cycles = [0.0] * len(steps)
    late: dict[int, dict[str, float]] = defaultdict(dict)
    slept = _sleeps(steps, gpu)
    headers = {target for i, step in enumerate(steps) for target in step.targets if target <= i}
    for region in regions(steps):
        ready = dict(late[region[0]])
        end = _run(region, steps, gpu, ready, cycles, slept)
        targets = steps[region[-1]].targets
        if headers.intersection(targets):  # the delay of a value from before a loop counts once, not per iteration
            cycles[region[-1]] += max([end, *ready.values()]) - end
            continue
        for target in targets:
            for name, time in ready.items():
                if time > end:
                    late[target][name] = max(time - end, late[target].get(name, 0.0))
    return cycles


def _run(
    region: list[int],
    steps: Sequence[TranslatedBlock],
    gpu: Gpu,
    ready: dict[str, float],
    cycles: list[float],
    slept: dict[int, float],
) -> float:
    """Store the cycles of a region's blocks and the time at which each register is ready; return the end time."""
    issued = waited = after_jump = guard = 0.0
    stores = StoreOrder()
    for i in region:
        before, guarded, guard = max(issued, waited), guard, 0.0
        for statement in steps[i].statements:
            defined, used = _registers(statement)
            start = max([stores.before(statement), after_jump, guarded, *(ready.get(name, 0.0) for name in used)])
            stores.add(statement, start)
            issued += weight(statement)
            ready.update(dict.fromkeys(defined, start + latency(statement, gpu)))
            if _is_branch(statement):  # nothing waits for its condition where the assembler has no branch
                if i == region[-1]:
                    waited = after_jump = max(issued, waited, start) + gpu.branch_latency
                guard = start
                for name in used:
                    ready.pop(name, None)
                continue
            by_register = sum(pipes(statement).get(pipe, 0.0) for pipe in (JUMP, TABLE_JUMP))
            waited = max(waited, start) + by_register * gpu.jump_latency
            if statement.number in slept:
                waited = max(issued, waited) + slept[statement.number]
            if _has_rare_path(statement):  # the assembler moves nothing over the jump around it
                waited = after_jump = max(waited, start + latency(statement, gpu))
        if steps[i].end == "barrier":
            waited = max(issued, waited) + gpu.barrier_latency
        cycles[i] = max(issued, waited) - before
    return max(issued, waited)


def _has_rare_path(statement: Statement) -> bool:
    """Return True for a division, reciprocal or root of floats that is exact: a rare path is a branch."""
    if not isinstance(statement, Instruction) or statement.op[0] not in ("div", "rcp", "sqrt"):
        return False
    return statement.op[-1] in ("f32", "f64") and "approx" not in statement.op


def _is_branch(statement: Statement) -> bool:
    return isinstance(statement, Instruction) and statement.op in (("bra",), ("bra", "uni"))


def _sleeps(steps: Sequence[TranslatedBlock], gpu: Gpu) -> dict[int, float]:
    """Return the cycles of each `__nanosleep` with a constant, by its number. A GPU sleeps for up to twice as long.

    Loops that may wait for other threads are left out: the number of their polls depends on the order of threads.
    """
    loops = spin_loops(steps)
    outside = (step for i, step in enumerate(steps) if not any(i in loop for loop in loops))
    constants: dict[object, int] = {}
    found: dict[int, float] = {}
    for statement in (statement for step in outside for statement in step.statements):
        if not isinstance(statement, Instruction) or statement.op[0] not in ("mov", "nanosleep"):
            continue
        source = statement.operands[-1]
        value = source.value if isinstance(source, Imm) else constants.get(source, 0)
        if statement.op[0] == "mov":
            constants[statement.operands[0]] = value
        elif value:
            found[statement.number] = value * gpu.clock_ghz
    return found


def _registers(statement: Statement) -> tuple[list[str], list[str]]:
    if not isinstance(statement, Instruction):
        return [], []
    return defined_and_used(statement, {})


def latency(statement: Statement, gpu: Gpu) -> float:
    """Return the cycles until a statement's result is ready."""
    if not isinstance(statement, Instruction):
        return _CALL_CYCLES
    name = statement.op[0]
    if name in _FREE or statement.op == ("not", "pred"):
        return 0.0
    if name == "setp" or statement.op[-1] == "pred":
        return gpu.alu_latency * (max(weight(statement), 1.0) - 1) + gpu.predicate_latency
    if name in ("ld", "ldu"):
        space = space_of(statement)
        if space in ("global", "generic"):
            return gpu.l2_latency if is_strong_load(statement) else gpu.l1_latency
        return {"param": 0.0, "local": gpu.l1_latency}.get(space, gpu.shared_latency)
    if name == "atom":
        return gpu.shared_latency if space_of(statement) == "shared" else gpu.l2_latency
    if name in _WARP_WIDE:
        return gpu.shuffle_latency
    if "approx" in statement.op and name not in ("div",):
        return gpu.special_latency
    specials = pipes(statement).get(SPECIAL, 0.0)  # of a division, one after the other
    return gpu.alu_latency * max(weight(statement), 1.0) + specials * (gpu.special_latency - gpu.alu_latency)
