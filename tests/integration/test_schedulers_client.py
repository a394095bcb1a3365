"""Repeatable jobs as clients set them: the wire's entry, under the wire's lock."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.errors import (
    InvalidNameError,
    InvalidOptionError,
    PayloadError,
    ScheduleError,
    SchedulerBusyError,
    StateError,
)
from orchestration_queue.options import JobOptions
from orchestration_queue.schedules import Cron, Every, JobTemplate, RepeatAfterComplete, Schedule
from orchestration_queue.testing import TimeMachine
from tests.faces import Face

TEMPLATE = JobTemplate(name="load", data={"day": 1}, options=JobOptions(attempts=3))


async def test_an_entry_is_stored_as_the_wire_says(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        entry = await queue.schedulers.upsert("nightly", Cron("30 2 * * *", tz="Europe/Berlin", limit=9), TEMPLATE)
        stored = json.loads(raw.hget(queue.keys.schedulers, "nightly"))
    assert stored == {
        "pattern": "30 2 * * *",
        "tz": "Europe/Berlin",
        "limit": 9,
        "iterationCount": 0,
        "template": {"name": "load", "data": {"day": 1}, "opts": {"attempts": 3}},
        "nextRun": entry.next_run,
    }
    assert entry.next_run > datetime.now(UTC).timestamp() * 1000
    assert not raw.exists(queue.keys.schedulers_lock)


async def test_the_same_times_go_on_counting_and_other_times_start_anew(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        first = await schedulers.upsert("often", Every(60), TEMPLATE)
        progressed = {**first.members, "iterationCount": 5, "lastRun": 1}
        raw.hset(schedulers.keys.schedulers, "often", json.dumps(progressed))
        same = await schedulers.upsert("often", Every(60, limit=7))
        assert (same.iteration_count, same.last_run, same.next_run, same.limit) == (5, 1, first.next_run, 7)
        other = await schedulers.upsert("often", Every(61))
        assert (other.iteration_count, other.last_run, other.limit) == (0, None, None)


async def test_schedulers_are_listed_looked_up_and_removed(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        assert await schedulers.list() == {}
        for name, schedule in {"b": Every(60), "a": RepeatAfterComplete(5), "any name: {x}": Cron("* * * * *")}.items():
            await schedulers.upsert(name, schedule)
        raw.hset(schedulers.keys.schedulers, "broken", "{")
        assert list(await schedulers.list()) == ["a", "any name: {x}", "b"]
        entry = await schedulers.get("a")
        assert entry is not None
        assert entry.timing.repeat_after_complete == 5000
        assert await schedulers.find("broken") is None
        assert await schedulers.find("nix") is None
        assert await schedulers.remove("a")
        assert not await schedulers.remove("a")
        assert await schedulers.find("a") is None


async def test_histories_of_several_schedulers_are_read_together(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("s", Every(60))
        await schedulers.run_now("s")
        histories = await schedulers.histories(["s", "nix"])
        assert [len(past) for past in histories.values()] == [1, 0]
        assert histories["s"] == await schedulers.history("s")
        assert await schedulers.histories([]) == {}
        with pytest.raises(InvalidNameError, match="non-empty string"):
            await schedulers.histories([""])


async def test_an_edit_waits_for_the_lock_and_gives_it_back(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.list()
        raw.set(schedulers.keys.schedulers_lock, "another", px=150)
        await schedulers.upsert("often", Every(60))
        assert not raw.exists(schedulers.keys.schedulers_lock)
        await asyncio.gather(*(schedulers.upsert(f"s{n}", Every(60)) for n in range(5)))
        assert len(await schedulers.list()) == 6


async def test_edits_at_once_take_no_lock_and_read_once(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.list()
        raw.config_resetstat()
        await asyncio.gather(*(schedulers.upsert(f"s{n}", Every(60)) for n in range(50)))
        commands = raw.info("commandstats")
        assert commands["cmdstat_hget"]["calls"] == 100  # each reads the entry, and the write compares it
        assert "cmdstat_set" not in commands
        assert len(await schedulers.list()) == 50


async def test_edits_of_one_scheduler_at_once_lose_none(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        first = await schedulers.upsert("often", Every(60), TEMPLATE)
        progressed = {**first.members, "iterationCount": 5, "lastRun": 1}
        raw.hset(schedulers.keys.schedulers, "often", json.dumps(progressed))
        await asyncio.gather(schedulers.pause("often"), *(schedulers.upsert("often", Every(60)) for _ in range(9)))
        entry = await schedulers.get("often")
        assert (entry.iteration_count, entry.last_run, entry.is_paused) == (5, 1, True)


async def test_a_lock_that_stays_taken_is_told_and_nothing_is_written(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        raw.set(schedulers.keys.schedulers_lock, "another", ex=60)
        with pytest.raises(
            SchedulerBusyError, match=rf"queue '{queue_name}' stayed locked by another process for \d+ s"
        ):
            await schedulers.upsert("often", Every(60))
        assert not raw.exists(schedulers.keys.schedulers)
        assert raw.get(schedulers.keys.schedulers_lock) == "another"


PAST = datetime(2000, 1, 1, tzinfo=UTC)

BAD: list[tuple[str, str, Any, type[Exception], str]] = [
    ("no name", "", lambda: Every(60), InvalidNameError, "name must be a non-empty"),
    ("four fields", "s", lambda: Cron("* * * *"), ScheduleError, "field"),
    ("eight is no day", "s", lambda: Cron("* * * * 8"), ScheduleError, "8"),
    ("no zone", "s", lambda: Cron("* * * * *", tz="Mars/Base"), ScheduleError, "Mars/Base"),
    ("never", "s", lambda: Cron("0 0 31 2 *"), ScheduleError, "occur"),
    ("no interval", "s", lambda: Every(0), ScheduleError, "every must be a positive safe integer"),
    ("negative", "s", lambda: RepeatAfterComplete(-1), ScheduleError, "repeatAfterComplete must be a positive"),
    ("limit", "s", lambda: Every(60, limit=0), ScheduleError, "limit must be a positive integer"),
    ("bounds", "s", lambda: Every(60, start=PAST + timedelta(1), end=PAST), ScheduleError, "startDate must be less"),
    ("over", "s", lambda: Every(60, end=PAST), ScheduleError, "no occurrences"),
    ("naive", "s", lambda: Every(60, start=datetime(2030, 1, 1)), ScheduleError, "startDate must be a valid"),  # noqa: DTZ001
]


@pytest.mark.parametrize(("name", "schedule", "error", "says"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_bad_schedules_are_refused_in_one_sentence_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any, name: str, schedule: Any, error: type[Exception], says: str
) -> None:
    async def attempt() -> None:
        made: Schedule = schedule()
        async with face.schedulers(queue_name) as schedulers:
            await schedulers.upsert(name, made)

    with pytest.raises(error, match=says) as caught:
        await attempt()
    assert "\n" not in str(caught.value)
    assert raw.dbsize() == 0


@pytest.mark.parametrize(
    ("template", "error", "says"),
    [
        ({"data": object()}, PayloadError, "cannot be written as JSON"),
        ({"data": "x" * 1_048_577}, PayloadError, "exceeds maximum size"),
        ({"options": JobOptions(delay=1)}, InvalidOptionError, "drop delay"),
        ({"options": JobOptions(job_id="mine")}, InvalidOptionError, "drop job_id"),
    ],
)
async def test_bad_templates_are_refused_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any, template: dict[str, Any], error: type[Exception], says: str
) -> None:
    async def attempt() -> None:
        made = JobTemplate(**template)
        async with face.schedulers(queue_name) as schedulers:
            await schedulers.upsert("s", Every(60), made)

    with pytest.raises(error, match=says):
        await attempt()
    assert raw.dbsize() == 0


async def test_a_paused_scheduler_shows_no_next_run_until_it_is_resumed(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        planned = (await schedulers.upsert("often", Every(3600), TEMPLATE)).next_run
        for _ in range(2):
            assert (await schedulers.pause("often")).is_paused
        stored = json.loads(raw.hget(schedulers.keys.schedulers, "often"))
        assert stored["nextRun"] == 0, "what makes Node's leaders skip it"
        for _ in range(2):
            resumed = await schedulers.resume("often")
            assert (resumed.is_paused, resumed.next_run) == (False, planned)
        assert await schedulers.history("often") == []


async def test_a_scheduler_that_is_over_cannot_be_resumed(
    face: Face, queue_name: str, raw: Any, oq_clock: TimeMachine
) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("once", Every(60, end=oq_clock.now() + timedelta(hours=1)))
        paused = await schedulers.pause("once")
        oq_clock.travel(timedelta(hours=2))
        with pytest.raises(StateError, match="has no future run: its end has passed; set another end"):
            await schedulers.resume("once")
        assert await schedulers.get("once") == paused


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_scheduler_that_is_not_there_cannot_be_steered(
    face: Face, queue_name: str, raw: Any, verb: str
) -> None:
    async with face.schedulers(queue_name) as schedulers:
        with pytest.raises(
            StateError,
            match=r"has no scheduler 'x' that can be read; list its schedulers with list\(\) or `oq scheduler ls",
        ):
            await getattr(schedulers, verb)("x")
    assert raw.keys("*") == []


VERBS = ["get", "find", "remove", "pause", "resume", "run_now", "next_runs", "history"]


@pytest.mark.parametrize("name", [None, 5, b"nightly", ["nightly"]], ids=repr)
@pytest.mark.parametrize("verb", VERBS)
async def test_a_name_that_is_no_text_is_refused(face: Face, queue_name: str, raw: Any, verb: str, name: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        with pytest.raises(InvalidNameError, match="Scheduler name must be a non-empty string"):
            await getattr(schedulers, verb)(name)
    assert raw.keys("*") == []


@pytest.mark.parametrize("name", ["", None, 5])
async def test_a_scheduler_needs_a_name(face: Face, queue_name: str, raw: Any, name: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        with pytest.raises(InvalidNameError, match="Scheduler name must be a non-empty string"):
            await schedulers.upsert(name, Every(60))
    assert raw.keys("*") == []
