"""Progress of a long run in a line: done, total, failures, rate, time left, current submissions."""

from dataclasses import dataclass

TERMINAL_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 10.0  # a log keeps every line
MAX_NAMED = 3  # of the submissions that are being graded


@dataclass(frozen=True)
class Progress:
    """The state of a run."""

    total: int  # submissions
    stored: int  # number with a grade from an earlier run
    graded: int  # number graded in this run
    failing: int  # number of both that failed a check
    lost: int  # number that the machine could not grade
    running: tuple[str, ...]  # submissions in progress
    elapsed_s: float  # since the run began
    quiet_s: float  # time since the last grade, or since the run began

    @property
    def to_do(self) -> int:
        """Number of submissions that are not graded yet."""
        return self.total - self.stored - self.graded - self.lost

    @property
    def left_s(self) -> float | None:
        """Estimated remaining time at the rate of this run; None while unknown.

        It is unknown before the first grade, and when the last grade is longer ago than the estimate: a job hangs then.
        """
        left_s = self.to_do * self.elapsed_s / self.graded if self.graded else None
        return None if left_s is None or (self.to_do and self.quiet_s > left_s) else left_s

    @property
    def line(self) -> str:
        """The progress as text, the least important part last."""
        parts = [f"{self.stored + self.graded}/{self.total} graded{self._failures()}"]
        if self.stored:
            parts.append(f"{self.stored} of them earlier")
        if self.graded:
            parts.append(_rate(self.graded, self.elapsed_s) + self._time())
        if self.running:
            parts.append(f"now {_named(self.running)}")
        return "; ".join(parts)

    def _time(self) -> str:
        if not self.to_do:
            return f", in {duration_text(self.elapsed_s)}"
        return "" if self.left_s is None else f", {duration_text(self.left_s)} left"

    def _failures(self) -> str:
        failing = f", {self.failing} with failures" if self.failing else ""
        return failing + (f", {self.lost} not gradable" if self.lost else "")


class Pace:
    """The interval between progress lines."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s, self._next_s = interval_s, now_s + interval_s

    def is_due(self, now_s: float) -> bool:
        """Return True once per interval."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._interval_s
        return True


def fitted(line: str, width: int) -> str:
    """Return a line cut to a width, so that a terminal does not wrap it and the next line can replace it."""
    return line if len(line) <= width else line[: width - 3] + "..."


def duration_text(seconds: float) -> str:
    """Return a duration as text: `40 s`, `12 min`, `3 h 05 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _rate(count: int, elapsed_s: float) -> str:
    per_minute = 60 * count / max(elapsed_s, 1e-3)
    return f"{per_minute:.0f} per minute" if per_minute >= 2 else f"{60 * per_minute:.1f} per hour"


def _named(names: tuple[str, ...]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names if more <= 0 else (*names[:MAX_NAMED], f"and {more} more"))
