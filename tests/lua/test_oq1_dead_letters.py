"""`oq1_exchange`: a job that fails for good leaves a dead letter, with its failure or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lua.oq1 import Own, completed, failed, new_job, paused
from tests.lua.oq1_reference import same_but_for_entries
from tests.lua.wire import NOW, Wire, Word, event

LATER = NOW + 5000


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


@pytest.fixture
def dead(own: Own) -> Wire:
    return own.wire.sibling("dead")


def letters(dead: Wire) -> list[dict[str, Any]]:
    """What the dead letters say, oldest first."""
    return [json.loads(dead.job(job_id)["data"]) for job_id in dead.stream_ids()]


def test_a_letter_is_the_job_that_other_clients_add(own: Own, dead: Wire) -> None:
    own.add(new_job("import", data='{"n":1}'))
    (job,) = own.take()
    reply = own.exchange(failed(job, 'no "disk"\n'), dead_letter="dead", now=LATER)
    assert (reply.outcomes, reply.letters) == ("f", [])
    theirs = own.wire.sibling("theirs")
    told = {"originalQueue": "q", "originalJobId": "1", "data": {"n": 1}, "failedReason": 'no "disk"\n'}
    data = json.dumps(told | {"attemptsMade": 0}, separators=(",", ":"))
    assert dead.job("1")["data"] == data
    theirs.add("import", data=data, timestamp=LATER)
    assert same_but_for_entries(dead) == same_but_for_entries(theirs)
    assert dead.events() == [event("added", 1, name="import")]


PAYLOADS = [
    ('{"n":1}', True),
    ("{}", True),
    ("[]", True),
    ('{"empty":[],"none":{}}', True),
    ("12345678901234567890", True),
    ("1.10", True),
    ("1e400", True),
    ("null", True),
    ('"text"', True),
    ('{\n  "pretty": true\n}', True),
    ('"\\u00e9\N{SNOWMAN}"', True),
    ("gz:H4sIAAAA", False),
    ("msgpack:gaFuAQ==", False),
    ("", False),
    ("NaN", False),
    ('{"n":Infinity}', False),
    ("{broken", False),
    ('a "quoted" text', False),
]


@pytest.mark.parametrize(("payload", "is_json"), PAYLOADS, ids=[payload for payload, _ in PAYLOADS])
def test_the_payload_is_embedded_as_it_is_or_as_text(own: Own, dead: Wire, payload: str, is_json: bool) -> None:
    own.add(new_job(data=payload))
    (job,) = own.take()
    own.exchange(failed(job), dead_letter="dead")
    data = dead.job("1")["data"]
    if is_json:
        assert f'"originalJobId":"1","data":{payload},"failedReason":"boom","attemptsMade":0}}' in data
    else:
        assert json.loads(data)["data"] == payload


@pytest.mark.parametrize("attempts", [0, 1, 2, 3])
def test_only_the_last_failure_leaves_a_letter(own: Own, dead: Wire, attempts: int) -> None:
    own.add(new_job())
    runs = max(attempts, 1)
    for number in range(runs):
        assert letters(dead) == []
        (job,) = own.take(now=LATER + number)
        own.exchange(failed(job, max_attempts=attempts), dead_letter="dead", now=LATER + number)
    assert [letter["attemptsMade"] for letter in letters(dead)] == [runs - 1]


def test_a_job_that_is_not_kept_leaves_a_letter_all_the_same(own: Own, dead: Wire) -> None:
    own.add(new_job(data='{"n":1}'))
    (job,) = own.take()
    own.exchange(failed(job, remove_mode="true"), dead_letter="dead")
    assert not own.wire.exists("job:1")
    assert letters(dead)[0]["data"] == {"n": 1}


def test_telling_twice_leaves_one_letter(own: Own, dead: Wire) -> None:
    own.add(new_job())
    (job,) = own.take()
    for _ in range(3):
        own.exchange(failed(job), dead_letter="dead")
    assert len(letters(dead)) == 1


def test_what_has_not_failed_leaves_none(own: Own, dead: Wire) -> None:
    own.add(*(new_job() for _ in range(5)))
    done, flaky, postponed, suspended, lost = own.take(5)
    own.wire.make_job(lost.job_id, processedOn=NOW + 1)
    settled = (completed(done), failed(flaky, max_attempts=2), paused("d", postponed), paused("s", suspended))
    assert own.exchange(*settled, failed(lost), dead_letter="dead").outcomes == "crdsl"
    assert dead.names() == set()


def test_without_a_queue_for_them_there_are_none(own: Own) -> None:
    own.add(new_job())
    (job,) = own.take()
    assert own.exchange(failed(job)).letters == []
    assert {str(key).partition("}")[0] for key in own.wire.ask("KEYS", "*")} == {"glide:{q"}


@pytest.mark.parametrize(
    ("fate", "ordering", "reason"),
    [("fail", "o", "group rate limited"), ("front", "", "Cannot rate limit group: no_group")],
)
def test_a_held_back_job_that_fails_leaves_a_letter(
    own: Own, dead: Wire, fate: str, ordering: str, reason: str
) -> None:
    own.wire.add(orderingKey=ordering)
    own.wire.make_job("1", attemptsMade=2)
    (job,) = own.take()
    own.exchange(paused("g", job, fate, wait_ms=9), dead_letter="dead")
    assert [(told["failedReason"], told["attemptsMade"]) for told in letters(dead)] == [(reason, 2)]


def test_a_parked_job_leaves_none(own: Own, dead: Wire) -> None:
    own.wire.add(orderingKey="o")
    (job,) = own.take()
    assert own.exchange(paused("g", job, "front", wait_ms=9), dead_letter="dead").outcomes == "g"
    assert dead.names() == set()


@pytest.mark.parametrize("how", ["before it started", "while it ran", "flagged before"])
def test_a_revoked_job_is_missed_by_nobody(own: Own, dead: Wire, how: str) -> None:
    own.add(new_job())
    if how == "flagged before":
        own.wire.make_job("1", revoked=1)
        assert own.exchange(want=1, dead_letter="dead").started == []
    elif how == "before it started":
        assert own.wire.call("revoke", jobId="1") == "revoked"
        assert own.exchange(want=1, dead_letter="dead").started == []
    else:
        (job,) = own.take()
        assert own.wire.call("revoke", jobId="1") == "flagged"
        assert own.exchange(failed(job, "revoked"), dead_letter="dead").outcomes == "f"
    assert own.wire.job("1")["failedReason"] == "revoked"
    assert dead.names() == set()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ttl": 10}, "expired"),
        ({"orderingKey": "o", "tbCapacity": 1000, "tbRefillRate": 1}, "cost exceeds token bucket capacity"),
    ],
)
def test_what_fails_before_it_starts_leaves_none(own: Own, dead: Wire, fields: dict[str, Word], reason: str) -> None:
    own.wire.add(**fields)
    own.wire.make_job("1", cost=9999)
    assert own.exchange(want=1, dead_letter="dead", now=LATER).started == []
    assert own.wire.job("1")["failedReason"] == reason
    assert dead.names() == set()


# -- where the letter cannot be written with the failure -----------------------------------------------------------


def kept(own: Own) -> list[tuple[str, float]]:
    """The letters in the outbox, and since when."""
    found: Any = own.wire.client.zrange(own.wire.key("outbox"), 0, -1, withscores=True)
    return list(found)


def test_in_a_cluster_the_letter_is_kept_for_the_caller(own: Own, dead: Wire) -> None:
    own.add(new_job("import", data='{"n":1}'))
    (job,) = own.take()
    reply = own.exchange(failed(job), dead_letter="dead", cluster=True, now=LATER)
    ((to, letter_id, name, data),) = reply.letters
    assert (to, letter_id, name) == ("dead", f"dead.q.1.{NOW}", "import")
    assert json.loads(data)["failedReason"] == "boom"
    ((letter, since),) = kept(own)
    assert (json.loads(letter), since) == ([to, letter_id, name, data], LATER)
    assert dead.names() == set()
    for added in (letter_id, "duplicate"):
        assert dead.call("addJob", jobName=name, data=data, customJobId=letter_id) == added


def test_the_ids_of_letters_stay_within_the_limit_and_apart(own: Own) -> None:
    long = "x" * 256
    own.add(new_job(custom_id=long))
    (job,) = own.take()
    ((_, letter_id, *_),) = own.exchange(failed(job), dead_letter="dead", cluster=True).letters
    assert len(letter_id) == len("dead.") + 40
    own.add(new_job(custom_id="y" * 256))
    (job,) = own.take()
    ((_, other_id, *_),) = own.exchange(failed(job), dead_letter="dead", cluster=True).letters
    assert other_id != letter_id


@pytest.mark.parametrize("broken", ["id", "stream"])
def test_a_broken_queue_of_dead_letters_does_not_keep_the_job_from_failing(own: Own, dead: Wire, broken: str) -> None:
    dead.ask("SET", dead.key(broken), "nonsense")
    own.add(new_job(), new_job())
    first, second = own.take(2)
    reply = own.exchange(failed(first), completed(second), dead_letter="dead")
    assert reply.outcomes == "fc"
    assert [letter[1] for letter in reply.letters] == [f"dead.q.1.{NOW}"]
    assert len(kept(own)) == 1
    assert own.wire.pending() == []


def test_a_letter_for_which_there_is_no_id_is_kept_for_the_caller(own: Own, dead: Wire) -> None:
    pipeline = dead.client.pipeline(transaction=False)
    for number in range(1, 1010):
        pipeline.hset(dead.key(f"job:{number}"), "state", "completed")
    pipeline.execute()
    own.add(new_job())
    (job,) = own.take()
    assert len(own.exchange(failed(job), dead_letter="dead").letters) == 1
