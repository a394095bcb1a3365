"""Jobs that run in several steps: each ends its run, and the job runs again later, without counting an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import JobFailedError, PayloadError, UsageError
from orchestration_queue.options import Fallback, JobOptions, Ordering
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import GroupHold, Lease, Postponement, Settlement, Suspension
from orchestration_queue.protocol.operations import suspension
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, JobInterrupt
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)

PLAIN, LIFO, URGENT = JobOptions(), JobOptions(lifo=True), JobOptions(priority=3)
ALL_KINDS = pytest.mark.parametrize("options", [PLAIN, LIFO, URGENT], ids=["stream", "lifo", "priority"])


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def suspended(raw: Any, queue: AsyncQueue, job_id: str) -> None:
    """Return when the job is suspended."""
    await wait_until(lambda: raw.hget(queue.keys.job(job_id), "state") == JobState.SUSPENDED, "the suspension")


def both_faces(work: Callable[[ActiveJob], Any]) -> list[Callable[[Any], Any]]:
    """The same handler as a plain function and as a coroutine; methods of the job that are awaited, are so here."""

    async def on_loop(job: AsyncActiveJob) -> Any:
        return work(job)  # type: ignore[arg-type]  # what it calls is the same on both faces

    return [work, on_loop]


@ALL_KINDS
@pytest.mark.parametrize("face", ["sync", "async"])
async def test_a_job_goes_on_with_its_next_step(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, options: JobOptions, face: str
) -> None:
    steps: list[tuple[str, int]] = []

    def work(job: ActiveJob) -> str:
        steps.append((job.data.get("step", "first"), job.attempt))
        match job.data.get("step"):
            case None:
                job.move_to_delayed(timedelta(milliseconds=20), next_step="second")
            case "second":
                job.move_to_delayed(datetime.now(UTC), data={"kept": False}, next_step="third")
        return f"done, {job.data}"

    sync, on_loop = both_faces(work)
    async with working(queue, sync if face == "sync" else on_loop, server_url):
        job = await queue.add("work", {"kept": True}, options.model_copy(update={"attempts": 2}))
        assert await job.wait(SOON) == "done, {'kept': False, 'step': 'third'}"
    assert steps == [("first", 1), ("second", 1), ("third", 1)]
    assert job.record.attempts_made == 0
    assert (await queue.counts()).active == 0
    assert raw.get(queue.keys.list_active) in (None, "0")


async def test_a_step_may_replace_the_payload_or_keep_it(queue: AsyncQueue, server_url: str) -> None:
    seen: list[Any] = []

    async def work(job: AsyncActiveJob) -> None:
        seen.append(job.data)
        if len(seen) == 1:
            job.move_to_delayed(timedelta(0), data=["second"])
        if len(seen) == 2:
            job.move_to_delayed(timedelta(0))

    async with working(queue, work, server_url):
        await (await queue.add("work", "first")).wait(SOON)
    assert seen == ["first", ["second"], ["second"]]


async def test_a_handler_may_replace_its_payload_for_all_later_runs(queue: AsyncQueue, server_url: str) -> None:
    seen: list[Any] = []

    def work(job: ActiveJob) -> str:
        seen.append(job.data)
        if len(seen) == 1:
            job.update_data({"n": 2})
            seen.append(job.data)
            job.move_to_delayed(timedelta(0), next_step="on")
        return str(job.state())

    async with working(queue, work, server_url):
        assert await (await queue.add("work", {"n": 1})).wait(SOON) == "active"
    assert seen == [{"n": 1}, {"n": 2}, {"n": 2, "step": "on"}]


async def test_each_retry_finds_its_fallback(queue: AsyncQueue, server_url: str) -> None:
    used: list[str | None] = []

    async def work(job: AsyncActiveJob) -> None:
        used.append(job.fallback.model if job.fallback else None)
        raise RuntimeError("overloaded")

    options = JobOptions(attempts=4, fallbacks=(Fallback(model="small"), Fallback(model="smaller")))
    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match="overloaded"):
            await (await queue.add("work", options=options)).wait(SOON)
    assert used == [None, "small", "smaller", None]


@ALL_KINDS
async def test_a_job_waits_for_children_that_its_handler_added(
    queue: AsyncQueue, server_url: str, options: JobOptions
) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        if job.name == "child":
            assert [ref.job_id for ref in await job.parents()] == [parent.id]
            return job.data * 10
        if values := await job.children_values():
            assert await job.upstream_results() == {key.rpartition(":")[2]: value for key, value in values.items()}
            return sorted(values.items())
        for number in (1, 2):
            await queue.add("child", number, parent=job.ref)
        await job.move_to_waiting_children()
        raise AssertionError("never reached")

    async with working(queue, work, server_url):
        parent = await queue.add("parent", options=options)
        assert await parent.wait(SOON) == [[queue.keys.member("2"), 10], [queue.keys.member("3"), 20]]
    assert parent.record.attempts_made == 0


async def test_a_plain_function_waits_for_children_too(queue: AsyncQueue, server_url: str) -> None:
    def work(job: ActiveJob) -> Any:
        if job.name == "child":
            return "grown"
        if values := job.children_values():
            return list(values.values())
        loop_call(queue.add("child", parent=job.ref))
        return job.move_to_waiting_children()

    loop = asyncio.get_running_loop()

    def loop_call(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    async with working(queue, work, server_url):
        assert await (await queue.add("parent")).wait(SOON) == ["grown"]


async def test_a_job_without_children_does_not_wait_for_ever(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> None:
        await job.move_to_waiting_children()

    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match=r"has no children to wait for; add them with parent=job.ref"):
            await (await queue.add("work")).wait(SOON)


@ALL_KINDS
@pytest.mark.parametrize("face", ["sync", "async"])
async def test_a_suspended_job_goes_on_when_it_is_signalled(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, options: JobOptions, face: str
) -> None:
    def work(job: ActiveJob) -> Any:
        if len(job.signals) < 2:
            job.suspend("wants two signals", timeout=60)
        return [(signal.name, signal.data) for signal in job.signals]

    sync, on_loop = both_faces(work)
    async with working(queue, sync if face == "sync" else on_loop, server_url):
        job = await queue.add("work", options=options)
        for name, data in (("approve", {"by": "zoë"}), ("again", None)):
            await suspended(raw, queue, job.id)
            info = await job.suspend_info()
            assert info is not None
            assert (info.reason, info.timeout) == ("wants two signals", timedelta(seconds=60))
            assert info.suspended_at is not None
            assert await job.signal(name, data)
        assert await job.wait(SOON) == [["approve", {"by": "zoë"}], ["again", None]]
    assert job.record.attempts_made == 0
    assert await job.suspend_info() is None
    assert not await job.signal("late")
    assert raw.get(queue.keys.list_active) in (None, "0")


@ALL_KINDS
async def test_a_suspended_job_fails_when_its_time_is_over(
    queue: AsyncQueue, server_url: str, options: JobOptions
) -> None:
    async def work(job: AsyncActiveJob) -> None:
        job.suspend(timeout=0.05)

    async with working(queue, work, server_url):
        job = await queue.add("work", options=options)
        with pytest.raises(JobFailedError, match="Suspend timeout exceeded"):
            await job.wait(SOON)


@pytest.mark.parametrize(
    ("place", "slots", "order"),
    [("front", 4, ["1", "1", "2", "3"]), ("back", 4, ["1", "2", "3", "1"]), ("front", 1, ["1", "1", "2", "3"])],
)
async def test_a_held_group_goes_on_after_its_pause(
    queue: AsyncQueue, server_url: str, place: Any, slots: int, order: list[str]
) -> None:
    ran: list[str] = []
    held_at: list[int] = []

    async def work(job: AsyncActiveJob) -> None:
        ran.append(job.id)
        if not held_at:
            held_at.append(now_ms())
            job.rate_limit_group(0.2, job=place)
        assert now_ms() >= held_at[0] + 195  # two clocks, which cut off parts of a millisecond

    options = JobOptions(ordering=Ordering(key="tenant"))
    jobs = [await queue.add("work", options=options) for _ in range(3)]
    async with working(queue, work, server_url, concurrency=slots):
        for job in jobs:
            await job.wait(SOON)
            assert job.record.attempts_made == 0
    assert ran == order


async def test_a_held_group_may_cost_the_job(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> None:
        job.rate_limit_group(timedelta(milliseconds=50), job="fail")

    async with working(queue, work, server_url):
        job = await queue.add("work", options=JobOptions(attempts=3, ordering=Ordering(key="tenant")))
        with pytest.raises(JobFailedError, match="group rate limited"):
            await job.wait(SOON)


async def test_a_discarded_job_is_not_tried_again(queue: AsyncQueue, server_url: str) -> None:
    runs: list[int] = []

    def work(job: ActiveJob) -> None:
        runs.append(job.attempt)
        job.discard()
        assert job.is_discarded
        raise RuntimeError("broken")

    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match="broken"):
            await (await queue.add("work", options=JobOptions(attempts=3))).wait(SOON)
    assert runs == [1]


async def test_a_step_is_no_exception_that_a_handler_catches(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        try:
            if "step" not in job.data:
                job.move_to_delayed(timedelta(0), next_step="on")
        except Exception as error:
            return repr(error)
        return job.data["step"]

    async with working(queue, work, server_url):
        assert await (await queue.add("work", {})).wait(SOON) == "on"


def settled(job: AsyncActiveJob, ask: Callable[[AsyncActiveJob], Any], lease: Lease | None = None) -> Settlement:
    """What the server is told when the handler asks this of its job."""
    with pytest.raises(JobInterrupt) as caught:
        ask(job)
    return caught.value.settle(lease or Lease(job.record, "1-1"))


def active(data: str = "{}", **fields: str) -> AsyncActiveJob:
    """A running job that nothing is sent for."""
    return AsyncActiveJob(JobRecord("7", {"data": data, **fields}), QueueKeys("q"), None)  # type: ignore[arg-type]


def test_steps_say_what_the_wire_says() -> None:
    job = active('{"a":1}', groupKey="g")
    lease = Lease(job.record, "1-1")
    at = datetime(2100, 1, 1, tzinfo=UTC) - timedelta(days=27_000)
    before = now_ms()
    postponed = settled(job, lambda job: job.move_to_delayed(at), lease)
    assert isinstance(postponed, Postponement)
    assert (postponed.lease, postponed.data) == (lease, "")
    assert before <= postponed.until_ms <= now_ms(), "a time that has passed means now"
    step = settled(job, lambda job: job.move_to_delayed(timedelta(hours=1), next_step="two"))
    assert isinstance(step, Postponement)
    assert step.data == '{"a":1,"step":"two"}'
    assert before + 3_600_000 <= step.until_ms <= now_ms() + 3_600_000
    assert settled(job, lambda job: job.suspend(), lease) == Suspension(lease)
    assert settled(job, lambda job: job.suspend("why", 1.5), lease) == Suspension(lease, "why", 1500)
    assert settled(job, lambda job: job.rate_limit_group(2), lease) == GroupHold(lease, 2000)
    assert settled(job, lambda job: job.rate_limit_group(2, job="back", extend=False), lease) == GroupHold(
        lease, 2000, "back", False
    )


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda job: job.move_to_delayed("soon"), "`until` must be"),
    (lambda job: job.move_to_delayed(None), "`until` must be"),
    (lambda job: job.move_to_delayed(timedelta(seconds=-1)), "`until` must be"),
    (lambda job: job.move_to_delayed(datetime(2030, 1, 1)), "must have a time zone"),  # noqa: DTZ001  what is tested
    (lambda job: job.move_to_delayed(timedelta(days=4000)), "days away, got .*; pass an earlier time"),
    (lambda job: job.move_to_delayed(datetime(2120, 1, 1, tzinfo=UTC)), "days away, got .*; pass an earlier time"),
    (lambda job: job.move_to_delayed(timedelta(0), next_step=""), "`next_step` must be a non-empty string"),
    (lambda job: job.move_to_delayed(timedelta(0), next_step=3), "`next_step` must be a non-empty string"),
    (lambda job: job.move_to_delayed(timedelta(0), data=[1], next_step="x"), "is a list, which can't hold a step"),
    (lambda job: job.move_to_delayed(timedelta(0), data=object()), "cannot be written as JSON"),
    (lambda job: job.move_to_delayed(timedelta(0), data="x" * 2**20), "exceeds maximum size"),
    (lambda job: job.suspend(5), "`reason` must be text, got 5"),
    (lambda job: job.suspend("x" * 2**20), "The reason exceeds maximum size"),
    (lambda job: job.suspend(timeout=0), "`timeout` must be a timedelta or seconds, got 0"),
    (lambda job: job.suspend(timeout=-1), "`timeout` must be a timedelta or seconds, got -1"),
    (lambda job: job.suspend(timeout=float("nan")), "`timeout` must be a timedelta or seconds, got nan"),
    (lambda job: job.suspend(timeout="1"), "`timeout` must be a timedelta or seconds, got '1'"),
    (lambda job: job.suspend(timeout=True), "`timeout` must be a timedelta or seconds, got True"),
    (lambda job: job.suspend(timeout=timedelta(days=4000)), "from a millisecond to 3650 days"),
    (lambda job: job.rate_limit_group(0), "`duration` must be a timedelta or seconds, got 0"),
    (lambda job: job.rate_limit_group(1, job="middle"), "must be one of front, back, fail"),
]


@pytest.mark.parametrize(("ask", "says"), BAD)
def test_steps_that_cannot_be_are_refused(ask: Callable[[Any], Any], says: str) -> None:
    with pytest.raises((UsageError, PayloadError), match=says) as caught:
        ask(active(groupKey="g"))
    assert str(caught.value).endswith(".")


def test_a_job_without_a_group_cannot_hold_it() -> None:
    with pytest.raises(UsageError, match="has no ordering group to pause"):
        active().rate_limit_group(1)


def test_a_payload_that_is_no_dict_holds_no_step() -> None:
    with pytest.raises(UsageError, match="payload of job '7' is a list"):
        active("[1]").move_to_delayed(timedelta(0), next_step="x")


async def test_bad_steps_fail_the_attempt_with_their_sentence(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> None:
        job.rate_limit_group(1)

    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match="has no ordering group to pause"):
            await (await queue.add("work")).wait(SOON)


@pytest.mark.parametrize(
    ("stored", "signals"),
    [
        (None, []),
        ("", []),
        ("no json", []),
        ('{"name":"x"}', []),
        ("[1]", []),
        ('[{"name":"a","data":"","receivedAt":1000}]', [("a", None, 1)]),
        ('[{"name":"a","data":"{\\"n\\":1}","receivedAt":1000}]', [("a", {"n": 1}, 1)]),
        ('[{"name":"a","data":"plain text","receivedAt":"soon"}]', [("a", "plain text", None)]),
        ('[{"name":"a","data":[1],"receivedAt":1e300}]', [("a", [1], 253402300799)]),
    ],
)
def test_signals_of_any_client_are_read(stored: str | None, signals: list[tuple[str, Any, int | None]]) -> None:
    read = active(**({} if stored is None else {"signals": stored})).signals
    at = [signal.received_at and int(signal.received_at.timestamp()) for signal in read]
    assert [(signal.name, signal.data, when) for signal, when in zip(read, at, strict=True)] == signals


def test_signalling_what_is_not_suspended_changes_nothing(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    keys = QueueKeys(queue_name)
    with Connection.open(server_url) as connection:
        assert connection.run(suspension.signal(keys, "1", "go", None, now_ms())) is False
        assert connection.run(suspension.suspend_info(keys, "1")) is None
    assert raw.dbsize() == 0
