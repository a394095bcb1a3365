"""A call reads a limited number of items: beyond that nothing is lost, and a later call continues from there."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import NOW, Wire, Word

MOST_COLLISIONS = 1000
MOST_SKIPS = 10_000
MOST_HEADS = 100
MOST_KEYS = 500 * 1000
SEARCH_PAGE = 1000


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (lambda wire: wire.add(), "ERR:ID_EXHAUSTED"),
        (lambda wire: wire.call("dedup"), "ERR:ID_EXHAUSTED"),
        (lambda wire: json.loads(wire.flow({}, parentCustomId="p")), ["ERR:ID_EXHAUSTED"]),
    ],
    ids=["addJob", "dedup", "addFlow, a child"],
)
def test_a_thousand_ids_in_use_are_enough_to_give_up(wire: Wire, call: Callable[[Wire], object], reply: object) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for number in range(1, MOST_COLLISIONS + 2):
        pipeline.hset(wire.key(f"job:{number}"), "state", "completed")
    pipeline.execute()
    assert call(wire) == reply
    assert wire.names() == {f"job:{number}" for number in range(1, MOST_COLLISIONS + 2)} | {"id"}
    assert call(wire) != reply, "the counter is past them now"


def test_a_parent_whose_automatic_id_a_child_has_chosen_is_refused_once(wire: Wire) -> None:
    assert json.loads(wire.flow({"id": "1"})) == ["duplicate"]
    assert wire.names() == {"id"}
    assert wire.flow_ids({"id": "1"}) == ["2", "1"]


def test_more_members_of_a_group_than_a_call_steps_over_may_have_left(wire: Wire) -> None:
    gone = 2 * MOST_SKIPS + 5
    job_id = wire.add(orderingKey="k")
    wire.make_job(job_id, orderingSeq=gone + 1)
    wire.set_fields("group:k", **{f"skip:{seq}": 1 for seq in range(1, gone + 1)})
    entry_id, _ = wire.fetched()
    assert wire.call("moveToActive", jobId=job_id, entryId=entry_id) == "GROUP_ORDERED"
    assert wire.group("k")["nextSeq"] == str(2 * MOST_SKIPS + 1), "the gate stepped, then the group"
    assert wire.call("nextDue") == 0, "the rest is stepped over by the next promotion"
    assert HandWorker(wire).run() == [job_id]
    assert wire.group("k") == {"maxConcurrency": "1", "active": "0", "nextSeq": str(gone + 2)}


def test_more_parked_jobs_than_a_call_drops_may_be_gone(wire: Wire) -> None:
    bucket: dict[str, Word] = {"orderingKey": "k", "tbCapacity": 5000, "tbRefillRate": 1000}
    first, entry_id = wire.active(**bucket)
    parked = wire.add(**bucket)
    wait_entry, _ = wire.fetched()
    assert wire.call("moveToActive", jobId=parked, entryId=wait_entry) == "GROUP_FULL"
    wire.client.zadd(wire.key("groupq:k"), {f"gone-{number}": 1 for number in range(MOST_HEADS + 5)})
    wire.call("complete", jobId=first, entryId=entry_id)
    assert len(wire.parked("k")) == 5 + 1
    assert wire.call("nextDue") == 0, "the rest is dropped by the next promotion"
    assert wire.call("promoteRateLimited") == 1
    assert wire.parked("k") == {}
    assert wire.state(parked) == "waiting"


def test_active_list_jobs_are_not_counted_among_too_many_keys(wire: Wire) -> None:
    wire.ask("SET", wire.key("list-active"), 3)
    fill = "for number = 1, ARGV[1] do redis.call('SET', ARGV[2] .. number, '') end"
    for part in range(11):  # a script that fills all takes longer than clients wait, on a slow machine
        wire.ask("EVAL", fill, 0, MOST_KEYS // 10, f"{part}:")
    assert wire.call("healListActive") == 0
    assert wire.list_active() == 3, "jobs may be beyond what was read"
    wire.client.flushall()
    wire.ask("SET", wire.key("list-active"), 3)
    assert wire.call("healListActive") == 3
    assert wire.list_active() == 0


def test_a_set_is_searched_beyond_its_first_page(wire: Wire) -> None:
    others = {f"other-{number}": NOW for number in range(SEARCH_PAGE)}
    wire.client.zadd(wire.key("failed"), others)
    wire.client.zadd(wire.key("failed"), {wire.make_job("late", name="mail"): NOW + 1})
    assert wire.call("searchByName", structure="failed", stateType="zset", name="mail") == ["late"]
