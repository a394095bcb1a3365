"""Spark's applications as jobs: what the worker's task gets, and what the task of Airflow shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from airflow.sdk.exceptions import TaskDeferred

from orchestration_queue import Queue, UsageError
from orchestration_queue.airflow.provider import QueueSparkSubmitOperator
from orchestration_queue.tasks import Tasks
from tests.airflow.provider import FakeInstance, connection_json, context_of, fire, rebuild, serving

ENDED = {"exit_code": 0, "driver": "driver-1", "application": "app-7", "ui": "http://history:18080/history/app-7"}
tasks = Tasks()


@tasks.task
def nightly(arguments: list[str] = []) -> dict[str, Any]:  # noqa: B006  as the task of spark_submit() is called
    """In the place of ``spark_submit("nightly.py")``, which needs a Spark that Airflow's environment lacks."""
    return {**ENDED, "arguments": arguments}


@pytest.fixture
def queue(server_url: str, raw: redis.Redis, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setenv("AIRFLOW_CONN_ORCHESTRATION_QUEUE_DEFAULT", connection_json(server_url))
    with Queue(queue_name, url=server_url) as queue:
        yield queue


def submit(queue: Queue, **arguments: Any) -> QueueSparkSubmitOperator:
    return QueueSparkSubmitOperator(
        **{
            "task_id": "spark",
            "queue_name": queue.name,
            "application": "jobs/nightly.py",
            "defer_after": 0,
            **arguments,
        }
    )


def test_an_application_runs_as_a_job_that_is_found_again(queue: Queue, server_url: str) -> None:
    operator, instance = submit(queue, application_args=["--day", "2013-01-01"]), FakeInstance(task_id="spark")
    with pytest.raises(TaskDeferred):
        submit(queue, application_args=["--day", "2013-01-01"]).execute(context_of(instance))
    with pytest.raises(TaskDeferred) as deferred:  # the worker of Airflow had died before it told so
        operator.execute(context_of(instance))
    assert queue.counts().waiting == 1
    with serving(queue.name, server_url, tasks):
        result = operator.execute_complete(context_of(instance), asyncio.run(fire(rebuild(deferred.value.trigger))))
    assert result == {**ENDED, "arguments": ["--day", "2013-01-01"]}
    links = {link.name: link.get_link(operator, ti_key=instance) for link in operator.operator_extra_links}
    assert links == {"Queue console": "", "Spark application": ENDED["ui"]}


def test_its_arguments_are_templates(queue: Queue) -> None:
    operator = submit(queue, application="{{ x }}.py", application_args=["{{ x }}"])
    operator.render_template_fields({"x": "now"})  # type: ignore[typeddict-unknown-key]  # all that they need
    with pytest.raises(TaskDeferred):
        operator.execute(context_of(FakeInstance()))
    (job,) = queue.jobs("waiting")
    assert (job.name, job.data) == ("now", {"arguments": ["now"]})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"application": ""}, "`application` must be text that is not empty"),
        ({"application_args": "--day"}, "`application_args` must be a list of texts, got '--day'"),
        ({"application_args": [1]}, "`application_args` must be a list of texts, got [1]"),
        ({"job_name": "x"}, "`job_name` is set by `application` and `application_args`"),
        ({"data": {}}, "`data` is set by `application` and `application_args`"),
        ({"queue_name": ""}, "Queue name '' is empty"),
    ],
)
def test_what_is_wrong_is_refused_when_the_file_is_read(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        QueueSparkSubmitOperator(**{"task_id": "spark", "application": "nightly.py", **wrong})
    assert sentence in str(refused.value)
