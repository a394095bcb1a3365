"""Own routes of ``oq doctor``: what is wrong, why it matters, what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from orchestration_queue.doctor import Finding, run_checks
from orchestration_queue.errors import StateError, UsageError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.reading import members
from orchestration_queue.wires import WIRES

__all__ = ["diagnose", "diagnose_queue", "findings", "fix_finding", "repair"]

_OTHER_WIRES = tuple(wire.title for wire in WIRES)


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


async def repair(service: Service, where: str, what: str) -> str:
    """Perform the fix of a finding that still applies, and return what was done.

    Raises:
        StateError: It no longer applies, has no fix, or cannot be fixed safely at present.
    """
    url, queue = service.connection.url, where.removeprefix("queue ")
    if queue != where:
        service.check_allowed(queue)
    queues = [queue] if queue != where else None if where.startswith(_OTHER_WIRES) else []

    def fix() -> str:
        for finding in run_checks(url, queues, prefix=service.prefix):
            # How many jobs were inspected depends on what else was checked.
            is_it = (finding.where, finding.what.partition(" among ")[0]) == (where, what.partition(" among ")[0])
            if is_it and finding.fix is not None:
                return finding.fix()
        raise StateError(f"There is nothing to fix at {where[:200]!r}: {what[:200]!r} no longer applies; check again.")

    async with service.doctor_lock:
        return await asyncio.to_thread(fix)


async def fix_finding(request: Request) -> Json:
    """Perform the fix of a finding that ``can_be_fixed``, named by its ``where`` and ``what``."""
    body = members(request, "where", "what")
    where, what = body.get("where"), body.get("what")
    if not isinstance(where, str) or not isinstance(what, str):
        raise UsageError("`where` and `what` must be those of a finding; GET /v1/doctor lists them.")
    request.subject = f"{where}: {what}"
    return Json({"done": await repair(request.service, where, what)})


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
