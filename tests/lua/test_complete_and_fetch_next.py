"""`glidemq_completeAndFetchNext`: end one job and start the next in one call."""

from __future__ import annotations

import pytest

from tests.lua.wire import MINUTE, NOW, Wire, Word, as_hash, event

LATER = NOW + 1500


def next_job(reply: object) -> tuple[str, str, dict[str, str]]:
    """Id, entry id and hash of the job that was activated."""
    assert isinstance(reply, list), reply
    assert reply[0] == "NEXT_HASH", reply
    return reply[2], reply[3], as_hash(reply[4:])


class TestComplete:
    """What happens to the job that ends."""

    def test_it_is_completed_as_by_complete(self, wire: Wire) -> None:
        job_id, entry_id = wire.active()
        wire.forget_events()
        reply = wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, returnvalue="[1]", timestamp=LATER)
        assert reply == ["NEXT_NONE", job_id]
        job = wire.job(job_id)
        assert (job["state"], job["returnvalue"], job["finishedOn"]) == ("completed", "[1]", str(LATER))
        assert wire.zset("completed") == {job_id: LATER}
        assert wire.stream() == []
        assert wire.pending() == []
        assert wire.events() == [event("completed", job_id, returnvalue="[1]")]
        minute = LATER - LATER % 60_000
        assert wire.hash("metrics:completed") == {f"m:{minute}:c": "1", f"m:{minute}:d": "1500"}

    @pytest.mark.parametrize("argc", [6, 11, 12])
    def test_callers_may_stop_early(self, wire: Wire, argc: int) -> None:
        wire.make_job("7", state="active", lifo=1, processedOn=NOW)
        wire.ask("SET", wire.key("list-active"), 1)
        wire.open_group()
        assert wire.short("completeAndFetchNext", argc, jobId="7") == ["NEXT_NONE", "7"]
        assert wire.zset("completed") == {"7": NOW}
        assert wire.get("list-active") == "0"

    @pytest.mark.parametrize(("before", "after"), [(3, {"2"}), (0, {"0", None}), (None, {None})])
    def test_a_list_job_is_counted_off_and_never_below_zero(
        self, wire: Wire, before: int | None, after: set[str | None]
    ) -> None:
        wire.open_group()
        wire.make_job("7", state="active", lifo=1)
        if before is not None:
            wire.ask("SET", wire.key("list-active"), before)
        wire.call("completeAndFetchNext", jobId="7")
        assert wire.get("list-active") in after

    @pytest.mark.parametrize(
        ("values", "events", "metrics"),
        [
            ({}, [event("completed", "1", returnvalue="null")], {f"m:{MINUTE}:c": "1"}),
            ({"skipEvents": 1}, [], {f"m:{MINUTE}:c": "1"}),
            ({"skipMetrics": 1}, [event("completed", "1", returnvalue="null")], {}),
        ],
    )
    def test_events_and_metrics_can_be_left_out(
        self, wire: Wire, values: dict[str, Word], events: list[tuple[str, ...]], metrics: dict[str, str]
    ) -> None:
        job_id, entry_id = wire.active()
        wire.forget_events()
        wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, **values)
        assert wire.events() == events
        assert wire.hash("metrics:completed") == metrics

    def test_the_caller_may_know_when_the_job_started(self, wire: Wire) -> None:
        job_id, entry_id = wire.active()
        wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, processedOnHint=NOW - 70)
        assert wire.hash("metrics:completed")[f"m:{MINUTE}:d"] == "70"

    @pytest.mark.parametrize(("hint", "active"), [("", "0"), ("k", "0"), ("__", "1")])
    def test_the_group_hint_names_or_skips_the_group(self, wire: Wire, hint: str, active: str) -> None:
        job_id, entry_id = wire.active(orderingKey="k")
        wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, groupKeyHint=hint)
        assert wire.group("k")["active"] == active

    @pytest.mark.parametrize(
        ("removal", "kept"), [({"removeMode": "true"}, "a"), ({"removeMode": "count", "removeCount": 1}, "1")]
    )
    def test_retention(self, wire: Wire, removal: dict[str, Word], kept: str) -> None:
        wire.make_job("a", state="completed")
        wire.ask("ZADD", wire.key("completed"), 1, "a")
        job_id, entry_id = wire.active()
        assert wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, **removal) == ["NEXT_NONE", job_id]
        assert set(wire.zset("completed")) == {kept}
        assert wire.names("job:") == {f"job:{kept}"}

    def test_the_released_parent_is_the_next_job(self, wire: Wire) -> None:
        parent, child = wire.flow_ids({})
        _, entry_id = wire.take()
        wire.forget_events()
        reply = wire.call(
            "completeAndFetchNext",
            *wire.parent_keys(parent),
            jobId=child,
            entryId=entry_id,
            depsMember=wire.key(child),
            parentId=parent,
        )
        assert next_job(reply)[0] == parent
        assert wire.job(parent)["depsCompleted"] == "1"
        assert wire.state(parent) == "active"
        assert [e[:4] for e in wire.events()] == [event("completed", child), event("active", parent)]

    @pytest.mark.parametrize("has_parents", [0, 1])
    def test_parents_of_the_set_are_told_whatever_the_caller_believes(self, wire: Wire, has_parents: int) -> None:
        (parent,) = wire.flow_ids()
        child = wire.add()
        wire.call("registerParent", childJobId=child, parentId=parent, depsMember=wire.key(child))
        _, entry_id = wire.take()
        reply = wire.call("completeAndFetchNext", jobId=child, entryId=entry_id, hasParents=has_parents)
        assert next_job(reply)[0] == parent

    def test_broadcast_acknowledges_and_fetches_nothing(self, wire: Wire) -> None:
        job_id, entry_id = wire.active()
        wire.add()
        reply = wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, broadcastMode=1, removeMode="true")
        assert reply == ["NEXT_NONE", job_id]
        assert wire.stream_ids() == [job_id, "2"]
        assert wire.pending() == []
        assert wire.state(job_id) == "completed"
        assert wire.state("2") == "waiting"


