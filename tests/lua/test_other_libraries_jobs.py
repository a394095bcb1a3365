"""Jobs that other libraries made or moved: older ones, which ordered by `orderingKey`, and those without our index."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word

PENDING = "orderdone:pending:k"


def older_job(wire: Wire, sequence: int) -> str:
    """An active job as libraries before 93 wrote them."""
    return wire.make_job(f"old-{sequence}", state="active", name="n", orderingKey="k", orderingSeq=sequence)


def mark(wire: Wire) -> str | None:
    """Up to which sequence number all jobs of the key have finished."""
    return wire.hash("meta").get("orderdone:k")


@pytest.mark.parametrize("settle", ["complete", "completeAndFetchNext", "fail"])
def test_an_older_job_that_ends_moves_the_mark_of_its_ordering_key(wire: Wire, settle: str) -> None:
    wire.call(settle, jobId=older_job(wire, 1))
    assert (mark(wire), wire.hash(PENDING)) == ("1", {})


def test_the_mark_stays_before_a_gap_and_then_jumps(wire: Wire) -> None:
    for sequence, reached, waiting in ((2, None, {"2"}), (4, None, {"2", "4"}), (1, "2", {"4"}), (3, "4", set())):
        wire.call("complete", jobId=older_job(wire, sequence))
        assert (mark(wire), set(wire.hash(PENDING))) == (reached, waiting)


def test_a_number_that_finished_before_moves_nothing(wire: Wire) -> None:
    wire.set_fields("meta", **{"orderdone:k": 5})
    wire.set_fields(PENDING, **{"3": 1, "7": 1})
    wire.call("complete", jobId=older_job(wire, 3))
    assert (mark(wire), set(wire.hash(PENDING))) == ("5", {"7"})


@pytest.mark.parametrize(
    ("values", "marked"),
    [({"orderingKeyHint": "k", "orderingSeqHint": 1}, "1"), ({"orderingKeyHint": "k"}, None), ({}, None)],
    ids=["both hints", "no number", "no hint"],
)
def test_a_hint_names_the_ordering_key_of_a_job_that_says_nothing(
    wire: Wire, values: dict[str, Word], marked: str | None
) -> None:
    job_id, entry_id = wire.active()
    wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, **values)
    assert mark(wire) == marked


def test_hints_that_say_all_stand_for_the_record(wire: Wire) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    wire.make_job(job_id, groupKey="other", orderingKey="other", processedOn=1)
    hints: dict[str, Word] = {"groupKeyHint": "k", "orderingKeyHint": "__", "processedOnHint": NOW - 70}
    wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, orderingSeqHint=1, **hints)
    assert wire.group("k")["active"] == "0"
    assert wire.names("orderdone") | wire.names("meta") == set()
    assert [total for field, total in wire.hash("metrics:completed").items() if field.endswith(":d")] == ["70"]


def test_a_list_job_that_ended_unseen_is_forgotten(wire: Wire) -> None:
    for _ in range(2):
        wire.active(lifo=1)
    wire.make_job("1", state="completed")
    wire.ask("DECR", wire.key("list-active"))
    assert wire.call("getActiveListJobIds") == ["2"]
    assert wire.zset("list-active:jobs") == {"2": NOW}


def test_a_popped_job_that_somebody_put_back_is_not_listed_twice(wire: Wire) -> None:
    job_id = wire.add(lifo=1)
    assert wire.call("popLists") == [job_id]
    wire.ask("RPUSH", wire.key("lifo"), job_id)
    sweeps = [
        wire.call("reclaimStalledListJobs", timestamp=NOW + minute * 60_000, minIdleMs=30_000) for minute in range(4)
    ]
    assert wire.elements("lifo") == [job_id]
    assert wire.list_active() == 0
    assert sweeps[2:] == [0, 0]
    assert wire.zset("list-active:jobs") == {}


def test_without_the_stream_s_key_an_expired_job_s_entry_is_left_to_the_caller(wire: Wire) -> None:
    job_id = wire.add(ttl=5)
    entry_id, _ = wire.fetched()
    words: list[Word] = [NOW + 6, entry_id, "workers", job_id]
    assert wire.fcall("moveToActive", [wire.key(f"job:{job_id}")], words) == "EXPIRED"
    assert wire.state(job_id) == "failed"
    assert wire.pending() == [entry_id]
    assert wire.stream_ids() == [job_id]
