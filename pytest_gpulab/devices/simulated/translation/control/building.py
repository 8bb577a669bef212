"""Building the control-flow graph of an inlined kernel, with its basic blocks in scheduling order.

The scheduler always advances the lanes in the lowest block, so the order decides where diverged lanes meet again. It is
topological with each loop's blocks kept together: the exit of a loop comes after its body.
"""

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Function, Instruction, Label, Statement, Sym
from pytest_gpulab.devices.simulated.translation.control import graph


def build(function: Function) -> graph.Graph:
    """Return the graph of an inlined kernel; CannotSimulate for an unknown label or a malformed instruction."""
    blocks = Splitter(function).run()
    _mark_loops(blocks)
    try:
        order = schedule(blocks)
    except RecursionError:
        raise CannotSimulate("loops nested this deeply") from None
    position = {old: new for new, old in enumerate(order)}
    ordered = [blocks[old] for old in order]
    for block in ordered:
        block.targets = tuple(position[target] for target in block.targets)
    registers = {name: i for i, name in enumerate(function.registers)}
    graph.liveness(ordered, registers)
    for block in ordered:
        graph.discard_unused(block, registers)
    _mark_spins(ordered)
    return graph.Graph(ordered, registers)


def _mark_loops(blocks: list[graph.Block]) -> None:
    """Set `Block.loops`: jumps between functions are no loops. `blocks` are in the order of the statements."""
    targets = {i: [*_targets_in_function(i, block)] for i, block in enumerate(blocks)}
    if all(tuple(targets[i]) == block.targets for i, block in enumerate(blocks)):
        return
    for found in components(list(targets), targets, 0):
        for i in found:
            blocks[i].loops = len(found) > 1 or i in targets[i]


def _targets_in_function(i: int, block: graph.Block) -> tuple[int, ...]:
    """Return the targets of a block, with calls of recursive functions taken as straight code."""
    last = block.body[-1] if block.body else None
    op = last.op[0] if isinstance(last, Instruction) else ""
    return {graph.ENTER: (i + 1,), graph.RETURN: ()}.get(op, block.targets)


def _sees_others(block: graph.Block) -> bool:
    """Return whether the block can observe a write of another thread, so that a loop over it may be a wait."""
    words = {word for s in block.body if isinstance(s, Instruction) for word in s.op}
    return bool(
        words & {"volatile", "acquire", "relaxed", "acq_rel", "atom", "membar", "fence", "nanosleep", "mmio", "warp"}
        or words & graph.MBARRIER_TESTS
    )


def _mark_spins(blocks: list[graph.Block]) -> None:
    for i, block in enumerate(blocks):
        backs = [target for target in block.targets if target <= i]
        if backs:
            block.spins = any(_sees_others(inner) for inner in blocks[min(backs) : i + 1])


def schedule(blocks: list[graph.Block]) -> list[int]:
    """Return the reachable blocks in scheduling order.

    It orders strongly connected components and, inside each, again without the edges back to its header.
    """
    successors = {i: list(block.targets) for i, block in enumerate(blocks)}
    reachable: set[int] = set()
    stack = [0]
    while stack:
        node = stack.pop()
        if node not in reachable:
            reachable.add(node)
            stack.extend(successors[node])
    return _order(sorted(reachable), {n: successors[n] for n in reachable}, 0)


def _order(nodes: list[int], successors: dict[int, list[int]], entry: int) -> list[int]:
    result: list[int] = []
    for component in reversed(components(nodes, successors, entry)):
        if len(component) == 1:
            result += component
            continue
        inside = set(component)
        entered = {t for n in nodes if n not in inside for t in successors[n] if t in inside}
        header = entry if entry in inside else min(entered)
        inner = {n: [t for t in successors[n] if t in inside and t != header] for n in component}
        result += _order(sorted(component), inner, header)
    return result


