"""Send one message to one receiver, in a thread of its own: a receiver that hangs delays no other."""

from __future__ import annotations

import asyncio
import http.client
import json
import smtplib
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from orchestration_queue.alerts import formats
from orchestration_queue.alerts.receivers import Receiver
from orchestration_queue.alerts.webhook import SIGNATURE, TIMESTAMP, sign
from orchestration_queue.protocol.alerts import UnsentMessage
from orchestration_queue.server.clock import now_ms

__all__ = ["NotSentError", "send"]

_SOCKET_S = 10.0
"""How long a receiver may be silent."""
_MESSAGE_S = 20.0
"""How long sending a message may take in all."""


class NotSentError(Exception):
    """The message was not sent, as far as is known. The reason contains nothing of the receiver's URL."""


async def send(receiver: Receiver, delivery: UnsentMessage) -> None:
    """Send a message.

    Raises:
        NotSentError: The receiver refused it, could not be reached, or took too long; it may have been sent.
    """

    def act() -> None:
        _email(receiver, delivery) if receiver.kind == "email" else _post(receiver, delivery)

    try:
        async with asyncio.timeout(_MESSAGE_S):
            await _in_thread(f"oq-alert-{receiver.name}", act)
    except TimeoutError:
        raise NotSentError(f"it did not take the message within {_MESSAGE_S:g} s") from None


async def _in_thread(name: str, act: Callable[[], None]) -> None:
    """Run a function in a thread that the interpreter does not wait for, as one of a pool would be."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: NotSentError | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        error = None
        try:
            act()
        except Exception as cause:
            error = NotSentError(_reason(cause))
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    await done


def _reason(error: Exception) -> str:
    """Describe an error without text that may contain a URL, a token or a password."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, NotSentError):
        return str(error)
    if isinstance(cause, TimeoutError):
        return f"it was silent for {_SOCKET_S:g} s"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({cause.verify_message})"
    if isinstance(cause, smtplib.SMTPResponseException):
        return f"the mail server answered {cause.smtp_code}"
    if isinstance(cause, OSError) and cause.strerror:
        return f"it cannot be reached ({cause.strerror})"
    if isinstance(cause, LookupError | TypeError | ValueError | AttributeError):
        return f"the message cannot be written ({type(cause).__name__})"
    return f"it cannot be reached ({type(cause).__name__})"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves redirections alone: a receiver must not send us elsewhere."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


def _post(receiver: Receiver, delivery: UnsentMessage) -> None:
    body: dict[str, object]
    if receiver.kind == "slack":
        body = formats.slack(delivery.message)
    elif receiver.kind == "pagerduty":
        body = formats.pagerduty(delivery.message, receiver)
    else:
        body = formats.webhook(delivery.message)
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    headers = {"Content-Type": "application/json", "User-Agent": "orchestration-queue"}
    if receiver.kind == "webhook":
        headers |= {"OQ-Delivery": delivery.id, TIMESTAMP: str(now_ms() // 1000)}
        if receiver.key:
            headers[SIGNATURE] = sign(receiver.key, headers[TIMESTAMP], data)
    request = urllib.request.Request(receiver.url, data, headers, method="POST")  # noqa: S310  http or https
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_SOCKET_S) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        error.close()
        status = error.code
    except http.client.HTTPException as error:
        raise NotSentError(f"its answer is not HTTP ({type(error).__name__})") from None
    if not 200 <= status < 300:
        raise NotSentError(f"it answered {status}")


def _email(receiver: Receiver, delivery: UnsentMessage) -> None:
    parts = urlsplit(receiver.url)
    host, port = parts.hostname or "", parts.port or 0
    tls = ssl.create_default_context()
    if parts.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_SOCKET_S, context=tls)
    else:
        server = smtplib.SMTP(host, port, timeout=_SOCKET_S)
    with server:
        server.ehlo()
        if parts.scheme == "smtp" and (server.has_extn("starttls") or receiver.password):
            if not server.has_extn("starttls"):
                raise NotSentError("the mail server offers no TLS, and the password is not sent without it")
            server.starttls(context=tls)
            server.ehlo()
        if receiver.user:
            server.login(receiver.user, receiver.password)
        server.send_message(formats.email(delivery.message, receiver), receiver.sender, list(receiver.to))
