"""`glidemq_revoke`: a job must not run, or not again."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, event


def revoke(wire: Wire, job_id: str = "1") -> object:
    return wire.call("revoke", jobId=job_id)


def assert_failed(wire: Wire, job_id: str = "1") -> None:
    job = wire.job(job_id)
    assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", "revoked", str(NOW))
    assert job["revoked"] == "1"
    assert wire.zset("failed") == {job_id: NOW}
    assert wire.events()[-1] == event("revoked", job_id)
    assert [e for e in wire.events() if e[1] == "failed"] == []
    assert not wire.exists("metrics:failed")


def test_a_missing_job_is_not_found(wire: Wire) -> None:
    with wire.unchanged():
        assert revoke(wire) == "not_found"


@pytest.mark.parametrize("values", [{}, {"delay": 500}, {"priority": 3}, {"lifo": 1}, {"orderingKey": "k"}])
def test_a_job_that_did_not_start_fails(wire: Wire, values: dict[str, Word]) -> None:
    wire.add(**values)
    assert revoke(wire) == "revoked"
    assert_failed(wire)
    assert wire.stream() == []
    assert not wire.exists("scheduled")


def test_a_fetched_entry_is_acknowledged_too(wire: Wire) -> None:
    wire.add()
    wire.fetched()
    assert revoke(wire) == "revoked"
    assert wire.pending() == []
    assert wire.stream() == []


def test_only_the_jobs_own_entry_goes(wire: Wire) -> None:
    for _ in range(3):
        wire.add()
    assert revoke(wire, "2") == "revoked"
    assert wire.stream_ids() == ["1", "3"]


def test_a_parked_job_leaves_its_group(wire: Wire) -> None:
    wire.active(orderingKey="k")
    wire.add(orderingKey="k")
    wire.call("moveToActive", jobId="2", entryId=wire.fetched()[0])
    assert revoke(wire, "2") == "revoked"
    assert_failed(wire, "2")
    assert wire.parked("k") == {}
    assert wire.group("k")["active"] == "1"


@pytest.mark.parametrize("state", ["active", "suspended", "waiting-children", "completed", "failed"])
def test_any_other_job_is_only_flagged(wire: Wire, state: str) -> None:
    wire.make_job("7", state=state)
    assert revoke(wire, "7") == "flagged"
    assert wire.job("7") == {"state": state, "revoked": "1"}
    assert wire.events() == [event("revoked", 7)]
    assert not wire.exists("failed")


def test_a_missing_group_is_no_error(wire: Wire) -> None:
    wire.add()
    assert wire.call("revoke", jobId="1", group="unknown") == "revoked"
    assert wire.stream() == []
