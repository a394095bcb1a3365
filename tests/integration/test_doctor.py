"""`oq doctor`: a healthy server has no problems, and each check finds what it is for."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import Alerts, Broadcast, NewJob, Queue, Registration
from orchestration_queue.doctor import Finding, Severity, run_checks
from orchestration_queue.doctor.server import Server, replication
from orchestration_queue.errors import StateError
from orchestration_queue.flows import Node
from orchestration_queue.options import JobOptions, Ordering, WorkerOptions
from orchestration_queue.protocol.alerts import Evaluator, UnsentMessage
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.moves import move
from orchestration_queue.server import Connection, parse_url
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker import ActiveJob, Worker
from tests.by_hand import HandWorker
from tests.conftest import start_server
from tests.integration.test_cli import Oq
from tests.nodes import Nodes
from tests.waiting import wait_until, wait_until_sync


@pytest.fixture
def queue(server_url: str, queue_name: str) -> Iterator[Queue]:
    """A queue of the test's own."""
    with Queue(queue_name, url=server_url) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[redis.Redis, str]]:
    """A server of the test's own, with the append-only file on and the libraries loaded."""
    socket = tmp_path / "own.sock"
    process = start_server(socket, "--appendonly", "yes", "--dir", str(tmp_path))
    url = f"unix://{socket}"
    Connection.open(url).close()
    with redis.Redis(unix_socket_path=str(socket), decode_responses=True) as raw:
        yield raw, url
    process.kill()
    process.wait(10)


def found(url: str, *queues: str, within: str = "") -> list[Finding]:
    """What is found, of which the text holds a word."""
    findings = run_checks(url, queues)
    return [finding for finding in findings if within in f"{finding.where} {finding.what}"]


def one(url: str, *queues: str, within: str) -> Finding:
    """The only such finding; its sentences are whole."""
    (finding,) = found(url, *queues, within=within)
    assert finding.why
    assert finding.action
    return finding


