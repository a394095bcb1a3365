"""A running job that also reports its log and progress to the step that waits for it; imports no Dagster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self, cast

import redis
from dagster_pipes import (
    PIPES_PROTOCOL_VERSION,
    PIPES_PROTOCOL_VERSION_FIELD,
    PipesMappingParamsLoader,
    PipesMessage,
)

from orchestration_queue.dagster.pipes.writer import PipesStreamMessageWriter, PipesStreamMessageWriterChannel
from orchestration_queue.errors import TransportError
from orchestration_queue.worker import ActiveJob

__all__ = ["StepReport"]

_EVERY_S = 0.5
"""Seconds between two deliveries of output."""
_MOST_HELD = 64 << 10
"""Maximum characters delivered at once."""


class StepReport:
    """The job for Spark's runtimes. Its lines go to its log, and twice a second to the step's compute log.

    Args:
        job: The running job.
        environment: The variables of its Pipes session, see ``pipes_environment``.
        ui: The URL of an application's page, with ``{application}`` in place of its id; None for none.
        url: The queue's server; default ``OQ_URL``, else the URL of the session.
    """

    def __init__(
        self, job: ActiveJob, environment: Mapping[str, str], ui: str | None = None, url: str | None = None
    ) -> None:
        self._job = job
        self._url = url
        self._params = PipesMappingParamsLoader(environment).load_messages_params()
        self._ui = ui
        self._facts: dict[str, str] = {}
        self._progress: dict[str, Any] = {"percent": 0, "text": "waiting for Spark"}
        self._announced: set[str] = set()
        self._held: list[str] = []
        self._length = 0
        self._next = 0.0
        self._lock = Lock()
        self._open = contextlib.ExitStack()
        self._channel: PipesStreamMessageWriterChannel | None = None

    def __enter__(self) -> Self:
        """Open the channel to the step."""
        self._channel = self._open.enter_context(PipesStreamMessageWriter(self._url).open(self._params))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Deliver the held lines, and disconnect."""
        with self._lock:
            self._deliver()
        self._open.close()

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def queue(self) -> str:
        """The name of the job's queue."""
        return self._job.queue

    @property
    def should_stop(self) -> bool:
        """Whether the job must stop."""
        return self._job.should_stop

    @property
    def record(self) -> Any:
        """The job as it started."""
        return self._job.record

    def log(self, text: str) -> None:
        """Append a line to the job's log, and to the step's."""
        with contextlib.suppress(TransportError):  # a short outage of the server costs lines, not the work
            self._job.log(text)
        with self._lock:
            self._held.append(text)
            self._length += len(text)
            if time.monotonic() >= self._next or self._length >= _MOST_HELD:
                self._deliver()

    def update_progress(self, progress: Any) -> None:
        """Store the job's progress with Spark's session or application, and report new ones to the step."""
        self._progress = progress
        known = {**progress.get("spark", {}), **self._facts}
        if self._ui and (application := known.get("application")):
            known["ui"] = self._ui.replace("{application}", application)
        self._job.update_progress({**progress, "spark": known})
        self._announce(known)

    def know(self, *, application: str) -> None:
        """Set the application's id, for runtimes whose progress does not contain it."""
        self._facts = {"application": application} if application else {}
        self.update_progress(self._progress)

    def advance(self, percent: int, text: str) -> None:
        """Store the script's progress if it has changed."""
        if (percent, text) != (self._progress.get("percent"), self._progress.get("text")):
            with contextlib.suppress(TransportError):  # later progress replaces this
                self.update_progress({**self._progress, "percent": percent, "text": text})

    def _announce(self, known: Mapping[str, Any]) -> None:
        """Report each identifier by which Spark's part of the step can be found, once."""
        words = {"session": "Spark session", "application": "Spark application", "ui": "Spark's UI"}
        for name, what in words.items():
            if (value := known.get(name)) and f"{name} {value}" not in self._announced:
                self._announced.add(f"{name} {value}")
                self._write("log", {"message": f"{what}: {value}", "level": "INFO"})

    def _deliver(self) -> None:
        if self._held:
            text = "".join(f"{line}\n" for line in self._held)
            self._held, self._length = [], 0
            self._write("log_external_stream", {"stream": "stdout", "text": text, "extras": {}})
        self._next = time.monotonic() + _EVERY_S

    def _write(self, method: Literal["log", "log_external_stream"], params: Mapping[str, Any]) -> None:
        if self._channel is None:
            return
        message = {PIPES_PROTOCOL_VERSION_FIELD: PIPES_PROTOCOL_VERSION, "method": method, "params": params}
        with contextlib.suppress(redis.RedisError, TransportError):
            self._channel.write_message(cast(PipesMessage, message))
