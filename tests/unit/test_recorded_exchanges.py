"""A server's answers to what clients ask about queues in many states, recorded, and replayed without the server.

After an intended change of either, ``python -m tests.unit.test_recorded_exchanges`` records them again.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from redis.exceptions import ResponseError

from orchestration_queue import (
    AsyncActiveJob,
    AsyncQueue,
    Cron,
    Dag,
    Every,
    Failed,
    FlowProducer,
    JobOptions,
    JobTemplate,
    NewJob,
    Node,
    Queue,
    RateLimit,
    TriggerRule,
    Usage,
    Worker,
    WorkerOptions,
)
from orchestration_queue.client._sync import taker
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options import Budget, Ordering
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import (
    event_log,
    http_records,
    keyspace,
    partitions,
    queue_state,
    worker_registry,
    worker_signals,
)
from orchestration_queue.server import Connection, clock
from orchestration_queue.states import JobState

RECORDED = Path(__file__).with_name("recorded_exchanges.json")
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def work(job: AsyncActiveJob) -> Any:
    """Do what the job's name says."""
    match job.name:
        case "fail":
            raise ValueError("no such order")
        case "refuse":
            raise Failed("the warehouse is closed", kind="closed")
        case "suspend":
            job.suspend("approval", timeout=HOUR)
        case "report":
            await job.log("half", "whole")
            await job.update_progress({"percent": 50})
            await job.report_usage(Usage(tokens={"input": 5, "output": 2}, costs={"total": 0.5}))
            await job.stream({"type": "token", "content": "a"})
    return {"done": job.name}


async def prepare(url: str) -> None:
    """Bring two queues into many states: jobs of all kinds, a flow that failed and one that waits."""
    options = WorkerOptions(dead_letter_queue="orders-dead", promotion_interval=0.05)
    async with AsyncQueue("orders", url=url) as queue:
        await queue.configure(attempts=1, timeout=60)
        await queue.set_global_rate_limit(RateLimit(max=1000, duration=1))
        worker = Worker("orders", work, url=url, options=options)
        running = asyncio.ensure_future(worker.run())
        jobs = await queue.add_bulk([
            NewJob("fail", {"n": 1}, JobOptions(tags=("eu", "late"))),
            NewJob("refuse", {"n": 2}, JobOptions(tags=("eu",))),
            NewJob("report", {"n": 3}),
            NewJob("succeed", {"n": 4}),
            NewJob("suspend", {"n": 5}),
        ])  # fmt: skip
        dag = Dag(
            "broken",
            [
                Node("fail"),
                Node("after", deps=["fail"]),
                Node("always", deps=["fail"], trigger_rule=TriggerRule.ALL_DONE),
            ],
            "orders",
        )
        producer = FlowProducer(url=url)
        await asyncio.to_thread(producer.submit, dag, flow_id="broken")
        for job in jobs[:4]:
            with suppress(OrchestrationQueueError):
                await job.wait(30)

        async def is_over() -> bool:
            suspended, always = await queue.suspended_jobs(), await queue.find("broken.always")
            return len(suspended) == 1 and always is not None and always.state is JobState.COMPLETED

        while not await is_over():  # noqa: ASYNC110  it reports to no one
            await asyncio.sleep(0.01)
        worker.stop()
        await running
        await queue.pools.set("warehouse", 1)
        await queue.shares.set("acme", 3)
        await queue.add_bulk([
            NewJob("plain", {"n": 10}, JobOptions(job_id="plain")),
            NewJob("later", {"n": 11}, JobOptions(job_id="later", delay=HOUR, attempts=3)),
            NewJob("urgent", {"n": 12}, JobOptions(job_id="urgent", priority=5)),
            NewJob("newest", {"n": 13}, JobOptions(job_id="newest", lifo=True)),
            *[NewJob("turn", {}, JobOptions(job_id=f"turn{n}", ordering=Ordering(key="k"))) for n in range(3)],
            NewJob("shared", {}, JobOptions(job_id="shared", share="acme")),
            NewJob("pooled", {}, JobOptions(job_id="pooled", pools={"warehouse": 2})),
            NewJob("mortal", {}, JobOptions(job_id="mortal", ttl=HOUR)),
        ])  # fmt: skip
        waiting = Dag(
            "waiting", [Node("a"), Node("b", deps=["a"]), Node("c", deps=["b"], optional_deps=["a"])], "orders"
        )
        await asyncio.to_thread(producer.submit, waiting, flow_id="waiting")
        await asyncio.to_thread(producer.close)
        await queue.schedulers.upsert("nightly", Cron("0 3 * * *"), JobTemplate(name="plain"))
        await queue.schedulers.upsert("often", Every(HOUR), JobTemplate(name="plain"))
        await queue.schedulers.pause("often")
    with Connection(url) as connection:
        description = {"addr": "here", "pid": 7, "startedAt": 1_700_000_000_000, "concurrency": 2, "activeJobs": 1}
        description |= {"jobs": [["plain", "plain", 1_700_000_000_000]], "paused": False}
        connection.execute(worker_registry.register(QueueKeys("orders"), "w-1", description, 3_600_000))


