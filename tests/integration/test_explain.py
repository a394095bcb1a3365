"""Why a job is where it is, for every state."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration_queue import Tasks
from orchestration_queue.cli.main import app
from orchestration_queue.client import FlowProducer, Job, Queue
from orchestration_queue.errors import JobNotFoundError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import Backoff, JobOptions, Ordering, RateLimit, WorkerOptions
from orchestration_queue.states import JobState
from orchestration_queue.testing import running_worker
from orchestration_queue.worker import ActiveJob
from tests.by_hand import HandWorker


@pytest.fixture
def queue(raw: Any, server_url: str, queue_name: str) -> Iterator[Queue]:
    """An empty queue."""
    with Queue(queue_name, url=server_url) as client:
        yield client


@pytest.fixture
def hand(raw: Any, server_url: str, queue_name: str) -> Iterator[HandWorker]:
    """A worker that takes jobs by hand; it is registered as alive."""
    registration = {"addr": "host", "pid": 1, "startedAt": 1_700_000_000_000, "activeJobs": 0}
    with HandWorker(server_url, queue_name) as worker:
        raw.set(worker.keys.worker("w"), json.dumps(registration), ex=120)
        yield worker


def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def added(queue: Queue, _: HandWorker, options: JobOptions | None = None) -> Iterator[Job]:
    yield queue.add("x", options=options)


@contextmanager
def delayed(queue: Queue, hand: HandWorker) -> Iterator[Job]:
    with added(queue, hand, JobOptions(delay=timedelta(hours=1))) as job:
        yield job


@contextmanager
def prioritized(queue: Queue, hand: HandWorker) -> Iterator[Job]:
    with added(queue, hand, JobOptions(priority=3)) as job:
        yield job


@contextmanager
def active(queue: Queue, hand: HandWorker) -> Iterator[Job]:
    with added(queue, hand) as job:
        hand.take()
        yield job


@contextmanager
def completed(queue: Queue, hand: HandWorker) -> Iterator[Job]:
    with added(queue, hand) as job:
        hand.complete(hand.take())
        yield job


@contextmanager
def failed(queue: Queue, hand: HandWorker) -> Iterator[Job]:
    with added(queue, hand) as job:
        hand.fail(hand.take(), "out of paper")
        yield job


@contextmanager
def behind_its_group(queue: Queue, _: HandWorker) -> Iterator[Job]:
    first, end = threading.Event(), threading.Event()

    def handle(_: ActiveJob) -> None:
        first.set()
        end.wait(60)

    with running_worker(queue, handle, options=WorkerOptions(concurrency=2)):
        try:
            jobs = [queue.add("x", options=JobOptions(ordering=Ordering(key="tenant"))) for _ in range(2)]
            assert first.wait(60)
            until(lambda: jobs[1].read_state() is JobState.GROUP_WAITING)
            yield jobs[1]
        finally:
            end.set()


@contextmanager
def suspended(queue: Queue, _: HandWorker) -> Iterator[Job]:
    def handle(job: ActiveJob) -> None:
        job.suspend(reason="approval", timeout=timedelta(hours=1))

    with running_worker(queue, handle):
        job = queue.add("x")
        until(lambda: job.read_state() is JobState.SUSPENDED)
    yield job


@contextmanager
def behind_others(queue: Queue, _: HandWorker) -> Iterator[Job]:
    with FlowProducer(url=str(queue.url)) as flows:
        flows.submit(Dag("f", [Node("a"), Node("b"), Node("c", deps=["a", "b"])], queue.name), flow_id="f")
    yield queue.get("f.c")


EXPLAINED: dict[str, tuple[Callable[[Queue, HandWorker], AbstractContextManager[Job]], str]] = {
    "waiting": (added, "It is ready and waits for a free slot: 1 ready job, 0 running jobs, 1 worker."),
    "delayed": (delayed, "It is delayed until "),
    "prioritized": (prioritized, "It is ready and waits for a free slot: "),
    "active": (active, "A worker has been running it since "),
    "completed": (completed, "It completed at "),
    "failed": (failed, "It failed for good after 1 attempt: out of paper."),
    "group-waiting": (behind_its_group, "Ordering group 'tenant' runs 1 of 1 jobs at a time."),
    "suspended": (suspended, "Its handler suspended it (approval); it waits for a signal until "),
    "waiting-children": (behind_others, "It waits for 2 of 2 jobs: f.a (waiting), f.b (waiting)."),
}
"""How a job comes into each state, and how the sentence about it begins."""


def test_all_states_are_explained_here() -> None:
    assert set(EXPLAINED) == {str(state) for state in JobState}


@pytest.mark.parametrize("state", sorted(EXPLAINED))
def test_each_state_is_explained_by_the_client_and_in_the_terminal(
    state: str, queue: Queue, hand: HandWorker, server_url: str
) -> None:
    bring, sentence = EXPLAINED[state]
    with bring(queue, hand) as job:
        found = job.explain()
        env = {"OQ_URL": server_url, "COLUMNS": "300"}
        shown = CliRunner().invoke(app, ["job", "why", queue.name, job.id], env=env)
    assert found.state == state
    assert found.sentence.startswith(sentence)
    assert shown.stdout.startswith(f"{job.id} is {state}. {found.sentence}\n")
    assert (f"What to do: {found.action}" in shown.stdout) is (found.action is not None)


def test_a_ready_job_without_a_worker(queue: Queue) -> None:
    found = queue.add("x").explain()
    assert (found.state, found.sentence) == (JobState.WAITING, "No worker serves the queue.")
    assert found.action == f"oq worker module:tasks --queue {queue.name}"


def test_a_ready_job_of_a_paused_queue(queue: Queue) -> None:
    job = queue.add("x")
    queue.pause()
    assert job.explain().sentence == "The queue is paused."


def test_a_ready_job_waits_for_a_slot_or_the_queues_limit(queue: Queue, hand: HandWorker) -> None:
    running, job = queue.add("x"), queue.add("x")
    held = hand.take()
    assert held.id == running.id
    assert "waits for a free slot: 1 ready job, 1 running job, 1 worker" in job.explain().sentence
    queue.set_global_concurrency(1)
    assert job.explain().sentence == "All 1 jobs that may run at a time in the whole queue are running."


def test_a_ready_job_whose_workers_are_all_paused(queue: Queue) -> None:
    with running_worker(queue, lambda _: None):
        until(lambda: len(queue.workers()) == 1)
        (told,) = queue.control_workers("pause", timeout=60)
        until(lambda: queue.workers()[0].is_paused)
        found = queue.add("x").explain()
    assert found.sentence == f"Every worker of the queue is paused: {told.worker}."
    assert found.action == f"oq worker resume {queue.name} --all"


def test_a_ready_job_whose_task_no_worker_knows(queue: Queue) -> None:
    tasks, end = Tasks(), threading.Event()

    @tasks.task
    def load() -> None:
        end.wait(60)

    with running_worker(queue, tasks, options=WorkerOptions(concurrency=1)):
        try:
            busy = queue.add("load", {})
            until(lambda: busy.read_state() is JobState.ACTIVE and bool(queue.workers()))
            known, unknown = queue.add("load", {}).explain(), queue.add("x").explain()
        finally:
            end.set()
    assert "waits for a free slot" in known.sentence
    assert unknown.sentence == (
        "No worker of the queue knows task 'x', so the worker that takes the job will fail it; known: load."
    )
    assert unknown.facts["tasks"] == ["load"]


def test_a_job_whose_worker_may_know_more_tasks_than_it_says_is_not_called_unknown(queue: Queue, raw: Any) -> None:
    told = {"addr": "host", "pid": 1, "startedAt": 1_700_000_000_000, "activeJobs": 0}
    raw.set(queue.keys.worker("many"), json.dumps({**told, "tasks": [f"t{n}" for n in range(100)]}), ex=120)
    job = queue.add("x")
    assert "waits for a free slot" in job.explain().sentence
    raw.set(queue.keys.worker("many"), json.dumps({**told, "tasks": ["t0"]}), ex=120)
    assert "No worker of the queue knows task 'x'" in job.explain().sentence
    assert "waits for a free slot" in queue.add("x" * 101).explain().sentence


def test_a_job_whose_rate_limit_is_used_up(queue: Queue, hand: HandWorker, raw: Any) -> None:
    job = queue.add("x")
    queue.set_global_rate_limit(RateLimit(max=3, duration=timedelta(hours=1)))
    seconds, _ = raw.time()
    raw.hset(queue.keys.rate, mapping={"windowStart": seconds * 1000, "count": 3})
    found = job.explain()
    assert found.sentence.startswith("The queue's rate limit of 3 starts is used up until ")
    assert found.facts["until"] is not None


def test_delayed_and_prioritized_jobs(queue: Queue, hand: HandWorker) -> None:
    delayed = queue.add("x", options=JobOptions(delay=timedelta(hours=1)))
    assert delayed.explain().sentence.startswith("It is delayed until ")
    assert "starts it now" in str(delayed.explain().action)
    urgent = queue.add("x", options=JobOptions(priority=3))
    assert urgent.explain().state is JobState.PRIORITIZED
    assert "waits for a free slot" in urgent.explain().sentence


def test_a_job_that_pauses_before_a_retry(queue: Queue, hand: HandWorker) -> None:
    backoff = Backoff(type="fixed", delay=timedelta(hours=1))
    retried = queue.add("x", options=JobOptions(attempts=3, backoff=backoff, job_id="retried", lifo=True))
    held = hand.take()
    assert held.id == retried.id
    hand.fail(held, "disk full", max_attempts=3)
    assert "Attempt 1 of 3 failed (disk full); the next starts at " in retried.explain().sentence


def test_an_active_job_and_one_whose_worker_is_silent(queue: Queue, hand: HandWorker, raw: Any) -> None:
    job = queue.add("x")
    hand.take()
    found = job.explain()
    assert found.sentence.startswith("A worker has been running it since ")
    assert found.facts["attempt"] == 1
    raw.hset(queue.keys.job(job.id), "lastActive", 1_700_000_000_000)
    found = job.explain()
    assert found.sentence.endswith("the lease ended at 2023-11-14 22:13:50 UTC, and another worker will take it over.")


def test_who_runs_a_job_is_named_and_when_its_lease_ends_if_that_worker_is_lost(queue: Queue) -> None:
    begun, end = threading.Event(), threading.Event()

    def handle(_: ActiveJob) -> None:
        begun.set()
        end.wait(60)

    registers_soon = timedelta(milliseconds=500)
    with running_worker(
        queue, handle, options=WorkerOptions(lease=timedelta(hours=1), stalled_interval=registers_soon)
    ):
        try:
            job = queue.add("x")
            assert begun.wait(60)
            until(lambda: any(worker.jobs for worker in queue.workers()))
            found, (worker,) = job.explain(), queue.workers()
        finally:
            end.set()
    assert found.sentence.startswith(
        f"Worker {worker.id!r} on {worker.host} (process {worker.pid}) has been running it"
    )
    assert (found.facts["worker"], found.facts["host"], found.facts["pid"]) == (worker.id, worker.host, worker.pid)
    ends_at = found.facts["lease_ends_at"]
    assert ends_at - found.facts["renewed_at"] == timedelta(hours=1)
    assert found.sentence.endswith(f"if the worker is lost, another takes over at {ends_at:%Y-%m-%d %H:%M:%S} UTC.")


def test_a_job_that_waits_for_its_turn_in_a_group(queue: Queue, hand: HandWorker) -> None:
    with behind_its_group(queue, hand) as job:
        assert job.explain().facts["group"] == "tenant"


def test_a_suspended_job_says_what_signals_it(queue: Queue, hand: HandWorker) -> None:
    with suspended(queue, hand) as job:
        assert job.explain().action == f"oq job signal {queue.name} {job.id} NAME"


def test_a_job_that_waits_for_others_names_those_that_are_left(queue: Queue, hand: HandWorker) -> None:
    with behind_others(queue, hand) as job:
        assert job.explain().action == f"oq job why {queue.name} f.a"
        hand.complete(hand.take(), None)
        assert job.explain().facts["open"] == [{"queue": queue.name, "id": "f.b", "state": "waiting"}]


def test_a_job_whose_flow_is_paused(queue: Queue, hand: HandWorker, server_url: str, raw: Any) -> None:
    with FlowProducer(url=server_url) as flows:
        flow = flows.submit(Dag("f", [Node("a"), Node("b", deps=["a"])], queue.name), flow_id="f")
        flow.pause()
        job = queue.get("f.b")
        assert job.explain().sentence == "It waits for 1 of 1 jobs: f.a (waiting); its flow 'f' is paused."
        hand.complete(hand.take())
        found = job.explain()
        assert (found.sentence, found.action) == ("Its flow 'f' is paused.", f"oq flow resume {queue.name} f")
        raw.hdel(queue.keys.flow("f"), "paused")
        assert job.explain().sentence == "Its flow 'f' holds it until its submission, retry or pause is over."
        flow.pause()
        flow.resume()
    assert job.explain().state is JobState.WAITING


def test_finished_jobs(queue: Queue, hand: HandWorker) -> None:
    good, bad = queue.add("x"), queue.add("x")
    hand.complete(hand.take(), None)
    hand.fail(hand.take(), "out of paper")
    assert good.explain().sentence.startswith("It completed at ")
    found = bad.explain()
    assert found.sentence == "It failed for good after 1 attempt: out of paper."
    assert found.action == f"oq job retry {queue.name} {bad.id}"


def test_a_job_that_is_gone_is_not_explained(queue: Queue) -> None:
    job = queue.add("x")
    job.remove()
    with pytest.raises(JobNotFoundError):
        job.explain()


def test_the_terminal_says_it(queue: Queue, server_url: str) -> None:
    job = queue.add("x")
    env = {"OQ_URL": server_url, "COLUMNS": "200"}
    shown = CliRunner().invoke(app, ["job", "why", queue.name, job.id], env=env)
    assert shown.stdout.startswith(f"{job.id} is waiting. No worker serves the queue.\nWhat to do: oq worker")
    as_json = CliRunner().invoke(app, ["job", "why", queue.name, job.id, "--json"], env=env)
    assert json.loads(as_json.stdout)["facts"]["workers"] == []
