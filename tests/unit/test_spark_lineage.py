"""OpenLineage events of a Spark task, as a server and a file get them."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration_queue.errors import SparkCancelledError
from orchestration_queue.spark import DataFrameRef
from orchestration_queue.spark.lineage import emit_lineage

JOB: Any = SimpleNamespace(queue="etl", id="f.clean", headers={})
RAW = DataFrameRef(location="s3a://lake/raw/flights", columns={"id": "bigint"}, rows=3)
CLEAN = DataFrameRef(location="/lake/clean", columns={"id": "bigint"}, rows=2, bytes=90, inputs=("/lake/landed",))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "ENDPOINT", "API_KEY", "NAMESPACE", "DISABLED"):
        monkeypatch.delenv(f"OPENLINEAGE_{name}", raising=False)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a file.jsonl"
    monkeypatch.setenv("OPENLINEAGE_URL", path.as_uri())
    return path


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str | None, Any]]]:
    """What a lineage server on a port of its own is sent."""
    found: list[tuple[str, str | None, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(500 if found[-1][2]["eventType"] == "FAIL" else 201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def events_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_task_starts_and_completes_with_its_datasets(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "prod")
    with emit_lineage("work:clean", {"raw": RAW.model_dump(), "day": "monday"}, JOB) as run:
        run.result = {"table": CLEAN, "rows": 2}
    started, completed = events_in(file)
    assert (started["eventType"], completed["eventType"]) == ("START", "COMPLETE")
    assert started["job"] == completed["job"] == {"namespace": "prod", "name": "etl.work:clean"}
    assert started["run"]["runId"] == completed["run"]["runId"] == str(uuid.UUID(started["run"]["runId"]))
    assert started["run"]["facets"]["orchestration_queue_job"]["job"] == "f.clean"
    assert started["inputs"] == [{"namespace": "s3://lake", "name": "raw/flights"}]
    assert completed["inputs"] == [*started["inputs"], {"namespace": "file", "name": "/lake/landed"}]
    (output,) = completed["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/lake/clean")
    assert output["facets"]["schema"]["fields"] == [{"name": "id", "type": "bigint"}]
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (2, 90)


@pytest.mark.parametrize(
    ("header", "facet"),
    [
        ("air/flow/dag.task/0198", {"run": {"runId": "0198"}, "job": {"namespace": "air/flow", "name": "dag.task"}}),
        ("dag.task/0198", None),
        ("airflow//0198", None),
        ("", None),
    ],
)
def test_a_job_names_the_run_that_has_added_it(file: Path, header: str, facet: dict[str, Any] | None) -> None:
    job: Any = SimpleNamespace(**vars(JOB) | {"headers": {"openlineage.parent": header}})
    with emit_lineage("work:clean", {}, job):
        pass
    for event in events_in(file):
        found = event["run"]["facets"].get("parent", {})
        assert (found and {name: found[name] for name in ("run", "job")}) == (facet or {})


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (KeyError("month"), "FAIL", "KeyError: 'month'"),
        (SparkCancelledError("It was told to stop."), "ABORT", "SparkCancelledError: It was told to stop."),
    ],
)
def test_a_task_that_fails_or_is_cancelled_says_why(file: Path, error: Exception, kind: str, said: str) -> None:
    with pytest.raises(type(error)), emit_lineage("work:clean", {}, JOB):
        raise error
    assert [event["eventType"] for event in events_in(file)] == ["START", kind]
    assert events_in(file)[1]["run"]["facets"]["errorMessage"]["message"] == said


def test_a_server_gets_events_at_its_endpoint(
    posted: list[tuple[str, str | None, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_ENDPOINT", "api/v2/lineage")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    with emit_lineage("work:clean", {}, JOB):
        pass
    assert [(path, key) for path, key, _ in posted] == [("/api/v2/lineage", "Bearer secret")] * 2


def test_a_server_that_refuses_or_is_away_costs_the_job_nothing(
    posted: list[tuple[str, str | None, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="own"), emit_lineage("work:clean", {}, JOB):
        raise ValueError("its own error")
    assert "FAIL event of job f.clean was not sent" in caplog.text
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    with emit_lineage("work:clean", {}, JOB) as run:
        run.result = 5
    assert "COMPLETE event of job f.clean was not sent" in caplog.text


@pytest.mark.parametrize("job", [JOB, None])
def test_nothing_is_sent_without_a_job_or_when_disabled(file: Path, monkeypatch: pytest.MonkeyPatch, job: Any) -> None:
    if job:
        monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    with emit_lineage("work:clean", {}, job) as run:
        run.result = CLEAN
    assert not file.exists()
