"""A mistake is told of once: pytest's own lists of failures leave out what the findings say, where they say it.

The list with tracebacks and the short summary would repeat each finding for every check that has it. What the findings
do not say stays in there: mistakes of an exercise or of this package.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from pytest_gpulab.collect import CheckFailed

REPORTCHARS = "fE"
"""What pytest's short summary lists unless `-r` asks for something else."""
_IS_TOLD = "gpulab_is_told"


class SummaryHooks:
    """The hooks; one instance a session. `--tb` or `-r` on the command line brings pytest's lists back."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note in the report, which may come from another process, whether the findings say it all."""
        report = yield
        error = call.excinfo.value if call.excinfo else None
        setattr(report, _IS_TOLD, isinstance(error, CheckFailed) and error.is_told)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, Any, Any]:
        """Keep those reports from pytest's lists, and have them counted all the same."""
        failed = terminalreporter.stats.get("failed", [])
        if failed and self._are_findings_shown:
            terminalreporter.stats["failed"] = [report for report in failed if not getattr(report, _IS_TOLD, False)]
        try:
            return (yield)
        finally:
            if failed:
                terminalreporter.stats["failed"] = failed

    @property
    def _are_findings_shown(self) -> bool:
        option: Any = self._config.option
        is_as_ever = option.tbstyle == "auto" and option.reportchars == REPORTCHARS
        return bool(is_as_ever and self._config.get_verbosity() >= 0)
