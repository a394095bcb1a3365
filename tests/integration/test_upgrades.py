"""A release meets a server on which another one loaded its libraries: the later text arrives, and stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.doctor.libraries import BUNDLED
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.server import Connection
from orchestration_queue.wires.chasquimq.keys import LIBRARY as CHASQUIMQ
from orchestration_queue.wires.qless.commands import LIBRARY as QLESS
from tests.nodes import Node, Nodes
from tests.releases import ROOT, Release, make_release
from tests.waiting import wait_until_sync

NAMES = [library.name for library in BUNDLED]
THIS = Release(ROOT)

CONNECT = """
import sys
from orchestration_queue.wires.chasquimq.keys import LIBRARY as CHASQUIMQ
from orchestration_queue.wires.qless.commands import LIBRARY as QLESS
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.server import Connection

every = (*LIBRARIES, CHASQUIMQ, QLESS)
Connection.open(libraries=[library for library in every if library.name in sys.argv[1:]]).close()
"""
"""A client of the libraries that are named."""

WORK = """
import asyncio, os, sys
from orchestration_queue.worker import Worker

async def work(job):
    with open(sys.argv[2], "a") as ran:
        ran.write(f"{job.id}\\n")

asyncio.run(Worker(sys.argv[1], work).run())
"""

PRODUCE = """
import sys
from orchestration_queue import Queue

for number in range(int(sys.argv[2])):
    with Queue(sys.argv[1]) as queue:  # a new connection each time
        queue.add("work", {"n": number})
"""
EACH = 60


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("upgrades")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def node(nodes: Nodes) -> Node:
    return nodes.start()


@pytest.fixture
def url(node: Node) -> str:
    """A server that has the libraries of this release."""
    node.ask("FUNCTION", "FLUSH")
    url = f"redis://127.0.0.1:{node.port}"
    Connection.open(url, libraries=BUNDLED).close()
    node.ask("CONFIG", "RESETSTAT")
    return url


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release in which each library has changed."""
    return make_release(tmp_path_factory.mktemp("later"), NAMES)


def texts(raw: redis.Redis) -> dict[str, str]:
    return {row[1]: str(row[-1]) for row in raw.function_list(withcode=True)}


def loads(raw: redis.Redis) -> int:
    statistics = raw.info("commandstats")
    return int(statistics.get("cmdstat_function|load", {"calls": 0})["calls"])


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_line_reaches_a_running_server(url: str, node: Node, later: Release, name: str) -> None:
    before = texts(node.raw)
    assert later.text(name) != THIS.text(name)
    later.run(CONNECT, url, name)
    assert texts(node.raw) == before | {name: later.text(name)}
    assert loads(node.raw) == 1
    THIS.run(CONNECT, url, name)
    assert loads(node.raw) == 1


@pytest.mark.timeout(400)  # it starts six processes, on however busy a machine
def test_two_releases_side_by_side_replace_nothing_in_turns(
    url: str, node: Node, later: Release, queue_name: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    ran.touch()
    releases = (THIS, later)

    def count_ran() -> int:
        return len(ran.read_text().splitlines())

    with ExitStack() as stack, Queue(queue_name, url=url) as queue:
        stack.enter_context(THIS.running(WORK, url, queue_name, str(ran)))
        first = stack.enter_context(THIS.running(PRODUCE, url, queue_name, str(EACH)))
        wait_until_sync(lambda: count_ran() > EACH // 4, "this release to work", 120)
        later.run(CONNECT, url, *NAMES)  # in the middle of it
        upgraded = loads(node.raw)
        assert upgraded == len(NAMES)
        stack.enter_context(later.running(WORK, url, queue_name, str(ran)))
        producers = [stack.enter_context(each.running(PRODUCE, url, queue_name, str(EACH))) for each in releases]
        assert [producer.wait(120) for producer in (first, *producers)] == [0, 0, 0]
        wait_until_sync(lambda: queue.counts().completed == 3 * EACH, "all jobs to complete", 120)
    assert set(Counter(ran.read_text().splitlines()).values()) == {1}
    assert count_ran() == 3 * EACH
    assert loads(node.raw) == upgraded
    assert texts(node.raw) == {each: later.text(each) for each in NAMES}


def test_clients_that_connect_while_it_is_replaced_see_one_text_or_the_other(
    url: str, node: Node, later: Release
) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(each.running(CONNECT, url, *NAMES)) for each in (later, THIS) * 2]
        assert [process.wait(120) for process in processes] == [0] * len(processes)
    assert texts(node.raw) == {each: later.text(each) for each in NAMES}
    assert loads(node.raw) <= 2 * len(NAMES)


def test_the_libraries_of_other_wires_are_those_that_their_clients_load() -> None:
    assert set(BUNDLED) == {*LIBRARIES, CHASQUIMQ, QLESS}
