"""The worker's side: a handler reports to the step that added its job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster_pipes import PipesContext, PipesMappingParamsLoader

from orchestration_queue.dagster.pipes.environment import pipes_environment
from orchestration_queue.dagster.pipes.writer import PipesStreamContextLoader, PipesStreamMessageWriter
from orchestration_queue.worker.active_job import BaseActiveJob

__all__ = ["open_job_pipes"]


@contextmanager
def open_job_pipes(job: BaseActiveJob, url: str | None = None) -> Iterator[PipesContext]:
    """Open Pipes in a handler, for as long as the block runs. Each job has its own, also in threads.

    Each message takes one trip, for which the thread waits; a coroutine would hold up its worker's other jobs, so use
    it in plain functions. An exception that leaves the block is shown with the step.

    Example::

        @tasks.task
        def load(job: ActiveJob, table: str) -> None:
            with open_job_pipes(job) as pipes:
                pipes.report_asset_materialization(metadata={"rows": fill(table)})

    Args:
        job: The running job, added by a ``PipesQueueClient``.
        url: The server; default ``OQ_URL``, else the embedded server of this directory. A worker that was given its
            server otherwise has to say so here.

    Raises:
        DagsterPipesError: No step added this job, or one of another server.
    """
    loader = PipesMappingParamsLoader(pipes_environment(job, url))
    with PipesContext(loader, PipesStreamContextLoader(url), PipesStreamMessageWriter(url)) as pipes:
        yield pipes
