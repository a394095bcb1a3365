"""`oq1_retryNodes`, `oq1_holdNodes` and `oq1_releaseGraph`: graphs that are held, released, and run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.control import cancel
from orchestration_queue.protocol.operations.graphs import (
    Edge,
    Graph,
    GraphNode,
    OutsideDependency,
    OutsideDependent,
    Retried,
    Revived,
    hold_nodes,
    release,
    retry_nodes,
    submit_graph,
)
from orchestration_queue.protocol.operations.notifications import Propagated, propagate
from orchestration_queue.protocol.operations.worker_signals import tick
from orchestration_queue.protocol.placement import ParentRef
from tests.lua.oq1 import Own, completed, failed, new_job, paused
from tests.lua.wire import NOW, Wire, Word


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def run(own: Own, operation: Operation[Any]) -> Any:
    return operation.read(own.send(operation.call))


def keys(own: Own) -> QueueKeys:
    return QueueKeys(own.wire.queue)


def graph(own: Own, deps: dict[str, Sequence[str]], rules: dict[str, str] | None = None, **options: Any) -> None:
    """Submit nodes, each with what it waits for, dependents first; a name with ``?`` is an optional dependency."""
    places = {name: place for place, name in enumerate(deps)}
    nodes = [GraphNode(new_job(custom_id=name), (rules or {}).get(name, "")) for name in deps]
    edges = [
        Edge(place, places[dep.rstrip("?")], is_weak=dep.endswith("?"))
        for name, place in places.items()
        for dep in deps[name]
    ]
    run(own, submit_graph(keys(own), Graph(nodes, edges), NOW, **options))


def let_go(own: Own, *job_ids: str) -> Propagated:
    reply: Propagated = run(own, release(keys(own), job_ids, NOW))
    return reply


def retried(own: Own, *job_ids: str, **options: Any) -> Retried:
    reply: Retried = run(own, retry_nodes(keys(own), job_ids, NOW, **options))
    return reply


def play(own: Own, **outcomes: bool) -> list[str]:
    """Start what is ready until nothing is; returns the order. Only those named False fail."""
    order: list[str] = []
    own.wire.call("promote", now=NOW)
    while started := own.exchange(want=10).started:
        order += [job.job_id for job in started]
        own.exchange(*(completed(job) if outcomes.get(job.job_id, True) else failed(job) for job in started))
    return order


def states(own: Own, *names: str) -> list[str]:
    """Each job's state, or why it failed without a run."""
    return [(job := own.wire.job(name)).get("outcome", job["state"]) for name in names]


# -- held and released ---------------------------------------------------------------------------------------------


def test_what_is_held_starts_when_it_is_released(own: Own) -> None:
    graph(own, {"c": "ab", "b": (), "a": ()}, held=True, flow_id="f", record='{"name":"x"}')
    assert own.wire.hash("flow:f") == {"plan": '{"name":"x"}', "createdAt": str(NOW), "state": "submitting"}
    assert own.wire.zset("flows") == {"f": NOW}
    assert own.wire.job("a")["flow"] == "f"
    assert states(own, "a", "b", "c") == ["waiting-children"] * 3
    assert own.exchange(want=1).started == []
    assert let_go(own, "a", "gone", "c").decisions == {"a": "run"}
    with own.wire.unchanged():
        let_go(own, "a", "c")
    assert own.exchange(completed(own.take()[0])).outcomes == "c"
    assert states(own, "c") == ["waiting-children"]
    let_go(own, "b")
    assert play(own) == ["b", "c"]
    assert own.wire.members("deps:c") == {own.wire.key("a"), own.wire.key("b")}


@pytest.mark.parametrize(
    ("options", "place"),
    [({}, "stream"), ({"lifo": True}, "lifo"), ({"priority": 3}, "scheduled"), ({"delay_ms": 50}, "scheduled")],
)
def test_a_released_root_goes_where_its_options_want_it(own: Own, options: dict[str, Any], place: str) -> None:
    node = GraphNode(new_job(custom_id="a", **options))
    run(own, submit_graph(keys(own), Graph([node]), NOW, held=True))
    let_go(own, "a")
    held = own.wire.sibling("r")
    Own(held).add(new_job(custom_id="a", **options))
    assert own.wire.state("a") == held.state("a")
    found: dict[str, list[str]] = {
        "stream": own.wire.stream_ids(),
        "lifo": own.wire.ask("LRANGE", own.wire.key("lifo"), 0, -1),
        "scheduled": list(own.wire.zset("scheduled")),
    }
    assert found[place] == ["a"]


