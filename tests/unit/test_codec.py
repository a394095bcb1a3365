"""Payloads become text that names its codec, and come back unchanged; what cannot is refused in one sentence."""

from __future__ import annotations

import base64
import contextlib
import gzip
import itertools
import json
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_serializer

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.errors import PayloadError, UnrecoverableError, UsageError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.codec import Codec, find_codec, register_codec
from orchestration_queue.schedules import FlowTemplate
from orchestration_queue.tasks.signature import TaskSignature
from orchestration_queue.wires.chasquimq import packing as chasquimq
from orchestration_queue.wires.qless import commands as qless
from orchestration_queue.worker.sandbox import frames

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

GZIP = find_codec("gzip")
MSGPACK = find_codec("msgpack")


class Price(BaseModel):
    amount: Decimal
    at: datetime = Field(alias="pricedAt")


@given(JSON)
def test_what_is_encoded_decodes_to_itself_by_every_codec(value: object) -> None:
    for name in ("json", "gzip", "msgpack"):
        assert codec.decode(codec.encode(value, codec=find_codec(name))) == value


def test_encoding_is_compact_and_keeps_letters_of_all_languages() -> None:
    assert codec.encode({"to": ["Zoë", 1], "on": True}) == '{"to":["Zoë",1],"on":true}'


def test_gzip_takes_the_form_that_node_detects_and_is_the_same_every_time() -> None:
    packed = codec.encode({"a": 1}, codec=GZIP)
    assert packed.startswith("gz:")
    assert gzip.decompress(base64.b64decode(packed[3:])) == b'{"a":1}'
    assert codec.encode({"a": 1}, codec=GZIP) == packed


def test_msgpack_carries_bytes_and_moments_as_they_are() -> None:
    value = {"raw": b"\x00\xff", "at": datetime(2013, 1, 31, 12, 30, tzinfo=UTC), 7: "a number as key"}
    stored = codec.encode(value, codec=MSGPACK)
    assert stored.startswith("mp:")
    assert msgpack.unpackb(base64.b64decode(stored[3:]), timestamp=3, strict_map_key=False) == value
    assert codec.decode(stored) == value


@dataclass
class Line:
    item: UUID
    amount: object


WRITTEN = [
    (datetime(2013, 1, 31, 5), "2013-01-31T05:00:00"),  # noqa: DTZ001  a naive one, too, is text
    (timedelta(minutes=90), "PT1H30M"),
    (Decimal("1.50"), "1.50"),
    (HTTPStatus.OK, 200),
    (Path("/data"), "/data"),
    ({"one"}, ["one"]),
    (Line(UUID(int=1), np.int64(3)), {"item": "00000000-0000-0000-0000-000000000001", "amount": 3}),
    (np.int64(-(2**63)), -(2**63)),
    (np.uint8(255), 255),
    (np.float32(1.5), 1.5),
    (np.float64(1.5), 1.5),
    (np.longdouble(1.5), 1.5),
    (np.bool_(True), True),
    (np.array(4), 4),
]
"""What pydantic writes as JSON, and the numbers of numpy, which it does not know."""


@pytest.mark.parametrize("name", ["json", "gzip", "msgpack"])
@pytest.mark.parametrize(("value", "written"), WRITTEN)
def test_what_pydantic_writes_as_json_is_written_alike_by_every_codec(
    value: object, written: object, name: str
) -> None:
    assert codec.decode(codec.encode({"deep": [value]}, codec=find_codec(name))) == {"deep": [written]}


@pytest.mark.parametrize(("value", "written"), WRITTEN)
def test_the_same_rule_holds_for_the_other_dialects_and_for_tasks(value: object, written: object) -> None:
    def give(given: Any) -> Any:
        return given

    signature = TaskSignature(give, "give")
    assert json.loads(qless.encode([value])) == [written]
    assert chasquimq.unpack(chasquimq.pack([value])) == [written]
    assert signature.data((value,), {}) == {"given": written}
    assert signature.dump_result(value) == written


def test_keys_that_are_no_text_are_written_as_pydantic_does() -> None:
    assert codec.encode({date(2013, 1, 31): 1, np.int64(2): 3, 4: 5}) == '{"2013-01-31":1,"2":3,"4":5}'


@pytest.mark.parametrize("name", ["json", "gzip", "msgpack"])
def test_models_become_their_data_wherever_they_stand(name: str) -> None:
    price = Price(amount=Decimal("1.50"), pricedAt=datetime(2013, 1, 31, tzinfo=UTC))
    read = codec.decode(codec.encode({"prices": [price]}, codec=find_codec(name)))
    assert read == {"prices": [{"amount": "1.50", "pricedAt": "2013-01-31T00:00:00Z"}]}
    assert Price.model_validate(read["prices"][0]) == price


