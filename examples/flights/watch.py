"""Reads the demo's progress: the flow's nodes, the scheduler's scheduled runs, Dagster's runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import dagster as dg

from examples.flights import settings
from orchestration_queue.client import Queue
from orchestration_queue.flows import job_id_of
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState

__all__ = ["NodeView", "RunView", "Snapshot", "Watch"]

PREPARE_NODES = (
    *settings.RAW_NODES.values(),
    *settings.MONTH_NODES.values(),
    settings.CLEAN_FLIGHTS,
    settings.CLEAN_WEATHER,
)
REPORT_NODES = (settings.DELAYS, settings.REPORT)


@dataclass(frozen=True, slots=True)
class NodeView:
    """The state of one node; ``record`` is None before it was submitted."""

    name: str
    record: JobRecord | None

    @property
    def state(self) -> str:
        """Its job's state; ``-`` before there is one."""
        return self.record.state.value if self.record else "-"

    @property
    def is_done(self) -> bool:
        """Whether it completed."""
        return self.record is not None and self.record.state is JobState.COMPLETED

    @property
    def rows(self) -> int | None:
        """How many rows it reported."""
        result = self.record.result if self.is_done and self.record else None
        rows = result.get("rows") if isinstance(result, dict) else None
        return rows if isinstance(rows, int) else None

    @property
    def progress(self) -> str:
        """How far Spark is with it, while it runs."""
        told = self.record.progress if self.record and self.state == "active" else None
        text = str(told.get("text", "")) if isinstance(told, dict) else ""
        return text if "tasks" in text else ""


@dataclass(frozen=True, slots=True)
class RunView:
    """The state of one Dagster run."""

    job: str
    run_id: str | None
    status: str
    sensor: str | None
    seconds: float | None

    @property
    def is_over(self) -> bool:
        """Whether it ended, well or not."""
        return self.status in {"SUCCESS", "FAILURE", "CANCELED"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment."""

    elapsed_s: float
    nodes: tuple[NodeView, ...]
    runs: tuple[RunView, RunView]
    scheduled_runs: int
    daily_runs: tuple[datetime, ...]

    @property
    def done(self) -> int:
        """Nodes that completed."""
        return sum(node.is_done for node in self.nodes)

    @property
    def has_tables(self) -> bool:
        """Whether the first run's nodes are all done."""
        return all(self.node(name).is_done for name in PREPARE_NODES)

    def node(self, name: str) -> NodeView:
        """Return the node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def table(self, name: str) -> Path:
        """Where the table is that the node of that name returned."""
        record = self.node(name).record
        return Path(record.result["table"]["location"]) if record else Path()

    @property
    def failed(self) -> tuple[NodeView, ...]:
        """Nodes that failed for good."""
        return tuple(node for node in self.nodes if node.record and node.record.state is JobState.FAILED)


class Watch:
    """Reads queue and Dagster instance.

    Args:
        connection: The server.
        instance: The Dagster instance.
        run_id: Id of the run that prepares the flights.
    """

    def __init__(self, connection: Connection, instance: dg.DagsterInstance, run_id: str) -> None:
        self._connection = connection
        self._keys = QueueKeys(settings.QUEUE)
        self._queue = Queue(settings.QUEUE, connection=connection)
        self._instance = instance
        self._run_id = run_id
        self._started = time.monotonic()
        self._daily_runs = tuple(self._queue.schedulers.next_runs(settings.DAILY, 3))

    def look(self) -> Snapshot:
        """See everything as it is now."""
        report = self._report_run()
        jobs = {name: job_id_of(f"{settings.FLOW}-{self._run_id}", name) for name in PREPARE_NODES}
        jobs |= {name: job_id_of(f"{name}-{report.run_id}", name) for name in REPORT_NODES}
        return Snapshot(
            elapsed_s=time.monotonic() - self._started,
            nodes=tuple(self._nodes(jobs)),
            runs=(self._run(settings.PREPARE_JOB, self._run_id), report),
            scheduled_runs=self._scheduled_runs(),
            daily_runs=self._daily_runs,
        )

    def _nodes(self, jobs: Mapping[str, str]) -> Iterator[NodeView]:
        """Read all nodes in one exchange."""
        reads = [job_records.job(self._keys, job_id) for job_id in jobs.values()]
        replies = self._connection.pipeline([read.call for read in reads], repeatable=True)
        for name, read, reply in zip(jobs, reads, replies, strict=True):
            yield NodeView(name, read.read(reply))

    def _scheduled_runs(self) -> int:
        """How many jobs of the repeatable job have run."""
        entry = self._queue.schedulers.get(settings.FRESHNESS)
        if entry is None or not entry.iteration_count:
            return 0
        return sum(job.record.name == settings.FRESHNESS for job in self._queue.jobs(JobState.COMPLETED))

    def _report_run(self) -> RunView:
        runs = self._instance.get_runs(dg.RunsFilter(job_name=settings.REPORT_JOB), limit=1)
        return self._run(settings.REPORT_JOB, runs[0].run_id if runs else None)

    def _run(self, job: str, run_id: str | None) -> RunView:
        record = self._instance.get_run_record_by_id(run_id) if run_id else None
        if record is None:
            return RunView(job, run_id, "-", None, None)
        run = record.dagster_run
        ended = record.end_time or time.time()
        seconds = ended - record.start_time if record.start_time else None
        return RunView(job, run_id, run.status.value, run.tags.get("dagster/sensor_name"), seconds)
