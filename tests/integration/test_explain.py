"""Why a job is where it is, for every state."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.client import FlowProducer, Queue
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
    assert "another worker will take it over" in job.explain().sentence


def test_a_job_that_waits_for_its_turn_in_a_group(queue: Queue) -> None:
    first, end = threading.Event(), threading.Event()

    def handle(_: ActiveJob) -> None:
        first.set()
        end.wait(60)

    with running_worker(queue, handle, options=WorkerOptions(concurrency=2)):
        try:
            jobs = [queue.add("x", options=JobOptions(ordering=Ordering(key="tenant"))) for _ in range(2)]
            assert first.wait(60)
            until(lambda: jobs[1].read_state() is JobState.GROUP_WAITING)
            found = jobs[1].explain()
        finally:
            end.set()
    assert found.sentence == "Ordering group 'tenant' runs 1 of 1 jobs at a time."
    assert found.facts["group"] == "tenant"


def test_a_suspended_job(queue: Queue) -> None:
    def handle(job: ActiveJob) -> None:
        job.suspend(reason="approval", timeout=timedelta(hours=1))

    with running_worker(queue, handle):
        job = queue.add("x")
        until(lambda: job.read_state() is JobState.SUSPENDED)
    found = job.explain()
    assert found.sentence.startswith("Its handler suspended it (approval); it waits for a signal until ")
    assert found.action == f"oq job signal {queue.name} {job.id} NAME"


def test_a_job_that_waits_for_others(queue: Queue, hand: HandWorker, server_url: str) -> None:
    with FlowProducer(url=server_url) as flows:
        flow = flows.submit(Dag("f", [Node("a"), Node("b"), Node("c", deps=["a", "b"])], queue.name), flow_id="f")
    assert flow.id == "f"
    found = queue.get("f.c").explain()
    assert found.sentence == "It waits for 2 of 2 jobs: f.a (waiting), f.b (waiting)."
    assert found.action == f"oq job why {queue.name} f.a"
    hand.complete(hand.take(), None)
    assert queue.get("f.c").explain().facts["open"] == [{"queue": queue.name, "id": "f.b", "state": "waiting"}]


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
