"""Handlers in processes of their own: the same as in a thread, except that they can be stopped, and may die."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob, Queue
from orchestration_queue.errors import InvalidOptionError, JobFailedError, UsageError
from orchestration_queue.options import Batch, JobOptions, WorkerOptions
from orchestration_queue.states import JobState
from orchestration_queue.worker import Handler, Worker
from orchestration_queue.worker.sandbox import sandboxed
from tests.integration import sandbox_handlers as handlers
from tests.processes import worker_process
from tests.waiting import wait_until, wait_until_sync

QUICK = WorkerOptions(
    concurrency=2,
    lease=timedelta(seconds=5),  # long enough to be renewed in time on a busy machine
    stalled_interval=timedelta(milliseconds=300),
    promotion_interval=timedelta(milliseconds=100),
    drain=timedelta(seconds=5),
)
SOON = timedelta(seconds=60)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def my_sandboxes() -> list[int]:
    """Sandbox processes of this process, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(
                os.getpid()
            ):
                command = (entry / "cmdline").read_bytes()
                if b"worker.sandbox" in command or not command:
                    found.append(int(entry.name))
    return found


async def only_sandbox() -> int:
    """The one sandbox process, once it is there. What its handler logs may come too late for that."""
    await wait_until(my_sandboxes, "the process to start")
    (pid,) = my_sandboxes()
    return pid


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    """Fail a test after which a sandbox process is there, even a zombie."""
    yield
    wait_until_sync(lambda: not my_sandboxes(), "all sandbox processes to be gone")


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@asynccontextmanager
async def working(queue: AsyncQueue, handler: Handler, url: str, **options: Any) -> AsyncIterator[Worker]:
    """A worker of the queue, stopped in the end."""
    worker = Worker(queue.name, handler, url=url, options=QUICK.model_copy(update=options))
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)


def logged_pid(queue: AsyncQueue, raw: redis.Redis, job_id: str) -> Callable[[], list[Any]]:
    return lambda: raw.lrange(queue.keys.log(job_id), 0, -1)


@pytest.mark.parametrize("handler", [handlers.who, handlers.who_async], ids=lambda handler: handler.__name__)
async def test_a_handler_runs_in_a_warm_process_with_the_facts_of_its_job(
    queue: AsyncQueue, server_url: str, handler: Callable[[Any], Any]
) -> None:
    async with working(queue, sandboxed(handler), server_url, concurrency=1):
        first, second = await queue.add("who"), await queue.add("who")
        results = [await job.wait(SOON) for job in (first, second)]
    assert results[0] == {"pid": results[0]["pid"], "id": first.id, "name": "who", "attempt": 1, "queue": queue.name}
    assert results[0]["pid"] == results[1]["pid"] != os.getpid()


async def test_a_decorated_handler_is_found_under_its_name(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, handlers.decorated, server_url):
        assert await (await queue.add("decorated")).wait(SOON) != os.getpid()


async def test_data_and_results_of_every_json_type_arrive(queue: AsyncQueue, server_url: str) -> None:
    values: list[Any] = [None, True, 0, -1.5, "é\n\u2028🜚", "", [], {}, {"a": [1, {"b": None}]}, "x" * 1_000_000]
    async with working(queue, sandboxed(handlers.echo), server_url):
        jobs = await queue.add_bulk([NewJob("echo", value) for value in values])
        assert [await job.wait(SOON) for job in jobs] == values


@pytest.mark.parametrize("handler", [handlers.speak, handlers.speak_async], ids=lambda handler: handler.__name__)
async def test_a_handler_may_log_and_report(queue: AsyncQueue, server_url: str, handler: Callable[[Any], Any]) -> None:
    async with working(queue, sandboxed(handler), server_url):
        await (job := await queue.add("speak")).wait(SOON)
    assert await job.logs() == ["half way"]
    assert (await job.refresh()).progress == {"done": 0.5}


