"""A plugin of pytest that bounds a run: a test starts only if it would end in time, taking as long as the last time."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

import pytest

_LEFT_OUT = "left out, as there was no time for it"
# In pytest's cache: seconds that each test took, by its id.
_SECONDS = "nearest/seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the bound."""
    parser.addoption("--for-seconds", type=float, required=True, help="start no test that would end later than this")


def pytest_configure(config: pytest.Config) -> None:
    """Start the clock: collecting counts. Each worker of xdist has its own."""
    config.pluginmanager.register(_Bound(config))


class _Bound:
    """The clock of one process, and what the run has shown."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._end = time.monotonic() + config.getoption("--for-seconds")
        assert config.cache is not None
        self._expected: dict[str, float] = config.cache.get(_SECONDS, {})
        self._took: dict[str, float] = defaultdict(float)
        self._left_out: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave out a test that would end too late."""
        if time.monotonic() + self._expected.get(item.nodeid, 0.0) > self._end:
            pytest.skip(_LEFT_OUT)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test took, or that it was left out."""
        if report.skipped and _LEFT_OUT in str(report.longrepr):
            self._left_out.add(report.nodeid)
        else:
            self._took[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out, and keep the times: this runs once, in the process that starts the others."""
        ran = {test: seconds for test, seconds in self._took.items() if test not in self._left_out}
        assert self._config.cache is not None
        self._config.cache.set(_SECONDS, self._expected | ran)
        files = Counter(test.partition("::")[0] for test in self._left_out)
        if files:
            terminalreporter.section("left out for lack of time; make test runs all")
        for file, count in sorted(files.items()):
            terminalreporter.line(f"{count:5} of {file}")
