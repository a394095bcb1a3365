"""What the public documents of glide-mq state and no other test shows: `tests/seeds` names these tests."""

from __future__ import annotations

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


ARGUMENTS: dict[str, tuple[dict[str, Word], dict[str, str]]] = {
    "jobName": ({"jobName": "send-email"}, {"name": "send-email"}),
    "jobData": ({"data": '{"to":"ada"}'}, {"data": '{"to":"ada"}'}),
    "jobOpts": ({"opts": '{"attempts":2}'}, {"opts": '{"attempts":2}'}),
    "timestamp": ({"timestamp": 1_709_750_400_000}, {"timestamp": "1709750400000"}),
    "delay": ({"delay": 500}, {"delay": "500", "state": "delayed"}),
    "priority": ({"priority": 3}, {"priority": "3", "state": "prioritized"}),
    "parentId": ({"parentId": "7"}, {"parentId": "7"}),
    "maxAttempts": ({"maxAttempts": 4}, {"maxAttempts": "4"}),
    "orderingKey": ({"orderingKey": "k"}, {"groupKey": "k", "orderingSeq": "1"}),
    "groupConcurrency": ({"orderingKey": "k", "groupConcurrency": 3}, {"group maxConcurrency": "3"}),
    "groupRateMax": (
        {"orderingKey": "k", "groupRateMax": 2, "groupRateDuration": 800},
        {"group rateMax": "2", "group rateDuration": "800"},
    ),
    "groupRateDuration": (
        {"orderingKey": "k", "groupRateMax": 2, "groupRateDuration": 900},
        {"group rateDuration": "900"},
    ),
    "tbCapacity": (
        {"orderingKey": "k", "tbCapacity": 5000, "tbRefillRate": 2500},
        {"group tbCapacity": "5000", "group tbTokens": "5000"},
    ),
    "tbRefillRate": ({"orderingKey": "k", "tbCapacity": 5000, "tbRefillRate": 2500}, {"group tbRefillRate": "2500"}),
    "jobCost": ({"orderingKey": "k", "tbCapacity": 5000, "tbRefillRate": 1, "cost": 2000}, {"cost": "2000"}),
    "ttl": ({"ttl": 60_000}, {"expireAt": str(NOW + 60_000)}),
    "customJobId": ({"customJobId": "mine"}, {"id": "mine"}),
}
"""Each argument of the document's `glidemq_addJob`, and the fields of the job or its group that show it."""


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_each_of_the_seventeen_arguments_does_what_the_document_says(wire: Wire, argument: str) -> None:
    given, expected = ARGUMENTS[argument]
    job_id = wire.short("addJob", 17, **given)
    found = wire.job(job_id) | {f"group {name}": value for name, value in wire.group("k").items()}
    assert {name: found.get(name) for name in expected} == expected


def test_the_documents_scores_are_exact(wire: Wire) -> None:
    assert SHIFT == 4_398_046_511_104
    wire.short("addJob", 17, delay=500)
    wire.short("addJob", 17, delay=500, priority=1)
    wire.short("addJob", 17, priority=2)
    assert wire.zset("scheduled") == {"1": NOW + 500, "2": SHIFT + NOW + 500, "3": 2 * SHIFT}


def test_dedup_takes_the_documents_twenty_arguments(wire: Wire) -> None:
    assert wire.short("dedup", 20, dedupId="d", mode="simple", data='{"n":1}', customJobId="mine") == "mine"
    assert wire.short("dedup", 20, dedupId="d", mode="simple") == "skipped"
    assert (wire.job("mine")["data"], wire.hash("dedup")) == ('{"n":1}', {"d": f"mine:{NOW}"})


def test_workers_of_other_languages_read_as_the_document_says(wire: Wire) -> None:
    wire.ask("XGROUP", "CREATE", wire.key("stream"), "workers", "$", "MKSTREAM")
    job_id = wire.short("addJob", 17, jobName="send-email")
    reply = wire.ask("XREADGROUP", "GROUP", "workers", "worker-1", "COUNT", 1, "STREAMS", wire.key("stream"), ">")
    assert reply[0][1][0][1] == {"jobId": job_id, "name": "send-email"}
    assert wire.ask("XLEN", wire.key("stream")) == len(wire.pending()) == 1


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
