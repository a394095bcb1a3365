"""The doctor's pages: the findings of the last check, and their fixes."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from orchestration_queue.doctor import Finding, Severity
from orchestration_queue.errors import OrchestrationQueueError, StateError
from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.findings import findings, repair
from orchestration_queue.server.clock import now

__all__ = ["FindingPages"]

_FRESH_S = 60.0
_REST = 20
"""The overview's checks take at most a twentieth of the time: a check of many queues is repeated less often."""
_AT_ONCE_S = 2.0
"""How long a page waits for a check; the findings of a longer one appear later."""


class FindingPages:
    """Pages of the findings on the server and its queues.

    Args:
        service: The app's service, which is checked.
        views: Renders the pages.

    Attributes:
        at: When the last check ended; None before the first.
        failure: Why the last check failed; empty if it didn't.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self._found: Sequence[Finding] = ()
        self.at: datetime | None = None
        self.failure = ""
        self._checking: asyncio.Task[None] | None = None
        self._due = 0.0
        self.routes = (
            Route("GET", "/ui/doctor", Scope.READ, self._show),
            Route("POST", "/ui/doctor", Scope.READ, self._check_now),
            Route("POST", "/ui/doctor/fix", Scope.ADMIN, self._fix),
        )

    @property
    def problems(self) -> list[tuple[str, Finding]]:
        """The problems that the last check found, and their ids."""
        return [(_id(finding), finding) for finding in self._found if finding.severity is Severity.PROBLEM]

    def check_soon(self) -> None:
        """Start a check in the background, unless one runs or the last one is recent."""
        if time.monotonic() >= self._due:
            self._start()

    async def aclose(self) -> None:
        """Stop waiting for a check."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    async def _show(self, request: Request) -> Raw:
        """Show the findings; start a check if the last one is older than a minute."""
        is_fresh = self.at is not None and (now() - self.at).total_seconds() <= _FRESH_S
        if not is_fresh and not self.is_checking:  # else the page says so, and follows
            await self._check()
        rows = [(_id(finding), finding) for finding in self._found]
        return self._views.page(
            "doctor.html", title="Doctor", rows=rows, at=self.at, is_checking=self.is_checking,
            problem=self.failure, did=request.query.get("fixed", ""),
        )  # fmt: skip

    async def _check_now(self, _: Request) -> Raw:
        await self._check()
        return self._views.redirect("/ui/doctor")

    async def _fix(self, request: Request) -> Raw:
        wanted = request.form.get("id", [""])[0]
        finding = next((each for each in self._found if _id(each) == wanted and each.fix), None)
        if finding is None:
            raise StateError("This finding no longer applies, or can't be fixed here; check again.")
        if "confirmed" not in request.form:
            return self._views.page("fix.html", title="Confirm", finding=finding, id=wanted)
        request.subject = f"{finding.where}: {finding.what}"
        done = await repair(self._service, finding.where, finding.what)
        self._found = [each for each in self._found if each is not finding]
        return self._views.redirect("/ui/doctor?fixed=" + part(done))

    @property
    def is_checking(self) -> bool:
        """Whether a check runs."""
        return self._checking is not None and not self._checking.done()

    async def _check(self) -> None:
        """Run all checks, unless they run already; return when they have ended, or take long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._start()), _AT_ONCE_S)

    def _start(self) -> asyncio.Task[None]:
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._run())
        return self._checking

    async def _run(self) -> None:
        began = time.monotonic()
        try:
            await self._find()
        finally:
            ended = time.monotonic()
            self._due = ended + max(_FRESH_S, _REST * (ended - began))

    async def _find(self) -> None:
        allowed = self._service.allowed
        try:
            found = await findings(self._service, None if allowed is None else sorted(allowed))
        except OrchestrationQueueError as error:
            self.failure = str(error)
            return
        self.failure = ""
        self._found = sorted(found, key=lambda finding: finding.severity is not Severity.PROBLEM)
        self.at = now()


def _id(finding: Finding) -> str:
    return hashlib.sha256(f"{finding.where}\n{finding.what}".encode()).hexdigest()[:16]
