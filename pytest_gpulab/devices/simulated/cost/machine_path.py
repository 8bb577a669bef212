"""The critical path of a warp from machine code: the cycles at which its scheduler issues each instruction.

The assembler schedules for a pipeline without interlocks. Each instruction states how many cycles later the next one
may issue. A result of variable latency has one of six scoreboards, and the instructions that need it wait for that.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.sass import instructions as sass
from pytest_gpulab.devices.simulated.sass.executions import Executions, MachineKernel
from pytest_gpulab.devices.simulated.sass.instructions import MachineInstruction

_SCOREBOARDS = 6
_SHARED = {sass.LDS, sass.ATOMS, sass.ATOMS_CAS, sass.LDC}
_CACHED = {sass.LDG, sass.LD, sass.LDL}
_ATOMICS = {sass.ATOMG, sass.ATOMG_CAS}
_WARP_WIDE = {sass.SHFL, sass.VOTE, sass.VOTEU, sass.MATCH, sass.REDUX}
_BY_REGISTER = {sass.RET, sass.BRX, sass.JMX, sass.CALL_ABSOLUTE}


def issue_cycles(
    kernel: MachineKernel, found: Executions, strong: frozenset[int], gpu: Gpu
) -> Iterator[tuple[int, float]]:
    """Yield pieces of the paths of all warps: a statement's number, and cycles.

    A warp with a false guard in all lanes issues an instruction, but waits for nothing. Its cycle is a piece of the
    last instruction without a guard. `found` are the executions of the machine code, `strong` the numbers of loads that
    observe other threads' writes, so that they bypass L1.
    """
    starts = np.cumsum([0] + [len(block.instructions) for block in kernel.blocks])
    entered = _likely(kernel, found, starts)
    left: dict[int, list[float]] = {}
    for last_round in (False, True):  # the blocks of a loop begin with what its last iteration has not waited for
        for i, block in enumerate(kernel.blocks):
            ready = list(left.get(entered.get(i, -1), [0.0] * _SCOREBOARDS))
            now, always = 0.0, kernel.numbers[starts[i]]
            for k, instruction in enumerate(block.instructions, int(starts[i])):
                start = max([now, *(ready[j] for j in range(_SCOREBOARDS) if instruction.waits >> j & 1)])
                if instruction.result < _SCOREBOARDS:
                    done = start + _latency(instruction, strong, gpu)
                    ready[instruction.result] = max(ready[instruction.result], done)
                always = always if instruction.guarded else kernel.numbers[k]
                after = start + max(instruction.stall, 1)
                if last_round:
                    yield kernel.numbers[k], (start - now + _further(instruction, gpu)) * found.active[k]
                    yield always, (after - start) * found.warps[k]
                now = after
            left[i] = [max(time - now, 0.0) for time in ready]


def _further(instruction: MachineInstruction, gpu: Gpu) -> float:
    """Return the cycles of an executed instruction in addition to its stall count."""
    if instruction.operation == sass.BAR:
        return gpu.barrier_latency
    if instruction.operation in _BY_REGISTER:
        return gpu.jump_latency
    return gpu.branch_latency - instruction.stall if instruction.jumps else 0.0


def _likely(kernel: MachineKernel, found: Executions, starts: npt.NDArray[np.intp]) -> dict[int, int]:
    """Return the block from which most warps enter each block."""
    best: dict[int, tuple[float, int]] = {}
    for i, block in enumerate(kernel.blocks):
        for target in block.targets:
            taken = found.active[starts[i + 1] - 1]
            jumped = block.last.jumps and target == block.targets[0]
            warps = taken if jumped else found.warps[starts[i + 1] - 1] - taken * (len(block.targets) > 1)
            best[target] = max(best.get(target, (-1.0, -1)), (warps, i))
    return {target: source for target, (_, source) in best.items()}


def _latency(instruction: MachineInstruction, strong: frozenset[int], gpu: Gpu) -> float:
    """Return the cycles until a result of variable latency is ready."""
    operation = instruction.operation
    if operation in _CACHED:
        return gpu.l2_latency if instruction.number in strong else gpu.l1_latency
    if operation in _ATOMICS:
        return gpu.l2_latency
    if operation in _SHARED:
        return gpu.shared_latency
    return gpu.shuffle_latency if operation in _WARP_WIDE else gpu.special_latency
