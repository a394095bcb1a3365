"""Own routes of ``oq doctor``: what is wrong, why it matters, what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from orchestration_queue.doctor import Finding, run_checks
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.service import Service

__all__ = ["diagnose", "diagnose_queue", "findings"]


async def findings(service: Service, queues: Sequence[str] | None) -> list[Finding]:
    """Run all checks in a thread; one run at a time, since each reads up to 10,000 jobs of a queue."""
    url = service.connection.url

    def check() -> list[Finding]:
        return list(run_checks(url, queues, prefix=service.prefix))

    async with service.doctor_lock:
        return await asyncio.to_thread(check)


def _shape(finding: Finding) -> dict[str, Any]:
    names = ("severity", "where", "what", "why", "action")
    return {name: getattr(finding, name) for name in names} | {"can_be_fixed": finding.fix is not None}


async def diagnose(request: Request) -> Json:
    """Check the server, all queues and this machine for problems. Nothing is changed."""
    allowed = request.service.allowed
    found = await findings(request.service, None if allowed is None else sorted(allowed))
    return Json({"findings": [_shape(finding) for finding in found]})


async def diagnose_queue(request: Request) -> Json:
    """Check a queue for problems. Nothing is changed."""
    name = request.service.queue(request.params["name"]).name
    found = await findings(request.service, [name])
    return Json({"findings": [_shape(finding) for finding in found if finding.where == f"queue {name}"]})
