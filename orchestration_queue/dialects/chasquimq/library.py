"""The function library that supplies what ChasquiMQ's engine needs Redis 8.6 for, on any server with functions."""

from __future__ import annotations

from orchestration_queue.protocol.library import Library

__all__ = ["LIBRARY"]

LIBRARY = Library("chasquimq", "4", "chasquimq_version")
