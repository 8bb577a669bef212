"""Regions: parts of a program within which the assembler may reorder instructions.

A region is straight-line code with short bodies of `if`, which the assembler predicates instead of jumping over them.
It ends at a loop's end, at a barrier, and at each other branch.
"""

from collections import defaultdict
from collections.abc import Sequence

from pytest_gpulab.devices.simulated.ptx.syntax import Address, Call, Instruction, Operand, Statement
from pytest_gpulab.devices.simulated.translation.control.graph import defined_and_used
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock

MAX_PREDICATED = 12  # statements in the body of an `if`; longer ones keep their branch
_ATOMICS = ("atom", "red")
_STORES = ("st", *_ATOMICS)
# Words of accesses that may come before or after a store to global memory.
_OTHER = {"shared", "local", "const", "param", "nc"}


def regions(steps: Sequence[TranslatedBlock]) -> list[list[int]]:
    """Return the regions of a program as lists of basic blocks, each in the order of execution."""
    entries: dict[int, set[int]] = defaultdict(set)
    for i, step in enumerate(steps):
        for target in step.targets:
            entries[target].add(i)
    found: list[list[int]] = []
    taken: set[int] = set()
    for i in range(len(steps)):
        if i in taken:
            continue
        region = [i]
        while (following := _following(steps, region[-1], entries, set(region))) is not None:
            region += following
        taken.update(region)
        found.append(region)
    return found


def _following(
    steps: Sequence[TranslatedBlock], last: int, entries: dict[int, set[int]], region: set[int]
) -> list[int] | None:
    """Return the blocks that continue a region: the next block, or a predicated body."""
    step = steps[last]
    after = last + 1
    if step.end == "goto" and step.targets == (after,) and entries[after] <= region:
        return [after]
    if step.end != "branch" or after >= len(steps) or after not in step.targets or entries[after] != {last}:
        return None
    body, join = steps[after], next((t for t in step.targets if t != after), None)
    if not (
        _is_predicated(body) and body.end == "goto" and body.targets == (join,) and join is not None and join > after
    ):
        return None
    return [after, join] if entries[join] <= region | {after} and join == after + 1 else [after]


def _is_predicated(body: TranslatedBlock) -> bool:
    """Return True if the assembler predicates a body. It jumps over calls and over all atomics, however short."""
    return len(body.statements) <= MAX_PREDICATED and not any(
        isinstance(s, Call) or (isinstance(s, Instruction) and s.op[0] in _ATOMICS) for s in body.statements
    )


class StoreOrder:
    """The stores of a region that a later load cannot overtake.

    The assembler keeps loads behind stores that may write to the same address. In global memory, only another offset
    from the same register, or a load of data that the kernel never writes (`ld.global.nc`), excludes this.
    """

    def __init__(self) -> None:
        self._starts: dict[Operand, float] = {}

    def before(self, statement: Statement) -> float:
        """Return the latest start of the stores before a load, 0 for other statements."""
        address = _global_address(statement, ("ld",))
        return max((start for base, start in self._starts.items() if address and base != address.base), default=0.0)

    def add(self, statement: Statement, start: float) -> None:
        """Add a statement, which may be a store or an atomic, with its start."""
        if address := _global_address(statement, _STORES):
            self._starts[address.base] = start


def _global_address(statement: Statement, names: tuple[str, ...]) -> Address | None:
    """Return the address in an access to global memory that is one of some instructions."""
    if not isinstance(statement, Instruction) or statement.op[0] not in names or not _OTHER.isdisjoint(statement.op):
        return None
    return next((operand for operand in statement.operands if isinstance(operand, Address)), None)


def load_depths(steps: Sequence[TranslatedBlock]) -> dict[int, int]:
    """Return the number of dependent loads before each load in its region, by the number of its statement."""
    depths: dict[int, int] = {}
    for region in regions(steps):
        behind: dict[str, int] = defaultdict(int)
        stores = StoreOrder()
        for statement in (s for i in region for s in steps[i].statements if isinstance(s, Instruction)):
            defined, used = defined_and_used(statement, {})
            depth = max([int(stores.before(statement)), *(behind[name] for name in used)])
            stores.add(statement, depth)
            if statement.op[0] in ("ld", "ldu"):
                depths[statement.number] = depth
                depth += "param" not in statement.op
            behind.update(dict.fromkeys(defined, depth))
    return depths
