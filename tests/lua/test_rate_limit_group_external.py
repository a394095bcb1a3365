"""`glidemq_rateLimitGroupExternal`: slow a group down from outside. What an earlier limit does to it is tested with
`glidemq_rateLimitGroup`."""

from __future__ import annotations

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import NOW, Wire, event


def test_the_group_is_registered_and_nothing_else_happens(wire: Wire) -> None:
    assert wire.call("rateLimitGroupExternal", groupKey="k", durationMs=250) == NOW + 250
    assert wire.zset("ratelimited") == {"k": NOW + 250}
    assert wire.names() == {"ratelimited", "events"}
    assert wire.events() == [event("group-rate-limited", "", groupKey="k", duration=250, resumeAt=NOW + 250)]


def test_the_last_argument_may_be_missing(wire: Wire) -> None:
    wire.ask("ZADD", wire.key("ratelimited"), NOW + 900, "k")
    assert wire.short("rateLimitGroupExternal", 3, groupKey="k", durationMs=250) == NOW + 900


def test_a_job_that_was_put_back_while_its_group_is_held_runs_afterwards(wire: Wire) -> None:
    """It would keep the only slot, and wait for it."""
    worker = HandWorker(wire)
    wire.add(orderingKey="k", groupConcurrency=1)
    job_id = str(worker.take())
    wire.call("deferActive", jobId=job_id, entryId=worker.held.pop(job_id))
    wire.call("rateLimitGroupExternal", groupKey="k", durationMs=250)
    assert worker.take() is None
    assert (wire.state("1"), wire.group("k")["active"]) == ("group-waiting", "0")
    assert worker.run() == ["1", "1"]
    assert wire.group("k")["active"] == "0"
    assert "slotFreed" not in wire.job("1")
