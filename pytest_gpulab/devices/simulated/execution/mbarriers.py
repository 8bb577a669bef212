"""Asynchronous barriers in shared memory (`mbarrier`, PTX ISA 9.7.13.15), which count arrivals per phase.

A phase is complete after the expected number of arrivals, if all announced bytes have been copied. PTX leaves the
64-bit layout of barriers and tokens open. Here a token is the barrier's value before the arrival.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.groups.group import Union
from pytest_gpulab.devices.simulated.groups.lanes import IndexArray, Lanes, Value, first_lane
from pytest_gpulab.devices.simulated.hazards.accesses import PHASES, in_phase
from pytest_gpulab.devices.simulated.translation.sites import Site

if TYPE_CHECKING:
    from .wave import Wave

Counts = npt.NDArray[np.int64]
_BITS, _PHASE_BITS = 20, PHASES.bit_length() - 1
MAX_COUNT = (1 << _BITS) - 1  # of arrivals, and of announced bytes
_PENDING, _BYTES, _PHASE = _BITS, 2 * _BITS, 64 - _PHASE_BITS  # first bits of a barrier's fields


class _State(NamedTuple):
    """Barriers, one per entry: arrivals per phase, pending arrivals, pending bytes, the phase."""

    expected: Counts
    pending: Counts
    nbytes: Counts
    phase: Counts

    def word(self) -> npt.NDArray[np.uint64]:
        """Return the barriers as 64-bit words in memory."""
        fields = (self.expected, 0), (self.pending, _PENDING), (self.nbytes + MAX_COUNT, _BYTES), (self.phase, _PHASE)
        words = [field.astype(np.uint64) << np.uint64(start) for field, start in fields]
        word: npt.NDArray[np.uint64] = words[0] | words[1] | words[2] | words[3]
        return word


def _state(word: npt.NDArray[np.uint64]) -> _State:
    starts = (0, _BITS), (_PENDING, _BITS), (_BYTES, _BITS + 1), (_PHASE, _PHASE_BITS)
    fields = [(word >> np.uint64(start) & np.uint64((1 << bits) - 1)).astype(np.int64) for start, bits in starts]
    return _State(fields[0], fields[1], fields[2] - MAX_COUNT, fields[3])


class _Named(NamedTuple):
    """The distinct barriers that some lanes name."""

    row: IndexArray  # row of the first word of each
    column: IndexArray  # column of the first word of each
    which: IndexArray  # index of each lane's barrier; broadcastable to the lanes
    alike: bool  # True if every block of the wave names the same barrier

    def common(self, state: _State) -> IndexArray:
        """Return `which`, reduced to one block if the barriers of all blocks have the same state."""
        same = len(self.which) == 1 and all((field == field[0]).all() for field in state)
        return self.which[:, :1] if same else self.which

    def running(self, lanes: Lanes, count: Value) -> Counts:
        """Return the running sum of counts per barrier at each lane; broadcastable to the lanes."""
        count = np.asarray(count, np.int64)
        if self.which.shape[0] == 1 and not lanes.flat:
            height = count if count.ndim and count.shape[0] > 1 else np.broadcast_to(count, (lanes.shape[0], 1))
            if count.ndim and count.shape[0] == 1:
                height = np.broadcast_to(count, (lanes.shape[0], count.shape[1]))
            return np.cumsum(height, axis=0)
        which = np.broadcast_to(self.which, lanes.shape).ravel()
        order = np.argsort(which, kind="stable")
        sums = np.cumsum(np.broadcast_to(count, lanes.shape).ravel()[order])
        starts = np.searchsorted(which[order], np.arange(len(self.row)))
        before = np.concatenate(([0], sums))[starts]
        result = np.empty(len(which), np.int64)
        result[order] = sums - before[which[order]]
        return result.reshape(lanes.shape)

    def totals(self, running: Counts) -> Counts:
        """Return the largest running count of each barrier."""
        most = np.zeros(len(self.row), np.int64)
        if self.which.shape[0] == 1 and len(running) > 1:
            running = running[-1:]
        which = np.broadcast_to(self.which, np.broadcast_shapes(self.which.shape, running.shape))
        np.maximum.at(most, which, np.broadcast_to(running, which.shape))
        return most


class Arrival(NamedTuple):
    """A way to arrive at an mbarrier."""

    drops: bool = False  # True if later phases expect fewer arrivals, by the same count
    may_complete: bool = True  # True if it can complete the phase
    releases: bool = False  # True if it has release semantics


_PLAIN = Arrival()


class Mbarriers:
    """The asynchronous barriers of a wave's blocks."""

    def __init__(self, wave: Wave) -> None:
        self._wave = weakref.proxy(wave)  # it holds this: a cycle would keep its memory until a garbage collection
        self.changes = 0  # number of phases that were completed, or may be completed by a copy
        self._valid: npt.NDArray[np.bool_] | None = None

    # --- calls from generated code -------------------------------------------------------------------------------

    def init(self, lanes: Lanes, site: Site, address: Value, count: Value) -> None:
        """Initialise barriers that expect `count` arrivals per phase."""
        self.reach(lanes, site, address)
        bad = (count == 0) | (count > MAX_COUNT)
        if bad.any():
            wrong = int(np.broadcast_to(count, lanes.shape)[np.broadcast_to(bad, lanes.shape)][0])
            self._refuse(f"a barrier for {wrong} arrivals; 1 to {MAX_COUNT} are possible", lanes, site, bad)
        named = self.named(lanes, address)
        if self._valid is None:
            self._valid = np.zeros((len(self._wave.shared.words), self._wave.shape.columns), np.bool_)
        self._valid[named.row, named.column] = True
        expected = np.zeros(len(named.row), np.int64)
        expected[named.which] = count
        self._write(named, _State(expected, expected, 0 * expected, 0 * expected))

    def invalidate(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Invalidate barriers."""
        self.reach(lanes, site, address)
        named = self.named(lanes, address)
        if self._valid is not None:
            self._valid[named.row, named.column] = False

    def arrive(self, lanes: Lanes, site: Site, address: Value, count: Value, *how: bool) -> Value:
        """Count `count` arrivals per lane at the barriers at `address`; return their tokens. `how` is an `Arrival`."""
        self.reach(lanes, site, address)
        return self.count(lanes, site, address, count, Arrival(*how))

    def expect(self, lanes: Lanes, site: Site, address: Value, nbytes: Value, sign: int = 1) -> None:
        """Announce bytes that will be copied in this phase (`sign` 1), or count copied bytes (-1)."""
        self.reach(lanes, site, address)
        self.count_bytes(lanes, site, address, nbytes, sign)

    def test(self, lanes: Lanes, site: Site, address: Value, wanted: Value, by_parity: bool, acquires: bool) -> Value:
        """Return per lane whether the phase of its token or parity is complete."""
        self._wave.copies.land(lanes, address)
        self._wave.bulk_copies.land(lanes, address)
        named = self._known(lanes, site, address)
        state = self._read(named)
        phase = state.phase[named.common(state)]
        if by_parity:
            done = phase & 1 != (wanted & wanted.dtype.type(1)).astype(np.int64)
        else:
            done = phase != (wanted >> np.uint64(_PHASE)).astype(np.int64)
        if not done.any():
            return np.False_
        subset = None if done.all() else lanes.subset(np.ascontiguousarray(np.broadcast_to(done, lanes.shape)))
        if self._wave.checker is not None:
            mine, at = (lanes, address) if subset is None else (subset.lanes, subset.take(address))
            self.reach(mine, site, at)
            if acquires:
                ended = (phase - 1) % PHASES if by_parity else wanted >> np.uint64(_PHASE)
                mine_of = ended if subset is None or ended.ndim == 0 else subset.take(ended)
                self._wave.checker.phase(mine, in_phase(at, mine_of), "wait")
        return np.True_ if subset is None else done

    @staticmethod
    def pending_count(token: Value) -> Value:
        """Return the pending arrivals in a token."""
        return _state(token).pending.astype(np.uint32)[()]

    # --- calls from asynchronous copies --------------------------------------------------------------------------

    def reach(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Check an access to shared memory, and record it for the race check."""
        self._wave.shared.check(lanes, site, address)
        if self._wave.checker is not None:
            self._wave.checker.access_mbarrier(lanes, site, address)

    def named(self, lanes: Lanes, address: Value) -> _Named:
        """Return the barriers that lanes name."""
        columns = self._wave.shape.columns
        if not lanes.flat and (address.ndim == 0 or address.shape[0] == 1):
            row = np.broadcast_to(np.reshape(address, -1).astype(np.intp) >> 2, len(lanes.columns))
            alike = address.size == 1 and lanes.all_columns
            return _Named(row, lanes.columns, np.arange(len(lanes.columns)).reshape(1, -1), alike)
        keys, which = np.unique(lanes.shared_keys(address), return_inverse=True)
        return _Named(keys // columns >> 2, keys % columns, which.reshape(lanes.shape), False)

    def hold(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Add one expected arrival per lane to the current phase, for the lane's copies."""
        named = self._known(lanes, site, address)
        state = self._read(named)
        more = state.pending + named.totals(named.running(lanes, np.uint32(1)))
        self._write(named, state._replace(pending=np.minimum(more, MAX_COUNT)))

    def count(self, lanes: Lanes, site: Site, address: Value, count: Value, how: Arrival = _PLAIN) -> Value:
        """Count arrivals, phase after phase; return tokens. See `arrive`."""
        whole, pieces, tokens = lanes, [], []
        while True:
            named = self._known(lanes, site, address)
            pending = self._read(named).pending[named.which]
            running = named.running(lanes, count)
            fits = running <= pending
            if fits.all():
                pieces.append(lanes)
                tokens.append(self._count(lanes, site, address, named, running, count, how))
                break
            if np.any(first := ~fits & (running == count)):
                missing = int(np.broadcast_to(pending, lanes.shape)[np.broadcast_to(first, lanes.shape)][0])
                more = f"the phase waits for {missing} more arrivals" if missing else "all of its phase have arrived"
                self._refuse(f"too many arrivals at a barrier: {more}", lanes, site, first)
            now, later = (lanes.subset(np.ascontiguousarray(np.broadcast_to(at, lanes.shape))) for at in (fits, ~fits))
            pieces.append(now.lanes)
            tokens.append(self.count(now.lanes, site, now.take(address), now.take(np.asarray(count)), how))
            lanes, address, count = later.lanes, later.take(address), later.take(np.asarray(count))
        return tokens[0] if len(tokens) == 1 else Union(pieces, whole).join(tokens)

    def count_bytes(self, lanes: Lanes, site: Site, address: Value, nbytes: Value, sign: int) -> None:
        """Count announced (1) or copied (-1) bytes."""
        named = self._known(lanes, site, address)
        state = self._read(named)
        missing = state.nbytes + sign * named.totals(named.running(lanes, nbytes))
        if (bad := abs(missing) > MAX_COUNT).any():
            what = f"more than {MAX_COUNT} bytes announced or copied in a phase of a barrier"
            self._refuse(what, lanes, site, np.broadcast_to(bad[named.which], lanes.shape))
        self._store(named, state._replace(nbytes=missing), site, lanes, may_complete=True)

    # --- the state ----------------------------------------------------------------------------------------------

    def _count(
        self,
        lanes: Lanes,
        site: Site,
        address: Value,
        named: _Named,
        running: Counts,
        count: Value,
        how: Arrival,
    ) -> Value:
        """Count the arrivals of one phase."""
        state = self._read(named)
        which = named.common(state)
        before = state.pending[which] - (running - np.asarray(count, np.int64))
        token = _State(state.expected[which], before, state.nbytes[which], state.phase[which]).word()
        totals = named.totals(running)
        state = state._replace(pending=state.pending - totals)
        if how.drops:
            state = state._replace(expected=np.maximum(state.expected - totals, 0))
        if how.releases and self._wave.checker is not None:
            self._wave.checker.phase(lanes, address, "arrive")
        self._store(named, state, site, lanes, how.may_complete)
        return token

    def _store(self, named: _Named, state: _State, site: Site, lanes: Lanes, may_complete: bool) -> None:
        """Write barriers, and advance those with a complete phase."""
        done = (state.pending == 0) & (state.nbytes == 0)
        if done.any():
            if not may_complete:
                what = "an arrival that must not complete a phase of a barrier completes it"
                self._refuse(what, lanes, site, np.broadcast_to(done[named.which], lanes.shape))
            self.changes += 1
            pending = np.where(done, state.expected, state.pending)
            state = state._replace(pending=pending, phase=np.where(done, (state.phase + 1) % PHASES, state.phase))
            self._record_complete(named, done, (state.phase - 1) % PHASES)
        self._write(named, state)

    def _record_complete(self, named: _Named, done: npt.NDArray[np.bool_], phase: Counts) -> None:
        """Report complete phases to the race check; one lane represents each block."""
        checker, shape = self._wave.checker, self._wave.shape
        if checker is None:
            return
        place = in_phase(4 * named.row, phase)
        if named.alike and done.all() and (place == place[0]).all():
            lanes = Lanes(shape, np.zeros(1, np.intp), np.arange(shape.columns), False)
            checker.phase(lanes, place[0], "complete")
            return
        columns = named.column[done]
        lanes = Lanes(shape, np.zeros(len(columns), np.intp), columns, True)
        checker.phase(lanes, place[done].reshape(-1, 1), "complete")

    def _known(self, lanes: Lanes, site: Site, address: Value) -> _Named:
        """Return the barriers that lanes name, which must be initialised."""
        self._wave.shared.check(lanes, site, address)
        named = self.named(lanes, address)
        valid = np.zeros(len(named.row), np.bool_) if self._valid is None else self._valid[named.row, named.column]
        if not valid.all():
            what = "a barrier in shared memory that is not initialised"
            self._refuse(what, lanes, site, np.broadcast_to(~valid[named.which], lanes.shape))
        return named

    def _read(self, named: _Named) -> _State:
        words = self._wave.shared.words
        low, high = words[named.row, named.column], words[named.row + 1, named.column]
        return _state(low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32))

    def _write(self, named: _Named, state: _State) -> None:
        words, word = self._wave.shared.words, state.word()
        words[named.row, named.column] = word.astype(np.uint32)
        words[named.row + 1, named.column] = (word >> np.uint64(32)).astype(np.uint32)

    @staticmethod
    def _refuse(what: str, lanes: Lanes, site: Site, bad: npt.NDArray[Any]) -> None:
        raise KernelFault("barrier", f"invalid arguments: {what}", site.where, first_lane(lanes, bad))
