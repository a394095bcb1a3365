"""What a finished job has to tell, as Dagster metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import dagster as dg

from orchestration_queue.protocol.record import JobRecord

__all__ = ["Metadata", "job_metadata", "metadata_value"]

Metadata: TypeAlias = Mapping[str, dg.MetadataValue]

_OURS = "orchestration_queue/"
_NOT_METADATA = {"checks", "data_version"}
"""What Dagster shows elsewhere."""
_LONGEST_LOG = 200
"""Most log lines shown with an asset; all of them stay with the job."""


def job_metadata(record: JobRecord, *, queue: str, flow_id: str | None = None, logs: Sequence[str]) -> Metadata:
    """Describe a completed job.

    Args:
        record: The job.
        queue: Where it ran.
        flow_id: The flow it belongs to; None for a job of its own.
        logs: The lines its handler wrote.

    Returns:
        What the task returned under its own names (a result that is no object as ``result``), and how it ran under
        ``orchestration_queue/...``. An integer ``rows`` also appears as Dagster's own row count.
    """
    ours: dict[str, object] = {
        "queue": queue,
        "task": record.name,
        "job_id": record.id,
        **({"flow_id": flow_id} if flow_id else {}),
        "attempts": record.attempts_made + 1,
        "workers_lost": record.stalled_count,
        "seconds": record.seconds,
    }
    described = _described(record.result)
    described |= {_OURS + name: metadata_value(name, value) for name, value in ours.items()}
    if logs:
        described[_OURS + "log"] = dg.MetadataValue.md(_block(logs))
    return described


def _described(result: object) -> dict[str, dg.MetadataValue]:
    if result is None:
        return {}
    if not isinstance(result, Mapping):
        return {"result": metadata_value("result", result)}
    described = {
        str(name): metadata_value(str(name), value) for name, value in result.items() if name not in _NOT_METADATA
    }
    rows = result.get("rows")
    if isinstance(rows, int) and not isinstance(rows, bool):
        described["dagster/row_count"] = dg.MetadataValue.int(rows)
    return described


def metadata_value(name: str, value: object) -> dg.MetadataValue:
    """The fitting kind of metadata: names say what is a path, values the rest."""
    match value:
        case None:
            return dg.MetadataValue.null()
        case bool():
            return dg.MetadataValue.bool(value)
        case int() if -(2**63) <= value < 2**63:
            return dg.MetadataValue.int(value)
        case float():
            return dg.MetadataValue.float(value)
        case str() if name == "path" or name.endswith("_path"):
            return dg.MetadataValue.path(value)
        case str() if value.startswith(("https://", "http://")):
            return dg.MetadataValue.url(value)
        case str():
            return dg.MetadataValue.text(value)
        case dict() | list():
            return dg.MetadataValue.json(value)
        case _:  # an integer beyond what Dagster's API carries
            return dg.MetadataValue.text(str(value))


def _block(logs: Sequence[str]) -> str:
    """Log lines as a Markdown code block that no line can break out of."""
    shown = [line.replace("```", "'''") for line in logs[-_LONGEST_LOG:]]
    if len(logs) > len(shown):
        shown.insert(0, f"({len(logs) - len(shown)} earlier lines: `oq job show`)")
    return "\n".join(["```", *shown, "```"])
