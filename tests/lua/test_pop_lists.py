"""`glidemq_popLists`: priority first, then LIFO."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(
    ("priority", "lifo", "count", "taken"),
    [
        ([], [], 5, []),
        (["p1", "p2"], ["l1"], 1, ["p2"]),
        (["p1", "p2"], ["l1"], 5, ["p2", "p1"]),
        ([], ["l1", "l2", "l3"], 2, ["l3", "l2"]),
        (["p1"], ["l1"], 0, []),
        (["p1"], ["l1"], -1, []),
    ],
)
def test_takes_from_one_list_only_and_counts_nothing(
    wire: Wire, priority: list[str], lifo: list[str], count: int, taken: list[str]
) -> None:
    for name, ids in (("priority", priority), ("lifo", lifo)):
        if ids:
            wire.ask("RPUSH", wire.key(name), *ids)
    assert wire.call("popLists", count=count) == taken
    assert wire.elements("priority") == [i for i in priority if i not in taken]
    assert wire.elements("lifo") == [i for i in lifo if i not in taken]
    assert not wire.exists("list-active")


def test_the_default_count_is_one(wire: Wire) -> None:
    wire.ask("RPUSH", wire.key("lifo"), "1", "2")
    assert wire.short("popLists", 0) == ["2"]
