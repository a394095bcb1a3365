"""Handlers in separate processes: for work that is CPU-bound, may hang, or may crash."""

from orchestration_queue.worker.sandbox.handler import Sandboxed, sandboxed

__all__ = ["Sandboxed", "sandboxed"]
