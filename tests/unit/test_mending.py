"""When a group of ordered jobs is blocked for good, and when it only waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestration_queue.protocol.call import Call, Conversation, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.repairs import StalledGroup, judge_group, stalled_groups
from orchestration_queue.protocol.record import JobRecord
from tests.conversations import talk

STATE = {"active": "1", "nextSeq": "3", "maxConcurrency": "1"}


def jobs(**states: str) -> list[JobRecord]:
    """Jobs by the number of their turn."""
    return [
        JobRecord(number, {"state": state, "groupKey": "k", "orderingSeq": number.removeprefix("n")})
        for number, state in states.items()
    ]


NEXT = jobs(n3="waiting", n4="group-waiting")


@pytest.mark.parametrize(
    ("why", "state", "members"),
    [
        ("no job is parked", {}, jobs(n3="waiting")),
        ("one is active", {}, jobs(n2="active", n3="group-waiting")),
        ("one pauses between two attempts", {}, jobs(n1="delayed", n3="group-waiting")),
        ("one is suspended", {}, jobs(n2="suspended", n3="group-waiting")),
        ("one that has no turn may be active", {}, jobs(n0="waiting", n3="group-waiting")),
        ("the next is on its way", {"active": "0"}, jobs(n3="waiting", n4="group-waiting")),
        ("the next is on its way, and one more may start", {"active": "1", "maxConcurrency": "2"}, NEXT),
        ("the next is due later", {"active": "0"}, jobs(n3="delayed", n4="group-waiting")),
        (
            "the next is behind one to be skipped",
            {"active": "0", "skip:3": "1"},
            jobs(n4="waiting", n5="group-waiting"),
        ),
    ],
)
def test_a_group_that_goes_on_by_itself(why: str, state: dict[str, str], members: list[JobRecord]) -> None:
    assert judge_group("k", STATE | state, members) is None, why


@pytest.mark.parametrize(
    ("why", "state", "members", "turn"),
    [
        ("the active one is gone", {}, jobs(n3="group-waiting", n4="group-waiting"), 3),
        ("the active one is gone, and the next is not parked", {}, jobs(n3="waiting", n4="group-waiting"), 3),
        ("the next is gone", {"active": "0"}, jobs(n5="group-waiting", n6="waiting"), 5),
        ("the next is gone, and who follows is not parked", {"active": "0"}, jobs(n4="waiting", n6="group-waiting"), 4),
        ("no job was woken", {"active": "0"}, jobs(n3="group-waiting"), 3),
        ("no job was woken after one to be skipped", {"active": "0", "skip:3": "1"}, jobs(n4="group-waiting"), 4),
        ("one that has had its turn was put back", {"active": "0"}, jobs(n2="group-waiting", n4="waiting"), 3),
        ("no limit is stored, and one runs", {"maxConcurrency": "0"}, NEXT, 3),
    ],
)
def test_a_group_that_does_not(why: str, state: dict[str, str], members: list[JobRecord], turn: int) -> None:
    seen = STATE | state
    parked = sum(job.fields["state"] == "group-waiting" for job in members)
    assert judge_group("k", seen, members) == StalledGroup("k", parked, int(seen["active"]), 3, turn), why


def test_groups_are_judged_by_the_unfinished_jobs_that_belong_to_them() -> None:
    keys = QueueKeys("q")
    blocked = {"nextSeq": "3", "active": "1"}
    groups = {"blocked": blocked, "limited": blocked, "idle": blocked}
    records = {
        "1": {"state": "group-waiting", "groupKey": "blocked", "orderingSeq": "3"},
        "2": {"state": "completed", "groupKey": "blocked", "orderingSeq": "1"},
        "3": {"state": "active", "groupKey": "another", "orderingSeq": "1"},
        "4": {"state": "active"},
        "5": {"state": "group-waiting", "groupKey": "limited", "orderingSeq": "3"},
        "6": {},
    }

    def answer(call: Call) -> Reply:
        name = call.keys[0].rpartition(":")[2]
        if call.name == "HGETALL":
            return [word.encode() for pair in groups[name].items() for word in pair]
        if call.name == "ZSCORE":
            return b"5" if call.args == ("limited",) else None
        return [records[name][field].encode() if field in records[name] else None for field in map(str, call.args)]

    def every() -> Conversation[Sequence[str]]:
        yield from ()
        return list(records)

    found = talk(stalled_groups(keys, ["limited", "blocked", "idle", "blocked"], every()), answer)
    assert found == [StalledGroup("blocked", 1, 1, 3, 3)]
