"""The console's page of alerts: what fires now, the rules, and what happened."""

from __future__ import annotations

import math
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import HttpError, Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.alerts import alerts_of
from orchestration_queue.options import AlertKind

__all__ = ["AlertPages"]

_EVENTS = 50
_TEST_S = 20
_SILENCES = (("3600", "1 h"), ("86400", "1 day"))
_NUMBERS = ("threshold", "window", "minimum", "pending", "keep_firing")
_FIELDS = ("name", "kind", "queue", *_NUMBERS, "to", "note")
_EMPTY = dict.fromkeys(_FIELDS, "") | {"kind": str(AlertKind.FAILURE_RATE), "queue": "*"}
_TONES = {
    "firing": "failed",
    "unsent": "failed",
    "pending": "delayed",
    "ok": "completed",
    "resolved": "completed",
    "sent": "completed",
}
_KINDS = [(str(kind), str(kind).replace("_", " ")) for kind in AlertKind]


class AlertPages:
    """The page of alert rules, and the targets of its forms.

    Args:
        service: The app's service.
        views: Renders the page.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self.routes = (
            Route("GET", "/ui/alerts", Scope.READ, self._show),
            Route("POST", "/ui/alerts", Scope.ACT, self._set),
            Route("POST", "/ui/alerts/:rule", Scope.ACT, self._act),
        )

    async def _show(self, request: Request) -> Raw:
        """Show the rules with what they do, and the last events."""
        return await self._page(did=request.query.get("done", ""), tested=request.query.get("tested", ""))

    async def _page(self, status: int = 200, **given: Any) -> Raw:
        alerts = alerts_of(self._service)
        rules, evaluator, events = await alerts.list(), await alerts.evaluator(), await alerts.history(limit=_EVENTS)
        tested = given.get("tested", "")
        tests = [event for event in events if event.rule == tested and event.incident.startswith("test.")]
        values = {"did": "", "problem": "", "given": _EMPTY} | given
        return self._views.page(
            "alerts.html", status, title="Alerts", alerts=rules, evaluator=evaluator, events=events,
            tests=[event for event in tests if event.incident == tests[0].incident], kinds=_KINDS, silences=_SILENCES,
            tones=_TONES, **values | {"tested": tested},
        )  # fmt: skip

    async def _set(self, request: Request) -> Raw:
        """Add or replace a rule."""
        given = {name: request.form.get(name, [""])[0].strip() for name in _FIELDS}
        request.subject = given["name"]
        fields: dict[str, Any] = {name: _number(given[name]) for name in _NUMBERS if given[name]}
        fields |= {"kind": given["kind"], "queue": given["queue"] or "*", "note": given["note"]}
        fields["to"] = [name.strip() for name in given["to"].split(",") if name.strip()]
        try:
            await alerts_of(self._service).set(given["name"], fields)
        except UsageError as error:
            return await self._page(400, problem=str(error), given=given)
        return self._views.redirect("/ui/alerts?done=save-rule-1")

    async def _act(self, request: Request) -> Raw:
        """Silence, test or remove a rule; the last after a question."""
        alerts, name = alerts_of(self._service), request.params["rule"]
        request.subject = name
        act = request.form.get("act", [""])[0]
        if act == "test":
            try:
                await alerts.test(name, timeout=_TEST_S)
            except TimeoutError as error:
                raise HttpError(504, str(error)) from None
            return self._views.redirect(f"/ui/alerts?tested={part(name)}")
        if act == "silence":
            length = _number(request.form.get("seconds", [""])[0])
            await alerts.silence(name, length, by=request.user)  # type: ignore[arg-type]  # text is refused there
        elif act != "remove":
            raise UsageError(f"There is no act {act[:80]!r} of rules; go back and use the page's buttons.")
        elif "confirmed" not in request.form:
            return self._views.page(
                "confirm.html", title="Confirm", act="remove", question=f"Remove rule {name}?",
                note="If it fires, its receivers get a message that it is over.",
                fields=[("act", "remove")], back="/ui/alerts",
            )  # fmt: skip
        else:
            await alerts.remove(name)
        return self._views.redirect(f"/ui/alerts?done={act}-1")


def _number(text: str) -> float | str:
    """Return a number; other text as it is, so that the refusal names it."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if math.isfinite(number) and number.is_integer() else number
