"""`oq1_releaseJob`, `oq1_depends` and `oq1_removeUnneeded`: what their clients cannot show."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def keys_of(own: Own) -> QueueKeys:
    return QueueKeys(own.wire.queue)


def depends(own: Own, job_id: str, on: list[str]) -> Any:
    return own.send(control.change_dependencies(keys_of(own), job_id, NOW, on).call)


def waiting(own: Own, job_id: str, *members: str) -> None:
    """A job that waits for others of its queue."""
    keys = keys_of(own)
    own.wire.ask("HSET", keys.job(job_id), "state", "waiting-children", "name", "n")
    if members:
        own.wire.ask("SADD", keys.deps(job_id), *map(keys.member, members))


def test_a_circle_is_searched_in_at_most_1000_jobs(own: Own) -> None:
    waiting(own, "a", "x")
    waiting(own, "b", *(f"c{number}" for number in range(1001)))
    assert depends(own, "a", ["b"])[:2] == ["too_deep", "b"]
    waiting(own, "d", *(f"c{number}" for number in range(900)))
    assert depends(own, "a", ["d"])[0] == "ok"


def test_members_of_other_queues_are_passed_over_in_the_search(own: Own) -> None:
    waiting(own, "a", "x")
    waiting(own, "b")
    own.wire.ask("SADD", keys_of(own).deps("b"), "glide:{elsewhere}:a", "nonsense")
    assert depends(own, "a", ["b"])[0] == "ok"


def test_a_dependency_that_the_record_names_is_taken_off_it(own: Own) -> None:
    keys = keys_of(own)
    waiting(own, "a", "b", "c")
    own.wire.ask("HSET", keys.job("b"), "state", "waiting", "parentId", "a", "parentQueue", own.wire.queue)
    assert own.send(control.change_dependencies(keys, "a", NOW, off=["b"]).call)[0] == "ok"
    assert "parentId" not in own.wire.job("b")
    assert own.wire.job("a")["state"] == "waiting-children"


def test_more_than_100_jobs_a_call_are_refused(own: Own) -> None:
    waiting(own, "a", "x")
    call = oq1.depends(keys_of(own), job_id="a", now_ms=NOW, on=[oq1.DependsOn(str(n)) for n in range(101)], off=[])
    with pytest.raises(Exception, match="at most 100 jobs"):
        own.send(call)


@pytest.mark.parametrize("taker", ["own", "Node"])
def test_jobs_taken_again_in_the_millisecond_of_their_release_have_other_leases(own: Own, taker: str) -> None:
    """The handlers of the attempts that they were taken from may still run, and must not settle them."""
    own.wire.add()
    (first,) = own.take()
    for later in (1, 2, 3):
        assert own.send(control.release(keys_of(own), first.job_id, NOW).call) == "ok"
        if taker == "own":
            (again,) = own.take()
            assert again.taken_ms == first.taken_ms + later
            assert own.renew((again.job_id, again.taken_ms)) == [1]
        else:
            own.wire.take()
            assert int(own.wire.job(first.job_id)["processedOn"]) == first.taken_ms + later
        assert own.renew(*((first.job_id, first.taken_ms + earlier) for earlier in range(later))) == [0] * later


def test_a_clock_that_is_set_back_sets_leases_back(own: Own) -> None:
    own.wire.add()
    (first,) = own.take()
    assert own.send(control.release(keys_of(own), first.job_id, NOW).call) == "ok"
    own.wire.ask("HSET", keys_of(own).job(first.job_id), "releasedFrom", first.taken_ms + 1000)
    (again,) = own.take()
    assert again.taken_ms == first.taken_ms


def test_a_release_that_cannot_find_the_entry_changes_nothing(own: Own) -> None:
    job_id, entry_id = own.wire.active()
    own.wire.ask("XDEL", own.wire.key("stream"), entry_id)
    before = own.wire.job(job_id)
    assert own.send(control.release(keys_of(own), job_id, NOW).call) == "not_in_stream"
    assert own.wire.job(job_id) == before
    assert own.send(control.release(keys_of(own), "gone", NOW).call) == "not_found"


def test_a_release_finds_an_entry_that_its_record_does_not_name(own: Own) -> None:
    older, entry_id = own.wire.active()
    for _ in range(1100):
        own.wire.active()
    own.wire.ask("HDEL", own.wire.key(f"job:{older}"), "entry")
    own.wire.ask("HSET", own.wire.key(f"job:{older}"), "timestamp", NOW + 10**9)
    assert own.send(control.release(keys_of(own), older, NOW).call) == "ok"
    assert own.wire.ask("XRANGE", own.wire.key("stream"), entry_id, entry_id) == []
    assert own.wire.state(older) == "waiting"


def test_a_job_is_left_while_a_job_of_another_queue_is_named_as_waiting_for_it(own: Own) -> None:
    keys = keys_of(own)
    job_id = own.wire.add()
    own.wire.ask("SADD", keys.parents(job_id), "glide:{elsewhere}:dependent")
    assert own.send(control.remove_unneeded(keys, job_id).call) == -1
    own.wire.ask("HSET", keys.job(job_id), "state", "completed")
    assert own.send(control.remove_unneeded(keys, job_id).call) == 1
