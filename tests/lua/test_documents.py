"""What the public documents of glide-mq state and no other test shows: `tests/seeds` names these tests."""

from __future__ import annotations

import json

import pytest

from tests.lua.signatures import SIGNATURES
from tests.lua.wire import NOW, SHIFT, Wire, Word


def test_each_key_of_the_wire_document_has_its_type(wire: Wire) -> None:
    wire.call("pause")
    done, entry = wire.active()
    wire.call("complete", jobId=done, entryId=entry)
    lost, entry = wire.active()
    wire.call("fail", jobId=lost, entryId=entry)
    wire.add(delay=5)
    wire.call("dedup", dedupId="once")
    wire.ask("RPUSH", wire.key("log:1"), "a line")
    wire.flow_ids({"name": "child"})
    types = {
        "id": "string",
        "stream": "stream",
        "scheduled": "zset",
        "completed": "zset",
        "failed": "zset",
        "events": "stream",
        "meta": "hash",
        "dedup": "hash",
        "job:1": "hash",
        "log:1": "list",
    }
    assert {name: wire.ask("TYPE", wire.key(name)) for name in types} == types
    (deps,) = wire.names("deps:")
    assert wire.ask("TYPE", wire.key(deps)) == "set"
    assert wire.hash("dedup") == {"once": f"4:{NOW}"}
    other = wire.sibling("groups")
    for _ in range(2):
        other.add(orderingKey="k", groupConcurrency=9, groupRateMax=1, groupRateDuration=800)
    other.take()
    entry, job = other.fetched()
    assert other.call("moveToActive", jobId=job, entryId=entry) == "GROUP_RATE_LIMITED"
    types = {"ordering": "hash", "group:k": "hash", "groupq:k": "zset", "ratelimited": "zset"}
    assert {name: other.ask("TYPE", other.key(name)) for name in types} == types
    assert (other.hash("ordering"), other.zset("ratelimited")) == ({"k": "2"}, {"k": NOW + 800})


RATE: dict[str, Word] = {"orderingKey": "k", "groupRateMax": 2, "groupRateDuration": 800}
BUCKET: dict[str, Word] = {"orderingKey": "k", "tbCapacity": 5000, "tbRefillRate": 2500}

Fields = dict[str, str | None]

ARGUMENTS: dict[str, tuple[dict[str, Word], Fields, Word, Fields]] = {
    "jobName": ({"jobName": "send-email"}, {"name": "send-email"}, "", {"name": ""}),
    "jobData": ({"data": '{"to":"ada"}'}, {"data": '{"to":"ada"}'}, "", {"data": ""}),
    "jobOpts": ({"opts": '{"attempts":2}'}, {"opts": '{"attempts":2}'}, "{}", {"opts": "{}"}),
    "timestamp": ({"timestamp": 1_709_750_400_000}, {"timestamp": "1709750400000"}, 1, {"timestamp": "1"}),
    "delay": ({"delay": 500}, {"delay": "500", "state": "delayed"}, 0, {"delay": "0", "state": "waiting"}),
    "priority": ({"priority": 3}, {"priority": "3", "state": "prioritized"}, 0, {"priority": "0", "state": "waiting"}),
    "parentId": ({"parentId": "7"}, {"parentId": "7"}, "", {"parentId": None}),
    "maxAttempts": ({"maxAttempts": 4}, {"maxAttempts": "4"}, 0, {"maxAttempts": "0"}),
    "orderingKey": (
        {"orderingKey": "k"},
        {"groupKey": "k", "orderingSeq": "1", "orderingKey": None, "group maxConcurrency": "1"},
        "",
        {"groupKey": None, "orderingSeq": None, "orderingKey": None, "group maxConcurrency": None},
    ),
    "groupConcurrency": (
        {"orderingKey": "k", "groupConcurrency": 3},
        {"group maxConcurrency": "3"},
        0,
        {"group maxConcurrency": "1"},
    ),
    "groupRateMax": (RATE, {"group rateMax": "2", "group rateDuration": "800"}, 0, {"group rateMax": None}),
    "groupRateDuration": (
        RATE | {"groupRateDuration": 900},
        {"group rateDuration": "900"},
        0,
        {"group rateDuration": None},
    ),
    "tbCapacity": (
        BUCKET,
        {"group tbCapacity": "5000", "group tbTokens": "5000"},
        0,
        {"group tbCapacity": None, "group tbTokens": None},
    ),
    "tbRefillRate": (BUCKET, {"group tbRefillRate": "2500"}, 0, {"group tbRefillRate": None}),
    "jobCost": (BUCKET | {"cost": 2000}, {"cost": "2000"}, 0, {"cost": None}),
    "ttl": ({"ttl": 60_000}, {"expireAt": str(NOW + 60_000)}, 0, {"expireAt": None}),
    "customJobId": ({"customJobId": "mine"}, {"id": "mine"}, "", {"id": "1"}),
}
"""Each argument of the document's `glidemq_addJob`, and the fields of the job or its group that show it.

Then the value with which the document leaves the argument out, and what shows that; None is a missing field.
"""

