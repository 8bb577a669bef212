"""Trips of warps through loops that repeat a compare-and-swap, of which the simulator executes one trip only.

In a trip, one lane per address succeeds, so a lane tries again for each lane before it at its address. Lanes of other
warps come before it only if they swap between its read and its swap. A swap that leaves the value as it was fails no
other. The machine code yields to lanes that have left the loop, and they do not wait for the others: in a loop around
it, a warp falls into parts, and each makes trips of its own. The constants were fitted to counters and times of an
H200, see docs/cost-model.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, WARP_BITS, Lanes, Shape, Value
from pytest_gpulab.devices.simulated.translation.program import Program, TranslatedBlock
from pytest_gpulab.devices.simulated.translation.sites import Site

READ_AGAIN, TAKEN_OVER = 0.5, 0.85  # of a trip, between a swap and the load before it, or the last swap
# The same in global memory for 32 lanes, which wait for each other; it is 1 for a lane alone.
READ_AGAIN_ACROSS, TAKEN_OVER_ACROSS = 0.3, 0.36
PARTED, SOON = 2.25, 0.12  # further trips of a warp in parts per try, and the further tries that lead to it
TRIPS_OF_PART = 1.67
PARTS_OF_SOME = 1.7  # parts, and trips, of a warp of which only some lanes enter the loop
CROWDED = 0.65  # of the lanes that try again, if all met others: they stay in the same bank
ROUND_TRIP = 3  # duration of a statement in a loop on global memory, in those of other statements
WAVEFRONTS = 2  # of a swap in shared memory, per lane in a bank
SMS, SM_THREADS = 132, 2048  # of the GPU on which blocks meet in global memory

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Met:
    """Lanes that meet: one entry per warp and address."""

    cells: Counts  # flat index of each warp in the wave's (warps, columns) grid
    warp: Counts  # index in `cells`
    address: Counts
    lanes: Floats  # lanes of the warp at it
    own: Floats  # those of them that change the value
    near: Floats  # lanes of other warps of its block that change it
    far: Floats  # lanes of other blocks that run at the same time and change it

    def per_warp(self, values: Floats) -> Floats:
        """Return the sum of values over the addresses of each warp."""
        return np.asarray(np.bincount(self.warp, values, len(self.cells)), np.float64)


@dataclass(frozen=True)
class Trips:
    """Trips through a loop, and what comes of them: one entry per warp, in `met` one per warp and address."""

    met: Met
    again: Floats  # further swaps of a lane, by warp and address
    trips: Floats  # trips through the loop
    parts: Floats  # parts into which the warp has fallen
    lanes: Floats  # lanes in the loop
    tries: Floats  # swaps of all of them

    def after_a_guess(self) -> Trips:
        """Return the trips if the first swap expects a value that was not read, so that it only reads."""
        return replace(self, again=self.again + 1, trips=self.trips + self.parts, tries=self.tries + self.lanes)

    def wavefronts(self, first: float) -> float:
        """Return the wavefronts of all swaps in shared memory; `first` are those of a trip with all lanes."""
        together = self.met.per_warp(self.met.lanes**2) / self.lanes
        left = (self.tries / self.trips - 1) / np.maximum(self.lanes - 1, 1)
        left = np.clip(np.maximum(left, CROWDED * (1 - 1 / together)), 0, 1)
        return float((self.trips * (WAVEFRONTS + (first - WAVEFRONTS) * left)).sum())


class RetryLoops:
    """The loops of a program that repeat a compare-and-swap."""

    def __init__(self, program: Program) -> None:
        retried = {site.number for site in program.sites if site.is_retried}
        homes = {s.number: i for i, step in enumerate(program.steps) if retried for s in step.statements}
        self._homes = {number: homes[number] for number in retried}
        self._around = {block: _around(program.steps, block) for block in self._homes.values()}
        self.lengths = [len(step.statements) for step in program.steps]
        self._rereads = {
            block: [s for s in program.sites if s.access == "read" and homes[s.number] == block]
            for block in self._homes.values()
        }
        read_first = {site.space for site in program.sites if site.is_guess and site.access == "read"}
        self._guessed = {site.number for site in program.sites if site.is_retried and site.space not in read_first}
        self._entered: set[tuple[Shape, int]] = set()

    def of(self, site: Site) -> tuple[int, Sequence[int], Sequence[Site]]:
        """Return the basic block of a swap's loop, those of the loop around it, and the loads in its loop."""
        block = self._homes[site.number]
        return block, self._around[block], self._rereads[block]

    def trips(
        self, lanes: Lanes, site: Site, address: Value, unchanged: npt.NDArray[np.bool_], executed: float
    ) -> Trips:
        """Return the trips of a group through a loop.

        `unchanged` is a mask of the lanes with an update that changes nothing. `executed` is the number of statements
        that a warp has executed so far.
        """
        found, (block, around, rereads) = _met(lanes, address, unchanged), self.of(site)
        if site.space != "shared":
            window = READ_AGAIN_ACROSS if rereads else TAKEN_OVER_ACROSS
            rounds, trip = prod(lanes.wave.grid) / _at_once(lanes), ROUND_TRIP * self.lengths[block]
            trips = _in_global(found, window, rounds, trip / max(executed, trip))
        else:
            has_parts = bool(around) and (lanes.wave, block) in self._entered
            self._entered.add((lanes.wave, block))
            trips = _in_shared(found, READ_AGAIN if rereads else TAKEN_OVER, has_parts)
        return trips.after_a_guess() if site.number in self._guessed else trips


