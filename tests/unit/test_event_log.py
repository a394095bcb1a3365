"""A queue's event stream: what is read of events, where a reader continues, and when it missed some."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.event_log import (
    EMPTY,
    Event,
    Position,
    Tail,
    events_since,
    gap_after,
    last_event_id,
    oldest_event,
    read_events,
    read_tail,
)

KEYS = QueueKeys("q")
ADDED = [b"5-1", [b"event", b"added", b"jobId", b"7", b"name", b"load"]]


def test_an_event_is_read_with_its_job_and_its_fields() -> None:
    (event,) = read_events([ADDED])
    assert event == Event("5-1", "added", "7", {"name": "load"})
    assert not event.is_gap
    assert read_events(None) == []


@pytest.mark.parametrize(
    ("cursor", "oldest", "is_gap"),
    [("5-0", None, False), ("5-0", "5-1", True), ("5-1", "5-1", False), ("9-0", "10-0", True), ("10-0", "9-9", False)],
)
def test_events_between_a_reader_and_the_oldest_one_kept_were_missed(
    cursor: str, oldest: str | None, is_gap: bool
) -> None:
    gap = gap_after(cursor, oldest)
    assert (gap is not None) is is_gap
    if gap is not None:
        assert (gap.is_gap, gap.id, gap.fields) == (True, cursor, {"oldest": oldest})


def test_events_of_several_queues_are_told_apart() -> None:
    other = QueueKeys("other")
    read = events_since({KEYS: "0-0", other: "0-0"}, 5).read
    assert read([[KEYS.events.encode(), [ADDED]]]) == {KEYS: [Event("5-1", "added", "7", {"name": "load"})]}
    assert read(None) == {}


def test_a_stream_without_events_is_read_from_its_beginning() -> None:
    assert last_event_id(KEYS).read([ADDED]) == "5-1"
    assert last_event_id(KEYS).read([]) == "0-0"


def facts(added: int, length: int, first: str | None) -> list[Any]:
    entry = None if first is None else [first.encode(), [b"event", b"added"]]
    return [b"length", length, b"last-generated-id", b"9-0", b"entries-added", added, b"first-entry", entry]


@pytest.mark.parametrize(
    ("reply", "oldest"),
    [
        (facts(3, 3, "5-1"), None),
        (facts(4, 3, "5-1"), "5-1"),
        (facts(4, 0, None), None),
        (ServerError("ERR no such key"), None),
    ],
    ids=["none dropped", "one dropped", "all dropped", "no stream"],
)
def test_the_oldest_event_matters_once_others_were_dropped(reply: Any, oldest: str | None) -> None:
    steps = oldest_event(KEYS)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([reply])
    assert end.value.value == oldest


def test_the_tail_of_a_stream_says_what_is_gone() -> None:
    assert read_tail(facts(4, 3, "5-1")) == Tail(Position("9-0", 4), 1, "5-1")
    assert read_tail(facts(4, 0, None)) == Tail(Position("9-0", 4), 4, None)
    assert read_tail(ServerError("ERR no such key")) == EMPTY
    with pytest.raises(ServerError, match="LOADING"):
        read_tail(ServerError("LOADING"))


@pytest.mark.parametrize(
    ("dropped", "oldest", "at", "has_lost"),
    [
        (0, "5-0", Position("4-0", None), False),
        (3, "5-0", Position("4-0", None), True),
        (3, "5-0", Position("5-0", None), False),
        (3, None, Position("5-0", None), True),
        (3, "5-0", Position("4-0", 2), True),
        (3, "5-0", Position("4-0", 3), False),
    ],
)
def test_entries_behind_a_place_are_lost_if_more_were_dropped_than_precede_it(
    dropped: int, oldest: str | None, at: Position, has_lost: bool
) -> None:
    assert Tail(Position("9-0", 9), dropped, oldest).has_lost(at) is has_lost
