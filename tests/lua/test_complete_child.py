"""`glidemq_completeChild`: notify a parent that one of its children is done."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire, event


def waiting_parent(wire: Wire, *members: str) -> str:
    wire.flow(extra_deps=members, parentCustomId="p", parentName="sum")
    wire.forget_events()
    return "p"


def test_the_reply_counts_down_and_the_last_child_releases(wire: Wire) -> None:
    parent = waiting_parent(wire, "a", "b")
    assert wire.call("completeChild", depsMember="a", parentId=parent) == 1
    assert wire.state(parent) == "waiting-children"
    assert wire.events() == []
    assert wire.call("completeChild", depsMember="b", parentId=parent) == 0
    assert wire.state(parent) == "waiting"
    assert wire.stream() == [("jobId", parent, "name", "sum")]
    assert wire.events() == [event("active", parent)]
    job = wire.job(parent)
    assert (job["depsCompleted"], job["depdone:a"], job["depdone:b"]) == ("2", "1", "1")


def test_a_child_counts_once(wire: Wire) -> None:
    parent = waiting_parent(wire, "a", "b")
    wire.call("completeChild", depsMember="a", parentId=parent)
    with wire.unchanged():
        assert wire.call("completeChild", depsMember="a", parentId=parent) == 1


def test_a_stranger_counts_too_and_the_reply_may_go_below_zero(wire: Wire) -> None:
    parent = waiting_parent(wire, "a")
    replies = [wire.call("completeChild", depsMember=member, parentId=parent) for member in ("x", "a")]
    assert replies == [0, -1]
    assert wire.stream_ids() == [parent]


@pytest.mark.parametrize("state", ["waiting", "active", "completed", "failed"])
def test_only_a_waiting_parent_is_released(wire: Wire, state: str) -> None:
    parent = waiting_parent(wire, "a")
    wire.make_job(parent, state=state)
    assert wire.call("completeChild", depsMember="a", parentId=parent) == 0
    assert wire.state(parent) == state
    assert not wire.exists("stream")
    assert wire.events() == []
