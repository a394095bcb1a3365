"""Flows that ran in the past: really run by a worker, then moved to another time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from orchestration_queue import AsyncFlowProducer
from orchestration_queue.errors import FlowFailedError
from orchestration_queue.flows import Dag
from orchestration_queue.flows.record import job_id_of
from orchestration_queue.flows.stored import read_flow
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker import AsyncActiveJob

__all__ = ["HOUR", "move_flow", "run_flow", "work"]

HOUR = timedelta(hours=1)


async def work(job: AsyncActiveJob) -> str:
    """Fail if the data says so."""
    if isinstance(job.data, dict) and job.data.get("fails"):
        raise ValueError("no such file")
    return "done"


async def run_flow(url: str, dag: Dag, flow_id: str) -> None:
    """Submit a flow and wait until all of it has ended."""
    async with AsyncFlowProducer(url=url) as flows:
        flow = await flows.submit(dag, flow_id=flow_id)
        with suppress(FlowFailedError):
            await flow.wait(30)


async def move_flow(
    connection: AsyncConnection,
    keys: QueueKeys,
    flow_id: str,
    ago: timedelta,
    seconds: Mapping[str, tuple[float, float]],
    *,
    is_over: bool = True,
) -> None:
    """Set when a flow was submitted, and when each node started and how long it took, in seconds since then."""
    created = datetime.now(UTC) - ago
    base = round(created.timestamp() * 1000)
    calls = [
        Call("HSET", (keys.flow(flow_id),), ("createdAt", base)),
        Call("ZADD", (keys.flows,), (base, flow_id)),
    ]
    async with asyncio.timeout(60):
        while is_over and await connection.execute(Call("ZSCORE", (keys.flows_ended,), (flow_id,))) is None:  # noqa: ASYNC110  of Valkey
            await asyncio.sleep(0.02)  # a worker records the end a little later
    snapshot = await connection.look(read_flow(keys, flow_id))
    assert snapshot is not None
    ends = [base + round(1000 * (start + took)) for start, took in seconds.values()]
    if is_over:
        calls.append(Call("HSET", (keys.flow(flow_id),), ("finishedAt", max(ends))))
        unrun = [job for name, job in snapshot.flow.jobs.items() if name not in seconds]
        calls += [Call("HSET", (job.keys.job(job.job_id),), ("finishedOn", max(ends))) for job in unrun]
    for (name, (start, _)), end in zip(seconds.items(), ends, strict=True):
        begin = base + round(1000 * start)
        times = ("timestamp", base, "processedOn", begin, "finishedOn", end)
        key = keys.job(job_id_of(flow_id, name))
        calls += [Call("HSET", (key,), times), Call("HDEL", (key,), ("history",))]
    await connection.pipeline(calls)
