"""Tails of queues, flows and workers: pages, and the streams that continue them; logs of jobs that follow."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
import redis

from orchestration_queue import AsyncActiveJob, AsyncFlowProducer, AsyncQueue, Dag, Node
from orchestration_queue.client import AsyncLogTail, NewJob
from orchestration_queue.client._async import log_tail
from orchestration_queue.client.tailing import GAP, TailFilter
from orchestration_queue.errors import UsageError
from orchestration_queue.http import create_app, tails
from orchestration_queue.http.access import Access, Token
from orchestration_queue.http.tails import TailView
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.event_log import Event
from tests.http.conftest import called, served
from tests.http.test_streams import listening
from tests.waiting import wait_until
from tests.workers import working

HOSTILE = "</td><img src=x onerror=hit()>\0\x1b[31m"


@pytest.fixture
async def queue(server_url: str, raw: redis.Redis, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.fixture
async def ui(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    async with served(create_app(server_url, console=True)) as client:
        yield client


class Stage:
    """A handler that logs, and waits until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.jobs: dict[str, AsyncActiveJob] = {}

    async def __call__(self, job: AsyncActiveJob) -> str:
        await job.log(f"{job.id} begins")
        self.jobs[job.id] = job
        await self.may_end.wait()
        await job.log(f"{job.id} ends")
        return HOSTILE


def rows_of(text: str) -> list[tuple[str, str, str]]:
    """Kind, job and text of the rows of a page, or of a message."""
    cells = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    parts = [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in cells
    ]
    return [(row[1], row[2], row[3]) for row in parts if len(row) == 4]


async def page(ui: httpx.AsyncClient, path: str) -> str:
    response = await ui.get(f"/ui/queues/{path}")
    assert response.status_code == 200, response.text
    return response.text


async def until_rows(found: AsyncIterator[dict[str, str]], *wanted: str) -> list[tuple[str, str, str]]:
    """Read a stream until rows with all texts have come."""
    seen: list[tuple[str, str, str]] = []
    while not all(any(text in row for row in seen) for text in wanted):
        seen += rows_of("".join(json.loads((await anext(found))["data"])["rows"]))
    return seen


