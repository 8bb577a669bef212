"""Unions of disjoint sets of lanes, with their values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .lanes import Lanes, Value


class Union:
    """The union of several disjoint sets of lanes."""

    def __init__(self, parts: Sequence[Lanes], whole: Lanes | None = None) -> None:
        """Join `parts`; `whole`, where given, is the set of lanes that they make up."""
        self.parts = parts
        first = parts[0]
        rectangular = not any(part.flat for part in parts)
        self.axis: int | None = None
        if rectangular and all(np.array_equal(part.columns, first.columns) for part in parts):
            self.axis = 0
            threads = np.sort(np.concatenate([part.threads for part in parts]))
            self.lanes = whole or Lanes(first.wave, threads, first.columns, False)
            self.indices = [np.searchsorted(self.lanes.threads, part.threads) for part in parts]
        elif rectangular and all(np.array_equal(part.threads, first.threads) for part in parts):
            self.axis = 1
            columns = np.sort(np.concatenate([part.columns for part in parts]))
            self.lanes = whole or Lanes(first.wave, first.threads, columns, False)
            self.indices = [np.searchsorted(self.lanes.columns, part.columns) for part in parts]
        else:
            self.lanes = whole or self._flat()
            self.indices = [self.lanes._index[part.position.ravel()] for part in parts]

    def _flat(self) -> Lanes:
        position = np.concatenate([part.position.ravel() for part in self.parts])
        position.sort()
        wave = self.parts[0].wave
        threads, columns = np.divmod(position, wave.columns)
        return Lanes(wave, threads, columns, True)

    def join(self, values: Sequence[Value]) -> Value:
        """Return the value of the union from the values of its parts."""
        first = values[0]
        if all(value is first for value in values) and first.ndim == 0:
            return first
        if all(value.ndim == 0 for value in values) and all(value == first for value in values):
            return first
        if self.axis == 0:
            width = max(value.shape[1] if value.ndim else 1 for value in values)
            out = np.empty((self.lanes.shape[0], width), first.dtype)
            for index, value in zip(self.indices, values, strict=True):
                out[index] = value
            return out
        if self.axis == 1:
            height = max(value.shape[0] if value.ndim else 1 for value in values)
            out = np.empty((height, self.lanes.shape[1]), first.dtype)
            for index, value in zip(self.indices, values, strict=True):
                out[:, index] = value
            return out
        out = np.empty(self.lanes.n, first.dtype)
        for index, part, value in zip(self.indices, self.parts, values, strict=True):
            if value.ndim and value.size < part.n:
                value = np.broadcast_to(value, part.shape)
            out[index] = value.ravel()
        return out.reshape(self.lanes.shape)
