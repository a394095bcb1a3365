"""Run an application on YARN, on Kubernetes or with Livy: one per job, even after crashes.

A tag is stored before anything is submitted, and the application carries it. The attempt after one that died finds the
application by its tag and follows it; an attempt that must stop ends the application where it runs.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal

from orchestration_queue.errors import SparkFailedError, TransportError
from orchestration_queue.spark.failure import SparkFailure, failure_error, is_noise, stop_error
from orchestration_queue.spark.submit.attempt import ASK_S, Attempt, EndedByOthersError, growing_pauses
from orchestration_queue.spark.submit.http import MasterRefusedError, MasterUnreachableError
from orchestration_queue.spark.submit.livy import Livy, batch_request
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.trackers import RemoteApplication, Tracker

__all__ = ["RemoteRun", "run_by_livy"]

_KILL_S = 60.0
"""How long a killed application may take to end; a pod has half a minute to exit on its own."""
_APPEAR_S = 5.0
"""How long a submitted application may take to appear."""


class RemoteRun(Attempt):
    """One attempt.

    Args:
        tracker: Finds, follows and ends the application.
        name: The application's name.
        options: How it runs, complete.
        should_stop: Called ten times a second; the application is ended when it returns true.
        log: Called with each line that its driver prints, if they can be read.
        progress: Called with the job's progress, before anything is submitted for the first time.
    """

    def __init__(
        self,
        tracker: Tracker,
        name: str,
        options: SparkSubmit,
        should_stop: Callable[[], bool],
        log: Callable[[str], None],
        progress: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(name, options, should_stop, log, progress)
        self.tracker = tracker
        self.tag = ""

    def resume(self, earlier: object) -> RemoteApplication | None:
        """Find the application of an earlier attempt, if it runs or succeeded."""
        tag = self._read_tag(earlier)
        found = self._ask(self.tracker.find, tag) if tag else None
        if found is None or found.outcome == "failed":
            return None
        self.tag, self._is_resumed = tag, True
        self._log(f"found {found.id} of an earlier attempt, which is {found.state}")
        return found

    def reserve(self) -> dict[str, str]:
        """Store a tag, and return the properties by which the application carries it.

        Raises:
            SparkFailedError: The attempt must stop.
            TransportError: The tag could not be stored.
        """
        self.tag = uuid.uuid4().hex
        self._progress({"percent": 0, "text": "waiting for Spark", "spark": self._about})
        if why := self._why_stop():
            raise stop_error(self.name, why, self._options, "before it was submitted")
        return self.tracker.properties(self.tag)

    def find(self) -> RemoteApplication | None:
        """Return the application that carries the tag, if it exists."""
        return self._ask(self.tracker.find, self.tag)

    def follow(self, found: RemoteApplication) -> dict[str, Any]:
        """Wait for an application's end, and return the job's result.

        Raises:
            EndedByOthersError: It belongs to an earlier attempt, and was killed or is gone.
            SparkFailedError: It failed, is gone, or was stopped.
        """
        is_resumed, self._is_resumed = self._is_resumed, False
        pauses, reported, lines = growing_pauses(), "", 0
        current: RemoteApplication | None = found
        while current and not current.outcome:
            found = current
            if (text := f"{found.id}: {found.state}, {found.percent} %") != reported:
                reported = text
                with contextlib.suppress(TransportError):  # the next will arrive
                    self._progress({"percent": found.percent, "text": text, "spark": {**self._about, **found.about}})
            if self.tracker.reads_on:
                lines += self._read_log(found, lines)
            if why := self._pause(next(pauses)):
                self.end(found)
                raise stop_error(self.name, why, self._options, f"as {found.id}")
            current = self._ask(self.tracker.status, found.id)
        if is_resumed and (current is None or current.state.lower() == "killed"):
            raise EndedByOthersError(f"{found.id} of an earlier attempt was killed by others")
        if current is None:
            raise SparkFailedError(
                f"{self.tracker.url} no longer knows {found.id} of Spark application {self.name!r}; "
                "how the application ended is unknown."
            )
        while (more := self._read_log(current, lines)) and self.tracker.reads_on:
            lines += more
        if current.outcome == "failed":
            raise self.failed(current)
        return {"exit_code": 0, **current.about}

    def failed(self, found: RemoteApplication) -> SparkFailedError:
        """Return the error of a failed application: from its log, or else from its cluster."""
        if not SparkFailure.of_output(self._lines) and found.message:
            said = " ".join(found.message.split())[:500]
            return SparkFailedError(f"Spark application {self.name!r} failed as {found.id} ({found.state}): {said}")
        return failure_error(self.name, f"failed as {found.id} ({found.state})", self._lines, self._options)

    def end(self, found: RemoteApplication | None = None) -> None:
        """End the application where it runs, if it exists.

        Raises:
            SparkFailedError: The cluster did not confirm that it ended.
        """
        give_up, cause = time.monotonic() + _KILL_S, ""
        while time.monotonic() < give_up:
            try:
                current = self.tracker.status(found.id) if found else self.tracker.find(self.tag)
                if current is None or current.outcome:
                    return
                found = current
                self.tracker.kill(found.id)
            except (MasterUnreachableError, MasterRefusedError) as error:
                cause = f": {error}"
            time.sleep(ASK_S)
        what = found.id if found else f"the one with the tag {self.tag}"
        raise SparkFailedError(
            f"{self.tracker.url} did not confirm that Spark application {self.name!r} ({what}) was stopped{cause}; "
            "it may still run: end it there."
        )

    @property
    def _about(self) -> dict[str, Any]:
        return {"submission": {"kind": self.tracker.kind, "url": self.tracker.url, "tag": self.tag}}

    def _read_tag(self, earlier: object) -> str:
        spark = earlier.get("spark") if isinstance(earlier, dict) else None
        kept = spark.get("submission") if isinstance(spark, dict) else None
        if not isinstance(kept, dict) or kept.get("kind") != self.tracker.kind:
            return ""
        tag = kept.get("tag")
        return tag if isinstance(tag, str) else ""

    def _ask(self, ask: Callable[[str], RemoteApplication | None], about: str) -> RemoteApplication | None:
        try:
            return self._with_retries(ask, about)
        except MasterRefusedError as error:
            raise SparkFailedError(
                f"Spark application {self.name!r} cannot be followed ({error}); give this worker access to that API."
            ) from None

    def _read_log(self, found: RemoteApplication, first: int) -> int:
        lines: Sequence[str] = ()
        with contextlib.suppress(MasterUnreachableError, MasterRefusedError):  # an unreadable log is not a failure
            lines = self.tracker.read_log(found.id, first)
        for line in lines:
            if not is_noise(line):
                self._record(line)
        return len(lines)

    def conclude(self, stopped: Literal["timeout", "cancelled"] | None, code: int) -> RemoteApplication | None:
        """Return the state of the application after its ``spark-submit`` has ended.

        Args:
            stopped: Why ``spark-submit`` was stopped, if it was; then the application is ended.
            code: Its exit code otherwise.

        Returns:
            The application, which may still run; None if nothing was submitted, or it ended with its ``spark-submit``.
        """
        if stopped:
            self.end()
            return None
        give_up = time.monotonic() + (_APPEAR_S if code == 0 else 0.0)
        while (found := self.find()) is None and time.monotonic() < give_up and not self._why_stop():
            time.sleep(ASK_S)
        return found


def run_by_livy(
    path: str,
    words: Sequence[str],
    options: SparkSubmit,
    run: RemoteRun,
    properties: dict[str, str],
) -> dict[str, Any]:
    """Have Livy run an application, and wait for its end.

    Args:
        path: The application, as Livy finds it.
        words: Its arguments.
        options: How it runs, complete.
        run: The attempt.
        properties: Spark's properties.
    """
    livy = run.tracker
    assert isinstance(livy, Livy)  # noqa: S101  the caller ensures it
    run.reserve()
    try:
        found = livy.create(batch_request(f"{run.name}-{run.tag}", options, path, words, properties))
    except MasterRefusedError as error:
        run.forget()
        raise SparkFailedError(f"Livy refused Spark application {run.name!r} ({error}); correct its options.") from None
    except MasterUnreachableError as error:
        if not error.maybe_heard or not (known := run.find()):
            run.forget()
            raise SparkFailedError(f"Spark application {run.name!r} was not submitted: {error}.") from None
        found = known
    return run.follow(found)
