"""`glidemq_dedup`: add a job unless one like it is there."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, SHIFT, Wire, Word, due, event


def dedup(wire: Wire, **values: Word) -> str:
    return str(wire.call("dedup", **values))


def test_a_first_job_is_added_and_remembered(wire: Wire) -> None:
    assert dedup(wire, jobName="mail", data="[1]", opts='{"a":1}', maxAttempts=2) == "1"
    assert wire.job("1") == {
        "id": "1",
        "name": "mail",
        "data": "[1]",
        "opts": '{"a":1}',
        "timestamp": str(NOW),
        "attemptsMade": "0",
        "delay": "0",
        "priority": "0",
        "maxAttempts": "2",
        "state": "waiting",
    }
    assert wire.hash("dedup") == {"once": f"1:{NOW}"}
    assert wire.stream() == [("jobId", "1", "name", "mail")]
    assert wire.events() == [event("added", 1, name="mail")]


@pytest.mark.parametrize("mode", ["simple", "throttle", "debounce"])
def test_other_dedup_ids_are_others(wire: Wire, mode: str) -> None:
    assert [dedup(wire, dedupId=i, mode=mode, ttlMs=500) for i in ("a", "b")] == ["1", "2"]
    assert wire.hash("dedup") == {"a": f"1:{NOW}", "b": f"2:{NOW}"}


STATES = (
    "waiting",
    "active",
    "delayed",
    "prioritized",
    "waiting-children",
    "group-waiting",
    "suspended",
    "completed",
    "failed",
)
DONE = {"completed", "failed"}


@pytest.mark.parametrize("state", [*STATES, None])
def test_simple_skips_while_the_job_is_unfinished(wire: Wire, state: str | None) -> None:
    wire.ask("HSET", wire.key("dedup"), "once", f"old:{NOW - 1}")
    if state is not None:
        wire.make_job("old", state=state)
    if state is None or state in DONE:
        assert dedup(wire) == "1"
        assert wire.hash("dedup") == {"once": f"1:{NOW}"}
        assert wire.stream_ids() == ["1"]
    else:
        with wire.unchanged():
            assert dedup(wire) == "skipped"


@pytest.mark.parametrize(
    ("ttl", "age", "reply"),
    [(100, 0, "skipped"), (100, 99, "skipped"), (100, 100, "2"), (100, 150, "2"), (0, 0, "2")],
)
@pytest.mark.parametrize("state", ["waiting", "completed"])
def test_throttle_skips_within_its_time_whatever_the_job_does(
    wire: Wire, ttl: int, age: int, reply: str, state: str
) -> None:
    dedup(wire, mode="throttle", ttlMs=ttl)
    wire.make_job("1", state=state)
    assert dedup(wire, mode="throttle", ttlMs=ttl, timestamp=NOW + age) == reply
    assert wire.hash("dedup") == {"once": f"1:{NOW}" if reply == "skipped" else f"2:{NOW + age}"}


@pytest.mark.parametrize(
    ("values", "score"),
    [({"delay": 500}, due(NOW + 500)), ({"priority": 4}, 4 * SHIFT), ({"priority": 4, "delay": 9}, due(NOW + 9, 4))],
)
@pytest.mark.parametrize("silent", [0, 1])
def test_debounce_replaces_a_job_that_still_waits_for_its_time(
    wire: Wire, values: dict[str, Word], score: int, silent: int
) -> None:
    dedup(wire, mode="debounce", **values)
    wire.forget_events()
    assert dedup(wire, mode="debounce", jobName="newer", skipEvents=silent, **values) == "2"
    assert not wire.exists("job:1")
    assert wire.zset("scheduled") == {"2": score}
    assert wire.hash("dedup") == {"once": f"2:{NOW}"}
    assert wire.events() == ([] if silent else [event("removed", 1), event("added", 2, name="newer")])


@pytest.mark.parametrize("state", [*(s for s in STATES if s not in ("delayed", "prioritized")), None])
def test_debounce_skips_a_started_job_and_follows_a_finished_one(wire: Wire, state: str | None) -> None:
    wire.ask("HSET", wire.key("dedup"), "once", f"old:{NOW}")
    if state is not None:
        wire.make_job("old", state=state)
    if state is None or state in DONE:
        assert dedup(wire, mode="debounce") == "1"
        assert wire.exists("job:old") == (state is not None)
    else:
        with wire.unchanged():
            assert dedup(wire, mode="debounce", ttlMs=1) == "skipped"


def test_a_mode_without_a_meaning_checks_nothing(wire: Wire) -> None:
    assert [dedup(wire, mode="sometimes") for _ in range(2)] == ["1", "2"]
    assert wire.hash("dedup") == {"once": f"2:{NOW}"}


def test_debounced_members_of_a_group_leave_skip_markers(wire: Wire) -> None:
    for _ in range(3):
        dedup(wire, mode="debounce", delay=500, orderingKey="k")
    assert wire.group("k") == {"maxConcurrency": "1", "nextSeq": "1", "skip:1": "1", "skip:2": "1"}
    assert wire.job("3")["orderingSeq"] == "3"
    assert wire.names("job:") == {"job:3"}


def test_skip_events_adds_silently(wire: Wire) -> None:
    dedup(wire, skipEvents=1)
    assert not wire.exists("events")


@pytest.mark.parametrize(
    ("values", "state", "place", "holds"),
    [
        ({"delay": 5, "priority": 2}, "delayed", "scheduled", {"1": due(NOW + 5, 2)}),
        ({"priority": 2}, "prioritized", "scheduled", {"1": 2 * SHIFT}),
        ({"lifo": 1}, "waiting", "lifo", ["1"]),
    ],
)
def test_the_job_is_placed_as_by_addjob(
    wire: Wire, values: dict[str, Word], state: str, place: str, holds: object
) -> None:
    dedup(wire, **values)
    assert wire.state("1") == state
    assert wire.place(place) == holds
    assert wire.stream() == []


def test_every_option_of_a_job_reaches_its_hash(wire: Wire) -> None:
    deps = wire.key("deps:p")
    reply = wire.call(
        "dedup",
        deps,
        customJobId="c-1",
        parentId="p",
        parentQueue="q",
        orderingKey="k",
        groupConcurrency=2,
        groupRateMax=3,
        groupRateDuration=400,
        tbCapacity=5000,
        tbRefillRate=600,
        cost=700,
        ttl=8000,
        lifo=1,
        delay=9,
    )
    assert reply == "c-1"
    expected = {"parentId": "p", "parentQueue": "q", "groupKey": "k", "orderingSeq": "1", "cost": "700"}
    expected |= {"expireAt": str(NOW + 8000), "lifo": "1", "state": "delayed"}
    assert expected.items() <= wire.job("c-1").items()
    assert wire.members("deps:p") == {wire.key("c-1")}
    group = {"maxConcurrency": "2", "nextSeq": "1", "rateMax": "3", "rateDuration": "400", "tbCapacity": "5000"}
    group |= {"tbRefillRate": "600", "tbTokens": "5000", "tbLastRefill": str(NOW), "tbRefillRemainder": "0"}
    assert wire.group("k") == group


def test_a_taken_custom_id_is_a_duplicate_and_not_remembered(wire: Wire) -> None:
    wire.add(customJobId="c-1")
    with wire.unchanged():
        assert dedup(wire, customJobId="c-1") == "duplicate"


def test_a_too_expensive_job_is_refused_and_not_remembered(wire: Wire) -> None:
    assert dedup(wire, orderingKey="k", tbCapacity=500, tbRefillRate=1) == "ERR:COST_EXCEEDS_CAPACITY"
    assert wire.hash("dedup") == {}
    assert wire.stream() == []


@pytest.mark.parametrize("argc", [7, 20])
def test_callers_with_fewer_arguments_get_the_defaults(wire: Wire, argc: int) -> None:
    assert wire.short("dedup", argc, mode="debounce") == "1"
    assert wire.stream_ids() == ["1"]
    assert wire.events() == [event("added", 1, name="task")]
