"""Runs side by side, as the client, the command line and HTTP show them, of flows that really ran."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from orchestration_queue import AsyncFlowProducer, AsyncQueue, Every
from orchestration_queue.client import FlowRun, FlowRuns, RunsOf
from orchestration_queue.client import run_reading as reading
from orchestration_queue.errors import JobFailedError, UsageError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.schedules import FlowTemplate, JobTemplate
from orchestration_queue.server import AsyncConnection
from tests.faces import Face
from tests.integration.test_cli import Oq
from tests.past_flows import HOUR, move_flow, run_flow, work
from tests.waiting import wait_until
from tests.workers import working

USUAL = {"fetch": (0.0, 10.0), "load": (10.0, 20.0), "report": (30.0, 5.0)}


@pytest.fixture
async def queue(server_url: str, raw: redis.Redis, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


def graph(queue: str, *, fails: str = "", name: str = "sales", keep: Retention | None = None) -> Dag:
    options = JobOptions(remove_on_complete=keep) if keep else JobOptions()
    nodes = {"fetch": (), "load": ("fetch",), "report": ("load",)}
    return Dag(
        name,
        [Node(each, deps=deps, data={"fails": each == fails}, options=options) for each, deps in nodes.items()],
        queue,
    )


async def past(queue: AsyncQueue, url: str, flow_id: str, hours: int, fails: str = "", **took: float) -> None:
    """Run a flow, and move it into the past."""
    await run_flow(url, graph(queue.name, fails=fails), flow_id)
    times = {name: (start, took.get(name, usual)) for name, (start, usual) in USUAL.items()}
    if fails:
        times = dict(list(times.items())[: list(times).index(fails) + 1])
    await move_flow(queue._connection, queue.keys, flow_id, hours * HOUR, times)


def outcomes(run: FlowRun) -> list[str]:
    return [node.outcome for node in (run.nodes or {}).values()]


async def test_what_is_different_about_a_run_is_marked(
    face: Face, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, work, server_url):
        for hours in (6, 5, 4):
            await past(queue, server_url, f"f{hours}", hours)
        await past(queue, server_url, "f3", 3, load=60.0)
        await past(queue, server_url, "f2", 2, fails="load")
        await run_flow(server_url, graph(queue.name, name="another"), "x1")
    async with AsyncFlowProducer(url=server_url) as producer:  # without a worker: it still runs
        await producer.submit(graph(queue.name), flow_id="f1")
    await move_flow(queue._connection, queue.keys, "f1", HOUR, {}, is_over=False)
    async with face.queue(queue.name) as client:
        found: FlowRuns = await client.flows.runs("sales")
    assert (found.of, found.name, found.queue, found.has_more) == ("flow", "sales", queue.name, False)
    assert [run.id for run in found.runs] == ["f1", "f2", "f3", "f4", "f5", "f6"]
    assert list(found.nodes) == ["fetch", "load", "report"]
    now, failed, slow, *usual = found.runs
    assert [run.state for run in found.runs] == ["running", "failed", *["completed"] * 4]
    assert outcomes(now) == ["waiting", "waiting-children", "waiting-children"]
    assert outcomes(failed) == ["completed", "failed", "upstream_failed"]
    assert [run.expected for run in found.runs] == [35, 35, 35, None, None, None]
    assert [run.is_late for run in found.runs] == [True, False, True, False, False, False]
    assert [run.is_slowest for run in found.runs] == [False, False, True, False, False, False]
    assert [run.is_newly_failing for run in found.runs] == [False, True, False, False, False, False]
    marked = {(run.id, node.name) for run in found.runs for node in (run.nodes or {}).values() if node.is_slowest}
    assert marked == {("f3", "load")}
    new = {(run.id, node.name) for run in found.runs for node in (run.nodes or {}).values() if node.is_newly_failing}
    assert new == {("f2", "load")}
    load = (slow.nodes or {})["load"]
    assert (load.seconds, load.expected, load.is_critical) == (60, 20, True)
    assert now.seconds == pytest.approx(3600, abs=60)
    assert all(node.is_critical for node in (usual[0].nodes or {}).values())


async def test_a_retried_run_says_so_and_is_not_what_to_expect(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, work, server_url):
        for hours in (6, 5, 4):
            await past(queue, server_url, f"f{hours}", hours)
        await past(queue, server_url, "f3", 3, fails="load")
        raw.hset(queue.keys.job("f3.load"), "data", json.dumps({"fails": False}))
        flow = await queue.flows.get("f3")
        await flow.retry()
        await flow.wait(30)
        await wait_until(lambda: raw.zscore(queue.keys.flows_ended, "f3"), "its end to be recorded")
        await past(queue, server_url, "f2", 2)
    found = await queue.flows.runs("sales")
    assert [run.is_retried for run in found.runs] == [False, True, False, False, False]
    retried = found.runs[1]
    assert (retried.state, retried.is_late, retried.is_slowest) == ("completed", False, False)
    assert found.runs[0].expected == 35
    assert (retried.nodes or {})["load"].attempts == 2 or (retried.nodes or {})["load"].outcome == "completed"


async def test_what_retention_removed_is_gone_and_not_failed(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, work, server_url):
        await past(queue, server_url, "f3", 3)
        await run_flow(server_url, graph(queue.name, keep=Retention(count=0)), "f2")
        await wait_until(lambda: raw.zscore(queue.keys.flows_ended, "f2"), "its end to be recorded")
        await past(queue, server_url, "f1", 1, fails="load")
    raw.delete(queue.keys.job("f1.fetch"), queue.keys.job("f1.load"), queue.keys.job("f1.report"))
    pruned, failed, whole = (await queue.flows.runs("sales")).runs
    assert (pruned.state, outcomes(pruned)) == ("completed", ["completed"] * 3)
    assert not any(node.is_kept for node in (pruned.nodes or {}).values())
    assert all(node.is_kept for node in (whole.nodes or {}).values())
    # Nothing says how its nodes ended, but its own record says how it did.
    assert (failed.state, outcomes(failed)) == ("failed", ["gone"] * 3)
    assert not any(node.is_newly_failing for node in (failed.nodes or {}).values())


async def test_a_failed_node_took_as_long_as_its_attempt(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async with working(queue, work, server_url):
        await run_flow(server_url, graph(queue.name, fails="fetch"), "f1")
    (run,) = (await queue.flows.runs("sales")).runs
    node = (run.nodes or {})["fetch"]
    (entry,) = (await queue.get("f1.fetch")).record.history
    assert node.started_at == entry.started_at
    assert node.failed_reason == "ValueError: no such file"


async def test_runs_of_a_scheduler(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async with working(queue, work, server_url):
        for scheduler, template in (("nightly.x", graph(queue.name)), ("ping", None)):
            await queue.schedulers.upsert(
                scheduler, Every(3600), FlowTemplate(template) if template else JobTemplate(name="ping")
            )
            job = await queue.schedulers.run_now(scheduler)
            assert job is not None
            await job.wait(30)
        await wait_until(lambda: raw.zcard(queue.keys.flows_ended), "its flow to end")
        flows, jobs = [await queue.flows.runs(scheduler=each) for each in ("nightly.x", "ping")]
        assert (await queue.flows.runs(scheduler="no such")).runs == []
    assert (flows.of, flows.nodes) == (RunsOf.SCHEDULER, ["fetch", "load", "report"])
    assert [(run.state, run.is_flow) for run in flows.runs] == [("completed", True)]
    assert [(run.state, run.is_flow, outcomes(run)) for run in jobs.runs] == [("completed", False, ["completed"])]


async def test_runs_of_a_dagster_job(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    """Steps' jobs have ids and headers as the executor writes them."""

    async def add(run: str, step: str, job: str, *, attempt: int = 1, fails: bool = False) -> None:
        options = {"job_id": f"dagster.{run}.{step}.{attempt}", "headers": {"dagster.job_name": job}}
        added = await queue.add("step", {"fails": fails}, options)
        with suppress(JobFailedError):
            await added.wait(30)

    async with working(queue, work, server_url):
        await add("r1", "extract", "etl")
        await add("r1", "train", "etl")
        await add("r2", "extract", "etl", fails=True)
        await add("r3", "extract", "etl", fails=True)
        await add("r3", "extract", "etl", attempt=2)
        await add("r4", "extract", "other")
        await add("r3", "-resume", "etl")
    found = await queue.flows.runs(dagster_job="etl")
    assert [run.id for run in found.runs] == ["r3", "r2", "r1"]
    assert [run.state for run in found.runs] == ["completed", "failed", "completed"]
    assert {run.id: list(run.nodes or {}) for run in found.runs} == {
        "r1": ["extract", "train"],
        "r2": ["extract"],
        "r3": ["extract"],
    }
    assert found.runs[1].is_newly_failing
    assert found.queues == {queue.name}


