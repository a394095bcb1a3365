"""Spark work when a process is killed: nothing continues unattended, and no job is lost or runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import JobFailedError
from orchestration_queue.options import JobOptions
from orchestration_queue.spark import ConnectServer
from orchestration_queue.spark.connect.address import RUNS, ServerState, place, read_state
from orchestration_queue.spark.connect.control import SessionControl, fence
from tests.processes import worker_process
from tests.spark.conftest import processes_in
from tests.spark.connect_work import tasks
from tests.spark.shared_server import answering
from tests.waiting import wait_until, wait_until_sync
from tests.workers import working

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(300)]

SOON = timedelta(seconds=100)
QUICK = ("--lease", "5", "--stalled-interval", "0.5", "--promotion-interval", "0.2")


def beats(sign: Path) -> int:
    """How often a query has given a sign of life."""
    return sign.stat().st_size if sign.exists() else 0


async def test_the_next_attempt_ends_what_a_killed_worker_left_running_on_a_server_of_others(
    server_url: str,
    queue_name: str,
    raw: redis.Redis,
    connect_state: ServerState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", connect_state.url)
    sign = tmp_path / "sign"
    async with AsyncQueue(queue_name, url=server_url) as queue:
        job = await queue.add("never_end_first", {"sign": str(sign)})
        with worker_process("tests.spark.connect_work:tasks", queue_name, server_url, *QUICK) as victim:
            await wait_until(lambda: beats(sign), "the query to run", 60)
            victim.send_signal(signal.SIGKILL)
            victim.wait(60)
        await job.refresh()
        assert job.record.progress["spark"]["server"] == f"localhost:{connect_state.port}"
        with SessionControl(connect_state.url, job.record.progress["spark"]["session"]) as session:
            (zombie,) = session.running()
            before = beats(sign)
            await wait_until(lambda: beats(sign) > before, "the query of the dead to continue", 60)
            assert session.running() == [zombie]
            async with working(queue, tasks, server_url):
                assert await job.wait(SOON) == "second"
            assert session.running() == []
        assert await job.logs() == ["ended 1 running operation(s) of an earlier attempt"]
        assert job.record.progress["spark"]["run"] == 2
        # It gave ten signs of life a second. Spark ends its Python process when the query has ended, not before.
        await wait_until(lambda: time.time() - sign.stat().st_mtime > 1, "the dead one's Python process to be gone", 60)


def test_the_keeper_ends_what_a_killed_process_left_running_though_nobody_tries_again(
    connect_server: ConnectServer,  # used by this process too, so that it stays when the other is killed
    tmp_path: Path,
) -> None:
    sign = tmp_path / "sign"
    program = (
        f"import sys; sys.path[:] = {json.dumps(sys.path)}\n"
        "from tests.spark.connect_work import SERVER, never_end\n"
        "print(SERVER.directory, flush=True)\n"
        f"never_end.function(sign={str(sign)!r})"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        try:
            wait_until_sync(lambda: beats(sign), "the query to run", 60)
            state = read_state(directory)
            (run,) = directory.glob(f"*/{RUNS}/*")
        finally:
            process.kill()
    wait_until_sync(lambda: not run.exists(), "the keeper to have noticed", 40)
    assert state is not None
    with SessionControl(state.url, run.name) as session:
        assert session.running() == []
    assert (seen := beats(sign))
    wait_until_sync(lambda: not [*directory.glob(f"*/{RUNS}/*")], "the run to be forgotten", 60)
    assert beats(sign) == seen


@pytest.mark.parametrize("victim", ["server", "keeper"])
async def test_a_job_whose_server_is_killed_is_done_on_the_next(
    server_url: str,
    queue_name: str,
    raw: redis.Redis,
    connect_server: ConnectServer,
    connect_state: ServerState,
    tmp_path: Path,
    victim: str,
) -> None:
    sign = tmp_path / "sign"
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, tasks, server_url):
        job = await queue.add("outlive_the_first_server", {"sign": str(sign)}, JobOptions(attempts=2))
        await wait_until(lambda: beats(sign), "the query to run", 60)
        kill(connect_server, connect_state, victim)
        assert await job.wait(SOON) == "second"
        await job.refresh()
        assert job.record.progress["spark"]["server"].rpartition("/")[2] == answering(connect_server).process
        assert answering(connect_server).process != connect_state.process
        await wait_until(lambda: not lives(connect_server, connect_state), "the first server to be gone", 60)


def lives(server: ConnectServer, state: ServerState) -> list[int]:
    """The processes of one server."""
    return processes_in(server.directory / state.process)


def kill(server: ConnectServer, state: ServerState, victim: str) -> None:
    """Kill a server, or only who keeps it."""
    of_server = lives(server, state)
    supervisors = [process for process in processes_in(server.directory) if process not in of_server]
    for process in of_server if victim == "server" else supervisors:
        os.kill(process, signal.SIGKILL)


def test_a_session_that_was_ended_cannot_be_opened_by_who_comes_late(connect_state: ServerState) -> None:
    name = "00000000-0000-4000-8000-00000000000f"
    assert fence(connect_state.url, name) == [], "it was not opened before"
    with SessionControl(connect_state.url, name) as late, pytest.raises(Exception, match="SESSION_CLOSED"):
        late.open()
    assert fence(connect_state.url, name) == []


async def test_an_attempt_that_cannot_end_an_earlier_one_leaves_it_to_the_next(
    server_url: str, queue_name: str, raw: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")  # nothing answers there
    earlier = {"session": "00000000-0000-4000-8000-00000000000e", "server": place("sc://127.0.0.1:1"), "run": 1}
    async with AsyncQueue(queue_name, url=server_url) as queue:
        job = await queue.add("never_end_first", {"sign": str(tmp_path / "sign")})
        raw.hset(queue.keys.job(job.id), "progress", json.dumps({"percent": 1, "text": "", "spark": earlier}))
        async with working(queue, tasks, server_url):
            with pytest.raises(JobFailedError, match=r"may still run in session 0{8}-.*, and cannot be ended"):
                await job.wait(SOON)
        assert (await queue.get(job.id)).record.progress["spark"] == earlier


async def test_an_address_that_is_none_fails_the_job_in_one_sentence(
    server_url: str, queue_name: str, raw: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "spark://master:7077")
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, tasks, server_url):
        job = await queue.add("never_end_first", {"sign": str(tmp_path / "sign")})
        with pytest.raises(
            Exception, match=r"must be the address of a Spark Connect server, got 'spark://master:7077'; pass"
        ):
            await job.wait(SOON)
