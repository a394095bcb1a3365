"""What a move asks of the two queues, and what it makes of their words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from orchestration_queue.errors import JobNotFoundError, ServerError, StateError, UsageError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations.moves import MovedJobs, finish_moves, move, move_all
from tests.conversations import named, talk

HERE, THERE = QueueKeys("here"), QueueKeys("there")
NOW = 1_700_000_000_000
DAY_MS = 86_400_000


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


@pytest.mark.parametrize("days", [6, 7])
def test_what_the_source_may_have_forgotten_is_placed(days: int) -> None:
    calls = asked(resumed(b"removed", held_ms=NOW - days * DAY_MS))
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


def finished(fields: list[bytes | None], held_for: bytes | None = None, end: bytes = b"ok") -> tuple[int, list[Call]]:
    """Continue the overdue move of job 7 of this queue; return how many failed, and all calls."""
    calls: list[Call] = []

    def answer(call: Call) -> Reply:
        calls.append(call)
        if call.name == "ZRANGEBYSCORE":
            return [b"7"]
        if call.name == "HMGET":
            return fields if call.args[0] == "movingTo" else [None] * 3
        if call.name == "HGET":
            return held_for
        return [b"not_found", b""] if call.name == "oq1_moveOut" else end

    return talk(finish_moves(HERE, NOW), answer), calls


def test_a_move_is_continued_ten_seconds_after_it_began() -> None:
    _, calls = finished([None] * 4)
    assert calls[0].args == ("-inf", NOW - 10_000, "LIMIT", 0, 20)


def test_a_job_that_no_longer_moves_is_forgotten() -> None:
    failures, calls = finished([None] * 4)
    assert (failures, calls[-1]) == (0, Call("ZREM", (HERE.moving,), ("7",)))


def test_a_move_that_cannot_be_continued_comes_after_the_others() -> None:
    failures, calls = finished([b"there", None, None, None])
    assert [call.keys[0] for call in named(calls, "oq1_moveOut")] == [HERE.stream]
    assert (failures, calls[-1]) == (1, Call("ZADD", (HERE.moving,), ("XX", NOW, "7")))


@pytest.mark.parametrize("held_for", [None, b"another"])
def test_a_job_that_its_source_no_longer_has_is_placed_here(held_for: bytes | None) -> None:
    failures, calls = finished([None, b"there", b"token", str(NOW - 5).encode()], held_for)
    assert (failures, named(calls, "oq1_moveOut")) == (0, [])
    assert calls[-1] == oq1.land_job(HERE, job_id="7", token="token", kept=True, now_ms=NOW)
    assert named(calls, "HGET")[0].keys == (THERE.job("7"),)


def test_a_job_that_was_removed_while_it_arrived_is_removed_here() -> None:
    failures, calls = finished([None, b"there", b"token", str(NOW - 5).encode()], None, b"removed")
    assert failures == 1
    assert oq1.land_job(HERE, job_id="7", token="token", kept=False, now_ms=NOW) in calls


def test_a_job_that_its_source_still_has_is_moved_again() -> None:
    _, calls = finished([None, b"there", b"token", b"5"], b"token")
    assert [call.keys[0] for call in named(calls, "oq1_moveOut")] == [THERE.stream]


@pytest.mark.parametrize(("state", "advice"), [(b"active", "; release it first."), (b"completed", "can be moved.")])
def test_a_job_that_runs_may_be_moved_once_it_is_released(state: bytes, advice: str) -> None:
    def reply_to(call: Call) -> Reply:
        return [None] * 3 if call.name == "HMGET" else [b"state", state]

    with pytest.raises(StateError) as refused:
        asked(reply_to)
    assert str(refused.value).endswith(advice)


def test_jobs_that_wait_for_a_moved_one_learn_its_new_name() -> None:
    parents = [HERE.member("1").encode(), QueueKeys("other").member("2").encode(), HERE.member("3").encode()]
    out = [b"ok", b"token", b"waiting", 0, b"", [], [], [], parents, [], b"digest", 0]

    def reply_to(call: Call) -> Reply:
        if call.name == "HMGET":
            return [None] * 3
        return out if call.name == "oq1_moveOut" else b"ok"

    renames = named(asked(reply_to), "oq1_renameDependency")
    assert renames == [
        oq1.rename_dependency(keys, old=HERE.member("7"), new=THERE.member("7"), job_ids=job_ids)
        for keys, job_ids in ((HERE, ["1", "3"]), (QueueKeys("other"), ["2"]))
    ]
