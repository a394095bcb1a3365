"""`glidemq_suspend`: an active job waits for a signal."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, event


@pytest.mark.parametrize(
    ("values", "fields", "deadline"),
    [
        ({}, {}, 9999999999999),
        ({"reason": "approval"}, {"suspendReason": "approval"}, 9999999999999),
        ({"timeoutMs": 5000}, {"suspendTimeout": "5000"}, NOW + 5000),
        ({"timeoutMs": -1}, {}, 9999999999999),
    ],
)
def test_the_job_waits_until_its_deadline(
    wire: Wire, values: dict[str, Word], fields: dict[str, str], deadline: int
) -> None:
    job_id, entry_id = wire.active()
    wire.forget_events()
    assert wire.call("suspend", jobId=job_id, entryId=entry_id, **values) == "ok"
    job = wire.job(job_id)
    assert (job["state"], job["suspendedAt"]) == ("suspended", str(NOW))
    assert {name: job[name] for name in ("suspendReason", "suspendTimeout") if name in job} == fields
    assert wire.zset("suspended") == {job_id: deadline}
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == [event("suspended", job_id)]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (0, 0), (None, 0)])
def test_a_list_job_is_counted_off_and_never_below_zero(wire: Wire, before: int | None, after: int) -> None:
    wire.make_job("7", state="active", lifo=1)
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    assert wire.call("suspend", jobId="7") == "ok"
    assert wire.list_active() == after


@pytest.mark.parametrize(("sequenced", "held"), [(True, "1"), (False, "0")])
def test_a_sequenced_job_keeps_its_slot(wire: Wire, sequenced: bool, held: str) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    if not sequenced:
        wire.ask("HDEL", wire.key(f"job:{job_id}"), "orderingSeq")
    wire.call("suspend", jobId=job_id, entryId=entry_id)
    assert wire.group("k")["active"] == held


def test_broadcast_keeps_the_entry(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    assert wire.call("suspend", jobId=job_id, entryId=entry_id, broadcastMode=1) == "ok"
    assert wire.stream_ids() == [job_id]
    assert wire.pending() == []


@pytest.mark.parametrize(
    ("state", "reply"),
    [(None, "error:not_found"), *((s, "error:not_active") for s in ("waiting", "suspended", "completed", "failed"))],
)
def test_other_jobs_are_refused_untouched(wire: Wire, state: str | None, reply: str) -> None:
    if state is not None:
        wire.make_job("7", state=state)
    wire.ask("SET", wire.key("list-active"), 1)
    with wire.unchanged():
        assert wire.call("suspend", jobId="7") == reply


@pytest.mark.parametrize("argc", [4, 6])
def test_callers_with_fewer_arguments_get_the_defaults(wire: Wire, argc: int) -> None:
    wire.make_job("7", state="active")
    assert wire.short("suspend", argc, jobId="7", group="unknown", entryId="1-1") == "ok"
    assert wire.zset("suspended") == {"7": 9999999999999}
