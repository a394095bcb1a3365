"""`glidemq_moveToActive`: hand one fetched job to a worker, if its group lets it."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, as_hash, event

LATER = NOW + 1000
TOO_EXPENSIVE = "cost exceeds token bucket capacity"


def fetch_and_activate(wire: Wire, timestamp: int = NOW) -> object:
    entry_id, job_id = wire.fetched()
    return wire.call("moveToActive", jobId=job_id, entryId=entry_id, timestamp=timestamp)


def is_active(reply: object) -> bool:
    return isinstance(reply, list)


def test_the_reply_is_the_hash_as_it_now_stands(wire: Wire) -> None:
    wire.add("mail", data="[1]", maxAttempts=2)
    entry_id, _ = wire.fetched()
    wire.forget_events()
    reply = wire.call("moveToActive", jobId="1", entryId=entry_id, timestamp=LATER)
    assert as_hash(reply) == wire.hash("job:1")
    job = wire.job("1")
    assert (job["state"], job["processedOn"], job["lastActive"]) == ("active", str(LATER), str(LATER))
    assert (job["name"], job["data"], job["attemptsMade"]) == ("mail", "[1]", "0")
    assert wire.pending() == [entry_id]
    assert wire.stream_ids() == ["1"]
    assert wire.events() == []


@pytest.mark.parametrize("fields", [{"state": "waiting"}, {"name": "n"}, {"processedOn": 1, "lastActive": 2}])
def test_hand_made_hashes_are_activated_too(wire: Wire, fields: dict[str, Word]) -> None:
    wire.make_job("7", **fields)
    reply = as_hash(wire.call("moveToActive", jobId="7", timestamp=1234567890, entryId="1-1", group="any"))
    now = {"state": "active", "processedOn": "1234567890", "lastActive": "1234567890"}
    assert reply == {name: str(value) for name, value in fields.items()} | now
    assert wire.job("7") == reply


@pytest.mark.parametrize("keys", [1, 2])
def test_the_stream_key_may_be_missing(wire: Wire, keys: int) -> None:
    wire.make_job("7", state="waiting")
    all_keys, args = wire.words("moveToActive", jobId="7")
    assert is_active(wire.fcall("moveToActive", all_keys[:keys], args[:4]))


@pytest.mark.parametrize(
    ("job", "reply"),
    [
        (None, ""),
        ({"state": "waiting", "revoked": 1}, "REVOKED"),
        ({"state": "waiting", "revoked": 1, "expireAt": NOW - 1}, "REVOKED"),
    ],
)
def test_missing_and_revoked_jobs_change_nothing(wire: Wire, job: dict[str, Word] | None, reply: str) -> None:
    wire.ask("XADD", wire.key("stream"), "*", "jobId", "7")
    entry_id, _ = wire.fetched()
    if job is not None:
        wire.make_job("7", **job)
    with wire.unchanged():
        assert wire.call("moveToActive", jobId="7", entryId=entry_id) == reply
    assert wire.pending() == [entry_id]


@pytest.mark.parametrize(("at", "expired"), [(NOW + 500, False), (NOW + 501, True)])
def test_a_job_is_valid_until_the_end_of_its_last_millisecond(wire: Wire, at: int, expired: bool) -> None:
    wire.add(ttl=500)
    wire.forget_events()
    reply = fetch_and_activate(wire, at)
    assert (reply == "EXPIRED") == expired
    if expired:
        job = wire.job("1")
        assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", "expired", str(at))
        assert wire.zset("failed") == {"1": at}
        assert wire.stream() == []
        assert wire.pending() == []
        assert wire.events() == [event("expired", 1)]
        assert wire.hash("metrics:failed") == {f"m:{at - at % 60_000}:c": "1"}


def test_an_already_failed_job_expires_without_a_second_record(wire: Wire) -> None:
    wire.make_job("7", state="failed", failedReason="boom", expireAt=NOW - 1)
    with wire.unchanged():
        assert wire.call("moveToActive", jobId="7") == "EXPIRED"


class TestOrder:
    def test_members_activate_one_after_the_other(self, wire: Wire) -> None:
        for _ in range(2):
            wire.add(orderingKey="k", groupConcurrency=2)
        assert [is_active(fetch_and_activate(wire)) for _ in range(2)] == [True, True]
        assert wire.group("k") == {"maxConcurrency": "2", "nextSeq": "3", "active": "2"}

    def test_a_later_member_waits_for_an_earlier_one_to_start(self, wire: Wire) -> None:
        for _ in range(2):
            wire.add(orderingKey="k", groupConcurrency=2)
        first, _ = wire.fetched()
        second, _ = wire.fetched()
        assert wire.call("moveToActive", jobId="2", entryId=second) == "GROUP_ORDERED"
        assert wire.state("2") == "group-waiting"
        assert wire.parked("k") == {"2": 2}
        assert wire.pending() == [first]
        assert wire.stream_ids() == ["1"]
        assert wire.group("k")["nextSeq"] == "1"
        assert not wire.exists("ratelimited")
        assert wire.events()[2:] == []

    @pytest.mark.parametrize("skipped", [1, 3, 128])
    def test_skipped_sequences_are_stepped_over_and_forgotten(self, wire: Wire, skipped: int) -> None:
        wire.ask("HSET", wire.key("ordering"), "k", skipped)
        markers = [word for number in range(1, skipped + 1) for word in (f"skip:{number}", 1)]
        wire.ask("HSET", wire.key("group:k"), "nextSeq", 1, *markers)
        wire.add(orderingKey="k")
        assert is_active(fetch_and_activate(wire))
        assert wire.group("k") == {"maxConcurrency": "1", "nextSeq": str(skipped + 2), "active": "1"}

    def test_a_returning_member_keeps_its_slot_and_passes(self, wire: Wire) -> None:
        job_id, entry_id = wire.active(orderingKey="k")
        wire.add(orderingKey="k")
        wire.call("moveActiveToDelayed", jobId=job_id, entryId=entry_id, delayedUntil=LATER)
        assert fetch_and_activate(wire) == "GROUP_FULL"
        wire.call("promote", now=LATER)
        assert is_active(fetch_and_activate(wire, LATER))
        assert wire.state(job_id) == "active"
        assert wire.group("k") == {"maxConcurrency": "1", "nextSeq": "2", "active": "1"}
        assert wire.parked("k") == {"2": 2}


class TestConcurrency:
    @pytest.mark.parametrize(("limit", "room"), [(1, 1), (2, 2), (3, 3)])
    def test_a_full_group_parks_the_job_by_its_sequence(self, wire: Wire, limit: int, room: int) -> None:
        for _ in range(4):
            wire.add(orderingKey="k", groupConcurrency=limit)
        replies = [fetch_and_activate(wire) for _ in range(room + 1)]
        assert [is_active(reply) for reply in replies] == [True] * room + [False]
        assert replies[-1] == "GROUP_FULL"
        assert wire.parked("k") == {str(room + 1): room + 1}
        assert wire.state(str(room + 1)) == "group-waiting"
        assert wire.group("k")["active"] == str(limit)
        assert len(wire.pending()) == room

    @pytest.mark.parametrize(
        ("job_id", "fields", "score"),
        [("12", {}, 12), ("x", {"timestamp": 34}, 34), ("x", {}, 0), ("12", {"orderingSeq": 5}, 5)],
    )
    def test_parking_falls_back_to_id_then_time(
        self, wire: Wire, job_id: str, fields: dict[str, Word], score: int
    ) -> None:
        wire.set_fields("group:k", maxConcurrency=1, active=1)
        wire.make_job(job_id, state="waiting", groupKey="k", **fields)
        assert wire.call("moveToActive", jobId=job_id) == "GROUP_FULL"
        assert wire.parked("k") == {job_id: score}

    def test_an_unsequenced_member_is_gated_and_counted(self, wire: Wire) -> None:
        wire.set_fields("group:k", maxConcurrency=2, active=1)
        wire.make_job("7", state="waiting", groupKey="k")
        assert is_active(wire.call("moveToActive", jobId="7"))
        assert wire.group("k") == {"maxConcurrency": "2", "active": "2"}

    @pytest.mark.parametrize("broadcast", [0, 1])
    def test_a_blocked_entry_is_acknowledged_and_deleted_unless_broadcast(self, wire: Wire, broadcast: int) -> None:
        wire.active(orderingKey="k")
        wire.add(orderingKey="k")
        entry_id, job_id = wire.fetched()
        reply = wire.call("moveToActive", jobId=job_id, entryId=entry_id, broadcastMode=broadcast)
        assert reply == "GROUP_FULL"
        assert entry_id not in wire.pending()
        assert (job_id in wire.stream_ids()) == bool(broadcast)


class TestTokens:
    def test_tokens_pay_until_they_run_out(self, wire: Wire) -> None:
        for _ in range(3):
            wire.add(orderingKey="k", groupConcurrency=9, tbCapacity=5000, tbRefillRate=500, cost=2000)
        assert [is_active(fetch_and_activate(wire)) for _ in range(2)] == [True, True]
        assert wire.group("k")["tbTokens"] == "1000"
        assert fetch_and_activate(wire) == "GROUP_TOKEN_LIMITED"
        assert wire.zset("ratelimited") == {"k": NOW + 2000}
        assert wire.parked("k") == {"3": 3}
        assert wire.state("3") == "group-waiting"
        assert wire.group("k")["active"] == "2"
        assert len(wire.stream_ids()) == 2

    @pytest.mark.parametrize(
        ("elapsed", "rate", "remainder", "tokens", "carry"),
        [(10, 100, 0, 1, 0), (15, 100, 0, 1, 500), (15, 100, 500, 2, 0), (7, 333, 999, 3, 330), (0, 100, 7, 0, 7)],
    )
    def test_refill_keeps_the_remainder(
        self, wire: Wire, elapsed: int, rate: int, remainder: int, tokens: int, carry: int
    ) -> None:
        fields = {"tbCapacity": 9000, "tbRefillRate": rate, "tbTokens": 5000, "tbLastRefill": NOW}
        wire.set_fields("group:k", **fields, tbRefillRemainder=remainder)
        wire.make_job("7", state="waiting", groupKey="k", cost=1000)
        assert is_active(wire.call("moveToActive", jobId="7", timestamp=NOW + elapsed))
        group = wire.group("k")
        assert (group["tbTokens"], group["tbRefillRemainder"]) == (str(4000 + tokens), str(carry))
        assert group["tbLastRefill"] == str(NOW + elapsed)

    def test_refill_stops_at_the_capacity(self, wire: Wire) -> None:
        wire.active(orderingKey="k", groupConcurrency=9, tbCapacity=3000, tbRefillRate=1000, cost=2500)
        wire.add(orderingKey="k", groupConcurrency=9, tbCapacity=3000, tbRefillRate=1000, cost=500)
        assert is_active(fetch_and_activate(wire, NOW + 10**9))
        assert wire.group("k")["tbTokens"] == "2500"

    def test_another_attempt_pays_from_what_the_bucket_holds_by_then(self, wire: Wire) -> None:
        job_id, entry_id = wire.active(orderingKey="k", tbCapacity=3000, tbRefillRate=1000)
        wire.call("deferActive", jobId=job_id, entryId=entry_id)
        wire.take(timestamp=NOW + 10**6)  # the bucket has long been full
        group = wire.group("k")
        assert (group["tbTokens"], group["tbLastRefill"]) == ("2000", str(NOW + 10**6))

    def test_a_job_without_a_cost_costs_one_token(self, wire: Wire) -> None:
        wire.active(orderingKey="k", tbCapacity=1500, tbRefillRate=1)
        assert wire.group("k")["tbTokens"] == "500"

    @pytest.mark.parametrize(("rate", "wait"), [(1000, 500), (3, 166_667), (0, 500_000), (-5, 500_000)])
    def test_the_wait_is_the_missing_tokens_over_the_rate(self, wire: Wire, rate: int, wait: int) -> None:
        wire.set_fields("group:k", tbCapacity=1000, tbRefillRate=rate, tbTokens=500)
        wire.make_job("7", state="waiting", groupKey="k")
        assert wire.call("moveToActive", jobId="7") == "GROUP_TOKEN_LIMITED"
        assert wire.zset("ratelimited") == {"k": NOW + wait}

    def test_a_job_the_bucket_can_never_pay_fails(self, wire: Wire) -> None:
        wire.add(orderingKey="k", tbCapacity=5000, tbRefillRate=1, cost=4000)
        wire.set_fields("group:k", tbCapacity=3000)
        wire.forget_events()
        assert fetch_and_activate(wire, LATER) == "ERR:COST_EXCEEDS_CAPACITY"
        job = wire.job("1")
        assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", TOO_EXPENSIVE, str(LATER))
        assert wire.zset("failed") == {"1": LATER}
        assert wire.events() == [event("failed", 1, failedReason=TOO_EXPENSIVE)]
        assert wire.stream() == []
        assert wire.pending() == []


class TestWindow:
    def test_a_full_window_parks_until_it_ends(self, wire: Wire) -> None:
        for _ in range(3):
            wire.add(orderingKey="k", groupConcurrency=9, groupRateMax=2, groupRateDuration=800)
        assert is_active(fetch_and_activate(wire))
        assert is_active(fetch_and_activate(wire, NOW + 100))
        assert fetch_and_activate(wire, NOW + 799) == "GROUP_RATE_LIMITED"
        group = wire.group("k")
        assert (group["rateWindowStart"], group["rateCount"], group["active"]) == (str(NOW), "2", "2")
        assert wire.zset("ratelimited") == {"k": NOW + 800}
        assert wire.parked("k") == {"3": 3}
        assert wire.state("3") == "group-waiting"

    def test_the_window_that_is_over_starts_anew(self, wire: Wire) -> None:
        wire.active(orderingKey="k", groupConcurrency=9, groupRateMax=1, groupRateDuration=800)
        wire.add(orderingKey="k", groupConcurrency=9, groupRateMax=1, groupRateDuration=800)
        assert is_active(fetch_and_activate(wire, NOW + 800))
        group = wire.group("k")
        assert (group["rateWindowStart"], group["rateCount"]) == (str(NOW + 800), "1")

    @pytest.mark.parametrize(
        ("refill", "resume"), [(1000, NOW + 800), (1, NOW + 1_000_000)], ids=["window later", "tokens later"]
    )
    def test_both_gates_closed_waits_for_the_later_and_names_the_tokens(
        self, wire: Wire, refill: int, resume: int
    ) -> None:
        limits: dict[str, Word] = {"groupRateMax": 1, "groupRateDuration": 800, "groupConcurrency": 9}
        limits |= {"tbCapacity": 1000, "tbRefillRate": refill}
        wire.active(orderingKey="k", **limits)
        wire.add(orderingKey="k", **limits)
        wire.ask("HSET", wire.key("group:k"), "tbTokens", 0 if refill == 1 else 900)
        assert fetch_and_activate(wire) == "GROUP_TOKEN_LIMITED"
        assert wire.zset("ratelimited") == {"k": resume}


def test_a_priority_job_is_activated_without_an_entry(wire: Wire) -> None:
    wire.add(priority=3)
    wire.call("promote")
    assert wire.call("popLists") == ["1"]
    reply = as_hash(wire.call("moveToActive", jobId="1"))
    assert (reply["state"], reply["priority"]) == ("active", "3")
    assert wire.zset("scheduled") == {}
