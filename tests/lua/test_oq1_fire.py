"""`oq1_fire`: what a tick decided is written while it is the leader, all at once, and else not at all."""

from __future__ import annotations

import pytest

from tests.lua.oq1 import Own, load_own_library, new_job
from tests.lua.wire import Wire, event

LOCK = "schedulers:lock:__tick__"


@pytest.fixture
def own(wire: Wire) -> Own:
    load_own_library(wire.client)
    assert wire.call("tryLock", lock=LOCK, owner="mine") == 1
    wire.ask("HSET", wire.key("schedulers"), "nightly", "old", "gone", "old", "other", "old")
    return Own(wire)


def test_the_leader_writes_jobs_entries_and_drops(own: Own) -> None:
    jobs = [new_job("a", custom_id="repeat.nightly.5"), new_job("b", custom_id="repeat.gone.5")]
    assert own.fire("mine", jobs, {"nightly": "new"}, ["gone", "unknown"]) == ["repeat.nightly.5", "repeat.gone.5"]
    assert own.wire.stream_ids() == ["repeat.nightly.5", "repeat.gone.5"]
    assert own.wire.hash("schedulers") == {"nightly": "new", "other": "old"}
    assert own.wire.events() == [event("added", job.custom_id, name=job.job_name) for job in jobs]
    assert own.wire.get(LOCK) == "mine"


@pytest.mark.parametrize("holder", ["somebody", None])
def test_who_lost_the_lock_writes_nothing(own: Own, holder: str | None) -> None:
    own.wire.ask("DEL", own.wire.key(LOCK))
    if holder:
        own.wire.call("tryLock", lock=LOCK, owner=holder)
    with own.wire.unchanged():
        assert own.fire("mine", [new_job(custom_id="x")], {"nightly": "new"}, ["gone"]) == "lost"


def test_repeating_it_adds_no_job_twice(own: Own) -> None:
    jobs = [new_job(custom_id="repeat.nightly.5")]
    own.fire("mine", jobs, {"nightly": "new"})
    with own.wire.unchanged():
        assert own.fire("mine", jobs, {"nightly": "new"}) == ["duplicate"]


def test_a_tick_may_only_tidy_up(own: Own) -> None:
    assert own.fire("mine", drops=["nightly", "gone", "other"]) == []
    assert own.wire.names() == {LOCK}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["mine"], "'job_count' is not a whole number"),
        (["mine", 0, 1, 0, "nightly"], "takes 6 keys and 6 arguments, not 6 and 5"),
        (["mine", 0, 0, 2, "gone"], "takes 6 keys and 6 arguments, not 6 and 5"),
        (["mine", 1, 0, 0, "task"], "takes 6 keys and 24 arguments, not 6 and 5"),
        (["mine", "x", 0, 0], "'job_count' is not a whole number"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[str | int], why: str) -> None:
    keys = [own.wire.key(name) for name in (LOCK, "schedulers", "id", "stream", "scheduled", "events")]
    own.refused("fire", keys, args, why)
