"""Fair shares: jobs that name a share start by its weight, whatever comes in between, and Node's clients take them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.functions.oq1 import Delivered, HandBack
from tests.lua.oq1 import Own, Started, completed, failed, new_job
from tests.lua.wire import NOW, WORKERS, Wire

SPARE = 8
"""Jobs of shares that wait on the stream beyond what a worker asked for."""
STRUCTURES = ("shares:waiting", "shares:served", "share:a", "share:b", "share:c")


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


def of(share: str, **changes: Any) -> oq1.NewJob:
    return new_job(share, opts=json.dumps({"share": share}), **changes)


def names(own: Own, jobs: Iterable[Started]) -> list[str]:
    return [job.fields["name"] for job in jobs]


def add(own: Own, share: str, count: int, **changes: Any) -> list[str]:
    return own.add(*(of(share, **changes) for _ in range(count)))


def waiting(own: Own) -> int:
    """How many jobs wait in shares, as the settings of the queue have it."""
    return int(own.wire.ask("HGET", own.wire.key("meta"), "shared") or 0)


def drained(own: Own, want: int = 5) -> list[str]:
    """Start and complete all jobs; returns their names in that order."""
    order: list[str] = []
    done: list[Started] = []
    while (reply := own.exchange(*map(completed, done), want=want)).started:
        done = reply.started
        order += names(own, done)
    assert not any(own.wire.exists(name) for name in STRUCTURES), "what no job waits in is not kept"
    assert waiting(own) == 0
    return order


def test_a_thousand_jobs_of_one_share_do_not_hold_up_one_of_another(own: Own) -> None:
    add(own, "a", 1000)
    add(own, "b", 1)
    assert "b" in names(own, own.take(SPARE + 2))


@pytest.mark.parametrize(("weight", "backlog"), [(1, 1000), (3, 1000), (10, 1000)])
def test_shares_start_by_their_weights_within_a_tenth(own: Own, weight: int, backlog: int) -> None:
    own.wire.ask("HSET", own.wire.key("shares"), "a", weight)
    add(own, "b", 400)
    add(own, "a", backlog)
    own.take(SPARE)
    started = names(own, own.take(330))
    assert started.count("a") / started.count("b") == pytest.approx(weight, rel=0.1)


def test_a_share_that_was_idle_neither_starves_nor_has_anything_saved(own: Own) -> None:
    add(own, "a", 300)
    own.take(200)
    add(own, "b", 300)
    own.take(SPARE)
    started = Counter(names(own, own.take(100)))
    assert started == {"a": 50, "b": 50}


def test_a_share_that_empties_again_and_again_is_charged_for_what_it_had(own: Own) -> None:
    own.wire.ask("HSET", own.wire.key("shares"), "a", 10)
    add(own, "a", 500)
    own.take(SPARE)
    order = []
    for _ in range(200):
        if own.wire.ask("ZCARD", own.wire.key("share:b")) == 0:
            add(own, "b", 1)
        order += names(own, own.take(1))
    assert order.count("b") == pytest.approx(200 / 11, abs=3)


def test_jobs_of_a_share_start_by_priority_and_then_in_order(own: Own) -> None:
    ids = add(own, "a", SPARE)
    plain = add(own, "a", 3)
    late = add(own, "a", 2, priority=9)
    early = add(own, "a", 2, priority=1)
    assert [job.job_id for job in own.take(SPARE + 7)] == [*ids, *early, *late, *plain]


def test_shares_of_one_call_are_served_from_its_first_job_on(own: Own) -> None:
    own.add(*(of(share) for share in "aaaaaaaaaaaaaaaabbbbbbbb"))
    assert names(own, own.take(SPARE)) == ["a", "b"] * (SPARE // 2)


def test_a_share_that_was_forgotten_is_found_by_its_next_job_or_a_repair(own: Own) -> None:
    *_, last = add(own, "a", SPARE + 3)
    own.wire.ask("DEL", own.wire.key("shares:waiting"))
    own.take(SPARE)
    assert own.exchange(want=1).started == []
    assert own.send(oq1.put_back(own.keys, job_id=last, now_ms=NOW, limit=1000)) == "put_back"
    assert len(drained(own)) == 3


def test_jobs_without_a_share_go_their_way(own: Own) -> None:
    add(own, "a", 100)
    plain = own.add(*(new_job() for _ in range(3)))
    started = [job.job_id for job in own.take(SPARE + 3)]
    assert started[SPARE:] == plain
    own.take(100 - SPARE)
    assert own.exchange(want=1).stopped == "empty"


@pytest.mark.parametrize("want", [1, 3, 10])
def test_a_backlog_without_shares_and_the_shares_take_turns(own: Own, want: int) -> None:
    own.add(*(new_job("plain") for _ in range(400)))
    add(own, "a", 300)
    add(own, "b", 300)
    order: list[str] = []
    while len(order) < 300:
        order += names(own, own.take(want))
    counts = Counter(order[:300])
    assert counts["plain"] == pytest.approx(150, abs=want)
    assert counts["a"] == pytest.approx(75, abs=want)
    assert order.index("a") <= 2 * want
    rest = Counter(order + drained(own))
    assert rest == {"plain": 400, "a": 300, "b": 300}


def test_a_single_job_of_a_share_does_not_wait_for_a_backlog_without_one(own: Own) -> None:
    own.add(*(new_job("plain") for _ in range(1000)))
    (job_id,) = add(own, "a", 1)
    started = [*own.take(1), *own.take(1)]
    assert job_id in [job.job_id for job in started]
    own.exchange(*map(completed, started))
    assert own.wire.ask("GET", own.wire.key("list-active")) in (None, "0")


def test_a_job_that_overtook_a_backlog_is_retried_as_any(own: Own) -> None:
    own.add(*(new_job("plain") for _ in range(50)))
    (job_id,) = add(own, "a", 1)
    started = {job.job_id: job for job in own.take(2)}
    own.exchange(failed(started[job_id], max_attempts=2, wait_ms=10))
    again = own.exchange(want=60, now=NOW + 10).started
    assert job_id in [job.job_id for job in again]
    own.exchange(*map(completed, again))
    assert own.wire.state(job_id) == "completed"


def commands(own: Own, act: Any) -> dict[str, int]:
    """How many commands the server carried out, by name."""

    def counted() -> Counter[str]:
        stats = own.wire.client.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): int(row["calls"]) for name, row in stats.items()})

    before = counted()
    act()
    return {name: calls for name, calls in (counted() - before).items() if name not in ("info", "fcall")}


def test_jobs_without_a_share_cost_no_command_more_than_their_work(own: Own) -> None:
    ids = own.add(*(new_job() for _ in range(200)))
    held = own.take(100)
    cost = commands(own, lambda: own.exchange(*map(completed, held), want=100))
    assert len(ids) == 200
    # Per job: its lease is read, it is written, and announced; the next is read and marked. All else is shared.
    assert sum(cost.values()) <= 5.3 * 100, cost
    assert not any("share" in name for name in own.wire.names())


def test_a_retry_returns_to_its_share(own: Own) -> None:
    add(own, "a", 50)
    (first,) = own.take(1)
    own.exchange(failed(first, max_attempts=2, wait_ms=10))
    own.exchange(want=1, now=NOW + 10)
    assert own.wire.ask("ZSCORE", own.wire.key("share:a"), first.job_id) is not None
    assert own.wire.state(first.job_id) == "waiting"
    assert len(drained(own)) == 49


def test_delayed_and_promoted_jobs_go_to_their_share(own: Own) -> None:
    add(own, "a", 30)
    (due,) = add(own, "b", 1, delay_ms=10)
    (early,) = add(own, "b", 1, delay_ms=10**9)
    assert own.wire.state(due) == "delayed"
    own.take(1, now=NOW + 10)
    assert own.wire.state(due) == "waiting"
    assert own.wire.call("promoteJob", jobId=early) == "ok"
    assert names(own, own.take(SPARE + 4)).count("b") == 2


def test_many_delayed_jobs_that_fall_due_at_once_are_all_found(own: Own) -> None:
    add(own, "a", 60, delay_ms=10)
    assert len(own.exchange(want=50, now=NOW + 10).started) == 50


@pytest.mark.parametrize("place", ["share", "stream"])
@pytest.mark.parametrize("way", ["cancel", "remove", "node_cancel", "node_remove"])
def test_a_waiting_job_is_cancelled_and_removed_wherever_it_waits(own: Own, way: str, place: str) -> None:
    ids = add(own, "a", SPARE + 5)
    job_id = ids[-1] if place == "share" else ids[0]
    match way:
        case "cancel":
            assert own.send(oq1.revoke(own.keys, job_id=job_id, now_ms=NOW, group=WORKERS)) == "revoked"
        case "remove":
            assert own.send(oq1.remove_job(own.keys, job_id=job_id, group=WORKERS)) == 1
        case "node_cancel":
            assert own.wire.call("revoke", jobId=job_id) == "revoked"
        case _:
            assert own.wire.call("removeJob", jobId=job_id) == 1
    assert waiting(own) == (4 if place == "share" else 5)
    assert len(drained(own)) == SPARE + 4


def test_the_last_job_of_a_share_leaves_nothing_behind(own: Own) -> None:
    add(own, "a", SPARE)
    (last,) = add(own, "b", 1)
    assert own.wire.exists("share:b")
    own.send(oq1.revoke(own.keys, job_id=last, now_ms=NOW, group=WORKERS))
    assert not any(own.wire.exists(name) for name in STRUCTURES)
    assert waiting(own) == 0


def test_jobs_removed_from_the_stream_make_room_for_others(own: Own) -> None:
    ids = add(own, "a", SPARE + 3)
    for job_id in ids[:SPARE]:
        own.send(oq1.remove_job(own.keys, job_id=job_id, group=WORKERS))
    add(own, "a", 1)
    assert len(own.wire.stream()) == 4, "an idle worker is woken for what waits"


def test_a_change_of_priority_or_delay_moves_a_job_within_its_share(own: Own) -> None:
    *_, first, second, third = add(own, "a", SPARE + 3)
    own.take(SPARE)
    wire = own.wire
    add(own, "a", SPARE)
    assert wire.call("changePriority", jobId=third, newPriority=5) == "ok"
    assert wire.state(third) == "prioritized"
    assert wire.call("changePriority", jobId=third, newPriority=0) == "ok"
    assert wire.state(third) == "waiting"
    fourth = add(own, "a", 2)[-1]
    assert wire.call("changePriority", jobId=fourth, newPriority=5) == "ok"
    order = [job.job_id for job in own.take(SPARE + 4)]
    assert order.index(first) < order.index(second) < order.index(third)
    assert fourth in order


def test_a_delay_takes_a_job_out_of_its_share_and_its_end_brings_it_back(own: Own) -> None:
    *_, last = add(own, "a", SPARE + 3)
    wire = own.wire
    assert wire.call("changeDelay", jobId=last, newDelay=1000) == "ok"
    assert (wire.state(last), waiting(own)) == ("delayed", 2)
    assert wire.call("changeDelay", jobId=last, newDelay=0) == "ok"
    assert (wire.state(last), waiting(own)) == ("waiting", 3)


def test_what_a_worker_hands_back_or_loses_starts_again(own: Own) -> None:
    add(own, "a", 30)
    entry_id, job_id = own.wire.fetched()
    own.exchange(hand_backs=[HandBack(job_id, entry_id)])
    lost = own.take(10)
    own.reclaim(NOW + 10**6)
    assert len(drained(own)) == 30
    assert {own.wire.job(job.job_id)["stalledCount"] for job in lost} == {"1"}


def test_a_worker_that_was_given_jobs_is_told_that_more_wait_in_shares(own: Own) -> None:
    add(own, "a", SPARE + 10)
    entry_id, job_id = own.wire.fetched()
    assert own.exchange(deliveries=[Delivered(job_id, entry_id)]).stopped == "enough"
    own.take(SPARE + 9)
    add(own, "a", 1)
    entry_id, job_id = own.wire.fetched()
    assert own.exchange(deliveries=[Delivered(job_id, entry_id)]).stopped == ""


def test_a_paused_or_full_queue_starts_none(own: Own) -> None:
    add(own, "a", 30)
    own.wire.ask("HSET", own.wire.key("meta"), "paused", 1)
    assert own.exchange(want=9).stopped == "paused"
    own.wire.ask("HDEL", own.wire.key("meta"), "paused")
    own.wire.ask("HSET", own.wire.key("meta"), "globalConcurrency", 4)
    reply = own.exchange(want=9)
    assert (len(reply.started), reply.stopped) == (4, "full")


@pytest.mark.parametrize("node", [False, True])
def test_draining_removes_jobs_of_shares(own: Own, *, node: bool) -> None:
    add(own, "a", 250)
    add(own, "b", 30)
    if node:
        assert own.wire.call("drain") == 280
    else:
        removed = 0
        while part := own.send(oq1.drain(own.keys, drain_delayed=False, group=WORKERS, limit=100)):
            removed += part
        assert removed == 280
    assert not any(own.wire.exists(name) for name in STRUCTURES)
    assert not own.wire.names("job:")
    assert waiting(own) == 0


def test_a_job_that_waits_for_others_goes_to_its_share_when_they_are_done(own: Own) -> None:
    add(own, "b", SPARE)
    parent, child = own.wire.flow_ids({"name": "child"}, parentOpts=json.dumps({"share": "a"}))
    assert own.wire.job(parent)["share"] == "a"
    started = own.take(SPARE + 1)
    own.exchange(*map(completed, started))
    assert child in [job.job_id for job in started]
    assert own.wire.stream()[-1][:2] == ("jobId", parent)


def node_fetch(own: Own) -> str | None:
    """Take a job as a worker of Node does: from the stream, by a read of its own and a call for the record."""
    found = own.wire.fetch("node")
    return found[1] if found else None


def test_workers_of_node_alone_get_all_jobs_in_turns_by_their_round_of_promotions(own: Own) -> None:
    """With this library: with that of Node's own package they get them as soon as a worker of ours ticks."""
    add(own, "a", 100)
    add(own, "b", 20)
    taken = []
    for _ in range(40):
        own.wire.call("promote")
        while job_id := node_fetch(own):
            taken.append(own.wire.job(job_id)["name"])
    assert Counter(taken) == {"a": 100, "b": 20}
    assert taken[SPARE : SPARE + 40].count("b") == 20


