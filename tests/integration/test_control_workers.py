"""Workers are listed with what they run, and obey commands that reach them through the server; both faces."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue import Tasks
from orchestration_queue._version import __version__
from orchestration_queue.client import AsyncQueue, NewJob, WorkerReply
from orchestration_queue.errors import WorkerNotFoundError
from orchestration_queue.options import JobOptions
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker
from tests.faces import Face
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import QUICK, working

SOON = timedelta(seconds=60)


@pytest.fixture
async def queue(face: Face, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with face.queue(queue_name) as queue:
        yield queue


class Gate:
    """A handler whose jobs wait until it is opened."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self._open = asyncio.Event()

    async def __call__(self, job: AsyncActiveJob) -> str:
        self.running.append(job.id)
        await self._open.wait()
        return job.name

    def open(self) -> None:
        self._open.set()


async def registered(queue: AsyncQueue, count: int = 1) -> None:
    """Wait until this number of workers is known."""
    async with asyncio.timeout(60):
        while len(await queue.workers()) < count:  # noqa: ASYNC110  the registry does not notify
            await asyncio.sleep(0.02)


async def told(queue: AsyncQueue, verb: Any, *workers: str, **options: Any) -> WorkerReply:
    """The answer of the only worker that was told."""
    await registered(queue)
    (reply,) = await queue.control_workers(verb, workers or None, timeout=SOON, **options)
    assert reply.has_obeyed, reply
    return reply


async def test_a_worker_tells_what_it_runs(queue: AsyncQueue, face: Face) -> None:
    gate = Gate()
    async with working(queue, gate, face.url, concurrency=3, code_version="v7") as worker:
        jobs = await queue.add_bulk([NewJob(name) for name in ("one", "two")])
        await wait_until(lambda: len(gate.running) == 2, "both jobs to run")
        await told(queue, "ping", worker.id)
        (info,) = await queue.workers()
        gate.open()
    assert {job.id: job.name for job in info.jobs} == {jobs[0].id: "one", jobs[1].id: "two"}
    assert all(job.started_at is not None and job.started_at >= info.started_at for job in info.jobs)
    assert info.reported_at is not None
    assert (info.concurrency, info.active_jobs, info.is_paused, info.tasks) == (3, 2, False, ())
    assert (info.version, info.code_version) == (__version__, "v7")
    assert info.memory_bytes is not None
    assert info.memory_bytes > 1_000_000


async def test_progress_and_lease_of_running_jobs_are_those_of_now(queue: AsyncQueue, face: Face, raw: Any) -> None:
    gate = Gate()
    never = timedelta(hours=1)
    async with working(queue, gate, face.url, lease=timedelta(seconds=40), stalled_interval=never):
        usual = await queue.add("usual")
        own = await queue.add("own", options=JobOptions(lease=3600))
        await wait_until(lambda: len(gate.running) == 2, "both jobs to run")
        await told(queue, "ping")
        await usual.update_progress({"done": 5})
        (info,) = await queue.workers()
        jobs = {job.name: job for job in info.jobs}
        assert info.lease == timedelta(seconds=40)
        assert (jobs["usual"].progress, jobs["own"].progress) == ({"done": 5}, None)
        assert jobs["usual"].lease_left is not None
        assert jobs["own"].lease_left is not None
        assert jobs["usual"].lease_left <= info.lease < jobs["own"].lease_left <= timedelta(hours=1)
        raw.hset(queue.keys.job(own.id), "lastActive", 1000)
        raw.hset(queue.keys.job(usual.id), "processedOn", 1000)
        jobs = {job.name: job for worker in await queue.workers() for job in worker.jobs}
        assert jobs["own"].lease_left == timedelta(0)
        assert (jobs["usual"].progress, jobs["usual"].lease_left) == (None, None), "another attempt runs"
        gate.open()


async def test_a_worker_of_tasks_tells_their_names(queue: AsyncQueue, face: Face) -> None:
    tasks = Tasks()

    @tasks.task
    def one() -> None: ...

    @tasks.task(name="other")
    def two() -> None: ...

    async with working(queue, tasks, face.url) as worker:
        await wait_until(lambda: worker.is_ready, "the worker to take part")
        await told(queue, "ping", worker.id)
        assert [info.tasks for info in await queue.workers()] == [("one", "other")]