async def test_a_queue_s_page_shows_events_and_logs_by_kind_text_and_job(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    stage = Stage()
    async with working(queue, stage, server_url):
        for job_id in ("a1", "b2"):
            await queue.add("n", None, {"job_id": job_id})
        await wait_until(lambda: len(stage.jobs) == 2, "both to begin")
        base = f"{queue.name}/tail"
        rows = rows_of(await page(ui, base))
        assert {("log", "a1", "a1 begins"), ("log", "b2", "b2 begins")} <= set(rows)
        assert rows[-1] == ("added", "a1", "name=n")
        assert rows_of(await page(ui, f"{base}?kind=log&job=b2")) == [("log", "b2", "b2 begins")]
        assert {kind for kind, *_ in rows_of(await page(ui, f"{base}?kind=events"))} == {"added"}
        assert rows_of(await page(ui, f"{base}?kind=problems")) == []
        assert [job for _, job, _ in rows_of(await page(ui, f"{base}?text=A1"))] == ["a1"] * 2
        refused = await ui.get(f"/ui/queues/{base}?kind=nonsense")
        assert refused.status_code == 400
        assert "Kind &#39;nonsense&#39; is unknown" in refused.text
        stage.may_end.set()
    old = await ui.get(f"/ui/queues/{queue.name}/events")
    assert (old.status_code, old.headers["location"]) == (303, f"/ui/queues/{queue.name}/tail")


async def test_a_stream_continues_the_page_and_nothing_of_a_job_is_markup(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    stage = Stage()
    async with working(queue, stage, server_url):
        await queue.add("n", None, {"job_id": "a"})
        await wait_until(lambda: "a" in stage.jobs, "it to begin")
        shown = await page(ui, f"{queue.name}/tail")
        position = re.findall(r'data-position="([^"]+)"', shown)[0]
        stream = f"/ui/queues/{queue.name}/tail/stream?lastId="
        async with listening(ui, stream + position) as (_, found):
            await stage.jobs["a"].log(HOSTILE, "second")
            message = await anext(found)
            assert "<img" not in message["data"]
            seen = rows_of("".join(json.loads(message["data"])["rows"]))
            stage.may_end.set()
            seen += await until_rows(found, "a ends")
        assert [row for row in seen if row in rows_of(shown)] == []
        assert [text for kind, _, text in seen if kind == "log"][1:] == ["second", "a ends"]
        assert "completed" in {row[0] for row in seen}
        async with listening(ui, stream + position, last_event_id=message["id"]) as (_, found):
            await queue.add("n", None, {"job_id": "b"})
            again = await until_rows(found, "b begins")
        assert "second" not in str(again)
        assert "a ends" in str(again)
        async with listening(ui, f"{stream}0-0") as (_, found):  # of another process, or long ago
            assert "Entries may be missing" in json.loads((await anext(found))["data"])["rows"][0]


async def test_a_flow_s_tail_has_its_jobs_in_all_its_queues_for_who_may_see_these(
    server_url: str, raw: redis.Redis, queue: AsyncQueue
) -> None:
    other = AsyncQueue(f"{queue.name}-other", url=server_url)
    access = Access([Token.of("all", "all", ["read"]), Token.of("one", "one", ["read"], [queue.name])])
    app = create_app(server_url, console=True, access=access)
    stage = Stage()
    stage.may_end.set()
    async with AsyncExitStack() as stack:
        ui = await stack.enter_async_context(called(app))
        await stack.enter_async_context(other)
        for each in (queue, other):
            await stack.enter_async_context(working(each, stage, server_url))
        producer = await stack.enter_async_context(AsyncFlowProducer(url=server_url))
        dag = Dag("d", [Node("a"), Node("b", deps=["a"], queue=other.name)], queue=queue.name)
        await (await producer.submit(dag, flow_id="f1")).wait(30)
        await queue.add("n", None, {"job_id": "stranger"})
        path = f"/ui/queues/{queue.name}/flows/f1/tail?kind=completed"
        bearer = {"authorization": "Bearer all"}
        shown = (await ui.get(path, headers=bearer)).text
        assert [job for _, job, _ in rows_of(shown)] == ["f1.b", "f1.a"]
        for end in ("", "/stream"):
            denied = await ui.get(path.replace("/tail", f"/tail{end}"), headers={"authorization": "Bearer one"})
            assert denied.status_code == 403, end
        assert (await ui.get(path.replace("f1", "f2"), headers=bearer)).status_code == 404


async def test_a_worker_s_tail_has_only_its_jobs_also_what_they_did_before_it_said_so(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    first, second = Stage(), Stage()
    async with working(queue, first, server_url, concurrency=1) as worker:
        await queue.add("n", None, {"job_id": "own"})
        await wait_until(lambda: "own" in first.jobs, "it to begin")
        async with working(queue, second, server_url, concurrency=1):
            await queue.add("n", None, {"job_id": "foreign"})
            await wait_until(lambda: "foreign" in second.jobs, "it to begin")
            path = f"/ui/queues/{queue.name}/workers/{worker.id}/tail/stream"
            async with listening(ui, path) as (_, found):
                seen = await until_rows(found, "own begins")
                first.may_end.set()
                second.may_end.set()
                seen += await until_rows(found, "own ends")
    assert {job for _, job, _ in seen} == {"own"}
    assert {"added", "log", "completed"} <= {kind for kind, *_ in seen}


async def test_any_number_of_viewers_read_a_queue_once(
    ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    paths = [f"/ui/queues/{queue.name}/{end}" for end in ("tail/stream", "tail/stream?kind=log", "live")]
    async with AsyncExitStack() as stack:
        found = [(await stack.enter_async_context(listening(ui, path)))[1] for path in paths * 7]
        await queue.add("n")
        heard = await asyncio.gather(
            *(anext(each) for each, path in zip(found, paths * 7, strict=True) if "log" not in path)
        )
        assert len(heard) == 14
        assert int(raw.info("clients")["blocked_clients"]) <= 1
        raw.config_resetstat()
        await asyncio.sleep(2)
        stats = raw.info("commandstats")
        assert stats["cmdstat_xread"]["calls"] <= 6  # of one reader that waits half a second each time
    await wait_until(lambda: int(raw.info("clients")["blocked_clients"]) == 0, "the reader to end", 60)


async def test_more_than_a_page_can_show_is_left_out_and_said(
    ui: httpx.AsyncClient, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "_PAGE", 50)
    async with listening(ui, f"/ui/queues/{queue.name}/tail/stream") as (_, found):
        await queue.add_bulk([NewJob("n", options=JobOptions(job_id=f"j{number}")) for number in range(400)])
        text = (await anext(found))["data"]
        while "Events are left out" not in text:
            text += (await anext(found))["data"]
        await queue.add("last", None, {"job_id": "last"})
        await until_rows(found, "last")


async def test_a_viewer_gets_the_newest_entries_and_the_kept_ones_are_few(
    server_url: str, raw: redis.Redis, queue: AsyncQueue
) -> None:
    app = create_app(server_url, console=True)
    await queue.add_bulk([NewJob("x" * 300) for _ in range(900)])
    async with app.service.tails.joined([queue.keys], TailView(TailFilter(kinds=["added"]))) as viewer:
        assert len(viewer.take()) == tails._AT_FIRST
        await queue.add_bulk([NewJob("x" * 5000) for _ in range(900)])
        (reader,) = viewer._readers
        await wait_until(lambda: reader.end >= 1100, "the events to be read")
        first, *entries = viewer.take()
        assert first.kind == GAP
        assert "older entries are left out" in first.text
        assert len(entries) == tails._MOST_SHOWN
        assert len(reader.entries) == tails._KEPT
        assert max(len(entry.text) for entry in reader.entries) == tails._LONGEST
    await app.aclose()


async def test_viewers_are_told_when_their_reader_ends_for_any_reason(
    queue: AsyncQueue, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Event) -> str:
        raise ValueError("damaged")

    app = create_app(server_url, console=True)
    async with app.service.tails.joined([queue.keys], TailView(TailFilter(kinds=["added"]))) as viewer:
        assert not viewer.take()
        monkeypatch.setattr(tails, "event_text", fail)
        await queue.add("n")

        async def follow() -> None:
            while await viewer.wait(30):
                assert not viewer.take()

        with pytest.raises(ValueError, match="damaged"):
            await follow()
    await app.aclose()


async def test_a_job_s_log_follows_until_it_has_finished(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    stage = Stage()
    async with working(queue, stage, server_url):
        await queue.add("n", None, {"job_id": "a"})
        await wait_until(lambda: "a" in stage.jobs, "it to begin")
        await stage.jobs["a"].log(*(f"line {number}" for number in range(2, 301)))
        shown = await page(ui, f"{queue.name}/jobs/a")
        assert "from line 101" in shown
        path = re.findall(r'data-follow="([^"]+)"', shown)[0]
        assert path.endswith("/jobs/a/log?after=300")
        async with listening(ui, path) as (_, found):
            await stage.jobs["a"].log(HOSTILE)
            assert json.loads((await anext(found))["data"]) == {"lines": [HOSTILE], "left_out": 0}
            stage.may_end.set()
            said = [each async for each in found]
        assert said[-1]["event"] == "end"
        assert [line for each in said for line in json.loads(each["data"])["lines"]] == ["a ends"]
        assert "data-follow" not in await page(ui, f"{queue.name}/jobs/a")
        async with listening(ui, path) as (_, found):
            ended = [json.loads(each["data"])["lines"] async for each in found]
        assert ended == [[HOSTILE, "a ends"]]
        assert (await ui.get(f"/ui/queues/{queue.name}/jobs/a/log?after=x")).status_code == 400
        async with listening(ui, f"/ui/queues/{queue.name}/jobs/nix/log") as (_, found):
            assert [each["event"] async for each in found] == ["end"]


async def test_logs_are_followed_from_their_last_lines_over_attempts_and_new_jobs_of_the_same_id(
    server_url: str, raw: redis.Redis, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: QueueKeys = queue.keys
    tail = AsyncLogTail(queue._connection, keys)

    def put(job_id: str, *lines: str) -> None:
        raw.rpush(keys.log(job_id), *lines)

    async def read(*jobs: str) -> list[str]:
        return [f"{line.job_id}{line.number}{line.text}" for line in await tail.read(jobs=jobs)]

    put("a", *"x" * 30)
    tail.begin("a", 29)
    assert await read("a") == ["a30x"]
    assert await read("a") == []
    put("a", "y")
    assert await read("a") == ["a31y"]
    tail.pause()
    put("a", *"z" * 50)
    assert await read("a") == [f"a{number}z" for number in range(62, 82)]
    put("b", *"x" * 120)
    tail.begin("b", 0)
    tail.note([Event("1-1", "completed", "b")])
    assert [len(await read()) for _ in range(4)] == [50, 50, 20, 0]
    monkeypatch.setattr(log_tail, "_MOST_LOGS", 1)
    put("a", "1")
    put("b", "2")
    assert sorted([*(await read("a", "b")), *(await read())]) == ["a821", "b1212"]
    raw.delete(keys.log("a"))
    put("a", "new")
    assert await read("a") == []
    tail.note([Event("1-2", "added", "a")])
    assert await read("a") == ["a1new"]
    monkeypatch.setattr(log_tail, "_MOST_ENDED", 1)
    tail.note([Event("1-3", "failed", job_id) for job_id in "cd"])
    assert tail.skipped == 1
    raw.delete(keys.log("a"), keys.log("b"))


def test_a_filter_refuses_unknown_kinds_and_always_shows_gaps() -> None:
    with pytest.raises(UsageError, match="Kind 'logs' is unknown; use one of log, active"):
        TailFilter(["logs"])
    chosen = TailFilter(["log"], "ERR", "7")
    assert chosen.matches("log", "7", "an error")
    assert not chosen.matches("log", "7", "fine")
    assert not chosen.matches("log", "8", "an error")
    assert not chosen.matches("failed", "7", "an error")
    assert chosen.matches("gap", "", "")
