"""Warp convergence at `_sync` operations: lanes that wait for other lanes, and the rules for masks."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.groups.group import Group, reconverge
from pytest_gpulab.devices.simulated.groups.lanes import LANE_BITS, WARP, Lanes, Subset, Value, from_warps, to_warps
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock
from pytest_gpulab.devices.simulated.warps.collectives import OTHERS, activemask

from .barriers import Barriers
from .scheduler import Key
from .wave import Wave

_ALL_LANES = 0xFFFFFFFF
_NONE = np.uint32(0)


class PartialWarps:
    """The lanes of a wave that wait for other lanes of their warps.

    The scheduler resumes the groups that remain in `waiting` at the end; `ready` are those that can run, by key.
    """

    def __init__(
        self, wave: Wave, barriers: Barriers, waiting: dict[Key, list[Group]], ready: dict[Key, list[Group]]
    ) -> None:
        self._wave, self._barriers, self.waiting, self._ready = wave, barriers, waiting, ready

    def complete(self, group: Group, block: int, step: TranslatedBlock) -> Group | None:
        """Return the lanes of complete warps, or None. If the launch checks hazards, check their masks, too."""
        whole = self._gathered(group, block, step)
        if whole is not None and step.mask is not None and self._wave.checker is not None:
            self._check_mask(whole.lanes, step.mask(self._wave, whole), step.where)
        return whole

    def _gathered(self, group: Group, block: int, step: TranslatedBlock) -> Group | None:
        """Store the lanes with masks that name lanes still missing; return the other lanes."""
        key = (group.tag, block)
        if key in self.waiting:
            group = reconverge([group, *self.waiting.pop(key)], step.live_in)
        missing = self._missing(group, step)
        if missing is None or not missing.any():
            return group
        if missing.all():
            self.waiting.setdefault(key, []).append(group)
            return None
        missing = np.ascontiguousarray(np.broadcast_to(missing, group.lanes.shape))
        subsets: list[Subset] = [group.lanes.subset(missing), group.lanes.subset(~missing)]
        waiting, complete = group.diverge(subsets, [step.live_in] * 2)
        self.waiting.setdefault(key, []).append(waiting)
        return complete

    def _missing(self, group: Group, step: TranslatedBlock) -> Any:
        lanes = group.lanes
        if lanes.full or _has_whole_warps(lanes) or step.mask is None:
            return None
        absent = step.mask(self._wave, group) & ~activemask(lanes)
        missing = absent & self._barriers.alive_bits(lanes)
        if missing.any() and (leaving := self._leaving()):
            missing = absent & self._barriers.alive_bits(lanes, leaving)
        return missing != 0

    def _leaving(self) -> list[Lanes]:
        """Return the lanes that have nothing left to do but to exit: `if (i >= n) return;` does not miss a `_sync`."""
        steps = self._wave.launch.program.steps
        exits = (groups for (_, block), groups in self._ready.items() if steps[block].only_exits)
        return [group.lanes for groups in exits for group in groups]

    def _check_mask(self, lanes: Lanes, mask: Value, where: SourceLine | None) -> None:
        """Note a hazard if a mask lacks its own thread, or if threads of one warp have different masks.

        CUDA requires that a mask has the calling thread's bit, and that all threads that it names pass the same mask.
        """
        if mask.ndim == 0 and int(mask) == _ALL_LANES:
            return
        grid = to_warps(lanes, np.broadcast_to(mask, lanes.shape if mask.ndim else (lanes.shape[0], 1)), _NONE)
        missing = from_warps(lanes, grid & LANE_BITS == 0)
        if missing.any():
            self._invalid("must name the thread that calls it", where, lanes, missing)
        elif mask.ndim and mask.size > 1:
            others = grid.transpose(1, 0, 2)[:, :, None]  # (32, warps, 1, blocks), for comparison with the whole warp
            differs = ((others != grid) & (others != _NONE) & (grid & OTHERS != 0)).any(axis=0)
            if (bad := from_warps(lanes, differs)).any():
                self._invalid("must be the same in all threads that it names", where, lanes, bad)

    def _invalid(self, rule: str, where: SourceLine | None, lanes: Lanes, bad: npt.NDArray[np.bool_]) -> None:
        self._wave.note_lanes(f"invalid arguments: the mask of a _sync operation {rule}", where, lanes, bad)


def _has_whole_warps(lanes: Lanes) -> bool:
    """Return whether every warp among the lanes is complete."""
    if lanes.flat:
        return False
    last = lanes.wave.threads % WARP
    expected = lanes.warp_count // len(lanes.columns) * WARP
    if last and lanes.threads[-1] // WARP == lanes.wave.warps - 1:
        expected -= WARP - last
    return len(lanes.threads) == expected
