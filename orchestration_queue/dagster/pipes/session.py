"""A Pipes session: its keys, how external work is told where they are, and the session a job opens for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from dagster_pipes import (
    DAGSTER_PIPES_CONTEXT_ENV_VAR,
    DAGSTER_PIPES_MESSAGES_ENV_VAR,
    PipesContext,
    PipesMappingParamsLoader,
    encode_param,
)

from orchestration_queue.dagster.pipes.writer import PipesStreamContextLoader, PipesStreamMessageWriter
from orchestration_queue.errors import InvalidNameError
from orchestration_queue.options import milliseconds, name_problem
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import ServerUrl, parse_url
from orchestration_queue.worker.active_job import BaseActiveJob

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_TTL",
    "PipesKeys",
    "open_job_pipes",
    "pipes_environment",
    "shareable_url",
    "spark_properties",
]

DEFAULT_TTL = timedelta(days=1)
"""How long a session's keys outlive their last read, and the last message."""
DEFAULT_LIMIT = 10_000
"""About how many logs, and as many results, a session keeps."""


@dataclass(frozen=True, slots=True)
class PipesKeys:
    """The keys of one session. A session is one external launch, however many attempts of a step read it.

    Raises:
        InvalidNameError: The session's name is empty, too long, or has a character of the wire's own.
    """

    session: str
    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        for what, name in (("Session name", self.session), ("Key prefix", self.prefix)):
            if problem := name_problem(name):
                raise InvalidNameError(
                    f"{what} {name!r} {problem}, which keys cannot carry; use letters, digits, '.', '-' and '_'."
                )

    def _named(self, name: str) -> str:
        return f"{self.prefix}:pipes:{{{self.session}}}:{name}"

    @property
    def context(self) -> str:
        """The key of what the step sends to the external side, as JSON."""
        return self._named("context")

    @property
    def results(self) -> str:
        """What the external side reports that counts: a stream."""
        return self._named("results")

    @property
    def logs(self) -> str:
        """What it logs: a stream of its own, so that no flood of logs pushes a result out."""
        return self._named("logs")

    @property
    def read(self) -> str:
        """By reader, up to where it has passed the logs on."""
        return self._named("read")

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the session."""
        return (self.context, self.results, self.logs, self.read)


def shareable_url(url: ServerUrl) -> str | None:
    """Return the URL as others may have it; None when it holds a secret, or certificates that lie here only."""
    is_secret = url.password or url.sentinel_password or url.username or url.tls
    return None if is_secret else str(url)


def pipes_environment(job: BaseActiveJob, url: str | None = None) -> dict[str, str]:
    """Return what a process that works for a job needs to report to the step that added the job.

    Whatever that process is (a program in any language that speaks Pipes, a Spark driver), it opens Pipes with
    ``PipesStreamContextLoader`` and ``PipesStreamMessageWriter``. A server whose URL holds a password it must find
    by ``OQ_URL`` of its own.

    Args:
        job: The running job, added by a ``PipesQueueClient``.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.

    Returns:
        Dagster's two variables.
    """
    keys = PipesKeys(job.id, job.ref.keys.prefix)
    server = shareable_url(parse_url(url))
    run = job.record.fields.get("processedOn") or f"attempt {job.attempt}"
    bounds = {"limit": DEFAULT_LIMIT, "ttl_ms": milliseconds(DEFAULT_TTL)}
    messages = {"results": keys.results, "logs": keys.logs, "run": run, "url": server, **bounds}
    return {
        DAGSTER_PIPES_CONTEXT_ENV_VAR: encode_param({"context": keys.context, "url": server}),
        DAGSTER_PIPES_MESSAGES_ENV_VAR: encode_param(messages),
    }


def spark_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the same for a Spark driver on a cluster, which the submitting process's environment does not reach.

    Args:
        environment: What :func:`pipes_environment` gives.

    Returns:
        Properties for YARN's and Kubernetes' cluster mode. In client mode, and locally, set the variables themselves.
    """
    places = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
    return {f"{place}{name}": value for place in places for name, value in environment.items()}


@contextmanager
def open_job_pipes(job: BaseActiveJob, url: str | None = None) -> Iterator[PipesContext]:
    """Open Pipes in a handler during the block. Each job has its own, also in threads.

    Each message takes one exchange, for which the thread waits. A coroutine would block its worker's other jobs, so use
    it in plain functions. An exception that leaves the block is shown with the step.

    Example::

        @tasks.task
        def load(job: ActiveJob, table: str) -> None:
            with open_job_pipes(job) as pipes:
                pipes.report_asset_materialization(metadata={"rows": fill(table)})

    Args:
        job: The running job, added by a ``PipesQueueClient``.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory. Pass it if the worker was
            given its server in another way.

    Raises:
        DagsterPipesError: No step added this job, or one with another server did.
    """
    loader = PipesMappingParamsLoader(pipes_environment(job, url))
    with PipesContext(loader, PipesStreamContextLoader(url), PipesStreamMessageWriter(url)) as pipes:
        yield pipes