def test_a_healthy_server_has_no_problems(own: tuple[redis.Redis, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration_queue.doctor import server

    monkeypatch.setattr(server, "_SLOW_EXCHANGE_MS", 60_000)  # a busy machine may be slow and well
    monkeypatch.setattr(server, "_SKEW_MS", 60_000)
    _, url = own
    assert [finding.what for finding in found(url)] == ["It has no replica"]


def test_a_healthy_queue_has_none(queue: Queue, server_url: str) -> None:
    queue.add("later", options=None)
    queue.pause()
    assert [f.what for f in found(server_url, queue.name, within="queue ")] == ["It is paused, and has 1 ready job"]
    queue.drain()
    assert found(server_url, queue.name, within="queue ") == []


async def test_jobs_with_durable_steps_are_healthy(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    """Also steps whose record is gone, as a library that does not know them leaves them."""

    def work(job: ActiveJob) -> None:
        job.step("charge", int)
        match job.name:
            case "sleeps":
                job.sleep("nap", 3600)
            case "waits":
                job.wait_for("approval", timeout=3600)
            case "calls":
                job.call(Node("it", "sleeps"))

    worker = Worker(queue.name, work, url=server_url, options=WorkerOptions(stalled_interval=0.2))
    running = asyncio.ensure_future(worker.run())
    ended, *_ = (queue.add(name) for name in ("ends", "sleeps", "waits", "calls"))
    await wait_until(
        lambda: (
            [raw.hget(queue.keys.job(f"{n}"), "state") for n in range(1, 5)]
            == ["completed", "delayed", "suspended", "waiting-children"]
            and raw.zcard(queue.keys.scheduled) == 2
        ),
        "each job to be where it stays",
        60,
    )
    worker.stop()
    await asyncio.wait_for(running, 60)
    assert found(server_url, queue.name, within="queue ") == []
    raw.delete(queue.keys.job(ended.id))
    raw.zrem(queue.keys.completed, ended.id)
    assert raw.exists(queue.keys.steps(ended.id))
    assert found(server_url, queue.name, within="queue ") == []
    queue.obliterate(force=True)
    assert not raw.exists(queue.keys.steps(ended.id))


def test_a_policy_that_throws_jobs_away_is_found_and_mended(own: tuple[redis.Redis, str]) -> None:
    raw, url = own
    raw.config_set("maxmemory-policy", "allkeys-lru")
    finding = one(url, within="maxmemory-policy")
    assert finding.severity is Severity.PROBLEM
    assert finding.fix is not None
    with_connection = run_checks(url, [])
    for each in with_connection:
        if each.fix is not None and "maxmemory-policy" in each.what:
            assert "until the server restarts" in each.fix()
    assert raw.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert found(url, within="maxmemory-policy") == []


def test_a_server_that_is_nearly_full_is_found(own: tuple[redis.Redis, str]) -> None:
    raw, url = own
    raw.config_set("maxmemory", int(raw.info("memory")["used_memory"] * 1.02))
    assert one(url, within="% of maxmemory").severity is Severity.PROBLEM


def test_a_server_without_append_only_file_is_found(own: tuple[redis.Redis, str]) -> None:
    raw, url = own
    raw.config_set("appendonly", "no")
    assert one(url, within="append-only").severity is Severity.PROBLEM


def test_a_snapshot_that_failed_is_found(own: tuple[redis.Redis, str], tmp_path: Path) -> None:
    raw, url = own
    if os.getuid() == 0:  # root may write anywhere, but not over a directory
        (tmp_path / "dump.rdb").mkdir()
    else:
        tmp_path.chmod(0o500)
    raw.bgsave()
    wait_until_sync(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot to fail")
    tmp_path.chmod(0o700)
    assert one(url, within="rdb_last_bgsave_status").severity is Severity.PROBLEM


def test_missing_libraries_are_found_and_loaded(own: tuple[redis.Redis, str]) -> None:
    raw, url = own
    raw.function_flush()
    assert len(found(url, within="function library")) == 2
    for finding in run_checks(url, []):
        if finding.fix is not None and "glidemq" in finding.what:
            assert finding.fix() == "loaded glidemq"
    assert found(url, within="function library") == []


def test_what_a_user_may_not_do_is_told_by_the_rule(own: tuple[redis.Redis, str], tmp_path: Path) -> None:
    raw, _ = own
    raw.execute_command("ACL", "SETUSER", "poor", "on", ">pw", "~glide:*", "+@all", "-info", "-time", "-del")  # type: ignore[no-untyped-call]
    url = f"unix://poor:pw@{tmp_path / 'own.sock'}"
    rules = [finding.action.split("<user> ")[1].split(",")[0] for finding in found(url, within="lacks the permission")]
    assert rules == ["+info", "+time", "+@write"]
    assert all("pw" not in f"{finding.where}{finding.what}" for finding in found(url))


def test_a_replica_is_no_place_for_jobs(tmp_path: Path) -> None:
    with Nodes(tmp_path) as nodes:
        primary = nodes.start()
        replica = nodes.start_replica(primary)
        Connection.open(f"redis://127.0.0.1:{primary.port}").close()
        assert one(f"redis://127.0.0.1:{replica.port}", within="replica").what == "This is a replica"
        assert found(f"redis://127.0.0.1:{primary.port}", within="replica") == []


def test_the_embedded_server_needs_no_replica(server_url: str) -> None:
    with Connection.open(server_url) as connection:
        alone = {"role": "master", "connected_slaves": "0"}
        assert list(replication(Server(parse_url("embedded:///nowhere"), connection, alone))) == []
        assert len(list(replication(Server(parse_url("redis://away"), connection, alone)))) == 1


def test_a_cluster_that_lost_slots_is_found(tmp_path: Path) -> None:
    with Nodes(tmp_path) as nodes:
        cluster = nodes.start_cluster(3)
        assert found(cluster.url, within="slots") == []
        first = cluster.nodes[0]
        first.ask("CLUSTER", "DELSLOTS", 0)
        findings = found(f"redis://127.0.0.1:{first.port}", within="16,384")
        assert [finding.severity for finding in findings] == [Severity.PROBLEM]


def test_a_clock_that_differs_is_found(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration_queue.doctor import server
    from orchestration_queue.server.clock import now_ms

    monkeypatch.setattr(server, "now_ms", lambda: now_ms() - 3_600_000)
    told = re.fullmatch(
        r"The server's clock is (\d+\.\d) s ahead of this machine's", one(server_url, within="clock").what
    )
    assert told
    assert float(told[1]) == pytest.approx(3600, abs=60), "less half of an exchange"


def test_a_server_far_away_is_found(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration_queue.doctor import server

    monkeypatch.setattr(server, "_SLOW_EXCHANGE_MS", 0)
    assert one(server_url, within="An exchange").severity is Severity.HINT


def test_jobs_that_nobody_takes_are_found(queue: Queue, server_url: str) -> None:
    queue.add("a")
    finding = one(server_url, queue.name, within="no worker serves it")
    assert finding.severity is Severity.PROBLEM
    assert queue.name in finding.action


def test_dead_letters_wait_for_no_worker(queue: Queue, server_url: str) -> None:
    queue.configure(dead_letter_queue=f"{queue.name}-dead")
    queue.add("a", None, {"attempts": 1})
    (taken,) = queue.take()
    taken.fail("as told")
    with Queue(f"{queue.name}-dead", url=server_url) as letters:
        assert letters.counts().waiting == 1
        found = [(each.where, each.what) for each in run_checks(server_url)]
        assert not [what for where, what in found if where == f"queue {letters.name}"]
        letters.obliterate()


async def test_a_worker_that_does_not_keep_up_is_told(
    queue: Queue, server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestration_queue.doctor import queue as checks

    monkeypatch.setattr(checks, "_LATE", timedelta(0))
    worker = _Stuck(queue, server_url)
    async with worker:
        queue.add_bulk([NewJob("a"), NewJob("b")])
        await wait_until(lambda: queue.counts().active == 1 and bool(queue.workers()), "a job to run")
        assert one(server_url, queue.name, within="has been ready since").severity is Severity.HINT


async def test_the_dead_among_the_consumers_are_found_and_forgotten(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    async with _Stuck(queue, server_url) as worker:
        queue.add("a")
        await wait_until(lambda: queue.counts().active == 1 and bool(queue.workers()), "a job to run")
        assert found(server_url, queue.name, within="not alive") == []
        raw.delete(queue.keys.worker(worker.id))
        holding = one(server_url, queue.name, within="holds 1 job, and is not alive")
        assert (holding.severity, holding.fix) == (Severity.PROBLEM, None)
    raw.xgroup_createconsumer(queue.keys.stream, "workers", "long-gone")
    for finding in run_checks(server_url, [queue.name]):
        if "long-gone" in finding.what:
            assert finding.fix is not None
            assert finding.fix() == "removed consumer long-gone"
    assert found(server_url, queue.name, within="long-gone") == []


def test_a_job_in_no_list_is_found(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    lost, kept, delayed = queue.add("a"), queue.add("b"), queue.add("c")
    raw.hset(queue.keys.job(delayed.id), "state", "delayed")
    entries: list[Any] = list(raw.xrange(queue.keys.stream) or ())
    raw.xdel(queue.keys.stream, *[entry_id for entry_id, fields in entries if fields["jobId"] != kept.id])
    findings = found(server_url, queue.name, within="is in no list")
    assert {finding.what.split(" has")[0] for finding in findings} == {f"Job {lost.id}", f"Job {delayed.id}"}


def test_lists_that_are_too_long_are_not_read(queue: Queue, server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration_queue.doctor import survey

    monkeypatch.setattr(survey, "MOST_LISTED", 1)
    queue.add_bulk([NewJob("a"), NewJob("b")])
    assert one(server_url, queue.name, within="too long").severity is Severity.HINT


def repair(url: str, queue: Queue, within: str) -> str:
    """Repair the only such finding."""
    finding = one(url, queue.name, within=within)
    assert finding.severity is Severity.PROBLEM
    (said,) = [
        each.fix() for each in run_checks(url, [queue.name]) if each.what == finding.what and each.fix is not None
    ]
    assert found(url, queue.name, within=within) == []
    return said


async def test_a_job_in_no_list_is_put_back_and_runs_once(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    ready, urgent = queue.add("a"), queue.add("b", options=JobOptions(priority=3))
    raw.delete(queue.keys.stream, queue.keys.scheduled)
    assert repair(server_url, queue, f"Job {ready.id} has state waiting") == f"job {ready.id} is due now"
    assert repair(server_url, queue, f"Job {urgent.id} has state prior") == f"job {urgent.id} is due now"
    ran = await _ran(queue, server_url, 2)
    assert sorted(ran) == [ready.id, urgent.id]
    assert {queue.counts().completed, len(ran)} == {2}


async def test_a_job_that_waits_in_its_share_is_left_there_and_put_back_when_it_is_lost(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    jobs = [queue.add("a", options=JobOptions(share="s")) for _ in range(9)]
    assert found(server_url, queue.name, within="is in no list") == []
    raw.delete(queue.keys.share("s"))
    assert repair(server_url, queue, f"Job {jobs[-1].id} has state waiting") == f"job {jobs[-1].id} is due now"
    assert sorted(await _ran(queue, server_url, 9)) == sorted(job.id for job in jobs)


async def test_a_job_that_is_taken_in_that_moment_is_left_alone(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    job = queue.add("a")
    entries: Any = raw.xrange(queue.keys.stream)
    raw.xdel(queue.keys.stream, entries[0][0])
    with closing(run_checks(server_url, [queue.name])) as findings:
        fix = next(each.fix for each in findings if f"Job {job.id} " in each.what)
        assert fix is not None
        raw.xadd(queue.keys.stream, entries[0][1])
        assert fix() == f"job {job.id} has moved on by itself"
        async with _Stuck(queue, server_url):
            await wait_until(lambda: queue.counts().active == 1, "the job to be taken")
            assert fix() == f"job {job.id} has moved on by itself"
        assert raw.zcard(queue.keys.scheduled) == 0


def test_a_job_that_another_librarys_worker_may_have_is_left_alone(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    job = queue.add("a", options=JobOptions(lifo=True))
    raw.rpop(queue.keys.lifo)
    raw.incr(queue.keys.list_active)  # it has popped the job, and not started it yet
    told = Oq(server_url)("doctor", queue.name, "--fix", "--yes")
    assert told.exit_code == 1
    assert f"Job {job.id} was not put back: it may be held by a worker of another library" in told.stderr
    raw.set(queue.keys.list_active, 0)
    assert repair(server_url, queue, f"Job {job.id} has state") == f"job {job.id} is due now"


def test_messages_of_a_broadcast_do_not_wait_for_a_worker(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    with Broadcast(queue_name, url=server_url) as news:
        news.subscribe("reader")
        news.publish("orders.created")
    assert found(server_url, queue_name, within="ready") == []


def test_messages_of_a_broadcast_are_not_put_back(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    queue.add("a")
    raw.xtrim(queue.keys.stream, maxlen=0)
    raw.xgroup_create(queue.keys.stream, "subscription")
    assert one(server_url, queue.name, within="is in no list").fix is None


@pytest.mark.parametrize(("ended", "then"), [("completed", "waiting"), ("failed", "failed")])
def test_a_parent_that_nobody_told_is_told(
    queue: Queue, server_url: str, raw: redis.Redis, ended: str, then: str
) -> None:
    parent, child = queue.add("parent"), queue.add("child")
    raw.xtrim(queue.keys.stream, maxlen=0)
    raw.hset(queue.keys.job(parent.id), "state", "waiting-children")
    raw.sadd(queue.keys.deps(parent.id), queue.keys.member(child.id))
    raw.hset(queue.keys.job(child.id), "state", "active")
    assert found(server_url, queue.name, within="waits for others") == []
    raw.hset(queue.keys.job(child.id), "state", ended)
    assert one(server_url, queue.name, within="waits for others").what.startswith(f"Job {parent.id} ")
    assert repair(server_url, queue, "waits for others") == f"notified job {parent.id}, which is {then}"


ORDERED = JobOptions(ordering=Ordering(key="k"))


async def test_a_group_that_counts_a_job_that_is_gone_goes_on(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    queue.add_bulk([NewJob("a", options=ORDERED) for _ in range(3)])
    with HandWorker(server_url, queue.name) as hand:
        gone = hand.take()
    assert found(server_url, queue.name, within="ordering group") == []
    await _ran(queue, server_url, 0, until=lambda: raw.zcard(f"{queue.keys.base}:groupq:k") == 2)
    assert found(server_url, queue.name, within="ordering group") == [], "one is active"
    raw.delete(queue.keys.job(gone.id))
    within = "ordering group 'k' (2) wait for 1 active job that no longer exist"
    assert repair(server_url, queue, within) == "ready now: 1 job"
    assert await _ran(queue, server_url, 2) == ["2", "3"]


async def test_a_group_that_waits_for_the_turn_of_a_job_that_is_gone_goes_on(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    queue.add_bulk([NewJob("a", options=ORDERED) for _ in range(3)])
    raw.delete(queue.keys.job("1"))
    await _ran(queue, server_url, 0, until=lambda: raw.zcard(f"{queue.keys.base}:groupq:k") == 2)
    assert repair(server_url, queue, "wait for the job with number 1, which no longer exists") == "ready now: 1 job"
    assert await _ran(queue, server_url, 2) == ["2", "3"]


async def _ran(queue: Queue, url: str, count: int, until: Callable[[], object] = lambda: True) -> list[str]:
    """The ids of the jobs that a worker ran, in their order."""
    ran: list[str] = []
    options = WorkerOptions(promotion_interval=timedelta(milliseconds=50), run_schedulers=False)
    worker = Worker(queue.name, lambda job: ran.append(job.id), url=url, options=options)
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: len(ran) >= count and until() and worker.is_listening, "the jobs to run")
    worker.stop()
    await running
    return ran


def test_dead_letters_that_nobody_took_are_found_and_sent_again(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    queue.add("import")
    dead = f"{queue.name}-dead"
    letter = json.dumps([dead, "dead.x.1.1", "import", '{"originalQueue":"x"}'])
    raw.zadd(queue.keys.outbox, {letter: now_ms() - 61_000, letter.replace("x.1", "x.2"): now_ms()})
    raw.set(f"glide:{{{dead}}}:stream", "nonsense")
    unsent = "1 dead letter could not be added"
    with pytest.raises(StateError, match=rf"^Queue {dead} did not take all of them \(.*; repair it and try again\.$"):
        repair(server_url, queue, unsent)
    raw.delete(f"glide:{{{dead}}}:stream")
    raw.zadd(queue.keys.outbox, {letter: now_ms() - 61_000})  # its turn had become the last
    assert repair(server_url, queue, unsent) == "added 1 dead letter"
    assert raw.hget(f"glide:{{{dead}}}:job:dead.x.1.1", "name") == "import"
    assert raw.zcard(queue.keys.outbox) == 1


def test_a_job_that_did_not_arrive_where_it_was_moved_is_found_and_arrives(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    queue.add("import", options=JobOptions(job_id="a"))
    target = QueueKeys(f"{queue.name}-other")
    with Connection.open(server_url) as server:
        server.pipeline(next(move(queue.keys, target, "a", now_ms() - 61_000)))
    raw.set(target.stream, "nonsense")
    lost = "1 job on the move between queues did not arrive, such as a"
    with pytest.raises(StateError, match="1 job did not arrive"):
        repair(server_url, queue, lost)
    raw.delete(target.stream)
    raw.zadd(target.moving, {"a": now_ms() - 61_000})  # there it is now, and its turn had become the last
    with Queue(target.queue, url=server_url) as other:
        assert repair(server_url, other, lost) == "moved 1 job"
    assert raw.xlen(target.stream) == 1  # a record alone would never run
    assert not raw.exists(queue.keys.job("a"))


def test_a_key_that_was_set_aside_is_found(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    raw.set(queue.keys.tags, "another's")
    queue.add("import", options=JobOptions(tags=["red"]))
    finding = one(server_url, queue.name, within="of another type than expected")
    assert finding.what.endswith(f"set aside: {queue.keys.named('damaged:tags')}")


def test_what_grows_without_bound_is_found(
    queue: Queue, server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestration_queue.doctor import queue as checks

    monkeypatch.setattr(checks, "_MANY_FINISHED", 1)
    raw.zadd(queue.keys.completed, {"1": 1, "2": 2})
    raw.zadd(queue.keys.failed, {"3": 1, "4": 2})
    for _ in range(10_001):
        raw.xadd(queue.keys.events, {"event": "x", "jobId": "1"})
    seen = [finding.what for finding in found(server_url, queue.name, within="queue ")]
    assert seen == [
        "It keeps 2 completed jobs",
        "It keeps 2 failed jobs",
        "Its events stream has 10,001 entries",
    ]


def test_a_reader_of_events_that_is_behind_or_lost_some_is_found(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    queue.add("first")
    with Connection.open(server_url) as connection:
        Registration(connection, "slow").start({queue.keys: "$"})
    queue.add_bulk([NewJob("a") for _ in range(10_100)])
    assert one(server_url, queue.name, within="events stream").why == "reader 'slow' is behind"
    raw.xtrim(queue.keys.events, maxlen=1000, approximate=False)
    lost = one(server_url, queue.name, within="were dropped")
    assert (lost.severity, lost.what) == (
        Severity.PROBLEM,
        "Events were dropped before 1 reader read them: slow",
    )


def test_a_queue_that_cannot_be_read_is_told_and_the_others_go_on(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    raw.set(queue.keys.stream, "no stream")
    other = f"{queue.name}-other"
    with Queue(other, url=server_url) as second:
        second.add("a")
    findings = found(server_url, queue.name, other, within="queue ")
    assert findings[0].what.startswith("It cannot be checked: ")
    assert findings[1].where == f"queue {other}"


def test_an_instance_of_dagster_that_does_not_open_is_found(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dagster", reason="an extra of the package")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("run_monitoring: {enabled: true}\n")
    assert found(server_url, within="Dagster") == []
    (tmp_path / "dagster.yaml").write_text("storage: {nothing: {}}\n")
    assert one(server_url, within="does not open").severity is Severity.PROBLEM


def test_a_java_that_is_missing_is_found(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="an extra of the package")
    assert found(server_url, within="Java") == []
    from orchestration_queue.spark import java

    monkeypatch.setattr(java, "_binaries", list)
    monkeypatch.setattr(java, "BUNDLE", "no_such_package")
    assert one(server_url, within="Java").severity is Severity.PROBLEM


def test_the_command_says_what_it_found_and_what_it_did(own: tuple[redis.Redis, str], queue_name: str) -> None:
    raw, url = own
    oq = Oq(url)
    queue = Queue(queue_name, url=url)
    queue.add("a")
    said = oq("doctor", queue.name)
    assert said.exit_code == 1
    assert "Why it matters: they do not start." in said.stdout
    queue.drain()
    raw.xgroup_create(queue.keys.stream, "workers", mkstream=True)
    raw.xgroup_createconsumer(queue.keys.stream, "workers", "long-gone")
    (told,) = [each for each in oq.json("doctor", queue.name) if "long-gone" in each["what"]]
    assert (told["severity"], told["can_be_fixed"], told["fixed"]) == ("hint", True, None)
    assert "Done: removed consumer long-gone." in oq("doctor", queue.name, "--fix", "--yes").stdout
    assert "long-gone" not in oq("doctor", queue.name).stdout
    queue.close()


class _Stuck:
    """A worker with one place, whose job ends with the block."""

    def __init__(self, queue: Queue, url: str) -> None:
        self._done = False
        self._worker = Worker(queue.name, self._wait, url=url, options=WorkerOptions(run_schedulers=False))

    def _wait(self, job: ActiveJob) -> None:
        wait_until_sync(lambda: self._done or job.should_stop, "the test to end")

    async def __aenter__(self) -> Worker:
        self._running = asyncio.ensure_future(self._worker.run())
        return self._worker

    async def __aexit__(self, *_: Any) -> None:
        self._done = True
        self._worker.stop()
        await self._running


def test_nothing_is_written(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    queue.add("a")
    before = {key: raw.dump(key) for key in raw.scan_iter()}
    list(run_checks(server_url, [queue.name]))
    assert {key: raw.dump(key) for key in raw.scan_iter()} == before


def test_alert_rules_that_nobody_hears_of_are_found(own: tuple[redis.Redis, str]) -> None:
    raw, url = own

    def told() -> list[str]:
        return [finding.what for finding in run_checks(url) if finding.where == "alert rules"]

    with Alerts(url=url) as alerts:
        assert told() == []
        alerts.set("mail", {"kind": "backlog", "to": ["ops", "chat"]})
        assert told() == ["No process evaluates rules, and 1 rule waits for one"]
        alerts.set("etl", {"kind": "backlog", "to": ["ops"]})
        assert told() == ["No process evaluates rules, and 2 rules wait for one"]
        raw.set(
            "glide:{:alerts}:leader", json.dumps(asdict(Evaluator("a-host", 1, ("ops",), 1, "Out of luck."))), ex=60
        )
        unsent = UnsentMessage("1", "ops", {"rule": "etl"}, attempts=1, error="it answered 500")
        raw.hset("glide:{:alerts}:outbox", "1", json.dumps(asdict(unsent)))
        raw.zadd("glide:{:alerts}:due", {unsent.member: 0})
        assert told() == [
            "The last evaluation on a-host failed: Out of luck",
            "Rule mail names chat, which a-host does not know",
            "Messages to ops cannot be sent: it answered 500",
        ]
        raw.set("glide:{:alerts}:rules", "damaged")
        (found,) = told()
        assert found.startswith("It cannot be checked: ")


def test_all_queues_are_checked_with_two_scans_of_all_keys(queue: Queue, server_url: str, raw: redis.Redis) -> None:
    names = [f"{queue.name}-{number}" for number in range(20)]
    for name in names:
        with Queue(name, url=server_url) as each:
            each.add("a")
    keys = raw.dbsize()
    before = raw.info("commandstats")["cmdstat_scan"]["calls"]
    found = {finding.where for finding in run_checks(server_url)}
    assert {f"queue {name}" for name in names} <= found
    scans = raw.info("commandstats")["cmdstat_scan"]["calls"] - before
    assert scans <= 4 * (keys // 1000 + 1) + 20, "other wires' queues are found by scans, too"
    for name in names:
        with Queue(name, url=server_url) as each:
            each.obliterate()