@pytest.fixture
def held(wire: Wire) -> dict[str, Word]:
    """The arguments that end a job that holds nothing but itself."""
    job_id, entry_id = wire.active(customJobId="held")
    wire.forget_events()
    return {"jobId": job_id, "entryId": entry_id}


class TestNextFromStream:
    def test_the_reply_is_the_activated_hash_with_its_entry(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add("mail", data="[2]")
        reply = wire.call("completeAndFetchNext", timestamp=LATER, **held)
        assert reply[:3] == ["NEXT_HASH", "held", "1"]
        job_id, entry_id, job = next_job(reply)
        assert wire.pending() == [entry_id]
        assert job == wire.hash(f"job:{job_id}")
        assert (job["state"], job["processedOn"], job["lastActive"]) == ("active", str(LATER), str(LATER))
        assert (job["name"], job["data"]) == ("mail", "[2]")
        assert wire.list_active() == 0
        assert [e[1] for e in wire.events()] == ["added", "completed"]

    def test_the_entry_belongs_to_the_named_consumer(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add()
        wire.call("completeAndFetchNext", consumer="w-9", **held)
        assert wire.ask("XPENDING", wire.key("stream"), "workers")["consumers"] == [{"name": "w-9", "pending": 1}]

    def test_a_revoked_job_is_handed_over_to_be_failed(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add()
        wire.make_job("1", revoked=1)
        reply = wire.call("completeAndFetchNext", **held)
        assert reply == ["NEXT_REVOKED", "held", "1", wire.pending()[0]]
        assert wire.state("1") == "waiting"

    def test_two_expired_entries_are_failed_on_the_way(self, wire: Wire, held: dict[str, Word]) -> None:
        for ttl in (10, 10, 0):
            wire.add(ttl=ttl)
        reply = wire.call("completeAndFetchNext", timestamp=LATER, **held)
        assert next_job(reply)[0] == "3"
        assert [wire.state(i) for i in ("1", "2", "3")] == ["failed", "failed", "active"]
        assert {i: wire.job(i)["failedReason"] for i in ("1", "2")} == {"1": "expired", "2": "expired"}
        assert wire.stream_ids() == ["3"]
        assert wire.zset("failed") == {"1": LATER, "2": LATER}
        assert wire.events()[-2:] == [event("expired", 1), event("expired", 2)]

    def test_after_three_expired_entries_it_stops(self, wire: Wire, held: dict[str, Word]) -> None:
        for ttl in (10, 10, 10, 0):
            wire.add(ttl=ttl)
        assert wire.call("completeAndFetchNext", timestamp=LATER, **held) == ["NEXT_NONE", "held"]
        assert wire.stream_ids() == ["4"]
        assert wire.state("4") == "waiting"
        assert wire.pending() == []

    def test_entries_of_others_are_not_taken(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add()
        wire.fetched(consumer="w-2")
        assert wire.call("completeAndFetchNext", **held) == ["NEXT_NONE", "held"]


class TestNextFromLists:
    @pytest.mark.parametrize("values", [{"lifo": 1}, {"priority": 2}])
    def test_a_list_job_has_no_entry_is_counted_and_announced(
        self, wire: Wire, held: dict[str, Word], values: dict[str, Word]
    ) -> None:
        wire.add(**values)
        wire.call("promote")
        wire.forget_events()
        job_id, entry_id, job = next_job(wire.call("completeAndFetchNext", timestamp=LATER, **held))
        assert (job_id, entry_id) == ("1", "")
        assert job == wire.job("1")
        assert (job["state"], job["processedOn"], job["lastActive"]) == ("active", str(LATER), str(LATER))
        assert wire.get("list-active") == "1"
        assert wire.elements("lifo") + wire.elements("priority") == []
        assert wire.events() == [event("completed", "held", returnvalue="null"), event("active", 1)]

    def test_skip_events_covers_the_next_job(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add(lifo=1, skipEvents=1)
        wire.call("completeAndFetchNext", skipEvents=1, **held)
        assert wire.state("1") == "active"
        assert wire.events() == []

    def test_priority_comes_before_lifo_before_stream(self, wire: Wire, held: dict[str, Word]) -> None:
        for values in ({}, {"lifo": 1}, {"priority": 1}, {"lifo": 1}):
            wire.add(**values)
        wire.call("promote")
        order, entries = [], []
        current: dict[str, Word] = held
        for _ in range(4):
            job_id, entry_id, _ = next_job(wire.call("completeAndFetchNext", **current))
            current = {"jobId": job_id, "entryId": entry_id}
            order.append(job_id)
            entries.append(bool(entry_id))
        assert order == ["3", "4", "2", "1"]
        assert entries == [False, False, False, True]
        assert wire.get("list-active") == "0"

    @pytest.mark.parametrize("values", [{"lifo": 1}, {"priority": 2}])
    @pytest.mark.parametrize("broken", ["missing", "revoked", "expired"])
    def test_unfit_jobs_are_passed_over(
        self, wire: Wire, held: dict[str, Word], values: dict[str, Word], broken: str
    ) -> None:
        good = wire.add(**values)
        bad = wire.add(**values)
        wire.call("promote")
        name = "lifo" if "lifo" in values else "priority"
        wire.ask("DEL", wire.key(name))
        wire.ask("RPUSH", wire.key(name), good, bad)
        if broken == "missing":
            wire.ask("DEL", wire.key(f"job:{bad}"))
        else:
            wire.make_job(bad, **{"revoked": 1} if broken == "revoked" else {"expireAt": NOW - 1})
        assert next_job(wire.call("completeAndFetchNext", **held))[:2] == (good, "")
        assert wire.elements(name) == []
        assert wire.get("list-active") == "1"
        if broken == "expired":
            assert (wire.state(bad), wire.job(bad)["failedReason"]) == ("failed", "expired")
            assert wire.zset("failed") == {bad: NOW}
        if broken == "missing":
            assert not wire.exists(f"job:{bad}")

    def test_a_grouped_job_takes_its_slot(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add(priority=1, orderingKey="k")
        wire.call("promote")
        assert next_job(wire.call("completeAndFetchNext", **held))[0] == "1"
        assert wire.group("k") == {"maxConcurrency": "1", "nextSeq": "2", "active": "1"}

    @pytest.mark.parametrize(("seq", "group"), [(5, {"nextSeq": 4}), (1, {"active": 1})], ids=["order", "concurrency"])
    def test_a_blocked_grouped_job_is_parked_and_the_next_taken(
        self, wire: Wire, held: dict[str, Word], seq: int, group: dict[str, Word]
    ) -> None:
        wire.add(priority=1, orderingKey="k", groupConcurrency=1)
        wire.add(priority=2)
        wire.call("promote")
        wire.make_job("1", orderingSeq=seq)
        wire.set_fields("group:k", **group)
        assert next_job(wire.call("completeAndFetchNext", **held))[0] == "2"
        assert wire.state("1") == "group-waiting"
        assert wire.parked("k") == {"1": seq}
        assert wire.get("list-active") == "1"


class TestGates:
    """A stream job must pass the gates of its group; a blocked one is parked and nothing is handed out."""

    @pytest.mark.parametrize(
        ("seq", "group", "resume"),
        [
            (3, {"nextSeq": 2}, None),
            (1, {"active": 9}, None),
            (1, {"tbCapacity": 2000, "tbRefillRate": 1000, "tbTokens": 400}, LATER + 600),
            (1, {"rateMax": 1, "rateDuration": 800, "rateWindowStart": LATER - 1, "rateCount": 1}, LATER + 799),
        ],
        ids=["order", "concurrency", "tokens", "window"],
    )
    def test_a_blocked_job_is_parked(
        self, wire: Wire, held: dict[str, Word], seq: int, group: dict[str, Word], resume: int | None
    ) -> None:
        wire.add(orderingKey="k", groupConcurrency=9)
        wire.make_job("1", orderingSeq=seq)
        wire.set_fields("group:k", **group)
        assert wire.call("completeAndFetchNext", timestamp=LATER, **held) == ["NEXT_NONE", "held"]
        assert wire.state("1") == "group-waiting"
        assert wire.parked("k") == {"1": seq}
        assert wire.stream() == []
        assert wire.pending() == []
        assert wire.zset("ratelimited") == ({} if resume is None else {"k": resume})
        assert wire.group("k").get("active", "0") == str(group.get("active", 0))

    def test_a_passing_job_pays_and_is_counted(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add(orderingKey="k", tbCapacity=5000, tbRefillRate=1, cost=1500, groupRateMax=3, groupRateDuration=800)
        assert next_job(wire.call("completeAndFetchNext", **held))[0] == "1"
        group = wire.group("k")
        assert (group["active"], group["nextSeq"], group["tbTokens"]) == ("1", "2", "3500")
        assert (group["rateWindowStart"], group["rateCount"]) == (str(NOW), "1")

    def test_a_job_the_bucket_can_never_pay_fails(self, wire: Wire, held: dict[str, Word]) -> None:
        wire.add(orderingKey="k", tbCapacity=5000, tbRefillRate=1, cost=4000)
        wire.ask("HSET", wire.key("group:k"), "tbCapacity", 3000)
        assert wire.call("completeAndFetchNext", **held) == ["NEXT_NONE", "held"]
        assert (wire.state("1"), wire.job("1")["failedReason"]) == ("failed", "cost exceeds token bucket capacity")
        assert wire.zset("failed") == {"1": NOW}
        assert wire.stream() == []

    def test_the_slot_of_the_completed_job_is_free_for_the_next(self, wire: Wire) -> None:
        first, entry_id = wire.active(orderingKey="k")
        second = wire.add(orderingKey="k")
        reply = wire.call("completeAndFetchNext", jobId=first, entryId=entry_id)
        assert next_job(reply)[0] == second
        assert wire.group("k") == {"maxConcurrency": "1", "nextSeq": "3", "active": "1"}

    def test_a_job_parked_behind_the_completed_one_is_next(self, wire: Wire) -> None:
        first, entry_id = wire.active(orderingKey="k")
        second = wire.add(orderingKey="k")
        wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0])
        reply = wire.call("completeAndFetchNext", jobId=first, entryId=entry_id)
        assert next_job(reply)[0] == second
        assert wire.parked("k") == {}
