"""`glidemq_registerParent`: one more job that waits for a child."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire, event


def register(wire: Wire, child: str, parent: str = "p", queue: str | None = None) -> object:
    return wire.call(
        "registerParent",
        childJobId=child,
        parentId=parent,
        parentQueue=queue if queue is not None else wire.base,
        depsMember=wire.key(child),
    )


def test_a_missing_child_is_an_error_and_nothing_is_written(wire: Wire) -> None:
    wire.flow(parentCustomId="p")
    with wire.unchanged():
        assert register(wire, "unknown") == "error:child_not_found"


@pytest.mark.parametrize("state", ["waiting", "active", "delayed", "failed", "waiting-children"])
def test_an_unfinished_child_is_wired_to_its_parent(wire: Wire, state: str) -> None:
    wire.flow(parentCustomId="p")
    wire.make_job("c", state=state)
    for _ in range(2):
        assert register(wire, "c") == "ok"
        assert wire.members("parents:c") == {f"{wire.base}:p"}
        assert wire.members("deps:p") == {wire.key("c")}
        assert wire.state("p") == "waiting-children"
    assert "depsCompleted" not in wire.job("p")


@pytest.mark.parametrize("queue", ["q", None])
def test_a_completed_child_counts_at_once_and_only_once(wire: Wire, queue: str | None) -> None:
    wire.flow(parentCustomId="p", parentName="sum")
    wire.make_job("c", state="completed")
    wire.forget_events()
    for _ in range(2):
        assert register(wire, "c", queue=queue) == "already_completed"
        assert wire.state("p") == "waiting"
        assert wire.job("p")["depsCompleted"] == "1"
        assert wire.job("p")[f"depdone:{wire.key('c')}"] == "1"
        assert wire.stream() == [("jobId", "p", "name", "sum")]
        assert wire.events() == [event("active", "p")]
    assert wire.members("parents:c") == {f"{queue or wire.base}:p"}


def test_a_completed_child_does_not_release_a_parent_with_others_open(wire: Wire) -> None:
    wire.flow({}, parentCustomId="p")
    wire.make_job("c", state="completed")
    assert register(wire, "c") == "already_completed"
    assert wire.state("p") == "waiting-children"
    assert wire.job("p")["depsCompleted"] == "1"
