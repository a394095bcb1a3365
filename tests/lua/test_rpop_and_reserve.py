"""`glidemq_rpopAndReserve`: take from a list under the global concurrency."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(
    ("limit", "active", "pending", "count", "taken"),
    [
        (None, 0, 0, 3, ["3", "2", "1"]),
        (None, 7, 0, 2, ["3", "2"]),
        (0, 7, 0, 2, ["3", "2"]),
        (2, 0, 0, 5, ["3", "2"]),
        (3, 1, 0, 5, ["3", "2"]),
        (3, 1, 1, 5, ["3"]),
        (3, 2, 1, 5, []),
        (1, 5, 0, 5, []),
        (9, 0, 0, 9, ["3", "2", "1"]),
    ],
)
@pytest.mark.parametrize("name", ["lifo", "priority"])
def test_takes_the_newest_as_far_as_the_limit_allows_and_counts_them(
    wire: Wire, name: str, limit: int | None, active: int, pending: int, count: int, taken: list[str]
) -> None:
    wire.open_group()
    for _ in range(pending):
        wire.add(customJobId="stream-job")
        wire.fetched()
    if limit is not None:
        wire.ask("HSET", wire.key("meta"), "globalConcurrency", limit)
    if active:
        wire.ask("SET", wire.key("list-active"), active)
    wire.ask("RPUSH", wire.key(name), "1", "2", "3")
    assert wire.call("rpopAndReserve", list=name, count=count) == taken
    assert wire.elements(name) == ["1", "2", "3"][: 3 - len(taken)]
    assert wire.list_active() == active + len(taken)


def test_an_empty_list_gives_an_empty_array_and_counts_nothing(wire: Wire) -> None:
    with wire.unchanged():
        assert wire.call("rpopAndReserve", list="lifo") == []


def test_the_default_count_is_one(wire: Wire) -> None:
    wire.ask("RPUSH", wire.key("lifo"), "1", "2")
    assert wire.short("rpopAndReserve", 1, list="lifo") == ["2"]