NAMES = {"jobData": "data", "jobOpts": "opts", "jobCost": "cost"}
"""Arguments that the signature names as the field of the job."""


def shown(wire: Wire, job_id: str, expected: Fields) -> Fields:
    """The same fields as expected: of the job, or of its group `k`."""
    found = wire.job(job_id) | {f"group {name}": value for name, value in wire.group("k").items()}
    return {name: found.get(name) for name in expected}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_each_of_the_seventeen_arguments_does_what_the_document_says(wire: Wire, argument: str) -> None:
    given, expected, left_out, default = ARGUMENTS[argument]
    assert shown(wire, wire.short("addJob", 17, **given), expected) == expected
    wire.client.flushall()
    without = given | {NAMES.get(argument, argument): left_out}
    assert shown(wire, wire.short("addJob", 17, **without), default) == default


def test_the_documents_example_is_a_plain_job(wire: Wire) -> None:
    keys = [f"glide:{{q}}:{name}" for name in ("id", "stream", "scheduled", "events")]
    words = ["send-email", '{"to":"user@example.com"}', "{}", "1709750400000", *"00", "", "0", "", *"0000000", ""]
    assert len(words) == 17
    assert wire.fcall("addJob", keys, words) == "1"
    assert wire.job("1") == {
        "id": "1",
        "name": "send-email",
        "data": '{"to":"user@example.com"}',
        "opts": "{}",
        "timestamp": "1709750400000",
        "attemptsMade": "0",
        "delay": "0",
        "priority": "0",
        "maxAttempts": "0",
        "state": "waiting",
    }
    assert wire.names() == {"id", "job:1", "stream", "events"}


def test_a_job_that_its_bucket_cannot_hold_leaves_nothing(wire: Wire) -> None:
    with wire.unchanged():
        values = BUCKET | {"cost": 5001, "customJobId": "mine"}
        assert wire.short("addJob", 17, **values) == "ERR:COST_EXCEEDS_CAPACITY"
        assert wire.short("dedup", 20, **values) == "ERR:COST_EXCEEDS_CAPACITY"


def test_the_documents_scores_are_exact(wire: Wire) -> None:
    assert SHIFT == 4_398_046_511_104
    wire.short("addJob", 17, delay=500)
    wire.short("addJob", 17, delay=500, priority=1)
    wire.short("addJob", 17, priority=2)
    assert wire.zset("scheduled") == {"1": NOW + 500, "2": SHIFT + NOW + 500, "3": 2 * SHIFT}
    assert [wire.state(job_id) for job_id in "123"] == ["delayed", "delayed", "prioritized"]


def test_a_priority_weighs_more_than_any_time(wire: Wire) -> None:
    wire.short("addJob", 17, priority=1)
    wire.short("addJob", 17, delay=10**12)
    assert list(wire.zset("scheduled")) == ["2", "1"]


@pytest.mark.parametrize("promotions", [1, 3], ids=["together", "one by one"])
def test_jobs_of_one_priority_are_first_in_first_out(wire: Wire, promotions: int) -> None:
    """Without delay they are due in the order of their ids, with one by their times; each beats a lower priority."""
    for added in range(3):
        wire.short("addJob", 17, priority=2)
        if promotions > added + 1:
            wire.call("promote")
    wire.short("addJob", 17, priority=3)
    wire.call("promote")
    assert [wire.take_from_list() for _ in range(4)] == ["1", "2", "3", "4"]
    for delay in (30, 10, 20):
        wire.short("addJob", 17, priority=2, delay=delay)
    wire.call("promote", now=NOW + 30)
    assert [wire.take_from_list() for _ in range(3)] == ["6", "7", "5"]


