"""Each property of a job's record, in every view: a new one fails here until each shows it, or says why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import pytest
import redis
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.client import Queue
from orchestration_queue.http import create_app
from orchestration_queue.http.job_schema import job_schema
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import SHOWN, JobRecord
from orchestration_queue.spark.datasource.columns import COLUMNS
from tests.http.conftest import called

FIELDS: Final[dict[Any, Any]] = {
    "id": "7",
    "name": "name-value",
    "state": "failed",
    "data": '{"d":"data-value"}',
    "opts": '{"headers":{"h":"header-value"},"pools":{"pool-value":2},"share":"share-value","priority":1234}',
    "timestamp": "1800000001000",
    "processedOn": "1800000002000",
    "finishedOn": "1800000003000",
    "attemptsMade": "5",
    "maxAttempts": "8",
    "stalledCount": "6",
    "fallbackIndex": "0",
    "priority": "1234",
    "failedReason": "reason-value",
    "failureKind": "kind-value",
    "failureAttempt": "5",
    "traceback": "traceback-value",
    "history": '[{"event":"failed","attempt":1,"kind":"k","reason":"history-value"}]',
    "tags": '["tag-value"]',
    "share": "share-value",
    "groupKey": "group-value",
    "tracked": "1800000003000",
    "progress": '"progress-value"',
    "returnvalue": '"result-value"',
    "parentId": "parent-value",
    "parentQueue": "queue-value",
}
"""A job that has everything."""

WORDS: Final = {
    "id": "7",
    "name": "name-value",
    "state": "failed",
    "data": "data-value",
    "options": "share-value",
    "added_at": "2027-01-15 08:00:01",
    "started_at": "2027-01-15 08:00:02",
    "finished_at": "2027-01-15 08:00:03",
    "seconds": "1",
    "attempts_made": "5",
    "max_attempts": "8",
    "stalled_count": "6",
    "priority": "1234",
    "failed_reason": "reason-value",
    "failure_kind": "kind-value",
    "traceback": "traceback-value",
    "history": "history-value",
    "tags": "tag-value",
    "pools": "pool-value",
    "share": "share-value",
    "group": "group-value",
    "headers": "header-value",
    "tracked": "tracked",
    "progress": "progress-value",
    "result": "result-value",
    "parent_id": "parent-value",
    "parent_queue": "queue-value",
}
"""By what is shown: what a text has of it."""

NOT_SHOWN: Final = {
    "attempts": "follows from attempts_made and the state",
    "is_finished": "follows from the state",
    "latest_start": "follows from started_at and history",
    "fallback_index": "a position in the fallbacks of options",
    "problem": "doctor reports damaged records",
}
"""Properties that no view shows, and why."""

PROXY: Final = {
    "id": "id", "name": "name", "state": "state", "data": "data", "options": "opts", "added_at": "timestamp",
    "started_at": "processedOn", "finished_at": "finishedOn", "attempts_made": "attemptsMade",
    "failed_reason": "failedReason", "progress": "progress", "result": "returnvalue", "parent_id": "parentId",
    "parent_queue": "parentQueue",
}  # fmt: skip
"""The members of glide-mq's proxy, which are law; the own routes show the rest."""

NO_COLUMN: Final = {
    "seconds": "the difference of two columns",
    "stalled_count": "in no record but of jobs whose workers were lost",
    "traceback": "long, and read for single jobs",
    "history": "long, and read for single jobs",
    "pools": "in options",
    "headers": "in options",
    "progress": "of running jobs, which a batch does not follow",
}
"""What the data source has no column for, and why."""

RENAMED_COLUMNS: Final = {"tracked": "tracked_at"}

OTHER_COLUMNS: Final = {"steps": "a count; the views show the steps themselves, which are no field of the record"}
"""What the data source has a column for and the views do not show as a field, and why."""


@pytest.fixture
def keys(queue_name: str, server_url: str, raw: redis.Redis) -> Iterator[QueueKeys]:
    """A queue with that one job."""
    keys = QueueKeys(queue_name)
    with Queue(queue_name, url=server_url) as queue:
        queue.add("work", None, JobOptions(job_id="7"))
    with Queue("queue-value", url=server_url) as queue:
        queue.add("parent", None, JobOptions(job_id="parent-value"))
    raw.hset(keys.job("7"), mapping=FIELDS)
    raw.zadd(keys.failed, {"7": 1800000003000})
    yield keys
    raw.flushall()


def test_each_property_is_shown_or_says_why_not() -> None:
    kinds = (property, cached_property)
    properties = {name for name, kind in vars(JobRecord).items() if isinstance(kind, kinds) and name[0] != "_"}
    assert properties | {"id"} == set(SHOWN.values()) | set(NOT_SHOWN)
    assert set(SHOWN) == set(WORDS)
    everything = JobRecord("7", FIELDS).describe()
    assert not [name for name, value in everything.items() if value in (None, 0, "", (), {})], "samples without a value"


def oq(server_url: str, *words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"OQ_URL": server_url, "TZ": "UTC", "COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_line_shows_each(keys: QueueKeys, server_url: str) -> None:
    shown = oq(server_url, "job", "show", keys.queue, "7")
    assert [name for name, words in WORDS.items() if words not in shown] == []
    assert json.loads(oq(server_url, "job", "show", keys.queue, "7", "--json")).keys() - {"queue", "steps", "logs"} == (
        SHOWN.keys()
    )


async def test_the_console_shows_each(keys: QueueKeys, server_url: str) -> None:
    async with called(create_app(server_url, console=True)) as api:
        page = (await api.get(f"/ui/queues/{keys.queue}/jobs/7")).text
    assert [name for name, words in WORDS.items() if words not in page.replace("T08", " 08")] == []


async def test_http_shows_each_as_its_schema_says(keys: QueueKeys, server_url: str) -> None:
    async with called(create_app(server_url)) as api:
        one: dict[str, Any] = (await api.get(f"/v1/queues/{keys.queue}/jobs/7")).json()
        (found,) = (await api.get(f"/v1/queues/{keys.queue}/search?state=failed")).json()["jobs"]
        proxied = (await api.get(f"/queues/{keys.queue}/jobs/7")).json()
        document = (await api.get("/openapi.json")).json()
    assert one.keys() == {"queue", *SHOWN}
    assert [name for name in WORDS if name.endswith("_at") and not one[name]] == []
    assert found == {name: value for name, value in one.items() if name not in ("traceback", "history")}
    assert proxied.keys() == set(PROXY.values())
    assert document["components"]["schemas"]["Job"] == job_schema()
    kinds = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
    for name, schema in job_schema()["properties"].items():
        kind = schema.get("type", [])
        assert not kind or isinstance(one[name], kinds[kind if isinstance(kind, str) else kind[0]]), name


def test_the_data_source_has_a_column_of_each() -> None:
    columns = COLUMNS["jobs"]
    missing = {name for name in SHOWN if RENAMED_COLUMNS.get(name, name) not in columns}
    assert missing == set(NO_COLUMN)
    shown = {RENAMED_COLUMNS.get(name, name) for name in SHOWN.keys() - missing}
    assert {columns[name].field for name in shown} <= FIELDS.keys()
    assert columns.keys() == shown | OTHER_COLUMNS.keys()
