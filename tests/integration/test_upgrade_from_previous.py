"""What the previous release left on a server is finished by this one, and the other way round, also side by side."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestration_queue.client import Queue
from orchestration_queue.doctor import Severity, run_checks
from orchestration_queue.flows import FlowState
from orchestration_queue.protocol.library import LIBRARIES
from tests.integration.upgrade_programs import BEGUN, HELD, MEETS, RUNS, WAITING
from tests.nodes import Node, Nodes
from tests.releases import ROOT, Release, check_out_previous
from tests.waiting import wait_until_sync

PROGRAMS = Path(__file__).with_name("upgrade_programs.py")
RUN = f"import runpy\nrunpy.run_path({str(PROGRAMS)!r}, run_name='__main__')\n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Nodes(tmp_path_factory.mktemp("upgrade")) as nodes:
        yield nodes.start("--appendonly", "yes")


@pytest.fixture
def url(node: Node) -> str:
    """An empty server without functions."""
    node.ask("FLUSHALL")
    node.ask("FUNCTION", "FLUSH")
    node.ask("CONFIG", "RESETSTAT")
    return f"redis://127.0.0.1:{node.port}"


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    return {"previous": check_out_previous(tmp_path_factory.mktemp("previous")), "this": Release(ROOT)}


class Runs:
    """What handlers have run, read from their file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "runs"

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self._file.read_text().splitlines()] if self._file.exists() else []

    @property
    def by_name(self) -> Counter[str]:
        return Counter(name for name, _, _ in self.lines)

    @property
    def by_job(self) -> Counter[tuple[str, str]]:
        return Counter((name, job_id) for name, job_id, _ in self.lines)


def fill(release: Release, url: str, folder: Path) -> None:
    with release.running(RUN, url, "fill", str(folder), "filler") as filler:
        assert filler.wait(120) == -signal.SIGKILL


def stop(worker: subprocess.Popen[bytes]) -> None:
    """Let it finish what it runs."""
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def is_idle(queue: Queue) -> bool:
    counts = queue.counts()
    return not (counts.waiting or counts.active or counts.delayed or queue.flows.list(FlowState.RUNNING))


def wait_for_the_end(url: str, runs: Runs, expected: Counter[str]) -> None:
    """Let the suspended job continue, and wait until everything has run and is settled."""
    with Queue(BEGUN, url=url) as begun, Queue(HELD, url=url) as held, Queue(WAITING, url=url) as waiting:
        assert begun.get("suspended").signal("approved")
        wait_until_sync(lambda: runs.by_name >= expected, f"all runs but {expected - runs.by_name}", 100)
        wait_until_sync(lambda: all(map(is_idle, (begun, held, waiting))), "all outcomes to arrive")


def check_outcomes(url: str, runs: Runs, expected: Counter[str]) -> None:
    """See that nothing is lost, and that nothing but a repetition that was asked for ran twice."""
    assert runs.by_name == expected
    assert {name for (name, _), count in runs.by_job.items() if count > 1} == {"held", "retried", "suspended"}
    with Queue(BEGUN, url=url) as begun, Queue(WAITING, url=url) as waiting:
        assert [begun.get(f"completed-{n}").result for n in range(5)] == list(range(5))
        assert begun.get("failed").failed_reason == "ValueError: once more"
        assert begun.counts().failed == 2
        half_done = begun.flows.get("half-done")
        assert half_done.results() == {"a": 1, "b": {"a": 1}, "c": {"b": {"a": 1}}, "cleans-up": {"b": {"a": 1}}}
        assert half_done.status().state is FlowState.FAILED
        assert [flow.state for flow in waiting.flows.list()] == [FlowState.COMPLETED] * 5
    assert [finding for finding in run_checks(url) if finding.severity is Severity.PROBLEM] == []


def check_libraries(node: Node) -> None:
    """See that the server has those of this release, which are not older than those of the previous one."""
    for library in LIBRARIES:
        (row,) = node.raw.function_list(library=library.name, withcode=True)
        assert row[-1] == library.text


def count_loads(node: Node) -> int:
    statistics = node.raw.info("commandstats")
    return int(statistics.get("cmdstat_function|load", {"calls": 0})["calls"])


@pytest.mark.timeout(300)  # it starts several processes, on however busy a machine
@pytest.mark.parametrize(("left_by", "finished_by"), [("previous", "this"), ("this", "previous")])
def test_one_finishes_what_the_other_left(
    url: str, node: Node, releases: dict[str, Release], tmp_path: Path, left_by: str, finished_by: str
) -> None:
    fill(releases[left_by], url, tmp_path)
    runs = Runs(tmp_path)
    with releases[finished_by].running(RUN, url, "work", str(tmp_path), finished_by) as worker:
        wait_for_the_end(url, runs, Counter(RUNS))
        stop(worker)
    check_outcomes(url, runs, Counter(RUNS))
    check_libraries(node)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("leaving", "joining"), [("previous", "this"), ("this", "previous")])
def test_a_fleet_is_replaced_while_it_works(
    url: str, node: Node, releases: dict[str, Release], tmp_path: Path, leaving: str, joining: str
) -> None:
    fill(releases[leaving], url, tmp_path)
    runs, expected = Runs(tmp_path), Counter(RUNS) + Counter(meets=4 * MEETS)
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(release.running(RUN, url, "work", str(tmp_path), name, *releases))
            for name, release in releases.items()
        }
        for release in releases.values():
            release.run(RUN, url, "add", str(tmp_path), "producer")
        wait_until_sync(lambda: runs.by_name["meets"] == 2 * MEETS, "workers of both to run jobs at the same time")
        loads = count_loads(node)
        for release in releases.values():  # whose connections find libraries of the other one
            release.run(RUN, url, "add", str(tmp_path), "producer")
        stop(workers[leaving])
        wait_for_the_end(url, runs, expected)
        stop(workers[joining])
    check_outcomes(url, runs, expected)
    check_libraries(node)
    assert count_loads(node) == loads
