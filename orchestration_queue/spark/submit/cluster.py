"""Run an application whose driver is on a machine of a standalone cluster: one driver per job, even after crashes.

Only the master assigns a driver's id, so the id cannot be stored before the driver exists. Instead, a tag is stored
first, and the driver carries it. An attempt that finds a tag without an id searches the master's drivers for it, and
follows that driver.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestration_queue.errors import SparkFailedError, TransportError
from orchestration_queue.spark.failure import failure_error, stop_error
from orchestration_queue.spark.progress import ListenerFollower
from orchestration_queue.spark.submit.attempt import ASK_S, Attempt, EndedByOthersError, growing_pauses
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.standalone import (
    ENDED,
    MAIN_CLASS,
    DriverLog,
    DriverStatus,
    Master,
    MasterRefusedError,
    MasterUnreachableError,
    Reservation,
    carries_tag,
    create_request,
)

__all__ = ["run_on_cluster"]

_UNREADABLE_S = 30.0
"""How long to retry reading the log of a running driver that may belong to an earlier attempt."""
_KILL_S = 15.0
"""How long a killed driver may take to end, including the ten seconds in which Spark lets it exit on its own."""


def run_on_cluster(
    path: str,
    words: Sequence[str],
    options: SparkSubmit,
    *,
    log: Callable[[str], None],
    should_stop: Callable[[], bool],
    job_id: str | None,
    progress: Callable[[dict[str, Any]], None],
    earlier: object,
) -> dict[str, Any]:
    """Submit an application to a standalone master, or find that of an earlier attempt, and wait for its end.

    Args:
        path: The application, as the cluster's machines find it.
        words: Its arguments.
        options: How it runs, complete.
        log: Called with each line that its driver prints.
        should_stop: Called ten times a second; the driver is killed when it returns true.
        job_id: The job that it runs for.
        progress: Called with the job's progress, before anything is submitted for the first time.
        earlier: The progress left by an earlier attempt.

    Returns:
        The result of :func:`~orchestration_queue.spark.submit.run.run_submit`.

    Raises:
        SparkFailedError: It failed, or the master refused it or is unreachable.
        SparkTimeoutError: It took longer than ``options.timeout``.
        SparkCancelledError: ``should_stop`` returned true.
        TransportError: Its driver could not be recorded, and nothing was submitted.
    """
    run = _ClusterRun(Path(path).stem, options, should_stop, log, progress)
    if found := run.resume(Reservation.of(earlier)):
        try:
            return run.follow(found)
        except EndedByOthersError as ended:
            log(f"{ended}; submitting it again")
    properties = options.properties(Path(), run.name, job_id)
    return run.follow(run.submit(lambda reservation: create_request(reservation, options, path, words, properties)))


class _ClusterRun(Attempt):
    """One attempt."""

    def resume(self, earlier: Reservation | None) -> Reservation | None:
        """Find the reservation of an earlier attempt whose driver still runs, or succeeded; None without one."""
        if earlier is None:
            return None
        master = Master(earlier.rest_url, earlier.web_url)
        if not earlier.driver:
            earlier = replace(earlier, driver=self._find(master, earlier))
        if not earlier.driver:
            return None
        status = self._with_retries(master.status, earlier.driver)
        if not status.state or status.state in ENDED - {"FINISHED"}:
            return None  # it failed, or the master lost its state: this attempt submits it again
        self._log(f"found {earlier.driver} of an earlier attempt, which is {status.state}")
        self._is_resumed = True
        return earlier

    def submit(self, request: Callable[[Reservation], dict[str, Any]]) -> Reservation:
        """Submit a driver; store its tag before, and its id after."""
        master = Master(*self._options.master_urls)
        since_ms = self._with_retries(master.now_ms)
        reservation = Reservation(master.rest_url, master.web_url, uuid.uuid4().hex, since_ms)
        self._store(reservation)
        if why := self._why_stop():
            raise stop_error(self.name, why, self._options, "before it was submitted")
        try:
            driver = master.create(request(reservation))
        except MasterRefusedError as error:
            self.forget()
            raise SparkFailedError(
                f"The master refused Spark application {self.name!r} ({_line(str(error))}); correct its options, such "
                "as text in SparkSubmit.conf where Spark expects a number."
            ) from None
        except MasterUnreachableError as error:
            # The reply may have been lost: if the driver exists, it carries the tag.
            if not error.maybe_heard or not (driver := self._find(master, reservation)):
                self.forget()
                raise SparkFailedError(f"Spark application {self.name!r} was not submitted: {error}.") from None
        reservation = replace(reservation, driver=driver)
        with contextlib.suppress(TransportError):  # the stored tag suffices to find it
            self._store(reservation)
        return reservation

    def follow(self, reservation: Reservation) -> dict[str, Any]:
        """Wait for a driver's end.

        Raises:
            EndedByOthersError: It belongs to an earlier attempt, and was killed or is gone.
            SparkFailedError: It failed, or was stopped.
        """
        is_resumed, self._is_resumed = self._is_resumed, False
        master, driver = Master(reservation.rest_url, reservation.web_url), reservation.driver
        follower = ListenerFollower(self._progress, about=reservation.about, ui=self._options.ui_template)
        output = DriverLog(master, driver, self._record, follower.feed)
        pauses = growing_pauses()
        while (status := self._with_retries(master.status, driver)).state and status.state not in ENDED:
            if status.worker:
                output.read(status.worker)
            if why := self._pause(next(pauses)):
                self._kill(master, driver)
                raise stop_error(self.name, why, self._options, f"with its driver {driver}")
        if status.worker:
            output.read(status.worker, is_over=True)
        if status.state == "FINISHED":
            return {"exit_code": 0, "driver": driver, **follower.finish()}
        if is_resumed and status.state in ("", "KILLED"):
            raise EndedByOthersError(f"{driver} of an earlier attempt was killed by others")
        raise self._build_error(master, driver, status, output)

    def _store(self, reservation: Reservation) -> None:
        self._progress({"percent": 0, "text": "waiting for Spark", "spark": reservation.about})

    def _find(self, master: Master, reservation: Reservation) -> str:
        """Find the id of the driver that carries a tag; empty without one. Wait for logs that cannot be read yet."""
        pauses, give_up = growing_pauses(), time.monotonic() + _UNREADABLE_S
        while True:
            unknown = []
            for one in self._with_retries(master.drivers):
                if one.since_ms < reservation.since_ms or one.main_class != MAIN_CLASS:
                    continue
                is_ours = carries_tag(master, one.worker, one.id, reservation.tag) if one.worker else None
                if is_ours:
                    return one.id
                if is_ours is None and one.state not in ENDED:
                    unknown.append(one)
            if not unknown:
                return ""
            if any(one.worker for one in unknown) and time.monotonic() > give_up:
                raise SparkFailedError(
                    f"Driver {unknown[0].id} may belong to an earlier attempt of Spark application {self.name!r}, but "
                    "its worker's page with its log does not answer; the job fails, to be retried, rather than run "
                    "twice. Kill that driver if it is the job's, and check that SparkSubmit.web_url and the workers' "
                    "pages answer."
                )
            if why := self._pause(next(pauses)):
                raise stop_error(self.name, why, self._options, "while it searched for an earlier attempt's driver")

    def _kill(self, master: Master, driver: str) -> None:
        give_up = time.monotonic() + _KILL_S
        while time.monotonic() < give_up:
            with contextlib.suppress(MasterUnreachableError):
                master.kill(driver)
                if (state := master.status(driver).state) in ENDED or not state:
                    return
            time.sleep(ASK_S)
        raise SparkFailedError(
            f"The master {master.rest_url} did not confirm that driver {driver} of Spark application {self.name!r} "
            f"was stopped; it may still run: check {master.web_url}."
        )

    def _build_error(self, master: Master, driver: str, status: DriverStatus, output: DriverLog) -> SparkFailedError:
        if not status.state:
            return SparkFailedError(
                f"The master {master.rest_url} no longer knows driver {driver}, as after a restart "
                "without spark.deploy.recoveryMode; how the application ended is unknown."
            )
        if status.state == "KILLED":
            return SparkFailedError(f"Driver {driver} of Spark application {self.name!r} was killed at the master.")
        if status.state == "ERROR":
            reason = _line(status.message.partition("\n")[2] or status.message)
            return SparkFailedError(f"Driver {driver} of Spark application {self.name!r} did not start: {reason}")
        where = f" (its log cannot be read: {output.problem})" if output.problem else ""
        return failure_error(self.name, f"failed as driver {driver}{where}", self._lines, self._options)


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")[:500]
