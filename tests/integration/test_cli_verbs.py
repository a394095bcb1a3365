"""The verbs of `oq` that read and control queues: what they print, and what they change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import FlowProducer, Queue
from orchestration_queue.flows import Dag, Node, TriggerRule
from orchestration_queue.options import JobOptions, Usage, WorkerOptions
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.states import JobState
from orchestration_queue.worker import ActiveJob, Worker
from tests.by_hand import HandWorker
from tests.integration.test_cli import Oq
from tests.processes import OQ, running_process
from tests.waiting import wait_until


@pytest.fixture
def oq(server_url: str) -> Oq:
    """The command."""
    return Oq(server_url)


@pytest.fixture
def queue(server_url: str, queue_name: str) -> Iterator[Queue]:
    """A queue of the test's own."""
    with Queue(queue_name, url=server_url) as made:
        yield made


def handle(job: ActiveJob) -> str:
    """Speak, and fail if asked to."""
    job.log("first line", "second line")
    job.update_progress({"percent": 50, "text": "half"})
    if job.name == "bad":
        raise ValueError("no good")
    return "done"


async def run_all(queue: Queue, ended: int) -> None:
    """Let a worker run until this number of jobs has ended."""
    options = WorkerOptions(dead_letter_queue=f"{queue.name}-dead", concurrency=4)
    worker = Worker(queue.name, handle, url=str(queue.url), options=options)
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: queue.counts().completed + queue.counts().failed == ended, "the jobs to end")
    worker.stop()
    await running


def test_a_whole_queue_is_steered(oq: Oq, queue: Queue) -> None:
    for _ in range(3):
        queue.add("work", {})
    queue.add("late", {}, JobOptions(delay=3600))
    assert oq.json("queue", "pause", queue.name) == {"queue": queue.name, "paused": True}
    assert queue.is_paused()
    shown = oq.json("queue", "show", queue.name)
    assert (shown["waiting"], shown["delayed"], shown["paused"], shown["workers"]) == (3, 1, True, 0)
    assert shown["oldest_ready"] is not None
    assert "waiting" in oq("queue", "show", queue.name).stdout
    assert oq("queue", "resume", queue.name).stdout == f"Queue {queue.name} is running.\n"
    assert not queue.is_paused()

    assert oq("queue", "drain", queue.name, answer="n\n").exit_code == 1
    assert queue.counts().waiting == 3, "who does not say yes removes nothing"
    assert oq.json("queue", "drain", queue.name, "--yes")["removed"] == 3
    assert queue.counts().delayed == 1
    assert oq.json("queue", "drain", queue.name, "--yes", "--delayed")["removed"] == 1
    assert oq.json("queue", "obliterate", queue.name, "--yes")["removed_keys"] > 0
    assert queue.name not in Queue.names(url=str(queue.url))


async def test_finished_jobs_are_retried_and_cleaned(oq: Oq, queue: Queue) -> None:
    queue.add("good", {})
    queue.add("bad", {})
    await run_all(queue, 2)
    assert oq.json("queue", "clean", queue.name, "--yes", "--older-than", "3600")["removed"] == []
    assert len(oq.json("queue", "clean", queue.name, "--yes")["removed"]) == 1
    assert oq.json("queue", "retry", queue.name)["retried"] == 1
    assert queue.counts().failed == 0


async def test_a_job_is_listed_followed_and_steered(oq: Oq, queue: Queue) -> None:
    good, bad = queue.add("good", {}), queue.add("bad", {})
    assert [job["id"] for job in oq.json("job", "ls", queue.name)] == [good.id, bad.id]
    assert [job["id"] for job in oq.json("job", "ls", queue.name, "--name", "bad")] == [bad.id]
    await run_all(queue, 2)
    assert bad.id in oq("job", "ls", queue.name, "--state", "failed").stdout
    assert [job["id"] for job in oq.json("job", "ls", queue.name)] == [bad.id, good.id], "of all states, failures first"
    assert [job["id"] for job in oq.json("job", "ls", queue.name, "--limit", "1")] == [bad.id]
    lines = oq("job", "ls", queue.name).stdout.splitlines()
    assert len(lines) == 3, "no line is folded outside of a terminal"
    assert oq.json("job", "logs", queue.name, good.id) == ["first line", "second line"]
    watched = oq("job", "watch", queue.name, good.id)
    assert (watched.exit_code, watched.stdout.split(" after")[0]) == (0, f"Job {good.id} completed")
    assert "second line" in watched.stderr
    assert oq.json("job", "watch", queue.name, good.id)["state"] == "completed"
    failed = oq("job", "watch", queue.name, bad.id)
    assert (failed.exit_code, "ValueError: no good" in failed.stdout) == (1, True)
    assert oq.json("job", "retry", queue.name, bad.id)["retried"] is True
    assert bad.read_state() is JobState.DELAYED, "due at once"
    assert oq("job", "cancel", queue.name, bad.id).stdout == f"Job {bad.id} will not run.\n"
    assert bad.read_state() is JobState.FAILED
    again = oq("job", "cancel", queue.name, bad.id)
    assert again.exit_code == 3
    assert again.stderr.rstrip().endswith("has ended (failed), so it can't be cancelled.")
    late = queue.add("good", {}, JobOptions(delay=3600))
    assert oq("job", "promote", queue.name, late.id).stdout == f"Job {late.id} is ready.\n"
    assert late.read_state() is JobState.WAITING
    assert oq.json("job", "rm", queue.name, late.id, "--yes")["removed"] is True
    assert oq("job", "show", queue.name, late.id).exit_code == 3