async def test_a_paused_worker_starts_nothing_once_it_has_answered(queue: AsyncQueue, face: Face) -> None:
    started: list[str] = []

    async def work(job: AsyncActiveJob) -> str:
        started.append(job.id)
        return "the paused one"

    async def other(_: AsyncActiveJob) -> str:
        return "the other"

    async with working(queue, work, face.url) as worker:
        await wait_until(lambda: worker.is_listening, "the worker to wait at the server")
        reply = await told(queue, "pause", worker.id)
        assert (reply.is_paused, worker.is_paused, worker.is_listening) == (True, True, False)
        assert [info.is_paused for info in await queue.workers()] == [True]
        async with working(queue, other, face.url):
            jobs = await queue.add_bulk([NewJob("n") for _ in range(10)])
            assert [await job.wait(SOON) for job in jobs] == ["the other"] * 10
        assert started == []
        assert not (await told(queue, "resume", worker.id)).is_paused
        assert await (await queue.add("n")).wait(SOON) == "the paused one"


async def test_jobs_that_come_while_a_worker_is_paused_are_neither_lost_nor_started(
    queue: AsyncQueue, face: Face, raw: Any
) -> None:
    """Pauses and jobs race: whatever was handed out before the answer is done, or back in the queue."""
    done: list[str] = []

    async def work(job: AsyncActiveJob) -> None:
        done.append(job.id)

    added: list[Any] = []
    async with working(queue, work, face.url) as worker:
        for _ in range(20):
            await wait_until(lambda: worker.is_listening, "the worker to wait at the server")
            _, job = await asyncio.gather(told(queue, "pause", worker.id), queue.add("n"))
            added.append(job)
            await wait_until(lambda: worker.running == 0, "what had started to end")
            before = list(done)
            added.append(await queue.add("n"))
            assert raw.xpending(queue.keys.stream, "workers")["pending"] == 0
            assert done == before, "a job started after the answer"
            await told(queue, "resume", worker.id)
            for job in added:
                await job.wait(SOON)
    assert len(done) == len(set(done)) == 40


async def test_concurrency_changes_while_jobs_run(queue: AsyncQueue, face: Face) -> None:
    gate = Gate()
    async with working(queue, gate, face.url, concurrency=1) as worker:
        jobs = await queue.add_bulk([NewJob("n") for _ in range(8)])
        await wait_until(lambda: len(gate.running) == 1, "the first job to run")
        assert (await told(queue, "concurrency", concurrency=5)).concurrency == 5
        await wait_until(lambda: len(gate.running) == 5, "five to run")
        reply = await told(queue, "concurrency", concurrency=2)
        assert (reply.concurrency, reply.active_jobs, worker.running) == (2, 5, 5)
        gate.open()
        for job in jobs:
            await job.wait(SOON)
        assert worker.concurrency == 2


async def test_threads_grow_with_the_slots(queue: AsyncQueue, face: Face) -> None:
    together = threading.Barrier(4)

    def work(_: ActiveJob) -> None:
        together.wait(60)

    async with working(queue, work, face.url, concurrency=1):
        jobs = await queue.add_bulk([NewJob("n") for _ in range(4)])
        await wait_until(lambda: together.n_waiting == 1, "the first to wait for the others")
        await told(queue, "concurrency", concurrency=4)
        for job in jobs:
            await job.wait(SOON)


async def test_a_stopped_worker_finishes_what_runs_and_leaves(queue: AsyncQueue, face: Face) -> None:
    gate = Gate()
    worker = Worker(queue.name, gate, url=face.url, options=QUICK.model_copy(update={"drain": SOON}))
    running = asyncio.ensure_future(worker.run())
    job = await queue.add("n")
    await wait_until(lambda: gate.running, "the job to run")
    await told(queue, "stop", worker.id)
    late = await queue.add("late")
    assert not running.done()
    gate.open()
    assert await job.wait(SOON) == "n"
    await asyncio.wait_for(running, 60)
    assert (worker.was_dismissed, worker.was_killed) == (True, False)
    assert (await late.refresh()).state == "waiting"
    assert await queue.workers() == []