def test_a_worker_of_node_that_completes_a_job_is_given_one_of_a_share(own: Own) -> None:
    add(own, "a", 40)
    job_id, entry_id = own.wire.take()
    seen = {job_id}
    while True:
        reply = own.wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id)
        if reply[0] != "NEXT_HASH":
            break
        job_id, entry_id = reply[2], reply[3]
        seen.add(job_id)
    assert len(seen) == 40


def test_a_tick_moves_jobs_on_that_no_worker_asked_for(own: Own) -> None:
    add(own, "a", 20)
    while node_fetch(own):
        pass
    own.send(oq1.tick(own.keys, now_ms=NOW, heal=False))
    assert own.wire.fetch("node")


def test_a_lost_count_is_counted_anew(own: Own) -> None:
    add(own, "a", 20)
    add(own, "b", 20)
    own.wire.ask("DEL", own.wire.key("meta"))
    own.send(oq1.tick(own.keys, now_ms=NOW, heal=False))
    assert waiting(own) == 40 - SPARE
    assert len(drained(own)) == 40


def test_a_count_that_is_left_over_goes(own: Own) -> None:
    own.wire.ask("HSET", own.wire.key("meta"), "shared", 5)
    own.send(oq1.tick(own.keys, now_ms=NOW, heal=False))
    assert waiting(own) == 0


