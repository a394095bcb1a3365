"""`oq1_propagate`: what an outcome means for the jobs that wait, by Airflow's trigger rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.functions.oq1 import ForeignOutcome
from tests.lua.oq1 import Own, completed, failed, new_job
from tests.lua.test_oq1_submit_graph import submit
from tests.lua.wire import MINUTE, NOW, Wire, Word, event

KEYS = ("stream", "failed", "events", "metrics:failed", "ratelimited")
HELD_RULES = ("all_failed", "one_failed")
"""Rules by which a job does not run once all that it waits for have completed."""
REASONS = {"upstream_failed": "upstream failed", "skipped": "skipped"}


@dataclass(frozen=True)
class Propagated:
    """The reply."""

    decisions: dict[str, str]
    elsewhere: list[tuple[str, ...]]
    remaining: list[str]


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def propagate(
    own: Own, *job_ids: str, limit: int = 1000, news: Sequence[tuple[str, str, str]] = (), now: int = NOW
) -> Propagated:
    """One call."""
    told = [ForeignOutcome(dependent=job, member=member, outcome=outcome) for job, member, outcome in news]
    call = oq1.propagate(own.keys, now_ms=now, limit=limit, news=told, job_ids=job_ids)
    decided, elsewhere, remaining = own.send(call)
    pairs = list(zip(decided[::2], decided[1::2], strict=True))
    assert len({job_id for job_id, _ in pairs}) == len(pairs), pairs
    quads = zip(*(elsewhere[place::4] for place in range(4)), strict=True)
    return Propagated(dict(pairs), list(quads), remaining)


def propagate_all(own: Own, *job_ids: str, limit: int) -> tuple[dict[str, str], int]:
    """Calls until nothing remains: all decisions, and how many calls it took."""
    decisions: dict[str, str] = {}
    remaining, calls = list(job_ids), 0
    while remaining:
        reply = propagate(own, *remaining, limit=limit)
        assert not decisions.keys() & reply.decisions.keys()
        decisions |= reply.decisions
        remaining, calls = reply.remaining, calls + 1
    return decisions, calls


def end(own: Own, job_id: str, outcome: str) -> str:
    """Write a job that ended so."""
    fields: dict[str, Word] = {"state": "completed" if outcome == "success" else "failed", "failedReason": "boom"}
    if outcome in REASONS:
        fields |= {"outcome": outcome, "failedReason": REASONS[outcome]}
    return own.wire.make_job(job_id, id=job_id, name="task", finishedOn=NOW, **fields)


def make_wait(own: Own, job_id: str, children: Iterable[str], rule: str = "", holds: Iterable[str] = ()) -> str:
    """Add a job that waits by a rule for jobs that are registered with it."""
    holds = [*holds, *(["__rule__"] if rule in HELD_RULES else [])]
    members = [own.wire.key(name) for name in [*children, *holds]]
    own.wire.flow(parentCustomId=job_id, parentName="after", extra_deps=members)
    for child in children:
        own.wire.ask("SADD", own.wire.key(f"parents:{child}"), own.wire.key(job_id))
    if rule:
        own.wire.set_fields(f"job:{job_id}", triggerRule=rule)
    return job_id


def fail_untold(own: Own) -> None:
    """Let the next job fail in the hands of another client, which notifies none of those that wait for it."""
    job_id, entry_id = own.wire.take()
    own.wire.call("fail", jobId=job_id, entryId=entry_id, failedReason="boom")


def complete_child(own: Own, parent: str, child: str) -> None:
    """Notify a parent of a completion as any client does."""
    own.wire.fcall("completeChild", own.wire.parent_keys(parent), [own.wire.key(child), parent])


def verdict_of(own: Own, job_id: str) -> str | None:
    """What the record says was decided."""
    job = own.wire.job(job_id)
    if job["state"] == "failed":
        assert job["failedReason"] == REASONS[job["outcome"]]
        return job["outcome"]
    return {"waiting": "run", "waiting-children": None}[job["state"]]


# -- Airflow's table, written down separately: when a rule lets a task run, and its outcome if it never will --------

Seen = list[str]
FAILURES = {"failed", "upstream_failed"}


def _any(*outcomes: str) -> Callable[[Seen, bool], bool]:
    return lambda seen, done: bool({*seen} & {*outcomes})


def _all(*outcomes: str) -> Callable[[Seen, bool], bool]:
    return lambda seen, done: done and {*seen} <= {*outcomes}


def _min_one_success(seen: Seen, done: bool) -> bool:
    return done and "success" in seen and not {*seen} & FAILURES


AIRFLOW: dict[str, list[tuple[str, Callable[[Seen, bool], bool]]]] = {
    "all_success": [
        ("upstream_failed", _any(*FAILURES)),
        ("run", _all("success")),
        ("skipped", _all("success", "skipped")),  # not before all have ended: Airflow's own depends on the order
    ],
    "all_failed": [("skipped", _any("success", "skipped")), ("run", _all(*FAILURES))],
    "all_done": [("run", _all("success", "skipped", *FAILURES))],
    "one_success": [
        ("run", _any("success")),
        ("skipped", _all("skipped")),
        ("upstream_failed", _all("skipped", *FAILURES)),
    ],
    "one_failed": [("run", _any(*FAILURES)), ("skipped", _all("success", "skipped"))],
    "none_failed": [("upstream_failed", _any(*FAILURES)), ("run", _all("success", "skipped"))],
    "none_failed_min_one_success": [
        ("upstream_failed", _any(*FAILURES)),
        ("skipped", _all("skipped")),
        ("run", _min_one_success),
    ],
    "always": [("run", lambda seen, done: True)],
}


def by_airflow(rule: str, seen: Seen, total: int) -> str | None:
    """The outcome of a task when this number of those before it ended so."""
    return next((verdict for verdict, holds in AIRFLOW[rule] if holds(seen, len(seen) == total)), None)


def first_verdict(rule: str, outcomes: Sequence[str]) -> tuple[int, str]:
    """After how many outcomes, told one by one, it is decided, and what."""
    for count in range(1, len(outcomes) + 1):
        if verdict := by_airflow(rule, list(outcomes[:count]), len(outcomes)):
            return count, verdict
    raise AssertionError(f"{rule} never decides {outcomes}")


OUTCOMES = ("success", "failed", "upstream_failed", "skipped")
CASES = [outcomes for size in (1, 2, 3) for outcomes in product(OUTCOMES, repeat=size)]


@pytest.mark.parametrize("notified", [False, True], ids=["untold", "notified"])
@pytest.mark.parametrize("rule", AIRFLOW)
def test_every_rule_decides_as_in_airflow(own: Own, rule: str, notified: bool) -> None:
    for number, outcomes in enumerate(CASES):
        waiting, children = f"w{number}", [f"c{number}-{place}" for place in range(len(outcomes))]
        make_wait(own, waiting, children, rule)
        after, expected = first_verdict(rule, outcomes)
        for place, (child, outcome) in enumerate(zip(children, outcomes, strict=True), 1):
            end(own, child, outcome)
            if notified and outcome == "success":
                complete_child(own, waiting, child)
            decided = propagate(own, child).decisions
            assert verdict_of(own, waiting) == (expected if place >= after else None), (outcomes, place)
            # A release by the completion alone needs no decision more.
            assert decided in ({waiting: expected}, {})
            assert place == after or not decided
        assert own.wire.stream_ids().count(waiting) == (expected == "run")
    with own.wire.unchanged():
        propagate(own, *(f"c{number}-{place}" for number in range(len(CASES)) for place in range(3)))


@pytest.mark.parametrize("rule", HELD_RULES)
def test_completions_alone_do_not_start_what_waits_for_failures(own: Own, rule: str) -> None:
    make_wait(own, "w", ["a", "b"], rule)
    for child in ("a", "b"):
        end(own, child, "success")
        complete_child(own, "w", child)
    assert own.wire.state("w") == "waiting-children"
    assert propagate(own, "a", "b").decisions == {"w": "skipped"}


@pytest.mark.parametrize("rule", ["", "of tomorrow"])
def test_without_a_rule_that_is_known_all_must_complete(own: Own, rule: str) -> None:
    make_wait(own, "w", ["a", "b"], rule)
    end(own, "a", "success")
    assert propagate(own, "a").decisions == {}
    end(own, "b", "failed")
    assert propagate(own, "b").decisions == {"w": "upstream_failed"}


def test_what_shall_run_is_ready_as_after_any_release(own: Own) -> None:
    make_wait(own, "w", ["a"], "one_failed")
    end(own, "a", "failed")
    own.wire.forget_events()
    assert propagate(own, "a").decisions == {"w": "run"}
    assert own.wire.stream() == [("jobId", "w", "name", "after")]
    assert own.wire.events() == [event("active", "w")]
    assert own.wire.members("deps:w") == {own.wire.key("a")}
    job = own.wire.job("w")
    # It has ended its dependencies, should it wait for children of its own.
    assert (job["state"], job[f"depdone:{own.wire.key('a')}"], job["depsCompleted"]) == ("waiting", "1", "1")
    assert not job.keys() & {"outcome", f"depend:{own.wire.key('a')}", "depsFailed"}


@pytest.mark.parametrize(
    ("outcome", "deps", "verdict"), [("failed", ["a", "b"], "upstream_failed"), ("skipped", ["a"], "skipped")]
)
def test_what_never_runs_fails_at_once(own: Own, outcome: str, deps: list[str], verdict: str) -> None:
    make_wait(own, "w", deps)
    end(own, "a", outcome)
    own.wire.forget_events()
    assert propagate(own, "a", now=NOW + 5).decisions == {"w": verdict}
    job, reason = own.wire.job("w"), REASONS[verdict]
    assert (job["state"], job["failedReason"], job["outcome"]) == ("failed", reason, verdict)
    assert job["finishedOn"] == str(NOW + 5)
    assert own.wire.zset("failed") == {"w": NOW + 5}
    assert own.wire.events() == [event("failed", "w", failedReason=reason)]
    assert own.wire.hash("metrics:failed") == {f"m:{MINUTE}:c": "1"}
    assert own.wire.stream() == []


def test_what_never_runs_gives_up_its_turn_in_its_group(own: Own) -> None:
    make_wait(own, "w", ["a"])
    opts = '{"ordering":{"key":"g"}}'
    own.wire.flow(parentCustomId="x", parentOpts=opts, extra_deps=[own.wire.key("a")])
    own.wire.ask("SADD", own.wire.key("parents:a"), own.wire.key("x"))
    own.wire.add(customJobId="next", orderingKey="g")
    entry_id, job_id = own.wire.fetched()
    assert own.wire.call("moveToActive", jobId=job_id, entryId=entry_id) == "GROUP_ORDERED"
    end(own, "a", "failed")
    assert propagate(own, "a").decisions == {"w": "upstream_failed", "x": "upstream_failed"}
    assert own.wire.take()[0] == "next"


def test_outcomes_and_completions_are_counted_once_in_any_order(own: Own) -> None:
    make_wait(own, "w", ["a", "b", "c"], "all_done")
    end(own, "a", "success")
    assert propagate(own, "a", "a").decisions == {}
    with own.wire.unchanged():
        complete_child(own, "w", "a")
        propagate(own, "a")
    end(own, "b", "skipped")
    propagate(own, "b")
    with own.wire.unchanged():
        propagate(own, "b", "a")
    job = own.wire.job("w")
    assert (job["depsCompleted"], job["depsSkipped"]) == ("1", "1")
    end(own, "c", "success")
    complete_child(own, "w", "c")
    assert propagate(own, "c").decisions == {"w": "run"}


def test_what_ends_after_an_early_release_changes_no_more(own: Own) -> None:
    make_wait(own, "w", ["a", "b", "c"], "one_success")
    end(own, "a", "success")
    assert propagate(own, "a").decisions == {"w": "run"}
    end(own, "b", "success")
    complete_child(own, "w", "b")
    end(own, "c", "failed")
    assert propagate(own, "b", "c").decisions == {}
    assert own.wire.stream_ids() == ["w"]


def test_a_job_that_ended_is_told_nothing_more(own: Own) -> None:
    make_wait(own, "w", ["a", "b"])
    end(own, "a", "failed")
    assert propagate(own, "a").decisions == {"w": "upstream_failed"}
    end(own, "b", "failed")
    with own.wire.unchanged():
        assert propagate(own, "b").decisions == {}


def test_a_verdict_on_what_was_told_before_counts_for_the_limit(own: Own) -> None:
    for job_id in ("v", "w"):
        make_wait(own, job_id, ["a", "b"], "one_success")
        complete_child(own, job_id, "a")
    end(own, "a", "success")
    first, second = propagate(own, "a", limit=1), propagate(own, "a", limit=1)
    assert (len(first.decisions), first.remaining) == (1, ["a"])
    assert (first.decisions | second.decisions, second.remaining) == ({"v": "run", "w": "run"}, [])


def test_a_job_that_ran_again_and_completed_counts_as_completed(own: Own) -> None:
    make_wait(own, "w", ["a", "b", "c"], "all_done")
    end(own, "a", "failed")
    propagate(own, "a")
    own.wire.set_fields("job:a", state="completed")
    complete_child(own, "w", "a")
    end(own, "b", "success")
    # Three words about two jobs: the third job still runs.
    assert propagate(own, "b").decisions == {}
    assert own.wire.job("w")["depsFailed"] == "0"
    end(own, "c", "failed")
    propagate(own, "c")
    assert verdict_of(own, "w") == "run"


def test_a_wide_fan_in_is_counted_in_full(own: Own) -> None:
    children = [f"c{number}" for number in range(1200)]
    make_wait(own, "w", children, "all_done")
    for number, child in enumerate(children):
        end(own, child, "failed" if number % 3 else "success")
    again = [child for number, child in enumerate(children) if number % 3 == 1]
    propagate(own, *again)
    for child in again:
        own.wire.set_fields(f"job:{child}", state="completed")
        complete_child(own, "w", child)
    assert propagate(own, *children[:-1], limit=5000).decisions == {}
    job = own.wire.job("w")
    assert int(job["depsCompleted"]) + int(job["depsFailed"]) == 1199
    assert propagate(own, children[-1]).decisions == {"w": "run"}
    job = own.wire.job("w")
    assert (job["depsCompleted"], "depsFailed" in job) == ("1200", False)


@pytest.mark.parametrize("notified", [False, True])
def test_an_outcome_that_changed_replaces_the_former(own: Own, notified: bool) -> None:
    make_wait(own, "w", ["a", "b"], "all_done")
    end(own, "a", "skipped")
    propagate(own, "a")
    own.wire.set_fields("job:a", failedReason="boom")
    propagate(own, "a")
    job = own.wire.job("w")
    assert (job["depsSkipped"], job["depsFailed"]) == ("0", "1")
    own.wire.set_fields("job:a", state="completed")
    if notified:
        complete_child(own, "w", "a")
    propagate(own, "a")
    job = own.wire.job("w")
    assert (job["depsFailed"], job["depsCompleted"]) == ("0", "1")
    assert f"depend:{own.wire.key('a')}" not in job


def test_nothing_is_decided_while_the_job_is_being_wired(own: Own) -> None:
    make_wait(own, "w", ["a", "b"], "all_failed", holds=["__hold__"])
    for child in ("a", "b"):
        end(own, child, "failed")
    assert propagate(own, "a", "b").decisions == {}
    complete_child(own, "w", "__hold__")
    assert propagate(own, "a", "b").decisions == {"w": "run"}


def test_a_hold_that_was_released_is_no_success(own: Own) -> None:
    make_wait(own, "w", ["a", "b"], "one_success", holds=["__hold__"])
    complete_child(own, "w", "__hold__")
    for child in ("a", "b"):
        end(own, child, "failed")
    assert propagate(own, "a", "b").decisions == {"w": "upstream_failed"}


def test_a_job_that_runs_learns_of_failures_before_it_waits(own: Own) -> None:
    """A running job adds jobs it will wait for; one fails before it waits."""
    job_id, entry_id = own.wire.active()
    for child in ("a", "b"):
        own.wire.ask("SADD", own.wire.key(f"deps:{job_id}"), own.wire.key(child))
        own.wire.ask("SADD", own.wire.key(f"parents:{child}"), own.wire.key(job_id))
    end(own, "a", "failed")
    assert propagate(own, "a").decisions == {}
    own.wire.call("moveToWaitingChildren", jobId=job_id, entryId=entry_id)
    assert propagate(own, "a").decisions == {job_id: "upstream_failed"}


def test_jobs_that_did_not_end_are_passed_over(own: Own) -> None:
    make_wait(own, "w", ["a", "b", "gone"])
    own.wire.add(customJobId="a")
    own.wire.make_job("b", state="delayed", failedReason="boom")
    with own.wire.unchanged():
        assert propagate(own, "a", "b", "gone", "unknown") == Propagated({}, [], [])


def test_a_job_that_was_removed_stays_gone(own: Own) -> None:
    make_wait(own, "w", ["a"])
    own.wire.call("removeJob", jobId="w")
    end(own, "a", "failed")
    with own.wire.unchanged():
        assert propagate(own, "a", news=[("w", "glide:{r}:x", "failed")]) == Propagated({}, [], [])


def test_jobs_of_other_queues_are_told_by_a_call_there(own: Own) -> None:
    there = Own(own.wire.sibling("r"))
    make_wait(there, "w", [], "one_failed", holds=["__hold__"])
    complete_child(there, "w", "__hold__")
    there.wire.ask("SADD", there.wire.key("deps:w"), own.wire.key("a"), own.wire.key("b"))
    own.wire.ask("SADD", own.wire.key("parents:a"), there.wire.key("w"), "bare:w", "other:{r}:w")
    for child, outcome in (("a", "skipped"), ("b", "failed")):
        end(own, child, outcome)
    own.wire.set_fields("job:b", parentId="w", parentQueue="r")
    with own.wire.unchanged():
        reply = propagate(own, "a", "b")
    assert reply.decisions == {}
    assert reply.remaining == []
    member_a, member_b = own.wire.key("a"), own.wire.key("b")
    assert reply.elsewhere == [("r", "w", member_a, "skipped"), ("r", "w", member_b, "failed")]
    assert propagate(there, news=[told[1:] for told in reply.elsewhere]).decisions == {"w": "run"}  # type: ignore[misc]


def test_news_of_another_queue_reach_the_whole_graph(own: Own) -> None:
    make_wait(own, "w", [])
    make_wait(own, "x", ["w"])
    own.wire.ask("SADD", own.wire.key("deps:w"), "glide:{r}:a")
    assert propagate(own, news=[("w", "glide:{r}:a", "failed")]).decisions == dict.fromkeys("wx", "upstream_failed")


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_failure_at_the_root_of_a_long_chain_reaches_its_end(own: Own, limit: int) -> None:
    ids = [f"n{number}" for number in range(200)]
    nodes = [new_job(custom_id=job_id) for job_id in reversed(ids)]
    submit(own, nodes, [(place, place + 1) for place in range(1, 200)])
    own.wire.set_fields("job:n199", triggerRule="all_done")
    fail_untold(own)
    decisions, calls = propagate_all(own, "n0", limit=limit)
    assert decisions == dict.fromkeys(ids[1:199], "upstream_failed") | {"n199": "run"}
    # The last call may find that nothing is left to change.
    assert calls <= -(-199 // limit) + 1
    (job,) = own.take()
    assert own.exchange(completed(job)).outcomes == "c"
    assert {own.wire.state(job_id) for job_id in ids[:199]} == {"failed"}


def test_a_job_with_many_dependents_is_told_in_parts(own: Own) -> None:
    ids = [f"d{number}" for number in range(50)]
    nodes = [new_job(custom_id="last"), *(new_job(custom_id=job_id) for job_id in ids), new_job(custom_id="root")]
    edges = [(1, place) for place in range(2, 52)] + [(place, 52) for place in range(2, 52)]
    submit(own, nodes, edges)
    fail_untold(own)
    first = propagate(own, "root", limit=20)
    assert len(first.decisions) == 20
    assert first.remaining[0] == "root"
    decisions, _ = propagate_all(own, *first.remaining, limit=20)
    assert first.decisions | decisions == dict.fromkeys([*ids, "last"], "upstream_failed")


def test_in_a_diamond_the_nearest_are_decided_first(own: Own) -> None:
    nodes = [new_job(custom_id=job_id) for job_id in ("end", "left", "right", "root")]
    submit(own, nodes, [(1, 2), (1, 3), (2, 4), (3, 4)])
    own.wire.set_fields("job:end", triggerRule="all_done")
    fail_untold(own)
    reply = propagate(own, "root")
    assert list(reply.decisions)[2:] == ["end"]
    assert reply.decisions == {"left": "upstream_failed", "right": "upstream_failed", "end": "run"}


@pytest.mark.parametrize("fetches", [False, True])
def test_completions_of_other_workers_and_outcomes_go_together(own: Own, fetches: bool) -> None:
    make_wait(own, "w", ["a", "b"], "none_failed_min_one_success")
    end(own, "b", "skipped")
    own.wire.add(customJobId="a")
    job_id, entry_id = own.wire.take()
    own.wire.call("completeAndFetchNext" if fetches else "complete", jobId=job_id, entryId=entry_id)
    assert own.wire.job("w")["depsCompleted"] == "1"
    assert propagate(own, "b").decisions == {"w": "run"}
    assert own.wire.take()[0] == "w"


@dataclass(frozen=True)
class Drawn:
    """A node of a random graph: its dependencies by place, its rule, and how it ends when it runs."""

    deps: tuple[int, ...]
    rule: str
    succeeds: bool


@st.composite
def graphs(draw: st.DrawFn) -> list[Drawn]:
    """Any acyclic graph of a few nodes, in the order in which they could run."""
    return [
        Drawn(
            tuple(draw(st.lists(st.integers(0, place - 1), unique=True, max_size=4)) if place else ()),
            draw(st.sampled_from(sorted(AIRFLOW))),
            draw(st.booleans()),
        )
        for place in range(draw(st.integers(1, 9)))
    ]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), limit=st.integers(1, 4), told=st.booleans())
def test_in_any_graph_every_node_ends_as_its_rule_allows(own: Own, graph: list[Drawn], limit: int, told: bool) -> None:
    """``told``: after each outcome, and not only when no more jobs are ready."""
    own.wire.client.flushall()
    for place in reversed(range(len(graph))):
        if graph[place].deps:
            make_wait(own, f"n{place}", [f"n{dep}" for dep in graph[place].deps], graph[place].rule)
    for place, node in enumerate(graph):
        if not node.deps:
            own.wire.add(customJobId=f"n{place}")
    ran: list[int] = []
    untold: list[str] = []
    while True:
        started = own.exchange(want=1).started
        for job in started:
            place = int(job.job_id[1:])
            ran.append(place)
            own.exchange((completed if graph[place].succeeds else failed)(job))
            untold.append(job.job_id)
        if told or not started:
            propagate_all(own, *untold, limit=limit)
            if not started and not own.wire.stream_ids():
                break
            untold.clear()
    assert len(set(ran)) == len(ran)
    outcomes = [_outcome(own, f"n{place}") for place in range(len(graph))]
    for place, node in enumerate(graph):
        ended = [outcomes[dep] for dep in node.deps]
        # In which order they ended may decide: a rule that was satisfied by some is not asked about the others.
        verdicts = {
            verdict
            for count in range(1, len(ended) + 1)
            for seen in product(ended, repeat=count)
            if not Counter(seen) - Counter(ended)
            if (verdict := by_airflow(node.rule, list(seen), len(ended)))
        }
        verdict = "run" if place in ran else outcomes[place]
        assert verdict in (verdicts or {"run"}), (place, outcomes)
        if place in ran:
            assert outcomes[place] == ("success" if node.succeeds else "failed")


def _outcome(own: Own, job_id: str) -> str:
    job = own.wire.job(job_id)
    return {"completed": "success", "failed": job.get("outcome", "failed")}[job["state"]]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "'now_ms' is not a whole number"),
        ([NOW, "many", 0, 0], "'limit' is not a whole number"),
        ([NOW, 1, 0, 1], "takes 5 keys and 5 arguments, not 5 and 4"),
        ([NOW, 1, 0, 0, "a"], "takes 5 keys and 4 arguments, not 5 and 5"),
        ([NOW, 1, 1, 0, "w", "glide:{r}:a"], "takes 5 keys and 7 arguments, not 5 and 6"),
        ([NOW, 0, 0, 1, "a"], "a limit of 0 gets nowhere"),
        ([NOW, 1, 2, 0, "w", "glide:{r}:a", "failed", "w", "glide:{r}:b", "lost"], "'lost' is no outcome"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[Word], why: str) -> None:
    make_wait(own, "w", ["a"])
    end(own, "a", "failed")
    own.refused("propagate", [own.wire.key(name) for name in KEYS], args, why)


def test_another_key_for_the_stream_is_refused(own: Own) -> None:
    keys = [own.wire.key("events"), *(own.wire.key(name) for name in KEYS[1:])]
    own.refused("propagate", keys, [NOW, 1, 0, 0], "does not end in ':stream'")
