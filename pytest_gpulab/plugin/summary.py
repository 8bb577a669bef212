"""pytest's lists of failures without those that the findings explain.

The list of tracebacks and the short summary would repeat each finding for every check that has it. They keep what the
findings do not say: mistakes of an exercise or of this package, and captured output.
"""

from collections.abc import Generator
from typing import Any

import pytest

from .items import IS_EXPLAINED

REPORTCHARS = "fE"
"""pytest's default for `-r`, the contents of its short summary."""
_SummaryHook = Generator[None, Any, Any]


def hide_explained(config: pytest.Config) -> None:
    """Keep explained failures out of the lists that pytest writes at the end of the session."""
    for part in Summary(config).parts:
        config.pluginmanager.register(part)


class Summary:
    """A filter that hides explained failures from pytest's own lists, and from nothing else.

    `--tb` or `-r` with another value than pytest's own, also in `addopts`, brings pytest's lists back. The two `parts`
    wrap `pytest_terminal_summary`. pytest writes its lists before and after all others: the outer part hides failures
    from them, the inner one shows them to the other plugins.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._inner = config, _Inner()
        self.parts = (_Outer(self), self._inner)

    def hiding(self, stats: dict[str, list[Any]]) -> _SummaryHook:
        """Hide explained failures and errors, but keep them in pytest's counts."""
        hidden = {name: stats[name] for name in ("failed", "error") if stats.get(name)}
        if not hidden or not self._are_findings_shown:
            return (yield)
        self._inner.hidden = hidden
        for name, reports in hidden.items():
            stats[name] = [report for report in reports if not getattr(report, IS_EXPLAINED, False)]
        try:
            return (yield)
        finally:
            stats.update(hidden)

    @property
    def _are_findings_shown(self) -> bool:
        option: Any = self._config.option
        is_default = option.tbstyle == "auto" and option.reportchars == REPORTCHARS
        return bool(is_default)


class _Outer:
    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> _SummaryHook:
        """Hide explained failures."""
        return (yield from self._summary.hiding(terminalreporter.stats))


class _Inner:
    def __init__(self) -> None:
        self.hidden: dict[str, list[Any]] = {}

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> _SummaryHook:
        """Restore all failures for the other plugins."""
        unexplained = {name: terminalreporter.stats[name] for name in self.hidden}
        terminalreporter.stats.update(self.hidden)
        try:
            return (yield)
        finally:
            terminalreporter.stats.update(unexplained)
