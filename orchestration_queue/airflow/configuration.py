"""The section ``[orchestration_queue]`` of Airflow's configuration, and what a task's `executor_config` may ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from pydantic import Field

from orchestration_queue.airflow.envelope import queue_of
from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options import as_timedelta, milliseconds
from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import Positive
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.server import parse_url
from orchestration_queue.server.url import URL_VARIABLE

__all__ = ["SECTION", "AirflowOptions", "TaskOptions"]

SECTION = "orchestration_queue"
"""The section of airflow.cfg, and the key in a task's `executor_config`."""
_OF_OTHERS = frozenset({"token_key"})
"""Options of the section that :mod:`tokens` reads, as they may also come from a command or a secrets backend."""
_NUMBERS = frozenset({"lease"})
_INDIRECT = ("_cmd", "_secret")
"""Ends of names of options that say where a value is found."""


class Configuration(Protocol):
    """What this needs of Airflow's ``ExecutorConf`` of a team."""

    team_name: str | None

    def get(self, section: str, key: str, *, fallback: Any) -> Any:
        """Return an option."""

    def getsection(self, section: str) -> Mapping[str, Any] | None:
        """Return the options of a section of the file, or None."""


class AirflowOptions(Options):
    """The executor's options."""

    url: str | None = Field(default=None, repr=False)
    """The server; default ``OQ_URL``, or else the embedded server of the scheduler's directory, but not for a team."""
    prefix: str = DEFAULT_PREFIX
    """First part of every key."""
    lease: Positive = timedelta(seconds=30)
    """A task whose worker was silent for this long is lost; Airflow retries it by its rules."""
    console_url: str | None = None
    """The console, to whose pages of jobs the tasks' logs link; default ``OQ_CONSOLE_URL``."""

    @classmethod
    def of(cls, configuration: Configuration) -> AirflowOptions:
        """Read the section once.

        Raises:
            UsageError: An option is unknown or invalid, or a team's server is missing.
        """
        team = configuration.team_name
        section = f"{team}={SECTION}" if team else SECTION
        variable = f"AIRFLOW__{f'{team.upper()}___' if team else ''}{SECTION.upper()}__"
        # Airflow does not list a section that is given by environment variables alone.
        listed = {name.removeprefix(variable).lower() for name in os.environ if name.startswith(variable)}
        listed |= (configuration.getsection(SECTION) or {}).keys()
        names = {name for name in listed if name not in _OF_OTHERS and not name.endswith(_INDIRECT)}
        names |= cls.model_fields.keys()
        found = {name: configuration.get(SECTION, name, fallback=None) for name in sorted(names)}
        given = {name: value for name, value in found.items() if value not in (None, "")}
        for name in _NUMBERS & given.keys():
            given[name] = _seconds(given[name], name, section)
        try:
            options = cls.coerce(given, f"[{section}]")
            QueueKeys(queue_of("default"), options.prefix)
            if options.url is not None:
                parse_url(options.url)
        except UsageError as error:
            raise type(error)(f"Airflow's configuration, section [{section}]: {error}") from None
        if as_timedelta(options.lease) < timedelta(seconds=1):
            raise InvalidOptionError(f"`[{section}] lease` must be at least 1 second, got {options.lease}.")
        if team and options.url is None and not os.environ.get(URL_VARIABLE):
            # Airflow gives a team none of the other executors' options, and no worker finds an embedded server.
            raise InvalidOptionError(
                f"The executor of team {team!r} has no server; set `url` in section [{section}], or {variable}URL."
            )
        return options


def _seconds(value: Any, name: str, section: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidOptionError(
            f"Airflow's configuration, section [{section}]: `{name}` must be a number of seconds, got {value!r}; "
            "set it to 30."
        ) from None


class TaskOptions(Options):
    """What ``executor_config={"orchestration_queue": {...}}`` may ask for one task."""

    timeout: Positive | None = None
    """Time limit of the job, from its start; Airflow's `execution_timeout` limits the operator alone."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the task. They are readable on the queue: put secrets into connections."""
    memory_mib: int | None = Field(default=None, ge=1)
    """Memory limit of the task's process, in MiB."""
    cpu_seconds: int | None = Field(default=None, ge=1)
    """Processor time limit of the task's process."""
    pools: dict[str, int] = Field(default_factory=dict)
    """Slots that it holds of the queue's pools, beside Airflow's own pool."""
    share: str | None = None
    """The share that it belongs to."""

    @classmethod
    def of(cls, executor_config: Any) -> TaskOptions:
        """Read what a task asks for. Keys of other executors are ignored.

        Raises:
            UsageError: An option is unknown or invalid.
        """
        asked = executor_config.get(SECTION) if isinstance(executor_config, Mapping) else None
        return cls.coerce(asked, f"executor_config[{SECTION!r}]")

    def limits(self) -> dict[str, Any]:
        """Return what the worker needs to know."""
        return {
            "timeout_ms": milliseconds(self.timeout) if self.timeout else None,
            "env": self.env,
            "memory_mib": self.memory_mib,
            "cpu_seconds": self.cpu_seconds,
        }
