"""`glidemq_complete`: a job ends well."""

from __future__ import annotations

import pytest

from tests.lua.wire import MINUTE, NOW, WORKERS, Wire, Word, event

LATER = NOW + 1500
BUCKET = f"m:{LATER - LATER % 60_000}"


def test_a_stream_job_leaves_the_stream_and_becomes_completed(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.forget_events()
    assert wire.call("complete", jobId=job_id, entryId=entry_id, returnvalue='{"n":1}', timestamp=LATER) == 1
    job = wire.job(job_id)
    assert (job["state"], job["returnvalue"], job["finishedOn"]) == ("completed", '{"n":1}', str(LATER))
    assert job["processedOn"] == str(NOW)
    assert wire.zset("completed") == {job_id: LATER}
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == [event("completed", job_id, returnvalue='{"n":1}')]
    assert wire.hash("metrics:completed") == {f"{BUCKET}:c": "1", f"{BUCKET}:d": "1500"}
    assert not wire.exists("list-active")


@pytest.mark.parametrize(
    ("fields", "metrics"),
    [
        ({"processedOn": LATER - 20}, {f"{BUCKET}:c": "1", f"{BUCKET}:d": "20"}),
        ({"processedOn": LATER}, {f"{BUCKET}:c": "1"}),
        ({}, {f"{BUCKET}:c": "1"}),
    ],
)
def test_the_duration_is_counted_from_the_activation(
    wire: Wire, fields: dict[str, Word], metrics: dict[str, str]
) -> None:
    wire.make_job("7", state="active", **fields)
    assert wire.short("complete", 5, jobId="7", timestamp=LATER) == 1
    assert wire.hash("metrics:completed") == metrics
    assert wire.zset("completed") == {"7": LATER}


def test_metrics_add_up_by_minute(wire: Wire) -> None:
    for at in (NOW, NOW + 1, MINUTE + 60_000):
        wire.make_job("7", state="active", processedOn=at - 10)
        wire.call("complete", jobId="7", timestamp=at)
    assert wire.hash("metrics:completed") == {
        f"m:{MINUTE}:c": "2",
        f"m:{MINUTE}:d": "20",
        f"m:{MINUTE + 60_000}:c": "1",
        f"m:{MINUTE + 60_000}:d": "10",
    }


def test_the_thousandth_job_of_a_minute_prunes_metrics_older_than_a_day(wire: Wire) -> None:
    day = 86_400_000
    kept, dropped = f"m:{MINUTE - day}:c", f"m:{MINUTE - day - 60_000}:c"
    wire.ask("HSET", wire.key("metrics:completed"), kept, 5, dropped, 5, f"m:{MINUTE}:c", 998)
    for expected in ({kept, dropped}, {kept}):
        wire.make_job("7", state="active")
        wire.call("complete", jobId="7")
        assert set(wire.hash("metrics:completed")) == expected | {f"m:{MINUTE}:c"}


@pytest.mark.parametrize(("before", "after"), [(3, "2"), (1, "0"), (0, "0"), (None, None)])
def test_a_list_job_is_counted_off_and_never_below_zero(wire: Wire, before: int | None, after: str | None) -> None:
    wire.make_job("7", state="active", lifo=1)
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    assert wire.call("complete", jobId="7") == 1
    assert wire.get("list-active") in ({after, None} if before == 0 else {after})


def test_completing_twice_answers_1_both_times(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    assert [wire.call("complete", jobId=job_id, entryId=entry_id) for _ in range(2)] == [1, 1]
    assert wire.zset("completed") == {job_id: NOW}
    assert wire.state(job_id) == "completed"


def test_an_unknown_entry_or_group_is_no_error(wire: Wire) -> None:
    wire.make_job("7", state="active")
    assert wire.call("complete", jobId="7", entryId="1-1", group="unknown") == 1
    assert wire.state("7") == "completed"


@pytest.mark.parametrize(
    ("removal", "kept"),
    [
        ({"removeMode": "0"}, "abc1"),
        ({"removeMode": ""}, "abc1"),
        ({"removeMode": "sometimes", "removeCount": 1}, "abc1"),
        ({"removeMode": "true"}, "abc"),
        ({"removeMode": "count", "removeCount": 2}, "c1"),
        ({"removeMode": "count", "removeCount": 9}, "abc1"),
        ({"removeMode": "count", "removeCount": 0}, "abc1"),
        ({"removeMode": "age_count", "removeAge": 2}, "c1"),
        ({"removeMode": "age_count", "removeCount": 3}, "bc1"),
        ({"removeMode": "age_count", "removeAge": 2, "removeCount": 1}, "1"),
        ({"removeMode": "age_count"}, "abc1"),
    ],
)
def test_retention_drops_old_jobs_and_their_hashes(wire: Wire, removal: dict[str, Word], kept: str) -> None:
    for age, job_id in ((3000, "a"), (2000, "b"), (1000, "c")):
        wire.make_job(job_id, state="completed")
        wire.ask("ZADD", wire.key("completed"), NOW - age, job_id)
    job_id, entry_id = wire.active()
    assert wire.call("complete", jobId=job_id, entryId=entry_id, **removal) == 1
    assert set(wire.zset("completed")) == set(kept)
    assert wire.names("job:") == {f"job:{i}" for i in kept}


def test_retention_removes_at_most_a_thousand_at_once(wire: Wire) -> None:
    wire.ask("ZADD", wire.key("completed"), *(word for i in range(1200) for word in (i, f"old-{i}")))
    job_id, entry_id = wire.active()
    wire.call("complete", jobId=job_id, entryId=entry_id, removeMode="count", removeCount=1)
    assert len(wire.zset("completed")) == 201
    assert min(wire.zset("completed").values()) == 1000


def test_broadcast_only_acknowledges_and_retains(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    assert wire.call("complete", jobId=job_id, entryId=entry_id, removeMode="true", broadcastMode=1) == 1
    assert wire.pending() == []
    assert wire.stream_ids() == [job_id]
    assert wire.state(job_id) == "completed"
    assert wire.zset("completed") == {job_id: NOW}


@pytest.mark.parametrize("key", ["job:8", "job:77", "jobs:7", "7"])
def test_the_job_key_must_be_the_jobs(wire: Wire, key: str) -> None:
    wire.make_job("7", state="active")
    keys, args = wire.words("complete", jobId="7")
    keys[3] = wire.key(key)
    wire.refused("complete", keys, args)


def test_the_groups_slot_goes_to_the_next_parked_job(wire: Wire) -> None:
    first, entry_id = wire.active(orderingKey="k")
    second = wire.add("second", orderingKey="k")
    parked_entry, _ = wire.fetched()
    assert wire.call("moveToActive", jobId=second, entryId=parked_entry) == "GROUP_FULL"
    wire.forget_events()
    wire.call("complete", jobId=first, entryId=entry_id)
    assert wire.group("k")["active"] == "0"
    assert wire.parked("k") == {}
    assert wire.stream() == [("jobId", second, "name", "second")]
    assert wire.state(second) == "waiting"
    assert wire.events() == [event("completed", first, returnvalue="null")]


class TestRelease:
    """Which of the parked jobs may start when a slot is free."""

    def crowd(self, wire: Wire, parked: int = 4, /, **group: Word) -> tuple[str, str]:
        """Park jobs behind an active one, then change the group."""
        first = wire.active(orderingKey="k")
        for _ in range(parked):
            wire.add(orderingKey="k")
            entry_id, job_id = wire.fetched()
            assert isinstance(wire.call("moveToActive", jobId=job_id, entryId=entry_id), str)
        wire.set_fields("group:k", **{"maxConcurrency": 9, **group})
        return first

    def finish_first(self, wire: Wire, parked: int = 4, /, **group: Word) -> None:
        """Let the active job of a crowded group go."""
        first, entry_id = self.crowd(wire, parked, **group)
        wire.call("complete", jobId=first, entryId=entry_id)

    @pytest.mark.parametrize(
        ("group", "ready"),
        [({}, 4), ({"maxConcurrency": 1}, 1), ({"maxConcurrency": 3, "active": 2}, 2), ({"active": 9}, 1)],
    )
    def test_as_many_go_on_as_there_is_room_for(self, wire: Wire, group: dict[str, Word], ready: int) -> None:
        self.finish_first(wire, **group)
        assert wire.stream_ids() == ["2", "3", "4", "5"][:ready]
        assert [wire.state(i) for i in "2345"] == ["waiting"] * ready + ["group-waiting"] * (4 - ready)
        assert wire.group("k")["nextSeq"] == "2"

    def test_none_goes_on_while_the_group_is_full(self, wire: Wire) -> None:
        self.finish_first(wire, maxConcurrency=2, active=3)
        assert wire.group("k")["active"] == "2"
        assert wire.stream() == []

    @pytest.mark.parametrize(
        ("count", "since", "ready", "resume"),
        [(2, 10, 2, None), (4, 10, 0, NOW - 10 + 800), (4, 800, 4, None)],
        ids=["room for two", "full", "over"],
    )
    def test_the_window_limits_how_many(
        self, wire: Wire, count: int, since: int, ready: int, resume: int | None
    ) -> None:
        self.finish_first(wire, rateMax=4, rateDuration=800, rateWindowStart=NOW - since, rateCount=count)
        assert len(wire.stream()) == ready
        assert wire.zset("ratelimited") == ({} if resume is None else {"k": resume})
        assert wire.group("k")["rateCount"] == str(count)

    @pytest.mark.parametrize(("tokens", "resume"), [(400, NOW + 600), (1000, None)])
    def test_the_bucket_must_pay_for_the_first(self, wire: Wire, tokens: int, resume: int | None) -> None:
        self.finish_first(wire, tbCapacity=2000, tbRefillRate=1000, tbTokens=tokens, tbLastRefill=NOW)
        assert (wire.stream_ids()[:1] == ["2"]) == (resume is None)
        assert wire.zset("ratelimited") == ({} if resume is None else {"k": resume})
        assert wire.group("k")["tbTokens"] == str(tokens)

    def test_a_bucket_that_never_fills_lets_nobody_on(self, wire: Wire) -> None:
        self.finish_first(wire, tbCapacity=2000, tbRefillRate=0, tbTokens=400, tbLastRefill=NOW)
        assert wire.stream() == []

    def test_a_removal_does_not_look_at_window_and_bucket(self, wire: Wire) -> None:
        window: dict[str, Word] = {"rateMax": 1, "rateDuration": 800, "rateWindowStart": NOW, "rateCount": 1}
        bucket: dict[str, Word] = {"tbCapacity": 2000, "tbRefillRate": 1, "tbTokens": 0, "tbLastRefill": NOW}
        first, _ = self.crowd(wire, **window, **bucket)
        wire.call("removeJob", jobId=first)
        assert wire.stream_ids()[1:] == ["2", "3", "4", "5"]

    def test_nobody_goes_on_before_a_missing_sequence(self, wire: Wire) -> None:
        self.finish_first(wire, 1)
        wire.make_job("9", state="group-waiting", groupKey="k", orderingSeq=9)
        wire.ask("ZADD", wire.key("groupq:k"), 9, "9")
        wire.call("complete", jobId="2", entryId=wire.take()[1])
        assert wire.parked("k") == {"9": 9}
        assert wire.state("9") == "group-waiting"


class TestParents:
    def test_the_last_child_releases_the_parent_named_by_the_caller(self, wire: Wire) -> None:
        parent, *children = wire.flow_ids({}, {}, parentName="sum")
        wire.forget_events()
        for number, child in enumerate(children, 1):
            job_id, entry_id = wire.take()
            assert job_id == child
            member = wire.key(child)
            wire.call(
                "complete",
                *wire.parent_keys(parent),
                jobId=child,
                entryId=entry_id,
                depsMember=member,
                parentId=parent,
            )
            assert wire.job(parent)["depsCompleted"] == str(number)
            assert wire.job(parent)[f"depdone:{member}"] == "1"
            assert wire.state(parent) == ("waiting" if number == 2 else "waiting-children")
        assert wire.stream() == [("jobId", parent, "name", "sum")]
        assert [e[:4] for e in wire.events()] == [
            event("completed", children[0]),
            event("completed", children[1]),
            event("active", parent),
        ]

    def test_a_child_counts_once_however_often_it_completes(self, wire: Wire) -> None:
        parent, child, _ = wire.flow_ids({}, {})
        for _ in range(3):
            wire.call("complete", *wire.parent_keys(parent), jobId=child, depsMember=wire.key(child), parentId=parent)
        assert wire.job(parent)["depsCompleted"] == "1"
        assert wire.state(parent) == "waiting-children"

    def test_a_parent_in_another_queue_is_reached_by_its_keys(self, wire: Wire) -> None:
        there = wire.sibling("other")
        child = wire.sibling("q")
        parent, job_id = wire.flow_ids({"queue": "other"})
        there.call("complete", *wire.parent_keys(parent), jobId=job_id, depsMember=there.key(job_id), parentId=parent)
        assert child.state(parent) == "waiting"
        assert wire.stream_ids() == [parent]
        assert wire.events()[-1] == event("active", parent)
        assert there.events()[-1] == event("completed", job_id, returnvalue="null")

    @pytest.mark.parametrize("missing", ["keys", "depsMember", "parentId"])
    def test_without_keys_member_and_id_no_parent_is_told(self, wire: Wire, missing: str) -> None:
        parent, child = wire.flow_ids({})
        values = {"depsMember": wire.key(child), "parentId": parent}
        values.pop(missing, None)
        wire.call("complete", *(wire.parent_keys(parent) if missing != "keys" else []), jobId=child, **values)
        assert wire.state(child) == "completed"
        assert wire.state(parent) == "waiting-children"
        assert "depsCompleted" not in wire.job(parent)

    def test_a_parent_that_waits_for_nothing_is_counted_but_not_released(self, wire: Wire) -> None:
        parent, child = wire.flow_ids({})
        wire.make_job(parent, state="active")
        wire.call("complete", *wire.parent_keys(parent), jobId=child, depsMember=wire.key(child), parentId=parent)
        assert wire.job(parent)["depsCompleted"] == "1"
        assert wire.state(parent) == "active"
        assert parent not in wire.stream_ids()

    def test_further_parents_of_the_same_queue_are_told_from_the_set(self, wire: Wire) -> None:
        (first,), (second,) = wire.flow_ids(parentCustomId="p-1"), wire.flow_ids(parentCustomId="p-2")
        child = wire.add()
        for parent in (first, second):
            wire.call("registerParent", childJobId=child, parentId=parent, depsMember=wire.key(child))
        wire.ask("SADD", wire.key(f"parents:{child}"), "glide:{elsewhere}:p-3")
        job_id, entry_id = wire.take()
        wire.call("complete", jobId=job_id, entryId=entry_id)
        assert [wire.state(parent) for parent in (first, second)] == ["waiting", "waiting"]
        assert sorted(wire.stream_ids()) == ["p-1", "p-2"]
        assert wire.sibling("elsewhere").names() == set()


def test_the_event_comes_before_the_parents(wire: Wire) -> None:
    parent, child = wire.flow_ids({})
    wire.call("complete", *wire.parent_keys(parent), jobId=child, depsMember=wire.key(child), parentId=parent)
    assert [e[1] for e in wire.events()] == ["added", "added", "completed", "active"]


def test_the_group_name_is_the_callers(wire: Wire) -> None:
    wire.add()
    entry_id, job_id = wire.fetched(group="subscription")
    wire.open_group(WORKERS)
    wire.call("complete", jobId=job_id, entryId=entry_id, group="subscription")
    assert wire.pending("subscription") == []
    assert wire.stream() == []