def visit(connection: Connection) -> Iterator[tuple[str, object]]:
    """Yield what a client reads and changes, by name, in an order in which the changes come last."""
    queue = Queue("orders", connection=connection)
    yield "counts", queue.counts()
    yield "count", queue.count()
    yield "oldest", queue.oldest_ready()
    yield "settings", queue.settings()
    yield "limits", (queue.global_concurrency(), queue.global_rate_limit(), queue.is_paused())
    yield "metrics", queue.metrics(start=datetime.fromtimestamp(clock.now_ms() / 1000, UTC) - 3 * MINUTE)
    yield "failures", queue.failures()
    yield "workers", queue.workers()
    for state in JobState:
        with suppress(OrchestrationQueueError):
            found = queue.jobs(state)
            yield f"jobs {state}", [described(job) for job in found]
            yield f"page {state}", [job.id for job in queue.jobs(state, limit=1, offset=1)]
    for wanted in ({"name": "plain"}, {"state": "failed"}, {"data": {"n": 3}}, {"kind": "ValueError"}, {"limit": 2}):
        yield f"search {wanted}", [job.id for job in queue.search(**wanted)]
    for job_id in ("1", "3", "5", "plain", "later", "urgent", "turn1", "pooled", "shared", "broken.after", "waiting.c"):
        yield f"explain {job_id}", queue.get(job_id).explain()
    for job_id in ("3", "5", "broken.after", "waiting.a"):
        job = queue.get(job_id)
        yield f"details {job_id}", (job.logs(), job.logs(limit=1, offset=1), job.parents(), job.children())
        yield f"output {job_id}", (job.read_stream(), job.suspend_info(), queue.last_logs(job_id, 1))
    yield "values", (queue.get("broken.always").children_values(), queue.find("none"))
    yield "tags", (queue.tags.list(), queue.tags.list(limit=1, offset=1), queue.tags.jobs("eu", limit=1))
    yield "pools", (queue.pools.list(), queue.pools.find("none"))
    yield "shares", queue.shares.list()
    yield "usage", (queue.usage.summary(start=NOON, end=NOON + HOUR), queue.usage.of_flow("plain"))
    yield "no budget", queue.usage.budget("plain")
    yield "budget", queue.usage.set_budget("plain", Budget(max_tokens=9, max_cost=1.5))
    yield "its state", queue.usage.budget("plain")
    yield "tracked", queue.tracked()
    yield "schedulers", queue.schedulers.list()
    yield "next runs", queue.schedulers.next_runs("nightly", 2)
    yield "past runs", queue.schedulers.history("nightly")
    for flow_id in ("broken", "waiting"):
        flow = queue.flows.get(flow_id)
        yield f"flow {flow_id}", (flow.status(), flow.tree(), flow.explain(), flow.critical_path(), flow.records())
    yield "flows", (queue.flows.list(), queue.flows.list(limit=1, offset=1), queue.flows.find("none"))
    dead = queue.dead_letters
    yield "letters", (letters := dead.list(), dead.list(limit=1, offset=1), dead.groups(), dead.find("none"))
    yield "letter", dead.get(letters[0].id)
    yield "replay", dead.replay(letters[0].id)
    yield "letters left", (dead.replay_all(1), dead.purge())

    yield from look_inside(connection, queue.keys)

    plain, later, waiting = queue.get("plain"), queue.get("later"), queue.flows.get("waiting")
    changes: list[tuple[Callable[..., object], Sequence[object]]] = [
        (plain.change_priority, [3]), (plain.update_data, [{"n": 20}]), (plain.tag, ["x", "y"]), (plain.untag, ["y"]),
        (later.change_delay, [2 * HOUR]), (later.promote, []), (plain.track, []), (plain.untrack, []),
        (plain.report_usage, [Usage(tokens={"input": 3})]), (plain.log, ["one"]), (plain.update_progress, [5]),
        (queue.signal, ["5", "approval", {"ok": True}]), (queue.signal, ["plain", "approval"]),
        (queue.cancel, ["turn0"]), (queue.cancel, ["turn1"]), (waiting.cancel, []),
        (queue.retry_jobs, [1]), (partial(queue.retry_jobs, kind="closed"), []),
        (queue.move_jobs, [["urgent", "none"], "elsewhere"]),
        (queue.remove, ["newest"]), (queue.remove, ["none"]), (queue.tags.remove, ["x"]),
        (queue.shares.remove, ["acme"]), (queue.shares.remove, ["acme"]),
        (queue.set_global_concurrency, [2]), (queue.set_global_rate_limit, [None]), (queue.settings, []),
        (queue.pause, []), (queue.get("shared").explain, []), (queue.resume, []),
        (partial(queue.clean, limit=1), [0]), (partial(queue.clean, state=JobState.FAILED), [0]),
        (partial(queue.drain, delayed=True), []), (queue.counts, []),
    ]  # fmt: skip
    for number, (change, arguments) in enumerate(changes):
        yield f"change {number}", change(*arguments)
        if number == 10:
            yield "changed", [described(queue.get(name)) for name in ("plain", "later")]
    yield from take(queue)
    yield "gone", Queue("elsewhere", connection=connection).obliterate(force=True)