def test_dedup_takes_the_documents_twenty_arguments(wire: Wire) -> None:
    assert wire.short("dedup", 20, dedupId="d", mode="simple", data='{"n":1}', customJobId="mine") == "mine"
    assert wire.short("dedup", 20, dedupId="d", mode="simple") == "skipped"
    assert (wire.job("mine")["data"], wire.hash("dedup")) == ('{"n":1}', {"d": f"mine:{NOW}"})


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_dedup_does_with_the_arguments_of_addjob_what_addjob_does(wire: Wire, argument: str) -> None:
    values, expected, *_ = ARGUMENTS[argument]
    job_id = wire.short("dedup", 20, dedupId="d", mode="simple", **values)
    assert shown(wire, job_id, expected) == expected
    assert wire.hash("dedup") == {"d": f"{job_id}:{values.get('timestamp', NOW)}"}


@pytest.mark.parametrize(
    ("before", "values", "reply"),
    [
        ({}, {}, "1"),
        ({}, {"customJobId": "mine"}, "mine"),
        ({"customJobId": "mine"}, {"customJobId": "mine"}, "duplicate"),
        ({}, BUCKET | {"cost": 5001}, "ERR:COST_EXCEEDS_CAPACITY"),
    ],
)
@pytest.mark.parametrize("mode", ["simple", "throttle", "debounce"])
def test_dedup_returns_what_addjob_does(
    wire: Wire, mode: str, before: dict[str, Word], values: dict[str, Word], reply: str
) -> None:
    if before:
        wire.short("addJob", 17, **before)
    assert wire.short("dedup", 20, dedupId="d", mode=mode, ttlMs=1000, **values) == reply


@pytest.mark.parametrize(
    ("mode", "values", "then", "replies"),
    [
        ("simple", {}, "nothing", ["1", "skipped", "skipped"]),
        ("simple", {"delay": 9}, "nothing", ["1", "skipped", "skipped"]),
        ("simple", {}, "completes", ["1", "skipped", "2"]),
        ("throttle", {}, "nothing", ["1", "skipped", "2"]),
        ("throttle", {}, "completes", ["1", "skipped", "2"]),
        ("debounce", {"delay": 9}, "nothing", ["1", "2", "3"]),
        ("debounce", {"priority": 9}, "nothing", ["1", "2", "3"]),
        ("debounce", {}, "nothing", ["1", "skipped", "skipped"]),
        ("debounce", {}, "completes", ["1", "skipped", "2"]),
    ],
)
def test_each_mode_of_dedup_skips_or_adds_as_the_document_says(
    wire: Wire, mode: str, values: dict[str, Word], then: str, replies: list[str]
) -> None:
    """Three calls: the second at once, the third when the time of `throttle` is over."""

    def ask(at: int) -> str:
        return str(wire.short("dedup", 20, dedupId="d", mode=mode, ttlMs=100, timestamp=NOW + at, **values))

    first = [ask(0), ask(99)]
    if then == "completes":
        job_id, entry_id = wire.take()
        wire.call("complete", jobId=job_id, entryId=entry_id)
    assert [*first, ask(100)] == replies


FLOW = ["sum", "{}", "{}", str(NOW), "0", "0", "0", "1", ""]
CHILD = ["part", "{}", "{}", "0", "0", "0", "glide:{other}", "q", ""]
FLOW_ARGUMENTS: dict[str, tuple[int, str, str, str]] = {
    "parentName": (1, "total", "parent name", "total"),
    "parentData": (2, "[1]", "parent data", "[1]"),
    "parentOpts": (3, '{"a":1}', "parent opts", '{"a":1}'),
    "timestamp": (4, "5", "parent timestamp", "5"),
    "parentDelay": (5, "40", "parent delay", "40"),
    "parentPriority": (6, "6", "parent priority", "6"),
    "parentMaxAttempts": (7, "2", "parent maxAttempts", "2"),
    "parentCustomId": (9, "mine", "parent id", "mine"),
    "childName": (10, "slice", "child name", "slice"),
    "childData": (11, "[2]", "child data", "[2]"),
    "childOpts": (12, '{"b":1}', "child opts", '{"b":1}'),
    "childDelay": (13, "40", "child state", "delayed"),
    "childPriority": (14, "6", "child state", "prioritized"),
    "childMaxAttempts": (15, "3", "child maxAttempts", "3"),
    "childQueuePrefix": (16, "glide:{third}", "queue", "third"),
    "childParentQueue": (17, "z", "child parentQueue", "z"),
    "childCustomId": (18, "theirs", "child id", "theirs"),
    "numExtraDeps": (19, "1", "deps", "3"),
}
"""Each argument of the document's `glidemq_addFlow`: its position, a value, and what shows it. 8 is `numChildren`."""