async def test_reading_is_bounded(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncFlowProducer(url=server_url) as producer:
        for place in range(4):
            await producer.submit(graph(queue.name), flow_id=f"f{place}")
        await producer.submit(graph(queue.name, name="another"), flow_id="x")
    monkeypatch.setattr(reading, "MOST_READ", 12)  # a flow has three nodes and two dependencies
    found = await queue.flows.runs("sales")
    assert [run.nodes is None for run in found.runs] == [False, False, True, True]
    assert found.queues == {queue.name}
    monkeypatch.setattr(reading, "MOST_READ", 2)
    assert [list(run.nodes or ()) for run in (await queue.flows.runs("sales", limit=2)).runs] == [["fetch"], []]
    monkeypatch.setattr(reading, "MOST_LOOKED_THROUGH", 3)
    few = await queue.flows.runs("sales")
    assert ([run.id for run in few.runs], few.has_more) == (["f3", "f2"], True)
    assert not (await queue.flows.runs("sales", limit=2)).has_more


async def test_50_runs_take_few_exchanges(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async with AsyncFlowProducer(url=server_url) as producer:
        for place in range(60):
            await producer.submit(graph(queue.name), flow_id=f"f{place}")
    async with await AsyncConnection.open(server_url) as connection:
        sent: list[int] = []
        pipeline = connection.pipeline

        async def count(calls: Any, **more: Any) -> Any:
            sent.append(len(calls))
            return await pipeline(calls, **more)

        connection.pipeline = count  # type: ignore[method-assign]
        found = await AsyncQueue(queue.name, connection=connection).flows.runs("sales")
    assert len(found.runs) == 50
    assert sum(sent) <= 2 + 50 + 150
    assert len(sent) <= 3


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "Pass exactly one of"),
        ({"name": "a", "scheduler": "b"}, "2 were given"),
        ({"name": ""}, "must be a non-empty string"),
        ({"scheduler": 5}, "must be a non-empty string, got 5"),
        ({"name": "a", "limit": 0}, "`limit` must be a whole number from 1 to 50, got 0"),
        ({"name": "a", "limit": 51}, "from 1 to 50"),
        ({"name": "a", "limit": True}, "from 1 to 50"),
        ({"name": "a", "limit": "5"}, "from 1 to 50"),
    ],
)
async def test_bad_arguments_are_refused(queue: AsyncQueue, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        await queue.flows.runs(**given)


async def test_the_command_shows_the_same(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async with working(queue, work, server_url):
        for hours in (6, 5, 4):
            await past(queue, server_url, f"f{hours}", hours)
        await past(queue, server_url, "f3", 3, load=60.0)
        await past(queue, server_url, "f2", 2, fails="load")
    oq = Oq(server_url)
    shown = oq.json("flow", "runs", queue.name, "sales")
    assert [run["id"] for run in shown["runs"]] == ["f2", "f3", "f4", "f5", "f6"]
    assert shown["runs"][0]["nodes"]["load"]["is_newly_failing"]
    text = oq("flow", "runs", queue.name, "sales").stdout
    rows = {line.split()[0]: line.split()[1:] for line in reversed(text.splitlines()) if line.strip()}
    assert rows["run"] == ["✘▲✔✔✔", "30.0", "s", "35.0", "s"]
    assert rows["load"][0] == "✘▲✔✔✔"
    assert rows["report"][0] == "⊘✔✔✔✔"
    assert "newly failing" in " ".join(rows["f2"])
    assert "late, slowest" in " ".join(rows["f3"])
    assert "0 runs" in oq("flow", "runs", queue.name, "no such").stdout
