"""What holds for a flow as a whole."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.flows.node import IGNORED_ON_RELEASE, Node
from orchestration_queue.options import MAX_PRIORITY, Budget, Options, Retention
from orchestration_queue.options.base import MAX_COUNT
from orchestration_queue.options.durations import Positive

__all__ = ["FlowOptions"]


class FlowOptions(Options):
    """What holds for a flow as a whole.

    ``fail_fast``, ``timeout`` and ``retention`` are seen to by the workers of the flow's queue, every few seconds.
    """

    fail_fast: bool = False
    """When a node fails for good, cancel all that do not wait for it, too; callbacks still run."""
    timeout: Positive | None = None
    """How long the flow may take from its submission; what has not finished then is cancelled. None sets no limit."""
    retention: Retention | None = None
    """Which finished flows to keep, of those in the queue: whole, with all their jobs. None keeps all."""
    concurrency: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = None
    """At most so many nodes at a time; None sets no limit. Nodes wait for a place when they could run, not before.
    Places are counted in one queue, so a flow of several queues cannot have it; nor can nodes with an ``ordering``."""
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0
    """The priority of nodes that wait for nothing and name none. All others run in the order in which they become
    ready: the wire releases jobs into the plain queue."""
    budget: Budget | None = None
    """What the nodes may use together, callbacks apart."""
    on_success: Node | None = None
    """A node that runs when all leaves (the nodes that nothing waits for) have completed. It names no ``deps``."""
    on_failure: Node | None = None
    """A node that runs as soon as any node has failed; else it is skipped. It names no ``deps``."""

    @model_validator(mode="after")
    def _callbacks_wait_for_the_flow(self) -> FlowOptions:
        for name, node in (("on_success", self.on_success), ("on_failure", self.on_failure)):
            if node is not None and node.waits_for:
                raise InvalidOptionError(
                    f"Node {node.name!r} is a flow's {name} and waits for the flow itself; drop its deps."
                )
            if node is not None and any(getattr(node.options, option) for option in IGNORED_ON_RELEASE):
                raise InvalidOptionError(
                    f"Node {node.name!r} is a flow's {name} and waits for other nodes, and the wire ignores delay, "
                    "priority and lifo on release; drop them."
                )
        return self
