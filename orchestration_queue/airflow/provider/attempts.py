"""Names and origin of what one try of a task adds to a queue: the same whenever the try runs, and of no other try."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from airflow.sdk import Context

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions, check_tags
from orchestration_queue.options.job import PARENT_RUN_HEADER, Headers

__all__ = ["TaskAttempt", "check_kept"]

log = get_logger("orchestration_queue.airflow")

_LONGEST_LABEL = 120
"""Leaves room for a node's name after the id of a flow."""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One try of a task instance.

    Attributes:
        dag_id: Its DAG.
        run_id: Its DAG run.
        task_id: Its task.
        map_index: Its index if the task is mapped, else -1.
        try_number: Which try it is, from 1.
        instance: Airflow's id of this try, which no try of another run of the same name has.
        lineage: Its run in OpenLineage, as ``NAMESPACE/JOB/RUN``; empty if Airflow reports none.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    instance: str
    lineage: str = ""

    @classmethod
    def of(cls, context: Context) -> TaskAttempt:
        """Return the try that a task's context describes."""
        ti = context["ti"]
        map_index = -1 if ti.map_index is None else ti.map_index
        return cls(ti.dag_id, ti.run_id, ti.task_id, map_index, ti.try_number, str(ti.id), _find_lineage(ti))

    @property
    def id(self) -> str:
        """The id of the try's job or flow. It has no dots."""
        label = re.sub(r"[^A-Za-z0-9_-]", "-", f"{self.dag_id}-{self.task_id}")[:_LONGEST_LABEL]
        return f"airflow-{label}-{self._digest(self.try_number, self.instance)}-{self.try_number}"

    @property
    def tag(self) -> str:
        """The tag of the jobs of all tries."""
        return f"airflow:{self._digest()}"

    def _digest(self, *parts: object) -> str:
        whole = [self.dag_id, self.run_id, self.task_id, self.map_index, *parts]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]

    def mark(self, options: JobOptions) -> JobOptions:
        """Add the tag, and headers that name the try; the caller's headers take precedence."""
        origin = {
            "airflow.dag_id": self.dag_id,
            "airflow.run_id": self.run_id,
            "airflow.task_id": self.task_id,
            "airflow.map_index": str(self.map_index),
            "airflow.try_number": str(self.try_number),
        }
        if self.lineage:
            origin[PARENT_RUN_HEADER] = self.lineage
        headers = Headers({**origin, **options.headers})
        return options.model_copy(update={"headers": headers, "tags": check_tags((*options.tags, self.tag))})


def _find_lineage(ti: Any) -> str:
    """Return what Airflow's provider for OpenLineage, if there is one, reports a task as."""
    try:
        conf, macros = (import_module(f"airflow.providers.openlineage.{name}") for name in ("conf", "plugins.macros"))
    except ImportError:
        return ""
    try:
        return "" if conf.is_disabled() else str(macros.lineage_parent_id(ti))
    except Exception as error:  # lineage must not fail a task
        log.warning("The run of task %r in OpenLineage is unknown: %r", ti.task_id, error)
        return ""


def check_kept(options: JobOptions, owner: str) -> JobOptions:
    """Return a job's options if a task can find its job again.

    Raises:
        InvalidOptionError: They set a job id, or remove finished jobs at once.
    """
    if options.job_id is not None:
        raise InvalidOptionError(
            f"The job of {owner} has an id of Airflow's task, by which it is found again; remove job_id."
        )
    if any(kept is not None and kept.count == 0 for kept in (options.remove_on_complete, options.remove_on_fail)):
        raise InvalidOptionError(
            f"The job of {owner} must be kept when it has finished, since a task that runs again looks for it; pass "
            "`Retention(age=...)`."
        )
    return options