def test_parts_of_a_graph_make_the_whole_in_any_order(own: Own) -> None:
    there = Own(own.wire.sibling("other"))
    a, b = ParentRef(keys(own), "a"), ParentRef(keys(there), "b")
    first = Graph([GraphNode(new_job(custom_id="a"))], awaited_by=[OutsideDependent(0, b)])
    second = Graph([GraphNode(new_job(custom_id="b"))], waits_for=[OutsideDependency(0, a)])
    for _ in range(2):
        run(own, submit_graph(keys(own), first, NOW, held=True))
        run(there, submit_graph(keys(there), second, NOW, held=True))
    let_go(own, "a")
    let_go(there, "b")
    (job,) = own.take()
    assert own.wire.members("parents:a") == {b.member}
    assert own.exchange(completed(job)).notices == []
    assert there.wire.state("b") == "waiting"


def test_a_dependent_elsewhere_is_decided_at_once_or_left_in_a_cluster(own: Own) -> None:
    there = Own(own.wire.sibling("other"))
    for name in ("a", "b"):
        after = ParentRef(keys(there), f"after-{name}")
        part = Graph([GraphNode(new_job(custom_id=name))], awaited_by=[OutsideDependent(0, after)])
        run(own, submit_graph(keys(own), part, NOW))
        waits = OutsideDependency(0, ParentRef(keys(own), name))
        part = Graph([GraphNode(new_job(custom_id=after.job_id))], waits_for=[waits])
        run(there, submit_graph(keys(there), part, NOW))
    first, second = own.take(2)
    assert own.exchange(failed(first)).notices == []
    assert own.exchange(failed(second), cluster=True).notices == [
        ("other", "after-b", own.wire.key("b"), "failed"),
    ]
    assert states(there, "after-a", "after-b") == ["upstream_failed", "waiting-children"]


def test_a_job_of_many_dependents_leaves_those_that_one_call_does_not_reach(own: Own) -> None:
    names = [f"d{number}" for number in range(150)]
    graph(own, {name: ["a"] for name in names} | {"a": ()})
    reply = own.exchange(failed(own.take()[0]))
    assert reply.untold == ["a"]
    assert len(own.wire.zset("failed")) == 101
    run(own, propagate(keys(own), NOW, job_ids=reply.untold))
    assert len(own.wire.zset("failed")) == 151


def test_dependents_of_a_removed_job_are_left_by_name(own: Own) -> None:
    names = [f"d{number}" for number in range(200)]
    graph(own, {name: ["a"] for name in names} | {"a": ()})
    reply = own.exchange(failed(own.take()[0], remove_mode="true"))
    assert (len(reply.notices), reply.untold) == (100, [])
    assert own.wire.job("a") == {}
    assert len(own.wire.zset("failed")) == 100


# -- outcomes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("removed", [False, True])
def test_a_failure_is_decided_in_the_same_call(own: Own, removed: bool) -> None:
    graph(own, {"d": "c", "c": "b", "b": "a", "a": ()}, {"d": "all_done"})
    (job,) = own.take()
    settled = failed(job, remove_mode="true" if removed else "0")
    assert own.exchange(settled, want=1).ids == ["d"]
    assert states(own, "b", "c") == ["upstream_failed"] * 2


def test_rules_are_heeded_as_soon_as_they_can_be(own: Own) -> None:
    graph(own, {"d": "ab", "c": "ab", "b": (), "a": ()}, {"d": "one_success", "c": "one_failed"})
    first, second = own.take(2)
    assert own.exchange(completed(first), want=1).ids == ["d"]
    own.exchange(completed(second))
    assert states(own, "c") == ["skipped"]


