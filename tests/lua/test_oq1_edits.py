"""`oq1_updateData` and `oq1_retryJob`: one look and one write, with nothing in between."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.functions import oq1
from tests.lua.oq1 import Own
from tests.lua.oq1_reference import same_but_for_entries
from tests.lua.wire import NOW, Wire, Word, due

LATER = NOW + 5000


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def update(own: Own, job_id: str, data: str) -> object:
    return own.send(oq1.update_data(job_key=own.wire.key(f"job:{job_id}"), data=data))


def retry(own: Own, job_id: str, now: int = LATER) -> object:
    job_key = own.wire.key(f"job:{job_id}")
    return own.send(oq1.retry_job(own.keys, job_key=job_key, job_id=job_id, now_ms=now))


@pytest.mark.parametrize("data", ["", "null", '{"n":2}', "gz:H4sI", "\N{SNOWMAN}"])
def test_a_payload_is_replaced_and_nothing_else(own: Own, data: str) -> None:
    job_id, _ = own.wire.active()
    before = own.wire.job(job_id)
    for _ in range(2):
        assert update(own, job_id, data) == 1
        assert own.wire.job(job_id) == before | {"data": data}


def test_a_job_that_is_gone_does_not_come_back(own: Own) -> None:
    with own.wire.unchanged():
        assert update(own, "gone", "{}") == 0
        assert retry(own, "gone") == "not_found"


@pytest.mark.parametrize("fields", [{}, {"priority": 4}, {"orderingKey": "o"}, {"maxAttempts": 1}])
def test_a_retried_job_is_as_if_all_were_retried(own: Own, fields: dict[str, Word]) -> None:
    left, right = own.wire.sibling("left"), own.wire.sibling("right")
    for wire in (left, right):
        job_id, entry_id = wire.active(**fields)
        wire.call("fail", jobId=job_id, entryId=entry_id)
        wire.forget_events()
    assert retry(Own(left), job_id) == "ok"
    assert right.call("retryJobs", timestamp=LATER) == 1
    right.forget_events()
    assert same_but_for_entries(left) == same_but_for_entries(right)
    assert left.zset("scheduled") == {job_id: due(LATER, int(fields.get("priority", 0)))}


@pytest.mark.parametrize(
    "state", ["waiting", "active", "delayed", "prioritized", "completed", "suspended", "waiting-children"]
)
def test_only_a_failed_job_is_retried(own: Own, state: str) -> None:
    own.wire.make_job("j", state=state, attemptsMade=2)
    with own.wire.unchanged():
        assert retry(own, "j") == "not_failed"


def test_a_retry_told_twice_is_one(own: Own) -> None:
    job_id, entry_id = own.wire.active()
    own.wire.call("fail", jobId=job_id, entryId=entry_id)
    assert retry(own, job_id) == "ok"
    with own.wire.unchanged():
        assert retry(own, job_id, LATER + 9) == "not_failed"


@pytest.mark.parametrize(
    ("function", "keys", "args", "why"),
    [
        ("updateData", ["job:1"], [], "takes 1 keys and 1 arguments, not 1 and 0"),
        ("updateData", ["job:1"], ["{}", "more"], "takes 1 keys and 1 arguments, not 1 and 2"),
        ("updateData", [], ["{}"], "takes 1 keys and 1 arguments, not 0 and 1"),
        ("retryJob", ["job:1", "failed", "scheduled"], ["1"], "'now_ms' is not a whole number"),
        ("retryJob", ["job:1", "failed", "scheduled"], ["1", "soon"], "'now_ms' is not a whole number"),
        ("retryJob", ["job:1", "failed", "scheduled"], ["1", NOW, 0], "takes 3 keys and 2 arguments, not 3 and 3"),
        ("retryJob", ["job:1", "failed"], ["1", NOW], "takes 3 keys and 2 arguments, not 2 and 2"),
        ("retryJob", ["job:1", "failed", "scheduled"], ["2", NOW], "does not end in 'job:2'"),
    ],
)
def test_malformed_arguments_are_refused(own: Own, function: str, keys: list[str], args: list[Word], why: str) -> None:
    own.wire.make_job("1", state="failed")
    own.refused(function, [own.wire.key(name) for name in keys], args, why)
