"""`oq1_addChildren`: jobs for which a running one can wait, added only while its lease holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestration_queue.errors import InvalidOptionError, LeaseLostError
from orchestration_queue.protocol.functions.oq1 import NewJob
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import add_children
from orchestration_queue.protocol.operations.graphs import retry_nodes
from orchestration_queue.protocol.record import JobRecord
from tests.lua.oq1 import Own, Started, completed, failed, new_job, paused
from tests.lua.wire import NOW, Wire, Word, event


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def add(own: Own, parent: Started, jobs: Sequence[NewJob], *, now: int = NOW, until_ended: bool = False) -> list[str]:
    """Add children by the operation."""
    lease = Lease(JobRecord(parent.job_id, parent.fields), parent.entry_id)
    operation = add_children(QueueKeys(own.wire.queue), lease, jobs, now, until_ended=until_ended)
    reply = own.send(operation.call)
    return operation.read(reply.encode() if isinstance(reply, str) else reply)


def running(own: Own, job_id: str = "p") -> Started:
    own.add(new_job(custom_id=job_id))
    return own.take()[0]


def children(*ids: str) -> list[NewJob]:
    return [new_job("part", custom_id=job_id) for job_id in ids]


def test_a_running_job_waits_for_the_children_it_added(own: Own) -> None:
    parent = running(own)
    own.wire.forget_events()
    assert add(own, parent, children("c1", "c2")) == ["c1", "c2"]
    assert own.wire.events() == [event("added", job, name="part") for job in ("c1", "c2")]
    assert own.wire.members("deps:p") == {own.wire.key("c1"), own.wire.key("c2")}
    assert (own.wire.job("c1")["parentId"], own.wire.job("c1")["parentQueue"]) == ("p", "q")
    assert own.exchange(paused("w", parent)).outcomes == "w"
    first, second = own.take(2)
    own.exchange(completed(first))
    assert own.wire.state("p") == "waiting-children"
    assert own.exchange(completed(second), want=1).ids == ["p"]


def test_adding_twice_adds_once(own: Own) -> None:
    parent = running(own)
    add(own, parent, children("c1", "c2"))
    with own.wire.unchanged():
        assert add(own, parent, children("c1", "c2")) == []


def test_a_child_that_completed_before_it_was_added_again_counts_once(own: Own) -> None:
    parent = running(own)
    add(own, parent, children("c1"))
    (child,) = own.take()
    own.exchange(completed(child))
    assert add(own, parent, children("c1", "c2")) == ["c2"]
    own.exchange(paused("w", parent))
    assert own.wire.state("p") == "waiting-children"
    assert own.exchange(completed(own.take()[0]), want=1).ids == ["p"]


def test_a_job_of_somebody_else_becomes_a_child_too(own: Own) -> None:
    own.add(new_job(custom_id="c1"), new_job(custom_id="c2"))
    first, second = own.take(2)
    own.exchange(completed(first))
    parent = running(own)
    assert add(own, parent, children("c1", "c2")) == []
    assert own.exchange(paused("w", parent)).outcomes == "w"
    assert own.exchange(completed(second), want=1).ids == ["p"]


def test_who_lost_the_lease_adds_nothing(own: Own) -> None:
    parent = running(own)
    with own.wire.unchanged(), pytest.raises(LeaseLostError, match=r"Job 'p' of queue 'q' is no longer ours"):
        add(own, replace(parent, fields=parent.fields | {"processedOn": str(NOW - 1)}), children("c1"))
    own.exchange(failed(parent))
    with own.wire.unchanged(), pytest.raises(LeaseLostError):
        add(own, parent, children("c1"))


def test_who_was_revoked_adds_nothing(own: Own) -> None:
    parent = running(own)
    add(own, parent, children("c1"))
    own.wire.client.hset(own.wire.key("job:p"), "revoked", 1)
    with own.wire.unchanged(), pytest.raises(LeaseLostError):
        add(own, parent, children("c1", "c2"))


def test_a_job_may_wait_for_the_end_of_its_children(own: Own) -> None:
    parent = running(own)
    add(own, parent, children("c1", "c2", "c3"), until_ended=True)
    first, second, third = own.take(3)
    own.exchange(failed(first))
    assert own.exchange(paused("w", parent)).outcomes == "w"
    assert own.wire.state("p") == "waiting-children"
    own.exchange(failed(second))
    assert own.wire.state("p") == "waiting-children"
    assert own.exchange(completed(third), want=1).ids == ["p"]


def test_a_job_whose_children_have_all_failed_goes_on(own: Own) -> None:
    parent = running(own)
    add(own, parent, children("c1"), until_ended=True)
    own.exchange(failed(own.take()[0]))
    assert own.exchange(paused("w", parent), want=1).ids == ["p"]


def test_a_child_that_failed_and_runs_again_is_waited_for_again(own: Own) -> None:
    parent = running(own)
    add(own, parent, children("c1", "c2"), until_ended=True)
    own.exchange(paused("w", parent))
    first, second = own.take(2)
    own.exchange(failed(first))
    own.send(retry_nodes(QueueKeys(own.wire.queue), ["c1"], NOW).call)
    own.exchange(failed(second))
    assert own.wire.state("p") == "waiting-children"
    (again,) = own.take()
    assert own.exchange(completed(again), want=1).ids == ["p"]


def test_a_child_too_dear_is_told(own: Own) -> None:
    parent = running(own)
    dear = new_job(custom_id="c2", ordering_key="g", tb_capacity=100, cost=200)
    with pytest.raises(InvalidOptionError, match=r"Child 'c2' costs more than its token bucket holds"):
        add(own, parent, [*children("c1"), dear])
    assert own.wire.members("deps:p") == {own.wire.key("c1")}


KEYS = ("id", "stream", "scheduled", "failed", "events", "metrics:failed", "ratelimited")
CHILD: list[Word] = ["task", "{}", "{}", NOW, 0, 0, "", 0, "", 0, 0, 0, 0, 0, 0, 0, "a", 0, "", ""]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "'taken_ms' is not a whole number"),
        (["p", NOW, 0, NOW, 0, "x"], "'job_count' is not a whole number"),
        (["p", NOW, 0, NOW, 0, 1, *CHILD[:-1]], "takes 7 keys and 26 arguments, not 7 and 25"),
        (["p", NOW, 0, NOW, 0, 1, *CHILD[:16], "", *CHILD[17:]], "child 1 needs an id of its own and no parent"),
        (["p", NOW, 0, NOW, 0, 1, *CHILD[:16], "p", *CHILD[17:]], "child 1 needs an id of its own and no parent"),
        (["p", NOW, 0, NOW, 0, 1, *CHILD[:6], "x", *CHILD[7:]], "child 1 needs an id of its own and no parent"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[Word], why: str) -> None:
    own.refused("addChildren", [own.wire.key(name) for name in KEYS], args, why)
