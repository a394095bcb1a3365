"""A submitted flow's record: enough to show it, continue it, and distinguish it from another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import InvalidNameError, ServerError
from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.node import TriggerRule
from orchestration_queue.options import (
    MAX_NAME_LENGTH,
    Duration,
    Retention,
    milliseconds,
    name_problem,
    retention_from_wire,
)
from orchestration_queue.protocol.codec import dump_json

__all__ = [
    "FlowRecord",
    "RecordedNode",
    "RecordedOptions",
    "check_flow_id",
    "check_job_id",
    "job_id_of",
    "split_job_id",
]

_SCHEDULED = "repeat"
"""The prefix of scheduled jobs' ids."""


def job_id_of(flow_id: str, node: str) -> str:
    """Return the id of a node's job: the same for each submission, so that submitting twice adds it once."""
    return f"{flow_id}.{node}"


def split_job_id(job_id: str) -> tuple[str, str] | None:
    """Return the flow's id and the node's name in a job id; None if it can't be a flow's."""
    flow_id, dot, node = job_id.partition(".")
    return (flow_id, node) if dot and flow_id and node and flow_id != _SCHEDULED else None


def check_flow_id(flow_id: str) -> None:
    """Refuse an id that could not be distinguished from the node's name in a job's id.

    Raises:
        InvalidNameError: It could not.
    """
    problem = name_problem(flow_id) or ("contains '.'" if "." in flow_id else None)
    if problem or flow_id == _SCHEDULED:
        raise InvalidNameError(
            f"Flow id {flow_id!r} {problem or 'is reserved for scheduled jobs'}, so it could not be distinguished "
            f"from the node in `{{flow_id}}.{{node}}`; use letters, digits, '-' and '_'."
        )


def check_job_id(flow_id: str, node: str) -> str:
    """Return a node's job id.

    Raises:
        InvalidNameError: It is too long for the wire.
    """
    job_id = f"{flow_id}.{node}"
    if len(job_id) > MAX_NAME_LENGTH:
        raise InvalidNameError(
            f"Job id {job_id!r} is longer than {MAX_NAME_LENGTH} characters; shorten the flow id or the node's name."
        )
    return job_id


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """A node of a submitted flow.

    Attributes:
        name: The node.
        queue: Where its job runs.
        deps: The nodes it waits for by its rule.
        task: Its job's name.
        rule: The trigger rule: which outcomes of ``deps`` it needs to run.
        optional_deps: Nodes that it waits for whatever their outcome.
    """

    name: str
    queue: str
    deps: tuple[str, ...]
    task: str
    rule: TriggerRule = TriggerRule.ALL_SUCCESS
    optional_deps: tuple[str, ...] = ()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """All nodes it waits for."""
        return (*self.deps, *self.optional_deps)


@dataclass(frozen=True, slots=True)
class RecordedOptions:
    """What the reconciler enforces while a flow runs, and afterwards.

    Attributes:
        fail_fast: Whether one failure cancels the rest.
        timeout: How long the flow may take from its submission; None sets no limit.
        retention: Which finished flows of the queue are kept; None keeps all.
        concurrency: How many nodes may run at a time; None for any number.
        on_success: The node that runs when the flow has succeeded.
        on_failure: The node that runs when a node has failed.
    """

    fail_fast: bool = False
    timeout: Duration | None = None
    retention: Retention | None = None
    concurrency: int | None = None
    on_success: str | None = None
    on_failure: str | None = None

    @property
    def callbacks(self) -> frozenset[str]:
        """Names of the nodes that only report how the others ended."""
        return frozenset(name for name in (self.on_success, self.on_failure) if name is not None)

    def _wire(self) -> dict[str, Any]:
        said = {
            "failFast": self.fail_fast or None,
            "timeout": milliseconds(self.timeout) if self.timeout else None,
            "retention": self.retention and self.retention.wire_option,
            "concurrency": self.concurrency,
            "onSuccess": self.on_success,
            "onFailure": self.on_failure,
        }
        return {name: value for name, value in said.items() if value is not None}

    @classmethod
    def _read(cls, wire: Mapping[str, Any]) -> RecordedOptions:
        timeout_ms = wire.get("timeout")
        return cls(
            fail_fast=bool(wire.get("failFast")),
            timeout=timedelta(milliseconds=timeout_ms) if timeout_ms else None,
            retention=retention_from_wire(wire.get("retention")),
            concurrency=wire.get("concurrency"),
            on_success=wire.get("onSuccess"),
            on_failure=wire.get("onFailure"),
        )


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A submitted flow: its graph without the jobs' data, which the jobs have.

    Attributes:
        name: The graph's name.
        nodes: Its nodes by name, dependencies before dependents.
        options: What the reconciler enforces.
    """

    name: str
    nodes: Mapping[str, RecordedNode]
    options: RecordedOptions = RecordedOptions()

    @classmethod
    def of(cls, dag: Dag) -> FlowRecord:
        """Return the record of a graph."""
        nodes = {
            node.name: RecordedNode(
                node.name,
                dag.queue_of(node),
                tuple(node.deps),
                node.job_name,
                node.trigger_rule,
                tuple(node.optional_deps),
            )
            for level in dag.levels
            for node in level
        }
        options = dag.options
        return cls(
            dag.name,
            nodes,
            RecordedOptions(
                fail_fast=options.fail_fast,
                timeout=options.timeout,
                retention=options.retention,
                concurrency=options.concurrency,
                on_success=options.on_success.name if options.on_success else None,
                on_failure=options.on_failure.name if options.on_failure else None,
            ),
        )

    @property
    def queues(self) -> list[str]:
        """The queues of its jobs, without duplicates."""
        return list(dict.fromkeys(node.queue for node in self.nodes.values()))

    def jobs(self, flow_id: str) -> Iterator[tuple[RecordedNode, str]]:
        """Each node with the id of its job."""
        return ((node, job_id_of(flow_id, node.name)) for node in self.nodes.values())

    def text(self) -> str:
        """Return the record as the server stores it: compact JSON, the same for the same graph."""
        rows = [
            [
                node.name,
                node.queue,
                node.deps,
                node.task,
                node.rule,
                *([node.optional_deps] if node.optional_deps else ()),
            ]
            for node in self.nodes.values()
        ]
        return dump_json({"name": self.name, "nodes": rows, "options": self.options._wire()})

    @classmethod
    def read(cls, text: str) -> FlowRecord:
        """Parse a stored record.

        Raises:
            ServerError: The text is not a record.
        """
        try:
            stored = json.loads(text)
            nodes = [_node(*row) for row in stored["nodes"]]
            options = RecordedOptions._read(stored["options"])
            return cls(str(stored["name"]), {node.name: node for node in nodes}, options)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ServerError(
                f"The record of a flow cannot be read ({error}); it was damaged, or a newer version wrote it: "
                "upgrade, or remove the flow."
            ) from None


def _node(
    name: str, queue: str, deps: list[str], task: str, rule: str, optional_deps: list[str] | None = None
) -> RecordedNode:
    return RecordedNode(name, queue, tuple(deps), task, TriggerRule(rule), tuple(optional_deps or ()))
