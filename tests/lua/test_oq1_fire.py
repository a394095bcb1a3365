"""`oq1_fire`: what a tick decided is written while it is the leader, all at once, and else not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from orchestration_queue.protocol.functions.oq1 import EntryUpdate, NewJob, RunOrigin
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import schedule_entries
from tests.lua.oq1 import Own, new_job
from tests.lua.wire import NOW, Wire, event

LOCK = "schedulers:lock:__tick__"
DROP = "drop"


@pytest.fixture
def own(wire: Wire) -> Own:
    assert wire.call("tryLock", lock=LOCK, owner="mine") == 1
    wire.ask("HSET", wire.key("schedulers"), "nightly", "old", "gone", "old", "other", "old")
    return Own(wire)


def fire(
    own: Own,
    token: str,
    runs: Sequence[tuple[NewJob, RunOrigin]] = (),
    updates: Sequence[EntryUpdate] = (),
    misses: Sequence[tuple[str, int]] = (),
    looked_ms: int = 0,
) -> Any:
    write = schedule_entries.fire(QueueKeys(own.wire.queue), token, NOW, runs, updates, misses, looked_ms=looked_ms)
    return own.send(write.call)


def run(name: str, due_ms: int, previous: str = "", overlap: str = "allow") -> tuple[NewJob, RunOrigin]:
    job = new_job(name, custom_id=f"repeat.{name}.{due_ms}")
    return job, RunOrigin(name=name, due_ms=due_ms, previous=previous, overlap=overlap)


def update(name: str, entry: str = "new", look_ms: int = NOW + 9, **more: Any) -> EntryUpdate:
    return EntryUpdate(name=name, entry=entry, look_ms=look_ms, **more)


def history(own: Own, name: str) -> list[Any]:
    return [json.loads(note) for note in own.wire.ask("LRANGE", own.wire.key(f"schedulers:history:{name}"), 0, -1)]


def index(own: Own) -> list[str]:
    found: list[str] = own.wire.ask("ZRANGE", own.wire.key("schedulers:due"), 0, -1)
    return found


def test_the_leader_writes_jobs_entries_and_drops(own: Own) -> None:
    runs = [run("nightly", 5), run("gone", 5)]
    replies = fire(own, "mine", runs, [update("nightly"), update("gone", DROP), update("unknown", DROP)])
    assert replies == own.wire.stream_ids() == ["repeat.nightly.5", "repeat.gone.5"]
    assert own.wire.hash("schedulers") == {"nightly": "new", "other": "old"}
    assert index(own) == ["nightly"]
    assert own.wire.events() == [event("added", job.custom_id, name=job.job_name) for job, _ in runs]
    assert history(own, "nightly") == [[5, NOW, "repeat.nightly.5", "fired"]]
    assert own.wire.get(LOCK) == "mine"


@pytest.mark.parametrize("holder", ["another", None])
def test_who_lost_the_lock_writes_nothing(own: Own, holder: str | None) -> None:
    own.wire.ask("DEL", own.wire.key(LOCK))
    if holder:
        own.wire.call("tryLock", lock=LOCK, owner=holder)
    with own.wire.unchanged():
        assert fire(own, "mine", [run("nightly", 5)], [update("nightly"), update("gone", DROP)]) == "lost"


def test_repeating_it_adds_no_job_twice(own: Own) -> None:
    runs = [run("nightly", 5, previous="repeat.nightly.4", overlap="skip")]
    fire(own, "mine", runs, [update("nightly")])
    with own.wire.unchanged():
        assert fire(own, "mine", runs, [update("nightly")]) == ["duplicate"]


def test_a_tick_may_only_tidy_up(own: Own) -> None:
    assert fire(own, "mine", updates=[update(name, DROP) for name in ("nightly", "gone", "other")]) == []
    assert own.wire.names() == {LOCK}


def test_an_entry_may_stay_and_only_be_looked_at_later(own: Own) -> None:
    fire(own, "mine", updates=[update("nightly", "")], looked_ms=60_000)
    assert own.wire.hash("schedulers")["nightly"] == "old"
    assert index(own) == ["nightly"]
    assert 0 < own.wire.ask("PTTL", own.wire.key("schedulers:looked")) <= 60_000


@pytest.mark.parametrize(
    ("overlap", "outcome", "previous_state"),
    [
        ("skip", "overlap", "waiting"),
        ("queue_one", "queued", "waiting"),
        ("replace", "fired", "failed"),
        ("allow", "fired", "waiting"),
    ],
)
def test_a_run_meets_the_unfinished_job_of_the_one_before(
    own: Own, overlap: str, outcome: str, previous_state: str
) -> None:
    previous = own.wire.add(customJobId="repeat.nightly.4")
    updates = [update("nightly", "fired", held_entry="held", held_look_ms=NOW + 1)]
    (reply,) = fire(own, "mine", [run("nightly", 5, previous, overlap)], updates)
    is_held = outcome != "fired"
    assert reply == ("held" if is_held else "repeat.nightly.5")
    assert own.wire.hash("schedulers")["nightly"] == ("held" if is_held else "fired")
    assert own.wire.job(previous)["state"] == previous_state
    assert history(own, "nightly") == [[5, NOW, "" if is_held else "repeat.nightly.5", outcome]]


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "replace"])
@pytest.mark.parametrize("state", ["completed", "failed", None])
def test_a_job_that_has_ended_holds_nothing_back(own: Own, overlap: str, state: str | None) -> None:
    if state:
        own.wire.ask("HSET", own.wire.key("job:before"), "state", state)
    assert fire(own, "mine", [run("nightly", 5, "before", overlap)], [update("nightly")]) == ["repeat.nightly.5"]


def test_the_history_keeps_the_last_fifty_and_goes_in_the_end(own: Own) -> None:
    for due_ms in range(55):
        fire(own, "mine", misses=[("nightly", due_ms)])
    assert [note[0] for note in history(own, "nightly")] == list(range(54, 4, -1))
    assert {note[3] for note in history(own, "nightly")} == {"missed"}
    fire(own, "mine", updates=[update("nightly", DROP)])
    assert 0 < own.wire.ask("TTL", own.wire.key("schedulers:history:nightly")) <= 30 * 86400


KEYS = [
    LOCK, "schedulers", "schedulers:due", "schedulers:looked", "id", "stream", "scheduled", "failed", "events",
]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["mine"], "'now_ms' is not a whole number"),
        (["mine", NOW, 0, "x", 0, 0, 0], "'job_count' is not a whole number"),
        (["mine", NOW, 0, 0, 1, 0, 0, "nightly", 5, "", "allow"], "0 jobs and 1 runs"),
        (["mine", NOW, 0, 0, 0, 2, 0, "gone"], "takes 9 keys and"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[str | int], why: str) -> None:
    own.refused("fire", [own.wire.key(name) for name in KEYS], args, why)
