"""`oq1_moveOut`, `oq1_moveIn`, `oq1_renameDependency`, `oq1_endMove`: a job in another queue as in the first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestration_queue.errors import StateError
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control
from orchestration_queue.protocol.operations.moves import move
from tests.lua.oq1 import Own, failed, new_job
from tests.lua.wire import NOW, Wire, due

TARGET = QueueKeys("r")


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


@pytest.fixture
def target(wire: Wire) -> Wire:
    return wire.sibling("r")


def carry(own: Own, job_id: str, delay_ms: int | None = None, exchanges: int = 9) -> None:
    """Make the first exchanges of a move."""
    steps = move(own.keys, TARGET, job_id, NOW, delay_ms)
    calls = next(steps)
    try:
        for _ in range(exchanges):
            calls = steps.send([own.send(call) for call in calls])
    except StopIteration:
        return


def kept(wire: Wire, job_id: str) -> dict[str, str]:
    """The fields of a job that a move does not change."""
    own = ("movedBy", "movedFrom", "history", "state")
    return {name: value for name, value in wire.job(job_id).items() if name not in own}


@pytest.mark.parametrize(
    "changes",
    [{}, {"opts": '{"lifo":true}'}, {"opts": '{"share":"acme"}'}, {"priority": 3}, {"delay_ms": 5000}],
    ids=["stream", "lifo", "share", "priority", "delayed"],
)
def test_a_job_arrives_in_its_state_and_leaves_nothing(own: Own, target: Wire, changes: dict[str, Any]) -> None:
    (job_id,) = own.add(new_job(**changes))
    before = own.wire.job(job_id)
    fields = kept(own.wire, job_id)
    carry(own, job_id)
    assert own.wire.job(job_id) == {}
    assert own.wire.ask("EXISTS", own.keys.moving, own.wire.key(f"deps:{job_id}")) == 0
    assert target.job(job_id)["state"] == before["state"]
    assert kept(target, job_id) == fields
    assert target.job(job_id)["movedFrom"] == "q"
    (noted,) = json.loads(target.job(job_id)["history"])
    assert noted["event"] == "moved"


def test_a_failed_job_arrives_as_one(own: Own, target: Wire) -> None:
    (job_id,) = own.add(new_job())
    (job,) = own.take()
    own.exchange(failed(job))
    at = own.wire.zset("failed")[job_id]
    with pytest.raises(StateError, match="without a delay"):
        carry(own, job_id, delay_ms=5)
    carry(own, job_id)
    assert target.zset("failed") == {job_id: at}
    assert own.wire.zset("failed") == {}


@pytest.mark.parametrize(
    ("delay_ms", "priority", "state"), [(700, 2, "delayed"), (0, 2, "prioritized"), (0, 0, "waiting")]
)
def test_a_delay_counts_from_the_arrival(own: Own, target: Wire, delay_ms: int, priority: int, state: str) -> None:
    (job_id,) = own.add(new_job(delay_ms=60_000, priority=priority))
    carry(own, job_id, delay_ms=delay_ms)
    assert target.job(job_id)["state"] == state
    if delay_ms:
        assert target.zset("scheduled") == {job_id: due(NOW + delay_ms, priority)}


def test_tags_tracking_logs_and_signals_come_along(own: Own, target: Wire) -> None:
    (job_id,) = own.add(new_job(opts='{"tags":["red"]}'))
    own.send(control.track(own.keys, job_id, NOW, is_tracked=True).call)
    own.wire.ask("RPUSH", own.wire.key(f"log:{job_id}"), "one", "two")
    own.wire.ask("RPUSH", own.wire.key(f"signals:{job_id}"), "{}")
    carry(own, job_id)
    assert target.ask("LRANGE", target.key(f"log:{job_id}"), 0, -1) == ["one", "two"]
    assert target.ask("LRANGE", target.key(f"signals:{job_id}"), 0, -1) == ["{}"]
    assert target.zset("tracked") == {job_id: NOW}
    assert own.wire.ask("EXISTS", own.wire.key("tracked"), own.wire.key("tag:red")) == 0


def test_dependents_wait_for_the_new_name(own: Own, target: Wire) -> None:
    parent, child = own.wire.flow_ids({})
    carry(own, child)
    assert own.wire.ask("SMEMBERS", own.wire.key(f"deps:{parent}")) == {TARGET.member(child)}
    assert json.loads(target.job(child)["parentIds"]) == [parent]
    assert target.ask("SMEMBERS", target.key(f"parents:{child}")) == {own.keys.member(parent)}


def test_a_taken_id_puts_the_job_back(own: Own, target: Wire) -> None:
    parent, child = own.wire.flow_ids({"delay": 5000})
    before = own.wire.job(child)
    Own(target).add(new_job("other", custom_id=child))
    with pytest.raises(StateError, match="has another job with this id"):
        carry(own, child)
    assert own.wire.job(child) == before
    assert own.wire.zset("scheduled")[child] == due(NOW + 5000)
    assert own.wire.ask("SMEMBERS", own.wire.key(f"deps:{parent}")) == {own.keys.member(child)}
    assert target.job(child)["name"] == "other"


@pytest.mark.parametrize("exchanges", [1, 2, 3, 4])
def test_a_move_that_was_left_is_gone_on_with_and_decided_once(own: Own, target: Wire, exchanges: int) -> None:
    _, child = own.wire.flow_ids({})
    carry(own, child, exchanges=exchanges)
    for _ in range(2):
        carry(own, child)
    assert own.wire.job(child) == {}
    assert target.ask("XLEN", target.key("stream")) == 1


def test_what_cannot_be_moved_is_left_as_it_is(own: Own) -> None:
    active, ordered, flow = own.add(new_job(), new_job(opts='{"ordering":{"key":"k"}}', ordering_key="k"), new_job())
    own.take()
    own.wire.ask("HSET", own.wire.key(f"job:{flow}"), "flow", "f")
    for job_id, why in ((active, "release it first"), (ordered, "ordering group"), (flow, "belongs to flow 'f'")):
        with own.wire.unchanged(), pytest.raises(StateError, match=why):
            carry(own, job_id)


def test_a_job_goes_to_one_queue_at_a_time(own: Own) -> None:
    (job_id,) = own.add(new_job())
    carry(own, job_id, exchanges=1)
    out = oq1.move_out(own.keys, job_id=job_id, now_ms=NOW, target="s", token="t", delay="", group="workers")
    assert own.send(out) == ["moving", "r"]
    end = oq1.end_move(own.keys, job_id=job_id, token="other", arrived=True, digest="", now_ms=NOW)
    assert own.send(end) == "removed"
    own.wire.ask("DEL", own.wire.key(f"job:{job_id}"))
    assert own.send(out) == ["not_found", ""]
    assert own.wire.zset("moving") == {}


def test_malformed_arguments_are_refused(own: Own) -> None:
    names = [own.wire.key(name) for name in ("stream", "scheduled", "failed", "priority", "lifo", "moving")]
    own.refused("moveOut", names, ["1", NOW, "r", "t", "soon", "workers"], "malformed delay")
    own.refused("moveOut", names, ["1", NOW, "", "t", "", "workers"], "no target")
    names = [own.wire.key(name) for name in ("id", "moving")]
    own.refused("moveIn", names, ["1", "t", "r", NOW, "active", 0, "", 1, 0, 0, 0, 0, 0], "state 'active'")