def _at_once(lanes: Lanes) -> int:
    """Return the number of blocks that run at the same time, if only threads limit it."""
    return max(SM_THREADS // lanes.wave.threads, 1) * SMS


def _met(lanes: Lanes, address: Value, unchanged: npt.NDArray[np.bool_]) -> Met:
    """Return the lanes that meet. Of other blocks, only some run here."""
    threads, columns, _ = lanes.each
    wave, changes = lanes.wave, ~np.broadcast_to(unchanged, lanes.shape).ravel()
    cells, warp = np.unique((threads >> WARP_BITS) * wave.columns + columns, return_inverse=True)
    addresses, place = np.unique(np.broadcast_to(address, lanes.shape).ravel(), return_inverse=True)
    size = len(addresses)
    pairs, pair = np.unique(warp * size + place, return_inverse=True)
    own, total = (np.bincount(pair, counted).astype(np.float64) for counted in (changes, np.ones(len(pair))))
    warp, place_of = np.divmod(pairs, size)
    keys, of_block = np.unique(columns * size + place, return_inverse=True)
    in_block = np.bincount(of_block, changes)[np.searchsorted(keys, cells[warp] % wave.columns * size + place_of)]
    all_lanes, changing = np.bincount(place)[place_of], np.bincount(place, changes)[place_of]
    share = changing / all_lanes  # a maximum changes less and less often
    scale = max(min(prod(wave.grid), _at_once(lanes)) - 1, 0) / max(wave.columns - 1, 1)
    far = (changing - in_block) * max(scale, 1.0) ** np.sqrt(share)
    return Met(cells, warp, addresses[place_of].astype(np.int64), total, own, in_block - own, far)


def _in_shared(found: Met, window: float, has_parts: bool) -> Trips:
    """Return the trips of a loop in shared memory.

    `window` is the share of a trip between a lane's read and its swap. Warps may have fallen into parts if `has_parts`.
    """
    between = window * -np.expm1(-found.near) * found.near  # few warps are in the loop at the same time
    again = (np.maximum(found.own - 1, 0) + between) / 2
    lanes, tries = found.per_warp(found.lanes), found.per_warp(found.lanes * (1 + again))
    last = np.ones(len(lanes))  # the last of a warp's lanes at an address
    np.maximum.at(last, found.warp, np.maximum(found.own, 1 + 2 * again * found.lanes / (found.lanes + 1)))
    trips = np.maximum(_together(lanes, tries), last)
    if not has_parts:
        return Trips(found, again, trips, np.ones(len(trips)), lanes, tries)
    mean = tries / lanes
    apart = np.minimum(mean * (1 - PARTED * np.expm1((1 - mean) / SOON)), tries)
    some = np.where(lanes < WARP, np.minimum(PARTS_OF_SOME, lanes), 1.0)
    trips = np.maximum(np.maximum(trips, apart), some)
    return Trips(found, again, trips, np.maximum(trips / TRIPS_OF_PART, some), lanes, tries)


def _in_global(found: Met, window: float, rounds: float, trip: float) -> Trips:
    """Return the trips of a loop in global memory.

    `window` is the share of a trip between a lane's read and its swap, if its whole warp is in the loop. In all
    `rounds` of blocks but the last, new blocks take the place of those that succeed. `trip` is the time of a trip,
    relative to that of a warp until the loop.
    """
    lanes = found.per_warp(found.lanes)
    alone = (WARP - lanes[found.warp]) / (WARP - 1)
    between = (window + (1 - window) * alone) * (1 - 0.5 / max(rounds, 1.0))
    far = between * found.far
    met = trip * float(far @ found.lanes) / float(lanes.sum())
    # A share s of the other blocks is in the loop, too: s = (trip + met s) / (1 + trip + met s).
    rest = 1 + trip - met
    share = (np.sqrt(rest * rest + 4 * met * trip) - rest) / (2 * met) if met else 0.0
    again = np.maximum(found.own - 1, 0) / 2 + between * found.near + share * far
    tries = found.per_warp(found.lanes * (1 + again))
    return Trips(found, again, _together(lanes, tries), np.ones(len(lanes)), lanes, tries)


def _together(lanes: Floats, tries: Floats) -> Floats:
    """Return the trips of whole warps: the largest of their lanes' numbers of tries, which vary like random events."""
    again = tries / lanes - 1
    return np.asarray(1 + again + np.sqrt(2 * np.log(lanes) * again))


def _around(steps: Sequence[TranslatedBlock], block: int) -> list[int]:
    """Return the other basic blocks of the innermost loop around one, or none if it has a barrier."""
    loops = [range(min(step.targets), i + 1) for i, step in enumerate(steps) if step.targets]
    around = min((loop for loop in loops if block in loop and len(loop) > 1), key=len, default=range(0))
    return [] if any(steps[i].end == "barrier" for i in around) else [i for i in around if i != block]
