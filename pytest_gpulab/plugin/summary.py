"""A mistake is told of once: pytest's own lists of failures leave out what the findings say, where they say it.

The list with tracebacks and the short summary would repeat each finding for every check that has it. What the findings
do not say stays in there: mistakes of an exercise or of this package, and what was written to stdout meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from .items import PRINTF, CheckFailed

REPORTCHARS = "fE"
"""What pytest's short summary lists unless `-r` asks for something else."""
_IS_TOLD = "gpulab_is_told"
_Summary = Generator[None, Any, Any]


class SummaryHooks:
    """The hooks around all others; one instance a session.

    `--tb` or `-r` with another value than pytest's own, be it in `addopts`, brings pytest's lists back.

    Attributes:
        inside: the hooks inside of pytest's own.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.inside = _Inside()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note in the report, which may come from another process, whether the findings say it all."""
        report = yield
        error = call.excinfo.value if call.excinfo else None
        is_told = isinstance(error, CheckFailed) and error.is_told
        setattr(report, _IS_TOLD, is_told and all(f" {PRINTF} " in name for name, _ in report.sections))
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> _Summary:
        """Keep those reports from pytest's lists, and have them counted all the same."""
        failed = terminalreporter.stats.get("failed", [])
        if not failed or not self._are_findings_shown:
            return (yield)
        self.inside.failed = failed
        terminalreporter.stats["failed"] = [report for report in failed if not getattr(report, _IS_TOLD, False)]
        try:
            return (yield)
        finally:
            terminalreporter.stats["failed"] = failed

    @property
    def _are_findings_shown(self) -> bool:
        option: Any = self._config.option
        is_as_ever = option.tbstyle == "auto" and option.reportchars == REPORTCHARS
        return bool(is_as_ever and self._config.get_verbosity() >= 0)


class _Inside:
    """Whatever else looks at the failures finds them all: pytest writes its lists before and after."""

    failed: list[Any] | None = None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> _Summary:
        """Put all failures back for the others."""
        if self.failed is None:
            return (yield)
        untold, terminalreporter.stats["failed"] = terminalreporter.stats["failed"], self.failed
        try:
            return (yield)
        finally:
            terminalreporter.stats["failed"] = untold