def test_a_job_ruled_by_always_does_not_wait(own: Own) -> None:
    graph(own, {"b": "a", "a": ()}, {"b": "always"})
    assert sorted(own.exchange(want=5).ids) == ["a", "b"]


def test_an_optional_dependency_counts_as_done_however_it_ends(own: Own) -> None:
    graph(own, {"c": ["a", "b?"], "b": (), "a": ()})
    assert play(own, b=False)[-1] == "c"
    assert own.wire.job("c")["depsCompleted"] == "2"


def test_expired_revoked_and_stalled_jobs_decide_too(own: Own) -> None:
    for name, ttl_ms in {"a": 5, "b": 0, "c": 0}.items():
        part = [GraphNode(new_job(custom_id=f"after-{name}")), GraphNode(new_job(custom_id=name, ttl_ms=ttl_ms))]
        run(own, submit_graph(keys(own), Graph(part, [Edge(0, 1)]), NOW))
    own.wire.set_fields("job:b", revoked=1)
    (job,) = own.take(now=NOW + 10)
    assert job.job_id == "c"
    assert states(own, "after-a", "after-b", "after-c") == ["upstream_failed"] * 2 + ["waiting-children"]
    own.reclaim(NOW + 20, max_stalled_count=0)
    assert states(own, "after-c") == ["upstream_failed"]


def test_who_waits_for_a_revoked_job_never_runs(own: Own) -> None:
    there = Own(own.wire.sibling("other"))
    a, far = ParentRef(keys(own), "a"), ParentRef(keys(there), "far")
    nodes = [GraphNode(new_job(custom_id="b")), GraphNode(new_job(custom_id="a"))]
    run(own, submit_graph(keys(own), Graph(nodes, [Edge(0, 1)], awaited_by=[OutsideDependent(1, far)]), NOW))
    part = Graph([GraphNode(new_job(custom_id="far"))], waits_for=[OutsideDependency(0, a)])
    run(there, submit_graph(keys(there), part, NOW))
    assert own.send(cancel(keys(own), "a", NOW).call) == "revoked"
    assert states(own, "a", "b") == ["failed", "upstream_failed"]
    assert states(there, "far") == ["upstream_failed"]
    assert own.send(cancel(keys(own), "b", NOW).call) == "flagged"
    assert own.send(cancel(keys(own), "gone", NOW).call) == "not_found"


def test_who_waits_for_a_job_that_expired_before_it_was_due_never_runs(own: Own) -> None:
    nodes = [GraphNode(new_job(custom_id="b")), GraphNode(new_job(custom_id="a", delay_ms=50, ttl_ms=5))]
    run(own, submit_graph(keys(own), Graph(nodes, [Edge(0, 1)]), NOW))
    own.send(tick(keys(own), NOW + 60).call)
    assert states(own, "a", "b") == ["failed", "upstream_failed"]


def test_who_waits_for_a_suspended_job_is_told_when_its_time_is_up(own: Own) -> None:
    graph(own, {"b": "a", "a": ()})
    own.exchange(paused("s", own.take()[0], wait_ms=50))
    own.reclaim(NOW + 49)
    assert states(own, "a", "b") == ["suspended", "waiting-children"]
    own.reclaim(NOW + 50)
    assert states(own, "a", "b") == ["failed", "upstream_failed"]


def test_a_parent_whose_child_failed_before_it_waited_does_not_wait(own: Own) -> None:
    own.add(new_job(custom_id="p"))
    (parent,) = own.take()
    own.add(new_job(custom_id="c", parent_id="p", parent_queue="q"))
    own.exchange(failed(own.take()[0]))
    assert own.exchange(paused("w", parent)).outcomes == "w"
    assert states(own, "p") == ["upstream_failed"]


def test_a_rule_is_about_the_start_not_about_children(own: Own) -> None:
    graph(own, {"p": "ab", "b": (), "a": ()}, {"p": "one_success"})
    first, second = own.take(2)
    (parent,) = own.exchange(completed(first), want=1).started
    own.add(*(new_job(custom_id=name, parent_id="p", parent_queue="q") for name in ("x", "y")))
    own.exchange(failed(second), paused("w", parent))
    one, other = own.take(2)
    own.exchange(completed(one))
    assert states(own, "p") == ["waiting-children"]
    assert own.exchange(completed(other), want=1).ids == ["p"]


