"""`glidemq_changePriority`: another place in the order, before the job starts."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, SHIFT, Wire, Word, due, event


def change(wire: Wire, priority: Word, job_id: str = "1") -> object:
    wire.forget_events()
    return wire.call("changePriority", jobId=job_id, newPriority=priority)


@pytest.mark.parametrize(
    ("values", "priority", "state", "score"),
    [
        ({}, 5, "prioritized", 5 * SHIFT),
        ({"priority": 2}, 5, "prioritized", 5 * SHIFT),
        ({"priority": 5}, 5, "prioritized", 5 * SHIFT),
        ({"priority": 2}, 0, "waiting", None),
        ({"delay": 700}, 5, "delayed", due(NOW + 700, 5)),
        ({"delay": 700, "priority": 5}, 2, "delayed", due(NOW + 700, 2)),
        ({"delay": 700, "priority": 5}, 0, "delayed", due(NOW + 700)),
    ],
)
def test_the_job_moves_to_its_new_place(
    wire: Wire, values: dict[str, Word], priority: int, state: str, score: int | None
) -> None:
    wire.add("mail", **values)
    assert change(wire, priority) == "ok"
    job = wire.job("1")
    assert (job["state"], job["priority"]) == (state, str(priority))
    assert wire.zset("scheduled") == ({} if score is None else {"1": score})
    assert wire.stream() == ([("jobId", "1", "name", "mail")] if score is None else [])
    assert wire.events() == [event("priority-changed", 1, priority=priority)]


def test_a_waiting_job_without_priority_stays(wire: Wire) -> None:
    wire.add()
    wire.forget_events()
    with wire.unchanged():
        assert change(wire, 0) == "no_op"


@pytest.mark.parametrize(
    ("fields", "reply"),
    [
        (None, "error:not_found"),
        ({"state": "waiting"}, "error:not_in_stream"),
        ({"state": "delayed"}, "error:not_in_scheduled"),
        *(
            ({"state": state}, "error:invalid_state")
            for state in ("active", "completed", "failed", "waiting-children", "group-waiting", "suspended")
        ),
    ],
)
def test_other_jobs_are_refused_untouched(wire: Wire, fields: dict[str, Word] | None, reply: str) -> None:
    wire.add(customJobId="other")
    if fields is not None:
        wire.make_job("1", **fields)
    wire.forget_events()
    with wire.unchanged():
        assert change(wire, 4) == reply


@pytest.mark.parametrize("priority", [-1, "", "high"])
@pytest.mark.parametrize("exists", [True, False])
def test_an_invalid_priority_is_refused_first(wire: Wire, priority: Word, exists: bool) -> None:
    if exists:
        wire.add()
    wire.forget_events()
    with wire.unchanged():
        assert change(wire, priority) == "error:invalid_priority"


def test_a_missing_group_is_no_error(wire: Wire) -> None:
    wire.add()
    assert wire.call("changePriority", jobId="1", newPriority=3, group="unknown") == "ok"


def test_the_entry_is_found_beyond_the_first_page(wire: Wire) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for _ in range(1500):
        pipeline.xadd(wire.key("stream"), {"jobId": "other"})
    pipeline.execute()
    wire.add()
    assert change(wire, 3) == "ok"
    assert set(wire.stream_ids()) == {"other"}
