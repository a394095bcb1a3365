"""Messages of a broadcast: what they may ask for, and what a subscription does with them and says of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, ServerError, UsageError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import (
    ChildrenWait,
    Completion,
    Failure,
    GroupHold,
    Lease,
    Postponement,
    Settlement,
    Suspension,
)
from orchestration_queue.protocol.operations.broadcasts import (
    check_length,
    check_options,
    check_start,
    is_unused,
    subscriptions,
)
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.protocol.operations.job_records import PRIORITY_SHIFT
from orchestration_queue.protocol.operations.membership import Member, Message, hand_on
from orchestration_queue.protocol.operations.usage import report_tokens
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.protocol.record import JobRecord

MEMBER = Member(QueueKeys("news"), "mailer", "w-1")
NOW = 1_700_000_000_000


@pytest.mark.parametrize("options", [{}, {"job_id": "mine"}, {"delay": timedelta(seconds=5)}, {"attempts": 3}])
def test_options_that_messages_have(options: dict[str, Any]) -> None:
    given = JobOptions(**options)
    assert check_options(given) is given


@pytest.mark.parametrize("options", [{"priority": 1}, {"lifo": True}, {"job_id": "a||b"}, {"pools": {"p": 1}}])
def test_options_that_messages_do_not_have(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        check_options(JobOptions(**options))


def test_a_broadcast_keeps_one_message_or_more() -> None:
    assert (check_length(None), check_length(1), check_length(1000)) == (None, 1, 1000)
    for length in (0, -1, True, 1.5, "5"):
        with pytest.raises(InvalidOptionError):
            check_length(length)  # type: ignore[arg-type]


@pytest.mark.parametrize("start", ["$", "0-0", "0", "1700000000000-3"])
def test_a_subscription_starts_at_an_entry_or_with_new_messages(start: str) -> None:
    assert check_start(start) == start


@pytest.mark.parametrize("start", ["", "now", "1-", "-1", "٣-0", 0, None])
def test_another_start_is_refused(start: Any) -> None:
    with pytest.raises(InvalidOptionError, match="`start_from` must be"):
        check_start(start)


def test_a_broadcast_is_unused_until_there_is_a_message_or_a_subscription() -> None:
    assert is_unused(ServerError("ERR no such key"))
    assert is_unused(ServerError("ERR The XGROUP subcommand requires the key to exist."))
    assert not is_unused(ServerError("LOADING"))


@pytest.mark.parametrize("lag", [None, 3])
def test_the_lag_of_a_subscription_may_be_unknown(lag: int | None) -> None:
    group = [b"name", b"mailer", b"consumers", 2, b"pending", 1, b"last-delivered-id", b"5-1", b"lag", lag]
    (found,) = subscriptions(QueueKeys("news")).read([group])
    assert (found.name, found.lag, found.pending, found.workers, found.last_delivered) == ("mailer", lag, 1, 2, "5-1")


def test_tokens_are_a_whole_number() -> None:
    assert report_tokens(QueueKeys("q"), "1", 0).args == ("tpmTokens", 0)
    assert report_tokens(QueueKeys("q"), "1", 7).args == ("tpmTokens", 7)
    for tokens in (-1, True, 1.5, "5"):
        with pytest.raises(UsageError):
            report_tokens(QueueKeys("q"), "1", tokens)  # type: ignore[arg-type]


def started(**fields: str) -> Lease:
    return Lease(
        JobRecord("7", {"name": "orders.new", "data": '{"n":1}', "processedOn": "1699999999000", **fields}), "1-0"
    )


def names(calls: Sequence[Call]) -> list[str]:
    return [call.name for call in calls]


@pytest.mark.parametrize(
    ("failed", "max_attempts", "reason", "has_letter"),
    [
        ("0", 0, "no", True),
        ("0", 2, "no", False),
        ("1", 2, "no", True),
        ("2", 2, "no", True),
        ("1", 2, "revoked", False),
    ],
)
def test_a_message_that_failed_for_good_leaves_a_letter_first(
    failed: str, max_attempts: int, reason: str, has_letter: bool
) -> None:
    failure = Failure(started(attemptsMade=failed), reason, max_attempts)
    told = MEMBER.settle(failure, NOW, dead_letter="dead")
    assert names(told.calls) == [*["glidemq_addJob"] * has_letter, "glidemq_fail"]
    assert names(MEMBER.settle(failure, NOW).calls) == ["glidemq_fail"]
    assert [told.read(word) for word in (b"retrying", b"failed")] == [Verdict.RETRYING, Verdict.FAILED]


def test_a_letter_of_one_attempt_has_one_id_however_often_it_is_sent() -> None:
    first, again, other = (
        MEMBER.settle(Failure(started(processedOn=taken), "no"), NOW + later, dead_letter="dead").calls[0].args
        for taken, later in (("5", 0), ("5", 9), ("6", 0))
    )
    ids = [[word for word in words if str(word).startswith("dead.")] for words in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


def test_a_completed_message_notifies_the_parent_that_another_client_gave_it() -> None:
    def notices(**fields: str) -> list[str]:
        return names(MEMBER.settle(Completion(started(**fields), "1"), NOW).calls)[1:]

    assert notices() == notices(parentId="p") == notices(parentQueue="other") == []
    assert notices(parentId="p", parentQueue="other") == ["glidemq_completeChild"]


def test_a_message_is_postponed_for_its_own_subscription() -> None:
    told = MEMBER.settle(Postponement(started(priority="2"), NOW + 5), NOW)
    later, done = told.calls
    assert (later.name, later.args) == ("ZADD", (2 * PRIORITY_SHIFT + NOW + 5, "7||mailer"))
    assert (done.name, done.args) == ("XACK", ("mailer", "1-0"))
    assert told.read(None) is Verdict.DELAYED


@pytest.mark.parametrize(
    ("settlement", "why"),
    [
        (Postponement(started(), NOW, "{}"), "get other data"),
        (ChildrenWait(started()), "wait for children"),
        (Suspension(started()), "be suspended"),
        (GroupHold(started(), 5), "hold back a group"),
    ],
)
def test_what_would_change_the_shared_record_fails_the_message(settlement: Settlement, why: str) -> None:
    (call,) = MEMBER.settle(settlement, NOW).calls
    assert call.name == "glidemq_fail"
    assert any(why in str(word) for word in call.args)


@pytest.mark.parametrize(
    ("held", "wanted", "renewal"),
    [
        ([[b"1-0"]], [b"active", None], Renewal.RENEWED),
        ([[b"1-0"]], [b"active", b"1"], Renewal.REVOKED),
        ([[b"1-0"]], [None, None], Renewal.LOST),
        ([], [b"active", None], Renewal.LOST),
    ],
)
def test_a_lease_on_a_message_is_looked_after(held: Any, wanted: Any, renewal: Renewal) -> None:
    assert MEMBER.read_look(held, wanted) is renewal


def test_messages_are_read_with_what_a_trimmed_entry_lacks() -> None:
    operation = MEMBER.read(5, 100)
    assert operation.call.args == (
        "GROUP",
        "mailer",
        "w-1",
        "COUNT",
        5,
        "BLOCK",
        100,
        "STREAMS",
        MEMBER.keys.stream,
        ">",
    )
    assert MEMBER.read(5).call.args[5] == "STREAMS"
    entries = [[b"1-0", [b"jobId", b"7", b"name", b"a.b", b"retryGroup", b"g"]], [b"2-0", None]]
    assert operation.read([[b"stream", entries]]) == [Message("7", "1-0", "a.b", "g"), Message("", "2-0", "", "")]
    assert operation.read(None) == []


def test_a_message_starts_with_the_attempts_of_its_own_subscription() -> None:
    message = Message("7", "1-0", "a.b", "")
    lease = MEMBER.read_start(message, None, [b"attemptsMade", b"9", b"name", b"a.b"])
    assert isinstance(lease, Lease)
    assert lease.record.attempts_made == 0
    assert MEMBER.read_start(message, b"2", b"REVOKED") == "REVOKED"
    again = MEMBER.read_start(message, b"2", [b"name", b"a.b"])
    assert isinstance(again, Lease)
    assert again.record.attempts_made == 2


@pytest.mark.parametrize(("stalls", "sent"), [(1, ["HINCRBY", "EXPIRE"]), (2, ["glidemq_fail"]), (3, ["glidemq_fail"])])
def test_a_message_with_which_workers_were_lost_too_often_fails(stalls: int, sent: list[str]) -> None:
    message = Message("7", "1-0", "a.b", "")
    assert names(hand_on(MEMBER, message, stalls, 2, NOW))[:2] == sent