def components(nodes: list[int], successors: dict[int, list[int]], entry: int) -> list[list[int]]:
    """Return strongly connected components, successors before predecessors (Tarjan's algorithm, iterative)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    found: list[list[int]] = []
    for root in [entry, *nodes]:
        work = [] if root in index else [(root, iter(successors[root]))]
        while work:
            node, children = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            child = next((c for c in children if c not in index or c in on_path), None)
            if child is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = [path.pop()]
                    while component[-1] != node:
                        component.append(path.pop())
                    found.append(component[::-1])
                    on_path.difference_update(component)
            elif child in index:
                low[node] = min(low[node], index[child])
            else:
                work.append((child, iter(successors[child])))
    return found


_CUTTING = frozenset({"bra", "brx", "ret", "exit", "trap", *graph.BARRIERS, *graph.WARP_SYNC})


def _is_straight(instruction: Instruction) -> bool:
    """Return whether an instruction neither begins nor ends a block."""
    return instruction.guard is None and instruction.op[0] not in _CUTTING


class Splitter:
    """A splitter of statement lists at labels, jumps, barriers and warp-synchronising instructions."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.blocks = [graph.Block()]
        self.labels: dict[str, int] = {}
        self.jumps: list[tuple[graph.Block, tuple[str | int, ...]]] = []
        self.open = True  # True while the last block accepts statements

    def run(self) -> list[graph.Block]:
        """Return the blocks in the order of the statements; raise CannotSimulate as `build`."""
        statement: Statement | None = None
        try:
            for statement in self.function.body:
                if self.open and type(statement) is Instruction and _is_straight(statement):
                    self.blocks[-1].body.append(statement)
                else:
                    self._statement(statement)
        except graph.MALFORMED:
            raise graph.refusal(statement) from None
        if self.open:
            self._finish("exit", None, ())
        for block, targets in self.jumps:
            block.targets = tuple(self._target(block, target) for target in targets)
        return self.blocks

    def _statement(self, statement: Statement) -> None:
        if isinstance(statement, Label):
            self.labels[statement.name] = self._start()
        elif isinstance(statement, Call):
            self._current().body.append(statement)
        else:
            self._instruction(statement)

    def _target(self, block: graph.Block, target: str | int) -> int:
        if isinstance(target, str) and target not in self.labels:
            raise CannotSimulate(f"a jump to {target}", block.last.where if block.last else block.where)
        return self.labels[target] if isinstance(target, str) else target

    def _current(self) -> graph.Block:
        if not self.open:
            self._append()
        return self.blocks[-1]

    def _append(self) -> int:
        self.blocks.append(graph.Block())
        self.open = True
        return len(self.blocks) - 1

    def _start(self) -> int:
        """Begin a new block unless the last one is still empty; return its index."""
        if self.open and not self.blocks[-1].body and not self.blocks[-1].converge:
            return len(self.blocks) - 1
        if self.open:
            self._finish("goto", None, (len(self.blocks),))
        return self._append()

    def _finish(self, end: str, last: Instruction | None, targets: tuple[str | int, ...]) -> None:
        block = self._current()
        block.end, block.last = end, last
        self.jumps.append((block, targets))
        self.open = False

    def _instruction(self, instruction: Instruction) -> None:
        op = instruction.op[0]
        if op == "bra":
            self._branch(instruction)
        elif instruction.guard is not None:
            self._predicated(instruction)
        elif op == "brx":
            label = instruction.operands[-1]
            targets = self.function.branch_targets.get(label.name) if isinstance(label, Sym) else None
            if targets is None:
                raise CannotSimulate(f"the instruction {instruction.name}", instruction.where)
            self._finish("switch", instruction, targets)
        elif op in ("ret", "exit"):
            self._finish("exit", instruction, ())
        elif instruction.op[:3] == ("barrier", "cluster", "arrive"):
            self._current().body.append(instruction)  # `barrier.cluster.wait` waits for the threads
        elif op in graph.BARRIERS and "warp" not in instruction.op:
            self._current()
            self._finish("barrier", instruction, (len(self.blocks),))
        else:
            if op in graph.WARP_SYNC or (op in graph.BARRIERS and "warp" in instruction.op):
                self._start()
                self.blocks[-1].converge = True
            self._current().body.append(instruction)
            if op == "trap":
                self._finish("exit", None, ())

    def _branch(self, instruction: Instruction) -> None:
        target = instruction.operands[0]
        if not isinstance(target, Sym):
            raise CannotSimulate(f"the instruction {instruction.name}", instruction.where)
        self._current()
        if instruction.guard is None:
            self._finish("goto", instruction, (target.name,))
        else:
            self._finish("branch", instruction, (target.name, len(self.blocks)))

    def _predicated(self, instruction: Instruction) -> None:
        """Put `op` of `@p op` into a block of its own, as groups have no masks: other lanes jump over it."""
        assert instruction.guard is not None
        register, negated = instruction.guard
        self._current()
        skip = Instruction(("bra",), (), (register, not negated), instruction.where)
        self._finish("branch", skip, ())
        branch, jump = self.blocks[-1], len(self.jumps) - 1
        inner = self._append()
        self._instruction(instruction._replace(guard=None))
        self.jumps[jump] = (branch, (self._start(), inner))
