"""The common parts of all pages: sessions, CSRF protection of forms, and error pages."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from orchestration_queue.errors import NotFoundError, OrchestrationQueueError, TransportError, UsageError
from orchestration_queue.http.access import Access, DeniedError, Token
from orchestration_queue.http.console import acts, pages
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import HttpError, Raw, Request, Response
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service

__all__ = ["Console"]

_COOKIE = "oq_session"
_SESSION_S = 12 * 3600
_STATIC_S = 3600
_LONGEST_SUBJECT = 500


class Console:
    """The pages of one app.

    Args:
        service: The app's service.
        access: The tokens and what they allow.
        dagster: URL of Dagster's web server; None for no links.
        traces: URL of a trace, with ``{trace_id}`` for its id; None for no links.

    Raises:
        UsageError: A URL begins with neither ``http://`` nor ``https://``, or that of traces lacks ``{trace_id}``.
    """

    def __init__(self, service: Service, access: Access, dagster: str | None = None, traces: str | None = None) -> None:
        for what, url in (("Dagster's URL", dagster), ("The URL of traces", traces)):
            if url is not None and not url.startswith(("http://", "https://")):
                raise UsageError(f"{what} must begin with http:// or https://, got {url!r}.")
        if traces is not None and "{trace_id}" not in traces:
            raise UsageError(f"The URL of traces must contain {{trace_id}} where a trace's id belongs, got {traces!r}.")
        self.service, self.access = service, access
        self.views = Views(dagster, traces)
        # Each process has its own: its sessions end with it, and no other process accepts them.
        self._secret = secrets.token_bytes(32)
        self._pages = pages.Pages(service, self.views)
        self._acts = acts.Acts(service, self.views)
        sign_in = (
            Route("GET", "/ui/login", Scope.OPEN, self._login),
            Route("POST", "/ui/login", Scope.OPEN, self._sign_in),
            Route("GET", "/ui/static/:file", Scope.OPEN, self._static),
        )
        self.routes = (*self._pages.routes, *self._acts.routes, *sign_in)

    async def aclose(self) -> None:
        """Stop background reads."""
        await self._pages.aclose()

    async def answer(self, route: Route, request: Request) -> Response:
        """Answer a request of a browser, with pages for errors and for signing in."""
        session, is_new = self._session(request)
        csrf = self._csrf(session)
        queues = [request.params["name"]] if route.names_queue else []

        def allow(names: Iterable[str]) -> None:
            wanted = list(names)
            request.user = self._check(session, request, route.scope, wanted)
            for name in () if route.is_of_wire else wanted:
                self.service.check_allowed(name)

        request.allow = allow
        try:
            if route.scope is not Scope.OPEN:
                allow(queues)
            if request.method == "POST" and not hmac.compare_digest(request.form.get("csrf", [""])[0], csrf):
                raise HttpError(403, "This form is too old; go back, reload the page and try again.")
            self.service.check_open()
            self.views.csrf.set(csrf)
            self.views.request.set(request)
            self.views.can_act.set(self._can_act(session, request, queues))
            response = await route.handler(request)
            # A successful action ends in a redirection; a question or a refused form has changed nothing.
            if route.scope in (Scope.ACT, Scope.ADMIN) and isinstance(response, Raw) and response.status == 303:
                act = request.form.get("act", [route.path])[0]
                subject = request.subject or request.params.get("id") or ", ".join(request.form.get("id", ()))
                name = request.params.get("name", "")
                await self.service.audit(request.user, act, name, subject[:_LONGEST_SUBJECT])
        except DeniedError as denied:
            if denied.status == 401:
                return self.views.redirect("/ui/login")
            response = self.views.error(denied.status, denied.text)
        except HttpError as error:
            response = self.views.error(error.status, error.text)
        except OrchestrationQueueError as error:
            response = self.views.error(_status(error), str(error))
        return self._with_cookie(response, session, request) if is_new and isinstance(response, Raw) else response

    def _session(self, request: Request) -> tuple[str, bool]:
        """Return the session's text, and whether it is new to the browser."""
        try:
            found = SimpleCookie(request.headers.get("cookie", "")).get(_COOKIE)
        except CookieError:
            found = None
        if found is not None and self._is_valid(found.value):
            return found.value, False
        return self._new_session(""), True

    def _new_session(self, digest: str) -> str:
        text = f"{secrets.token_hex(16)}.{digest}.{int(time.time()) + _SESSION_S}"
        return f"{text}.{self._sign(text)}"

    def _is_valid(self, session: str) -> bool:
        text, _, signature = session.rpartition(".")
        end = text.rpartition(".")[2]
        is_ours = hmac.compare_digest(signature.encode(), self._sign(text).encode())
        return is_ours and end.isdecimal() and int(end) > time.time()

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def _csrf(self, session: str) -> str:
        return self._sign(f"csrf {session}")

    def _token(self, session: str) -> Token | None:
        digest = session.split(".")[1]
        return self.access.with_digest(digest) if digest else None

    def _check(self, session: str, request: Request, scope: Scope, queues: list[str]) -> str:
        token = self._token(session)
        if token is not None and not self.access.is_open:
            return self.access.allow(token, scope, queues)
        return self.access.check(scope, request.headers, queues)

    def _can_act(self, session: str, request: Request, queues: list[str]) -> frozenset[str]:
        """Return the scopes that the user has, so that pages show only allowed buttons."""
        found = set()
        for scope in (Scope.ACT, Scope.ADMIN):
            try:
                self._check(session, request, scope, queues)
            except DeniedError:
                continue
            found.add(str(scope))
        return frozenset(found)

    def _with_cookie(self, response: Raw, session: str, request: Request) -> Raw:
        secure = "; Secure" if urlsplit(request.headers.get("origin", "")).scheme == "https" else ""
        # A proxy that ends TLS forwards plain HTTP, and names the browser's scheme in a header.
        secure = "; Secure" if request.headers.get("x-forwarded-proto") == "https" else secure
        cookie = f"{_COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={_SESSION_S}{secure}"
        return Raw(response.body, response.status, (*response.headers, (b"set-cookie", cookie.encode())))

    async def _login(self, _: Request) -> Raw:
        return self.views.page("login.html", title="Sign in", problem="")

    async def _sign_in(self, request: Request) -> Raw:
        token = self.access.find(request.form.get("token", [""])[0].strip())
        if token is None:
            return self.views.page("login.html", 401, title="Sign in", problem="This token is unknown.")
        return self._with_cookie(self.views.redirect("/ui"), self._new_session(token.digest), request)

    async def _static(self, request: Request) -> Raw:
        found = self.views.static(request.params["file"])
        if found is None:
            raise HttpError(404, "This file does not exist.")
        body, kind = found
        return Raw(body, 200, ((b"content-type", kind), (b"cache-control", b"max-age=%d" % _STATIC_S)))


def _status(error: OrchestrationQueueError) -> int:
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, UsageError):
        return 400
    return 503 if isinstance(error, TransportError) else 409
