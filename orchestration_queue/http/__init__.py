"""The queue over HTTP: an ASGI app with the routes of glide-mq's proxy, and a console for the browser.

It needs the extra ``http``::

    app = create_app("redis://localhost", queues=["emails"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.http.app import HttpApp, create_app

__all__ = ["HttpApp", "create_app"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(("HttpApp", "create_app"), "http.app"))