async def test_what_a_handler_prints_goes_to_the_workers_log(
    queue: AsyncQueue, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with working(queue, sandboxed(handlers.speak), server_url):
        await (job := await queue.add("speak")).wait(SOON)
        expected = {f"Job {job.id}: to standard {name}" for name in ("output", "error")}
        expected.add(f"Job {job.id}: INFO app: to the log")
        await wait_until(
            lambda: expected <= {record.getMessage() for record in caplog.records}, "the lines to be logged"
        )


async def test_what_a_call_of_the_job_takes_and_returns_keeps_its_type(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, sandboxed(handlers.change), server_url):
        job = await queue.add("change")
        assert await job.wait(SOON) == {"data": {"changed": True}, "state": "ACTIVE", "parents": []}
    assert (await job.refresh()).data == {"changed": True}
    assert json.loads(str(raw.hget(queue.keys.job(job.id), "usage:tokens"))) == {"input": 3}


@pytest.mark.parametrize("isolated", [True, False])
async def test_a_wrong_call_of_the_job_raises_what_it_raises_in_a_thread(
    queue: AsyncQueue, server_url: str, isolated: bool
) -> None:
    handler = sandboxed(handlers.misuse) if isolated else handlers.misuse
    async with working(queue, handler, server_url):
        said = await (await queue.add("misuse")).wait(SOON)
    assert said == ["UsageError", "TypeError", "PayloadError", "PayloadError", "UsageError", "UsageError"]


FAILURES = {
    "message": ("CustomError: with a message", 2),
    "silent": ("CustomError", 2),
    "timeout": ("the other side was slow", 2),
    "exit": ("RuntimeError: the handler called exit (SystemExit(7))", 2),
    "interrupted": ("RuntimeError: the handler called exit (KeyboardInterrupt())", 2),
    "unrecoverable": ("no such file", 1),
    "hopeless": ("no such column", 1),
    "no json": ("Return value cannot be written as JSON", 1),
    "too large": ("Return value exceeds maximum size", 1),
    "not a number": ("Return value cannot be written as JSON", 1),
}
"""What the handler is told to do; the reason it leaves, and the attempts it gets of two."""


@pytest.mark.parametrize("isolated", [True, False])
async def test_a_failure_is_told_as_from_a_thread_and_costs_no_process(
    queue: AsyncQueue, server_url: str, isolated: bool
) -> None:
    handler = sandboxed(handlers.fail) if isolated else handlers.fail
    async with working(queue, handler, server_url, concurrency=1):
        first = await (await queue.add("fail", "not at all")).wait(SOON)
        for how, (reason, attempts) in FAILURES.items():
            job = await queue.add("fail", how, JobOptions(attempts=2))
            with pytest.raises(JobFailedError) as caught:
                await job.wait(SOON)
            assert caught.value.reason.startswith(reason), how
            assert (await job.refresh()).attempts_made == attempts, how
        assert await (await queue.add("fail", "not at all")).wait(SOON) == first


async def test_a_rate_limit_is_told_from_the_process(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.refused_once), server_url):
        job = await queue.add("refused")
        assert await job.wait(SOON) == 2


async def test_an_interrupt_is_told_from_the_process(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.later), server_url):
        job = await queue.add("later", "first")
        assert await job.wait(SOON) == {"second": 1}
    assert (await job.refresh()).attempts_made == 0


@pytest.mark.parametrize(
    "handler", [handlers.after_children, handlers.after_children_async], ids=lambda handler: handler.__name__
)
async def test_a_job_may_wait_for_its_children(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, handler: Callable[[Any], Any]
) -> None:
    parent = await queue.add("after")
    async with AsyncQueue(f"{queue.name}-children", url=server_url) as children:
        await children.add("echo", 7, parent=parent.ref)
        async with working(queue, sandboxed(handler), server_url):
            key = queue.keys.job(parent.id)
            await wait_until(lambda: raw.hget(key, "state") == "waiting-children", "the job to wait")
            async with working(children, handlers.echo, server_url):
                assert list((await parent.wait(SOON)).values()) == [7]


async def test_a_discarded_job_is_not_tried_again_though_its_process_dies(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.give_up), server_url):
        job = await queue.add("give up", options=JobOptions(attempts=5))
        with pytest.raises(JobFailedError, match="exited with code 5"):
            await job.wait(SOON)
    assert (await job.refresh()).attempts_made == 1


async def test_a_time_limit_stops_a_busy_loop_and_frees_its_place(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, sandboxed(handlers.spin), server_url, concurrency=1):
        stuck = await queue.add("spin", "spin", JobOptions(timeout=timedelta(milliseconds=300)))
        first_pid = await only_sandbox()
        after = await queue.add("spin", "not")
        with pytest.raises(JobFailedError, match="Job timeout exceeded"):
            await stuck.wait(SOON)
        second_pid = await after.wait(SOON)
        assert not is_alive(first_pid)
    assert first_pid != second_pid