# -- once more -----------------------------------------------------------------------------------------------------


def test_a_graph_runs_again_from_where_it_failed(own: Own) -> None:
    graph(own, {"d": "bc", "c": "a", "b": "a", "a": ()})
    assert play(own, b=False) == ["a", "c", "b"] or states(own, "d") == ["upstream_failed"]
    assert retried(own, "d", "b", "a", "gone").job_ids == ("d", "b")
    assert states(own, "b", "d") == ["waiting", "waiting-children"]
    assert own.wire.job("d")["depsFailed"] == "0"
    with own.wire.unchanged():
        assert retried(own, "d", "b").job_ids == ()
    assert play(own) == ["b", "d"]
    assert states(own, "a", "b", "c", "d") == ["completed"] * 4


def test_what_others_did_with_a_failure_is_done_anew(own: Own) -> None:
    graph(own, {"d": "ab", "c": "ab", "b": (), "a": ()}, {"d": "all_done", "c": "one_failed"})
    a, b = sorted(own.take(2), key=lambda job: job.job_id)
    own.exchange(failed(a))
    assert states(own, "c", "d") == ["waiting", "waiting-children"]
    assert own.wire.job("d")["depsFailed"] == "1"
    retried(own, "a")
    assert own.wire.job("d")["depsFailed"] == "0"
    own.exchange(completed(b))
    assert states(own, "d") == ["waiting-children"]
    assert "a" in play(own)
    assert states(own, "d") == ["completed"]


def test_a_node_that_ran_by_its_rule_runs_again(own: Own) -> None:
    graph(own, {"c": "ab", "b": (), "a": ()}, {"c": "one_failed"})
    play(own, a=False, c=False)
    assert retried(own, "c").job_ids == ("c",)
    assert play(own) == ["c"]


@pytest.mark.parametrize("order", ["ac", "ca"])
@pytest.mark.parametrize(("better", "state"), [(True, "skipped"), (False, "completed")])
def test_a_rule_is_asked_again_when_what_it_judged_runs_again(own: Own, order: str, better: bool, state: str) -> None:
    graph(own, {"c": "ab", "b": (), "a": ()}, {"c": "one_failed"})
    play(own, a=False, c=False)
    for job_id in order:
        retried(own, job_id, held=True)
    assert states(own, "a", "c") == ["waiting-children"] * 2
    let_go(own, "c", "a")
    play(own, a=better)
    assert states(own, "c") == [state]


def test_an_optional_dependency_that_failed_stays_done(own: Own) -> None:
    graph(own, {"c": ["a", "b?"], "b": (), "a": ()})
    play(own, a=False, b=False)
    assert states(own, "c") == ["upstream_failed"]
    retried(own, "a", "c")
    assert play(own) == ["a", "c"]


def test_a_given_up_node_is_given_up_again_when_nothing_changed(own: Own) -> None:
    graph(own, {"c": "b", "b": "a", "a": ()})
    play(own, a=False)
    assert retried(own, "b").job_ids == ("b",)
    assert states(own, "b", "c") == ["upstream_failed"] * 2


def test_dependents_elsewhere_wait_again(own: Own) -> None:
    there = Own(own.wire.sibling("other"))
    a, b = ParentRef(keys(own), "a"), ParentRef(keys(there), "b")
    part = Graph([GraphNode(new_job(custom_id="a"))], awaited_by=[OutsideDependent(0, b)])
    run(own, submit_graph(keys(own), part, NOW))
    part = Graph([GraphNode(new_job(custom_id="b"))], waits_for=[OutsideDependency(0, a)])
    run(there, submit_graph(keys(there), part, NOW))
    own.exchange(failed(own.take()[0]))
    assert states(there, "b") == ["upstream_failed"]
    assert retried(there, "b", held=True).job_ids == ("b",)
    reply = retried(own, "a", held=True)
    assert reply.revived == (Revived("other", "b", a.member),)
    retried(there, revived=reply.revived)
    assert let_go(there, "b").decisions == {}
    let_go(own, "a")
    play(own)
    assert play(there) == ["b"]


