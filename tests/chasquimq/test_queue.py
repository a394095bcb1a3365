"""Adding, cancelling, inspecting, dead letters and schedules, by the keys they leave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.errors import ScheduleError, UsageError
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, BackoffSpec, ChasquiQueue, NewChasquiJob
from orchestration_queue.wires.chasquimq.envelope import Envelope, pack_envelope, split_member, unpack_envelope
from orchestration_queue.wires.chasquimq.jobs import JobBuilder
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.packing import pack
from tests.chasquimq.vectors import VECTORS, labels

UNIQUE = [case for case in VECTORS["delayed"] if "job_id" in case["input"]]


@pytest.mark.parametrize("case", UNIQUE, ids=labels(UNIQUE, "label"))
def test_a_delayed_job_of_an_id_is_sent_as_the_original_sends_it(case: dict[str, Any]) -> None:
    given = case["input"]
    *_, marker, delayed, index, ttl_s, run_at_ms, member = case["commands"][0]
    packed = bytes.fromhex(member["hex"])
    parts = split_member(packed)
    assert parts is not None
    created_at_ms = unpack_envelope(parts[1]).created_at_ms
    new = NewChasquiJob(given["name"], given["data"], delay=given["delay_ms"] / 1000, job_id=given["job_id"])
    builder = JobBuilder(ChasquiKeys("vec-del"), created_at_ms, iter(()), 1)
    (call,) = builder.build(builder.check(new)).calls
    assert call.keys == (marker, delayed, index)
    assert call.args == (int(ttl_s), int(run_at_ms), packed)


async def test_a_job_is_one_stream_entry_of_two_fields(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    job = await queue.add("greet", {"to": "ada"}, attempts=3, backoff=0.2)
    ((_, fields),) = server.xrange(keys.stream)
    assert list(fields) == [b"d", b"n"]
    assert fields[b"n"] == b"greet"
    envelope = unpack_envelope(fields[b"d"])
    assert (envelope.id, envelope.payload, envelope.attempt) == (job.id, pack({"to": "ada"}), 0)
    assert envelope.retry is not None
    assert envelope.retry.to_wire() == [3, ["fixed", 200, None, None, None]]
    await queue.add("")
    assert list(server.xrange(keys.stream)[1][1]) == [b"d"]
    assert sorted(server.keys()) == [keys.stream.encode()]
    assert [(job.name, job.data) for job in await queue.list_jobs()] == [("greet", {"to": "ada"}), ("", None)]


async def test_an_id_is_taken_for_an_hour_after_its_time(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    assert (await queue.add("a", job_id="one")).is_new
    assert not (await queue.add("a", job_id="one")).is_new
    assert not (await queue.add("a", job_id="one", delay=5)).is_new
    assert (await queue.add("a", job_id="two", delay=60)).is_new
    assert not (await queue.add("a", job_id="two")).is_new
    assert (server.xlen(keys.stream), server.zcard(keys.delayed)) == (1, 1)
    assert 0 < server.ttl(keys.marker("one")) <= 3600 < server.ttl(keys.marker("two")) <= 3660
    assert server.get(keys.index("two")) == server.zrange(keys.delayed, 0, -1)[0]


async def test_a_delayed_job_can_be_cancelled_with_or_without_an_id(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    named = await queue.add("a", delay=timedelta(minutes=1), job_id="mine")
    minted = await queue.add("a", delay_until=datetime.now(UTC) + timedelta(minutes=1))
    ready = await queue.add("a")
    assert [await queue.cancel(job.id) for job in (named, minted, ready, named)] == [True, True, False, False]
    assert server.keys() == [keys.stream.encode()]


async def test_a_bulk_of_all_kinds_comes_back_in_its_order(queue: AsyncChasquiQueue) -> None:
    new = [NewChasquiJob("a", number) for number in range(1500)]
    new += [NewChasquiJob("late", delay=60), NewChasquiJob("mine", job_id="x"), NewChasquiJob("mine", job_id="x")]
    jobs = await queue.add_bulk(new)
    assert [(job.name, job.data) for job in jobs] == [(job.name, job.data) for job in new]
    assert [job.is_new for job in jobs[-3:]] == [True, True, False]
    counts = await queue.counts()
    assert (counts.ready, counts.running, counts.delayed) == (1501, 0, 1)
    assert [job.name for _, job in await queue.list_delayed()] == ["late"]


MISTAKES: list[dict[str, Any]] = [
    {"name": 5},
    {"name": "n" * 257},
    {"name": "a", "data": object()},
    {"name": "a", "delay": "5"},
    {"name": "a", "delay": -1},
    {"name": "a", "delay": float("nan")},
    {"name": "a", "delay": True},
    {"name": "a", "delay_until": datetime(2030, 1, 1)},  # noqa: DTZ001  the mistake under test
    {"name": "a", "delay_until": "tomorrow"},
    {"name": "a", "delay": 1, "delay_until": datetime(2020, 1, 1, tzinfo=UTC)},
    {"name": "a", "attempts": -1},
    {"name": "a", "attempts": "3"},
    {"name": "a", "backoff": "fixed"},
    {"name": "a", "backoff": BackoffSpec("weird", 1)},
    {"name": "a", "job_id": " "},
    {"name": "a", "job_id": 7},
]


@pytest.mark.parametrize("mistake", MISTAKES, ids="-".join)
async def test_a_value_that_the_wire_cannot_carry_is_refused_and_nothing_sent(
    queue: AsyncChasquiQueue, server: Any, mistake: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        await queue.add(**mistake)
    with pytest.raises(UsageError):
        await queue.add_bulk([NewChasquiJob("fine"), NewChasquiJob(**mistake)])
    assert server.keys() == []


def test_both_faces_share_a_queue(server: Any, server_url: str, queue_name: str) -> None:
    with ChasquiQueue(queue_name, url=server_url) as queue:
        queue.add("a", [1, b"\x00", 1.5])
        assert queue.list_jobs()[0].data == [1, b"\x00", 1.5]
        queue.pause()
        assert queue.counts().is_paused
        queue.resume()
        assert not queue.counts().is_paused
    with pytest.raises(UsageError, match="closed"):
        queue.counts()


def bury(server: Any, keys: ChasquiKeys, job_id: str, reason: str = "retries_exhausted", d: bytes = b"") -> str:
    envelope = d or pack_envelope(Envelope(job_id, pack(job_id), 1, attempt=2))
    entry: bytes = server.xadd(keys.dead_letters, {"d": envelope, "n": "nm", "source_id": "1-1", "reason": reason})
    return entry.decode()


async def test_dead_letters_are_read_and_replayed_past_what_cannot_be_read(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    poison = bury(server, keys, "", "decode_failed", b"\xc1")
    first, second = (bury(server, keys, job_id) for job_id in ("a", "b"))
    letters = await queue.dead_letters()
    assert [(letter.id, letter.job_id, letter.data) for letter in letters] == [
        (poison, None, None),
        (first, "a", "a"),
        (second, "b", "b"),
    ]
    assert (letters[1].name, letters[1].reason, letters[1].source_id) == ("nm", "retries_exhausted", "1-1")
    assert await queue.replay_dead_letters(1) == 1
    assert [(job.id, job.attempt) for job in await queue.list_jobs()] == [("a", 0)]
    assert await queue.replay_dead_letters(reason="unrecoverable") == 0
    assert await queue.replay_dead_letters(ids=[second, poison]) == 1
    assert [letter.id for letter in await queue.dead_letters()] == [poison]
    assert await queue.purge_dead_letters() == 1
    assert server.keys() == [keys.stream.encode()]


async def test_a_schedule_is_stored_as_the_original_stores_it(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    before = now_ms()
    key = await queue.put_schedule("tick", {"k": "v"}, every=60)
    case = VECTORS["repeat_spec"][0]
    assert key == case["resolved_key"]
    assert server.hgetall(keys.spec(key)) == {b"spec": bytes.fromhex(case["command"][7]["hex"])}
    ((member, score),) = server.zrange(keys.repeat, 0, -1, withscores=True)
    assert (member.decode(), before + 60_000 <= score <= now_ms() + 60_000) == (key, True)
    (schedule,) = await queue.schedules()
    assert (schedule.key, schedule.fired) == (key, 0)
    assert schedule.spec is not None
    assert schedule.spec.job_name == "tick"
    assert await queue.remove_schedule(key)
    assert not await queue.remove_schedule(key)
    assert server.keys() == []


@pytest.mark.parametrize(
    "mistake",
    [
        {},
        {"every": 60, "cron": "* * * * *"},
        {"every": 0},
        {"every": "1m"},
        {"cron": 5},
        {"cron": "* * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "* * * * *", "tz": "Mars/X"},
        {"every": 60, "limit": 0},
        {"every": 60, "key": 3},
        {"every": 60, "missed_fires": "all"},
        {"every": 60, "missed_fires": "fire_all", "max_catchup": 0},
        {"every": 60, "start": 12},
        {"every": 60, "end": datetime(2020, 1, 1, tzinfo=UTC)},
    ],
    ids="-".join,
)
async def test_a_schedule_that_cannot_be_is_refused(
    queue: AsyncChasquiQueue, server: Any, mistake: dict[str, Any]
) -> None:
    with pytest.raises((UsageError, ScheduleError)):
        await queue.put_schedule("tick", **mistake)
    assert server.keys() == []


async def test_results_are_read_as_the_original_writes_them(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    for key in VECTORS["result_path"]["keys_after"]:
        if ":result:" in key:
            stored = VECTORS["result_path"]["keys_after"][key]
            server.set(keys.result(key.rpartition(":")[2]), bytes.fromhex(stored["value_hex"]), ex=60)
    job_ids = VECTORS["result_path"]["job_ids"]
    assert await queue.find_results([*job_ids, "none"]) == [*VECTORS["result_path"]["get_job_result"], None]
    assert await queue.find_result(job_ids[0]) == {"echo": 0}
