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
"""What Dagster shows elsewhere."""
_LONGEST_LOG = 200
"""Most log lines shown with an asset; all of them stay with the job."""
_MOST_HISTORIES = 10


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
    described |= console_link(queue, record.id)
    described |= history_metadata({queue: record})
    if logs:
        described[_OURS + "log"] = dg.MetadataValue.md(_block(logs))
    return described


def history_metadata(records: Mapping[str, JobRecord]) -> Metadata:
    """Show what happened to jobs besides success: each attempt with worker, kind, reason, log lines and traceback.

    Args:
        records: The jobs, by what to call them when there are several; the first 10 are shown.

    Returns:
        One block each under ``orchestration_queue/history``; nothing when nothing happened.
    """
    told = {name: record.history for name, record in list(records.items())[:_MOST_HISTORIES] if record.history}
    if not told:
        return {}
    blocks = [
        (f"**{name}**\n\n" if len(records) > 1 else "") + _block([line for entry in history for line in entry.lines()])
        for name, history in told.items()
    ]
    return {f"{_OURS}history": dg.MetadataValue.md("\n\n".join(blocks))}


def submission_metadata(plan: FlowPlan, node: str, carrier: Carrier | None) -> Metadata:
    """Describe how a node was submitted.

    Args:
        plan: The flow's plan.
        node: The node's name.
        carrier: What took the calls to the server; None for what the plan's size asks for.
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
    """Choose the fitting kind of metadata: names say what is a path, values the rest."""
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


class _Outcome(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    passed: bool
    severity: Literal["ERROR", "WARN"] = "ERROR"
    description: str | None = None
    metadata: dict[str, Any] = {}


def check_results(specs: Sequence[dg.AssetCheckSpec], result: object) -> list[dg.AssetCheckResult]:
    """Read a task's ``checks``. A check that the task says nothing about, or nothing that can be read, has failed.

    Args:
        specs: The asset's checks.
        result: What the task returned.
    """
    told = result.get("checks") if isinstance(result, Mapping) else None
    outcomes = told if isinstance(told, Mapping) else {}
    return [_read(spec, outcomes.get(spec.name)) for spec in specs]


def _read(spec: dg.AssetCheckSpec, told: object) -> dg.AssetCheckResult:
    try:
        outcome = _Outcome.model_validate({"passed": told} if isinstance(told, bool) else told)
    except ValidationError:
        said = "nothing" if told is None else repr(told)[:200]
        must = f"The task's result has to say in 'checks' whether {spec.name!r} passed, and says {said}."
        outcome = _Outcome(passed=False, description=must)
    return dg.AssetCheckResult(
        passed=outcome.passed,
        asset_key=spec.asset_key,
        check_name=spec.name,
        severity=dg.AssetCheckSeverity(outcome.severity),
        description=outcome.description,
        metadata={name: metadata_value(name, value) for name, value in outcome.metadata.items()},
    )
