"""A forked process that runs cases of a submission at the same time, or estimates, from the last one to the first.

Both processes claim a case in shared memory before they run it. If both claim it at the same moment, both run it.
"""

import mmap
import os
import pickle
import signal
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

Name = TypeVar("Name", bound=Hashable)
Found = TypeVar("Found")


class FoundAhead(Generic[Name, Found]):
    """The findings of a second process, by name; this process takes the names in order.

    The second process calls `find` with a name. It ends after None.
    """

    def __init__(self, names: Sequence[Name], find: Callable[[Name], Found | None]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._claims = mmap.mmap(-1, max(len(names), 1))
        self._found: dict[Name, Found] = {}
        receiving, sending = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(receiving)  # or a full pipe would keep this process, if the other one ends
            self._find_all(sending, find)
        os.close(sending)
        self._results = os.fdopen(receiving, "rb")

    def _find_all(self, sending: int, find: Callable[[Name], Found | None]) -> NoReturn:
        try:
            with os.fdopen(sending, "wb") as results:
                for name, place in reversed(self._places.items()):
                    if self._claims[place]:
                        break
                    self._claims[place] = 1
                    if (found := find(name)) is None:
                        break
                    pickle.dump((name, found), results)
                    results.flush()
        finally:
            os._exit(0)  # whatever went wrong: the other process finds what is missing

    def take(self, name: Name) -> Found | None:
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
