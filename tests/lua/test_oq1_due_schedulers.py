"""`oq1_dueSchedulers`, `oq1_putScheduler` and `oq1_tick`: what is due is found without reading everything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestration_queue.protocol.call import Operation, Reply, T_co
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import schedule_entries, worker_signals
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire

WAITING: dict[str, Any] = {"repeatAfterComplete": 1000, "nextRun": 0}


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def ask(own: Own, operation: Operation[T_co]) -> T_co:
    call = operation.call
    reply: Reply = own.wire.client.fcall(call.name, len(call.keys), *call.keys, *call.args)
    return operation.read(reply)


def keys(own: Own) -> QueueKeys:
    return QueueKeys(own.wire.queue)


def put(own: Own, name: str, look_ms: int = NOW, **entry: Any) -> None:
    own.send(schedule_entries.put(keys(own), name, json.dumps(entry), look_ms))


def due(own: Own, limit: int = 10) -> schedule_entries.DueEntries:
    return ask(own, schedule_entries.due_entries(keys(own), NOW, limit))


def looked(own: Own) -> None:
    own.wire.ask("SET", own.wire.key("schedulers:looked"), 1, "PX", 60_000)


def next_look(own: Own) -> int:
    return ask(own, worker_signals.tick(keys(own), NOW)).schedules_due_ms


def test_only_what_is_due_is_read_the_earliest_first(own: Own) -> None:
    for name, look_ms in (("later", NOW + 1), ("now", NOW), ("before", NOW - 5), ("long ago", 1)):
        put(own, name, look_ms, every=1)
    looked(own)
    found = due(own, limit=2)
    assert ([entry.name for entry in found.entries], found.needs_full_look) == (["long ago", "before"], False)
    assert next_look(own) == 1


def test_without_entries_nothing_is_looked_for(own: Own) -> None:
    with own.wire.unchanged():
        assert next_look(own) == -1
        assert due(own) == schedule_entries.DueEntries(False, ())


def test_entries_of_other_clients_are_noticed_by_their_number_and_once_a_minute_anyway(own: Own) -> None:
    put(own, "ours", NOW + 7, every=1)
    assert next_look(own) == 0
    looked(own)
    assert next_look(own) == NOW + 7
    own.wire.ask("HSET", own.wire.key("schedulers"), "theirs", "{}")
    assert next_look(own) == 0
    assert due(own).needs_full_look


def test_dropping_an_entry_takes_it_out_of_the_index(own: Own) -> None:
    put(own, "a", every=1)
    assert ask(own, schedule_entries.drop(keys(own), "a"))
    assert not ask(own, schedule_entries.drop(keys(own), "a"))
    assert own.wire.names() == set()


def test_an_entry_that_others_removed_leaves_the_index(own: Own) -> None:
    put(own, "a", every=1)
    own.wire.ask("HDEL", own.wire.key("schedulers"), "a")
    assert due(own).entries == ()
    assert own.wire.names() == set()


@pytest.mark.parametrize(
    ("state", "fate", "ended_ms"), [("active", "open", 0), ("completed", "ended", NOW), ("failed", "ended", NOW)]
)
def test_it_tells_what_became_of_the_job_an_entry_names(own: Own, state: str, fate: str, ended_ms: int) -> None:
    put(own, "a", every=1, oq={"job": "j-1"})
    assert due(own).entries[0].fate == "gone"
    own.wire.ask("HSET", own.wire.key("job:j-1"), "state", state, "finishedOn", NOW)
    (entry,) = due(own).entries
    assert (entry.fate, entry.ended_ms) == (fate, ended_ms)


@pytest.mark.parametrize(
    "values",
    [{}, {"delay": 500}, {"priority": 3}, {"lifo": 1}],
    ids=["on the stream", "delayed", "prioritized", "newest first"],
)
def test_the_job_of_an_entry_that_names_none_is_searched(own: Own, values: dict[str, Any]) -> None:
    put(own, "a", **WAITING)
    own.wire.add(**values)
    assert due(own).entries[0].fate == "gone"
    own.wire.add(schedulerName="a", **values)
    assert due(own).entries[0].fate == "open"


def test_a_search_that_cannot_see_all_finds_nothing_out(own: Own) -> None:
    put(own, "a", **WAITING)
    own.wire.ask("SET", own.wire.key("list-active"), 1)
    assert due(own).entries[0].fate == "open"
    own.wire.ask("SET", own.wire.key("list-active"), 0)
    own.wire.ask("ZADD", own.wire.key("scheduled"), *[word for n in range(1000) for word in (NOW, f"j{n}")])
    assert due(own).entries[0].fate == "open"


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '{"oq":5}', '{"oq":{"job":7}}', '{"repeatAfterComplete":5,"nextRun":9}']
)
def test_entries_that_wait_for_nothing_or_cannot_be_read_are_handed_on(own: Own, text: str) -> None:
    own.send(schedule_entries.put(keys(own), "a", text, NOW))
    (entry,) = due(own).entries
    assert (entry.text, entry.fate) == (text, "")


@pytest.mark.parametrize(
    ("stored", "read", "lock", "outcome"),
    [
        (None, None, None, "ok"),
        ("{}", "{}", None, "ok"),
        ("{}", None, None, "changed"),
        (None, "{}", None, "changed"),
        ('{"every":2}', "{}", None, "changed"),
        ("{}", "{}", "another", "locked"),
    ],
)
def test_an_entry_is_replaced_if_it_is_what_was_read_and_no_lock_is_held(
    own: Own, stored: str | None, read: str | None, lock: str | None, outcome: str
) -> None:
    if stored is not None:
        own.wire.ask("HSET", own.wire.key("schedulers"), "a", stored)
    if lock is not None:
        own.wire.ask("SET", keys(own).schedulers_lock, lock)
    assert ask(own, schedule_entries.replace(keys(own), "a", read, '{"every":1}')) == outcome
    expected = '{"every":1}' if outcome == "ok" else stored
    assert own.wire.ask("HGET", own.wire.key("schedulers"), "a") == expected
    assert next_look(own) == (-1 if expected is None else 0)


def test_malformed_arguments_are_refused(own: Own) -> None:
    names = [
        own.wire.key(name) for name in ("schedulers", "schedulers:due", "schedulers:looked", "stream", "scheduled")
    ]
    own.refused("dueSchedulers", names, [NOW, 0], "a limit of 0 gets nowhere")
    own.refused("dueSchedulers", names, [NOW], "'limit' is not a whole number")
    own.refused("putScheduler", names[:2], ["a", "{}"], "'look_ms' is not a whole number")
