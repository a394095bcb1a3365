"""The functions of the library `chasquimq`, one by one: what each writes, and that none writes half of it."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.protocol.functions.chasquimq import Replayed
from orchestration_queue.wires.chasquimq.envelope import join_member
from orchestration_queue.wires.chasquimq.keys import LIBRARY
from orchestration_queue.wires.chasquimq.packing import pack
from tests.lua.chasquimq import GROUP, Chasqui
from tests.lua.wire import Wire

SPEC = b"spec"


@pytest.fixture
def chasqui(wire: Wire) -> Chasqui:
    return Chasqui(wire)


def test_version(chasqui: Chasqui) -> None:
    assert chasqui.send(functions.version()) == LIBRARY.version


# -- adding ------------------------------------------------------------------------------------------------------


def add(chasqui: Chasqui, name: str = "mail", job_id: str = "a") -> Any:
    marker = chasqui.keys.marker(job_id)
    return chasqui.send(
        functions.add(
            stream_key=chasqui.keys.stream, marker_key=marker, ttl_s=9, max_length=100, job_name=name, envelope=b"job"
        )
    )


def delay(chasqui: Chasqui, run_at_ms: int, member: bytes = b"\0\0\0\0job", job_id: str = "a") -> Any:
    keys = chasqui.keys
    return chasqui.send(
        functions.delay(
            marker_key=keys.marker(job_id),
            delayed_key=keys.delayed,
            index_key=keys.index(job_id),
            ttl_s=9,
            run_at_ms=run_at_ms,
            member=member,
        )
    )


def cancel(chasqui: Chasqui, job_id: str = "a") -> Any:
    keys = chasqui.keys
    index, marker = keys.index(job_id), keys.marker(job_id)
    return chasqui.send(functions.cancel(delayed_key=keys.delayed, index_key=index, marker_key=marker))


def test_an_id_is_added_once(chasqui: Chasqui) -> None:
    assert add(chasqui) == 1
    assert chasqui.entries(chasqui.keys.stream) == [{"d": "job", "n": "mail"}]
    assert chasqui.wire.ask("GET", chasqui.keys.marker("a")) == "1"
    assert 0 < chasqui.wire.ask("TTL", chasqui.keys.marker("a")) <= 9
    with chasqui.unchanged():
        assert add(chasqui) == 0


def test_a_job_without_a_name_has_one_field(chasqui: Chasqui) -> None:
    add(chasqui, "")
    assert chasqui.entries(chasqui.keys.stream) == [{"d": "job"}]


def test_an_id_waits_once_and_can_be_cancelled(chasqui: Chasqui) -> None:
    assert delay(chasqui, 5) == 1
    assert chasqui.wire.ask("ZRANGE", chasqui.keys.delayed, 0, -1, "WITHSCORES") == ["\0\0\0\0job", "5"]
    assert chasqui.wire.ask("GET", chasqui.keys.index("a")) == "\0\0\0\0job"
    assert 0 < chasqui.wire.ask("TTL", chasqui.keys.index("a")) <= 9
    with chasqui.unchanged():
        assert delay(chasqui, 6) == 0
        assert add(chasqui) == 0
        assert cancel(chasqui, "other") == 0
    assert cancel(chasqui) == 1
    assert chasqui.wire.dump() == {}


def test_a_job_that_no_longer_waits_is_not_cancelled(chasqui: Chasqui) -> None:
    delay(chasqui, 5)
    chasqui.wire.ask("DEL", chasqui.keys.delayed)
    with chasqui.unchanged():
        assert cancel(chasqui) == 0


# -- leases ------------------------------------------------------------------------------------------------------


def claim(chasqui: Chasqui, idle_ms: int = 0, most: int = 10) -> Any:
    return chasqui.send(
        functions.claim(stream_key=chasqui.keys.stream, group=GROUP, consumer="c-2", idle_ms=idle_ms, most=most)
    )


def test_leases_that_ran_out_are_taken_over(chasqui: Chasqui) -> None:
    first, second = chasqui.deliver("one", "two")
    assert claim(chasqui, idle_ms=3_600_000) == []
    assert claim(chasqui, most=1) == [[first, ["d", "one", "n", "mail"], 1]]
    assert chasqui.owners() == {first: ("c-2", 2), second: ("c-1", 1)}
    assert [deliveries for _, _, deliveries in claim(chasqui)] == [2, 1]


def test_an_entry_that_was_removed_is_not_taken_over(chasqui: Chasqui) -> None:
    (entry,) = chasqui.deliver("one")
    chasqui.wire.ask("XDEL", chasqui.keys.stream, entry)
    assert claim(chasqui) == []


def test_only_leases_of_the_caller_are_renewed(chasqui: Chasqui) -> None:
    ours, lost, settled = chasqui.deliver("one", "two", "three")
    chasqui.wire.ask("XCLAIM", chasqui.keys.stream, GROUP, "c-2", 0, lost)
    chasqui.wire.ask("XACK", chasqui.keys.stream, GROUP, settled)
    chasqui.wire.ask("XCLAIM", chasqui.keys.stream, GROUP, "c-1", 0, ours, "IDLE", 3_600_000, "JUSTID")
    call = functions.renew(
        stream_key=chasqui.keys.stream, group=GROUP, consumer="c-1", entry_ids=[ours, lost, settled, "1-1"]
    )
    assert chasqui.send(call) == [1, 0, 0, 0]
    assert claim(chasqui, idle_ms=3_500_000) == []
    assert chasqui.owners() == {ours: ("c-1", 1), lost: ("c-2", 2)}


# -- outcomes ----------------------------------------------------------------------------------------------------


def settle(chasqui: Chasqui, function: str, entry_id: str) -> Any:
    """The call of one outcome of a job."""
    keys, entry = chasqui.keys, {"stream_key": chasqui.keys.stream, "group": GROUP, "entry_id": entry_id}
    calls = {
        "acknowledge": lambda: functions.acknowledge(stream_key=keys.stream, group=GROUP, entry_ids=[entry_id]),
        "finish": lambda: functions.finish(result_key=keys.result("a"), ttl_s=9, value=b"done", **entry),
        "retry": lambda: functions.retry(delayed_key=keys.delayed, backoff_ms=60_000, member=b"member", **entry),
        "bury": lambda: functions.bury(
            dead_letters_key=keys.dead_letters,
            max_dead=9,
            envelope=b"job",
            job_name="mail",
            reason="unrecoverable",
            detail="no such file",
            **entry,
        ),
    }
    return chasqui.send(calls[function]())


OUTCOMES = ("acknowledge", "finish", "retry", "bury")


@pytest.mark.parametrize("function", OUTCOMES)
def test_an_outcome_is_recorded_once(chasqui: Chasqui, function: str) -> None:
    entry, other = chasqui.deliver("one", "two")
    assert settle(chasqui, function, entry) == 1
    assert list(chasqui.owners()) == [other]
    assert chasqui.entries(chasqui.keys.stream) == [{"d": "two", "n": "mail"}]
    with chasqui.unchanged():
        assert settle(chasqui, function, entry) == 0
        assert settle(chasqui, function, "1-1") == 0


@pytest.mark.parametrize("function", OUTCOMES)
def test_an_outcome_of_an_unknown_queue_writes_nothing(chasqui: Chasqui, function: str) -> None:
    with chasqui.unchanged():
        assert settle(chasqui, function, "1-1") == 0


def test_events_are_added_as_they_are_given(chasqui: Chasqui) -> None:
    events = [["e", "active", "id", "a", "ts", "1700000000000", "n", "\u00e9"], ["e", "drained", "id", "", "ts", "1"]]
    packed = pack(events)
    call = functions.report(events_key=chasqui.keys.events, max_length=100_000, packed=packed)
    assert chasqui.send(call) == 2
    pairs = [dict(zip(event[::2], event[1::2], strict=True)) for event in events]
    assert chasqui.entries(chasqui.keys.events) == pairs


def test_many_are_acknowledged_at_once(chasqui: Chasqui) -> None:
    entries = chasqui.deliver("one", "two", "three")
    call = functions.acknowledge(stream_key=chasqui.keys.stream, group=GROUP, entry_ids=[*entries, "1-1"])
    assert chasqui.send(call) == 3
    assert chasqui.entries(chasqui.keys.stream) == []


def test_a_result_is_kept_for_its_time(chasqui: Chasqui) -> None:
    settle(chasqui, "finish", *chasqui.deliver("one"))
    assert chasqui.wire.ask("GET", chasqui.keys.result("a")) == "done"
    assert 0 < chasqui.wire.ask("TTL", chasqui.keys.result("a")) <= 9


def test_a_retry_waits_on_the_servers_clock(chasqui: Chasqui) -> None:
    (entry,) = chasqui.deliver("one")
    before = chasqui.server_ms()
    settle(chasqui, "retry", entry)
    member, run_at_ms = chasqui.wire.ask("ZRANGE", chasqui.keys.delayed, 0, -1, "WITHSCORES")
    assert member == "member"
    assert before <= int(run_at_ms) - 60_000 <= chasqui.server_ms()


def test_a_dead_letter_says_where_from_and_why(chasqui: Chasqui) -> None:
    (entry,) = chasqui.deliver("one")
    settle(chasqui, "bury", entry)
    assert chasqui.entries(chasqui.keys.dead_letters) == [
        {"d": "job", "n": "mail", "source_id": entry, "reason": "unrecoverable", "detail": "no such file"}
    ]


def test_fields_of_a_dead_letter_that_are_empty_are_left_out(chasqui: Chasqui) -> None:
    (entry,) = chasqui.deliver("one")
    keys = chasqui.keys
    call = functions.bury(
        stream_key=keys.stream,
        dead_letters_key=keys.dead_letters,
        group=GROUP,
        entry_id=entry,
        max_dead=9,
        envelope=b"",
        job_name="",
        reason="malformed",
        detail="",
    )
    assert chasqui.send(call) == 1
    assert chasqui.entries(keys.dead_letters) == [{"d": "", "source_id": entry, "reason": "malformed"}]


def test_dead_letters_that_are_still_there_are_replayed(chasqui: Chasqui) -> None:
    keys = chasqui.keys
    there = chasqui.wire.ask("XADD", keys.dead_letters, "*", "d", "job")
    letters = [Replayed(there, b"again", "mail"), Replayed("1-1", b"gone", "")]
    call = functions.replay(dead_letters_key=keys.dead_letters, stream_key=keys.stream, max_length=100, letters=letters)
    assert chasqui.send(call) == 1
    assert chasqui.entries(keys.stream) == [{"d": "again", "n": "mail"}]
    with chasqui.unchanged():
        assert chasqui.send(call) == 0


# -- leaders: promotion and schedules ----------------------------------------------------------------------------


def promote(chasqui: Chasqui, holder: str = "c-1", most: int = 10) -> Any:
    keys = chasqui.keys
    return chasqui.send(
        functions.promote(
            delayed_key=keys.delayed,
            stream_key=keys.stream,
            dead_letters_key=keys.dead_letters,
            lock_key=keys.promoter_lock,
            holder=holder,
            ttl_s=5,
            most=most,
            max_length=100,
            max_dead=9,
        )
    )


def test_due_jobs_become_ready_in_their_order(chasqui: Chasqui) -> None:
    hour_ahead = chasqui.server_ms() + 3_600_000
    for at, name, envelope in ((2, "mail", b"two"), (1, "", b"one"), (3, "", b""), (hour_ahead, "later", b"later")):
        chasqui.wire.driver.zadd(chasqui.keys.delayed, {join_member(name, envelope): at})
    assert promote(chasqui, most=2) == [1, 2, "one", "two"]
    assert chasqui.entries(chasqui.keys.stream) == [{"d": "one"}, {"d": "two", "n": "mail"}]
    assert promote(chasqui) == [1, 1, ""]
    assert promote(chasqui) == [1, 1]
    assert 0 < chasqui.wire.ask("TTL", chasqui.keys.promoter_lock) <= 5


@pytest.mark.parametrize("member", [b"", b"\1\0\0", b"\1\0\0\0", b"\x7f\x7f\x7f\x7fx"])
def test_a_member_whose_length_does_not_fit_becomes_a_dead_letter(chasqui: Chasqui, member: bytes) -> None:
    chasqui.wire.driver.zadd(chasqui.keys.delayed, {member: 1})
    assert promote(chasqui) == [1, 0]
    (letter,) = chasqui.entries(chasqui.keys.dead_letters)
    assert letter == {
        "d": member.decode(),
        "reason": "malformed",
        "detail": "delayed member without a valid name length",
    }


@pytest.mark.parametrize("role", ["promote", "due"])
def test_who_does_not_lead_does_nothing(chasqui: Chasqui, role: str) -> None:
    keys = chasqui.keys
    chasqui.wire.driver.zadd(keys.delayed, {join_member("", b"job"): 1})
    chasqui.wire.ask("ZADD", keys.repeat, 1, "gone")
    lock = keys.promoter_lock if role == "promote" else keys.scheduler_lock
    chasqui.wire.ask("SET", lock, "another")
    with chasqui.unchanged():
        assert promote(chasqui) == [0, 0] if role == "promote" else due(chasqui) == [0, "-1"]
        assert chasqui.send(functions.release(lock_key=lock, holder="c-1")) == 0


def test_a_leader_renews_and_releases(chasqui: Chasqui) -> None:
    lock = chasqui.keys.promoter_lock
    promote(chasqui)
    chasqui.wire.ask("EXPIRE", lock, 1)
    assert promote(chasqui)[0] == 1
    assert chasqui.wire.ask("TTL", lock) > 1
    assert promote(chasqui, "c-2")[0] == 0
    assert chasqui.send(functions.release(lock_key=lock, holder="c-1")) == 1
    assert promote(chasqui, "c-2")[0] == 1


def put(chasqui: Chasqui, name: str = "tick", next_ms: int = 10) -> None:
    keys = chasqui.keys
    call = functions.put_spec(
        repeats_key=keys.repeat, spec_key=keys.spec(name), next_ms=next_ms, name=name, packed=SPEC
    )
    assert chasqui.send(call) == 1


def due(chasqui: Chasqui, now_ms: int = 100, most: int = 10) -> Any:
    keys = chasqui.keys
    return chasqui.send(
        functions.due(
            repeats_key=keys.repeat,
            lock_key=keys.scheduler_lock,
            holder="s-1",
            ttl_s=5,
            now_ms=now_ms,
            most=most,
        )
    )


def fire(
    chasqui: Chasqui, score: str = "10", next_ms: int = 20, limit: int = 0, envelopes: tuple[bytes, ...] = (b"job",)
) -> Any:
    keys = chasqui.keys
    return chasqui.send(
        functions.fire(
            stream_key=keys.stream,
            repeats_key=keys.repeat,
            spec_key=keys.spec("tick"),
            name="tick",
            score=score,
            next_ms=next_ms,
            fire_limit=limit,
            max_length=100,
            job_name="mail",
            envelopes=envelopes,
        )
    )


def test_a_replaced_spec_keeps_its_count(chasqui: Chasqui) -> None:
    put(chasqui)
    fire(chasqui)
    put(chasqui, next_ms=7)
    assert chasqui.wire.ask("HGETALL", chasqui.keys.spec("tick")) == {"spec": "spec", "fired": "1"}
    assert chasqui.wire.ask("ZSCORE", chasqui.keys.repeat, "tick") == 7


def test_due_lists_specs_and_forgets_names_without_one(chasqui: Chasqui) -> None:
    put(chasqui, "first", 10)
    put(chasqui, "later", 200)
    chasqui.wire.ask("ZADD", chasqui.keys.repeat, 50, "gone")
    assert due(chasqui) == [1, "10", ["first", "10", "spec"]]
    assert chasqui.wire.ask("ZRANGE", chasqui.keys.repeat, 0, -1) == ["first", "later"]
    assert due(chasqui, now_ms=5) == [1, "10"]
    chasqui.wire.ask("DEL", chasqui.keys.repeat)
    assert due(chasqui) == [1, "-1"]


def test_due_fires_become_jobs(chasqui: Chasqui) -> None:
    put(chasqui)
    assert fire(chasqui, envelopes=(b"one", b"two")) == 2
    assert chasqui.entries(chasqui.keys.stream) == [{"d": "one", "n": "mail"}, {"d": "two", "n": "mail"}]
    assert chasqui.wire.ask("ZSCORE", chasqui.keys.repeat, "tick") == 20
    assert chasqui.wire.ask("HGET", chasqui.keys.spec("tick"), "fired") == "2"


def test_a_skipped_fire_adds_no_job(chasqui: Chasqui) -> None:
    put(chasqui)
    assert fire(chasqui, envelopes=()) == 0
    assert chasqui.wire.ask("ZSCORE", chasqui.keys.repeat, "tick") == 20
    assert not chasqui.wire.ask("EXISTS", chasqui.keys.stream)


@pytest.mark.parametrize("score", ["9", "11", ""])
def test_a_fire_that_another_scheduler_made_is_not_made_again(chasqui: Chasqui, score: str) -> None:
    put(chasqui)
    with chasqui.unchanged():
        assert fire(chasqui, score=score) == -1


def test_a_fire_of_a_removed_spec_is_not_made(chasqui: Chasqui) -> None:
    with chasqui.unchanged():
        assert fire(chasqui) == -1


def test_a_limit_ends_a_spec_on_time(chasqui: Chasqui) -> None:
    put(chasqui)
    assert fire(chasqui, limit=3, envelopes=(b"1", b"2")) == 2
    assert fire(chasqui, score="20", next_ms=30, limit=3, envelopes=(b"3", b"4")) == 1
    assert [fields["d"] for fields in chasqui.entries(chasqui.keys.stream)] == ["1", "2", "3"]
    assert not chasqui.wire.ask("EXISTS", chasqui.keys.repeat, chasqui.keys.spec("tick"))


def test_a_spec_without_a_next_fire_ends(chasqui: Chasqui) -> None:
    put(chasqui)
    assert fire(chasqui, next_ms=0) == 1
    assert not chasqui.wire.ask("EXISTS", chasqui.keys.repeat, chasqui.keys.spec("tick"))


def test_a_spec_is_dropped_with_its_count(chasqui: Chasqui) -> None:
    put(chasqui)
    call = functions.drop_spec(repeats_key=chasqui.keys.repeat, spec_key=chasqui.keys.spec("tick"), name="tick")
    assert chasqui.send(call) == 1
    assert chasqui.wire.dump() == {}
    assert chasqui.send(call) == 0


def reject(chasqui: Chasqui, packed: bytes = SPEC, name: bytes = b"tick") -> Any:
    keys = chasqui.keys
    return chasqui.send(
        functions.reject_spec(
            repeats_key=keys.repeat,
            dead_letters_key=keys.dead_letters,
            name=name,
            packed=packed,
            max_dead=9,
            detail="no array",
        )
    )


def test_a_spec_that_cannot_be_read_becomes_a_dead_letter(chasqui: Chasqui) -> None:
    put(chasqui)
    with chasqui.unchanged():
        assert reject(chasqui, b"older") == 0
        assert reject(chasqui, name=b"other") == 0
    assert reject(chasqui) == 1
    assert chasqui.entries(chasqui.keys.dead_letters) == [{"d": "spec", "reason": "malformed", "detail": "no array"}]
    assert not chasqui.wire.ask("EXISTS", chasqui.keys.repeat, chasqui.keys.spec("tick"))
    assert reject(chasqui) == 0


# -- malformed calls ---------------------------------------------------------------------------------------------


def sound_calls(chasqui: Chasqui) -> dict[str, Call]:
    """A call of each function that would change something."""
    sent: dict[str, Call] = {}

    class Catcher(Chasqui):
        def send(self, call: Call) -> Any:
            sent[call.name.removeprefix("chasquimq_")] = call
            return 1

    keys, catcher = chasqui.keys, Catcher(chasqui.wire)
    entry, _ = chasqui.deliver("one", "two")
    letter = chasqui.wire.ask("XADD", keys.dead_letters, "*", "d", "job")
    put(chasqui)
    delay(chasqui, 5, job_id="there")
    for lock, holder in ((keys.promoter_lock, "c-1"), (keys.scheduler_lock, "s-1")):
        chasqui.wire.ask("SET", lock, holder)
    chasqui.wire.ask("ZADD", keys.repeat, 1, "gone")
    add(catcher, job_id="new")
    delay(catcher, 5, b"member", "new")
    cancel(catcher, "there")
    claim(catcher)
    for outcome in OUTCOMES:
        settle(catcher, outcome, entry)
    promote(catcher)
    put(catcher, "new")
    due(catcher)
    fire(catcher)
    reject(catcher)
    catcher.send(functions.report(events_key=keys.events, max_length=9, packed=pack([["e", "drained"]])))
    letters = [Replayed(letter, b"job", "mail")]
    catcher.send(functions.renew(stream_key=keys.stream, group=GROUP, consumer="c-1", entry_ids=[entry]))
    catcher.send(functions.drop_spec(repeats_key=keys.repeat, spec_key=keys.spec("tick"), name="tick"))
    catcher.send(functions.release(lock_key=keys.promoter_lock, holder="c-1"))
    catcher.send(
        functions.replay(dead_letters_key=keys.dead_letters, stream_key=keys.stream, max_length=9, letters=letters)
    )
    return sent


FUNCTIONS = sorted(set(functions.__all__) - {"Replayed", "version"})
WIRE_NAMES = {"drop_spec": "dropSpec", "put_spec": "putSpec", "reject_spec": "rejectSpec"}


def test_every_function_has_a_sound_call(chasqui: Chasqui) -> None:
    assert sorted(sound_calls(chasqui)) == sorted(WIRE_NAMES.get(name, name) for name in FUNCTIONS)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "renew"])  # it changes ages of leases only
def test_the_sound_call_changes_something(chasqui: Chasqui, name: str) -> None:
    """Otherwise the malformed ones below would prove nothing."""
    call = sound_calls(chasqui)[WIRE_NAMES.get(name, name)]
    before = chasqui.wire.dump(), chasqui.owners()
    chasqui.send(call)
    assert before != (chasqui.wire.dump(), chasqui.owners())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_number_of_words_is_refused(chasqui: Chasqui, name: str) -> None:
    function = WIRE_NAMES.get(name, name)
    call = sound_calls(chasqui)[function]
    keys, args = list(call.keys), list(call.args)
    wrong = [(keys[:-1], args), ([*keys, "k"], args), (keys, [*args, "x"])]
    for wrong_keys, wrong_args in [*wrong, *([(keys, args[:-1])] if args else [])]:
        chasqui.refused(function, wrong_keys, wrong_args, "takes|whole number")  # type: ignore[arg-type]  # bytes are words


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_whole_number_is_refused(chasqui: Chasqui, name: str) -> None:
    function = WIRE_NAMES.get(name, name)
    call = sound_calls(chasqui)[function]
    for place, word in enumerate(call.args):
        if not isinstance(word, int):
            continue
        for junk in ("", "soon", "-1", "1.5", "nan", str(2**53 + 2), "1e3"):
            args = [*call.args[:place], junk, *call.args[place + 1 :]]
            chasqui.refused(function, list(call.keys), args, "whole number|takes")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_key_of_another_type_stops_a_call_before_it_writes(chasqui: Chasqui, name: str) -> None:
    call = sound_calls(chasqui)[WIRE_NAMES.get(name, name)]
    key = call.keys[1 if name == "delay" else 0]  # a marker of any type is a marker
    chasqui.wire.ask("DEL", key)
    chasqui.wire.ask("RPUSH", key, "not this")
    with chasqui.wire.unchanged(), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        chasqui.send(call)


def test_a_spec_of_another_type_stops_no_other(chasqui: Chasqui) -> None:
    put(chasqui)
    chasqui.wire.ask("SET", chasqui.keys.spec("text"), "text")
    chasqui.wire.ask("ZADD", chasqui.keys.repeat, 1, "text")
    assert due(chasqui) == [1, "1", ["tick", "10", "spec"]]
    assert chasqui.wire.ask("ZRANGE", chasqui.keys.repeat, 0, -1) == ["tick"]
