"""`glidemq_getActiveListJobIds`: who is active without a stream entry."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize("hand_made", [False, True])
def test_lists_active_lifo_and_priority_jobs_only(wire: Wire, hand_made: bool) -> None:
    if hand_made:
        wire.make_job("a", state="active", lifo=1)
        wire.make_job("b", state="active", priority=2)
        wire.ask("SET", wire.key("list-active"), 2)
    else:
        wire.active(lifo=1, customJobId="a")
        wire.active(priority=2, customJobId="b")
    wire.active(customJobId="of-the-stream")
    wire.add(lifo=1, customJobId="waiting")
    wire.make_job("done", state="completed", lifo=1)
    for _ in range(2):
        assert sorted(wire.call("getActiveListJobIds")) == ["a", "b"]


@pytest.mark.parametrize(
    ("start", "end", "cut"),
    [(0, -1, slice(None)), (0, 1, slice(0, 2)), (1, 2, slice(1, 3)), (3, -1, slice(3, None)), (9, -1, slice(9, None))],
)
def test_slices_are_inclusive(wire: Wire, start: int, end: int, cut: slice) -> None:
    for _ in range(5):
        wire.active(lifo=1)
    everyone = wire.fcall("getActiveListJobIds", [wire.key("id")], [])
    assert sorted(everyone) == ["1", "2", "3", "4", "5"]
    assert wire.call("getActiveListJobIds", start=start, end=end) == everyone[cut]


def test_nobody_is_an_empty_array(wire: Wire) -> None:
    assert wire.call("getActiveListJobIds") == []


@pytest.mark.parametrize("leave", ["complete", "fail", "removeJob", "deferActive", "suspend"])
def test_a_job_that_left_is_not_listed(wire: Wire, leave: str) -> None:
    job_id, _ = wire.active(lifo=1)
    wire.call(leave, jobId=job_id)
    assert wire.call("getActiveListJobIds") == []
