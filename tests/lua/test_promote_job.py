"""`glidemq_promoteJob`: a delayed job need not wait any longer."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire, Word, event


@pytest.mark.parametrize(
    ("values", "place"),
    [({}, "stream"), ({"priority": 3}, "priority"), ({"lifo": 1}, "lifo"), ({"lifo": 1, "priority": 3}, "lifo")],
)
def test_a_delayed_job_becomes_ready_at_once(wire: Wire, values: dict[str, Word], place: str) -> None:
    wire.add("mail", delay=10**9, **values)
    wire.forget_events()
    assert wire.call("promoteJob", jobId="1") == "ok"
    assert {name for name in ("stream", "priority", "lifo") if wire.exists(name)} == {place}
    assert wire.place(place) == ["1"]
    assert not wire.exists("scheduled")
    assert (wire.state("1"), wire.job("1")["delay"]) == ("waiting", "0")
    assert wire.events() == [event("promoted", 1)]


def test_its_ttl_is_looked_at_only_when_it_starts(wire: Wire) -> None:
    wire.add("mail", delay=10**9, ttl=1)
    assert wire.call("promoteJob", jobId="1") == "ok"
    assert wire.stream() == [("jobId", "1", "name", "mail")]


@pytest.mark.parametrize(
    ("state", "reply"),
    [
        (None, "error:not_found"),
        *((s, "error:not_delayed") for s in ("prioritized", "waiting", "active", "completed", "failed", "suspended")),
    ],
)
def test_other_jobs_are_refused_untouched(wire: Wire, state: str | None, reply: str) -> None:
    if state is not None:
        wire.make_job("1", state=state)
    with wire.unchanged():
        assert wire.call("promoteJob", jobId="1") == reply
