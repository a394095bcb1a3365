"""A Pipes session: its keys, the environment that passes them to external work, and the session that a job opens."""

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
"""How long to keep a session's keys after their last read and the last message."""
DEFAULT_LIMIT = 10_000
"""About how many logs, and how many results, a session keeps."""


@dataclass(frozen=True, slots=True)
class PipesKeys:
    """The keys of one session. A session is one external launch, however many attempts of a step read it.

    Raises:
        InvalidNameError: The session's name is empty, too long, or contains a reserved character.
    """

    session: str
    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        for what, name in (("Session name", self.session), ("Key prefix", self.prefix)):
            if problem := name_problem(name):
                raise InvalidNameError(f"{what} {name!r} {problem}; use letters, digits, '.', '-' and '_'.")

    def _key(self, name: str) -> str:
        return f"{self.prefix}:pipes:{{{self.session}}}:{name}"

    @property
    def context(self) -> str:
        """The key of the step's context, as JSON."""
        return self._key("context")

    @property
    def results(self) -> str:
        """The key of the stream of results."""
        return self._key("results")

    @property
    def logs(self) -> str:
        """The key of the stream of logs, which is separate so that many logs cannot push out results."""
        return self._key("logs")

    @property
    def read(self) -> str:
        """The key of the last log entry that each reader passed on."""
        return self._key("read")

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the session."""
        return (self.context, self.results, self.logs, self.read)


def shareable_url(url: ServerUrl) -> str | None:
    """Return the URL if it may be shared; None if it contains a secret, or refers to certificates of this machine."""
    is_secret = url.password or url.sentinel_password or url.username or url.tls
    return None if is_secret else str(url)


def pipes_environment(job: BaseActiveJob, url: str | None = None) -> dict[str, str]:
    """Return the variables by which a job's external process reports to the step that added the job.

    The process may be a Spark driver, or any program that speaks Pipes. It opens Pipes with
    ``PipesStreamContextLoader`` and ``PipesStreamMessageWriter``. If the server's URL contains a password, set
    ``OQ_URL`` in the environment of the process.

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
    """Convert Pipes' variables to properties for a Spark driver on a cluster, which has another environment.

    Args:
        environment: The result of :func:`pipes_environment`.

    Returns:
        Properties for YARN's and Kubernetes' cluster mode. In client mode, and locally, set the variables themselves.
    """
    places = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
    return {f"{place}{name}": value for place in places for name, value in environment.items()}


@contextmanager
def open_job_pipes(job: BaseActiveJob, url: str | None = None) -> Iterator[PipesContext]:
    """Open Pipes in a handler during the block. Thread-safe: each job has its own session.

    Each message takes one exchange with the server, which blocks the thread. Use it in plain functions, because a
    coroutine would block the worker's other jobs. The step shows an exception that leaves the block.

    Example::

        @tasks.task
        def load(job: ActiveJob, table: str) -> None:
            with open_job_pipes(job) as pipes:
                pipes.report_asset_materialization(metadata={"rows": fill(table)})

    Args:
        job: The running job, added by a ``PipesQueueClient``.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory. Pass it if the worker got
            its server in another way.

    Raises:
        DagsterPipesError: No step on this server added this job.
    """
    loader = PipesMappingParamsLoader(pipes_environment(job, url))
    with PipesContext(loader, PipesStreamContextLoader(url), PipesStreamMessageWriter(url)) as pipes:
        yield pipes
