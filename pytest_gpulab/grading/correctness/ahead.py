"""A forked process that does a part of a grading at the same time: cases from the last one to the first, and counts.

Both processes claim a case in shared memory before they run it. If both claim it at the same moment, both run it.
Several names may be claimed together, because they share work.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

Found = TypeVar("Found")


class FoundAhead(Generic[Found]):
    """The findings of a second process, by name.

    Args:
        names: the names in the order in which this process takes them.
        find: the function that the second process calls with a name. It ends after None.
        order: function that yields names for the second process, those to claim together in one sequence; None for
            single ones, from the last one to the first. It may consult `has_failed`.
    """

    def __init__(
        self,
        names: Sequence[str],
        find: Callable[[str], Found | None],
        order: Callable[[FoundAhead[Found]], Iterable[Sequence[str]]] | None = None,
    ) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._claims = mmap.mmap(-1, len(names) + 1)  # the last byte is `has_failed`
        self._order = order or (lambda _: [(name,) for name in reversed(names)])
        self._found: dict[str, Found] = {}
        receiving, sending = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(receiving)  # or a full pipe would keep this process, if the other one ends
            self._find_all(sending, find)
        os.close(sending)
        self._results = os.fdopen(receiving, "rb")

    def _find_all(self, sending: int, find: Callable[[str], Found | None]) -> NoReturn:
        try:
            with os.fdopen(sending, "wb") as results:
                for name in self._claimed():
                    if (found := find(name)) is None:
                        break
                    pickle.dump((name, found), results)
                    results.flush()
        finally:
            os._exit(0)  # whatever went wrong: the other process finds what is missing

    def _claimed(self) -> Iterator[str]:
        """Claim names that are free, and yield them."""
        for group in self._order(self):
            places = [self._places[name] for name in group]
            if not any(self._claims[place] for place in places):
                for place in places:
                    self._claims[place] = 1
                yield from group

    @property
    def has_failed(self) -> bool:
        """True once this process, or the other one, has called `note_failure`."""
        return self._claims[-1] != 0

    def note_failure(self) -> None:
        """Tell both processes that a case has failed."""
        self._claims[-1] = 1

    def take(self, name: str) -> Found | None:
        """Return the finding under a name, once it is there; None if this process must find it itself."""
        place = self._places.pop(name, None)
        if place is None:
            return None
        if not self._claims[place]:
            self._claims[place] = 1
            return None
        with suppress(EOFError, pickle.UnpicklingError):  # the second process has ended
            while name not in self._found:
                each, found = pickle.load(self._results)
                self._found[each] = found
        return self._found.pop(name, None)

    def close(self) -> None:
        """End the second process."""
        os.kill(self._process, signal.SIGKILL)
        self._results.close()
        os.waitpid(self._process, 0)


def counts_early(
    cases: Sequence[str], counts: Sequence[str], has_failed: Callable[[], bool]
) -> Iterator[Sequence[str]]:
    """Yield the order of the second process: the counts come early unless a case has failed, because they take long."""
    last, *others = reversed(cases)
    yield (last,)
    if not has_failed():
        yield counts
    yield from ((name,) for name in others)
    yield counts