@pytest.mark.parametrize("key", ["shares", "shares:waiting", "shares:served", "shares:ahead", "share:a"])
def test_a_key_of_another_type_stops_nothing(own: Own, key: str) -> None:
    add(own, "a", 20)
    own.wire.ask("DEL", own.wire.key(key))
    own.wire.ask("SET", own.wire.key(key), "odd")
    add(own, "a", 20)
    add(own, "b", 5)
    assert own.exchange(want=50).started
    own.send(oq1.tick(own.keys, now_ms=NOW, heal=False))
    while own.exchange(want=50).started:
        pass


@pytest.mark.parametrize("weight", ["zz", "0", "-3", "", "1e999", "nan"])
def test_an_odd_weight_counts_as_one(own: Own, weight: str) -> None:
    own.wire.ask("HSET", own.wire.key("shares"), "a", weight)
    add(own, "a", 100)
    add(own, "b", 100)
    own.take(SPARE)
    assert names(own, own.take(50)).count("a") == 25


@pytest.mark.parametrize("share", ["", 5, None, ["a"], {"a": 1}, "a:b", "{a}", "x" * 401])
def test_what_is_no_name_of_a_share_leaves_the_job_plain(own: Own, share: object) -> None:
    own.add(new_job(opts=json.dumps({"share": share})))
    assert "share" not in own.wire.job("1")
    assert own.take(1)


