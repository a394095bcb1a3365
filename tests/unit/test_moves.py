"""What a move asks of the two queues, and what it makes of their words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from orchestration_queue.errors import JobNotFoundError, ServerError, UsageError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations.moves import MovedJobs, move, move_all

HERE, THERE = QueueKeys("here"), QueueKeys("there")
NOW = 1_700_000_000_000
WEEK_MS = 7 * 86_400_000


def asked(reply_to: Callable[[Call], Reply], delay_ms: int | None = None) -> list[Call]:
    """Move a job by these replies, and return all calls."""
    conversation = move(HERE, THERE, "7", NOW, delay_ms)
    calls: list[Call] = []
    with suppress(StopIteration):
        trip = next(conversation)
        while True:
            calls += trip
            trip = conversation.send([reply_to(call) for call in trip])
    return calls


def resumed(end: bytes, *, held_ms: int = NOW - 5, came_from: bytes = b"here") -> Callable[[Call], Reply]:
    """Return replies for a job that an earlier call has moved out."""

    def reply_to(call: Call) -> Reply:
        if call.name == "HMGET":
            return [came_from, b"token", str(held_ms).encode()]
        return [b"not_found", b""] if call.name == "oq1_moveOut" else end

    return reply_to


def test_a_job_cannot_be_moved_to_where_it_is() -> None:
    with pytest.raises(UsageError, match="name another queue"):
        next(move(HERE, HERE, "7", NOW))


@pytest.mark.parametrize(("delay_ms", "word"), [(None, ""), (0, "0"), (5, "5")])
def test_no_delay_is_not_a_delay_of_zero(delay_ms: int | None, word: str) -> None:
    out = next(move(HERE, THERE, "7", NOW, delay_ms))[0]
    token = next(value for value in out.args if isinstance(value, str) and len(value) == 32)
    assert out == oq1.move_out(HERE, job_id="7", now_ms=NOW, target="there", token=token, delay=word, group=GROUP)


def test_what_an_earlier_call_moved_out_is_placed() -> None:
    calls = asked(resumed(b"ok"))
    assert calls[-1] == oq1.land_job(THERE, job_id="7", token="token", kept=True, now_ms=NOW)


def test_a_job_that_was_removed_on_the_way_is_removed_there() -> None:
    with pytest.raises(JobNotFoundError):
        asked(resumed(b"removed"))


def test_what_the_source_may_have_forgotten_is_placed() -> None:
    calls = asked(resumed(b"removed", held_ms=NOW - WEEK_MS))
    assert calls[-1] == oq1.land_job(THERE, job_id="7", token="token", kept=True, now_ms=NOW)


def test_a_job_that_came_from_elsewhere_is_not_the_one_that_is_missing() -> None:
    with pytest.raises(JobNotFoundError):
        asked(resumed(b"ok", came_from=b"elsewhere"))


def test_a_job_that_cannot_be_moved_keeps_no_other() -> None:
    conversation = move_all(HERE, THERE, ["7", "8"], NOW)
    trip = next(conversation)
    with pytest.raises(StopIteration) as ended:
        conversation.send([[None] * 3 if call.name == "HMGET" else [b"not_found", b""] for call in trip])
    moved: MovedJobs = ended.value.value
    assert moved.moved == ()
    assert set(moved.left) == {"7", "8"}


def test_an_unknown_word_is_an_error() -> None:
    def reply_to(call: Call) -> Reply:
        return [None] * 3 if call.name == "HMGET" else [b"active", b""]

    with pytest.raises(ServerError, match="oq library status"):
        asked(reply_to)
