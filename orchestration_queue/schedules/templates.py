"""What the runs of a schedule add to the queue: a job each, or a flow each."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from pydantic import PydanticSchemaGenerationError, TypeAdapter, model_validator

from orchestration_queue.errors import InvalidOptionError, PayloadError
from orchestration_queue.options import JobOptions, Options
from orchestration_queue.protocol.codec import dump_json, plain_number

__all__ = ["SUBMIT_FLOW", "FlowTemplate", "JobTemplate"]

SUBMIT_FLOW: Final = "oq.submit_flow"
"""The name of the jobs that submit a flow; workers of this package run them themselves."""

_FLOW_OPTIONS = JobOptions(attempts=5)


class JobTemplate(Options):
    """The job that each run of a schedule adds to the queue.

    Raises:
        InvalidOptionError: Jobs of schedules can't have one of the options.
    """

    name: str | None = None
    """The job's name; None: the scheduler's."""
    data: Any = None
    """The job's data, anything that pydantic writes as JSON; None means no data, which handlers see as ``{}``."""
    options: JobOptions = JobOptions()

    @model_validator(mode="after")
    def _keeps_its_options(self) -> JobTemplate:
        # Node's leaders apply only priority, attempts, ttl and lifo to a scheduled job. A schedule must not mean
        # different things depending on the leader.
        lost = ("job_id", "delay", "delay_until", "ordering", "cost", "deduplication")
        name = next((name for name in lost if getattr(self.options, name)), None)
        if name:
            raise InvalidOptionError(
                f"A schedule's job template has {name}, which the wire drops when the schedule fires; drop {name}."
            )
        return self

    def members(self) -> dict[str, object]:
        """Return the template as the wire stores it, without absent members."""
        members = {"name": self.name or None, "data": self.data, "opts": self.options.wire() or None}
        return {name: value for name, value in members.items() if value is not None}


class FlowTemplate(JobTemplate):
    """A flow for each run. Its id is derived from the scheduler's name and the due time.

    A run adds a small job, :data:`SUBMIT_FLOW`, with the graph as its data. A worker of this package submits the graph.
    If it dies meanwhile, or the job runs twice, it is still one flow.

    Args:
        dag: The graph.
        options: How that small job is retried and placed.

    Raises:
        PayloadError: The data of a node is not JSON.
    """

    def __init__(self, dag: object, options: JobOptions = _FLOW_OPTIONS) -> None:
        super().__init__(name=SUBMIT_FLOW, data={"dag": _graph_values(dag)}, options=options)


def _graph_values(dag: object) -> object:
    """Return the graph as JSON values, without derived ones."""
    if not dataclasses.is_dataclass(dag) or isinstance(dag, type):
        raise InvalidOptionError(f"`dag` must be a Dag, got {dag!r}; pass the graph of the flows.")
    derived = {field.name for field in dataclasses.fields(dag) if not field.init}
    try:
        for node in getattr(dag, "nodes", ()):
            dump_json(node.data)  # refuses keys that become equal, of which the adapter keeps one
        return TypeAdapter(type(dag)).dump_python(
            dag, mode="json", exclude=derived, exclude_defaults=True, fallback=plain_number
        )
    except (ValueError, PydanticSchemaGenerationError) as error:
        raise PayloadError(
            f"The flow of a schedule cannot be written as JSON ({error}); give its nodes data that pydantic can write."
        ) from None
