"""`glidemq_addFlow`: a parent that waits for its children, all in one call."""

from __future__ import annotations

import json

import pytest

from tests.lua.wire import NOW, SHIFT, Wire, Word, due, event

TOO_EXPENSIVE = "ERR:COST_EXCEEDS_CAPACITY"


def bucket(capacity: float, *, cost: float | None = None, key: str | None = "k") -> str:
    opts: dict[str, object] = {"ordering": {"tokenBucket": {"capacity": capacity, "refillRate": 1}}}
    if key is not None:
        opts["ordering"] = {"key": key, **opts["ordering"]}  # type: ignore[dict-item]
    return json.dumps(opts | ({} if cost is None else {"cost": cost}))


def test_parent_and_children_are_linked(wire: Wire) -> None:
    reply = wire.flow(
        {"name": "left", "data": "[1]", "opts": '{"a":1}', "maxAttempts": 2},
        {"name": "right"},
        parentName="sum",
        parentData="[0]",
        parentOpts='{"b":2}',
        parentMaxAttempts=4,
    )
    assert json.loads(reply) == ["1", "2", "3"]
    common = {"timestamp": str(NOW), "attemptsMade": "0", "delay": "0", "priority": "0"}
    assert wire.job("1") == common | {
        "id": "1",
        "name": "sum",
        "data": "[0]",
        "opts": '{"b":2}',
        "maxAttempts": "4",
        "state": "waiting-children",
    }
    assert wire.job("2") == common | {
        "id": "2",
        "name": "left",
        "data": "[1]",
        "opts": '{"a":1}',
        "maxAttempts": "2",
        "state": "waiting",
        "parentId": "1",
        "parentQueue": "q",
    }
    assert wire.members("deps:1") == {wire.key("2"), wire.key("3")}
    assert wire.stream() == [("jobId", "2", "name", "left"), ("jobId", "3", "name", "right")]
    assert wire.events() == [
        event("added", 2, name="left"),
        event("added", 3, name="right"),
        event("added", 1, name="sum"),
    ]
    assert wire.names() == {"id", "job:1", "job:2", "job:3", "deps:1", "stream", "events"}


@pytest.mark.parametrize(
    "values", [{"parentDelay": 500}, {"parentPriority": 3}, {"parentOpts": '{"lifo":true}'}, {"parentDelay": ""}]
)
def test_a_parent_waits_nowhere_whatever_its_options(wire: Wire, values: dict[str, Word]) -> None:
    assert wire.flow_ids(**values) == ["1"]
    job = wire.job("1")
    assert job["state"] == "waiting-children"
    assert job["delay"] == str(values.get("parentDelay") or 0)
    assert job["priority"] == str(values.get("parentPriority", 0))
    assert "lifo" not in job
    assert wire.names() == {"id", "job:1", "events"}


@pytest.mark.parametrize(
    ("child", "state", "place", "holds"),
    [
        ({"delay": 5, "priority": 2}, "delayed", "scheduled", {"2": due(NOW + 5, 2)}),
        ({"priority": 2}, "prioritized", "scheduled", {"2": 2 * SHIFT}),
        ({"opts": '{"lifo":true}'}, "waiting", "lifo", ["2"]),
        ({}, "waiting", "stream", ["2"]),
    ],
)
def test_children_are_placed_as_by_addjob(
    wire: Wire, child: dict[str, Word], state: str, place: str, holds: object
) -> None:
    wire.flow(child)
    assert wire.state("2") == state
    assert wire.place(place) == holds
    assert wire.job("2").get("lifo") == ("1" if place == "lifo" else None)


def test_children_of_other_queues_live_there(wire: Wire) -> None:
    there = wire.sibling("other")
    assert wire.flow_ids({"queue": "other", "name": "far"}, {"name": "near"}) == ["1", "1", "2"]
    assert there.job("1")["parentQueue"] == "q"
    assert there.stream() == [("jobId", "1", "name", "far")]
    assert there.events() == [event("added", 1, name="far")]
    assert wire.members("deps:1") == {there.key("1"), wire.key("2")}


def test_extra_deps_are_waited_for_too(wire: Wire) -> None:
    extra = [wire.key("a"), "glide:{other}:b"]
    assert json.loads(wire.flow({}, extra_deps=extra)) == ["1", "2"]
    assert wire.members("deps:1") == {wire.key("2"), *extra}


def test_options_are_read_from_the_json_and_floored(wire: Wire) -> None:
    ordering = {"key": "k", "concurrency": 3, "rateLimit": {"max": 2, "duration": 700}}
    opts = {"ordering": ordering | {"tokenBucket": {"capacity": 2.0009, "refillRate": 0.5}}, "cost": 1.5, "ttl": 900}
    wire.flow({"opts": json.dumps(opts)}, parentOpts=json.dumps(opts))
    for job_id, seq in (("1", "1"), ("2", "2")):
        job = wire.job(job_id)
        assert (job["groupKey"], job["orderingSeq"], job["cost"]) == ("k", seq, "1500")
        assert job["expireAt"] == str(NOW + 900)
    assert wire.group("k") == {
        "maxConcurrency": "3",
        "active": "0",
        "nextSeq": "1",
        "rateMax": "2",
        "rateDuration": "700",
        "tbCapacity": "2000",
        "tbRefillRate": "500",
        "tbTokens": "2000",
        "tbLastRefill": str(NOW),
        "tbRefillRemainder": "0",
    }


