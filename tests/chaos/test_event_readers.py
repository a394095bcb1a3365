"""No event is lost while its reader lives: bursts, pauses, and killed readers, workers and servers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from subprocess import Popen

import pytest

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.errors import TransportError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.call import Call, text
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations import exchanges, worker_registry
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from tests.chaos.event_reader import KINDS, read_lines
from tests.chaos.workers import cli_worker, kill
from tests.processes import running_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

QUEUE = "q"
KEYS = QueueKeys(QUEUE)
BURST = 1500
"""Jobs, with two events each: several times what a queue keeps without readers."""


def again(act: Callable[[], object]) -> None:
    """Act until the server, which may be restarting, has replied."""

    def done() -> bool:
        try:
            act()
        except TransportError:
            return False
        return True

    wait_until_sync(done, "the server")


def add_own(url: str, names: list[str]) -> None:
    """Add jobs as our producers do; a worker of ours completes them."""
    with Queue(QUEUE, url=url) as queue:
        jobs = [NewJob("work", {"seconds": 0}, JobOptions(job_id=name)) for name in names]
        total = queue.counts().completed + len(names)
        again(lambda: queue.add_bulk(jobs))
        wait_until_sync(lambda: queue.counts().completed == total, "the burst", 120)


def add_as_node(url: str, names: list[str]) -> None:
    """Add and complete jobs through the frozen functions alone, as a fleet of Node does."""
    with Connection.open(url) as connection:
        again(lambda: connection.pipeline([worker_registry.create_group(KEYS)]))
        add = [
            glidemq.add_job(KEYS, job_name="work", data="0", opts="{}", timestamp_ms=now_ms(), custom_id=name)
            for name in names
        ]
        again(lambda: connection.pipeline(add, repeatable=True))
        completed: set[str] = set()

        def settle() -> bool:
            taken = connection.run(exchanges.read_group(KEYS, "node", 100, 100))
            calls = [call for one in taken for call in settle_as_node(one.job_id, one.entry_id)]
            connection.pipeline(calls, repeatable=True)
            completed.update(one.job_id for one in taken)
            return completed.issuperset(names)

        wait_until_sync(settle, "the burst", 120)


def settle_as_node(job_id: str, entry_id: str) -> tuple[Call, Call]:
    """Start and complete one job."""
    key = KEYS.job(job_id)
    return (
        glidemq.move_to_active(
            stream_key=KEYS.stream, job_key=key, now_ms=now_ms(), entry_id=entry_id, group=GROUP, job_id=job_id
        ),
        glidemq.complete(
            KEYS, job_key=key, metrics_key=KEYS.metrics_completed, job_id=job_id, entry_id=entry_id,
            returnvalue="null", now_ms=now_ms(), group=GROUP, remove_mode="true",
        ),
    )  # fmt: skip


def kill_server(url: str) -> None:
    """Kill the embedded server; its supervisor starts another on the same file."""
    with Connection.open(url) as connection:
        info = text(connection.execute(Call("INFO", args=("server",)), repeatable=True))
    os.kill(int(info.partition("process_id:")[2].split()[0]), signal.SIGKILL)


@pytest.mark.parametrize("fleet", ["own", "node"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_event_is_lost_whoever_is_killed(tmp_path: Path, kind: str, fleet: str) -> None:
    url, file = f"embedded://{tmp_path / 'oq'}", tmp_path / "read"
    bursts = [[f"{burst}-{number}" for number in range(BURST)] for burst in range(3)]
    burst = add_own if fleet == "own" else add_as_node

    def working() -> AbstractContextManager[object]:
        return cli_worker(QUEUE, url, concurrency=50) if fleet == "own" else nullcontext()

    words = [sys.executable, "-m", "tests.chaos.event_reader", kind, QUEUE, str(file)]

    def read() -> list[tuple[str, str, str]]:
        return [(*event,) for line in read_lines(file) for event in line["events"]]

    def ended() -> set[str]:
        return {job_id for _, event, job_id in read() if event == "completed"}

    with Connection.open(url) as connection, working() as worker:
        with running_process(words, url) as reader:
            registered = Call("EXISTS", (KEYS.events_readers,))
            wait_until_sync(lambda: connection.execute(registered, repeatable=True), "the reader")
            burst(url, bursts[0])
            kill(reader)
        kill_server(url)
        if isinstance(worker, Popen):
            kill(worker)
        with working():
            burst(url, bursts[1])  # while no reader runs
            with running_process(words, url):
                burst(url, bursts[2])
                names = {name for names in bursts for name in names}
                wait_until_sync(lambda: ended() >= names, "all completions", 120)
    ids = [event_id for event_id, *_ in read()]
    assert len(set(ids)) == len(ids)
    assert {job_id for _, event, job_id in read() if event == "added"} == names
    assert not [event for _, event, _ in read() if event == "gap"]
