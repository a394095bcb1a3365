"""Each kind of rule fires and is resolved on a real server, whatever else is wrong there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.alerts import evaluator
from orchestration_queue.client import AsyncAlerts, AsyncFlowProducer, AsyncQueue
from orchestration_queue.flows import Dag, FlowOptions, Node
from orchestration_queue.options import AlertKind, Retention
from orchestration_queue.schedules import Every
from orchestration_queue.testing import TimeMachine
from tests.alerts.alerting import (
    evaluated_again,
    evaluating,
    eventually,
    fails,
    nothing,
    wait_until_evaluated,
    wait_until_state,
)
from tests.alerts.receivers import Hook
from tests.waiting import wait_until
from tests.workers import working

Scene = Callable[[AsyncQueue, str, TimeMachine], Coroutine[Any, Any, Callable[[], Coroutine[Any, Any, Any]]]]
"""Makes something go wrong in a queue, and returns what makes it good again."""


async def fail_often(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    jobs = [await queue.add("work") for _ in range(10)]
    async with working(queue, fails, url):
        for job in jobs:
            await wait_until_state(job, "failed")

    async def later() -> None:
        clock.travel(timedelta(minutes=6))

    return later


async def wait_long(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    await queue.add("work")
    clock.travel(timedelta(minutes=11))
    return queue.drain


async def lose_workers(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    await queue.add("work")
    return queue.pause


async def die(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    job = await queue.add("work")
    async with working(queue, fails, url, dead_letter_queue=f"{queue.name}-dead"):
        await wait_until_state(job, "failed")
    return queue.dead_letters.purge


async def miss_a_run(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    await queue.schedulers.upsert("nightly", Every(3600))
    clock.travel(timedelta(hours=2))

    async def pause() -> None:
        await queue.schedulers.pause("nightly")

    return pause


async def be_late(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    async with AsyncFlowProducer(url=url) as flows:
        kept = FlowOptions(retention=Retention(age=timedelta(days=1)))
        await flows.submit(Dag("etl", [Node("a"), Node("b", deps=("a",))], queue.name, kept), flow_id="etl-1")

    async def cancel() -> None:
        await (await queue.flows.get("etl-1")).cancel()

        async def has_ended() -> bool:
            await queue.flows.reconcile()  # by the server's clock
            return (await queue.flows.list())[0].state.is_final

        await eventually(has_ended)

    return cancel


async def grow(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    for _ in range(3):
        await queue.add("work")
    return queue.drain


async def exhaust(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    await queue.pools.set(queue.name, 0)
    job = await queue.add("work", None, {"pools": {queue.name: 1}})
    async with working(queue, nothing, url):
        await wait_until_state(job, "delayed")

    async def widen() -> None:
        await queue.pools.set(queue.name, 1)
        async with working(queue, nothing, url):
            await wait_until_state(job, "completed")

    return widen


async def fill(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    client = redis.Redis(unix_socket_path=url.removeprefix("unix://"))
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", int(used * 1.1))

    async def enlarge() -> None:
        client.config_set("maxmemory", 0)
        client.close()

    return enlarge


SCENES: dict[AlertKind, tuple[Scene, dict[str, Any], str]] = {
    AlertKind.FAILURE_RATE: (fail_often, {}, "100% of 10 jobs failed within 5 min"),
    AlertKind.OLDEST_WAITING: (wait_long, {}, "The oldest waiting job has been ready for 11 min"),
    AlertKind.NO_WORKER: (lose_workers, {}, "No worker serves the queue"),
    AlertKind.DEAD_LETTERS: (die, {}, "1 dead letter is stored there"),
    AlertKind.SCHEDULE_OVERDUE: (miss_a_run, {}, "A run of the schedule is 1 h overdue"),
    AlertKind.FLOW_LATE: (be_late, {"threshold": 0}, "The flow has run for 0 s"),
    AlertKind.BACKLOG: (grow, {"threshold": 2}, "3 jobs wait for a worker"),
    AlertKind.POOL_EXHAUSTED: (exhaust, {}, "1 job waits for slots, of which 0 of 0 are used"),
    AlertKind.MEMORY: (fill, {}, "of maxmemory is in use"),
}


@pytest.mark.parametrize("is_pattern", [False, True], ids=["named", "pattern"])
@pytest.mark.parametrize("kind", list(AlertKind))
async def test_each_kind_fires_and_is_resolved(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, kind: AlertKind, is_pattern: bool
) -> None:
    scene, options, says = SCENES[kind]
    pattern = f"{queue.name[:8]}*" if is_pattern else queue.name
    with TimeMachine() as clock:
        if is_pattern:
            await (await queue.add("first")).remove()  # so that the queue exists
        await alerts.set("r", {"kind": kind, "queue": pattern, "keep_firing": 0, "to": ["ops"], **options})
        async with evaluating(server_url, ops=ops.url):
            await wait_until_evaluated(alerts)
            before = list(ops.states)
            if is_pattern or kind is not AlertKind.NO_WORKER:
                assert before == []
            repair = await scene(queue, server_url, clock)
            await wait_until(lambda: ops.states[:1] == ["firing r"] and says in str(ops.bodies), "the rule to fire")
            assert (await alerts.get("r")).state == "firing"
            await repair()
            await wait_until(lambda: ops.states[-1] == "resolved r", "the rule to be resolved")
        assert (await alerts.get("r")).state == "ok"
        events = [event.event for event in reversed(await alerts.history("r"))]
        assert [event for event in events if event != "resolved"][:2] == [
            "firing",
            "sent",
        ]  # it may end while it is sent


async def test_an_idle_queue_without_a_worker_fires_only_for_a_rule_that_names_it(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    await alerts.set("exact", {"kind": "no_worker", "keep_firing": 0, "queue": queue.name, "to": ["ops"]})
    await alerts.set("all", {"kind": "no_worker", "keep_firing": 0, "to": ["ops"]})
    await (await queue.add("first")).remove()
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing exact"], "the rule to fire")
        await queue.add("work")
        await wait_until(lambda: ops.states == ["firing exact", "firing all"], "the other to fire")
        async with working(queue, nothing, server_url):
            await wait_until(lambda: len(ops.states) == 4, "both to be resolved")


async def test_a_pattern_concerns_no_dead_letter_queue(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    job = await queue.add("work")
    async with working(queue, fails, server_url, dead_letter_queue=f"{queue.name}-dead"):
        await wait_until_state(job, "failed")
    for kind in ("backlog", "no_worker"):
        await alerts.set(kind, {"kind": kind, "to": ["ops"]} | ({} if kind == "no_worker" else {"threshold": 0}))
    await alerts.set("exact", {"kind": "backlog", "queue": f"{queue.name}-dead", "threshold": 0, "to": ["ops"]})
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing exact"], "the rule that names it to fire")
        await evaluated_again(alerts)
    assert ops.states == ["firing exact"]


async def test_queues_of_a_pattern_are_one_message(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    async with AsyncExitStack() as stack:
        for name in ("mail-a", "mail-b", "print"):
            other = await stack.enter_async_context(AsyncQueue(name, url=server_url))
            await other.add("work")
        await alerts.set("r", {"kind": "backlog", "queue": "mail-*", "threshold": 0, "to": ["ops"]})
        async with evaluating(server_url, ops=ops.url):
            await wait_until(lambda: ops.posted, "the rule to fire")
            assert [each["subject"] for each in ops.posted[0]["breaches"]] == ["mail-a", "mail-b"]


async def test_a_damaged_queue_does_not_keep_others_from_being_watched(
    server_url: str,
    queue: AsyncQueue,
    alerts: AsyncAlerts,
    ops: Hook,
    raw: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await queue.add("work")
    async with AsyncQueue("broken", url=server_url) as broken:
        await broken.add("work")
        raw.delete(broken.keys.stream)
        raw.set(broken.keys.stream, "text", ex=600)
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "to": ["ops"]})
    raw.hset("glide:{:alerts}:rules", mapping={"odd": "no json", "later": '{"kind": "weather", "to": ["ops"]}'})
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing r"], "the rule to fire")
    assert "Queue broken cannot be watched" in caplog.text
    assert [alert.name for alert in await alerts.list()] == ["r"]


async def test_a_queue_that_cannot_be_read_any_more_is_not_resolved(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, raw: redis.Redis
) -> None:
    await queue.add("work")
    await alerts.set("r", {"kind": "backlog", "queue": queue.name, "threshold": 0, "keep_firing": 0, "to": ["ops"]})
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing r"], "the rule to fire")
        raw.set(queue.keys.stream, "text", ex=600)
        await evaluated_again(alerts)
        assert (await alerts.get("r")).state == "firing"
        raw.delete(queue.keys.stream)
        await wait_until(lambda: ops.states == ["firing r", "resolved r"], "the rule to be resolved")


async def test_one_rule_that_cannot_be_measured_stops_no_other(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(where: str, rule: Any) -> Any:
        raise ValueError("as told")

    monkeypatch.setattr(evaluator, "measure_memory", broken)
    await alerts.set("bad", {"kind": "memory", "to": ["ops"]})
    await alerts.set("good", {"kind": "no_worker", "keep_firing": 0, "queue": queue.name, "to": ["ops"]})
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing good"], "the rule to fire")

        async def is_shown() -> bool:
            found = await alerts.evaluator()
            return found is not None and found.error == "Rules bad cannot be measured; see its log."

        await eventually(is_shown)
