"""OpenLineage events of Spark tasks: which DataFrames each job read and wrote, from their references.

The variables are those of OpenLineage's own clients: ``OPENLINEAGE_URL`` is a server, or a file as ``file:///path``, to
which each event is appended as a line; ``OPENLINEAGE_ENDPOINT``, ``OPENLINEAGE_API_KEY``, ``OPENLINEAGE_NAMESPACE`` and
``OPENLINEAGE_DISABLED`` mean what they mean there.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import InvalidOptionError, SparkCancelledError
from orchestration_queue.options.job import PARENT_RUN_HEADER
from orchestration_queue.spark.dataframes import DataFrameRef

if TYPE_CHECKING:
    from orchestration_queue.worker import ActiveJob

__all__ = ["LineageRun", "emit_lineage"]

log = get_logger("orchestration_queue.spark")

_PRODUCER = "https://pypi.org/project/orchestration-queue/"
_SPEC = "https://openlineage.io/spec"
_SECONDS = 5.0
"""Timeout of a request to the lineage server; a job sends two."""


@contextlib.contextmanager
def emit_lineage(name: str, arguments: Mapping[str, Any], job: ActiveJob | None) -> Iterator[LineageRun]:
    """Emit a START event, and a COMPLETE, FAIL or ABORT event at the end of the context; nothing without a URL.

    Args:
        name: The task's importable name.
        arguments: The task's arguments.
        job: The job that it runs for; without one, nothing is emitted.
    """
    url = "" if os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true" else os.environ.get("OPENLINEAGE_URL", "")
    run = LineageRun(url if job else "", name, job)
    inputs = [ref.location for ref in _references(dict(arguments))]
    run.emit("START", inputs)
    try:
        yield run
    except BaseException as error:
        # A durable step that sleeps or waits ends the attempt without a failure.
        is_failure = isinstance(error, Exception) and not isinstance(error, SparkCancelledError)
        run.emit("FAIL" if is_failure else "ABORT", inputs, error=error)
        raise
    outputs = _references(run.result)
    run.emit("COMPLETE", [*inputs, *(location for ref in outputs for location in ref.inputs)], outputs)


class LineageRun:
    """One attempt of a job, as OpenLineage's run.

    Attributes:
        result: What the task returned, with references in place of DataFrames.
    """

    def __init__(self, url: str, name: str, job: ActiveJob | None) -> None:
        self.result: Any = None
        self._url = url
        self._id = str(uuid.uuid4())
        self._job = {
            "namespace": os.environ.get("OPENLINEAGE_NAMESPACE", "default"),
            "name": f"{job.queue}.{name}" if job else name,
        }
        self._about = {"queue": job.queue, "job": job.id} if job else {}
        self._parent = job.headers.get(PARENT_RUN_HEADER, "") if job else ""

    def emit(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[DataFrameRef] = (),
        error: BaseException | None = None,
    ) -> None:
        """Send one event. A failure to send it is logged, and does not fail the job."""
        if not self._url:
            return
        facets = {"orchestration_queue_job": _facet("2-0-2/OpenLineage.json#/$defs/RunFacet", **self._about)}
        if parent := _parent_facet(self._parent):
            facets["parent"] = parent
        if error is not None:
            message = f"{type(error).__name__}: {error}"
            facets["errorMessage"] = _facet(
                "facets/1-0-1/ErrorMessageRunFacet.json", message=message, programmingLanguage="python"
            )
        event = {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(),
            "run": {"runId": self._id, "facets": facets},
            "job": self._job,
            "inputs": [_dataset(location) for location in dict.fromkeys(inputs)],
            "outputs": [_output(ref) for ref in outputs],
            "producer": _PRODUCER,
            "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        }
        try:
            _send(self._url, json.dumps(event))
        except (OSError, ValueError) as problem:
            log.warning("OpenLineage's %s event of job %s was not sent: %s", kind, self._about["job"], problem)


def _parent_facet(parent: str) -> dict[str, Any] | None:
    """Return the facet of a run's parent; None without one. Only the namespace may contain slashes."""
    namespace, *rest = parent.rsplit("/", 2)
    if len(rest) != 2 or not (namespace and all(rest)):
        return None
    job, run = rest
    return _facet("facets/1-0-1/ParentRunFacet.json", run={"runId": run}, job={"namespace": namespace, "name": job})


def _send(url: str, event: str) -> None:
    if url.startswith("file://"):
        with Path(unquote(urlsplit(url).path)).open("a", encoding="utf-8") as file:
            file.write(f"{event}\n")
        return
    endpoint = os.environ.get("OPENLINEAGE_ENDPOINT", "api/v1/lineage")
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENLINEAGE_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{url.rstrip('/')}/{endpoint.lstrip('/')}", event.encode(), headers)  # noqa: S310 (the operator's URL)
    urllib.request.urlopen(request, timeout=_SECONDS).close()  # noqa: S310


def _references(value: Any) -> list[DataFrameRef]:
    """Return all references in JSON, at any depth."""
    if isinstance(value, DataFrameRef):
        return [value]
    if isinstance(value, Mapping):
        if value.get("kind") == "dataframe":
            with contextlib.suppress(InvalidOptionError):
                return [DataFrameRef.model_validate(value)]
        return [ref for item in value.values() for ref in _references(item)]
    if isinstance(value, (list, tuple)):
        return [ref for item in value for ref in _references(item)]
    return []


def _dataset(location: str) -> dict[str, Any]:
    """Return a dataset by OpenLineage's naming: the file system is the namespace, the path is the name."""
    parts = urlsplit(location)
    if parts.scheme and parts.netloc:
        scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
        return {"namespace": f"{scheme}://{parts.netloc}", "name": parts.path.strip("/") or "/"}
    return {"namespace": "file", "name": parts.path if parts.scheme == "file" else location}


def _output(ref: DataFrameRef) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in ref.columns.items()]
    size = {} if ref.bytes is None else {"size": ref.bytes}
    dataset = _dataset(ref.location) if ref.format != "table" else {"namespace": "spark", "name": ref.location}
    return {
        **dataset,
        "facets": {"schema": _facet("facets/1-1-1/SchemaDatasetFacet.json", fields=fields)},
        "outputFacets": {
            "outputStatistics": _facet(
                "facets/1-0-2/OutputStatisticsOutputDatasetFacet.json", rowCount=ref.rows, **size
            )
        },
    }


def _facet(schema: str, **fields: Any) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": f"{_SPEC}/{schema}", **fields}
