"""The queue as a resource."""

from __future__ import annotations

import dagster as dg
import pytest

from orchestration_queue.dagster import QueueResource
from orchestration_queue.errors import TransportError

pytestmark = pytest.mark.dagster

CLOSED_URL = "redis://user:hunter2@localhost:1"
"""Nobody answers there, and nobody may be shown the password."""


def test_nothing_connects_before_a_client_is_asked_for() -> None:
    @dg.op
    def idle(queue: QueueResource) -> str:
        return queue.prefix

    @dg.job
    def job() -> None:
        idle()

    nowhere = QueueResource(url=CLOSED_URL)
    assert job.execute_in_process(resources={"queue": nowhere}).output_for_node("idle") == "glide"
    with pytest.raises(TransportError) as refused:
        nowhere.queue("q")
    assert "hunter2" not in str(refused.value)


def test_the_clients_of_a_step_share_a_connection_that_ends_with_it(server_url: str, queue_name: str) -> None:
    seen: list[QueueResource] = []

    @dg.op
    def add(queue: QueueResource) -> str:
        seen.append(queue)
        job = queue.queue(queue_name).add("hello", {"to": "world"})
        assert queue.queue(queue_name).get_job(job.id).record.data == {"to": "world"}
        assert queue.connection is queue.connection
        return job.id

    @dg.job
    def job() -> None:
        add()

    result = job.execute_in_process(resources={"queue": QueueResource(url=server_url)})
    assert result.output_for_node("add") == "1"
    (used,) = seen
    assert used._connection is None


def test_a_secret_url_is_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OQ_URL", CLOSED_URL)
    resource = QueueResource(url=dg.EnvVar("OQ_URL"))
    stored = dg.Definitions(resources={"queue": resource}).get_repository_def().get_top_level_resources()["queue"]
    assert stored.config_schema is not None
    assert stored.config_schema.default_value["url"] == {"env": "OQ_URL"}
    assert "hunter2" not in repr(QueueResource(url=CLOSED_URL))
