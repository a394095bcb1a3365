"""The worker that reconciles flows dies at any of its steps: another continues, and the flow ends as it should."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis

from orchestration_queue.client import FlowProducer, Queue
from orchestration_queue.flows import Dag, Node, TriggerRule
from tests.by_hand import HandWorker
from tests.chaos.saboteur import Saboteur
from tests.chaos.workers import BUSY_S, kill, odd_worker
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

INTERVAL_S, LOCK_S = 0.2, 5.0
TAKEOVER_S = LOCK_S + BUSY_S
"""Its lock, and the time in which a process starts and runs a job."""


@pytest.mark.parametrize("step", ["ZRANGEBYSCORE", "glidemq_tryLock", "oq1_propagate", "finishedAt", "glidemq_unlock"])
def test_a_keeper_killed_at_any_step_leaves_its_flows_to_others(
    server_url: str,
    queue_name: str,
    raw: redis.Redis,
    saboteur: Saboteur,
    recovered: Callable[[float, float], None],
    step: str,
) -> None:
    nodes = [
        Node("bad", task="work", data={"seconds": 0}),
        Node("never", task="work", data={"seconds": 0}, deps=("bad",)),
        Node("tidy", task="work", data={"seconds": 0}, deps=("never",), trigger_rule=TriggerRule.ALL_DONE),
    ]
    with Queue(queue_name, url=server_url) as queue, FlowProducer(url=server_url) as flows:
        flow = flows.submit(Dag("d", nodes, queue_name), flow_id="f")
        with HandWorker(server_url, queue_name) as hand:
            hand.fail(hand.take(), "no such file")
        saboteur.hold_requests(step)
        with odd_worker(queue_name, saboteur.url, flow_interval=INTERVAL_S) as first:
            wait_until_sync(lambda: saboteur.held > 0, f"the keeper to get to {step}")
            kill(first)
        began = time.monotonic()
        with odd_worker(queue_name, server_url, flow_interval=INTERVAL_S):
            wait_until_sync(lambda: raw.hget(queue.keys.flow("f"), "finishedAt"), "the end", TAKEOVER_S)
            recovered(time.monotonic() - began, TAKEOVER_S)
        assert {node.name: node.outcome for node in flow.tree()} == {
            "bad": "failed",
            "never": "upstream_failed",
            "tidy": "completed",
        }
        assert raw.hget(queue.keys.flow("f"), "state") == "failed"