async def test_durable_steps_are_shown_forgotten_and_repeated(oq: Oq, queue: Queue) -> None:
    ran: list[str] = []

    def work(job: ActiveJob) -> Any:
        for name in "abc":
            job.step(name, ran.append, name)
        if len(ran) < 6:
            raise ValueError("once more")
        return job.wait_for("approval")["by"]

    async def run(state: JobState) -> None:
        worker = Worker(queue.name, work, url=str(queue.url))
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: job.read_state() is state, f"the job to be {state}")
        worker.stop()
        await asyncio.wait_for(running, 60)

    job = queue.add("work")
    await run(JobState.FAILED)
    shown = oq("job", "show", queue.name, job.id).stdout
    assert re.search(r"2\. b: returned \(.*, \d\.\d\d s, 4 bytes, attempt 1\)", shown)
    steps = oq.json("job", "show", queue.name, job.id)["steps"]
    assert [(step["name"], step["kind"], step["number"]) for step in steps] == [
        ("a", "returned", 1),
        ("b", "returned", 2),
        ("c", "returned", 3),
    ]
    assert all(isinstance(step["duration"], float) for step in steps)
    assert oq("job", "forget", queue.name, job.id, "a").stdout == f"Job {job.id} has forgotten 1 step.\n"
    assert (
        oq("job", "retry", queue.name, job.id, "--from-step", "b").stdout == f"Job {job.id} runs again from step b.\n"
    )
    assert oq.json("job", "show", queue.name, job.id)["steps"] == []
    await run(JobState.SUSPENDED)
    assert ran == ["a", "b", "c", "a", "b", "c"]
    assert f"oq job signal {queue.name} {job.id} approval" in oq("job", "why", queue.name, job.id).stdout
    assert re.search(
        r"approval: waits for its signal \(since .*, attempt 1\)", oq("job", "show", queue.name, job.id).stdout
    )
    sent = oq.json("job", "signal", queue.name, job.id, "approval", "--data", '{"by": "Zoë"}')
    assert sent["delivered"] is True
    await run(JobState.COMPLETED)
    assert job.refresh().result == "Zoë"


async def test_dead_letters_are_read_replayed_and_dropped(oq: Oq, queue: Queue) -> None:
    jobs = [queue.add("bad", {"n": n}) for n in range(3)]
    await run_all(queue, 3)
    letters = oq.json("dead", "ls", queue.name)
    assert sorted(letter["original_job_id"] for letter in letters) == sorted(job.id for job in jobs)
    assert "no good" in oq("dead", "ls", queue.name).stdout
    first = oq.json("dead", "show", queue.name, letters[0]["id"])
    assert first["failed_reason"] == "ValueError: no good"
    assert "no good" in oq("dead", "show", queue.name, letters[0]["id"]).stdout
    again = oq.json("dead", "replay", queue.name, letters[0]["id"])
    assert queue.get(again["id"]).record.data == first["data"]
    assert oq.json("dead", "replay", queue.name, "--all", "--count", "1")["replayed"] == 1
    assert oq.json("dead", "purge", queue.name, "--yes")["dropped"] == 1
    assert oq.json("dead", "ls", queue.name) == []
    for words, code in (((), 2), ((letters[0]["id"], "--all"), 2), (("nix",), 3)):
        assert oq("dead", "replay", queue.name, *words).exit_code == code
    assert oq("dead", "show", queue.name, "nix").exit_code == 3