def test_a_map_node_runs_again_with_its_children(own: Own) -> None:
    own.add(new_job(custom_id="p"))
    (parent,) = own.take()
    own.add(new_job(custom_id="c", parent_id="p", parent_queue="q"))
    own.exchange(paused("w", parent))
    own.exchange(failed(own.take()[0]))
    assert states(own, "p") == ["upstream_failed"]
    assert retried(own, "p").job_ids == ("p",)
    (parent,) = own.take()
    retried(own, "c")
    own.exchange(paused("w", parent))
    assert states(own, "p") == ["waiting-children"]
    assert play(own) == ["c", "p"]


# -- paused --------------------------------------------------------------------------------------------------------


def test_a_paused_graph_finishes_what_is_ready_and_goes_on_later(own: Own) -> None:
    graph(own, {"c": "b", "b": "a", "a": ()})
    assert run(own, hold_nodes(keys(own), ["a", "b", "c", "gone"])) == ["b", "c"]
    with own.wire.unchanged():
        assert run(own, hold_nodes(keys(own), ["b"])) == ["b"]
    assert play(own) == ["a"]
    assert let_go(own, "a", "b", "c").decisions == {"b": "run"}
    assert play(own) == ["b", "c"]


def test_a_failure_in_a_paused_graph_decides_when_it_goes_on(own: Own) -> None:
    graph(own, {"c": "b", "b": "a", "a": ()})
    run(own, hold_nodes(keys(own), ["b", "c"]))
    play(own, a=False)
    assert states(own, "b") == ["waiting-children"]
    assert let_go(own, "b").decisions == {"b": "upstream_failed"}
    assert let_go(own, "c").decisions == {"c": "upstream_failed"}


def test_a_job_that_waits_for_its_children_is_not_held(own: Own) -> None:
    own.add(new_job(custom_id="p"))
    (parent,) = own.take()
    own.add(new_job(custom_id="c", parent_id="p", parent_queue="q"))
    own.exchange(paused("w", parent))
    assert run(own, hold_nodes(keys(own), ["p"])) == []


# -- malformed -----------------------------------------------------------------------------------------------------

CHANGING = ("stream", "scheduled", "failed", "events", "metrics:failed", "ratelimited")


@pytest.mark.parametrize(
    ("function", "names", "args", "why"),
    [
        ("releaseGraph", CHANGING, [], "'now_ms' is not a whole number"),
        ("releaseGraph", CHANGING, [NOW, 0, 1, "a"], "a limit of 0 gets nowhere"),
        ("releaseGraph", CHANGING, [NOW, 1, 2, "a"], "takes 6 keys and 5 arguments, not 6 and 4"),
        ("releaseGraph", CHANGING[1:], [NOW, 1, 1, "a"], "takes 6 keys and 4 arguments, not 5 and 4"),
        ("revoke", CHANGING, ["a", "x", "g"], "'now_ms' is not a whole number"),
        ("revoke", CHANGING, ["a", NOW], "takes 6 keys and 3 arguments, not 6 and 2"),
        ("holdNodes", CHANGING[:1], [], "'job_count' is not a whole number"),
        ("holdNodes", CHANGING[1:2], [0], "does not end in ':stream'"),
        ("holdNodes", CHANGING[:1], [2, "a"], "takes 1 keys and 3 arguments, not 1 and 2"),
        ("retryNodes", CHANGING, [NOW, 2, 0, 0], "'held' is neither 0 nor 1"),
        ("retryNodes", CHANGING, [NOW, 0, 1, 0, "a"], "takes 6 keys and 6 arguments, not 6 and 5"),
        ("retryNodes", CHANGING, [NOW, 0, 0, 1], "takes 6 keys and 5 arguments, not 6 and 4"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(
    own: Own, function: str, names: Sequence[str], args: list[Word], why: str
) -> None:
    own.refused(function, [own.wire.key(name) for name in names], args, why)
