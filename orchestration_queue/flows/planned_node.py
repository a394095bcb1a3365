"""One node of a plan, with all that submitting it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from orchestration_queue.flows.node import Node
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["PlannedNode", "PlannedNodes", "dependents_first"]


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node, ready to be submitted.

    Attributes:
        node: What the graph says about it, with what the flow's options make of it.
        level: 0 when it waits for nothing, else one more than the highest level it waits for.
        keys: Its queue.
        job_id: Its job's id.
        data_text: Its encoded data.
        dependents: Names of the nodes that wait for it.
    """

    node: Node
    level: int
    keys: QueueKeys
    job_id: str
    data_text: str
    dependents: tuple[str, ...]

    @property
    def member(self) -> str:
        """How dependents name it among what they wait for."""
        return self.keys.member(self.job_id)

    @property
    def options(self) -> JobOptions:
        """Its options, with its id among them."""
        return self.node.options.model_copy(update={"job_id": self.job_id})


PlannedNodes: TypeAlias = Mapping[str, PlannedNode]
"""The nodes of a plan by node, dependencies before dependents."""


def dependents_first(nodes: PlannedNodes) -> list[PlannedNode]:
    """The nodes from the last level to the first, each level in its own order."""
    levels = [list(level) for _, level in groupby(nodes.values(), lambda planned: planned.level)]
    return [planned for level in reversed(levels) for planned in level]
