"""Partitions as YAML says them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from orchestration_queue.errors import InvalidOptionError

__all__ = ["partitions_definition"]

_OF_TIME: dict[str, Any] = {
    "hourly": dg.HourlyPartitionsDefinition,
    "daily": dg.DailyPartitionsDefinition,
    "weekly": dg.WeeklyPartitionsDefinition,
    "monthly": dg.MonthlyPartitionsDefinition,
}


def partitions_definition(
    kind: str, start: str | None, end: str | None, tz: str | None, values: Sequence[str], name: str | None
) -> dg.PartitionsDefinition[str]:
    """Partitions of one kind.

    Args:
        kind: ``hourly``, ``daily``, ``weekly``, ``monthly``, ``static`` or ``dynamic``.
        start: The first, of those of time.
        end: Where they end; None for never.
        tz: Whose clock they go by; None for UTC.
        values: The keys of static ones.
        name: That of dynamic ones.

    Raises:
        InvalidOptionError: Something is missing, or belongs to another kind.
    """
    needs = {"static": "values", "dynamic": "name"}.get(kind, "start")
    takes = {needs, "end", "tz"} if kind in _OF_TIME else {needs}
    said = {"start": start, "end": end, "tz": tz, "values": list(values), "name": name}
    if strange := next((word for word, value in said.items() if value and word not in takes), None):
        raise InvalidOptionError(f"{kind} partitions have no {strange!r}; there are {', '.join(sorted(takes))}.")
    if not said[needs]:
        raise InvalidOptionError(f"{kind} partitions need {needs!r}; add it.")
    try:
        if kind == "static":
            return dg.StaticPartitionsDefinition(list(values))
        if kind == "dynamic":
            return dg.DynamicPartitionsDefinition(name=name)
        made: dg.PartitionsDefinition[str] = _OF_TIME[kind](start_date=start, end_date=end, timezone=tz or "UTC")
    except Exception as error:  # Dagster's checks raise many kinds
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InvalidOptionError(f"{kind} partitions cannot be made of what is said ({reason}); correct it.") from None
    return made
