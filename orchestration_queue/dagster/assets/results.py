"""A finished job's result as Dagster metadata and asset check results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import dagster as dg
from pydantic import BaseModel, ConfigDict, ValidationError

from orchestration_queue.dagster.routing import console_link
from orchestration_queue.flows import Carrier, FlowPlan
from orchestration_queue.protocol.record import JobRecord

__all__ = ["Metadata", "check_results", "history_metadata", "job_metadata", "metadata_value", "submission_metadata"]

Metadata: TypeAlias = Mapping[str, dg.MetadataValue]

_OURS = "orchestration_queue/"
_NOT_METADATA = {"checks", "data_version"}
"""Keys of a result that Dagster shows elsewhere."""
_LONGEST_LOG = 200
"""The number of log lines shown with an asset; the job keeps all of them."""
_MOST_HISTORIES = 10


def job_metadata(record: JobRecord, *, queue: str, flow_id: str | None = None, logs: Sequence[str]) -> Metadata:
    """Describe a completed job.

    Args:
        record: The job.
        queue: The queue of the job.
        flow_id: The flow of the job; None for a single job.
        logs: The log lines of its handler.

    Returns:
        The task's result under its own names (or as ``result`` if it is not an object), and data about the job under
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
    described = _describe(record.result)
    described |= {_OURS + name: metadata_value(name, value) for name, value in ours.items()}
    described |= console_link(queue, record.id)
    described |= history_metadata({queue: record})
    if logs:
        described[_OURS + "log"] = dg.MetadataValue.md(_block(logs))
    return described


def history_metadata(records: Mapping[str, JobRecord]) -> Metadata:
    """Show the failed attempts of jobs, each with worker, kind, reason, log lines and traceback.

    Args:
        records: The jobs by name, which is shown if there are several; only the first 10 are shown.

    Returns:
        One block per job under ``orchestration_queue/history``; empty if no attempt failed.
    """
    histories = {name: record.history for name, record in list(records.items())[:_MOST_HISTORIES] if record.history}
    if not histories:
        return {}
    blocks = [
        (f"**{name}**\n\n" if len(records) > 1 else "") + _block([line for entry in history for line in entry.lines()])
        for name, history in histories.items()
    ]
    return {f"{_OURS}history": dg.MetadataValue.md("\n\n".join(blocks))}


def submission_metadata(plan: FlowPlan, node: str, carrier: Carrier | None) -> Metadata:
    """Describe how a node was submitted.

    Args:
        plan: The flow's plan.
        node: The node's name.
        carrier: The carrier of the flow; None for the default of the plan's size.
    """
    carrier = carrier or plan.carrier
    calls = [
        f"{planned.call.name} after {', '.join(planned.waits_for)}" if planned.waits_for else planned.call.name
        for planned in plan.transaction(0, carrier)
        if planned.node == node
    ]
    return {
        f"{_OURS}carrier": dg.MetadataValue.text(carrier),
        f"{_OURS}calls": dg.MetadataValue.json(calls),
    }


def _describe(result: object) -> dict[str, dg.MetadataValue]:
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
    """Build metadata of the type that fits the value; a path is known by its name."""
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
    """Format log lines as a Markdown code block that no line can close."""
    shown = [line.replace("```", "'''") for line in logs[-_LONGEST_LOG:]]
    if len(logs) > len(shown):
        shown.insert(0, f"({len(logs) - len(shown)} earlier lines: `oq job show`)")
    return "\n".join(["```", *shown, "```"])


class _Outcome(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    passed: bool
    severity: Literal["ERROR", "WARN"] = "ERROR"
    description: str | None = None
    metadata: dict[str, Any] = {}


def check_results(specs: Sequence[dg.AssetCheckSpec], result: object) -> list[dg.AssetCheckResult]:
    """Read a task's ``checks``. A check whose outcome is missing or invalid has failed.

    Args:
        specs: The asset's checks.
        result: The task's result.
    """
    checks = result.get("checks") if isinstance(result, Mapping) else None
    outcomes = checks if isinstance(checks, Mapping) else {}
    return [_read(spec, outcomes.get(spec.name)) for spec in specs]


def _read(spec: dg.AssetCheckSpec, value: object) -> dg.AssetCheckResult:
    try:
        outcome = _Outcome.model_validate({"passed": value} if isinstance(value, bool) else value)
    except ValidationError:
        got = "nothing" if value is None else repr(value)[:200]
        must = f"The task's result must state in 'checks' whether {spec.name!r} passed, got {got}."
        outcome = _Outcome(passed=False, description=must)
    return dg.AssetCheckResult(
        passed=outcome.passed,
        asset_key=spec.asset_key,
        check_name=spec.name,
        severity=dg.AssetCheckSeverity(outcome.severity),
        description=outcome.description,
        metadata={name: metadata_value(name, value) for name, value in outcome.metadata.items()},
    )
