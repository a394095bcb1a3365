"""`oq1_relist`: a list job whose start its worker never received goes back to its list, and is not counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import exchanges
from tests.lua.oq1 import Own, completed, paused
from tests.lua.wire import NOW, Wire, Word

LATER = NOW + 50


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


def relist(own: Own, consumer: str = "w-1", known: Sequence[str] = ()) -> object:
    return own.send(exchanges.relist(QueueKeys(own.wire.queue), consumer, LATER, known))


@pytest.mark.parametrize("fields", [{"lifo": 1}, {"priority": 7}], ids=["lifo", "priority"])
def test_it_is_ready_again_as_if_it_had_never_been_taken(own: Own, fields: dict[str, Word]) -> None:
    for _ in range(3):
        own.wire.add(**fields)
    own.wire.call("promote", now=NOW)
    before = own.wire.elements(next(iter(fields)))
    own.take(2)
    assert relist(own) == 2
    assert sorted(own.wire.elements(next(iter(fields)))) == sorted(before)
    job = own.wire.job(before[-1])
    assert job["state"] == "waiting"
    assert not {"stalledCount", "processedOn", "lastActive"} & set(job)
    assert own.wire.list_active() == 0
    assert {job.job_id for job in own.take(3, now=LATER)} == set(before)


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(lambda own: relist(own, "w-2"), id="another worker's"),
        pytest.param(lambda own: relist(own, known=["1"]), id="one the worker knows of"),
    ],
)
def test_what_is_not_lost_is_left_alone(own: Own, theirs: Callable[[Own], object]) -> None:
    own.wire.add(lifo=1)
    own.take()
    with own.wire.unchanged():
        assert theirs(own) == 0


def test_an_earlier_start_says_nothing(own: Own) -> None:
    own.wire.add(lifo=1)
    (job,) = own.take()
    own.exchange(paused("d", job, wait_ms=LATER), now=NOW)
    with own.wire.unchanged():
        assert relist(own) == 0
    own.wire.call("promote", now=LATER)
    own.take(now=LATER, consumer="w-2")
    with own.wire.unchanged():
        assert relist(own) == 0


def test_a_job_whose_options_mislead_about_its_list_is_found_too(own: Own) -> None:
    own.wire.add(lifo=1)
    own.wire.set_fields("job:1", lifo=0)
    own.take()
    taken = {name: own.wire.job("1")[name] for name in ("takenFrom", "takenBy")}
    assert taken == {"takenFrom": "list", "takenBy": f"w-1@{NOW}"}
    assert relist(own) == 1
    assert own.wire.stream_ids() == ["1"]
    assert own.wire.list_active() == 0


def test_jobs_of_the_stream_and_ended_ones_are_none_of_its_business(own: Own) -> None:
    own.wire.add()
    own.wire.add(lifo=1)
    listed, _ = own.take(2)
    own.exchange(completed(listed))
    with own.wire.unchanged():
        assert relist(own) == 0


@pytest.mark.parametrize("turn", [1, 0], ids=["by turns", "as they come"])
def test_it_takes_no_second_place_in_its_group(own: Own, turn: int) -> None:
    own.wire.add(lifo=1, orderingKey="o", groupConcurrency=2)
    own.wire.make_job("1", orderingSeq=turn)
    own.take()
    assert relist(own) == 1
    assert own.wire.group("o")["active"] == str(turn)
    own.take()
    assert own.wire.group("o")["active"] == "1"


@pytest.mark.parametrize(
    ("keys", "args", "why"),
    [
        (4, [NOW, "w", 0, "1"], "takes 4 keys"),
        (3, [NOW, "w", 0], "takes 4 keys"),
        (4, ["soon", "w", 0], "'now_ms' is not a whole number"),
        (4, [NOW, "w", "few"], "'known_count' is not a whole number"),
    ],
)
def test_malformed_calls_change_nothing(own: Own, keys: int, args: list[Word], why: str) -> None:
    names = ["stream", "priority", "lifo", "list-active"]
    own.refused("relist", [own.wire.key(name) for name in names[:keys]], args, why)
