"""`oq1_reclaim`: stalled jobs run again, and those that stall too often fail and are reported."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.lua.oq1 import Own, failed, new_job
from tests.lua.oq1_reference import same_but_for_entries
from tests.lua.wire import NOW, Wire, Word, event

LATER = NOW + 60_000
REASON = "job stalled more than maxStalledCount"
SOURCES: list[dict[str, Word]] = [
    {},
    {"priority": 3},
    {"lifo": 1},
    {"orderingKey": "o"},
    {"ttl": 10},
    {"lifo": 1, "ttl": 10},
]


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


@pytest.fixture
def dead(own: Own) -> Wire:
    return own.wire.sibling("dead")


def test_nothing_in_anybodys_hands_is_nothing_to_do(own: Own) -> None:
    own.wire.add()
    with own.wire.unchanged():
        assert own.reclaim(LATER) == (0, [], False, [])


@pytest.mark.parametrize("most", [0, 1])
def test_the_effects_are_those_of_the_wires_two_functions(own: Own, most: int) -> None:
    left, right = own.wire.sibling("left"), own.wire.sibling("right")
    for wire in (left, right):
        for source in SOURCES:
            wire.active(**source)
        wire.add(lifo=1)
        assert wire.call("popLists")
        wire.ask("INCRBY", wire.key("list-active"), 1)
    for now in (LATER, LATER + 5):
        retried, lost, more, letters = Own(left).reclaim(now, max_stalled_count=most)
        names: dict[str, Word] = {"timestamp": now, "maxStalledCount": most}
        right.call("reclaimStalled", **names)
        right.call("reclaimStalledListJobs", **names)
        assert same_but_for_entries(left) == same_but_for_entries(right)
        assert (more, letters) == (False, [])
        ended = [] if most else ["1", "4", "2", "3"]
        assert (retried, lost) == ((4 if most else 0, ended) if now == LATER else (1, []))


@pytest.mark.parametrize("source", SOURCES[:4], ids=str)
def test_a_job_that_silences_every_worker_leaves_a_dead_letter(own: Own, dead: Wire, source: dict[str, Word]) -> None:
    own.wire.add("poison", data='{"n":1}', **source)
    own.take()
    assert own.reclaim(LATER, dead_letter="dead")[:2] == (1, [])
    assert dead.names() == set()
    own.take(now=LATER)
    assert own.reclaim(2 * LATER, dead_letter="dead") == (0, ["1"], False, [])
    assert own.wire.job("1")["failedReason"] == REASON
    (letter_id,) = dead.stream_ids()
    assert dead.job(letter_id)["name"] == "poison"
    assert json.loads(dead.job(letter_id)["data"]) == {
        "originalQueue": "q",
        "originalJobId": "1",
        "data": {"n": 1},
        "failedReason": f"crashed: {REASON}",
        "attemptsMade": 0,
    }
    with own.wire.unchanged():
        assert own.reclaim(3 * LATER, dead_letter="dead") == (0, [], False, [])


def test_stalls_are_counted_apart_from_retries(own: Own, dead: Wire) -> None:
    own.add(new_job(max_attempts=3))
    (job,) = own.take()
    own.exchange(failed(job, max_attempts=3), now=LATER)
    own.take(now=LATER)
    assert own.reclaim(2 * LATER)[0] == 1
    (job,) = own.take(now=2 * LATER)
    assert (job.fields["attemptsMade"], job.fields["stalledCount"]) == ("1", "1")
    assert own.exchange(failed(job, max_attempts=3), now=2 * LATER).outcomes == "r"
    own.take(now=3 * LATER)
    assert own.wire.job("1")["attemptsMade"] == "2"
    assert own.reclaim(4 * LATER, dead_letter="dead")[1] == ["1"]
    assert own.wire.job("1")["attemptsMade"] == "2"
    assert json.loads(dead.job("1")["data"])["attemptsMade"] == 2


def test_a_revoked_job_and_an_expired_one_leave_no_letter(own: Own, dead: Wire) -> None:
    own.wire.add()
    own.wire.add(ttl=10)
    own.wire.add(lifo=1, ttl=10)
    own.take(3)
    own.wire.call("revoke", jobId="1")
    assert own.reclaim(LATER, max_stalled_count=0, dead_letter="dead") == (0, ["1"], False, [])
    assert [own.wire.job(job_id)["failedReason"] for job_id in "123"] == [REASON, "expired", "expired"]
    assert dead.names() == set()


def test_in_a_cluster_the_letter_is_kept_for_the_caller(own: Own, dead: Wire) -> None:
    own.wire.add("poison")
    own.take()
    _, lost, _, letters = own.reclaim(LATER, max_stalled_count=0, dead_letter="dead", cluster=True)
    ((*about, _),) = [json.loads(letter) for letter in letters]
    assert (lost, about) == (["1"], ["dead", f"dead.q.1.{NOW}", "poison"])
    assert dead.names() == set()


def test_letters_that_nobody_added_are_handed_out_again(own: Own) -> None:
    own.add(*(new_job() for _ in range(21)))
    letters = [
        letter
        for turn, job in enumerate(own.take(21))
        for letter in own.exchange(failed(job), dead_letter="dead", cluster=True, now=NOW + turn).letters
    ]
    with own.wire.unchanged():
        assert own.reclaim(NOW + 99, min_idle_ms=100) == (0, [], False, [])
        retried, lost, more, first = own.reclaim(NOW + 120, min_idle_ms=100)
    assert (retried, lost, more) == (0, [], True)
    assert [json.loads(letter) for letter in first] == letters[:20]
    own.wire.client.zrem(own.wire.key("outbox"), *first)
    _, _, more, rest = own.reclaim(NOW + 120, min_idle_ms=100)
    assert ([json.loads(letter) for letter in rest], more) == (letters[20:], False)
    own.wire.client.zrem(own.wire.key("outbox"), *rest)
    assert own.wire.key("outbox") not in own.wire.names()


def test_a_renewed_lease_is_left_alone(own: Own) -> None:
    own.wire.add()
    own.wire.add(lifo=1)
    jobs = own.take(2)
    own.renew(*((job.job_id, NOW) for job in jobs), now=LATER)
    assert own.reclaim(LATER + 99, lock_duration_ms=100) == (0, [], False, [])
    assert own.reclaim(LATER + 100, lock_duration_ms=100)[0] == 2
    assert own.wire.events()[-2:] == [event("stalled", 1), event("stalled", 2)]


def test_a_job_that_is_still_worked_on_stays_in_its_workers_hands(own: Own) -> None:
    own.add(*(new_job() for _ in range(230)))
    jobs = [own.take(count, consumer=name) for count, name in ((115, "one"), (115, "other"))]
    own.renew(*((job.job_id, NOW) for taken in jobs for job in taken), now=LATER)
    assert own.reclaim(LATER, lock_duration_ms=100)[0] == 0
    held = own.wire.ask("XPENDING", own.wire.key("stream"), "workers")["consumers"]
    assert {consumer["name"]: consumer["pending"] for consumer in held} == {"one": 115, "other": 115}


@pytest.mark.parametrize("source", [{}, {"lifo": 1}], ids=["stream", "list"])
def test_one_call_takes_back_so_many_and_says_whether_there_may_be_more(own: Own, source: dict[str, Word]) -> None:
    for _ in range(7):
        own.wire.add(**source)
    own.take(7)
    found = [own.reclaim(LATER, limit=3, max_stalled_count=9)[0::2] for _ in range(3)]
    assert found == [(3, True), (3, True), (1, False)]
    assert own.take(7, now=LATER)


def test_more_than_a_page_of_entries_is_looked_at(own: Own) -> None:
    own.add(*(new_job() for _ in range(230)))
    own.take(230)
    assert own.reclaim(LATER, limit=1000)[0::2] == (230, False)


WORDS: list[Word] = [NOW, "workers", "sweeper", 1000, 0, 1, 0, "", 0]


@pytest.mark.parametrize(
    ("place", "word", "why"),
    [
        (0, "now", "'now_ms' is not a whole number"),
        (3, 0, "a limit of 0 gets nowhere"),
        (3, "all", "'limit' is not a whole number"),
        (4, "", "'min_idle_ms' is not a whole number"),
        (5, -1, "'max_stalled_count' is not a whole number"),
        (6, "1.5", "'lock_duration_ms' is not a whole number"),
        (7, "a}b", "'a}b' is not the name of a queue"),
        (8, "", "'cluster' is neither 0 nor 1"),
    ],
)
def test_malformed_arguments_are_refused(own: Own, place: int, word: Word, why: str) -> None:
    own.wire.add()
    own.take()
    keys = list(own.reclaim_call().keys)
    own.refused("reclaim", keys, [*WORDS[:place], word, *WORDS[place + 1 :]], why)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda keys: (keys[1:], WORDS), "takes 9 keys and 9 arguments, not 8 and 9"),
        (lambda keys: (keys[::-1], WORDS), "does not end in ':stream'"),
        (lambda keys: (keys, WORDS[:-1]), "'cluster' is neither 0 nor 1"),
        (lambda keys: (keys, [*WORDS, "more"]), "takes 9 keys and 9 arguments, not 9 and 10"),
    ],
)
def test_other_keys_and_numbers_of_words_are_refused(
    own: Own, change: Callable[[list[str]], tuple[list[str], list[Word]]], why: str
) -> None:
    own.refused("reclaim", *change(list(own.reclaim_call().keys)), why)
