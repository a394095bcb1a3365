"""Envelopes, members and specs, byte for byte as the original writes and reads them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import InvalidOptionError, PayloadError, ScheduleError
from orchestration_queue.wires.chasquimq.envelope import (
    BackoffSpec,
    Envelope,
    RetryOverride,
    backoff_ms,
    join_member,
    pack_envelope,
    split_member,
    unpack_envelope,
)
from orchestration_queue.wires.chasquimq.keys import ulid, ulids
from orchestration_queue.wires.chasquimq.options import ChasquiWorkerOptions
from orchestration_queue.wires.chasquimq.packing import pack, unpack
from orchestration_queue.wires.chasquimq.reader import Rejection, check_entry
from orchestration_queue.wires.chasquimq.repeat import RepeatSpec, first_fire, next_fire
from tests.chasquimq.vectors import VECTORS, labels

ENVELOPES = [
    *(case["fields_hex"]["d"] for case in VECTORS["immediate"] if "..." not in case["fields_hex"].get("d", "...")),
    *(entry["fields_hex"]["d"] for entry in VECTORS["bulk"]["entries"]),
]
MEMBERS = [
    member["hex"]
    for case in VECTORS["delayed"]
    for key in case["keys"].values()
    if key["type"] == "zset"
    for member in key["members"]
]
SPECS = [case["command"][7]["hex"] for case in VECTORS["repeat_spec"]]
TOLERANCE = VECTORS["tolerance"]
WRITTEN = [bytes.fromhex(written) for written in ENVELOPES]


@pytest.mark.parametrize("written", ENVELOPES)
def test_an_envelope_is_written_as_it_was_read(written: str) -> None:
    packed = bytes.fromhex(written)
    envelope = unpack_envelope(packed)
    assert pack_envelope(envelope) == packed
    assert pack(unpack(envelope.payload)) == envelope.payload


def test_the_vectors_cover_every_form_of_an_envelope() -> None:
    envelopes = [unpack_envelope(bytes.fromhex(written)) for written in ENVELOPES]
    assert {envelope.retry is None for envelope in envelopes} == {True, False}
    assert len(ENVELOPES) >= 18


def test_retry_overrides_are_the_arrays_that_the_original_writes() -> None:
    case = next(case for case in VECTORS["immediate"] if case["label"] == "retry:backoff-exp-full")
    backoff = BackoffSpec.exponential(250, multiplier=3, max_ms=10_000, jitter_ms=50)
    written = bytes.fromhex(case["fields_hex"]["d"])
    original = unpack_envelope(written)
    ours = Envelope(original.id, pack({"n": 1}), original.created_at_ms, retry=RetryOverride(7, backoff))
    assert pack_envelope(ours) == written


@pytest.mark.parametrize("case", TOLERANCE["envelope"], ids=labels(TOLERANCE["envelope"], "case"))
def test_envelopes_are_read_with_the_tolerance_of_the_original(case: dict[str, Any]) -> None:
    packed = bytes.fromhex(case["d_hex"])
    if case["outcome"] == "dlq decode_failed":
        with pytest.raises(PayloadError):
            unpack_envelope(packed)
        return
    envelope = unpack_envelope(packed)
    if case["outcome"] == "handled":
        assert [envelope.id, envelope.attempt, unpack(envelope.payload)] == [
            case["handler_saw"][0][index] for index in (0, 2, 3)
        ]
    else:
        with pytest.raises(PayloadError):
            unpack(envelope.payload)


@pytest.mark.parametrize("written", MEMBERS)
def test_a_delayed_member_is_written_as_it_was_read(written: str) -> None:
    member = bytes.fromhex(written)
    parts = split_member(member)
    assert parts is not None
    assert join_member(*parts) == member
    unpack_envelope(parts[1])


@pytest.mark.parametrize("member", [b"", b"\x01\x00", b"\x64\x00\x00\x00abc"])
def test_a_member_whose_length_does_not_fit_is_no_member(member: bytes) -> None:
    assert split_member(member) is None


@given(st.text(max_size=80), st.binary(max_size=80))
def test_every_member_can_be_split_again(name: str, envelope: bytes) -> None:
    assert split_member(join_member(name, envelope)) == (name, envelope)


@given(st.binary(max_size=60))
def test_no_bytes_but_a_payload_error(packed: bytes) -> None:
    for read in (unpack_envelope, RepeatSpec.unpack):
        try:
            read(packed)
        except PayloadError:
            continue


json_like: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_like, st.integers(0, 2**63), st.integers(0, 2**32 - 1), st.none() | st.integers(0, 2**32 - 1))
def test_every_job_comes_back_as_it_was_sent(data: Any, at_ms: int, attempt: int, most: int | None) -> None:
    retry = None if most is None else RetryOverride(most)
    envelope = Envelope("a job", pack(data), at_ms, attempt, retry)
    assert unpack_envelope(pack_envelope(envelope)) == envelope
    assert unpack(envelope.payload) == data


@pytest.mark.parametrize("value", [object(), float, 2**64])
def test_what_messagepack_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(PayloadError, match="cannot be written as MessagePack"):
        pack(value)


@pytest.mark.parametrize("count", [-1, 2**32, 1.5, True, "3"])
def test_attempts_outside_the_wires_range_are_refused(count: Any) -> None:
    with pytest.raises(InvalidOptionError, match="`attempts`"):
        RetryOverride(count)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BackoffSpec.fixed(-1),
        lambda: BackoffSpec.fixed(1.5),  # type: ignore[arg-type]  # the mistake under test
        lambda: BackoffSpec.exponential(1, multiplier=float("nan")),
        lambda: BackoffSpec.exponential(1, max_ms=-1),
        lambda: BackoffSpec("Exponential", 1).checked(),
    ],
)
def test_backoffs_outside_the_wires_range_are_refused(make: Any) -> None:
    with pytest.raises(InvalidOptionError):
        make()


@pytest.mark.parametrize("case", VECTORS["backoff"], ids=labels(VECTORS["backoff"], "label"))
def test_backoff_is_computed_as_the_original_computes_it(case: dict[str, Any]) -> None:
    wire = case["backoff_on_wire"]
    spec = None if wire is None else BackoffSpec.from_wire(wire)
    for failed, measured in enumerate(case["backoff_ms_sequence"], 1):
        low, high = backoff_ms(spec, failed, 0.0), backoff_ms(spec, failed, 0.999999)
        assert low <= measured <= high
        assert high - low == (100 if wire is None else wire[4] or 1) - 1 if low != high else True


def test_a_backoff_that_overflows_is_capped() -> None:
    assert backoff_ms(BackoffSpec.exponential(10, multiplier=1e300, max_ms=5, jitter_ms=0), 50, 0.0) == 5


def test_ulids_are_26_characters_that_sort_by_time() -> None:
    assert ulid(0, 0) == "0" * 26
    assert ulid(2**48 - 1, 2**80 - 1) == "7" + "Z" * 25
    assert ulid(1, 2**80 - 1) < ulid(2, 0)
    # The first vector's id was made within a second of its envelope.
    original = unpack_envelope(bytes.fromhex(ENVELOPES[0]))
    assert original.id[:7] == ulid(original.created_at_ms, 0)[:7]


def test_ulids_of_one_time_are_in_order_and_differ() -> None:
    shares = iter((1, 2))
    built = list(islice(ulids(5, lambda bits: next(shares) % 2**bits), 2**20 + 2))
    assert built == sorted(set(built))
    assert [built[0], built[2**20]] == [ulid(5, share << 20) for share in (1, 2)]


def test_what_cannot_be_packed_spoils_nothing_after_it() -> None:
    for bad in ([b"x" * 100, object()], [2**70], ["\ud800"]):
        with pytest.raises(PayloadError):
            pack(bad)
        assert unpack(pack({"a": [1, b"b"]})) == {"a": [1, b"b"]}
    assert [unpack(pack(b"x" * size)) for size in (70_000, 1)] == [b"x" * 70_000, b"x"]


@pytest.mark.parametrize("case", VECTORS["repeat_spec"], ids=labels(VECTORS["repeat_spec"], "label"))
def test_a_spec_is_written_as_it_was_read(case: dict[str, Any]) -> None:
    packed = bytes.fromhex(case["command"][7]["hex"])
    spec = RepeatSpec.unpack(packed)
    assert spec.pack() == packed
    assert spec.resolved_key == case["resolved_key"]
    called, first = case["called_at_ms"], case["next_fire_ms"]
    assert 0 <= first - first_fire(spec, called) < 50  # the time between the test's clock and the producer's


@pytest.mark.parametrize("case", TOLERANCE["spec"], ids=labels(TOLERANCE["spec"], "case"))
def test_specs_are_read_with_the_tolerance_of_the_original(case: dict[str, Any]) -> None:
    packed = bytes.fromhex(case["spec_hex"])
    if case["outcome"] == "fired, kept":
        assert next_fire(RepeatSpec.unpack(packed), 0) == 60_000
        return
    with pytest.raises((PayloadError, ScheduleError)):
        next_fire(RepeatSpec.unpack(packed), 0)


@given(
    st.lists(st.tuples(st.sampled_from([b"d", b"n", b"x"]), st.binary(max_size=60) | st.sampled_from(WRITTEN))),
    st.integers(0, 5),
)
def test_every_entry_is_run_or_becomes_a_dead_letter(pairs: list[tuple[bytes, bytes]], deliveries: int) -> None:
    taken = check_entry(
        "q", "1-1", [word for pair in pairs for word in pair], deliveries, ChasquiWorkerOptions(attempts=3)
    )
    if isinstance(taken, Rejection):
        assert taken.reason in {"malformed", "oversize_payload", "decode_failed", "retries_exhausted"}
    else:
        assert 1 <= taken.attempt <= taken.max_attempts
