"""A pipeline that failed three times for three reasons is understood from its worker's log, or `oq job show`, alone."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue._text import UNSAFE
from orchestration_queue.client import FlowProducer, Queue
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.wires.qless import QlessClient
from orchestration_queue.worker.observability import JsonFormatter, about, bound_to
from tests.integration.test_cli import Oq
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

PIPELINE = '''
import logging

from orchestration_queue import Failed

log = logging.getLogger("pipeline")


def handle(job):
    """Extract well; load fails in another way each time."""
    log.info("working on part %s", job.data["part"])
    if job.name == "extract":
        return "rows"
    job.log(f"attempt {job.attempt} connects")
    if job.attempt == 1:
        raise ConnectionResetError("warehouse went away")
    if job.attempt == 2:
        raise Failed("bucket is read-only", kind="upload error")
    return {}["missing column"]
'''
HEADERS = {"dagster.run_id": "run-7", "dagster.step_key": "load", "dagster.job_name": "nightly", "other": "x"}


@pytest.fixture
def worker_log(tmp_path: Path, server_url: str, queue_name: str) -> Iterator[Path]:
    """What `oq worker --log-format json` writes while the test runs."""
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    path = tmp_path / "worker.log"
    command = [str(Path(sys.executable).with_name("oq")), "worker", "pipeline.py:handle", "--queue", queue_name]
    options = ["--log-format", "json", "--log-level", "debug", "--promotion-interval", "0.1"]
    with path.open("w") as log:
        env = {**os.environ, "OQ_URL": server_url}
        running = subprocess.Popen([*command, *options], cwd=tmp_path, stderr=log, env=env)
        try:
            yield path
        finally:
            running.terminate()
            running.wait(60)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the records; every line is one, also those of other loggers."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_three_failures_are_understood_from_the_log_alone(
    worker_log: Path, raw: redis.Redis, server_url: str, queue_name: str
) -> None:
    options = JobOptions(attempts=3, backoff=Backoff(type="fixed", delay=0), headers=HEADERS)
    nodes = [Node("extract", data={"part": 1}), Node("load", data={"part": 2}, deps=["extract"], options=options)]
    with FlowProducer(url=server_url) as flows, Queue(queue_name, url=server_url) as queue:
        flows.submit(Dag("nightly", nodes, queue=queue_name), flow_id="n1")
        wait_until_sync(lambda: raw.zcard(queue.keys.failed) == 1, "the pipeline to fail", 120)
        wait_until_sync(lambda: "attempt 3" in worker_log.read_text().lower(), "the last line")
        failed = [line for line in _lines(worker_log) if "kind" in line]
        _check_failures(failed, queue_name)
        (done,) = [line for line in _lines(worker_log) if line.get("outcome") == "completed"]
        assert (done["job"], done["task"], done["attempt"], done["level"]) == ("n1.extract", "extract", 1, "debug")
        assert done["seconds"] >= 0
        spoken = [line for line in _lines(worker_log) if line["logger"] == "pipeline"]
        assert [(line["job"], line["attempt"], line["message"]) for line in spoken] == [
            ("n1.extract", 1, "working on part 1"),
            *[("n1.load", attempt, "working on part 2") for attempt in (1, 2, 3)],
        ]
        shown = Oq(server_url)("job", "show", queue_name, "n1.load").stdout
    for words in (
        *("attempt 1 failed", "[ConnectionResetError] ConnectionResetError: warehouse went away"),
        *("attempt 2 failed", "bucket is read-only", "upload error"),
        *("attempt 3 failed", "[KeyError] KeyError: 'missing column'"),
        *("log: attempt 2 connects", "in handle", "3 of 3"),
    ):
        assert words in shown


def _check_failures(failed: list[dict[str, Any]], queue: str) -> None:
    assert [(line["attempt"], line["kind"], line["reason"]) for line in failed] == [
        (1, "ConnectionResetError", "ConnectionResetError: warehouse went away"),
        (2, "upload error", "bucket is read-only"),
        (3, "KeyError", "KeyError: 'missing column'"),
    ]
    for line in failed:
        assert {name: line[name] for name in ("queue", "job", "task", "flow", "level")} == {
            "queue": queue,
            "job": "n1.load",
            "task": "load",
            "flow": "n1",
            "level": "warning",
        }
        assert (line["dagster_run_id"], line["dagster_step"], line["dagster_job"]) == ("run-7", "load", "nightly")
        assert "pipeline.py" in line["traceback"]
        assert "Traceback" not in line["message"]


def _format(**options: Any) -> dict[str, Any]:
    fields = {"name": "x", "levelname": "INFO", "msg": "said %s", "args": ("a\nb",), "created": 0, **options}
    line = JsonFormatter().format(logging.makeLogRecord(fields))
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line)
    return read


async def test_records_are_about_the_job_of_their_context() -> None:
    job = JobRecord("7", {"name": "load", "attemptsMade": "2", "opts": '{"headers":5}'})

    async def speak(record: JobRecord) -> dict[str, Any]:
        with bound_to("q", record):
            await asyncio.sleep(0)
            return _format()

    one, two = await asyncio.gather(speak(job), speak(JobRecord("8", {})))
    assert (one["queue"], one["job"], one["task"], one["attempt"]) == ("q", "7", "load", 3)
    assert (two["job"], two["task"], two["attempt"]) == ("8", "", 1)
    plain = _format()
    assert plain == {"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "logger": "x", "message": "said a\nb"}
    assert _format(**about("q", job, outcome="completed"))["outcome"] == "completed"


def test_an_exception_is_a_field_of_its_record() -> None:
    try:
        raise ValueError("no good")
    except ValueError:
        line = _format(exc_info=sys.exc_info())
    assert "ValueError: no good" in line["traceback"]


FORGED = "2026-01-01 00:00:00,000 ERROR orchestration_queue.worker: forged"
HOSTILE = f"a\x1b[2J\x9b31m\r\n{FORGED}\u2028{FORGED}\u202eb\x85"
HANDLER = f"""
def handle(job):
    raise ValueError({HOSTILE!r})
"""
LINE = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ (DEBUG|INFO|WARNING|ERROR) [\w.]+: ")


@pytest.mark.parametrize("kind", ["worker", "qless"])
def test_text_of_jobs_forges_no_line_of_a_plain_log(
    kind: str, tmp_path: Path, server_url: str, queue_name: str
) -> None:
    (tmp_path / "hostile.py").write_text(HANDLER)
    commands = {
        "worker": ("worker", "hostile:handle", "--queue", queue_name),
        "qless": ("qless", "worker", queue_name, "--handler", "hostile:handle"),
    }
    log = tmp_path / "log"
    with running_process([OQ, *commands[kind]], server_url, log, tmp_path) as process:
        if kind == "worker":
            with Queue(queue_name, url=server_url) as queue:
                queue.add(HOSTILE, options=JobOptions(attempts=1))
        else:
            with QlessClient(url=server_url) as qless:
                qless.put(queue_name, HOSTILE, jid=HOSTILE)
        wait_until_sync(lambda: "ValueError" in log.read_text(), "the failure to be logged")
        process.terminate()
        assert process.wait(60) == 0
    text = log.read_bytes().decode()
    assert not UNSAFE.search(text.replace("\n", "").replace("\t", ""))
    lines = text.removesuffix("\n").split("\n")
    assert not [line for line in lines if line.startswith(FORGED)]
    if kind == "worker":
        assert all(LINE.match(line) or line.startswith("  ") for line in lines), "a traceback keeps its lines"
        assert "  Traceback (most recent call last):" in lines