def look_inside(connection: Connection, keys: QueueKeys) -> Iterator[tuple[str, object]]:
    """Yield what the console, Spark and `oq doctor` read beside."""
    yield "active jobs", connection.follow(keyspace.active_jobs(keys))
    yield "queues", (connection.follow(keyspace.queues(keys.prefix)), connection.follow(keyspace.kinds(keys.prefix)))
    for flow_id in ("broken", "waiting"):
        yield f"dependencies {flow_id}", connection.follow(keyspace.flow_dependencies(keys, flow_id))
    yield "handed out", connection.follow(queue_state.handed_out_until(keys))
    last, oldest = connection.look(event_log.last_event_id(keys)), connection.follow(event_log.oldest_event(keys))
    yield "events", (last, oldest, connection.look(event_log.events_since({keys: event_log.FIRST_EVENT}, 1, 7)))
    for state in (JobState.WAITING, JobState.FAILED, JobState.DELAYED):
        for part in connection.follow(partitions.divide(keys, state, 2)):
            yield f"{part}", connection.follow(partitions.page(keys, part))
    yield (
        "audit",
        [connection.execute(http_records.record_act(keys.prefix, "ada", act, "orders", "7")) and act for act in "ab"],
    )
    yield "audited", connection.look(http_records.recent_acts(keys.prefix, 1))
    yield "unregistered", connection.look(worker_signals.unregistered_of(keys, ["w-1", "w-2"]))


def take(queue: Queue) -> Iterator[tuple[str, object]]:
    """Yield what happens to jobs that are taken one by one."""
    ordering, retried = Ordering(key="k"), JobOptions(job_id="t2", attempts=2)
    options = [JobOptions(job_id="t1"), retried, JobOptions(job_id="t3", ordering=ordering), JobOptions(job_id="t4")]
    yield "added", [job.is_new for job in queue.add_bulk([NewJob("plain", {}, given) for given in options])]
    for settlements in (["complete", "fail"], ["retry", "release"]):
        for job, settlement in zip(queue.take(3, lease=5), settlements, strict=True):  # two may run at a time
            yield f"taken {job.id}", (job.name, job.attempt, job.heartbeat(), queue.get(job.id).explain())
            yield settlement, getattr(job, settlement)(*(["reason"] if settlement == "fail" else []))
            yield f"settled {job.id}", (described(queue.get(job.id)), queue.get(job.id).explain())
    yield "group", queue.rate_limit_group("k", HOUR)


