"""What the client sends and reads, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.errors import (
    InvalidNameError,
    InvalidOptionError,
    JobNotFoundError,
    LeaseLostError,
    PayloadError,
    ServerError,
    TransportError,
    UsageError,
)
from orchestration_queue.wires.qless import AsyncQlessClient, AsyncQlessEvents, QlessClient
from tests.endpoints import moving_endpoint


@pytest.fixture
async def qless(server: redis.Redis, server_url: str) -> AsyncIterator[AsyncQlessClient]:
    async with AsyncQlessClient(url=server_url, worker="me") as client:
        yield client


async def test_a_job_is_put_taken_kept_and_completed(qless: AsyncQlessClient) -> None:
    jid = await qless.put("q", "app.Import", {"n": 1}, tags=["red"], priority=2, retries=3)
    (job,) = await qless.pop("q", 5)
    assert (job.jid, job.klass, job.data, job.state, job.worker) == (jid, "app.Import", {"n": 1}, "running", "me")
    assert (job.tags, job.priority, job.retries, job.remaining) == (("red",), 2, 3, 3)
    assert [entry["what"] for entry in job.history] == ["put", "popped"]
    assert job.expires is not None
    assert await qless.heartbeat(job) >= int(job.expires.timestamp())
    assert await qless.complete(job, {"n": 2}) == "complete"
    done = await qless.get(jid)
    assert done is not None
    assert (done.state, done.data, done.queue) == ("complete", {"n": 2}, "")
    assert await qless.completed() == [jid]


async def test_a_job_moves_on_with_a_delay_or_dependencies(qless: AsyncQlessClient) -> None:
    first, second = await qless.put("a", "K"), await qless.put("a", "K")
    one, other = await qless.pop("a", 2)
    assert {one.jid, other.jid} == {first, second}
    assert await qless.complete(one, next_queue="b", delay=timedelta(minutes=1)) == "scheduled"
    assert await qless.complete(other, next_queue="b", depends=[one.jid]) == "depends"
    assert await qless.jobs("b", "scheduled") == [one.jid]
    assert await qless.jobs("b", "depends") == [other.jid]
    await qless.undepend(other.jid)
    assert [job.jid for job in await qless.peek("b", 5)] == [other.jid]
    with pytest.raises(UsageError, match="next_queue"):
        await qless.complete(one, delay=5)


async def test_data_keep_their_bytes(qless: AsyncQlessClient, server: redis.Redis) -> None:
    server.fcall("qless", 0, "put", 1, "w", "q", "j", "K", '{"a": 1.50,  "b": []}', 0)
    (job,) = await qless.pop("q")
    await qless.complete(job, next_queue="q2")
    assert server.hget("ql:j:j", "data") == '{"a": 1.50,  "b": []}'


async def test_a_lost_lock_is_a_lost_lease(qless: AsyncQlessClient) -> None:
    await qless.put("q", "K", jid="j")
    (job,) = await qless.pop("q")
    await qless.timeout("j")
    for attempt in (qless.complete(job), qless.heartbeat(job), qless.retry(job), qless.fail(job, "g", "m")):
        with pytest.raises(LeaseLostError):
            await attempt
    assert isinstance((await qless.complete_many([job]))[0], LeaseLostError)
    await qless.cancel("j")
    with pytest.raises(JobNotFoundError):
        await qless.complete(job)
    with pytest.raises(JobNotFoundError):
        await qless.track("j")


async def test_failed_jobs_are_grouped_and_run_again(qless: AsyncQlessClient) -> None:
    for jid in ("one", "two"):
        await qless.put("q", "K", jid=jid)
    for job in await qless.pop("q", 2):
        await qless.fail(job, "broken", "no disk")
    assert await qless.failures() == {"broken": 2}
    assert set(await qless.failed("broken")) == {"one", "two"}
    found = await qless.get("one")
    assert found is not None
    assert found.failure is not None
    assert (found.failure.group, found.failure.message, found.failure.worker) == ("broken", "no disk", "me")
    assert await qless.unfail("q", "broken") == 2
    assert (await qless.counts("q")).waiting == 2
    (job,) = await qless.pop("q")
    assert await qless.retry(job, group="flaky", message="again") == 4
    with pytest.raises(UsageError, match="both"):
        await qless.retry(job, group="flaky")


async def test_queues_workers_tags_options_and_statistics(qless: AsyncQlessClient) -> None:
    jids = [await qless.put("q", "K", tags=["red"]) for _ in range(3)]
    assert sorted(await qless.tagged("red")) == sorted(jids)
    assert await qless.top_tags() == ["red"]
    assert await qless.tag(jids[0], "blue") == ["red", "blue"]
    assert await qless.untag(jids[0], "red", "blue") == []
    assert await qless.track(jids[0])
    assert [job.jid for job in await qless.tracked()] == [jids[0]]
    assert await qless.untrack(jids[0])
    await qless.pause("q")
    assert await qless.pop("q") == []
    await qless.unpause("q")
    jobs = await qless.pop("q", 3)
    assert await qless.complete_many(jobs) == ["complete"] * 3
    assert [(worker.name, worker.jobs) for worker in await qless.workers()] == [("me", 0)]
    assert await qless.jobs_of_worker("me") == ([], [])
    assert (await qless.stats("q")).run.count == 3
    assert (await qless.stats("q", datetime(2020, 1, 1, tzinfo=UTC))).wait.count == 0
    await qless.set_config("heartbeat", 5)
    assert await qless.get_config("heartbeat") == "5"
    await qless.unset_config("heartbeat")
    assert (await qless.config())["heartbeat"] == 60
    assert await qless.length("q") == 0
    await qless.forget_queue("q")
    assert await qless.queues() == []


async def test_recurring_jobs_make_jobs(qless: AsyncQlessClient) -> None:
    await qless.recur("q", "K", {"n": 1}, interval=60, jid="r", tags=["t"])
    await qless.update_recurring("r", priority=3, data={"n": 2})
    assert await qless.tag_recurring("r", "u") == ["t", "u"]
    assert await qless.untag_recurring("r", "t") == ["u"]
    recurring = await qless.recurring("r")
    assert recurring is not None
    assert (recurring.data, recurring.priority, recurring.interval) == ({"n": 2}, 3, 60)
    (job,) = await qless.pop("q")
    assert (job.jid, job.spawned_from, job.tags) == ("r-1", "r", ("u",))
    await qless.unrecur("r")
    assert await qless.recurring("r") is None


async def test_events_are_read_as_they_are_published(qless: AsyncQlessClient, server_url: str) -> None:
    async with AsyncQlessEvents("log", "w:me", "popped", url=server_url) as events:
        await events.start()
        await qless.put("q", "K", jid="j")
        await qless.track("j")
        await qless.pop("q")
        await qless.timeout("j")
        seen = [await anext(events) for _ in range(4)]
    assert [(event.channel, event.name, event.jid) for event in seen] == [
        ("log", "put", "j"),
        ("popped", "popped", "j"),
        ("w:me", "lock_lost", "j"),
        ("log", "lock_lost", "j"),
    ]


@pytest.mark.parametrize("follows", [True, False], ids=["the server closed it", "the demoted primary has it"])
async def test_events_arrive_after_their_endpoint_has_moved(tmp_path: Path, *, follows: bool) -> None:
    with moving_endpoint(tmp_path) as endpoint:
        async with (
            AsyncQlessEvents("log", url=endpoint.url) as events,
            AsyncQlessClient(url=endpoint.url, worker="me") as client,
        ):
            await client.put("q", "K", jid="before")
            await events.start()
            endpoint.move()
            if follows:
                endpoint.proxy.cut()
                with pytest.raises(TransportError, match="read again to resubscribe"):
                    await anext(events)
                await events.start()
            async with AsyncQlessClient(url=endpoint.url, worker="other") as newcomer:
                await newcomer.put("q", "K", jid="after")
            seen = await asyncio.wait_for(anext(events), 30)
    assert (seen.name, seen.jid) == ("put", "after")


WRONG: list[tuple[type[Exception], Callable[[Any], Any]]] = [
    (InvalidNameError, lambda client: client.put("", "K")),
    (InvalidNameError, lambda client: client.put("q", "K", jid="")),
    (PayloadError, lambda client: client.put("q", "K", False)),
    (PayloadError, lambda client: client.put("q", "K", object())),
    (PayloadError, lambda client: client.put("q", "K", float("nan"))),
    (InvalidOptionError, lambda client: client.put("q", "K", delay="x")),
    (InvalidOptionError, lambda client: client.put("q", "K", delay=-1)),
    (InvalidOptionError, lambda client: client.put("q", "K", priority=float("inf"))),
    (InvalidOptionError, lambda client: client.put("q", "K", tags="red")),
    (InvalidOptionError, lambda client: client.put("q", "K", retries=-1)),
    (InvalidNameError, lambda client: client.put("q", "K", depends=[1])),
    (InvalidOptionError, lambda client: client.pop("q", 0)),
    (InvalidNameError, lambda client: client.cancel()),
    (InvalidOptionError, lambda client: client.recur("q", "K", interval=0)),
    (InvalidOptionError, lambda client: client.update_recurring("r", color="red")),
    (InvalidOptionError, lambda client: client.set_config("heartbeat", True)),
    (InvalidOptionError, lambda client: client.stats("q", datetime(2020, 1, 1))),  # noqa: DTZ001
    (InvalidOptionError, lambda client: client.jobs("q", "nix")),
]


@pytest.mark.parametrize(("error", "call"), WRONG, ids=range(len(WRONG)))
async def test_what_is_wrong_is_refused(
    qless: AsyncQlessClient, server: redis.Redis, error: type[Exception], call: Callable[[Any], Any]
) -> None:
    with pytest.raises(error):
        await call(qless)
    assert not server.keys("*")


def test_the_sync_client_does_the_same(server: redis.Redis, server_url: str) -> None:
    with QlessClient(url=server_url, worker="me") as client:
        client.put("q", "K", jid="j")
        (job,) = client.pop("q")
        assert client.requeue(job, "other") == "j"
        (job,) = client.pop("other")
        assert client.complete(job) == "complete"
    with pytest.raises(UsageError, match="closed"):
        client.get("j")


async def test_messages_are_read_with_a_time_limit(qless: AsyncQlessClient, server_url: str) -> None:
    async with AsyncQlessEvents(url=server_url) as events:
        assert await events.read() == []
        for jid in ("a", "b", "c"):
            await qless.put("q", "K", jid=jid)
        read = await events.read(60, 2)
        assert [event.jid for event in read] == ["a", "b"]
        assert (await anext(events)).jid == "c"
        assert await events.read(0.01) == []
        with pytest.raises(InvalidOptionError, match="limit"):
            await events.read(limit=0)


async def test_many_jobs_are_taken_in_one_exchange(qless: AsyncQlessClient, server: redis.Redis) -> None:
    jids = [await qless.put("q", "K") for _ in range(50)]
    assert {job.jid for job in await qless.pop("q", 45)} < set(jids)
    assert server.zcard("ql:q:q-locks") == 45
    assert len(await qless.pop("q", 45)) == 5
    server.set("ql:q:r-work", "no sorted set")
    with pytest.raises(ServerError):
        await qless.pop("r", 45)


async def test_messages_of_an_embedded_server_are_read(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}"
    async with AsyncQlessClient(url=url) as client, AsyncQlessEvents(url=url) as events:
        await events.start()
        await client.put("q", "K", jid="j")
        assert (await anext(events)).jid == "j"


async def test_a_user_who_may_not_subscribe_is_refused(server: redis.Redis, server_url: str) -> None:
    server.acl_setuser("mute", enabled=True, passwords=["+x"], categories=["+@all"], keys=["*"], reset_channels=True)
    address = server_url.replace("unix://", "unix://mute:x@")
    async with AsyncQlessEvents(url=address) as events:
        with pytest.raises(ServerError, match="refused SUBSCRIBE") as caught:
            await events.read()
    assert caught.value.code == "NOPERM"
    server.acl_deluser("mute")