def test_a_group_in_use_keeps_its_state(wire: Wire) -> None:
    wire.active(orderingKey="k", groupConcurrency=5, tbCapacity=5000, tbRefillRate=1, cost=2000)
    opts = json.dumps({"ordering": {"key": "k", "concurrency": 2}})
    wire.flow({"opts": opts}, parentCustomId="p")
    group = wire.group("k")
    assert (group["active"], group["nextSeq"], group["maxConcurrency"]) == ("1", "2", "5")
    wire.flow(parentOpts=opts)
    group = wire.group("k")
    assert (group["active"], group["nextSeq"], group["maxConcurrency"]) == ("1", "2", "2")
    wire.flow({"opts": bucket(9)})
    group = wire.group("k")
    assert (group["tbCapacity"], group["tbTokens"]) == ("9000", "3000")


@pytest.mark.parametrize("opts", ["", "{", "null", "[]", '"x"', '{"ordering":null}', '{"ordering":{"key":null}}'])
def test_options_that_say_nothing_mean_nothing(wire: Wire, opts: str) -> None:
    assert json.loads(wire.flow({"opts": opts}, parentOpts=opts)) == ["1", "2"]
    assert {"groupKey", "cost", "expireAt", "lifo"} & (set(wire.job("1")) | set(wire.job("2"))) == set()
    assert wire.stream_ids() == ["2"]


class TestIds:
    def test_custom_ids_are_kept_and_move_the_counters(self, wire: Wire) -> None:
        assert wire.flow_ids({"id": "8"}, {}, parentCustomId="5") == ["5", "8", "9"]
        assert wire.add() == "10"

    def test_automatic_ids_step_over_taken_ones(self, wire: Wire) -> None:
        for taken in ("1", "2"):
            wire.make_job(taken, state="waiting")
        assert wire.flow_ids({}) == ["3", "4"]

    def test_an_automatic_child_steps_over_its_siblings_custom_id(self, wire: Wire) -> None:
        there: Word = "other"
        assert wire.flow_ids({"queue": there, "id": "1"}, {"queue": there}) == ["1", "1", "2"]

    @pytest.mark.parametrize(
        ("taken", "parent", "children"),
        [
            ("p", "p", []),
            ("c", "", ["c"]),
            (None, "p", ["p"]),
            (None, "", ["c", "c"]),
        ],
        ids=["parent exists", "child exists", "child like its parent", "siblings alike"],
    )
    def test_a_repeated_id_adds_nothing(self, wire: Wire, taken: str | None, parent: str, children: list[str]) -> None:
        wire.add()
        if taken is not None:
            wire.add(customJobId=taken)
        before = wire.dump()
        reply = wire.flow(*({"id": child} for child in children), parentCustomId=parent)
        assert json.loads(reply) == ["duplicate"]
        counter = wire.key("id")
        assert {**wire.dump(), counter: None} == {**before, counter: None}

    def test_the_same_id_in_two_queues_is_two_jobs(self, wire: Wire) -> None:
        ids = wire.flow_ids({"queue": "other", "id": "x"}, {"id": "x"}, parentCustomId="p")
        assert ids == ["p", "x", "x"]

    def test_a_thousand_collisions_exhaust_the_ids(self, wire: Wire) -> None:
        pipeline = wire.client.pipeline(transaction=False)
        for number in range(1, 1102):
            pipeline.hset(wire.key(f"job:{number}"), "state", "waiting")
        pipeline.execute()
        assert json.loads(wire.flow()) == ["ERR:ID_EXHAUSTED"]
        assert wire.names() - wire.names("job:") <= {"id"}
        assert len(wire.names("job:")) == 1101


class TestCost:
    @pytest.mark.parametrize(
        ("parent", "children", "refused"),
        [
            (bucket(2, cost=3), [], True),
            (bucket(2, cost=2), [], False),
            ("{}", [bucket(2, cost=3)], True),
            ("{}", [bucket(2, cost=2)], False),
            ("{}", [bucket(0.5)], True),
            ("{}", [bucket(0.5, key=None)], True),
            ("{}", [bucket(5), bucket(0.5)], True),
        ],
        ids=["parent", "parent fits", "child", "child fits", "default cost", "without a key", "second child"],
    )
    def test_what_costs_more_than_its_bucket_is_refused(
        self, wire: Wire, parent: str, children: list[str], refused: bool
    ) -> None:
        reply = wire.flow(*({"opts": opts} for opts in children), parentOpts=parent)
        assert (reply == TOO_EXPENSIVE) == refused
        assert (wire.stream_ids() == []) == (refused or not children)