async def test_what_happens_right_now_is_shown(oq: Oq, queue: Queue) -> None:
    job = queue.add("good", {})
    (line,) = oq("queue", "events", queue.name, "--after", "0-0", "--limit", "1").stdout.splitlines()
    assert (json.loads(line)["type"], json.loads(line)["job_id"]) == ("added", job.id)
    job.log("reading", "WRITING", "read again")
    job.cancel()
    events = ("queue", "events", queue.name, "--after", "0-0")
    found = oq(*events, "--logs", "--kind", "revoked", "--limit", "4").stdout.splitlines()
    assert [json.loads(line)["type"] for line in found] == ["revoked", "log", "log", "log"]
    found = oq(*events, "--kind", "log", "--text", "WRIT", "--job", job.id, "--limit", "1").stdout.splitlines()
    assert [json.loads(line) for line in found] == [{"type": "log", "job_id": job.id, "number": 2, "line": "WRITING"}]
    queue.obliterate(force=True)
    queue.add("good", {})
    assert oq.json("worker", "ls", queue.name) == []
    first, second = (
        {row["queue"]: row for row in json.loads(look)}[queue.name]
        for look in oq("queue", "top", "--json", "--rounds", "2", "--interval", "0.1").stdout.splitlines()
    )
    assert (first["waiting"], first["ended_per_s"], second["ended_per_s"]) == (1, None, 0)
    table = oq("queue", "top", "--rounds", "1").stdout
    assert queue.name in table
    worker = Worker(queue.name, handle, url=str(queue.url))
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: bool(queue.workers()), "the worker to register")
    assert [found["id"] for found in await asyncio.to_thread(oq.json, "worker", "ls", queue.name)] == [worker.id]
    worker.stop()
    await running


def test_the_bench_measures_and_leaves_nothing(oq: Oq, raw: redis.Redis) -> None:
    figures = oq.json("server", "bench", "--jobs", "200", "--concurrency", "4")
    assert set(figures) == {
        "exchange_ms",
        "adds_per_s",
        "bulk_adds_per_s",
        "jobs_per_s",
        "start_p50_ms",
        "start_p99_ms",
    }
    assert all(figure > 0 for figure in figures.values())
    assert figures["start_p50_ms"] <= figures["start_p99_ms"]
    assert raw.keys("*oq-bench*") == []
    assert "add in bulk" in oq("server", "bench", "--jobs", "200").stdout


def test_libraries_are_loaded_by_hand(oq: Oq, raw: redis.Redis) -> None:
    raw.function_flush()
    loaded = oq.json("library", "load")
    assert [(row["library"], row["server"]) for row in loaded] == [
        (library.name, library.version) for library in LIBRARIES
    ]
    assert {row["on_connect"] for row in loaded} == {"keep"}
    assert len(raw.function_list()) == 2


def test_a_job_is_added_with_its_options(oq: Oq, queue: Queue) -> None:
    options = ("--backoff", "exponential:2", "--timeout", "9", "--ttl", "60", "--key", "k", "--attempts", "3")
    added = oq.json("job", "add", queue.name, "n", *options, "--dedup", "once")
    assert oq.json("job", "add", queue.name, "n", "--dedup", "once")["is_new"] is False
    wire = oq.json("job", "show", queue.name, added["id"])["options"]
    assert wire["backoff"] == {"type": "exponential", "delay": 2000}
    assert (wire["timeout"], wire["ttl"], wire["ordering"]["key"]) == (9000, 60_000, "k")
    later = oq.json("job", "add", queue.name, "n", "--lifo", "--backoff", "2")
    wire = oq.json("job", "show", queue.name, later["id"])["options"]
    assert (wire["lifo"], wire["backoff"]) == (True, {"type": "fixed", "delay": 2000})


async def test_a_job_is_changed_signalled_and_its_stream_printed(oq: Oq, queue: Queue) -> None:
    def wait_for_approval(job: ActiveJob) -> str:
        job.stream({"said": "hello"})
        if not job.signals:
            job.suspend()
        return str(job.signals[0].data)

    job = queue.add("n", {}, JobOptions(delay=3600))
    assert oq("job", "priority", queue.name, job.id, "7").stdout == f"Job {job.id} has priority 7.\n"
    assert oq.json("job", "update", queue.name, job.id, '{"a": 1}')["updated"] is True
    assert oq.json("job", "delay", queue.name, job.id, "0.001")["delay"] == 0.001
    shown = oq.json("job", "show", queue.name, job.id)
    assert (shown["priority"], shown["data"]) == (7, {"a": 1})

    worker = Worker(queue.name, wait_for_approval, url=str(queue.url))
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: queue.counts().suspended == 1, "the job to wait for its signal")
    assert oq.json("job", "signal", queue.name, job.id, "approve", "--data", '"yes"')["delivered"] is True
    await wait_until(lambda: queue.counts().completed == 1, "the job to complete")
    worker.stop()
    await running
    assert oq.json("job", "show", queue.name, job.id)["result"] == "yes"
    lines = oq("job", "stream", queue.name, job.id).stdout.splitlines()
    assert [json.loads(line)["said"] for line in lines] == ["hello", "hello"]
    assert oq.json("queue", "metrics", queue.name)["count"] == 1