@pytest.mark.parametrize(
    "value", [object(), np.array([1]), b"\xff", math.nan, np.float32("inf"), {"deep": {"at": object()}}, "\ud800"]
)
@pytest.mark.parametrize("name", ["json", "gzip"])
def test_what_json_cannot_say_is_refused_in_one_sentence(name: str, value: object) -> None:
    with pytest.raises(PayloadError, match=r"cannot be written as JSON \(.+\); pass what pydantic writes as JSON.*\.$"):
        codec.encode(value, codec=find_codec(name))


@pytest.mark.parametrize(
    "value",
    [object(), 2**70, {(1, 2): "a tuple as key"}, "\ud800"],
)
def test_what_msgpack_cannot_say_or_give_back_is_refused_in_one_sentence(value: object) -> None:
    with pytest.raises(
        PayloadError, match=r"cannot be written by the codec 'msgpack' \(.+\); pass values that this codec"
    ):
        codec.encode(value, codec=MSGPACK)


EQUAL_KEYS: list[dict[Any, Any]] = [
    {1: "a", "1": "b"},
    {True: "a", "true": "b"},
    {False: "a", "x": {}, "false": "b"},
    {None: "a", "null": "b"},
    {1.0: "a", "1.0": "b"},
    {-5: "a", "-5": "b"},
    {1e16: "a", "1e+16": "b"},
    {"deep": [{"at": {7: "a", "7": "b"}}]},
]
WRITTEN_EQUAL_KEYS = [
    {UUID(int=1): "a", str(UUID(int=1)): "b"},
    {date(2013, 1, 31): "a", "2013-01-31": "b"},
    {"deep": Line(UUID(int=1), {1: "a", "1": "b"})},
]


@pytest.mark.parametrize("name", ["json", "gzip", "msgpack"])
@pytest.mark.parametrize("value", EQUAL_KEYS)
def test_keys_that_become_equal_are_refused_by_every_codec(value: Any, name: str) -> None:
    with pytest.raises(PayloadError, match=r"cannot be written .+two keys of a dict become '.+', so that one"):
        codec.encode(value, codec=find_codec(name))


@dataclass
class Untyped:
    held: dict[Any, Any]


class UntypedModel(BaseModel):
    held: dict[Any, Any]


CHANGED: list[tuple[dict[Any, Any], str]] = [
    ({(1, 2): "a"}, r"the key \(1, 2\) is a tuple"),
    ({"deep": [{(1, "b"): "a"}]}, r"the key \(1, 'b'\) is a tuple"),
    ({"x": math.nan}, "not a finite number|not JSON compliant"),
    ({"deep": [None, {"x": -math.inf}]}, "not a finite number|not JSON compliant"),
]


@pytest.mark.parametrize(
    "hold", [Untyped, lambda held: UntypedModel(held=held), dict], ids=["dataclass", "model", "dict"]
)
@pytest.mark.parametrize(("value", "says"), CHANGED)
def test_what_pydantic_would_change_is_refused(hold: Callable[[Any], Any], value: Any, says: str) -> None:
    for name in ("json", "gzip"):
        with pytest.raises(PayloadError, match=says):
            codec.encode({"deep": [hold(value)]}, codec=find_codec(name))


def takes_anything(given: Any) -> None: ...


def takes_dataclass(given: Untyped) -> None: ...


def takes_model(given: UntypedModel) -> None: ...


@pytest.mark.parametrize("value", [{(1, 2): "a"}, {"x": math.nan}, {1: "a", "1": "b"}])
def test_tasks_refuse_what_their_arguments_would_lose(value: Any) -> None:
    for function, argument in (
        (takes_anything, value),
        (takes_dataclass, Untyped(value)),
        (takes_model, UntypedModel(held=value)),
    ):
        with pytest.raises(PayloadError, match=r"is a tuple|not a finite number|two keys of a dict"):
            TaskSignature(function, function.__name__).data((argument,), {})


def test_what_pydantic_writes_as_its_owner_wants_is_kept() -> None:
    class Grid(BaseModel):
        cells: dict[tuple[int, int], str]
        limit: float | None = None

        @field_serializer("cells")
        def _write(self, cells: dict[tuple[int, int], str]) -> list[Any]:
            return [[*place, text] for place, text in cells.items()]

    grid = Grid(cells={(1, 2): "a,b"})
    assert codec.decode(codec.encode(grid)) == {"cells": [[1, 2, "a,b"]], "limit": None}
    assert codec.decode(codec.encode(Untyped({"a,b": None}))) == {"held": {"a,b": None}}


