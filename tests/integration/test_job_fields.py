"""Each option of a job, wherever options are written, sent, read and shown: a new one fails here until each has it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

import pytest
import redis
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.client import Queue
from orchestration_queue.http import create_app
from orchestration_queue.http.job_options import OPTIONS
from orchestration_queue.options import (
    Backoff,
    Deduplication,
    Fallback,
    JobOptions,
    Ordering,
    Retention,
    placement_from_wire,
)
from orchestration_queue.protocol.record import JobRecord
from tests.http.conftest import called

LATER: Final = datetime.now(UTC) + timedelta(days=30)

SAMPLES: Final[dict[str, tuple[Any, list[str]]]] = {
    "job_id": ("mine", ["--job-id", "mine"]),
    "delay": (60, ["--delay", "60"]),
    "delay_until": (LATER, ["--at", LATER.isoformat()]),
    "priority": (3, ["--priority", "3"]),
    "lifo": (True, ["--lifo"]),
    "attempts": (4, ["--attempts", "4"]),
    "backoff": (Backoff(type="exponential", delay=2), ["--backoff", "exponential:2"]),
    "timeout": (30, ["--timeout", "30"]),
    "ttl": (90, ["--ttl", "90"]),
    "lease": (15, ["--lease", "15"]),
    "ordering": (Ordering(key="k"), ["--key", "k"]),
    "cost": (2.5, ["--cost", "2.5"]),
    "deduplication": (Deduplication(id="d"), ["--dedup", "d"]),
    "remove_on_complete": (Retention(count=5), ["--keep-completed", "5"]),
    "remove_on_fail": (Retention(count=6), ["--keep-failed", "6"]),
    "fallbacks": ((Fallback(model="small"),), ["--fallback", "small"]),
    "headers": ({"trace": "4bf9=2"}, ["--header", "trace=4bf9=2"]),
    "tags": (("tenant:acme",), ["--tag", "tenant:acme"]),
    "pools": ({"warehouse": 2}, ["--pool", "warehouse=2"]),
    "share": ("tenant-1", ["--share", "tenant-1"]),
}
"""By option: a value, and how `oq job add` takes it."""

OF_ONE_JOB: Final = {"job_id", "delay", "delay_until", "deduplication"}
"""What similar jobs do not take over."""
OF_EACH: Final = dict.fromkeys(("options", "_stored_options", "added_at"))
"""What differs between two jobs with the same options."""

EACH = pytest.mark.parametrize("field", SAMPLES)


def options(field: str) -> JobOptions:
    return JobOptions(**{field: SAMPLES[field][0]})


def test_each_option_has_a_case() -> None:
    assert set(SAMPLES) == set(JobOptions.model_fields)


def seen(record: JobRecord) -> dict[str, Any]:
    """All that the record says of its job."""
    kinds = (property, cached_property)
    return {name: getattr(record, name) for name, kind in vars(JobRecord).items() if isinstance(kind, kinds)}


@EACH
def test_an_added_job_says_what_it_says_when_it_is_read(field: str, queue_name: str, server_url: str, raw: Any) -> None:
    with Queue(queue_name, url=server_url) as queue:
        added = queue.add("work", {"n": 1}, options(field))
        read = queue.get(added.id)
    assert seen(added.record) == seen(read.record)
    beyond = read.record.fields.keys() - added.record.fields.keys()
    assert beyond <= {"orderingSeq", "tags", "entry"}, "fields that only the server writes"


@EACH
def test_the_command_line_takes_and_shows_it(field: str, queue_name: str, server_url: str, raw: redis.Redis) -> None:
    def oq(*arguments: str) -> Any:
        done = CliRunner().invoke(app, [*arguments, "--json"], env={"OQ_URL": server_url})
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    job_id = oq("job", "add", queue_name, "work", *SAMPLES[field][1])["id"]
    with Queue(queue_name, url=server_url) as queue:
        stored = queue.get(job_id).record.options
        other = queue.add("work", None, options(field).model_copy(update={"job_id": "other", "deduplication": None}))
        wanted = queue.get(other.id).record.options
    if field in OF_ONE_JOB:
        wanted |= options(field).wire() if field != "delay_until" else {}
    stored, wanted = ({**opts, "jobId": None, "delay": None} for opts in (stored, wanted))
    assert stored == wanted
    shown = oq("job", "show", queue_name, job_id)
    assert shown["options"] | {"jobId": None, "delay": None} == stored


@EACH
async def test_http_takes_it(field: str, queue_name: str, server_url: str, raw: redis.Redis) -> None:
    """Alone, in a bulk, and for a node of a flow."""
    if field == "delay_until":
        return
    sent = options(field).wire()
    assert sent.keys() <= OPTIONS.keys()
    async with called(create_app(server_url)) as api:
        path = f"/queues/{queue_name}/jobs"
        many = await api.post(f"{path}/bulk", json={"jobs": [{"name": "work", "opts": {"jobId": "1", **sent}}]})
        added = await api.post(path, json={"name": "work", "opts": sent | {"jobId": "2"}})
        node = {"name": "work", "queueName": queue_name, "data": None, "opts": sent}
        flow = await api.post("/flows", json={"dag": {"nodes": [node]}})
    ids = [many.json()["jobs"][0]["id"]]
    if field == "deduplication":
        assert added.json() == {"skipped": True}
    else:
        ids.append(added.json()["id"])
    if field not in OF_ONE_JOB:
        ids.append(flow.json()["jobs"][0]["id"])
    elif field == "job_id":
        assert "opts.jobId is not supported" in flow.text
    with Queue(queue_name, url=server_url) as queue:
        wanted = queue.get(queue.add("work", None, options(field).model_copy(update={"job_id": "w"})).id).record
        for record in (queue.get(job_id).record for job_id in ids):
            assert {**seen(record), **OF_EACH} == {**seen(wanted), **OF_EACH}
            assert {**record.options, "jobId": None} == {**wanted.options, "jobId": None}


@EACH
def test_similar_jobs_take_it_over(field: str) -> None:
    """Retried dead letters and jobs of a schedule that another client wrote."""
    if field == "delay_until":
        return
    one = options(field)
    taken = getattr(placement_from_wire(one.wire()), field)
    if field in OF_ONE_JOB:
        assert taken == JobOptions.model_fields[field].get_default()
    else:
        assert taken == getattr(one, field)
