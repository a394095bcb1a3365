"""``pytest tests/lua --lua-coverage=95``: which lines of lua/ the tests ran, and a failure when they are too few.

The libraries that count are built by tools/lua_coverage.py and loaded in place of the shipped ones. What counts is what
calls ran: a line that only runs while a library is loaded is left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
import redis

__all__ = ["MEASURE", "LineCoverage"]

TOOL: Final = Path(__file__).parents[2] / "tools" / "lua_coverage.py"
TEXTS: Final = {
    "glidemq": "tests.lua.wire.LIBRARY",
    "orchestration_queue_1": "tests.lua.oq1.LIBRARY",
    "chasquimq": "tests.lua.chasquimq.LIBRARY",
}
"""Who knows where each library's text is."""
_TOLD: Final = "lua_coverage"
"""Under which name one of several processes tells what it measured."""


class LineCoverage:
    """Which statements of lua/ ran, over all servers and libraries of a session."""

    def __init__(self, minimum: float) -> None:
        self.minimum = minimum
        self.statements: list[tuple[str, int]] = []
        self.loading: set[int] = set()
        self.ran: set[int] = set()

    @contextmanager
    def measuring(self, folder: Path) -> Iterator[None]:
        """Have the tests load the libraries that count."""
        subprocess.run([sys.executable, str(TOOL), str(folder)], check=True, timeout=100)
        self.statements = [(file, line) for file, line in json.loads((folder / "statements.json").read_text())]
        with pytest.MonkeyPatch.context() as patch:
            for library, path in TEXTS.items():
                patch.setattr(path, folder / f"{library}.lua")
            yield

    def collect(self, client: redis.Redis) -> None:
        """Add what a server counted since its libraries were loaded; to replace one resets its count."""
        calls = client.pipeline(transaction=False)
        for library in TEXTS:
            calls.fcall(f"coverage_{library}", 0)
        for reply in calls.execute(raise_on_error=False):
            if isinstance(reply, redis.ResponseError):
                assert "not found" in str(reply), reply
                continue
            self.loading.update(reply[0])
            self.ran.update(reply[1])

    def lines(self) -> dict[str, dict[int, bool]]:
        """Of each file, each line that counts, and whether it ran."""
        files: defaultdict[str, dict[int, bool]] = defaultdict(dict)
        for number, (file, line) in enumerate(self.statements, 1):
            if number not in self.loading:
                files[file][line] = number in self.ran
        return files

    @property
    def percent(self) -> float:
        return _percent(ran for lines in self.lines().values() for ran in lines.values())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what one of several processes measured."""
        told = getattr(node, "workeroutput", {}).get(_TOLD)
        if told and told["statements"]:
            self.statements = [(file, line) for file, line in told["statements"]]
            self.loading.update(told["loading"])
            self.ran.update(told["ran"])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[_TOLD] = {
                "statements": self.statements,
                "loading": sorted(self.loading),
                "ran": sorted(self.ran),
            }
            return
        if self.percent < self.minimum and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("Lua line coverage")
        files = self.lines()
        write(f"{'':<40}{'lines':>6}{'missed':>8}{'ran':>8}  missing")
        for file, lines in files.items():
            write(_row(file, lines.values(), _ranges(lines)))
        write(_row("total", [ran for lines in files.values() for ran in lines.values()]))
        if self.percent < self.minimum:
            write(f"The tests must run {self.minimum:g} % of the Lua lines.", red=True)


def _percent(ran: Iterable[bool]) -> float:
    flags = list(ran)
    return 100 * sum(flags) / len(flags) if flags else 0


def _row(name: str, ran: Iterable[bool], missing: str = "") -> str:
    flags = list(ran)
    return f"{name:<40}{len(flags):>6}{flags.count(False):>8}{_percent(flags):>7.1f}%  {missing}".rstrip()


def _ranges(lines: dict[int, bool]) -> str:
    """The lines that did not run, as ``3, 7-9``; lines between that do not count join a range."""
    runs = groupby(sorted(lines.items()), key=lambda item: item[1])
    missing = [[line for line, _ in run] for ran, run in runs if not ran]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in missing)


MEASURE: Final = pytest.StashKey[LineCoverage]()
"""Where the session keeps its measurement, when there is one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("lua").addoption(
        "--lua-coverage",
        type=float,
        metavar="PERCENT",
        help="print which lines of lua/ the tests in tests/lua ran; fail when fewer than this",
    )


def pytest_configure(config: pytest.Config) -> None:
    if (minimum := config.getoption("--lua-coverage")) is not None and not config.getoption("--collect-only"):
        config.stash[MEASURE] = LineCoverage(minimum)
        config.pluginmanager.register(config.stash[MEASURE])