@pytest.mark.parametrize("name", ["json", "gzip", "msgpack"])
@pytest.mark.parametrize("value", WRITTEN_EQUAL_KEYS)
def test_keys_that_pydantic_writes_alike_are_refused(value: object, name: str) -> None:
    with pytest.raises(PayloadError, match=r"two keys of a dict become '.+', so that one"):
        codec.encode(value, codec=find_codec(name))


@pytest.mark.parametrize("value", [*(value for value in EQUAL_KEYS if "null" not in value), WRITTEN_EQUAL_KEYS[2]])
def test_keys_that_become_equal_are_refused_by_qless_tasks_sandboxes_and_scheduled_flows(value: Any) -> None:
    def give(given: Any) -> Any:
        return given

    signature = TaskSignature(give, "give")
    for refuse in (
        lambda: qless.encode([value]),
        lambda: signature.data((value,), {}),
        lambda: signature.dump_result(value),
        lambda: frames.pack({"result": value}),
        lambda: FlowTemplate(Dag("d", [Node("a", data=value)], "q")),
    ):
        with pytest.raises((PayloadError, UnrecoverableError, ValueError), match="two keys of a dict become"):
            refuse()


@pytest.mark.parametrize(
    "value",
    [
        {"1": "a", "2": {"1": "b"}},
        {1: "a", "2": "b", 3: {"1": "c"}},
        {"text": '{"1":2,"1":3}'},
        [{"1": "a"}, {1: "b"}],
        {1.0: "a", "1": "b"},
        {None: "a", "None": "b"},
    ],
)
def test_keys_that_stay_different_are_kept(value: Any) -> None:
    assert codec.encode(value) == json.dumps(value, separators=(",", ":"))


def test_the_search_for_equal_keys_finds_what_reading_finds() -> None:
    keys = [0, 1, -1, 1.5, 1e300, True, False, None, "0", "1", "-1", "1.5", "1e+300", "true", "false", "null", "x"]
    for one, other in itertools.combinations(keys, 2):
        value = {one: 1, other: 2}
        lost = len(json.loads(json.dumps(value))) < len(value)
        with pytest.raises(PayloadError) if lost else contextlib.nullcontext():
            codec.encode(value)


@pytest.mark.parametrize("name", ["json", "gzip", "msgpack"])
def test_a_circle_is_refused(name: str) -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(PayloadError, match="cannot be written"):
        codec.encode(circle, codec=find_codec(name))


@pytest.mark.parametrize("name", ["json", "gzip"])
@pytest.mark.parametrize("letter", ["a", "é", "語", "🚚"])
def test_the_limit_counts_bytes_before_compression(letter: str, name: str) -> None:
    width = len(letter.encode())
    room = (codec.MAX_PAYLOAD_BYTES - 2) // width
    known = find_codec(name)
    assert codec.decode(codec.encode(letter * room, codec=known)) == letter * room
    with pytest.raises(PayloadError, match="exceeds maximum size"):
        codec.encode(letter * (room + 1) + "aaa"[: width - 1], codec=known)


def test_the_limit_of_other_codecs_counts_the_text_they_make() -> None:
    fits, too_long = b"x" * 786_000, b"x" * 787_000
    assert codec.decode(codec.encode(fits, codec=MSGPACK)) == fits
    with pytest.raises(PayloadError, match=r"exceeds maximum size \(1,049,"):
        codec.encode(too_long, codec=MSGPACK)


def _packed(raw: bytes) -> str:
    return "mp:" + base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ("{", "Expecting"),
        ("", "Expecting"),
        ("[" * 100_000, "recursion|Stack overflow"),
        ("unknown:codec", "Expecting"),
        ("gz:not base64!", "base64|Non-base64|digit"),
        ("gz:" + base64.b64encode(b"not gzip").decode(), "header"),
        (codec.encode("x" * 1000, codec=GZIP)[:-40], ""),
        ("gz:" + base64.b64encode(gzip.compress(b"\xff\xfe", mtime=0)).decode(), "utf-8"),
        ("gz:" + base64.b64encode(gzip.compress(b"{", mtime=0)).decode(), "Expecting"),
        ("mp:not base64!", "base64|Non-base64|digit"),
        (_packed(b""), "incomplete"),
        (_packed(b"\xc1"), "FormatError"),
        (_packed(b"\x01\x01"), "extra data"),
        (_packed(b"\xd9\x01\xff"), "utf-8"),
        (_packed(b"\x81\x91\x01\x01"), "unhashable"),
        (_packed(b"\xc7\x01\x05a"), "extension type 5"),
        (_packed(b"\xdd\xff\xff\xff\xff"), "max_array_len"),
        (_packed(b"\xdf\xff\xff\xff\xff"), "max_map_len"),
        (_packed(b"\x91" * 100_000), "StackError"),
        (_packed(b"\xc7\x0c\xff" + b"\x00" * 4 + b"\x7f" + b"\xff" * 7), "too large|out of range"),
    ],
)
def test_damaged_data_is_said_to_be_damaged(stored: str, why: str) -> None:
    with pytest.raises(PayloadError, match=rf"The job's data cannot be read \(.*({why}).*read it with the client"):
        codec.decode(stored)