def test_a_job_that_another_library_took_away_is_dropped(own: Own) -> None:
    ids = add(own, "a", SPARE + 30)
    for job_id in ids[SPARE : SPARE + 10]:
        own.wire.ask("DEL", own.wire.key(f"job:{job_id}"))
    for job_id in ids[SPARE + 10 : SPARE + 20]:
        own.wire.set_fields(f"job:{job_id}", state="failed")
    assert len(drained(own)) == SPARE + 10


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 40)),
    st.tuples(st.just("take"), st.integers(1, 30)),
    st.tuples(st.just("finish"), st.integers(1, 30)),
    st.tuples(st.just("fail"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 100)),
    st.tuples(st.just("tick")),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    weights=st.fixed_dictionaries({name: st.integers(1, 20) for name in "abc"}),
    steps=st.lists(STEPS, min_size=5, max_size=30),
)
def test_none_is_lost_and_shares_that_wait_are_served_by_weight(
    own: Own, weights: dict[str, int], steps: list[tuple[Any, ...]]
) -> None:
    """While two shares wait all the time, what each had differs from its weight by one job of each."""
    own.wire.client.flushall()
    own.wire.open_group()
    for name, weight in weights.items():
        own.wire.ask("HSET", own.wire.key("shares"), name, weight)
    held: list[Started] = []
    added: list[str] = []
    ended = 0
    for step in steps:
        match step:
            case ("add", share, count):
                added += add(own, share, count)
            case ("take", count):
                held += own.exchange(want=count).started
            case ("finish", count):
                ended += own.exchange(*map(completed, held[:count])).outcomes.count("c")
                del held[:count]
            case ("fail", count):
                own.exchange(*(failed(job, max_attempts=99) for job in held[:count]))
                del held[:count]
            case ("cancel", place) if added:
                reply = own.send(oq1.revoke(own.keys, job_id=added[place % len(added)], now_ms=NOW, group=WORKERS))
                ended += reply == "revoked"
            case ("tick",):
                own.send(oq1.tick(own.keys, now_ms=NOW, heal=False))
    sizes = {name: own.wire.ask("ZCARD", own.wire.key(f"share:{name}")) for name in "abc"}
    assert waiting(own) == sum(sizes.values())
    assert {name for name, size in sizes.items() if size} == set(own.wire.zset("shares:waiting"))
    for name in "abc":
        add(own, name, 130)
    held += own.exchange(want=SPARE * 4).started
    served = Counter(own.wire.job(job.job_id)["name"] for job in own.exchange(want=100).started)
    for one, other in pairwise("abc"):
        fair = abs(served[one] / weights[one] - served[other] / weights[other])
        assert fair <= 1 / weights[one] + 1 / weights[other] + 1e-6, (served, weights)
