"""Applications for Spark that run as jobs of a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar

from airflow.sdk import BaseOperatorLink

from orchestration_queue.airflow.provider.checks import check_text, is_open
from orchestration_queue.airflow.provider.links import ConsoleLink
from orchestration_queue.airflow.provider.operators import AddJobOperator
from orchestration_queue.client import Queue
from orchestration_queue.errors import InvalidOptionError

__all__ = ["QueueSparkSubmitOperator", "SparkLink"]


class SparkLink(BaseOperatorLink):
    """Leads to the page of the task's Spark application."""

    name = "Spark application"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002  Airflow passes it
        """Return the page's URL; empty if it is unknown."""
        return str(getattr(operator, "spark_page", ""))


class QueueSparkSubmitOperator(AddJobOperator):
    """Runs an application with ``spark-submit`` on a worker of a queue, and waits for its end in the triggerer.

    The worker has the application as a task: ``tasks.task(spark_submit("nightly.py", SparkSubmit(...)))``. Airflow
    needs neither Spark nor Java. A worker of Airflow that dies leaves the application running, and the task finds it
    again. If a worker of the queue dies, the job's next attempt finds the driver on its cluster.

    The task's result has ``exit_code``; of a driver on a cluster, ``driver`` or ``batch``; and, if Spark reports them,
    ``application``, ``ui`` and the numbers of rows and bytes.

    Args:
        application: The application's path, or the name of its task, which is the path's last part without its ending.
        application_args: Its arguments. Templated, as ``application`` is.
        queue_name: The queue of these workers.
        arguments: ``job_options`` and the other arguments of :class:`AddJobOperator`, without ``job_name`` and
            ``data``; and those of every operator.

    Raises:
        InvalidNameError: No queue can have this name.
        InvalidOptionError: Another argument is invalid.
    """

    template_fields: Sequence[str] = ("queue_name", "application", "application_args", "job_options")
    template_fields_renderers: ClassVar[dict[str, str]] = {"application_args": "json", "job_options": "json"}
    operator_extra_links = (ConsoleLink(), SparkLink())
    ui_color = "#fbe6d0"

    def __init__(
        self, *, application: str, application_args: Sequence[str] = (), queue_name: str = "spark", **arguments: Any
    ) -> None:
        for taken in ("job_name", "data"):
            if taken in arguments:
                raise InvalidOptionError(
                    f"`{taken}` is set by `application` and `application_args`; pass these, or use AddJobOperator."
                )
        super().__init__(queue_name=queue_name, job_name=check_text(application, "application"), **arguments)
        self.application = application
        self.application_args = application_args
        self.spark_page = ""
        if not is_open(application_args):
            self._build_data()

    def _build_data(self) -> dict[str, Any]:
        words = self.application_args
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise InvalidOptionError(f"`application_args` must be a list of texts, got {words!r}.")
        return {"arguments": list(words)}

    def _add(self, queue: Queue, attempt: Any) -> Any:
        self.job_name = PurePosixPath(self.application).stem
        self.data = self._build_data()
        return super()._add(queue, attempt)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Return the application's result; raise what :meth:`AddJobOperator.execute_complete` does."""
        result = super().execute_complete(context, event)
        if isinstance(result, dict):
            self.spark_page = str(result.get("ui") or "")
        return result
