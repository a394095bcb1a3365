"""The page of pools: who holds their slots, how many jobs wait, and forms to change them."""

from __future__ import annotations

from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.pools import pools_to_change, read_pools
from orchestration_queue.protocol.record import when

__all__ = ["PoolPages"]

_MOST_DIGITS = 6


class PoolPages:
    """The slots that jobs of all queues share.

    Args:
        service: What they are read through.
        views: How they are shown.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self.routes = (
            Route("GET", "/ui/pools", Scope.READ, self._show),
            Route("POST", "/ui/pools", Scope.ACT, self._set),
            Route("POST", "/ui/pools/remove", Scope.ADMIN, self._remove),
        )

    async def _show(self, request: Request) -> Raw:
        """List all pools with the jobs that hold their slots."""
        return await self._page(did=request.query.get("done", ""))

    async def _page(self, status: int = 200, **given: str) -> Raw:
        return self._views.page(
            "pools.html", status, title="Pools", pools=await read_pools(self._service), when=when,
            served=self._service.allowed, **{"did": "", "problem": "", "name": "", "slots": ""} | given,
        )  # fmt: skip

    async def _set(self, request: Request) -> Raw:
        """Define a pool, or change its number of slots."""
        name, slots = (request.form.get(field, [""])[0].strip() for field in ("pool", "slots"))
        request.subject = name
        try:
            if not (slots.isascii() and slots.isdecimal() and len(slots) < _MOST_DIGITS):
                raise UsageError(f"Slots must be a whole number from 0 to 1,000, got {slots[:80]!r}; enter 8, perhaps.")
            await pools_to_change(self._service).set(name, int(slots))
        except UsageError as error:
            return await self._page(400, problem=str(error), name=name, slots=slots)
        return self._views.redirect("/ui/pools?done=set-1")

    async def _remove(self, request: Request) -> Raw:
        """Remove a pool, after a question."""
        request.subject = name = request.form.get("pool", [""])[0]
        if "confirmed" not in request.form:
            return self._views.page(
                "confirm.html", title="Confirm", act="remove-pool", question=f"Remove pool {name}?",
                note="Jobs that name it later fail until it is defined again.",
                fields=[("pool", name), ("act", "remove-pool")], back="/ui/pools",
            )  # fmt: skip
        done = await pools_to_change(self._service).remove(name)
        return self._views.redirect(f"/ui/pools?done=remove-{int(done)}")
