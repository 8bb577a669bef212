"""How many passes a warp's accesses to shared memory take: 32 banks of 4 bytes give one word each a pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP

from .requests import Requests

BANKS, _BANK_BITS = 32, 5
_WORD = np.int64(2)  # address bits within one
_DEEPEST = 64  # words of a bank, 8 KiB of shared memory
_AT_ONCE = 256  # rows; larger arrays are mapped and unmapped at each operation, which takes longer than the work
Rows = npt.NDArray[np.int64]


def fresh(rows: Rows) -> npt.NDArray[np.bool_]:
    """Whether each value of sorted rows is not negative and the first of its kind in its row."""
    new = np.empty(rows.shape, np.bool_)
    new[:, 0] = True
    np.not_equal(rows[:, 1:], rows[:, :-1], out=new[:, 1:])
    new &= rows >= 0
    return new


def word_passes(requests: Requests) -> npt.NDArray[np.intp]:
    """Return the passes of each request for elements of up to 4 bytes: the most distinct words in one bank.

    One pass does for a warp whose words lie within as many as there are banks. For others each word is marked in a
    table that has columns for the banks of each request, or, where that would be large, all are sorted.
    """
    words = requests.address >> _WORD
    lowest, highest = requests.span(words)
    apart = highest - lowest >= BANKS
    passes = np.ones(len(apart), np.intp)
    if not apart.any():
        return passes
    base = int(lowest.min()) & -BANKS
    if int(highest.max()) - base < _DEEPEST * BANKS:
        return _marked(words - base, requests)
    passes[apart] = _longest(requests.rows(words, -1)[apart])
    return passes


def _marked(words: Rows, requests: Requests) -> npt.NDArray[np.intp]:
    """Return the most words of a bank for each request."""
    count = len(requests.starts)
    depth = int(words.max()) // BANKS + 1
    place = words >> _BANK_BITS
    place *= count * BANKS
    place += words & (BANKS - 1)
    place += requests.for_lanes(np.arange(0, count * BANKS, BANKS))
    marks = np.zeros(depth * count * BANKS, np.uint8)
    marks[place] = 1
    of_bank = np.add.reduce(marks.reshape(depth, -1), axis=0, dtype=np.uint8)
    return np.asarray(of_bank.reshape(count, BANKS).max(axis=1), np.intp)


def least_wavefronts(rows: Rows, nbytes: int) -> npt.NDArray[np.intp]:
    """Passes that an access by so many lanes of so many bytes would take without bank conflicts."""
    parts = max(nbytes // 4, 1)
    if parts == 1:
        return np.ones(len(rows), np.intp)
    groups = rows.reshape(len(rows) * parts // 2, 2 * WARP // parts)
    active = (groups.reshape(2 * len(groups), -1) >= 0).any(axis=1).reshape(-1, 2).sum(axis=1)
    active[_together(groups)] = 1
    return np.asarray(active.reshape(len(rows), -1).sum(axis=1))


def wavefronts(rows: Rows, nbytes: int) -> npt.NDArray[np.intp]:
    """Passes that each warp's shared-memory access takes: the most distinct words in one bank, summed over its parts.

    8-byte accesses go by half warps, 16-byte ones by quarters; two neighbouring parts go together where every lane has
    the address of the lane beside it, or every lane that of the next but one, absent lanes aside.

    Args:
        rows: byte addresses, (warps, 32), -1 for absent lanes.
        nbytes: of one lane's access.
    """
    parts = max(nbytes // 4, 1)
    if parts == 1:
        words = rows >> _WORD
        return np.ones(len(rows), np.intp) if _is_conflict_free(words) else _longest(words)
    groups = rows.reshape(len(rows) * parts // 2, 2 * WARP // parts)  # of two neighbouring parts
    words = groups[:, :, None] >> _WORD
    words = np.where(groups[:, :, None] >= 0, words + np.arange(parts), -1)
    halves = words.reshape(2 * len(groups), -1)
    passes = _longest(halves).reshape(-1, 2).sum(axis=1)
    together = _together(groups)
    if together.any():
        passes[together] = _longest(words[together].reshape(int(together.sum()), -1))
    return np.asarray(passes.reshape(len(rows), -1).sum(axis=1))


def _together(groups: Rows) -> npt.NDArray[np.bool_]:
    """Whether both parts of each row go in one pass, bank conflicts aside; rows without lanes do not count."""
    return (_pairwise(groups, 1) | _pairwise(groups, 2)) & (groups >= 0).any(axis=1)


def _pairwise(groups: Rows, apart: int) -> npt.NDArray[np.bool_]:
    """Whether all lanes of a row agree with the lane whose number differs in one bit, absent ones aside."""
    partner = groups[:, np.arange(groups.shape[1]) ^ apart]
    return np.asarray(((groups == partner) | (groups < 0) | (partner < 0)).all(axis=1))


def _is_conflict_free(words: Rows) -> bool:
    """Whether neighbouring lanes have neighbouring words in every row, or all lanes of a row the same, none absent."""
    apart = words[:, 1:] - words[:, :-1]
    return bool(words[0, 0] >= 0 and ((apart == 1).all() or not apart.any()) and (words[:, 0] >= 0).all())


def _longest(words: Rows) -> npt.NDArray[np.intp]:
    """The most distinct non-negative words of each row that lie in one bank."""
    if len(words) > _AT_ONCE:
        return np.concatenate([_longest(words[i : i + _AT_ONCE]) for i in range(0, len(words), _AT_ONCE)])
    words = np.sort(words, axis=1)
    key = np.arange(len(words))[:, None] * BANKS + (words & (BANKS - 1))
    return np.asarray(np.bincount(key[fresh(words)], minlength=len(words) * BANKS).reshape(-1, BANKS).max(axis=1))
