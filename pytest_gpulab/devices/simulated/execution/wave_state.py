"""The state of a wave, for the detection of endless loops (`groups.stalled`)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.group import Group, bits
from pytest_gpulab.devices.simulated.groups.lanes import Value
from pytest_gpulab.devices.simulated.groups.stalled import Rest, Threads, hashed

from .scheduler import Scheduler


class WaveState:
    """The registers, memory and barriers of a scheduler's wave."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._of = scheduler

    def own(self, group: Group, block: int) -> Threads:
        """Return the registers of a group at the back edge to a block."""
        return (group.tag, block), group.lanes, self._live(group, block)

    def rest(self) -> Rest:
        """Return the registers of all other groups, and a hash of all memory and barriers."""
        return list(self._others()), self._memory()

    def changes(self) -> int:
        """Return the count of steps that may have changed more than the registers of one group."""
        return self._of.changes

    def _others(self) -> Iterator[Threads]:
        for key in sorted(self._of.ready):
            for group in self._of.ready[key]:
                yield key, group.lanes, self._live(group, key[1])
        for kind, groups in (("stalled", self._of.stalled.groups), ("phase", self._of.phase_waits)):
            for group, block in groups:
                yield (kind, block), group.lanes, self._live(group, block)
        for key in sorted(self._of.partial_warps):
            for group in self._of.partial_warps[key]:
                yield ("partial", key), group.lanes, self._live(group, key[1])
        for entry in self._of.barriers.waiting:
            values = self._live(entry.group, entry.step.targets[0])
            known = values if entry.predicate is None else [*values, np.asarray(entry.predicate)]
            yield ("waiting", entry.block, entry.number, entry.threads), entry.group.lanes, known

    def _live(self, group: Group, block: int) -> list[Value]:
        step = self._of.steps[block]
        return [group.get(register) for register in bits(step.live_in & ~step.results)]

    def _memory(self) -> bytes:
        """Return a hash of memory and barriers. A read of the clock counts as a change."""
        wave, barriers = self._of.wave, self._of.barriers
        early = barriers.arrived_early
        arrays = [*wave.arena.contents(), *self._own_memories(), barriers.alive, *early.values()]
        return hashed(arrays, [wave.clock.reads, *early])

    def _own_memories(self) -> list[npt.NDArray[Any]]:
        wave = self._of.wave
        return [wave.shared.words, wave.local.words, *([] if wave.stack is None else [wave.stack.slots])]

    def fingerprint(self) -> int:
        """Return a checksum of registers and of shared and local memory."""
        changes = self._of.wave.clock.reads + self._of.left_waits
        check = zlib.crc32(np.packbits(self._of.barriers.alive).tobytes(), changes)
        for array in self._own_memories():
            check = zlib.crc32(array.data if array.size else b"", check)
        for _, _, values in self._others():
            for value in values:
                check = zlib.crc32(value.tobytes(), check)
        return check
