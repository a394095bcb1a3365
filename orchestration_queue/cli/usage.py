"""`oq usage`: what jobs reported to have used."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, show_json, show_table
from orchestration_queue.client import UsageLedger
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["usage"]

_ANY_QUEUE = "usage"
"""The ledger of one queue reads the usage of all."""


def usage(
    queues: Annotated[list[str] | None, typer.Argument(help="Queues; default all that ever reported usage.")] = None,
    hours: Annotated[float, typer.Option(help="How far back.", min=0.02, max=720)] = 1,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show the token usage and costs reported by jobs."""
    with UsageLedger(_ANY_QUEUE, url=url, prefix=prefix) as ledger:
        found = ledger.summary(queues or None, start=datetime.now(UTC) - timedelta(hours=hours))
    if as_json:
        show_json(asdict(found))
        return
    rows = [*found.queues.items(), ("all", found.total)]
    show_table(
        ("queue", "jobs", "tokens", "cost", "unit"),
        [(name, str(each.jobs), f"{each.tokens:g}", f"{each.cost:g}", each.cost_unit or "-") for name, each in rows],
    )
