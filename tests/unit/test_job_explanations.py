"""Why a job or a flow is where it is, by what the server has stored of it, its queue, its group and its pools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from orchestration_queue.flows.explanation import FlowExplanation, explain_flow
from orchestration_queue.flows.stored import FlowSnapshot, FlowState
from orchestration_queue.protocol.call import Call, Conversation, Reply
from orchestration_queue.protocol.keys import HOLD, QueueKeys
from orchestration_queue.protocol.operations.explanation import Explanation, explain
from orchestration_queue.protocol.record import when
from tests.conversations import Stored, chain, talk

T = TypeVar("T")
KEYS = QueueKeys("q")
NOW, SECOND = 1_700_000_000_000, 1000
AT = "2023-11-14 22:13:20 UTC"
"""The same time in words."""
YEAR_9999 = 253_370_764_800_000
PRIORITY = 2**42
JOB = KEYS.job("7")
Store = Mapping[str, Any]
"""Hashes, scores by ``key member``, sets and lengths by key."""


def flat(fields: Mapping[str, object]) -> list[bytes]:
    return [str(word).encode() for pair in fields.items() for word in pair]


def ask(conversation: Conversation[T], kept: Store, workers: int = 1) -> T:
    """Hold a conversation with a server that has these keys, and this number of workers."""

    def reply_to(call: Call) -> Reply:
        key, args = (call.keys or ("",))[0], call.args
        match call.name:
            case "HGETALL":
                return flat(kept.get(key, {}))
            case "HMGET":
                found = kept.get(key, {})
                return [str(found[name]).encode() if name in found else None for name in args]
            case "HGET":
                value = kept.get(key, {}).get(args[0])
                return None if value is None else str(value).encode()
            case "HSCAN":
                return [b"0", flat(kept.get(key, {}))]
            case "ZSCORE" | "ZRANK":
                return kept.get(" ".join((key, str(args[0]))))
            case "ZMSCORE":
                return [kept.get(" ".join((key, str(member)))) for member in args]
            case "SCAN":
                return [b"0", [KEYS.named(f"w:w{number}").encode() for number in range(workers)]]
            case "MGET":
                return [
                    json.dumps({"addr": "here", "pid": 1, "startedAt": NOW, **kept.get(key, {})}).encode()
                    for key in call.keys
                ]
            case "SMEMBERS":
                return [member.encode() for member in kept.get(key, ())]
            case "XPENDING":
                return [kept.get("pending", 0)]
            case "GET":
                return None
        return kept.get(key, 0) if isinstance(kept.get(key, 0), int) else 0

    return talk(conversation, reply_to)


def explained(record: Mapping[str, object], store: Store | None = None, *, workers: int = 1) -> Explanation:
    """Explain job 7 of this record."""
    found = ask(explain(KEYS, "7", NOW), {JOB: record, **(store or {})}, workers)
    assert found is not None
    return found


READY = {"state": "waiting"}
LIMITED = {"rateLimitMax": 3, "rateLimitDuration": 10 * SECOND}


@pytest.mark.parametrize(
    ("store", "workers", "sentence"),
    [
        ({KEYS.meta: {"paused": "1"}}, 1, "The queue is paused."),
        ({KEYS.meta: {"paused": "0"}}, 0, "No worker serves the queue."),
        ({KEYS.meta: {"globalConcurrency": 2}, "pending": 2}, 1, "All 2 jobs that may run at a time"),
        ({KEYS.meta: {"globalConcurrency": 3}, "pending": 2}, 1, "It is ready and waits"),
        ({KEYS.meta: {"globalConcurrency": 0}, "pending": 2}, 1, "It is ready and waits"),
        ({KEYS.meta: LIMITED, KEYS.rate: {"windowStart": NOW - 9_999, "count": 3}}, 1, "The queue's rate limit of 3"),
        ({KEYS.meta: LIMITED, KEYS.rate: {"windowStart": NOW - 9_999, "count": 4}}, 1, "The queue's rate limit of 3"),
        ({KEYS.meta: LIMITED, KEYS.rate: {"windowStart": NOW - 9_999, "count": 2}}, 1, "It is ready and waits"),
        ({KEYS.meta: LIMITED, KEYS.rate: {"windowStart": NOW - 10_000, "count": 3}}, 1, "It is ready and waits"),
        ({KEYS.rate: {"windowStart": NOW, "count": 3}}, 1, "It is ready and waits"),
        ({KEYS.meta: LIMITED}, 1, "It is ready and waits"),
    ],
)
def test_a_ready_job_waits_for_the_queue_its_limits_or_a_slot(store: Store, workers: int, sentence: str) -> None:
    assert explained(READY, store, workers=workers).sentence.startswith(sentence)


def test_the_end_of_a_rate_limit_is_said() -> None:
    found = explained(READY, {KEYS.meta: LIMITED, KEYS.rate: {"windowStart": NOW - 10_000 + 1, "count": 3}})
    assert found.facts["until"] == when(NOW + 1)


@pytest.mark.parametrize(
    ("active", "workers", "counted", "advises"),
    [(1, 1, "1 running job, 1 worker.", True), (2, 2, "2 running jobs, 2 workers.", True), (0, 1, "0 running", False)],
)
def test_what_a_slot_is_waited_for_beside(active: int, workers: int, counted: str, advises: bool) -> None:
    found = explained(READY, {"pending": active}, workers=workers)
    assert counted in found.sentence
    assert (found.action is not None) is advises


@pytest.mark.parametrize(
    ("tasks", "name", "is_known"),
    [
        (["load"], "load", True),
        (["other"], "load", False),
        ([], "load", True),
        ([f"task {number}" for number in range(99)], "load", False),
        ([f"task {number}" for number in range(100)], "load", True),  # it may know more than it says
        (["other"], "x" * 100, False),
        (["other"], "x" * 101, True),  # workers say no more of a name
    ],
)
def test_no_worker_may_know_the_task(tasks: list[str], name: str, is_known: bool) -> None:
    found = explained({**READY, "name": name}, {KEYS.named("w:w0"): {"tasks": tasks}})
    assert found.sentence.startswith("It is ready" if is_known else f"No worker of the queue knows task {name!r}")


@pytest.mark.parametrize(
    ("record", "score", "sentence"),
    [
        ({"state": "delayed"}, None, "It is in no list of the queue"),
        ({"state": "delayed"}, NOW, f"It is delayed until {AT}."),
        ({"state": "delayed"}, PRIORITY * 3 + NOW, f"It is delayed until {AT}."),
        ({"state": "delayed"}, NOW - 9_999, "It is delayed until"),
        ({"state": "delayed"}, NOW - 10_000, "It is ready and waits"),
        ({"state": "prioritized"}, PRIORITY * 3, "It is ready and waits"),
        ({"state": "prioritized"}, PRIORITY * 3 + NOW, "It is ready and waits"),
        ({"state": "prioritized"}, PRIORITY * 3 + NOW + 1, "It is delayed until"),
        (
            {"state": "delayed", "attemptsMade": 1, "failedReason": "disk full", "maxAttempts": 3},
            NOW,
            f"Attempt 1 of 3 failed (disk full); the next starts at {AT}.",
        ),
    ],
)
def test_a_scheduled_job_is_delayed_or_due(record: dict[str, object], score: int | None, sentence: str) -> None:
    stored = {} if score is None else {f"{KEYS.scheduled} 7": str(score).encode()}
    assert explained(record, stored).sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("heard_s", "opts", "meta", "is_silent"),
    [
        (30, {}, {}, False),
        (30.001, {}, {}, True),
        (30.001, {"lockDuration": 60_000}, {}, False),
        (5.001, {"lockDuration": 5_000}, {}, True),
        (0, {}, {}, False),
    ],
)
def test_a_running_job_is_silent_when_its_lease_is_over(
    heard_s: float, opts: dict[str, int], meta: dict[str, str], is_silent: bool
) -> None:
    record = {"state": "active", "lastActive": NOW - round(heard_s * SECOND), "opts": json.dumps(opts)}
    found = explained(record, {KEYS.meta: meta})
    assert ("another worker will take it over" in found.sentence) is is_silent
    assert (found.action is not None) is is_silent


def test_a_running_job_is_with_the_worker_that_says_so() -> None:
    workers = {
        KEYS.named("w:w0"): {"addr": "there", "jobs": [["6", "load", NOW]]},
        KEYS.named("w:w1"): {"addr": "here", "pid": 5, "jobs": [["7", "load", NOW]], "lease": 60_000},
    }
    found = explained({"state": "active", "lastActive": NOW - 40_000}, workers, workers=2)
    assert found.sentence.startswith("Worker 'w1' on here (process 5) has been running it")
    assert found.facts["lease_ends_at"] == when(NOW + 20_000), "by the lease that the worker reports"
    other = explained({"state": "active", "lastActive": NOW - 40_000}, {KEYS.named("w:w0"): {"jobs": []}})
    assert other.sentence.startswith("A worker has been running it")
    assert other.facts["lease_ends_at"] == when(NOW - 10_000)


def test_a_running_job_of_which_nothing_was_heard_yet_runs() -> None:
    assert "has been running it" in explained({"state": "active"}).sentence
    since = explained({"state": "active", "processedOn": NOW, "lastActive": NOW - 61 * SECOND}).sentence
    assert since.startswith(f"A worker has been running it since {AT}, but has not renewed the lease for 61 s; ")
    assert since.endswith("the lease ended at 2023-11-14 22:12:49 UTC, and another worker will take it over.")


@pytest.mark.parametrize(
    ("group", "until_ms", "own", "sentence"),
    [
        ({}, NOW + 1, 1, "Ordering group 'tenant' starts no job until"),
        ({"active": 1, "maxConcurrency": 1}, NOW, 1, "Ordering group 'tenant' runs 1 of 1 jobs"),
        ({"active": 2, "maxConcurrency": 1}, None, 1, "Ordering group 'tenant' runs 2 of 1 jobs"),
        (
            {"active": 0, "maxConcurrency": 1, "nextSeq": 3},
            None,
            4,
            "It is job 4 of ordering group 'tenant', and",
        ),
        ({"active": 0, "maxConcurrency": 1, "nextSeq": 3}, None, 3, "Ordering group 'tenant' should let it run."),
        ({"active": 5, "maxConcurrency": 0}, None, 0, "Ordering group 'tenant' should let it run."),
    ],
)
def test_a_job_of_a_group_waits_for_its_rate_its_slots_or_its_turn(
    group: dict[str, int], until_ms: int | None, own: int, sentence: str
) -> None:
    record = {"state": "group-waiting", "groupKey": "tenant", "orderingSeq": own}
    stored = {KEYS.group("tenant"): group, f"{KEYS.ratelimited} tenant": until_ms and str(until_ms).encode()}
    assert explained(record, stored).sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        ({"a": "completed", "b": "failed"}, "All 2 jobs that it waits for have ended, but it was not notified."),
        ({"a": "completed", "b": "active"}, "It waits for 1 of 2 jobs: b (active)."),
        ({"a": None, "b": "completed"}, "It waits for 1 of 2 jobs: a (gone)."),
        (dict.fromkeys("abcdefghij", "active"), ", j (active)."),
        (dict.fromkeys("abcdefghijk", "active"), ", j (active) and 1 more."),
    ],
)
def test_a_job_that_waits_for_others_names_the_open_ones(states: dict[str, str | None], sentence: str) -> None:
    jobs = {KEYS.job(name): {"state": state} for name, state in states.items() if state}
    found = explained({"state": "waiting-children"}, {KEYS.deps("7"): [KEYS.member(name) for name in states], **jobs})
    assert found.sentence.endswith(sentence)
    assert len(found.facts["open"]) == sum(state not in ("completed", "failed") for state in states.values())


@pytest.mark.parametrize(
    ("paused", "state", "sentence"),
    [
        (None, "completed", "Its flow 'f' holds it until its submission, retry or pause is over."),
        (1, "completed", "Its flow 'f' is paused."),
        (1, "active", "It waits for 1 of 1 jobs: a (active); its flow 'f' is paused."),
    ],
)
def test_a_job_may_be_held_by_its_flow(paused: int | None, state: str, sentence: str) -> None:
    stored = {
        KEYS.deps("7"): [KEYS.member("a"), KEYS.member(HOLD)],
        KEYS.job("a"): {"state": state},
        KEYS.flow("f"): {} if paused is None else {"paused": paused},
    }
    found = explained({"state": "waiting-children", "flow": "f"}, stored)
    assert (found.sentence, found.facts["flow"]) == (sentence, "f")
    alone = explained({"state": "waiting-children"}, {KEYS.deps("7"): [KEYS.member("a")], KEYS.job("a"): ACTIVE})
    assert alone.sentence == "It waits for 1 of 1 jobs: a (active)."
    assert "flow" not in alone.facts


@pytest.mark.parametrize(
    ("deadline", "said"),
    [
        (NOW, f" until {AT}, when it fails."),
        (9e15, " for a signal."),
        (YEAR_9999, " for a signal."),
        (None, " for a signal."),
    ],
)
def test_a_suspended_job_says_until_when(deadline: float | None, said: str) -> None:
    stored = {f"{KEYS.suspended} 7": None if deadline is None else str(deadline).encode()}
    assert explained({"state": "suspended"}, stored).sentence.endswith(said)


def test_a_suspended_job_says_why() -> None:
    found = explained({"state": "suspended", "suspendReason": "approval"})
    assert found.sentence.startswith("Its handler suspended it (approval);")
    assert found.facts["reason"] == "approval"


HOUR = 3_600_000
LATER = f"{AT[:11]}23{AT[13:]}"


@pytest.mark.parametrize(
    ("state", "header", "sentence", "action"),
    [
        (
            "delayed",
            f"s 2 1 {NOW} 0 {NOW + HOUR} 0",
            f"Its step 'it' sleeps until {LATER}, also if the job is started early.",
            None,
        ),
        ("delayed", f"s 2 1 {NOW} 0 {NOW} 0", "It is delayed until", "oq job promote q 7 starts it now"),
        (
            "suspended",
            f"w 2 1 {NOW} 0 {NOW + HOUR} 0",
            f"Its step 'it' waits for a signal of this name until {LATER}, when it continues without it.",
            "oq job signal q 7 it",
        ),
        (
            "suspended",
            f"w 2 1 {NOW} 0 0 0",
            "Its step 'it' waits for a signal of this name.",
            "oq job signal q 7 it",
        ),
        ("suspended", f"g 2 1 {NOW} 0 0 2", "Its handler suspended it; it waits", "oq job signal q 7 NAME"),
    ],
)
def test_a_job_that_waits_in_a_step_names_it(state: str, header: str, sentence: str, action: str | None) -> None:
    stored = {KEYS.steps("7"): {"h:done": f"r 1 1 {NOW} 5 0 2", "h:it": header}, f"{KEYS.scheduled} 7": NOW + HOUR}
    found = explained({"state": state, "steps": 2}, stored)
    assert found.sentence.startswith(sentence)
    assert found.action == action


@pytest.mark.parametrize(
    ("rank", "sentence"), [(2, "It waits in share 'a' of weight 1 behind 2 jobs"), (None, "It is ready and waits")]
)
def test_a_job_of_a_share_waits_in_it_until_it_is_on_the_stream(rank: int | None, sentence: str) -> None:
    stored = {} if rank is None else {f"{KEYS.share('a')} 7": rank}
    assert explained({**READY, "share": "a"}, stored).sentence.startswith(sentence)


def test_an_end_is_explained_by_the_record() -> None:
    assert explained({"state": "completed"}).sentence == "It completed."
    assert explained({"state": "completed", "finishedOn": NOW}).sentence == f"It completed at {AT}."
    failed = explained({"state": "failed", "attemptsMade": 2, "failedReason": "disk full", "failureKind": "error"})
    assert failed.facts["kind"] == "error"
    assert failed.sentence == "It failed for good after 2 attempts: disk full."
    assert explained({"state": "failed"}).sentence == "It failed for good after 1 attempt."
    stalled = explained({"state": "failed", "failedReason": "job stalled more than maxStalledCount"}).sentence
    assert stalled.endswith("GIL for longer than the lease; make the handler sandboxed.")


@pytest.mark.parametrize(
    ("slots", "holders", "weight", "sentence"),
    [
        (2, 0, 3, "It needs 3 slots of pool 'db', which has 2."),
        (3, 3, 3, "It waits for 3 slots of pool 'db': 3 of 3 are held by q/h0 (1), q/h1 (1), q/h2 (1); "),
        (10, 10, 1, "It waits for 1 slot of pool 'db': 10 of 10 are held by q/h0 (1), "),
        (11, 11, 1, "It waits for 1 slot of pool 'db': 11 of 11 are held by q/h0 (1), "),
    ],
)
def test_a_job_that_waits_for_a_pool_names_who_holds_it(slots: int, holders: int, weight: int, sentence: str) -> None:
    held = {KEYS.member(f"h{number}"): f"{NOW + 1} 1 0" for number in range(holders)}
    stored = {
        f"{KEYS.scheduled} 7": str(NOW + SECOND).encode(),
        KEYS.pool_waiting: {KEYS.member("7"): json.dumps({"pools": {"wide": 1, "db": weight}})},
        KEYS.pool_slots: {"wide": 100, "db": slots},
        KEYS.pool_holders("db"): held,
    }
    record = {"state": "delayed", "opts": json.dumps({"pools": {"db": weight}})}
    found = explained(record, stored)
    assert found.sentence.startswith(sentence)
    assert (" and 1 more;" in found.sentence) is (" and " in found.sentence) is (holders == 11)
    assert len(found.facts["holders"]) == holders


@pytest.mark.parametrize(
    ("slots", "needed", "tightest"),
    [
        ({"a": 5, "b": 2}, {"a": 1, "b": 1}, "b"),
        ({"a": 5, "b": 6}, {"a": 1, "b": 5}, "b"),
        ({"a": 2, "b": 3}, {"a": 1, "b": 1}, "b"),
    ],
    ids=["fewest slots", "most needed", "most held"],
)
def test_of_several_pools_the_tightest_is_named(slots: dict[str, int], needed: dict[str, int], tightest: str) -> None:
    stored = {
        f"{KEYS.scheduled} 7": str(NOW + SECOND).encode(),
        KEYS.pool_waiting: {KEYS.member("7"): json.dumps({"pools": needed})},
        KEYS.pool_slots: slots,
        KEYS.pool_holders("b"): {KEYS.member("h"): f"{NOW + 1} 2 0"},
    }
    found = explained({"state": "delayed", "opts": json.dumps({"pools": needed})}, stored)
    assert f" of pool {tightest!r}: " in found.sentence


# Flows.

COMPLETED = {"state": "completed"}
FAILED = {"state": "failed", "failedReason": "disk full", "attemptsMade": "1"}
BROKEN = "It failed for good after 1 attempt: disk full."
SKIPPED = {"state": "failed", "outcome": "skipped", "failedReason": "skipped"}
UNRUN = {"state": "failed", "outcome": "upstream_failed", "failedReason": "upstream failed"}
WAITING = {"state": "waiting-children"}
ACTIVE = {"state": "active"}


def flow_explained(stored: Stored, state: FlowState = FlowState.RUNNING, **noted: Any) -> FlowExplanation:
    """Explain flow ``f`` with these jobs, of which each waits for the one before."""
    snapshot = FlowSnapshot(chain(*stored), state, None, None, None, noted.get("paused", False), False, None)
    snapshot = replace(snapshot, stopped=noted.get("stopped"))
    return ask(explain_flow(snapshot, NOW), {KEYS.job(f"f.{name}"): its for name, its in stored.items() if its})


def test_a_flow_of_which_parts_may_be_missing_says_so() -> None:
    found = flow_explained({"a": READY, "b": WAITING}, FlowState.SUBMITTING)
    assert found.sentence.startswith("Its submission is not complete")
    assert "submit it again" in str(found.action)
    assert "submission" not in flow_explained({"a": READY, "b": WAITING}).sentence


@pytest.mark.parametrize(
    ("stored", "stopped", "sentence"),
    [
        (
            {"a": COMPLETED, "b": None},
            None,
            "All 2 nodes have ended. Node 'b' counts as failed: its job is gone, and nothing says that it completed.",
        ),
        ({"a": COMPLETED, "b": SKIPPED}, None, "All 2 nodes have ended, 1 of them without running."),
        ({"a": COMPLETED}, "timeout", "All 1 nodes have ended. It was stopped: timeout."),
        ({"a": FAILED, "b": COMPLETED}, None, f"Node 'a': {BROKEN} 0 nodes did not run."),
        ({"a": FAILED, "b": UNRUN}, None, f"Node 'a': {BROKEN} 1 node did not run."),
        (
            {"a": FAILED, "b": UNRUN, "c": SKIPPED},
            "why",
            f"Node 'a': {BROKEN} 2 nodes did not run. It was stopped: why.",
        ),
        (dict.fromkeys("abcde", FAILED), None, f"Node 'e': {BROKEN} 0 nodes did not run."),
        (dict.fromkeys("abcdefg", FAILED), None, f"Node 'e': {BROKEN} 2 more failed. 0 nodes did not run."),
    ],
)
def test_an_ended_flow_names_what_failed(stored: Stored, stopped: str | None, sentence: str) -> None:
    found = flow_explained(stored, stopped=stopped)
    assert found.sentence.endswith(sentence)
    has_failed, is_gone = (any(its is end for its in stored.values()) for end in (FAILED, None))
    advice = "submit it again with another id" if is_gone else None
    assert found.action == ("oq flow retry q f" if has_failed else advice)
    assert len(found.nodes) == min(5, sum(its is FAILED for its in stored.values()))


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        ({"a": COMPLETED, "b": ACTIVE, "c": WAITING}, "2 of 3 nodes have not ended. Node 'b' is active: "),
        ({"a": None, "b": READY, "c": WAITING}, "2 of 3 nodes have not ended. Node 'b' is waiting: "),
        ({"a": ACTIVE, "b": READY}, "2 of 2 nodes have not ended. Node 'b' is waiting: "),
        ({"a": FAILED, "b": WAITING}, "1 of 2 nodes have not ended, and all wait for nodes that have ended without"),
    ],
)
def test_a_flow_under_way_names_the_node_that_holds_it_up(stored: Stored, sentence: str) -> None:
    assert flow_explained(stored).sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("count", "more"), [(1, ""), (2, " 1 more waits for no other node."), (3, " 2 more wait for no other node.")]
)
def test_how_many_more_nodes_wait_for_no_other(count: int, more: str) -> None:
    sentence = flow_explained(dict.fromkeys("abc"[:count], ACTIVE)).sentence
    assert sentence.endswith(more)
    assert ("no other node" in sentence) is bool(more)


def test_a_paused_flow_says_so_first() -> None:
    found = flow_explained({"a": COMPLETED, "b": READY}, paused=True)
    assert (found.sentence, found.action) == (
        "It is paused, and 1 of 2 nodes have not ended.",
        "oq flow resume q f",
    )
