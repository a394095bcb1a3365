"""`glidemq_moveActiveToDelayed`: a job puts itself off."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, due, event


@pytest.mark.parametrize(("until", "delay"), [(NOW + 900, 900), (NOW, 0), (NOW - 5, 0), ("", 0)])
@pytest.mark.parametrize("data", ["", '{"step":2}'])
def test_the_job_waits_until_its_time_and_uses_no_try(wire: Wire, until: Word, delay: int, data: str) -> None:
    job_id, entry_id = wire.active(data="{}")
    wire.forget_events()
    reply = wire.call("moveActiveToDelayed", jobId=job_id, entryId=entry_id, delayedUntil=until, newData=data)
    assert reply == "ok"
    job = wire.job(job_id)
    assert (job["state"], job["delay"], job["attemptsMade"]) == ("delayed", str(delay), "0")
    assert job["data"] == (data or "{}")
    assert wire.zset("scheduled") == {job_id: due(NOW + delay)}
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == [event("delay-changed", job_id, delay=delay)]


@pytest.mark.parametrize("values", [{"priority": 3}, {"lifo": 1}])
def test_a_list_job_keeps_its_priority_and_is_counted_off(wire: Wire, values: dict[str, Word]) -> None:
    job_id, _ = wire.active(**values)
    assert wire.call("moveActiveToDelayed", jobId=job_id, delayedUntil=NOW + 9) == "ok"
    assert wire.zset("scheduled") == {job_id: due(NOW + 9, int(values.get("priority", 0)))}
    assert wire.list_active() == 0


@pytest.mark.parametrize("before", [0, None])
def test_the_counter_never_goes_below_zero(wire: Wire, before: int | None) -> None:
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    wire.make_job("7", state="active")
    assert wire.call("moveActiveToDelayed", jobId="7") == "ok"
    assert wire.list_active() == 0


def test_broadcast_keeps_the_entry(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    assert wire.call("moveActiveToDelayed", jobId=job_id, entryId=entry_id, broadcastMode=1) == "ok"
    assert wire.stream_ids() == [job_id]
    assert wire.pending() == []


@pytest.mark.parametrize(("sequenced", "held"), [(True, "1"), (False, "0")])
def test_a_sequenced_job_keeps_its_slot(wire: Wire, sequenced: bool, held: str) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    if not sequenced:
        wire.ask("HDEL", wire.key(f"job:{job_id}"), "orderingSeq")
    wire.call("moveActiveToDelayed", jobId=job_id, entryId=entry_id)
    assert wire.group("k")["active"] == held


@pytest.mark.parametrize(
    ("state", "reply"),
    [(None, "error:not_found"), *((s, "error:not_active") for s in ("waiting", "delayed", "completed", "failed"))],
)
def test_other_jobs_are_refused_untouched(wire: Wire, state: str | None, reply: str) -> None:
    if state is not None:
        wire.make_job("7", state=state)
    wire.ask("SET", wire.key("list-active"), 1)
    with wire.unchanged():
        assert wire.call("moveActiveToDelayed", jobId="7") == reply


def test_a_missing_group_is_no_error(wire: Wire) -> None:
    wire.make_job("7", state="active")
    assert wire.call("moveActiveToDelayed", jobId="7", entryId="1-1", group="unknown") == "ok"