def described(job: Any) -> object:
    """Return all that a record says of its job."""
    record, shown = job.record, {}
    for name in sorted(vars(type(record))):
        if not name.startswith("_") and not callable(vars(type(record))[name]):
            try:
                shown[name] = getattr(record, name)
            except OrchestrationQueueError as error:
                shown[name] = error
    return shown


@dataclass
class FixedTime:
    """The time of the recording."""

    at_ms: int

    def time_ns(self) -> int:
        return self.at_ms * 1_000_000

    def time(self) -> float:
        return self.at_ms / 1000

    def monotonic(self) -> float:
        return 0.0


class Replay:
    """Answers what was recorded, to the calls that were recorded."""

    def __init__(self, exchanges: list[Any]) -> None:
        self._left = iter(exchanges)

    def __call__(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> list[Reply]:
        recorded = next(self._left)
        assert said(calls, atomic, repeatable) == recorded["said"], "see the module's docstring if this was intended"
        return [ResponseError(reply[1]) if isinstance(reply, tuple) else reply for reply in read(recorded["answered"])]


class Recording:
    """Passes calls on, and keeps them with their answers."""

    def __init__(self, connection: Connection) -> None:
        self._exchange = connection._exchange
        self.exchanges: list[Any] = []

    def __call__(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> list[Reply]:
        replies = self._exchange(calls, atomic=atomic, repeatable=repeatable)
        written = [("error", str(reply)) if isinstance(reply, Exception) else reply for reply in replies]
        self.exchanges.append({"said": said(calls, atomic, repeatable), "answered": repr(written)})
        return replies


def said(calls: Sequence[Call], atomic: bool, repeatable: bool) -> list[str]:
    """Return an exchange's calls as text, and how they are sent."""
    ways = [way for way, holds in (("atomic", atomic), ("repeatable", repeatable)) if holds]
    return [*[" ".join(map(str, call.words)) for call in calls], *ways]


def read(written: str) -> list[Any]:
    """Read recorded replies."""
    replies: list[Any] = ast.literal_eval(written)
    return replies


def steps(connection: Connection, exchange: Replay | Recording, at_ms: int) -> Iterator[tuple[str, str]]:
    """Yield each step's name and result, at the time of the recording and with the same random tokens."""
    fixed = FixedTime(at_ms)
    connection._exchange = exchange  # type: ignore[method-assign]  # the one way to the server, except the next
    connection.pipelines = lambda batches: [*map(connection.pipeline, batches)]  # type: ignore[method-assign]
    with (
        mock.patch.object(clock, "time", fixed),
        mock.patch.object(taker, "time", fixed),
        mock.patch("secrets.token_hex", return_value="0123"),
        mock.patch("socket.gethostname", return_value="here"),
    ):
        for name, result in visit(connection):
            yield name, repr(result)


def test_what_clients_ask_and_read_is_what_was_recorded() -> None:
    recorded = json.loads(RECORDED.read_text())
    with Connection("redis://recorded") as connection:
        connection._server = mock.Mock()  # is never called
        replayed = dict(steps(connection, Replay(recorded["exchanges"]), recorded["at_ms"]))
    assert replayed.keys() == recorded["results"].keys()
    for name, result in replayed.items():
        assert result == recorded["results"][name], name


def record() -> None:
    """Record what a server answers."""
    from tests.bench.server import server

    with server() as url:
        asyncio.run(prepare(url))
        with Connection(url) as connection:
            recording, at_ms = Recording(connection), round(time.time() * 1000)
            results = dict(steps(connection, recording, at_ms))
    recorded = json.dumps({"at_ms": at_ms, "exchanges": recording.exchanges, "results": results}, indent=0)
    # Tracebacks name this file, within JSON within JSON; where the checkout is must not stay in it.
    checkout = "".join(rf"\\*/{re.escape(part)}" for part in Path(__file__).parents[2].parts[1:])
    RECORDED.write_text(re.sub(rf"{checkout}\\*/", "", recorded) + "\n")


if __name__ == "__main__":
    record()
