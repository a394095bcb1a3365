"""`glidemq_signal`: wake a suspended job."""

from __future__ import annotations

import json

import pytest

from tests.lua.wire import NOW, Wire, event


def suspended(wire: Wire) -> str:
    job_id, entry_id = wire.active()
    wire.call("suspend", jobId=job_id, entryId=entry_id)
    wire.forget_events()
    return job_id


@pytest.mark.parametrize("data", ["", '{"by":"ann"}', '"x"', "nö\n", "y" * 100_000])
def test_a_signal_resumes_the_job_and_keeps_its_data_as_text(wire: Wire, data: str) -> None:
    job_id = suspended(wire)
    assert wire.call("signal", jobId=job_id, signalName="approve", signalData=data, now=NOW + 5) == "ok"
    assert wire.state(job_id) == "waiting"
    entry = {"name": "approve", "data": data, "receivedAt": NOW + 5}
    assert json.loads(wire.job(job_id)["signals"]) == [entry]
    assert [json.loads(text) for text in wire.elements(f"signals:{job_id}")] == [entry]
    assert not wire.exists("suspended")
    assert wire.stream() == [("jobId", job_id, "name", "task")]
    assert wire.events() == [event("resumed", job_id, signal="approve")]


def test_only_the_first_signal_resumes(wire: Wire) -> None:
    job_id = suspended(wire)
    assert wire.call("signal", jobId=job_id) == "ok"
    with wire.unchanged():
        assert wire.call("signal", jobId=job_id) == "not_suspended"


def test_signals_of_several_suspensions_add_up_in_order(wire: Wire) -> None:
    job_id = suspended(wire)
    for name in ("first", "second"):
        wire.call("signal", jobId=job_id, signalName=name)
        _, entry_id = wire.take()
        wire.call("suspend", jobId=job_id, entryId=entry_id)
    assert [signal["name"] for signal in json.loads(wire.job(job_id)["signals"])] == ["first", "second"]


@pytest.mark.parametrize("state", [None, "waiting", "active", "completed", "failed", "waiting-children"])
def test_other_jobs_are_not_suspended(wire: Wire, state: str | None) -> None:
    if state is not None:
        wire.make_job("7", state=state)
    with wire.unchanged():
        assert wire.call("signal", jobId="7") == "not_suspended"


def test_what_the_suspension_said_stays_on_the_job(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.call("suspend", jobId=job_id, entryId=entry_id, reason="approval", timeoutMs=900)
    wire.call("signal", jobId=job_id)
    job = wire.job(job_id)
    assert (job["suspendedAt"], job["suspendReason"], job["suspendTimeout"]) == (str(NOW), "approval", "900")
