"""Spark work on a real Connect server: what it returns and tells, how it fails, and that neighbours are apart."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from orchestration_queue.client import AsyncJob, AsyncQueue
from orchestration_queue.errors import SparkFailedError
from orchestration_queue.spark import ConnectServer, SparkOptions
from orchestration_queue.spark.connect import run as running
from orchestration_queue.spark.connect import session as sessions
from orchestration_queue.spark.connect import watching
from orchestration_queue.spark.connect.address import ServerState
from orchestration_queue.spark.connect.control import SessionControl
from orchestration_queue.spark.connect.run import run_connect
from orchestration_queue.spark.connect.session import QueryProgress, SparkConnection
from orchestration_queue.spark.options import ISOLATION
from tests.spark.conftest import processes_in, reason
from tests.spark.shared_server import answering
from tests.waiting import at_load, wait_until, wait_until_sync
from tests.workers import HEARS_SOON

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
]  # seconds of processor time, on however busy a machine

SOON = timedelta(seconds=100)


def session_of(job: AsyncJob, state: ServerState) -> SessionControl:
    """The session of a job that runs, from outside."""
    return SessionControl(state.url, job.record.progress["spark"]["session"])


async def test_a_decorated_function_runs_as_a_queue_job(queue: AsyncQueue, connect_state: ServerState) -> None:
    job = await queue.add("describe", {"words": ["a", "b", "a"], "day": "2013-07-04"})
    assert await job.wait(SOON) == {"times": {"a": 2, "b": 1}, "day": "2013-07-01", "job": job.id, "zone": "UTC"}
    assert await job.logs() == ["counting 3 words", "in Spark"]
    progress = await job.progress()
    assert progress["spark"]["server"].endswith(connect_state.process)
    assert progress["spark"]["run"] == 1
    assert connect_state.token not in str(progress)


async def test_neighbours_have_views_properties_and_output_of_their_own(queue: AsyncQueue, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    first = await queue.add("hold_view", {"mine": "Asia/Tokyo", "sign": one, "other": two})
    second = await queue.add("hold_view", {"mine": "UTC", "sign": two, "other": one})
    assert await first.wait(SOON) == ["Asia/Tokyo", "Asia/Tokyo"]
    assert await second.wait(SOON) == ["UTC", "UTC"]
    assert (await first.logs(), await second.logs()) == (["I am Asia/Tokyo"], ["I am UTC"])


async def test_only_global_views_outlive_their_job(queue: AsyncQueue) -> None:
    await (await queue.add("make_views", {"name": "left_behind"})).wait(SOON)
    own = await queue.add("query", {"sql": "SELECT * FROM left_behind"})
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in await reason(own)
    shared = await queue.add("query", {"sql": "SELECT * FROM global_temp.left_behind"})
    assert await shared.wait(SOON) == 3
    await (await queue.add("query", {"sql": "DROP VIEW global_temp.left_behind"})).wait(SOON)


async def test_jobs_share_python_processes_that_see_changed_modules(queue: AsyncQueue, tmp_path: Path) -> None:
    module = tmp_path / f"helper_{tmp_path.name}.py".replace("-", "_")
    found = []
    for value in ("1", "22", "333"):  # of other lengths: the times of two files may be equal
        module.write_text(f"VALUE = {value}\n", "utf-8")
        job = await queue.add("import_there", {"directory": str(tmp_path), "module": module.stem})
        found.append(await job.wait(SOON))
    assert [each["value"] for each in found] == [1, 22, 333]
    assert len({each["daemon"] for each in found}) == 1, "no job left a daemon behind"


async def test_files_for_one_session_are_refused_where_sessions_share_code(queue: AsyncQueue) -> None:
    why = await reason(await queue.add("add_artifact", {"path": __file__}))
    assert "addArtifacts() would expose its files to all jobs" in why
    assert "'spark.sql.artifact.isolation.enabled': 'true'" in why


async def test_a_job_is_cancelled_alone_within_two_seconds(
    queue: AsyncQueue, connect_state: ServerState, tmp_path: Path
) -> None:
    lone, neighbour = tmp_path / "lone", tmp_path / "neighbour"
    job = await queue.add("never_end", {"sign": str(lone)}, HEARS_SOON)
    other = await queue.add("never_end", {"sign": str(neighbour)})
    await wait_until(lambda: lone.exists() and neighbour.exists(), "both queries to run", 60)
    await job.refresh()
    with session_of(job, connect_state) as session:
        assert len(session.running()) == 1
        started = time.monotonic()
        await job.cancel()
        await wait_until(lambda: not session.running(), "the query to end", 60)
        took = time.monotonic() - started
    assert await reason(job)
    assert took < at_load(2)
    await other.refresh()
    with session_of(other, connect_state) as session:
        assert len(session.running()) == 1, "the neighbour's query continues"
    beats = neighbour.stat().st_size
    await wait_until(lambda: neighbour.stat().st_size > beats, "the neighbour to be at work", 60)
    await other.cancel()
    await reason(other)


async def test_a_job_over_its_time_is_ended_though_it_catches_exceptions(
    queue: AsyncQueue, connect_state: ServerState, tmp_path: Path
) -> None:
    job = await queue.add("take_too_long", {"sign": str(tmp_path / "beats")})
    assert "'take_too_long' took longer than 0:00:01" in (why := await reason(job)).replace(
        "tests.spark.connect_work:", ""
    )
    assert "raise SparkOptions.timeout" in why
    await job.refresh()
    with session_of(job, connect_state) as session:
        assert session.running() == []


@pytest.mark.parametrize(
    ("task", "data", "expected"),
    [
        ("raise_here", {"word": "seven"}, r"ValueError: seven is no number \(connect_work\.py:\d+ in raise_here\)"),
        ("raise_there", {"word": "seven"}, r"ValueError: seven is no number \(connect_work\.py:\d+ in explode\)"),
        (
            "query",
            {"sql": "select * from nowhere"},
            r"AnalysisException: \[TABLE_OR_VIEW_NOT_FOUND\].*`nowhere` cannot .* \(connect_work\.py:\d+ in query\)",
        ),
        ("query", {"sql": "selec 1"}, r"ParseException: \[PARSE_SYNTAX_ERROR\] Syntax error at or near 'selec'"),
        ("want_too_much", {}, r"Spark refuses property spark\.driver\.memory='3g' for a session"),
    ],
)
async def test_what_goes_wrong_is_said_in_one_line(
    queue: AsyncQueue, task: str, data: dict[str, Any], expected: str
) -> None:
    job = await queue.add(task, data)
    why = await reason(job)
    assert re.search(expected, why), why
    assert "\n" not in why
    assert not [line for line in await job.logs() if "\tat " in line or "JVM stacktrace" in line]


async def test_progress_comes_from_spark(queue: AsyncQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "QueryProgress", partial(QueryProgress, every_s=0))  # each step is told
    sign = tmp_path / "sign"
    job = await queue.add("take_steps", {"sign": str(sign), "first": 4, "parts": 12})
    seen: list[tuple[int, str]] = []

    async def look() -> None:
        while True:
            if progress := await job.progress():
                seen.append((progress["percent"], progress["text"]))
            await asyncio.sleep(0.05)

    def is_on_the_way() -> bool:
        return any(
            0 < percent < 100 and re.fullmatch(r"query 1: [1-9]\d* of \d+ tasks, \d+ running, .* read", text)
            for percent, text in seen
        )

    looking = asyncio.ensure_future(look())
    await wait_until(is_on_the_way, "progress between nothing and all")
    sign.touch()
    assert await job.wait(SOON) == 12
    looking.cancel()
    percents = [percent for percent, _ in seen]
    assert percents == sorted(percents)
    last = await job.progress()
    assert (last["percent"], last["text"]) == (100, "done")


def test_a_worn_server_is_replaced_while_jobs_run_and_leaves_with_its_last_user(tmp_path: Path) -> None:
    own = {"OQ_TEST_SERVER": str(tmp_path)}  # no other test shares it, in whatever tests run beside these
    server = ConnectServer(
        SparkOptions(master="local[1]", quick_start=True, env=own), max_jobs=1, linger=timedelta(0), start_timeout=SOON
    )
    server.start()
    first = answering(server)
    generations: list[str] = []

    def work(spark: Any) -> int:
        wait_until_sync(lambda: answering(server).process != first.process, "the successor", 240)
        generations.append(answering(server).process)
        return int(spark.range(3).count())  # on the one that has been replaced

    assert run_connect("work", work, server, SparkOptions()) == 3
    wait_until_sync(lambda: not (server.directory / first.process).exists(), "the worn one to be gone", 60)
    with SessionControl(answering(server).url, "00000000-0000-4000-8000-000000000001") as other:
        other.open()
    assert generations != [first.process]
    server.close()
    wait_until_sync(lambda: not processes_in(server.directory), "server and keeper to leave", 60)
    assert not [entry for entry in server.directory.iterdir() if entry.is_dir()]


def test_an_idle_server_is_warmed_up_until_its_first_job(
    connect_state: ServerState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, opened = tmp_path / "jobs", []

    class CountedConnection(SparkConnection):
        def __init__(self, *args: Any) -> None:
            opened.append(args)
            if len(opened) == 2:
                jobs.touch()
            super().__init__(*args)

    monkeypatch.setattr(sessions, "SparkConnection", CountedConnection)
    sessions.main(connect_state.url, jobs=str(jobs))
    assert len(opened) == 2
    monkeypatch.setattr(sessions, "_WARM_UP_S", 0.0)
    sessions.main(connect_state.url, jobs=str(tmp_path / "none"))
    assert len(opened) == 3, "and not without end"


def test_a_server_isolates_its_sessions_when_asked_to(tmp_path: Path) -> None:
    options = SparkOptions(
        master="local[2]", quick_start=True, conf={ISOLATION: "true"}, env={"OQ_TEST": str(tmp_path)}
    )
    server = ConnectServer(options, linger=timedelta(0))

    def read(spark: Any) -> tuple[Any, list[Any]]:
        spark.addArtifacts(__file__, file=True)
        return spark.conf.get(ISOLATION), spark.range(1).collect()

    try:
        assert run_connect("read", read, server, SparkOptions()) == ("true", [(0,)])
    finally:
        server.close()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    own = {"OQ_TEST_SERVER": str(tmp_path)}
    server = ConnectServer(SparkOptions(master="nowhere", env=own), linger=timedelta(0))
    for _ in range(2):  # the second asks a keeper of its own
        with pytest.raises(SparkFailedError, match=r"did not start: .* exited with code 1: Master must either be yarn"):
            server.lease_session("run")
    server.close()


def test_a_server_that_is_not_there_is_said_to_be_away() -> None:
    server = ConnectServer(url="sc://127.0.0.1:9")
    with pytest.raises(SparkFailedError, match=r"server at 127\.0\.0\.1:9 does not answer"):
        run_connect("count", lambda spark: spark.range(1).count(), server, SparkOptions())


def test_a_session_outlives_the_servers_timeout_while_its_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes_early = {
        "spark.connect.session.manager.defaultSessionTimeout": "4s",
        "spark.connect.session.manager.maintenanceInterval": "1s",
    }
    options = SparkOptions(
        master="local[1]", quick_start=True, conf=closes_early, env={"OQ_TEST_SERVER": str(tmp_path)}
    )
    server = ConnectServer(options, linger=timedelta(0), start_timeout=SOON)

    def wait_for_longer_than_the_timeout(spark: Any) -> int:
        # Asking about an idle session uses it, so each is asked once.
        idle = [SessionControl(answering(server).url, str(uuid.uuid4())) for _ in range(10)]
        for session in idle:
            session.open()
        asked_at = [time.monotonic()]

        def next_is_closed() -> bool:
            if time.monotonic() - asked_at[-1] < 5:
                return False
            asked_at.append(time.monotonic())
            try:
                idle.pop().open()
            except grpc.RpcError as error:
                return "SESSION_CLOSED" in str(error)
            return False

        wait_until_sync(next_is_closed, "the server to close an idle session", 50)
        return int(spark.range(3).count())

    try:
        monkeypatch.setattr(watching, "_KEEP_S", 1.0)
        assert run_connect("work", wait_for_longer_than_the_timeout, server, SparkOptions()) == 3
        monkeypatch.setattr(watching, "_KEEP_S", 1000.0)
        with pytest.raises(SparkFailedError, match=r"raise its property .*\.defaultSessionTimeout"):
            run_connect("work", wait_for_longer_than_the_timeout, server, SparkOptions())
    finally:
        server.close()
