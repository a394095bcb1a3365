"""`glidemq_checkConcurrency`: how many more jobs the queue may run."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(
    ("limit", "from_stream", "from_lists", "reply"),
    [
        (None, 1, 1, -1),
        (0, 1, 1, -1),
        (5, 0, 0, 5),
        (5, 2, 0, 3),
        (5, 0, 4, 1),
        (5, 2, 1, 2),
        (2, 1, 1, 0),
        (1, 2, 3, 0),
    ],
)
def test_the_limit_less_what_is_pending_and_active(
    wire: Wire, limit: int | None, from_stream: int, from_lists: int, reply: int
) -> None:
    wire.open_group()
    if limit is not None:
        wire.ask("HSET", wire.key("meta"), "globalConcurrency", limit)
    for _ in range(from_stream):
        wire.add()
        wire.fetched()
    if from_lists:
        wire.ask("SET", wire.key("list-active"), from_lists)
    with wire.unchanged():
        assert wire.call("checkConcurrency") == reply


@pytest.mark.parametrize("stream_exists", [False, True])
def test_a_missing_stream_or_group_has_nothing_pending(wire: Wire, stream_exists: bool) -> None:
    wire.ask("HSET", wire.key("meta"), "globalConcurrency", 4)
    if stream_exists:
        wire.add()
    assert wire.call("checkConcurrency", group="unknown") == 4
