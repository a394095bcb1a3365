"""`glidemq_moveToWaitingChildren`: an active parent waits for children it added."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, event


def test_the_job_waits_while_a_child_is_open(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.call("addJob", wire.key(f"deps:{job_id}"), parentId=job_id, parentQueue="q")
    wire.forget_events()
    assert wire.call("moveToWaitingChildren", jobId=job_id, entryId=entry_id) == "ok"
    assert wire.state(job_id) == "waiting-children"
    assert wire.stream_ids() == ["2"]
    assert wire.pending() == []
    assert wire.events() == [event("waiting-children", job_id)]


@pytest.mark.parametrize(("done", "state"), [(1, "waiting-children"), (2, "waiting"), (3, "waiting")])
def test_it_goes_on_at_once_when_all_children_are_done(wire: Wire, done: int, state: str) -> None:
    job_id, entry_id = wire.active()
    wire.ask("SADD", wire.key(f"deps:{job_id}"), "a", "b")
    wire.make_job(job_id, depsCompleted=done)
    wire.forget_events()
    reply = wire.call("moveToWaitingChildren", jobId=job_id, entryId=entry_id)
    assert wire.state(job_id) == state
    if state == "waiting":
        assert reply == "completed"
        assert wire.stream() == [("jobId", job_id, "name", "task")]
        assert wire.events() == [event("active", job_id)]
    else:
        assert reply == "ok"
        assert wire.stream() == []
        assert wire.events() == [event("waiting-children", job_id)]


def test_without_any_children_it_waits_too(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    assert wire.call("moveToWaitingChildren", jobId=job_id, entryId=entry_id) == "ok"
    assert wire.state(job_id) == "waiting-children"


@pytest.mark.parametrize("done", [0, 1])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (0, 0), (None, 0)])
def test_a_list_job_is_counted_off_and_never_below_zero(wire: Wire, done: int, before: int | None, after: int) -> None:
    wire.make_job("7", state="active", lifo=1, depsCompleted=done)
    wire.ask("SADD", wire.key("deps:7"), "a")
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    assert wire.call("moveToWaitingChildren", jobId="7") == ("completed" if done else "ok")
    assert wire.list_active() == after


@pytest.mark.parametrize(("sequenced", "held"), [(True, "1"), (False, "0")])
def test_a_sequenced_job_keeps_its_slot(wire: Wire, sequenced: bool, held: str) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    if not sequenced:
        wire.ask("HDEL", wire.key(f"job:{job_id}"), "orderingSeq")
    wire.call("moveToWaitingChildren", jobId=job_id, entryId=entry_id)
    assert wire.group("k")["active"] == held


def test_broadcast_keeps_the_entry(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    assert wire.call("moveToWaitingChildren", jobId=job_id, entryId=entry_id, broadcastMode=1) == "ok"
    assert wire.stream_ids() == [job_id]
    assert wire.pending() == []


@pytest.mark.parametrize(
    ("fields", "reply"),
    [
        (None, "error:not_found"),
        ({"state": "waiting"}, "error:not_active"),
        ({"state": "waiting-children"}, "error:not_active"),
        ({"state": "completed"}, "error:not_active"),
    ],
)
def test_other_jobs_are_refused_untouched(wire: Wire, fields: dict[str, Word] | None, reply: str) -> None:
    if fields is not None:
        wire.make_job("7", **fields)
    wire.ask("SET", wire.key("list-active"), 1)
    with wire.unchanged():
        assert wire.call("moveToWaitingChildren", jobId="7", now=NOW) == reply