@pytest.mark.parametrize("argument", FLOW_ARGUMENTS)
def test_each_argument_of_addflow_does_what_the_document_says(wire: Wire, argument: str) -> None:
    position, value, name, expected = FLOW_ARGUMENTS[argument]
    words = [*FLOW, *CHILD, "0"]
    words[position - 1] = value
    if argument == "numExtraDeps":
        words.append("glide:{q}:another")
    there = Wire(wire.client, "third" if argument == "childQueuePrefix" else "other")
    keys = [queue.key(key) for queue in (wire, there) for key in ("id", "stream", "scheduled", "events")]
    parent, child = json.loads(wire.fcall("addFlow", keys, words))
    assert wire.state(parent) == "waiting-children"
    found = {f"parent {field}": text for field, text in wire.job(parent).items()}
    found |= {f"child {field}": text for field, text in there.job(child).items()}
    deps = wire.members(f"deps:{parent}")
    assert there.key(child) in deps
    found |= {"queue": there.queue, "deps": str(len(deps) + 1)}
    assert found[name] == expected


def test_a_flow_of_two_children_has_nine_words_for_each(wire: Wire) -> None:
    two = [*FLOW[:7], "2", FLOW[8], *CHILD, *CHILD, "0"]
    keys = [queue.key(key) for queue in (wire, *[wire.sibling("other")] * 2) for key in KEYS_OF_A_JOB]
    wire.refused("addFlow", keys, [*two[:17], "0"])
    assert json.loads(wire.fcall("addFlow", keys, two)) == ["1", "1", "2"]


KEYS_OF_A_JOB = ("id", "stream", "scheduled", "events")


def reach(wire: Wire, state: str) -> str:
    """Bring a job to a state by the calls that lead there."""
    match state:
        case "waiting":
            return wire.add()
        case "active":
            return wire.active()[0]
        case "delayed":
            return wire.add(delay=5)
        case "prioritized":
            return wire.add(priority=5)
        case "completed":
            job_id, entry_id = wire.active()
            wire.call("complete", jobId=job_id, entryId=entry_id)
            return job_id
        case "failed":
            job_id, entry_id = wire.active()
            wire.call("fail", jobId=job_id, entryId=entry_id)
            return job_id
        case "waiting-children":
            return wire.flow_ids({"queue": "other"})[0]
        case _:
            wire.active(orderingKey="k")
            job_id = wire.add(orderingKey="k")
            entry_id, _ = wire.fetched()
            assert wire.call("moveToActive", jobId=job_id, entryId=entry_id) == "GROUP_FULL"
            return job_id


@pytest.mark.parametrize(
    ("state", "places"),
    [
        ("waiting", {"stream"}),
        ("active", {"stream", "pending"}),
        ("delayed", {"scheduled"}),
        ("prioritized", {"scheduled"}),
        ("completed", {"completed"}),
        ("failed", {"failed"}),
        ("waiting-children", {"deps"}),
        ("group-waiting", {"groupq:k"}),
    ],
)
def test_each_state_is_where_the_documents_say(wire: Wire, state: str, places: set[str]) -> None:
    job_id = reach(wire, state)
    assert wire.state(job_id) == state
    found = {name for name in ("scheduled", "completed", "failed", "groupq:k") if job_id in wire.zset(name)}
    found |= {"stream"} if job_id in wire.stream_ids() else set()
    pending = set(wire.pending())
    entries = wire.ask("XRANGE", wire.key("stream"), "-", "+")
    found |= {"pending"} if any(e in pending and fields["jobId"] == job_id for e, fields in entries) else set()
    assert found | ({"deps"} if wire.members(f"deps:{job_id}") else set()) == places


def test_a_group_has_the_documents_fields(wire: Wire) -> None:
    for values in (RATE | {"groupConcurrency": 3}, BUCKET | {"groupConcurrency": 3}):
        wire.client.flushall()
        wire.active(**values)
        fields = {"active": "1", "maxConcurrency": "3"}
        if values.keys() & {"groupRateMax"}:
            fields |= {"rateMax": "2", "rateDuration": "800", "rateWindowStart": str(NOW), "rateCount": "1"}
        else:
            fields |= {"tbCapacity": "5000", "tbTokens": "4000", "tbRefillRate": "2500", "tbLastRefill": str(NOW)}
            fields |= {"tbRefillRemainder": "0"}
        assert fields.items() <= wire.group("k").items()


