"""What a task's result says about the quality of the asset that it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dagster as dg
from pydantic import BaseModel, ConfigDict, ValidationError

from orchestration_queue.dagster.assets.metadata import metadata_value

__all__ = ["check_results"]


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
