"""Handlers in processes of their own: for work that fills a core, may hang, or may crash."""

from orchestration_queue.worker.sandbox.handler import Sandboxed, sandboxed

__all__ = ["Sandboxed", "sandboxed"]
