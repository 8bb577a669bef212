"""The translation of one kernel of a PTX module into a `Program`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.collector import without_collector
from pytest_gpulab.devices.simulated.ptx.syntax import Function, Label, PtxModule

from .analysis.loads import awaited, guesses
from .analysis.phase_waits import phase_waits
from .blocks import TranslatedBlock
from .calls.inline import inline
from .control.building import build
from .control.graph import Block, Graph
from .emission.block import Names
from .functions import barrier_result, write
from .layout import Layout
from .program import Program
from .refusals import with_feature


def translate(
    module: PtxModule,
    kernel: Function,
    addresses: dict[str, int],
    vocabulary: Mapping[str, Any],
    frame_bytes: Callable[[], Mapping[str, int]] = dict,
) -> Program:
    """Translate a kernel.

    Args:
        module, kernel: parsed PTX.
        addresses: addresses of the module's global and constant variables.
        vocabulary: functions that the generated code may call, by name.
        frame_bytes: function that returns the stack frame of each function in machine code, by symbol, in bytes. It is
            called only for kernels with recursion.

    Raises:
        CannotSimulate: an opcode, type or modifier is not supported; with the opcode, file and line.
    """
    with without_collector():
        try:
            return _translated(module, kernel, addresses, vocabulary, frame_bytes)
        except CannotSimulate as error:
            raise with_feature(error) from None


def _translated(
    module: PtxModule,
    kernel: Function,
    addresses: dict[str, int],
    vocabulary: Mapping[str, Any],
    frame_bytes: Callable[[], Mapping[str, int]],
) -> Program:
    flat, calls = inline(module, kernel, frame_bytes)
    graph = build(flat)
    layout = Layout(module, flat, addresses)
    names = Names(flat.registers, graph.registers, layout.addresses)
    names.guesses, names.awaited = guesses(graph.blocks), awaited(graph.blocks)
    source, masks = write(graph, names)
    namespace = names.namespace
    namespace.update(vocabulary)
    namespace.update({f"c{number}": call for number, call in enumerate(calls)})
    exec(
        compile(source, f"<{kernel.name}>", "exec"), namespace
    )  # generated text; it contains no text of the submission
    waits = phase_waits(graph.blocks)
    steps = [_step(i, block, names, namespace, i in masks, i in waits) for i, block in enumerate(graph.blocks)]
    codes = list(names.codes.values())
    return Program(
        kernel.name, steps, codes, layout.parameters, layout.shared, layout.local, names.sites, source, flat,
        layout.banked, addresses, frozenset() if calls else _unset(graph, names), names.fences, names.sees_order,
        names.shuffles, names.grid_syncs, layout.reserved, names.allocates, layout.stack,
    )  # fmt: skip


def _unset(graph: Graph, names: Names) -> frozenset[str]:
    """Return the registers that are read before any write on some path through the kernel.

    Not valid with recursion: the graph then has paths from one call into a function and back to another call.
    """
    needed = graph.blocks[0].live_in if graph.blocks else 0
    return frozenset(name for name, index in names.index.items() if needed >> index & 1)


def _step(i: int, block: Block, names: Names, namespace: dict[str, Any], masked: bool, waits: bool) -> TranslatedBlock:
    targets = block.targets
    if block.end == "branch" and block.last is not None and block.last.guard is not None and block.last.guard[1]:
        targets = targets[::-1]
    register = barrier_result(block)
    result = None
    if register is not None:
        result = (names.index[register], names.codes[register])
    barrier = block.last if block.end == "barrier" else None
    statements = tuple(s for s in (*block.body, block.last) if s is not None and not isinstance(s, Label))
    words = set(barrier.op) if barrier is not None else set()
    if barrier is not None and ("cluster" in words or not {"sync", "red", "arrive"} & words):
        raise CannotSimulate(f"the instruction {barrier.name}", barrier.where)
    return TranslatedBlock(
        run=namespace[f"b{i}"],
        end=block.end,
        targets=targets,
        spins=block.spins,
        loops=block.loops,
        waits=waits,
        where=block.where,
        mask=namespace[f"m{i}"] if masked else None,
        live_in=block.live_in,
        writes=block.defined & block.live_out,
        statements=statements,
        barrier=barrier,
        result=result,
    )
