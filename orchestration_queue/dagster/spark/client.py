"""Run a step's Spark work as a job of the queue; a retried step finds its job again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster_pipes import PipesExtras
from pydantic import Field

from orchestration_queue.dagster._compat import StepContext
from orchestration_queue.dagster.assets.results import metadata_value
from orchestration_queue.dagster.pipes import PipesQueueClient
from orchestration_queue.dagster.spark.steps import TASK, ScriptItem
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.spark.options import SparkOptions

__all__ = ["PipesSparkClient"]

_SHOWN = {"application": "spark_application", "session": "spark_session", "server": "spark_server", "ui": "spark_ui"}
"""Fields of a job's progress, and the names of their metadata."""
_COUNTED = ("input_rows", "input_bytes", "output_rows", "output_bytes")


class PipesSparkClient(PipesQueueClient):
    """Runs a step's Spark work as a job of the queue, and passes on its reports.

    The job runs on a worker, by ``spark-submit`` or in a session on its Connect server, while the step's process only
    waits for messages. All guarantees of :class:`PipesQueueClient` apply: a retried step finds its job, and Spark is
    not started twice. Cancelling the run cancels the job and its Spark work.

    Examples:
        >>> import dagster as dg
        >>> defs = dg.Definitions(resources={"spark": PipesSparkClient(url=dg.EnvVar("OQ_URL"))})
    """

    default_queue: str = Field(default="spark", description="The queue of jobs without their own.")

    def run(  # type: ignore[override]  # like Dagster's own clients, each takes the arguments of its work
        self,
        *,
        context: StepContext,
        script: str | None = None,
        task: str | None = None,
        arguments: Sequence[str] | Mapping[str, Any] | None = None,
        extras: PipesExtras | None = None,
        spark: SparkOptions | None = None,
        queue: str | None = None,
        options: JobOptions | None = None,
        name: str | None = None,
    ) -> dg.PipesClientCompletedInvocation:
        """Run a script, or a Spark task, and wait until it ends.

        Args:
            context: The step's context.
            script: A script below the directory of the worker's :func:`spark_steps`. It opens Pipes with
                ``PipesStreamContextLoader`` and ``PipesStreamMessageWriter``.
            task: Instead, the name of one of the worker's tasks: a ``@spark_task`` with a parameter ``job: ActiveJob``,
                which reports with ``open_job_pipes(job)``.
            arguments: A script's arguments, or a task's keyword arguments.
            extras: The extras of the work's Pipes context.
            spark: A script's options. A ``SparkSubmit`` requests a separate application by ``spark-submit``, other
                options a session on the worker's Connect server. The worker limits the options that are possible here.
            queue: The queue to add the job to; default: ``default_queue``.
            options: The job's options. They must keep finished jobs, and set no job id.
            name: The name of this work within the step; default: the number of the step's call. Calls from several
                threads need names.

        Returns:
            The reports of the work. Their metadata name Spark's session and application.

        Raises:
            PipesJobFailure: The job failed for good: a ``dagster.Failure`` with its reports.
            InvalidOptionError: Not exactly one of script and task is given, or the arguments, options or path are
                invalid.
            UsageError: The queue's name, the task's name or the arguments are invalid.
            TransportError: The server is unreachable.
        """
        data: dict[str, Any]
        if (script is None) == (task is None):
            raise InvalidOptionError("Exactly one of `script` and `task` must be given; pass one.")
        if script is not None:
            task, data = TASK, ScriptItem.of(script, arguments or (), spark).model_dump(mode="json")
            name = name or self._add_number(context, queue or self.default_queue, script)
        else:
            data = _check_arguments(task, arguments, spark)
        return super().run(
            context=context,
            extras=extras,
            queue=queue or self.default_queue,
            task=str(task),
            data=data,
            options=options,
            name=name,
        )

    def _describe(self, record: JobRecord) -> Mapping[str, dg.MetadataValue]:
        """Return Spark's session or application, the last progress, and the counts of an application's listener."""
        progress, result = record.progress, record.result
        fields = progress if isinstance(progress, dict) else {}
        kept = fields.get("spark")
        found = {label: kept[name] for name, label in _SHOWN.items() if isinstance(kept, dict) and kept.get(name)}
        text = {"spark_progress": fields["text"]} if "text" in fields else {}
        counted = {name: result[name] for name in _COUNTED if isinstance(result, dict) and name in result}
        shown = {**found, **text, **counted}
        return {f"orchestration_queue/{name}": metadata_value(name, value) for name, value in shown.items()}


def _check_arguments(task: str | None, arguments: object, spark: SparkOptions | None) -> dict[str, Any]:
    """Return a task's keyword arguments."""
    if spark is not None:
        raise InvalidOptionError(f"`spark` applies to scripts, but task {task!r} has its own options; remove it.")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidOptionError(f"`arguments` of task {task!r} must be a mapping, got {arguments!r}; pass a dict.")
    return dict(arguments or {})
