"""Weaknesses of glide-mq's proxy that this one does not have, listed in docs/explanation/glidemq-weaknesses.md."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from orchestration_queue import AsyncQueue, UnrecoverableError, Usage
from orchestration_queue.http import HttpApp, create_app, subscriptions
from orchestration_queue.http.app import API_ROUTES
from orchestration_queue.http.routes import Scope
from tests.http.conftest import called, served
from tests.http.test_streams import blocked, listening
from tests.waiting import wait_until
from tests.workers import working

ROOT = Path(__file__).parents[2]


class SlowClient:
    """A client of a stream, at the level of ASGI: it takes a message only when told to."""

    def __init__(self, app: HttpApp, path: str, query: str = "", after: str = "") -> None:
        self.got: list[dict[str, Any]] = []
        self.comments = 0
        self._takes = asyncio.Semaphore(0)
        self._leaves = asyncio.Event()
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "headers": [(b"host", b"test"), (b"last-event-id", after.encode())],
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, part: Any) -> None:
        text = part.get("body", b"").decode()
        if not text or text.startswith(":"):
            self.comments += 1
            return
        await self._takes.acquire()
        self.got.append(json.loads(text.partition("data: ")[2]))

    def take(self, messages: int) -> None:
        """Take this many more messages."""
        for _ in range(messages):
            self._takes.release()

    async def leave(self) -> None:
        """Disconnect."""
        self._leaves.set()
        await asyncio.wait_for(self.task, 30)


@pytest.fixture
async def app(server_url: str, raw: redis.Redis) -> AsyncIterator[HttpApp]:
    app = create_app(server_url)
    yield app
    await app.aclose()


async def fail(_: Any) -> None:
    raise UnrecoverableError("no")


async def publish(api: httpx.AsyncClient, name: str, data: Any, **options: Any) -> None:
    sent = await api.post(f"/broadcast/{name}", json={"subject": "a", "data": data, "opts": options})
    assert sent.status_code == 201


async def data_of(messages: AsyncIterator[dict[str, str]], count: int) -> list[Any]:
    return [json.loads((await anext(messages))["data"])["data"] for _ in range(count)]


@pytest.mark.parametrize("path", ["/queues/{}/jobs/1/events", "/broadcast/{}/events?subscription=s"])
async def test_clients_of_jobs_and_broadcasts_leave_no_connection_behind(
    server_url: str, raw: redis.Redis, queue_name: str, path: str
) -> None:
    async with served(create_app(server_url)) as client:
        await client.post(f"/queues/{queue_name}/jobs", json={"name": "a"})

        async def come_and_go() -> None:
            async with listening(client, path.format(queue_name)):
                pass

        for _ in range(3):
            await asyncio.gather(*(come_and_go() for _ in range(10)))
        await wait_until(lambda: blocked(raw) == 0, "the readers to end")
        assert len(raw.client_list()) < 25


async def test_a_bad_pattern_disturbs_no_other_client(live: httpx.AsyncClient, queue_name: str) -> None:
    path = f"/broadcast/{queue_name}/events?subscription=s"
    async with listening(live, path) as (_, found):
        assert (await live.get(f"{path}&subjects=a.%3E.b")).status_code == 400
        await publish(live, queue_name, 1)
        assert await data_of(found, 1) == [1]


async def test_a_slow_reader_of_events_slows_itself_alone(
    app: HttpApp, raw: redis.Redis, server_url: str, queue_name: str
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        jobs = [(await queue.add("a")).id for _ in range(900)]
        slow, fast = (SlowClient(app, f"/queues/{queue_name}/events", after="0") for _ in range(2))
        fast.take(900)
        await wait_until(lambda: len(fast.got) == 900, "the fast reader to get everything")
        assert slow.got == []
        reads = raw.info("commandstats")["cmdstat_xread"]["calls"]
        slow.take(300)
        await wait_until(lambda: len(slow.got) == 300, "the slow reader to take some")
        assert raw.info("commandstats")["cmdstat_xread"]["calls"] - reads < 20  # it reads as it takes, a page at a time
        slow.take(600)
        await wait_until(lambda: len(slow.got) == 900, "the slow reader to take the rest")
        assert [each["jobId"] for each in slow.got] == [each["jobId"] for each in fast.got] == jobs
        await slow.leave()
        await fast.leave()


async def test_a_slow_reader_of_a_broadcast_delays_no_other_and_is_dropped(
    app: HttpApp, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_MOST_KEPT", 20 * 400)
    path = f"/broadcast/{queue_name}/events"
    slow, fast = (SlowClient(app, path, "subscription=s") for _ in range(2))
    await wait_until(lambda: slow.comments and fast.comments, "both to listen")
    fast.take(60)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as api:
        for number in range(60):
            await publish(api, queue_name, number)
    await wait_until(lambda: len(fast.got) == 60, "the fast reader to get everything")
    slow.take(60)
    await asyncio.wait_for(slow.task, 30)  # its stream ends
    assert [each["data"] for each in slow.got] == list(range(len(slow.got)))
    assert len(slow.got) < 60
    await fast.leave()


async def test_what_the_only_reader_of_a_broadcast_has_not_taken_waits_for_the_next(
    app: HttpApp, queue_name: str
) -> None:
    path = f"/broadcast/{queue_name}/events"
    slow = SlowClient(app, path, "subscription=s")
    await wait_until(lambda: slow.comments, "it to listen")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as api:
        for number in range(5):
            await publish(api, queue_name, number)
    slow.take(2)
    await wait_until(lambda: len(slow.got) == 2, "it to take two")
    await slow.leave()
    later = SlowClient(app, path, "subscription=s")
    later.take(3)
    await wait_until(lambda: len(later.got) == 3, "the next one to get the rest")
    assert sorted(each["data"] for each in (*slow.got, *later.got)) == [0, 1, 2, 3, 4]
    await later.leave()


async def test_readers_that_come_while_the_last_one_leaves_get_messages(
    live: httpx.AsyncClient, queue_name: str
) -> None:
    path = f"/broadcast/{queue_name}/events?subscription=s"
    for number in range(5):
        async with listening(live, path):
            pass
        async with listening(live, path) as (_, found):  # while the one before is being closed
            await publish(live, queue_name, number)
            assert await data_of(found, 1) == [number]


async def test_broadcasts_with_a_priority_reach_their_readers(live: httpx.AsyncClient, queue_name: str) -> None:
    async with listening(live, f"/broadcast/{queue_name}/events?subscription=s") as (_, found):
        await publish(live, queue_name, 1, priority=5)
        await publish(live, queue_name, 2, lifo=True)
        assert await data_of(found, 2) == [1, 2]


async def test_flows_whose_roots_have_the_same_place_in_two_queues_keep_apart(
    api: httpx.AsyncClient, queue_name: str
) -> None:
    made = [
        (await api.post("/flows", json={"flow": {"name": "a", "queueName": name, "data": 1}})).json()["flowId"]
        for name in (queue_name, f"{queue_name}-2")
    ]
    assert len(set(made)) == 2
    assert (await api.delete(f"/flows/{made[1]}")).json()["revoked"] == 1
    assert (await api.get(f"/flows/{made[0]}")).json()["counts"] == {"waiting": 1}


async def test_a_flow_can_be_cancelled_whatever_happened_after_its_jobs_were_there(
    api: httpx.AsyncClient, raw: redis.Redis, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("the process ends here")

    monkeypatch.setattr("orchestration_queue.http.flow_routes.name_proxy_flow", broken)
    nodes = [{"name": "a", "queueName": queue_name, "data": 1}]
    assert (await api.post("/flows", json={"dag": {"nodes": nodes}})).status_code == 500
    assert (await api.get(f"/queues/{queue_name}/counts")).json()["waiting"] == 1
    jobs: Any = raw.keys(f"glide:{{{queue_name}}}:job:*")
    flow_id = jobs[0].rpartition(":")[2].removesuffix(".a")
    assert (await api.delete(f"/flows/{flow_id}")).json()["revoked"] == 1


async def test_a_job_that_was_removed_before_its_flow_is_named_does_not_come_back(
    api: httpx.AsyncClient, raw: redis.Redis, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def submit_and_lose_jobs(*_: Any) -> None: ...

    monkeypatch.setattr("orchestration_queue.http.flow_routes._submit", submit_and_lose_jobs)
    nodes = [{"name": "a", "queueName": queue_name, "data": 1}]
    assert (await api.post("/flows", json={"dag": {"nodes": nodes}})).status_code == 201
    assert raw.keys(f"glide:{{{queue_name}}}:job:*") == []


async def test_no_route_works_after_shutdown_began(server_url: str, raw: redis.Redis) -> None:
    app = create_app(server_url)
    async with called(app) as api:
        await app.aclose()
        for route in API_ROUTES:
            if route.scope is Scope.OPEN:
                continue
            path = "/".join("q" if part.startswith(":") else part for part in route.path.split("/"))
            status = (await api.request(route.method, path)).status_code
            # What a request lacks may be told first; what it names is not looked for.
            assert status in (400, 503) or (status == 404 and "chasquimq" in path + "qless"), (route, status)
    assert raw.dbsize() == 0


async def test_no_job_is_a_child_of_one_in_a_queue_that_is_not_served(
    server_url: str, raw: redis.Redis, queue_name: str
) -> None:
    parent = {"parent": {"queue": "other", "id": "1"}}
    async with called(create_app(server_url, queues=[queue_name])) as api:
        schedule = {"schedule": {"every": 1000}, "template": {"name": "a", "opts": parent}}
        refused = await api.put(f"/queues/{queue_name}/schedulers/s", json=schedule)
        assert (refused.status_code, refused.json()) == (400, {"error": "template.opts.parent is not allowed"})
        flow = {"flow": {"name": "a", "queueName": queue_name, "data": 1, "opts": parent}}
        assert (await api.post("/flows", json=flow)).status_code == 201  # the parent is ignored
    assert raw.keys("glide:{other}:*") == []


async def test_names_that_are_asked_for_cost_no_connection(
    api: httpx.AsyncClient, raw: redis.Redis, queue_name: str
) -> None:
    await api.get(f"/queues/{queue_name}/counts")
    before = len(raw.client_list())
    for number in range(50):
        assert (await api.get(f"/queues/{queue_name}-{number}/counts")).status_code == 200
        assert (await api.post(f"/broadcast/{queue_name}-{number}", json={"subject": "a"})).status_code == 201
    assert len(raw.client_list()) <= before + 2


async def test_counts_in_events_are_not_taken_for_a_job(live: httpx.AsyncClient, queue_name: str) -> None:
    path = f"/queues/{queue_name}"
    first = (await live.post(f"{path}/jobs", json={"name": "a", "opts": {"delay": 9_999_000}})).json()["id"]
    await live.post(f"{path}/jobs", json={"name": "b"})
    assert first == "1"
    await live.post(f"{path}/drain")  # of one job: its event says 1
    async with listening(live, f"{path}/jobs/1/events", last_event_id="0") as (_, found):
        await live.post(f"{path}/jobs/1/revoke")
        heard = [message["event"] async for message in found]
    assert heard[0] == "added"
    assert "drained" not in heard


async def test_a_dead_letter_without_data_shows_none(api: httpx.AsyncClient, server_url: str, queue_name: str) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        async with working(queue, fail, server_url, dead_letter_queue=f"{queue_name}-dead"):
            job = await queue.add("a")
            with pytest.raises(Exception, match="no"):
                await job.wait(30)
        (letter,) = (await api.get(f"/queues/{queue_name}/dlq")).json()["jobs"]
    assert (letter["originalJobId"], letter["data"]) == (job.id, None)


async def test_waiting_requests_share_connections_and_end_with_their_client(
    server_url: str, raw: redis.Redis, queue_name: str
) -> None:
    async with served(create_app(server_url)) as client:
        path = f"/queues/{queue_name}/jobs/wait"
        body = {"name": "a", "opts": {"waitTimeout": 600_000}}
        waits = [asyncio.create_task(client.post(path, json=body)) for _ in range(80)]
        async with AsyncQueue(queue_name, url=server_url) as queue:
            await wait_until(lambda: raw.xlen(queue.keys.stream) == 80, "the jobs to be added")
        assert len(raw.client_list()) < 45  # 32 carry any number of waits
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await wait_until(lambda: blocked(raw) == 0, "the waits to end")


async def test_waiting_jobs_are_those_of_all_lists_and_no_active_ones(
    api: httpx.AsyncClient, raw: redis.Redis, server_url: str, queue_name: str
) -> None:
    path, started, over = f"/queues/{queue_name}", asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> None:
        started.set()
        await over.wait()

    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, wait, server_url, concurrency=1):
        active = (await queue.add("a")).id
        await asyncio.wait_for(started.wait(), 30)
        options: list[dict[str, Any]] = [{}, {"lifo": True}, {"priority": 3}]
        added = [(await api.post(f"{path}/jobs", json={"name": "b", "opts": each})).json()["id"] for each in options]
        await wait_until(lambda: raw.llen(queue.keys.named("priority")) == 1, "the worker to promote the one")
        listed = (await api.get(f"{path}/jobs?state=waiting")).json()["jobs"]
        assert {job["id"] for job in listed} == set(added)
        assert active not in added
        assert (await api.get(f"{path}/counts")).json()["waiting"] == 3
        over.set()


@pytest.mark.parametrize("priority", [2049, 1.5])
async def test_a_priority_is_limited_in_a_change_as_in_an_add(
    api: httpx.AsyncClient, queue_name: str, priority: float
) -> None:
    job = (await api.post(f"/queues/{queue_name}/jobs", json={"name": "a"})).json()["id"]
    refused = await api.post(f"/queues/{queue_name}/jobs/{job}/priority", json={"priority": priority})
    assert refused.status_code == 400


@pytest.mark.parametrize(
    "path", ["/queues/a%7Bb%7D/events", "/queues/a%3Ab/events", "/broadcast/a%7Bb/events?subscription=s"]
)
async def test_names_that_would_read_other_keys_are_refused(
    api: httpx.AsyncClient, raw: redis.Redis, path: str
) -> None:
    assert (await api.get(path)).json() == {"error": "Queue name must not contain curly braces or colons"}
    assert raw.dbsize() == 0


async def test_a_flow_s_usage_counts_all_its_levels(api: httpx.AsyncClient, server_url: str, queue_name: str) -> None:
    async def use(job: Any) -> None:
        await job.report_usage(Usage(model="m", tokens={"input": 1}))

    tree: dict[str, Any] = {"name": "leaf", "queueName": queue_name, "data": 1}
    for name in ("middle", "top"):
        tree = {"name": name, "queueName": queue_name, "data": 1, "children": [tree]}
    flow = (await api.post("/flows", json={"flow": tree})).json()["flowId"]
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, use, server_url):
        await (await queue.get(flow)).wait(30)
    assert (await api.get(f"/queues/{queue_name}/flows/{flow}/usage")).json()["totalTokens"] == 3


async def test_cancelling_a_finished_job_says_flagged(api: httpx.AsyncClient, queue_name: str) -> None:
    job = (await api.post(f"/queues/{queue_name}/jobs", json={"name": "a"})).json()["id"]
    answers = [(await api.post(f"/queues/{queue_name}/jobs/{job}/revoke")).json()["status"] for _ in range(2)]
    assert answers == ["revoked", "flagged"]


def test_the_table_names_tests_that_exist() -> None:
    table = (ROOT / "docs" / "explanation" / "glidemq-weaknesses.md").read_text().partition("## The HTTP proxy")[2]
    named = {
        line.split("|")[1].strip(): re.findall(r"`(test_\w+)`", line) for line in table.splitlines() if "W-HTTP" in line
    }
    assert list(named) == [f"W-HTTP{number}" for number in range(1, 23)]
    written = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for weakness, tests in named.items():
        assert tests, weakness
        for test in tests:
            assert f"def {test}(" in written, (weakness, test)
