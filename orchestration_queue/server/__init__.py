"""Connections to the server: URLs, connections, the embedded server, and its function libraries."""

from __future__ import annotations

from orchestration_queue.server._async.connection import AsyncConnection
from orchestration_queue.server._async.reporting import check_usage, report_usage_async
from orchestration_queue.server._async.subscription import AsyncSubscription
from orchestration_queue.server._sync.connection import Connection
from orchestration_queue.server._sync.reporting import report_usage
from orchestration_queue.server._sync.subscription import Subscription
from orchestration_queue.server.url import ServerUrl, parse_url

__all__ = [
    "AsyncConnection",
    "AsyncSubscription",
    "Connection",
    "ServerUrl",
    "Subscription",
    "check_usage",
    "parse_url",
    "report_usage",
    "report_usage_async",
]
