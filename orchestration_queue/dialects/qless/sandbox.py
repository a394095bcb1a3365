"""How qless's jobs travel to sandbox processes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from orchestration_queue.dialects.qless.commands import lasts
from orchestration_queue.dialects.qless.handlers import QlessNext
from orchestration_queue.dialects.qless.records import QlessJob
from orchestration_queue.dialects.sandbox import JobForm

__all__ = ["FORM"]

_JOB = TypeAdapter(QlessJob)


def _next_as_json(returned: Any) -> dict[str, Any] | None:
    """Return what a handler returned as JSON has it; only a :class:`QlessNext` counts."""
    if not isinstance(returned, QlessNext):
        return None
    return {
        "queue": returned.queue,
        "data": returned.data,
        "delay": lasts(returned.delay, "delay"),
        "depends": list(returned.depends),
    }


FORM = JobForm(
    home=__name__,
    id_of=lambda job: job.jid,
    dump=partial(_JOB.dump_python, mode="json"),
    load=_JOB.validate_python,
    dump_result=_next_as_json,
    load_result=lambda returned: QlessNext(**returned) if isinstance(returned, Mapping) else None,
)
