"""What `oq doctor` finds of qless's queues, and repairs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.doctor import Finding, Severity, run_checks
from orchestration_queue.server import Connection
from orchestration_queue.wires.qless import QlessClient
from orchestration_queue.wires.qless.commands import LIBRARY
from orchestration_queue.wires.qless.doctor import SERVER_CHECKS, InspectedQless

LONG_AGO = time.time() - 100_000


@pytest.fixture
def qless(server: redis.Redis, server_url: str) -> Iterator[QlessClient]:
    with QlessClient(url=server_url, worker="me") as client:
        yield client


@pytest.fixture
def findings(server_url: str) -> Callable[[], list[Finding]]:
    """A function that returns what is found about qless."""
    return lambda: [finding for finding in run_checks(server_url) if finding.where.startswith("qless")]


def test_healthy_queues_have_no_findings(qless: QlessClient, findings: Callable[[], list[Finding]]) -> None:
    assert findings() == []
    qless.put("q", "K")
    qless.put("q", "K", delay=3600)
    qless.recur("q", "K", interval=60, offset=60)
    qless.pop("q")
    assert findings() == []


def test_queues_that_no_worker_asks_are_found(
    qless: QlessClient, server: redis.Redis, findings: Callable[[], list[Finding]]
) -> None:
    for jid in ("ready", "lost", "late"):
        qless.put("q", "K", jid=jid)
    server.zrem("ql:q:q-work", "lost", "late")
    server.zadd("ql:q:q-locks", {"lost": LONG_AGO})
    server.zadd("ql:q:q-scheduled", {"late": LONG_AGO})
    qless.recur("q", "K", interval=60, jid="often")
    server.zadd("ql:q:q-recur", {"often": LONG_AGO})
    found = [finding for finding in findings() if finding.where == "qless queue q"]
    assert {finding.severity for finding in found} == {Severity.PROBLEM}
    said = " ".join(finding.what for finding in found)
    for words in ("1 ready job,", "locks of 1 job expired", "1 scheduled job has", "1 recurring job has"):
        assert words in said
    qless.pause("q")
    (paused,) = [finding for finding in findings() if finding.where == "qless queue q"]
    assert (paused.severity, "It is paused" in paused.what) == (Severity.HINT, True)


def test_contradictions_are_repaired(qless: QlessClient, server: redis.Redis, server_url: str) -> None:
    qless.put("q", "K", jid="j")
    server.delete("ql:q:q-work")

    def doctor(*words: str) -> list[dict[str, object]]:
        result = CliRunner().invoke(app, ["doctor", *words, "--json"], env={"OQ_URL": server_url})
        found: list[dict[str, object]] = json.loads(result.stdout)
        return [finding for finding in found if finding["where"] == "qless"]

    (found,) = doctor()
    assert ("1 jobs in no queue" in str(found["what"]), found["can_be_fixed"]) == (True, True)
    (repaired,) = doctor("--fix", "--yes")
    assert repaired["fixed"] == "repaired 1 record"
    assert doctor() == []
    assert [job.jid for job in qless.peek("q")] == ["j"]


def test_nothing_is_loaded_to_compare_records(server: redis.Redis, server_url: str) -> None:
    server.zadd("ql:queues", {"q": 1})
    server.function_delete(LIBRARY.name)
    with Connection.open(server_url, libraries=()) as connection:
        found = [finding for check in SERVER_CHECKS for finding in check(InspectedQless(connection))]
    assert [(finding.severity, "oq qless check" in finding.action) for finding in found] == [(Severity.HINT, True)]
    assert server.function_list(LIBRARY.name) == []


def test_many_failed_jobs_are_a_hint(
    qless: QlessClient, server: redis.Redis, findings: Callable[[], list[Finding]]
) -> None:
    qless.put("q", "K", jid="j")
    (job,) = qless.pop("q")
    qless.fail(job, "broken", "no disk")
    server.rpush("ql:f:broken", *["j"] * 10_000)
    assert any("10,001 failed jobs" in finding.what for finding in findings())
