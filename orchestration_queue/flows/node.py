"""One job of a graph, and its dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from pydantic import InstanceOf

from orchestration_queue.errors import FlowError, InvalidNameError
from orchestration_queue.options import JobOptions, name_problem
from orchestration_queue.options.base import suggestion
from orchestration_queue.options.job import NO_OPTIONS

__all__ = ["IGNORED_ON_RELEASE", "NO_OPTIONS", "Node", "RelayedNode", "RemoteQueue", "TriggerRule"]


class TriggerRule(StrEnum):
    """When a node runs, with Airflow's names and meanings.

    A node that can no longer run ends immediately as ``upstream_failed`` or ``skipped``, which decides about its
    dependents as well. The outcome doesn't depend on the order in which dependencies end. A dependency that ended as
    ``upstream_failed`` counts as failed; optional dependencies are waited for and not counted.
    """

    ALL_SUCCESS = "all_success"
    """All have completed."""
    ALL_FAILED = "all_failed"
    """All have failed."""
    ALL_DONE = "all_done"
    """All have ended, with any outcome."""
    ONE_SUCCESS = "one_success"
    """One has completed; the others are not waited for."""
    ONE_FAILED = "one_failed"
    """One has failed; the others are not waited for."""
    NONE_FAILED = "none_failed"
    """All have completed or were skipped."""
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    """All have completed or were skipped, and at least one has completed."""
    ALWAYS = "always"
    """Runs immediately, without waiting."""


IGNORED_ON_RELEASE = ("delay", "delay_until", "priority", "lifo")
"""Job options that the wire ignores when a waiting node becomes ready."""


@dataclass(frozen=True, slots=True)
class RelayedNode:
    """The task that runs a node's job on another system, and waits for it.

    Attributes:
        queue: The queue of the task; None: the flow's queue.
        task: The task's name.
        data: The task's arguments.
    """

    queue: str | None
    task: str
    data: object


@runtime_checkable
class RemoteQueue(Protocol):
    """A queue of another system, such as a :class:`~orchestration_queue.wires.chasquimq.ChasquiRef`."""

    def relay(self, name: str, data: object) -> RelayedNode:
        """Return the task that runs a job with this name and data there."""


@dataclass(frozen=True, slots=True)
class Node:
    """One job of a flow, and the nodes it waits for.

    Attributes:
        name: Unique in the flow; its job's id is ``{flow_id}.{name}``.
        task: The job's name, by which workers choose the handler; None: the node's name.
        queue: Where it runs; None: the flow's queue. With a queue of another system, such as ``ChasquiRef``, the node
            becomes the task that runs its job there.
        data: The job's data, any JSON value.
        options: How the job is retried, limited and kept. Options that the wire would ignore in a flow are refused.
        deps: The nodes it waits for, passed as nodes or names, and stored as names.
        trigger_rule: Which outcomes of ``deps`` it needs to run; by default all must have completed.
        optional_deps: Further nodes it waits for, in the same form, which may fail.

    Raises:
        InvalidNameError: The name can't be part of a job id.
        FlowError: An option is not possible in a flow, the rule is unknown, or the dependencies are not sequences of
            names, or name a node in both.
    """

    name: str
    task: str | None = None
    queue: str | InstanceOf[RemoteQueue] | None = None
    data: object = field(default=None, hash=False)
    options: JobOptions = NO_OPTIONS
    deps: Sequence[Any] = ()
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS
    optional_deps: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if problem := name_problem(self.name):
            raise InvalidNameError(
                f"Node name {self.name!r} {problem}, which job ids cannot carry; use letters, digits, '.', '-' and '_'."
            )
        if self.task is not None and not isinstance(self.task, str):
            raise FlowError(
                f"The task of node {self.name!r} must be a string, got {self.task!r}; pass `task='load'`, or make the "
                "node with `load.node(...)`."
            )
        for field_name in ("deps", "optional_deps"):
            object.__setattr__(self, field_name, self._names(field_name, getattr(self, field_name)))
        object.__setattr__(self, "options", JobOptions.coerce(self.options, "options"))
        if not isinstance(self.trigger_rule, str) or self.trigger_rule not in _RULES:
            hint = suggestion(self.trigger_rule, _RULES) or "; use one of TriggerRule."
            raise FlowError(f"Node {self.name!r} has no trigger rule {self.trigger_rule!r}{hint}")
        object.__setattr__(self, "trigger_rule", TriggerRule(self.trigger_rule))
        if isinstance(self.queue, RemoteQueue):
            relayed = self.queue.relay(self.job_name, self.data)
            for field_name in ("queue", "task", "data"):
                object.__setattr__(self, field_name, getattr(relayed, field_name))
        if problem := self._edge_problem() or _option_problem(self.options, waits=bool(self.waits_for)):
            raise FlowError(f"Node {self.name!r} {problem}.")

    @property
    def job_name(self) -> str:
        """The job's name, as workers see it."""
        return self.task or self.name

    @property
    def waits_for(self) -> Sequence[str]:
        """All nodes it waits for."""
        return (*self.deps, *self.optional_deps) if self.optional_deps else self.deps

    def _names(self, field_name: str, deps: object) -> tuple[str, ...]:
        """Return the names of dependencies passed as nodes or names, without duplicates."""
        if isinstance(deps, str):
            raise FlowError(f"Node {self.name!r} has the text {deps!r} as {field_name}; pass a list of names.")
        if not isinstance(deps, Iterable):
            raise FlowError(f"Node {self.name!r} has {deps!r} as {field_name}; pass a list of nodes or names.")
        names = [dep.name if isinstance(dep, Node) else dep for dep in deps]
        if (wrong := next((name for name in names if not isinstance(name, str)), self)) is not self:
            raise FlowError(f"Node {self.name!r} has {wrong!r} among its {field_name}; pass nodes or names of nodes.")
        return tuple(dict.fromkeys(names))

    def _edge_problem(self) -> str | None:
        if both := next((name for name in self.optional_deps if name in self.deps), None):
            return f"names {both!r} in both deps and optional_deps; drop one of them"
        return None


_RULES = frozenset(TriggerRule)


def _option_problem(options: JobOptions, *, waits: bool) -> str | None:
    """Return which option is not possible in a flow, why, and what to do."""
    if options is NO_OPTIONS:
        return None
    if options.job_id is not None:
        return "has its own job_id, but ids of a flow are made of flow id and node name; drop job_id"
    if options.deduplication is not None:
        return "has deduplication, which would leave its dependents waiting for a job that was never added; drop it"
    if options.ordering is not None and (problem := name_problem(options.ordering.key)):
        return f"has an ordering key that {problem}, which no client accepts in flows; choose another"
    if not waits:
        return None
    ignored = [name for name in IGNORED_ON_RELEASE if getattr(options, name)]
    if ignored:
        # The wire stores them, but puts the released job at the end of the stream. A stored priority or lifo also makes
        # servers count the running job as one that came from a list.
        return f"waits for other nodes, but the wire ignores {ignored[0]} on release; drop {ignored[0]}"
    if options.ordering is not None:
        # Turns are assigned when the job is added, and a flow's dependents are added before their dependencies.
        return (
            "waits for other nodes, but would hold its turn in the ordering group meanwhile, "
            "so later jobs of the group (its own dependencies among them) could not start; drop ordering"
        )
    return None