async def test_who_clings_to_its_life_is_killed(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    handler = sandboxed(handlers.cling, grace=timedelta(milliseconds=200))
    async with working(queue, handler, server_url, concurrency=1):
        job = await queue.add("cling", options=JobOptions(timeout=timedelta(milliseconds=300)))
        pid = await only_sandbox()
        with pytest.raises(JobFailedError, match="Job timeout exceeded"):
            await job.wait(SOON)
        assert not is_alive(pid)


SLOWLY_IMPORTED = """
import os, time

if os.getpid() != {pid}:
    time.sleep(3)

def handler(job):
    return job.id
"""


async def test_the_time_limit_begins_when_the_handler_does(
    queue: AsyncQueue, server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process takes longer to start than this job may run."""
    (tmp_path / "slowly_imported.py").write_text(SLOWLY_IMPORTED.format(pid=os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    async with working(queue, sandboxed(importlib.import_module("slowly_imported").handler), server_url):
        job = await queue.add("who", options=JobOptions(timeout=timedelta(seconds=2)))
        assert await job.wait(SOON) == job.id


@pytest.mark.parametrize("handler", [handlers.tidy, handlers.tidy_async], ids=lambda handler: handler.__name__)
async def test_a_revoked_job_is_stopped_and_may_clean_up(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, handler: Callable[[Any], Any]
) -> None:
    async with working(queue, sandboxed(handler, grace=timedelta(seconds=60)), server_url, concurrency=1):
        job = await queue.add("tidy", options=JobOptions(attempts=3))
        lines = logged_pid(queue, raw, job.id)
        await wait_until(lines, "the job to start")
        await job.cancel()
        with pytest.raises(JobFailedError, match="revoked"):
            await job.wait(SOON)
        await wait_until(lambda: not is_alive(int(lines()[0])), "its process to end")
        assert lines()[1:] == ["cleaned up"]


async def test_a_stopped_handler_takes_along_the_processes_it_started(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, sandboxed(handlers.start_another), server_url) as worker:
        job = await queue.add("start")
        lines = logged_pid(queue, raw, job.id)
        await wait_until(lines, "the other process to start")
        assert worker.cancel(job.id)
        with pytest.raises(JobFailedError, match="revoked"):
            await job.wait(SOON)
        other = int(lines()[0])
        await wait_until(lambda: not is_alive(other), "the other process to end")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit", "The sandbox process exited with code 3 while it ran the job; its last output:\nout of ideas"),
        ("SIGSEGV", "The sandbox process was killed by SIGSEGV while it ran the job; its last output:\nFatal Python"),
        ("SIGKILL", "The sandbox process was killed by SIGKILL, perhaps because memory ran out, while it ran the job."),
    ],
)
async def test_a_process_that_dies_fails_the_attempt_and_is_replaced(
    queue: AsyncQueue, server_url: str, how: str, reason: str
) -> None:
    async with working(queue, sandboxed(handlers.die), server_url, concurrency=1):
        job, after = await queue.add("die", how), await queue.add("die")
        with pytest.raises(JobFailedError) as caught:
            await job.wait(SOON)
        assert await after.wait(SOON) != os.getpid()
    assert caught.value.reason.startswith(reason)


async def test_a_process_that_dies_takes_along_the_children_that_hold_its_line(
    queue: AsyncQueue, server_url: str
) -> None:
    async with working(queue, sandboxed(handlers.leave_a_child_behind_and_die), server_url):
        job = await queue.add("die")
        with pytest.raises(JobFailedError, match="exited with code 4"):
            await job.wait(SOON)
        child = int((await job.logs())[0])
        await wait_until(lambda: not is_alive(child), "the child to end")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\xff" * 8, "The sandbox process sent a message of 4,294,967,295 bytes, which is too long"),
        (b"\0\0\0\2{]", "The sandbox process sent a message that is not JSON"),
        (b"\0\0\0\2[]", "The sandbox process sent a message that is not a JSON object"),
        (b"\0\0\0\2{}", "The sandbox process sent an invalid message"),
        (b'\0\0\0\x10{"kind":"ended"}', "The sandbox process sent an invalid message"),
    ],
    ids=["too long", "no JSON", "no object", "no kind", "no ending"],
)
async def test_a_process_that_speaks_nonsense_is_replaced(
    queue: AsyncQueue, server_url: str, message: bytes, reason: str
) -> None:
    async with working(queue, sandboxed(handlers.babble, grace=timedelta(0)), server_url):
        with pytest.raises(JobFailedError) as caught:
            await (await queue.add("babble", message.hex())).wait(SOON)
    assert caught.value.reason.startswith(reason)


async def test_a_process_that_died_idle_costs_no_job(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.die), server_url, concurrency=1):
        pid = await (await queue.add("die")).wait(SOON)
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: pid not in my_sandboxes(), "the process to be gone")
        assert await (await queue.add("die")).wait(SOON) != pid


async def test_a_process_is_replaced_after_so_many_jobs(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.who, max_jobs=2), server_url, concurrency=1):
        jobs = await queue.add_bulk([NewJob("who") for _ in range(4)])
        pids = [(await job.wait(SOON))["pid"] for job in jobs]
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_a_process_is_replaced_when_it_holds_too_much(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.hoard, max_memory_mb=150), server_url, concurrency=1):
        jobs = await queue.add_bulk([NewJob("hoard") for _ in range(4)])
        pids = [await job.wait(SOON) for job in jobs]
    assert pids[0] == pids[1]
    assert pids[3] != pids[0]


async def test_a_hundred_jobs_share_two_processes(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.who), server_url, concurrency=2):
        jobs = await queue.add_bulk([NewJob("who") for _ in range(100)])
        results = [await job.wait(SOON) for job in jobs]
    assert [result["id"] for result in results] == [job.id for job in jobs]
    assert len({result["pid"] for result in results}) == 2


async def test_a_killed_worker_takes_its_processes_along_at_once(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    worker = Worker(queue.name, sandboxed(handlers.cling), url=server_url, options=QUICK)
    running = asyncio.ensure_future(worker.run())
    job = await queue.add("cling")
    lines = logged_pid(queue, raw, job.id)
    await wait_until(lines, "the job to start")
    worker.kill()
    await asyncio.wait_for(running, 60)
    assert not is_alive(int(lines()[0]))
    assert (await job.refresh()).state is JobState.ACTIVE


@pytest.mark.chaos
def test_processes_end_when_their_worker_is_killed(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    target = f"{handlers.__name__}:sandboxed_cling"
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("cling")
        with worker_process(target, queue_name, server_url) as worker:
            wait_until_sync(lambda: raw.llen(queue.keys.log(job.id)), "the job to start")
            pid = int(str(raw.lindex(queue.keys.log(job.id), 0)))
            assert is_alive(pid)
            worker.kill()
            worker.wait(60)
            wait_until_sync(lambda: not is_alive(pid), "the process to follow")


PROGRAM = """
import asyncio, os, sys
from orchestration_queue.worker import Worker
from orchestration_queue.worker.sandbox import sandboxed

def work(job):
    return [os.getpid(), __name__]

async def main():
    worker = Worker(sys.argv[1], sandboxed(work), url=sys.argv[2])
    running = asyncio.ensure_future(worker.run())
    await asyncio.to_thread(sys.stdin.readline)
    worker.stop()
    await running
"""


@pytest.mark.parametrize(
    ("start", "outcome"),
    [
        ('if __name__ == "__main__":\n    asyncio.run(main())', "__mp_main__"),
        ("asyncio.run(main())", 'put what starts the worker under `if __name__ == "__main__":`'),
    ],
    ids=["guarded", "unguarded"],
)
def test_a_handler_may_stand_in_the_program_itself(
    server_url: str, queue_name: str, raw: redis.Redis, tmp_path: Path, start: str, outcome: str
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + start)
    program = subprocess.Popen([sys.executable, str(script), queue_name, server_url], stdin=subprocess.PIPE)
    with Queue(queue_name, url=server_url) as queue, program:
        try:
            result = json.dumps(queue.add("work").wait(SOON))
        except JobFailedError as error:
            result = error.reason
        program.communicate(b"\n", timeout=60)
    assert outcome in result
    assert program.returncode == 0


def _inner() -> Callable[[Any], Any]:
    def handler(job: Any) -> None: ...

    return handler


class _Callable:
    def __call__(self, job: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "named"),
    [
        (lambda job: job, "a lambda"),
        (_inner(), "'_inner.<locals>.handler', a function inside of another"),
        (functools.partial(handlers.echo), "a partial"),
        (_Callable(), "a _Callable"),
    ],
    ids=["lambda", "closure", "partial", "object"],
)
def test_what_no_other_process_can_find_is_refused_in_one_sentence(handler: Callable[[Any], Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        sandboxed(handler)
    assert str(caught.value) == (
        f"A sandboxed handler runs in another process, which cannot find {named} by a name; "
        "pass a function defined with `def` at the top level of a module."
    )


@pytest.mark.parametrize("option", [{"max_jobs": 0}, {"max_memory_mb": -1}, {"grace": timedelta(seconds=-1)}], ids=str)
def test_a_limit_that_makes_no_sense_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=f"`{next(iter(option))}` (?:is|must be)"):
        sandboxed(handlers.echo, **option)


async def test_a_handler_that_is_not_found_fails_its_job_with_one_sentence(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.outer), server_url):
        with pytest.raises(JobFailedError, match="cannot find 'elsewhere' in tests"):
            await (await queue.add("outer")).wait(SOON)


async def test_batches_are_refused(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, sandboxed(handlers.echo), server_url, batch=Batch(size=2)):
        with pytest.raises(JobFailedError, match="takes one job at a time"):
            await (await queue.add("echo")).wait(SOON)


def test_calling_a_sandboxed_handler_calls_the_function_here() -> None:
    assert handlers.decorated(None) == os.getpid()
