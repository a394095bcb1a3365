"""The console: pages for the browser, rendered on the server, live by server-sent events."""

from __future__ import annotations

from orchestration_queue.http.console.console import Console

__all__ = ["Console"]