async def test_only_the_named_worker_obeys(queue: AsyncQueue, face: Face) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    async with working(queue, work, face.url) as one, working(queue, work, face.url) as two:
        await wait_until(lambda: one.is_listening and two.is_listening, "both workers to listen")
        await registered(queue, 2)
        await told(queue, "pause", one.id)
        assert (one.is_paused, two.is_paused) == (True, False)
        replies = await queue.control_workers("ping", timeout=SOON)
        assert {reply.worker: reply.is_paused for reply in replies} == {one.id: True, two.id: False}
        assert all(reply.latency is not None for reply in replies)


async def test_a_name_that_no_worker_has_tells_nobody_and_suggests_one(queue: AsyncQueue, face: Face, raw: Any) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    async with working(queue, work, face.url) as worker:
        await wait_until(lambda: raw.exists(queue.keys.worker(worker.id)), "the worker to register")
        with pytest.raises(WorkerNotFoundError, match=f"did you mean '{worker.id}'") as refused:
            await queue.control_workers("pause", [worker.id, worker.id[:-1]])
        assert refused.value.worker == worker.id[:-1]
        assert not worker.is_paused


async def test_a_worker_that_does_not_answer_is_said_to_be_silent(queue: AsyncQueue, raw: Any) -> None:
    told_of_itself = {"addr": "node", "pid": 1, "startedAt": 1000, "activeJobs": 0}
    raw.set(queue.keys.worker("node-1"), json.dumps(told_of_itself), px=60_000)
    assert await queue.control_workers("ping", timeout=0.2) == [WorkerReply("node-1")]
    assert await queue.control_workers("ping", [], timeout=0.2) == []


async def test_commands_that_cannot_be_read_disturb_nobody(queue: AsyncQueue, face: Face, raw: Any) -> None:
    async def work(_: AsyncActiveJob) -> str:
        return "done"

    async with working(queue, work, face.url) as worker:
        await wait_until(lambda: worker.is_listening, "the worker to listen")
        for junk in ("", "{", "[]", "[1,2,3,4]", json.dumps(["x", "dance", [worker.id], None])):
            raw.xadd(queue.keys.wake, {"control": junk})
        raw.pexpire(queue.keys.wake, 60_000)
        assert await (await queue.add("n")).wait(SOON) == "done"
        key = queue.keys.replies("x")
        await wait_until(lambda: raw.exists(key), "the answer to the unknown command")
        (entry,) = raw.xrange(key)
        facts = json.loads(entry[1]["facts"])
        assert facts["problem"] == "its version has no command 'dance'"
        assert 0 < raw.pttl(key) <= 60_000


async def test_oq_tells_workers(server_url: str, queue_name: str, raw: Any) -> None:
    oq = Oq(server_url)

    async def run(*words: str) -> Any:
        return await asyncio.to_thread(oq.json, "worker", *words)

    gate = Gate()
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, gate, server_url) as worker:
        await queue.add("slow")
        await wait_until(lambda: gate.running, "the job to run")
        await wait_until(lambda: raw.exists(queue.keys.worker(worker.id)), "the worker to register")
        patient = ("--timeout", "60")
        (ping,) = await run("ping", queue_name, "--all", *patient)
        assert (ping["worker"], ping["answered"], ping["active_jobs"]) == (worker.id, True, 1)
        (listed,) = await run("ls", queue_name)
        assert [job["name"] for job in listed["jobs"]] == ["slow"]
        shown = await asyncio.to_thread(oq, "worker", "ls", queue_name, "--jobs")
        assert "slow" in shown.stdout
        assert (await run("pause", queue_name, worker.id, *patient))[0]["is_paused"] is True
        table = await asyncio.to_thread(oq, "worker", "ls", queue_name)
        assert "paused" in table.stdout
        assert (await run("resume", queue_name, "--all", *patient))[0]["is_paused"] is False
        assert (await run("concurrency", queue_name, "7", "--all", *patient))[0]["concurrency"] == 7
        refused = await asyncio.to_thread(oq, "worker", "stop", queue_name, "--all", answer="n\n")
        assert refused.exit_code == 1
        gate.open()
        assert (await run("stop", queue_name, "--all", "--yes", *patient))[0]["answered"] is True
        await wait_until(lambda: worker.was_dismissed, "the worker to be stopped")
    raw.set(queue.keys.worker("node-1"), json.dumps({"addr": "a", "pid": 1, "startedAt": 1}), px=60_000)
    silent = await asyncio.to_thread(oq, "worker", "ping", queue_name, "--all", "--timeout", "0.2")
    assert (silent.exit_code, "none" in silent.stdout) == (1, True)
