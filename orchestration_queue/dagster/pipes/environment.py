"""How external work is told of its Pipes session: as environment variables, or as properties of Spark's."""

from __future__ import annotations

from collections.abc import Mapping

from dagster_pipes import DAGSTER_PIPES_CONTEXT_ENV_VAR, DAGSTER_PIPES_MESSAGES_ENV_VAR, encode_param

from orchestration_queue.dagster.pipes.keys import DEFAULT_LIMIT, DEFAULT_TTL, PipesKeys
from orchestration_queue.options import milliseconds
from orchestration_queue.server import ServerUrl, parse_url
from orchestration_queue.worker.active_job import BaseActiveJob

__all__ = ["pipes_environment", "shareable_url", "spark_properties"]


def shareable_url(url: ServerUrl) -> str | None:
    """The URL as others may have it; None when it holds a secret, or certificates that lie here only."""
    is_secret = url.password or url.sentinel_password or url.username or url.tls
    return None if is_secret else str(url)


def pipes_environment(job: BaseActiveJob, url: str | None = None) -> dict[str, str]:
    """What a process that does the work of a job needs to report to the step that added the job.

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
    """The same for a Spark driver that runs on a cluster, where the submitting process's environment does not reach.

    Args:
        environment: What :func:`pipes_environment` gives.

    Returns:
        Properties for YARN's and Kubernetes' cluster mode. In client mode, and locally, set the variables themselves.
    """
    places = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
    return {f"{place}{name}": value for place in places for name, value in environment.items()}
