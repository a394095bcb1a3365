"""`glidemq_addJob`: one new job, in the place its options say."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, SHIFT, Wire, Word, due, event

PLAIN = {
    "id": "1",
    "name": "mail",
    "data": '{"to":"ann"}',
    "opts": '{"attempts":3}',
    "timestamp": str(NOW),
    "attemptsMade": "0",
    "delay": "0",
    "priority": "0",
    "maxAttempts": "3",
    "state": "waiting",
}


def test_a_plain_job_is_one_hash_one_stream_entry_one_event(wire: Wire) -> None:
    assert wire.add("mail", data='{"to":"ann"}', opts='{"attempts":3}', maxAttempts=3) == "1"
    assert wire.job("1") == PLAIN
    assert wire.stream() == [("jobId", "1", "name", "mail")]
    assert wire.events() == [event("added", 1, name="mail")]
    assert wire.names() == {"id", "job:1", "stream", "events"}
    assert wire.get("id") == "1"


@pytest.mark.parametrize(
    ("values", "state", "place", "holds"),
    [
        ({}, "waiting", "stream", ["1"]),
        ({"lifo": 1}, "waiting", "lifo", ["1"]),
        ({"delay": 500}, "delayed", "scheduled", {"1": due(NOW + 500)}),
        ({"delay": 500, "priority": 7}, "delayed", "scheduled", {"1": due(NOW + 500, 7)}),
        ({"delay": 500, "lifo": 1}, "delayed", "scheduled", {"1": due(NOW + 500)}),
        ({"priority": 7}, "prioritized", "scheduled", {"1": 7 * SHIFT}),
        ({"priority": 7, "lifo": 1}, "prioritized", "scheduled", {"1": 7 * SHIFT}),
        ({"priority": 2048}, "prioritized", "scheduled", {"1": 2048 * SHIFT}),
    ],
)
def test_placement_is_delay_then_priority_then_lifo_then_stream(
    wire: Wire, values: dict[str, Word], state: str, place: str, holds: object
) -> None:
    wire.add(**values)
    job = wire.job("1")
    assert job["state"] == state
    assert (job["delay"], job["priority"]) == (str(values.get("delay", 0)), str(values.get("priority", 0)))
    assert job.get("lifo") == ("1" if "lifo" in values else None)
    assert wire.place(place) == holds
    assert wire.names() == {"id", "job:1", "events", place}


def test_lifo_jobs_are_pushed_to_the_end_that_is_popped(wire: Wire) -> None:
    for _ in range(3):
        wire.add(lifo=1)
    assert wire.elements("lifo") == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({"cost": 2500}, {"cost": "2500"}),
        ({"cost": 0}, {}),
        ({"ttl": 9000}, {"expireAt": str(NOW + 9000)}),
        ({"ttl": 0}, {}),
        ({"schedulerName": "nightly"}, {"schedulerName": "nightly"}),
        ({"parentId": "p1", "parentQueue": "other"}, {"parentId": "p1", "parentQueue": "other"}),
        ({"parentId": "p1"}, {"parentId": "p1"}),
        ({"lifo": 1}, {"lifo": "1"}),
    ],
)
def test_optional_fields_stand_only_when_given(wire: Wire, values: dict[str, Word], fields: dict[str, str]) -> None:
    job = wire.job(wire.add(**values))
    assert {name: value for name, value in job.items() if name not in PLAIN} == fields


def test_a_job_joins_the_deps_of_the_parent_whose_key_it_names(wire: Wire) -> None:
    deps = wire.key("deps:p1")
    assert wire.call("addJob", deps, parentId="p1", parentQueue="q") == "1"
    assert wire.members("deps:p1") == {wire.key("1")}


@pytest.mark.parametrize("values", [{}, {"parentId": "p1"}, {"parentQueue": "q"}])
def test_deps_stay_untouched_without_both_parent_id_and_queue(wire: Wire, values: dict[str, Word]) -> None:
    wire.call("addJob", wire.key("deps:p1"), **values)
    assert not wire.exists("deps:p1")


def test_a_custom_id_is_taken_once(wire: Wire) -> None:
    assert wire.add(customJobId="order-7") == "order-7"
    assert wire.job("order-7")["id"] == "order-7"
    assert not wire.exists("id")
    with wire.unchanged():
        assert wire.add("again", customJobId="order-7") == "duplicate"


@pytest.mark.parametrize(
    ("before", "custom", "next_auto"),
    [
        (1, "2", "3"),
        (1, "41", "42"),
        (5, "3", "6"),
        (1, "0", "2"),
        (1, "9a", "2"),
        (1, "-9", "2"),
        (1, "9.5", "2"),
        (1, "1e3", "2"),
        (0, "7", "8"),
    ],
)
def test_a_custom_id_of_digits_moves_the_counter_forward_only(
    wire: Wire, before: int, custom: str, next_auto: str
) -> None:
    wire.ask("SET", wire.key("id"), before)
    assert wire.add(customJobId=custom) == custom
    assert wire.add() == next_auto


def test_skip_events_adds_silently(wire: Wire) -> None:
    wire.add(skipEvents=1)
    assert not wire.exists("events")
    assert wire.stream_ids() == ["1"]


@pytest.mark.parametrize("argc", [4, 10, 17])
def test_callers_with_fewer_arguments_get_the_defaults(wire: Wire, argc: int) -> None:
    assert wire.short("addJob", argc, jobName="mail", data='{"to":"ann"}', opts="{}", maxAttempts=3) == "1"
    assert wire.job("1") == PLAIN | {"opts": "{}", "maxAttempts": "0" if argc == 4 else "3"}
    assert wire.stream() == [("jobId", "1", "name", "mail")]
    assert wire.events() == [event("added", 1, name="mail")]


@pytest.mark.parametrize("key", ["glide:{q}:ids", "glide:{q}", ""])
def test_the_first_key_must_end_in_id(wire: Wire, key: str) -> None:
    keys, args = wire.words("addJob")
    wire.refused("addJob", [key, *keys[1:]], args)


def test_the_events_stream_is_trimmed_to_about_a_thousand(wire: Wire) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for number in range(1500):
        pipeline.xadd(wire.key("events"), {"event": "progress", "jobId": number})
    pipeline.execute()
    for _ in range(100):  # one of about a hundred trims
        wire.add()
    assert 1000 <= len(wire.events()) <= 1200
    assert wire.events()[-1] == event("added", 100, name="task")


class TestGroup:
    def test_members_get_sequences_and_the_group_gets_its_settings(self, wire: Wire) -> None:
        for _ in range(2):
            wire.add(orderingKey="k", groupConcurrency=3)
        assert [wire.job(i)["orderingSeq"] for i in ("1", "2")] == ["1", "2"]
        assert wire.job("1")["groupKey"] == "k"
        assert "orderingKey" not in wire.job("1")
        assert wire.hash("ordering") == {"k": "2"}
        assert wire.group("k") == {"maxConcurrency": "3", "nextSeq": "1"}
        assert wire.stream_ids() == ["1", "2"]

    @pytest.mark.parametrize(("asked", "stored"), [(0, "1"), (1, "1"), (4, "4")])
    def test_concurrency_is_at_least_one_and_the_last_word_wins(self, wire: Wire, asked: int, stored: str) -> None:
        wire.add(orderingKey="k", groupConcurrency=9)
        wire.add(orderingKey="k", groupConcurrency=asked)
        assert wire.group("k")["maxConcurrency"] == stored

    def test_the_next_sequence_is_never_set_back(self, wire: Wire) -> None:
        wire.active(orderingKey="k")
        wire.add(orderingKey="k")
        assert wire.group("k")["nextSeq"] == "2"

    def test_a_rate_is_stored_changed_and_dropped_with_its_window(self, wire: Wire) -> None:
        wire.active(orderingKey="k", groupRateMax=2, groupRateDuration=1000)
        group = wire.group("k")
        assert [group[f] for f in ("rateMax", "rateDuration", "rateWindowStart", "rateCount")] == [
            "2",
            "1000",
            str(NOW),
            "1",
        ]
        wire.add(orderingKey="k", groupRateMax=5, groupRateDuration=60)
        assert (wire.group("k")["rateMax"], wire.group("k")["rateDuration"]) == ("5", "60")
        assert wire.group("k")["rateCount"] == "1"
        wire.add(orderingKey="k")
        assert [field for field in wire.group("k") if field.startswith("rate")] == []

    def test_a_bucket_starts_full_keeps_its_tokens_and_is_dropped_whole(self, wire: Wire) -> None:
        def bucket() -> dict[str, str]:
            return {name: value for name, value in wire.group("k").items() if name.startswith("tb")}

        wire.active(orderingKey="k", tbCapacity=5000, tbRefillRate=1000, cost=2000)
        full = {"tbCapacity": "5000", "tbRefillRate": "1000", "tbLastRefill": str(NOW), "tbRefillRemainder": "0"}
        assert bucket() == full | {"tbTokens": "3000"}
        wire.add(orderingKey="k", tbCapacity=9000, tbRefillRate=10, timestamp=NOW + 5)
        assert bucket() == full | {"tbTokens": "3000", "tbCapacity": "9000", "tbRefillRate": "10"}
        wire.add(orderingKey="k")
        assert bucket() == {}

    @pytest.mark.parametrize(
        ("values", "reply"),
        [
            ({"tbCapacity": 500}, "ERR:COST_EXCEEDS_CAPACITY"),
            ({"tbCapacity": 1000}, "1"),
            ({"tbCapacity": 2000, "cost": 2001}, "ERR:COST_EXCEEDS_CAPACITY"),
            ({"tbCapacity": 2000, "cost": 2000}, "1"),
            ({"tbCapacity": 0, "cost": 9999}, "1"),
        ],
    )
    def test_a_job_may_not_cost_more_than_the_bucket_holds(
        self, wire: Wire, values: dict[str, Word], reply: str
    ) -> None:
        assert wire.add(orderingKey="k", tbRefillRate=1, **values) == reply
        assert wire.stream_ids() == ([] if reply.startswith("ERR") else ["1"])
