"""Each outcome of a job becomes one record, and what the server leaves to us becomes calls."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, LeaseLostError, ServerError
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import (
    ChildrenWait,
    Completion,
    Delivery,
    Failure,
    GroupHold,
    Lease,
    Postponement,
    Settlement,
    Suspension,
)
from orchestration_queue.protocol.operations import exchanges
from orchestration_queue.protocol.operations.dead_letters import post
from orchestration_queue.protocol.operations.notifications import (
    NONE_PENDING,
    Notification,
    PendingNotifications,
    notify,
    notify_all,
)
from orchestration_queue.protocol.outcome import Verdict, settled
from orchestration_queue.protocol.placement import new_job
from orchestration_queue.protocol.record import JobRecord

KEYS = QueueKeys("q")
NOW = 1_700_000_000_000
LEASE = Lease(JobRecord("7", {"processedOn": str(NOW), "stalledCount": "2"}), "5-1")
NEWS = [b"other", b"9", b"glide:{q}:7", b"success"]
LETTER = b'["dead","dead.q.7.1700000000000","import","{\\"originalQueue\\":\\"q\\"}"]'
OTHER = b'["lost","dead.q.8.1700000000000","im\xffport","{}"]'


@pytest.mark.parametrize(
    ("settlement", "said"),
    [
        (Completion(LEASE, "1", Retention(count=3)), {"kind": "c", "payload": "1", "remove_count": 3}),
        (Failure(LEASE, "no", 3, 50), {"kind": "f", "payload": "no", "max_attempts": 3, "wait_ms": 50}),
        (Postponement(LEASE, NOW + 9, "{}"), {"kind": "d", "payload": "{}", "wait_ms": NOW + 9}),
        (ChildrenWait(LEASE), {"kind": "w", "payload": "", "wait_ms": 0}),
        (Suspension(LEASE, "ask", 60), {"kind": "s", "payload": "ask", "wait_ms": 60}),
        (GroupHold(LEASE, 500, "back"), {"kind": "g", "payload": "back", "wait_ms": 500, "extend": True}),
        (GroupHold(LEASE, 500, "fail", is_extending=False), {"kind": "g", "payload": "fail", "extend": False}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_settlement_has_its_words(settlement: Settlement, said: dict[str, Any]) -> None:
    record = settled(settlement)
    claim = {"job_id": "7", "entry_id": "5-1", "taken_ms": NOW, "stalled_count": 2}
    assert {name: getattr(record, name) for name in claim | said} == claim | said


def test_every_letter_of_the_server_is_a_verdict() -> None:
    operation = exchanges.exchange(KEYS, "w", NOW)
    trip = operation.read([b"crfdwasgl", [], [], b"", [], []])
    assert trip.verdicts == tuple(Verdict)
    assert (trip.started, trip.letters, bool(trip.pending)) == ((), (), False)


def test_what_concerns_other_servers_is_left_as_calls() -> None:
    operation = exchanges.exchange(KEYS, "w", NOW, cluster=True, dead_letter="dead")
    trip = operation.read([b"cf", [], NEWS, b"", [LETTER], [b"8"]])
    assert trip.letters == (LETTER,)
    assert trip.pending == PendingNotifications((Notification("other", "9", "glide:{q}:7", "success"),), ("8",))
    here, there = notify(KEYS, trip.pending, NOW)
    assert [(keys.queue, operation.call.name) for keys, operation in (here, there)] == [
        ("q", "oq1_propagate"),
        ("other", "oq1_propagate"),
    ]


def test_what_was_taken_back_is_told() -> None:
    operation = exchanges.reclaim(KEYS, "w", 1, 1, 1, NOW, dead_letter="dead", cluster=True)
    nothing = operation.read([0, [], 0, [], [], [], 0])
    assert nothing == exchanges.Reclaimed(
        retried=0, failed=(), has_more=False, letters=(), pending=NONE_PENDING, timed_out=0
    )
    reclaimed = operation.read([3, [b"7"], 1, [LETTER], NEWS, [], 2])
    assert (reclaimed.retried, reclaimed.failed, reclaimed.has_more) == (3, ("7",), True)
    assert reclaimed.letters == (LETTER,)
    assert ([one.dependent for one in reclaimed.pending.news], reclaimed.timed_out) == (["9"], 2)


def test_kept_letters_are_struck_off_once_they_are_there() -> None:
    steps = post(KEYS, [LETTER], NOW)
    (added,) = next(steps)
    assert (added.name, added.keys[0]) == ("glidemq_addJob", "glide:{dead}:id")
    assert added.args[:4] == ("import", '{"originalQueue":"q"}', "{}", NOW)
    assert "dead.q.7.1700000000000" in added.args
    (gone,) = steps.send([b"duplicate"])
    assert gone.words == ("ZREM", "glide:{q}:outbox", LETTER)
    with pytest.raises(StopIteration) as end:
        steps.send([1])
    assert end.value.value == {}


@pytest.mark.parametrize("refusal", [ServerError("no room"), b"ERR:ID_EXHAUSTED"], ids=["error", "word"])
def test_letters_that_nobody_takes_stay_and_let_others_go_first(refusal: Any) -> None:
    steps = post(KEYS, [OTHER, LETTER], NOW)
    assert [call.keys[0] for call in next(steps)] == ["glide:{lost}:id", "glide:{dead}:id"]
    gone, last = steps.send([refusal, b"dead.q.7.1700000000000"])
    assert gone.words[2:] == (LETTER,)
    assert last.words == ("ZADD", "glide:{q}:outbox", "XX", NOW, OTHER)
    with pytest.raises(StopIteration) as end:
        steps.send([1, 0])
    assert list(end.value.value) == ["lost"]


def test_what_is_told_may_leave_more_to_tell() -> None:
    pending = PendingNotifications((Notification("other", "9", "glide:{q}:7", "failed"),))
    steps = notify_all([(KEYS, pending)], NOW)
    (first,) = next(steps)
    (second,) = steps.send([[[], [], [b"9"]]])
    assert (first.keys[0], second.keys[0]) == ("glide:{other}:stream",) * 2
    assert second.args[-1] == "9"
    with pytest.raises(StopIteration):
        steps.send([[[b"x", b"upstream_failed"], [], []]])


def test_a_history_has_failed_attempts_and_completed_ones_of_tracked_jobs() -> None:
    tracked = Lease(JobRecord("8", {"processedOn": str(NOW), "tracked": "1"}), "5-2")

    def noted(*settlements: Settlement) -> list[str]:
        call = exchanges.attempt_notes(KEYS, "w", "h", NOW, settlements)
        return [] if call is None else [str(word) for word in call.args if word in ("7", "8")]

    assert noted(Failure(LEASE, "no"), Completion(LEASE, "1"), Completion(tracked, "1")) == ["7", "8"]
    assert noted(Completion(LEASE, "1")) == noted(Postponement(tracked, NOW)) == noted() == []


def test_children_that_were_there_are_not_told_as_new() -> None:
    jobs = [new_job("work", "{}", JobOptions(job_id=name), NOW) for name in "abc"]
    adding = exchanges.add_children(KEYS, LEASE, jobs, NOW)
    assert adding.read([b"a", b"duplicate", b"c"]) == ["a", "c"]
    with pytest.raises(LeaseLostError):
        adding.read(b"lost")
    with pytest.raises(InvalidOptionError, match="Child 'b' costs more"):
        adding.read([b"a", b"ERR:COST_EXCEEDS_CAPACITY", b"c"])


def test_a_wait_brings_jobs_and_signals_of_two_kinds() -> None:
    jobs = [KEYS.stream.encode(), [[b"5-1", [b"jobId", b"7"]]]]
    signals = [KEYS.wake_one.encode(), [[b"1-0", [b"due", b"1"]], [b"2-0", [b"ready", b"1"]], [b"3-0", None]]]
    listening = exchanges.listen(KEYS, "w", 5, 100)
    assert listening.read([jobs, signals]) == exchanges.Wakeup([Delivery("7", "5-1")], ["2-0", "3-0"], ["1-0"])
    assert listening.read(None) == exchanges.Wakeup([], [], [])
    watching = exchanges.news(KEYS, "0", "0", 100)
    assert watching.read([jobs, signals]) == exchanges.Wakeup([], ["2-0", "3-0"], ["1-0"])
    assert watching.read(None) == exchanges.Wakeup([], [], [])


def test_suspended_jobs_are_swept_by_the_prefix_of_their_queue() -> None:
    assert f"{KEYS.base}:" in exchanges.sweep_suspended(KEYS, NOW).words


def test_what_is_left_to_tell_adds_up() -> None:
    one, other = Notification("q", "1", "m", "failed"), Notification("q", "2", "m", "failed")
    both = PendingNotifications((one,), ("7",)) + PendingNotifications((other,), ("8",))
    assert both == PendingNotifications((one, other), ("7", "8"))
    assert PendingNotifications((one,))
    assert PendingNotifications(job_ids=("7",))
    assert not NONE_PENDING
