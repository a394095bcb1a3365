"""`glidemq_searchByName`: ids of the jobs of one name."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(
    ("name", "limit", "found"),
    [
        ("mail", 100, ["1", "3", "5"]),
        ("mail", 2, ["1", "3"]),
        ("mai", 100, []),
        ("m*", 100, []),
        ("page", 9, ["2", "4"]),
    ],
)
@pytest.mark.parametrize(("kind", "structure"), [("stream", "stream"), ("zset", "scheduled")])
def test_exact_names_in_order_up_to_the_limit(
    wire: Wire, kind: str, structure: str, name: str, limit: int, found: list[str]
) -> None:
    for number in range(5):
        wire.add("page" if number % 2 else "mail", delay=(number + 1) * (kind == "zset"))
    with wire.unchanged():
        assert wire.call("searchByName", structure=structure, stateType=kind, name=name, limit=limit) == found


@pytest.mark.parametrize("kind", ["stream", "zset"])
def test_the_default_limit_is_a_hundred(wire: Wire, kind: str) -> None:
    for _ in range(101):
        wire.add("mail", delay=int(kind == "zset"))
    structure = "stream" if kind == "stream" else "scheduled"
    arguments = [kind, "mail", "", f"{wire.base}:"]
    assert len(wire.fcall("searchByName", [wire.key(structure)], arguments)) == 100


def test_the_stream_is_walked_beyond_its_first_page(wire: Wire) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for _ in range(1500):
        pipeline.xadd(wire.key("stream"), {"jobId": "other"})
    pipeline.execute()
    wire.add("mail")
    assert wire.call("searchByName", structure="stream", stateType="stream", name="mail") == ["1"]


@pytest.mark.parametrize("kind", ["stream", "zset"])
def test_nothing_there_is_an_empty_array(wire: Wire, kind: str) -> None:
    assert wire.call("searchByName", structure="failed", stateType=kind, name="mail") == []