def test_a_small_bomb_does_not_unpack() -> None:
    bomb = "gz:" + base64.b64encode(gzip.compress(b"0" * 50_000_000)).decode()
    assert len(bomb) < 100_000
    with pytest.raises(PayloadError, match="unpacks to more than 1,048,576 bytes"):
        codec.decode(bomb)


def test_without_its_package_msgpack_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = codec.encode(1, codec=MSGPACK)
    monkeypatch.setitem(sys.modules, "msgpack", None)
    for queue in (Queue, AsyncQueue):
        with pytest.raises(UsageError, match=r"is not installed.*orchestration-queue\[msgpack\]"):
            queue("q", codec="msgpack")
    with pytest.raises(PayloadError, match=r"install .orchestration-queue\[msgpack\]"):
        codec.decode(stored)


def _reverse(text: str) -> str:
    return text[::-1]


@pytest.fixture
def own_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codecs that a test registers are gone after it."""
    monkeypatch.setattr(codec, "_by_name", dict(codec._by_name))
    monkeypatch.setattr(codec, "_by_prefix", dict(codec._by_prefix))


@pytest.mark.usefixtures("own_codecs")
def test_a_codec_of_ones_own_is_found_by_name_and_told_by_prefix() -> None:
    mine = Codec("reversed", "rev:", _reverse, _reverse)
    register_codec(mine)
    register_codec(mine)
    assert codec.encode("abc", codec=find_codec("reversed")) == "rev:cba"
    assert codec.decode("rev:cba") == "abc"
    with pytest.raises(PayloadError, match="two keys of a dict become '1'"):
        codec.encode({"deep": [{1: "a", "1": "b"}]}, codec=mine)
    with pytest.raises(PayloadError, match="exceeds maximum size"):
        codec.encode("x" * codec.MAX_PAYLOAD_BYTES, codec=mine)


@pytest.mark.usefixtures("own_codecs")
@pytest.mark.parametrize(
    ("name", "prefix", "says"),
    [
        ("json", "js:", "can't be distinguished from the registered ones"),
        ("", "js:", "can't be distinguished from the registered ones"),
        ("mine", "gz:", "can't be distinguished from the registered ones"),
        ("mine", "", "could be mistaken for JSON"),
        ("mine", "no colon", "could be mistaken for JSON"),
        ("mine", '"x":', "could be mistaken for JSON"),
        ("mine", "1:", "could be mistaken for JSON"),
        ("mine", "Upper:", "could be mistaken for JSON"),
        ("mine", "a:b:", "could be mistaken for JSON"),
        ("mine", "a" * 20 + ":", "could be mistaken for JSON"),
    ],
)
def test_a_codec_that_could_be_mistaken_is_refused(name: str, prefix: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        register_codec(Codec(name, prefix, _reverse, _reverse))
    assert set(codec._by_name) == {"json", "gzip", "msgpack"}


@pytest.mark.parametrize("name", ["pickle", "", "GZIP", None])
def test_a_codec_that_is_not_there_is_refused_before_anything_is_sent(name: Any) -> None:
    with pytest.raises(UsageError, match=r"Codec .* is unknown; use one of json, gzip, msgpack"):
        Queue("q", codec=name)


@pytest.mark.parametrize(
    ("stored", "expected"), [("gz:AA", True), ("mp:AA", True), ("zz:AA", False), ("gz", False), ('{"gz":1}', False)]
)
def test_a_text_is_coded_if_it_begins_with_a_codecs_prefix(stored: str, expected: bool) -> None:
    assert codec.is_coded(stored) is expected


def test_what_gzip_makes_longer_is_measured_before() -> None:
    letters = [chr(number) for number in range(33, 127) if chr(number) not in '"\\']
    noise = "".join(random.Random(7).choices(letters, k=codec.MAX_PAYLOAD_BYTES - 2))
    assert len(codec.encode(noise, codec=GZIP)) > codec.MAX_PAYLOAD_BYTES
    with pytest.raises(PayloadError, match="exceeds maximum size"):
        codec.encode(f"{noise}x", codec=GZIP)
