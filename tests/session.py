"""A test session as a whole: the order of its files, the time a test may take, and what an interrupted one reports."""

from __future__ import annotations

import gc
import json
import shutil
import signal
from collections import defaultdict
from collections.abc import Generator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

DURATIONS: Final = Path(__file__).with_name("durations.json")
"""Seconds that each file takes alone on a quiet machine. Written by `--write-durations`."""
UNKNOWN: Final = 10.0
"""Seconds assumed of a file that was never measured; six times as many if it starts whole programs."""
HEAVY: Final = ("airflow", "chaos", "dagster", "docs", "spark", "typing")
"""Folders of tests that start whole programs."""
HEAVY_TIMEOUT: Final = 300
SHARING: Final = {
    "classic Spark session": ("tests/spark/test_datasource_[!f]*.py", "tests/spark/test_parquet_assets.py"),
    "Spark Connect server": (
        "tests/docs/test_dagster_spark.py",
        "tests/spark/test_connect*.py",
        "tests/spark/test_flights_spark.py",
        "tests/spark/test_references.py",
        "tests/spark/test_traces.py",
    ),
    "worker of Spark steps": ("tests/dagster/spark/*.py",),
    "worker of Dagster runs": tuple(
        f"tests/dagster/test_{name}.py" for name in ("coordinator", "launcher", "launcher_faults", "sweep", "webserver")
    ),
}
"""What files share that takes seconds of a core to start: each of these groups runs in one process of the session."""


class Running:
    """The tests that have started and not ended, over all processes of the session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: dict[str, None] = {}

    @pytest.hookimpl(tryfirst=True)  # before the terminal shows the test
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tests[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._tests.pop(nodeid, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        writer = self._config.get_terminal_writer()
        writer.write("\nInterrupted; still running:\n" + "".join(f"  {test}\n" for test in self._tests), flush=True)


class DurationWriter:
    """Measures how long each file takes, and updates the file that the order of later sessions follows."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = read_durations() | {file: round(seconds, 1) for file, seconds in self._seconds.items()}
        root = DURATIONS.parents[1]
        kept = {file: known[file] for file in sorted(known) if (root / file).exists()}
        DURATIONS.write_text(json.dumps(kept, indent=1) + "\n")


def read_durations() -> dict[str, float]:
    """Return the seconds of each measured file."""
    found: dict[str, float] = json.loads(DURATIONS.read_text())
    return found


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def unit_of(file: str) -> str:
    """Return the group of files that runs in one process, or the file itself."""
    return next((name for name, files in SHARING.items() if any(fnmatchcase(file, each) for each in files)), file)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # of xdist we know no types
    """Sends each unit of files to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(file_of(nodeid))


def longest_first(durations: dict[str, float], nodeids: list[str]) -> list[int]:
    """Return the indices of the tests: the longest unit first, each file's tests in their order.

    The many short files of tests/lua come last, one after the other: they share servers, and fill what time is left.
    """
    units: defaultdict[str, float] = defaultdict(float)
    for file in dict.fromkeys(map(file_of, nodeids)):
        is_heavy = file.startswith(tuple(f"tests/{folder}/" for folder in HEAVY))
        units[unit_of(file)] += durations.get(file, UNKNOWN * 6 if is_heavy else UNKNOWN)

    def rank(index: int) -> tuple[bool, float]:
        file = file_of(nodeids[index])
        return file.startswith("tests/lua/"), -units[unit_of(file)]

    return sorted(range(len(nodeids)), key=rank)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-runs",
        type=int,
        help="random runs of models and against originals; 1000 in full; without time limits",
    )
    parser.addoption("--chasquimq-jobs", type=int, default=600, help="jobs of the mixed fleet; 20000 in full")
    parser.addoption(
        "--flow-runs", type=int, default=40, help="random graphs by both carriers; 10000 in full, with --timeout=0"
    )
    parser.addoption("--preemptions", type=int, default=1, help="preemptions in orders of several clients' calls")
    parser.getgroup("session").addoption(
        "--write-durations", action="store_true", help="update tests/durations.json with what this session measures"
    )


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script: nothing could be reported
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Running(config))
    if config.getoption("--write-durations"):
        config.pluginmanager.register(DurationWriter())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_report_header() -> str | None:
    if shutil.which("redis-server"):
        return None
    return "no redis-server on the PATH: tests/lua run on Valkey alone (Debian: apt-get install redis-server)"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what is imported: all of it stays, and later collections skip it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files, and give tests that start whole programs longer than others, and random runs all the time."""
    for item in items:
        folder = item.path.relative_to(DURATIONS.parent).parts[0] if item.path.is_relative_to(DURATIONS.parent) else ""
        if config.getoption("--fuzz-runs"):
            item.add_marker(pytest.mark.timeout(0), append=False)
        elif folder in HEAVY and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(HEAVY_TIMEOUT))
    if hasattr(config, "workerinput"):  # by hand, tests run in the order in which they are read
        items[:] = [items[index] for index in longest_first(read_durations(), [item.nodeid for item in items])]
