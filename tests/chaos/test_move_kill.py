"""A process dies while it moves jobs: each job ends up in one of the two queues, and runs once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import JobOptions
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from tests.chaos.saboteur import Saboteur
from tests.chaos.workers import kill
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

JOBS = 500
SOON, LATER_MS = timedelta(seconds=60), 60_000


@pytest.mark.parametrize("step", [None, "oq1_moveIn", "oq1_endMove", "oq1_landJob"])
async def test_a_process_killed_while_it_moves_jobs_loses_and_doubles_none(
    server_url: str, queue_name: str, raw: redis.Redis, saboteur: Saboteur, step: str | None
) -> None:
    with Queue(queue_name, url=server_url) as queue, Queue(f"{queue_name}-other", url=server_url) as other:
        queue.add_bulk([NewJob("n", number, JobOptions(job_id=f"j{number}", tags=("x",))) for number in range(JOBS)])
        move = [OQ, "queue", "move", queue.name, "--to", other.name, "--yes"]
        if step:
            saboteur.hold_requests(step)
        with running_process(move, saboteur.url) as first:
            if step:
                wait_until_sync(lambda: saboteur.held > 0, f"the move to get to {step}", 60)
            else:
                wait_until_sync(lambda: other.counts().waiting > 0, "some jobs to arrive", 60)
            kill(first)
        async with await AsyncConnection.open(server_url) as server:
            while raw.exists(queue.keys.moving, other.keys.moving):
                for keys in (queue.keys, other.keys):
                    later = FlowReconciler(keys, lambda: now_ms() + LATER_MS, interval=SOON, patience=SOON)
                    await server.follow(later.round())
        arrived = other.counts().waiting
        assert queue.counts().waiting + arrived == JOBS
        assert arrived > 0 or step is None
        with running_process(move, server_url) as second:
            assert second.wait(60) == 0
        ran: Counter[str] = Counter()
        while taken := other.take(100):
            for job in taken:
                ran[job.id] += 1
                job.complete()
        assert ran == Counter({f"j{number}": 1 for number in range(JOBS)})
        assert queue.counts().waiting == 0
        assert len(other.tags.jobs("x", limit=None)) == JOBS
        assert queue.tags.list() == []