def test_lifo_jobs_are_pushed_and_popped_at_one_end_of_their_list(wire: Wire) -> None:
    for _ in range(3):
        wire.add(lifo=1)
    assert wire.elements("lifo") == ["1", "2", "3"]
    assert not wire.exists("list")
    assert [wire.take_from_list() for _ in range(3)] == ["3", "2", "1"]


def test_the_queues_limit_counts_stream_and_lists(wire: Wire) -> None:
    wire.ask("HSET", wire.key("meta"), "globalConcurrency", 2)
    wire.open_group()
    wire.active()
    for _ in range(2):
        wire.add(lifo=1)
    assert wire.call("checkConcurrency") == 1
    assert wire.call("rpopAndReserve", list="lifo", count=5) == ["3"]
    assert wire.call("checkConcurrency") == 0
    assert wire.call("rpopAndReserve", list="lifo", count=5) == []


def test_a_locks_second_caller_waits_for_its_end(wire: Wire) -> None:
    assert [wire.call("tryLock", lock="l", owner=owner, ttlMs=60_000) for owner in "ab"] == [1, 0]
    assert [wire.call("renewLock", lock="l", owner=owner, ttlMs=60_000) for owner in "ab"] == [1, 0]
    assert [wire.call("unlock", lock="l", owner=owner) for owner in "ba"] == [0, 1]
    assert wire.call("tryLock", lock="l", owner="b", ttlMs=60_000) == 1


def test_another_parent_is_named_in_the_childs_set_and_in_no_hash(wire: Wire) -> None:
    parent, child = wire.flow_ids({})
    other = wire.flow_ids({})[0]
    assert wire.job(child)["parentId"] == parent
    assert wire.job(child)["parentQueue"] == "q"
    values = {"childJobId": child, "parentId": other, "depsMember": wire.key(child)}
    assert wire.call("registerParent", **values) == "ok"
    assert wire.members(f"parents:{child}") == {f"{wire.base}:{other}"}
    assert not wire.names("parent:")


def test_workers_of_other_languages_read_as_the_document_says(wire: Wire) -> None:
    wire.ask("XGROUP", "CREATE", wire.key("stream"), "workers", "$", "MKSTREAM")
    jobs = [wire.short("addJob", 17, jobName="send-email") for _ in range(3)]
    words = ("GROUP", "workers", "worker-1", "COUNT", 2, "BLOCK", 10, "STREAMS", wire.key("stream"), ">")
    (name, entries), *_ = wire.ask("XREADGROUP", *words)
    assert name == wire.key("stream")
    assert [fields for _, fields in entries] == [{"jobId": job_id, "name": "send-email"} for job_id in jobs[:2]]
    assert (wire.ask("XLEN", wire.key("stream")), len(wire.pending())) == (3, 2)
    assert wire.ask("XREADGROUP", *words)
    assert not wire.ask("XREADGROUP", *words)


KEYS_OF_THE_ARCHITECTURE_DOCUMENT = """\
version 0, addJob 4, promote 3, nextDue 2, tryLock 1, unlock 1, renewLock 1, complete 5, completeAndFetchNext 5, fail 6,
reclaimStalled 2, reclaimStalledListJobs 2, pause 2, resume 2, dedup 5, rateLimit 2, promoteRateLimited 2,
checkConcurrency 3, rpopAndReserve 4, moveToActive 2, deferActive 3, completeChild 4, registerParent 6, removeJob 7,
clean 3, revoke 5, changePriority 4, changeDelay 4, promoteJob 4, moveActiveToDelayed 4, moveToWaitingChildren 3,
searchByName 1, drain 6, retryJobs 4, healListActive 1, popLists 2"""


def test_each_function_takes_the_keys_of_the_architecture_document() -> None:
    """Every test here calls the functions by these signatures."""
    pairs = (entry.split() for entry in KEYS_OF_THE_ARCHITECTURE_DOCUMENT.replace("\n", " ").split(", "))
    documented = {name: int(count) for name, count in pairs}
    assert len(documented) == 36  # addFlow has 4 keys for each job
    assert {name: len(SIGNATURES[name].keys) for name in documented} == documented