def test_a_queues_limits_are_set_shown_and_removed(oq: Oq, queue: Queue) -> None:
    none = {"queue": queue.name, "concurrency": None, "rate": None, "per": None}
    assert oq.json("queue", "limit", queue.name) == none
    both = oq.json("queue", "limit", queue.name, "--concurrency", "4", "--rate", "10", "--per", "60")
    assert both == {"queue": queue.name, "concurrency": 4, "rate": 10, "per": 60}
    assert queue.global_concurrency() == 4
    assert "4 active jobs, 10 starts in 60 s" in oq("queue", "limit", queue.name).stdout
    assert oq.json("queue", "limit", queue.name, "--concurrency", "0", "--rate", "0") == none


def test_usage_is_added_up(oq: Oq, queue: Queue) -> None:
    queue.add("n", {}).report_usage(Usage(model="m", tokens={"input": 5}))
    assert oq.json("usage", queue.name)["total"]["tokens"] == 5
    assert [line.split()[:3] for line in oq("usage").stdout.splitlines()[1:]] == [
        [queue.name, "1", "5"],
        ["all", "1", "5"],
    ]


def test_a_broadcast_is_published_and_its_subscriptions_controlled(oq: Oq, queue_name: str, raw: redis.Redis) -> None:
    assert oq.json("broadcast", "subscribe", queue_name, "audit")["is_new"] is True
    assert oq.json("broadcast", "subscribe", queue_name, "audit")["is_new"] is False
    assert oq.json("broadcast", "publish", queue_name, "orders.paid", "--data", "7")["id"] == "1"
    (audit,) = oq.json("broadcast", "ls", queue_name)
    assert (audit["name"], audit["lag"], audit["pending"]) == ("audit", 1, 0)
    assert oq("broadcast", "unsubscribe", queue_name, "audit").stdout == "Subscription audit is removed.\n"
    assert oq.json("broadcast", "ls", queue_name) == []


def test_a_flow_is_explained_and_submitted_from_a_file(oq: Oq, queue: Queue, tmp_path: Path) -> None:
    source = f"from orchestration_queue import Dag, Node\ndag = Dag('etl', [Node('load')], queue={queue.name!r})\n"
    (tmp_path / "oqt_pipeline.py").write_text(source)
    target = f"{tmp_path}/oqt_pipeline.py:dag"
    assert "Flow 'etl' as explained: 1 nodes" in oq("flow", "explain", target).stdout
    assert queue.counts().waiting == 0
    submitted = oq.json("flow", "submit", target, "--flow-id", "f")
    assert submitted == {"queue": queue.name, "id": "f", "nodes": 1, "carrier": "transaction"}
    assert oq.json("flow", "submit", target, "--flow-id", "g", "--carrier", "packed")["carrier"] == "packed"
    assert {flow["id"] for flow in oq.json("flow", "ls", queue.name)} == {"f", "g"}
    assert "oq flow tree" in oq("flow", "submit", target, "--flow-id", "f").stdout
    assert oq("flow", "submit", target, "--flow-id", "f", "--wait", "0.05").exit_code == 1


@pytest.mark.parametrize("words", [["--once"], ["--interval", "0.1"]], ids=["once", "until interrupted"])
async def test_a_flow_that_only_other_clients_serve_is_kept(
    oq: Oq, server_url: str, queue: Queue, words: list[str]
) -> None:
    nodes = [
        Node("load"),
        Node("report", deps=["load"]),
        Node("alarm", deps=["load"], trigger_rule=TriggerRule.ONE_FAILED),
    ]
    with FlowProducer(url=server_url) as flows, HandWorker(server_url, queue.name) as node_worker:
        flow = flows.submit(Dag("etl", nodes, queue.name))
        node_worker.fail(node_worker.take(), "no such file")  # as a worker without trigger rules does
        outcomes = [node.outcome for node in flow.tree()]
        assert outcomes == ["failed", "waiting-children", "waiting-children"]
        if words == ["--once"]:
            assert oq("flow", "keep", queue.name, *words).exit_code == 0
        else:
            with running_process([OQ, "flow", "keep", queue.name, *words], server_url):
                await wait_until(lambda: flow.tree()[1].outcome == "upstream_failed", "a round")
        assert [node.outcome for node in flow.tree()] == ["failed", "upstream_failed", "waiting"]
        assert node_worker.take().record.name == "alarm"
