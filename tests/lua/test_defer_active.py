"""`glidemq_deferActive`: give an active job back, to the end of the stream."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize("broadcast", [0, 1])
def test_the_job_gets_a_new_entry_behind_the_others(wire: Wire, broadcast: int) -> None:
    job_id, entry_id = wire.active()
    wire.add("next")
    wire.forget_events()
    assert wire.call("deferActive", jobId=job_id, entryId=entry_id, broadcastMode=broadcast) == 1
    assert wire.state(job_id) == "waiting"
    again = ("jobId", job_id, "name", "task")
    assert wire.stream() == [again] * broadcast + [("jobId", "2", "name", "next"), again]
    assert wire.pending() == []
    assert wire.events() == []


@pytest.mark.parametrize(("before", "after"), [(2, {"1"}), (0, {"0", None}), (None, {None})])
def test_a_list_job_is_counted_off_and_never_below_zero(wire: Wire, before: int | None, after: set[str | None]) -> None:
    wire.make_job("7", state="active", lifo=1, name="n")
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    assert wire.short("deferActive", 3, jobId="7") == 1
    assert wire.get("list-active") in after
    assert wire.state("7") == "waiting"
    assert wire.stream() == [("jobId", "7", "name", "n")]


@pytest.mark.parametrize("group_exists", [True, False])
def test_a_missing_job_loses_its_entry_and_is_not_created(wire: Wire, group_exists: bool) -> None:
    entry_id = wire.ask("XADD", wire.key("stream"), "*", "jobId", "7")
    if group_exists:
        wire.fetched()
    assert wire.short("deferActive", 3, jobId="7", entryId=entry_id) == 0
    assert wire.stream() == []
    assert not wire.exists("job:7")
