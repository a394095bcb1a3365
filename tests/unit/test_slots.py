"""Slots of a cluster, with the examples of the cluster specification."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.slots import SlotMap, call_slot, key_slot, read_slot_map


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("{user1000}.following", "user1000"),
        ("foo{}{bar}", "foo{}{bar}"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("foo{bar", "foo{bar"),
    ],
)
def test_a_hash_tag_decides(key: str, hashed: str) -> None:
    assert key_slot(key) == key_slot(hashed)


def test_the_slot_is_the_specified_checksum() -> None:
    assert key_slot("123456789") == 0x31C3


def test_all_keys_of_a_queue_share_a_slot() -> None:
    keys = QueueKeys("grüße")
    assert len({key_slot(key) for key in (keys.stream, keys.events, keys.job("1"), keys.deps("2"))}) == 1


def test_a_call_belongs_to_its_first_key_or_to_the_one_it_is_near() -> None:
    assert call_slot(Call("MGET", ("a", "b"), near="c")) == key_slot("a")
    assert call_slot(Call("XREAD", near="c")) == key_slot("c")
    assert call_slot(Call("PING")) is None


def test_a_map_says_who_serves_a_slot() -> None:
    replica = [b"10.0.0.9", 7000, b"id"]
    reply = [
        [0, 99, [b"10.0.0.1", 7000, b"id", []], replica],
        [100, 100, [None, 7001, b"id"]],
        [200, 16383, [b"10.0.0.1", 7000, b"id"]],
    ]
    slots = read_slot_map(reply, "asked")
    assert slots.primaries == (("10.0.0.1", 7000), ("asked", 7001))
    assert [slots.primary(slot) for slot in (99, 100, 200)] == [("10.0.0.1", 7000), ("asked", 7001), ("10.0.0.1", 7000)]
    assert slots.primary(150) == slots.primary(None) == ("10.0.0.1", 7000)


@pytest.mark.parametrize("host", [b"", b"?"])
def test_a_node_that_does_not_know_its_name_is_where_it_was_asked(host: bytes) -> None:
    assert read_slot_map([[0, 16383, [host, 7000, b"id"]]], "asked") == SlotMap(((0, 16383, ("asked", 7000)),))
