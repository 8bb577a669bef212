"""Passes (wavefronts) of a warp's accesses to shared memory: each of 32 banks delivers one 4-byte word per pass."""

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP

from .requests import Requests

BANKS, _BANK_BITS = 32, 5
_WORD = np.int64(2)  # address bits within a word
_DEEPEST = 64  # words per bank, which are 8 KiB of shared memory
_AT_ONCE = 256  # rows; larger arrays are mapped and unmapped at each operation, which takes longer than the work
Rows = npt.NDArray[np.int64]


def fresh(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return a mask of the first occurrences of non-negative values in sorted rows."""
    new = np.empty(rows.shape, np.bool_)
    new[:, 0] = True
    np.not_equal(rows[:, 1:], rows[:, :-1], out=new[:, 1:])
    new &= rows >= 0
    return new


def met_again(rows: Rows) -> npt.NDArray[np.intp]:
    """Return, per lane of the sorted rows, the number of lanes before it at its address; 0 for absent lanes."""
    rows = np.sort(rows, axis=1)
    starts = np.where(fresh(rows), np.arange(WARP), 0)
    before = np.arange(WARP) - np.maximum.accumulate(starts, axis=1)
    return np.where(rows >= 0, before, 0)


def word_passes(requests: Requests) -> npt.NDArray[np.intp]:
    """Return the passes of each request for elements of up to 4 bytes: the most distinct words in one bank.

    A warp with all words in 32 consecutive ones needs one pass. For other warps, each word is marked in a table with a
    column per request and bank. If the table would be large, words are sorted instead.
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
    """Return the largest number of words in one bank per request."""
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
    """Return the passes of each access without bank conflicts."""
    parts = max(nbytes // 4, 1)
    if parts == 1:
        return np.ones(len(rows), np.intp)
    groups = rows.reshape(len(rows) * parts // 2, 2 * WARP // parts)
    active = (groups.reshape(2 * len(groups), -1) >= 0).any(axis=1).reshape(-1, 2).sum(axis=1)
    active[_together(groups)] = 1
    return np.asarray(active.reshape(len(rows), -1).sum(axis=1))


def wavefronts(rows: Rows, nbytes: int) -> npt.NDArray[np.intp]:
    """Return the passes of each warp's access: the most distinct words in one bank, summed over its parts.

    8-byte accesses are executed by half warps, 16-byte ones by quarters. Two neighbouring parts are executed together
    if all lanes agree with lane n ^ 1, or all with lane n ^ 2; absent lanes are ignored. `rows` are byte addresses,
    (warps, 32), -1 for absent lanes; `nbytes` is the size of one lane's access.
    """
    parts = max(nbytes // 4, 1)
    if parts == 1:
        words = rows >> _WORD
        return np.ones(len(rows), np.intp) if _is_conflict_free(words) else _longest(words)
    groups = rows.reshape(len(rows) * parts // 2, 2 * WARP // parts)  # two neighbouring parts per row
    words = groups[:, :, None] >> _WORD
    words = np.where(groups[:, :, None] >= 0, words + np.arange(parts), -1)
    halves = words.reshape(2 * len(groups), -1)
    passes = _longest(halves).reshape(-1, 2).sum(axis=1)
    together = _together(groups)
    if together.any():
        passes[together] = _longest(words[together].reshape(int(together.sum()), -1))
    return np.asarray(passes.reshape(len(rows), -1).sum(axis=1))


def turns(rows: Rows, nbytes: int) -> npt.NDArray[np.intp]:
    """Return the passes of each atomic that serves its lanes one after another: the most lanes of a warp in one bank.

    Wide elements are updated by parts of the warp, as in `wavefronts`.
    """
    parts = max(nbytes // 4, 1)
    groups = rows.reshape(len(rows) * parts, WARP // parts)
    banks = (groups // max(nbytes, 4)) % groups.shape[1]
    key = np.arange(len(groups))[:, None] * groups.shape[1] + banks
    lanes = np.bincount(key[groups >= 0], minlength=rows.size).reshape(groups.shape)
    return np.asarray(lanes.max(axis=1).reshape(len(rows), parts).sum(axis=1))


def _together(groups: Rows) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows with both parts in one pass, bank conflicts aside; False for empty rows."""
    return (_pairwise(groups, 1) | _pairwise(groups, 2)) & (groups >= 0).any(axis=1)


def _pairwise(groups: Rows, apart: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows in which all lanes n have the address of lane n ^ `apart`, or one is absent."""
    partner = groups[:, np.arange(groups.shape[1]) ^ apart]
    return np.asarray(((groups == partner) | (groups < 0) | (partner < 0)).all(axis=1))


def _is_conflict_free(words: Rows) -> bool:
    """Return whether all rows are complete, with consecutive words or, in all of them, one word per row."""
    apart = words[:, 1:] - words[:, :-1]
    return bool(words[0, 0] >= 0 and ((apart == 1).all() or not apart.any()) and (words[:, 0] >= 0).all())


def _longest(words: Rows) -> npt.NDArray[np.intp]:
    """Return the largest number of distinct non-negative words in one bank, per row."""
    if len(words) > _AT_ONCE:
        return np.concatenate([_longest(words[i : i + _AT_ONCE]) for i in range(0, len(words), _AT_ONCE)])
    words = np.sort(words, axis=1)
    key = np.arange(len(words))[:, None] * BANKS + (words & (BANKS - 1))
    return np.asarray(np.bincount(key[fresh(words)], minlength=len(words) * BANKS).reshape(-1, BANKS).max(axis=1))
