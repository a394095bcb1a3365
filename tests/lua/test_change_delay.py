"""`glidemq_changeDelay`: another time, before the job starts."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, SHIFT, Wire, Word, due, event

LATER = NOW + 50


def change(wire: Wire, delay: Word, job_id: str = "1") -> object:
    wire.forget_events()
    return wire.call("changeDelay", jobId=job_id, newDelay=delay, now=LATER)


@pytest.mark.parametrize(
    ("values", "delay", "state", "score"),
    [
        ({"delay": 700}, 0, "waiting", None),
        ({"delay": 700, "priority": 3}, 0, "prioritized", 3 * SHIFT),
        ({"delay": 700}, 900, "delayed", due(LATER + 900)),
        ({"delay": 700, "priority": 3}, 900, "delayed", due(LATER + 900, 3)),
        ({}, 900, "delayed", due(LATER + 900)),
        ({"priority": 3}, 900, "delayed", due(LATER + 900, 3)),
    ],
)
def test_the_job_moves_to_its_new_time_and_keeps_its_priority(
    wire: Wire, values: dict[str, Word], delay: int, state: str, score: int | None
) -> None:
    wire.add("mail", **values)
    assert change(wire, delay) == "ok"
    job = wire.job("1")
    assert (job["state"], job["delay"]) == (state, str(delay))
    assert job["priority"] == str(values.get("priority", 0))
    assert wire.zset("scheduled") == ({} if score is None else {"1": score})
    assert wire.stream() == ([("jobId", "1", "name", "mail")] if score is None else [])
    assert wire.events() == [event("delay-changed", 1, delay=delay)]


@pytest.mark.parametrize("values", [{}, {"priority": 3}])
def test_no_delay_for_a_job_without_one_changes_nothing(wire: Wire, values: dict[str, Word]) -> None:
    wire.add(**values)
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
        assert change(wire, 400) == reply


@pytest.mark.parametrize("delay", [-1, "", "soon"])
def test_an_invalid_delay_is_refused_first(wire: Wire, delay: Word) -> None:
    wire.add()
    wire.forget_events()
    with wire.unchanged():
        assert change(wire, delay) == "error:invalid_delay"
        assert change(wire, delay, "unknown") == "error:invalid_delay"
