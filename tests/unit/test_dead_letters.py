"""Dead letters as they are read from the jobs that they are, and the jobs that replay them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal, TypeVar

import pytest

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.call import Conversation, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import dead_letters
from orchestration_queue.protocol.operations.additions import NewJob
from orchestration_queue.protocol.record import JobRecord

T = TypeVar("T")

LETTERS, OWNER = QueueKeys("letters"), QueueKeys("work")


def replied(conversation: Conversation[T], *trips: list[Reply]) -> T:
    """Hold a conversation in which these replies come, and return its result."""
    next(conversation)
    for replies in trips:
        try:
            conversation.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result
    raise AssertionError("more is asked for")


def stored(letter_id: str = "1", **members: Any) -> JobRecord:
    """Return the job that is a letter about job 7 of queue work."""
    envelope = {"originalQueue": "work", "originalJobId": "7", "data": {"n": 1}, **members}
    return JobRecord(letter_id, {"name": "load", "data": json.dumps(envelope), "timestamp": "5"})


def words(record: JobRecord | None) -> Reply:
    """Return a record as the server replies with it."""
    return [word.encode() for pair in record.fields.items() for word in pair] if record else []


def page(*records: JobRecord | None) -> dead_letters.DeadLetterPage:
    """Return the page of these jobs; None is one that is gone."""
    entries = [[f"{place}-0".encode(), [b"jobId", str(place).encode()]] for place in range(len(records))]
    return replied(dead_letters.dead_letter_page(LETTERS, "work"), [entries], [words(record) for record in records])


def test_a_page_has_the_letters_of_its_owner_only() -> None:
    read = page(stored(), None, stored(originalQueue="other"), JobRecord("3", {"data": "[1]"}))
    assert [(letter.name, letter.original_job_id) for letter in read.letters] == [("load", "7")]
    assert (read.entries, read.left_over, read.after) == (("0-0",), ("1-0",), None)
    no_id = {"originalQueue": "work", "data": 1}
    assert page(JobRecord("0", {"data": json.dumps(no_id)}), JobRecord("1", {"data": "{nonsense"})).letters == ()


def test_a_full_page_says_where_the_next_begins() -> None:
    assert page(*[stored()] * 199).after is None
    assert page(*[stored()] * 200).after == "199-0"


def test_a_letter_says_why_and_how_often_its_job_failed() -> None:
    (silent,) = page(stored()).letters
    assert (silent.failed_reason, silent.attempts_made, silent.data) == ("", 0, {"n": 1})
    (letter,) = page(stored(failedReason="broken", attemptsMade=3)).letters
    assert (letter.failed_reason, letter.attempts_made, letter.attempts) == ("broken", 3, 4)


def test_a_queue_keeps_no_dead_letters_of_its_own() -> None:
    assert dead_letters.dead_letter_keys(OWNER, "letters") == LETTERS
    with pytest.raises(InvalidOptionError, match="cannot keep its own dead letters"):
        dead_letters.dead_letter_keys(OWNER, "work")


def test_a_letter_whose_original_is_gone_has_no_kind() -> None:
    found = replied(dead_letters.letter(LETTERS, "work", "1"), [words(stored())], [[]])
    assert found is not None
    assert (found[0].failure_kind, found[0].traceback) == (None, None)


def test_letters_are_grouped_by_kind_or_by_what_failed_and_why() -> None:
    (one,) = page(stored(failedReason="no disk")).letters
    other, kindless = replace(one, failed_reason="no room"), replace(one, name="send")
    first, second = (replace(each, failure_kind="OSError") for each in (one, other))

    def sizes(by: Literal["kind", "reason"]) -> list[tuple[str, int]]:
        groups = dead_letters.group_letters([first, second, kindless], by)
        return [(group.kind, len(group.letters)) for group in groups]

    assert sizes("kind") == [("OSError", 2), ("", 1)]
    assert sizes("reason") == [("", 1), ("OSError", 1), ("OSError", 1)]


def test_replays_older_than_the_window_are_forgotten() -> None:
    forget, *_ = dead_letters.count_replay("counted", "letter", 1000, 5000)
    assert forget.args == ("-inf", 4000)


@pytest.mark.parametrize("original", [{}, {"failedReason": "x", "failureKind": "ValueError", "traceback": "there"}])
def test_one_letter_takes_kind_and_traceback_from_its_original(original: dict[str, str]) -> None:
    trips = [words(stored())], [words(JobRecord("7", {"name": "load", **original}))]
    found = replied(dead_letters.letter(LETTERS, "work", "1"), *trips)
    assert found is not None
    assert found[0].failure_kind == original.get("failureKind")
    assert found[0].traceback == original.get("traceback")


def test_there_is_no_letter_of_another_queue_or_of_a_job_that_is_gone() -> None:
    assert replied(dead_letters.letter(LETTERS, "work", "1"), [words(stored(originalQueue="other"))]) is None
    assert replied(dead_letters.letter(LETTERS, "work", "1"), [[]]) is None


def replay(name: str | None, options: dict[str, Any] | None = None, data: bytes | None = b"[2]") -> NewJob:
    """Return the job that replays the letter, beside an original of that name."""
    original = [None if name is None else name.encode(), data, json.dumps(options or {}).encode()]
    reply: Reply = [None, None, None] if name is None else original
    (job,) = replied(dead_letters.replays(LETTERS, OWNER, [stored()]), [reply])
    return job


def test_a_replay_has_data_and_options_of_the_original() -> None:
    options = {"attempts": 4, "jobId": "7", "delay": 9, "deduplication": {"id": "d"}, "parent": {}, "theirs": 1}
    job = replay("load", options)
    assert (job.name, job.data, job.options.attempts, job.options.deduplication) == ("load", "[2]", 4, None)
    assert json.loads(job.options_text or "") == {"attempts": 4, "theirs": 1}
    assert not job.options.delay


@pytest.mark.parametrize("name", [None, "another"])
def test_a_replay_has_the_letters_data_when_the_original_is_gone_or_another(name: str | None) -> None:
    job = replay(name, {"attempts": 4})
    assert (job.name, job.data, job.options_text) == ("load", '{"n":1}', "{}")
    assert job.options.attempts != 4
    assert replay("load", data=None).data == '{"n":1}'


def test_a_letter_is_replayed_under_one_id_that_differs_by_queue_and_time() -> None:
    ids = {
        dead_letters.replay_id("letters", stored()),
        dead_letters.replay_id("others", stored()),
        dead_letters.replay_id("letters", stored("2")),
        dead_letters.replay_id("letters", JobRecord("1", {**stored().fields, "timestamp": "6"})),
    }
    assert len(ids) == 4
    assert replay("load").options.job_id == replay(None).options.job_id == dead_letters.replay_id("letters", stored())
