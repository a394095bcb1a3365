"""Payloads become JSON that every language reads, and come back unchanged."""

from __future__ import annotations

import base64
import gzip
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import PayloadError
from orchestration_queue.protocol import codec

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_is_encoded_decodes_to_itself_compressed_or_not(value: object) -> None:
    encoded = codec.encode(value)
    assert codec.decode(encoded) == value
    assert codec.decode(codec.compress(encoded)) == value


def test_encoding_is_compact_and_keeps_letters_of_all_languages() -> None:
    assert codec.encode({"to": ["Zoë", 1], "on": True}) == '{"to":["Zoë",1],"on":true}'


def test_compression_takes_the_form_that_node_detects() -> None:
    packed = codec.compress('{"a":1}')
    assert packed.startswith("gz:")
    assert gzip.decompress(base64.b64decode(packed[3:])) == b'{"a":1}'


def test_compression_is_the_same_every_time() -> None:
    assert codec.compress("x" * 100) == codec.compress("x" * 100)


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", math.nan, math.inf, {"deep": {"at": object()}}, "\ud800"]
)
def test_what_json_cannot_say_is_refused_in_one_sentence(value: object) -> None:
    with pytest.raises(PayloadError, match=r"cannot be written as JSON .*; pass dicts, lists, text.*\.$"):
        codec.encode(value)


def test_a_circle_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(PayloadError, match="cannot be written as JSON"):
        codec.encode(circle)


@pytest.mark.parametrize("letter", ["a", "é", "語", "🚚"])
def test_the_limit_counts_bytes_not_letters(letter: str) -> None:
    width = len(letter.encode())
    room = (codec.MAX_PAYLOAD_BYTES - 2) // width
    assert codec.decode(codec.encode(letter * room)) == letter * room
    with pytest.raises(PayloadError, match="exceeds maximum size"):
        codec.encode(letter * (room + 1) + "aaa"[: width - 1])


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ("{", "Expecting"),
        ("", "Expecting"),
        ("gz:not base64!", "base64|Non-base64|digit"),
        ("gz:" + base64.b64encode(b"not gzip").decode(), "header"),
        (codec.compress('"' + "x" * 1000 + '"')[:-40], ""),
        ("gz:" + base64.b64encode(gzip.compress(b"\xff\xfe")).decode(), "utf-8"),
    ],
)
def test_damaged_data_is_said_to_be_damaged(stored: str, why: str) -> None:
    with pytest.raises(PayloadError, match=rf"The job's data cannot be read \(.*{why}.*read it with the client"):
        codec.decode(stored)


def test_a_small_bomb_does_not_unpack() -> None:
    bomb = "gz:" + base64.b64encode(gzip.compress(b"0" * 50_000_000)).decode()
    assert len(bomb) < 100_000
    with pytest.raises(PayloadError, match="unpacks to more than 1,048,576 bytes"):
        codec.decode(bomb)
