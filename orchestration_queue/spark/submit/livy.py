"""Run applications as batches of Livy, which submits them where it runs. A batch is found by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from orchestration_queue.spark.submit.http import HttpServer, MasterRefusedError
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.trackers import RemoteApplication, Tracker

__all__ = ["Livy", "batch_request"]

_PAGE = 100
_SAID_ELSEWHERE = {
    "spark.master",  # Livy decides on the master and the deploy mode, and refuses a request that sets them
    "spark.submit.deployMode",
    "spark.jars",
    "spark.submit.pyFiles",
    "spark.files",
    "spark.archives",
    "spark.driver.memory",
    "spark.driver.cores",
    "spark.executor.memory",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.yarn.queue",
}
"""Properties that a request has as separate fields."""


@dataclass(frozen=True, slots=True)
class Livy(Tracker):
    """A Livy server."""

    kind: ClassVar[str] = "livy"
    reads_on: ClassVar[bool] = True

    @classmethod
    def at(cls, url: str) -> Livy:
        """Return the server at an address."""
        # Livy requires this header where its protection against cross-site requests is on.
        return cls(HttpServer(url.rstrip("/"), {"X-Requested-By": "orchestration-queue"}))

    def create(self, request: Mapping[str, Any]) -> RemoteApplication:
        """Start a batch.

        Raises:
            MasterUnreachableError: It does not answer.
            MasterRefusedError: It refused the batch.
        """
        said = self.server.call("POST", "/batches", request)
        if said is None:
            raise MasterRefusedError(f"{self.url} has no /batches, so it is not a Livy server")
        return _read_batch(said)

    def properties(self, tag: str) -> dict[str, str]:
        """Return nothing: a batch carries the tag in its name."""
        del tag
        return {}

    def find(self, tag: str) -> RemoteApplication | None:
        """Return the batch whose name ends with a tag."""
        first = 0
        while True:
            said = self.server.call("GET", f"/batches?from={first}&size={_PAGE}") or {}
            batches: list[dict[str, Any]] = said.get("sessions") or []
            for batch in batches:
                if str(batch.get("name") or "").endswith(tag):
                    return _read_batch(batch)
            first += len(batches)
            if not batches or first >= int(said.get("total") or 0):
                return None

    def status(self, application: str) -> RemoteApplication | None:
        """Return the status of a batch."""
        said = self.server.call("GET", f"/batches/{quote(application, safe='')}")
        return _read_batch(said) if said else None

    def kill(self, application: str) -> None:
        """Delete a batch, which ends its application."""
        self.server.call("DELETE", f"/batches/{quote(application, safe='')}")

    def read_log(self, application: str, first: int) -> Sequence[str]:
        """Return the lines that its ``spark-submit`` printed, starting at a line."""
        said = self.server.call("GET", f"/batches/{quote(application, safe='')}/log?from={first}&size={_PAGE}") or {}
        # Livy keeps only the last lines, and returns those if earlier ones are requested.
        start = int(said.get("from") or 0)
        lines = [str(line) for line in said.get("log") or ()]
        return lines[max(0, first - start) :]


def batch_request(
    name: str, options: SparkSubmit, path: str, words: Sequence[str], properties: Mapping[str, str]
) -> dict[str, Any]:
    """Build the request for a batch.

    Args:
        name: The batch's unique name.
        options: How the application runs.
        path: The application, as Livy finds it.
        words: Its arguments.
        properties: Spark's properties.
    """
    said: dict[str, Any] = {
        "className": options.main_class,
        "proxyUser": options.proxy_user,
        "jars": list(options.jars),
        "pyFiles": list(options.py_files),
        "files": list(options.files),
        "archives": list(options.archives),
        "driverMemory": options.memory,
        "driverCores": options.driver_cores,
        "executorMemory": options.executor_memory,
        "executorCores": options.executor_cores,
        "numExecutors": options.executors,
        "queue": options.queue,
        "args": list(words),
        "conf": {key: value for key, value in properties.items() if key not in _SAID_ELSEWHERE},
    }
    return {"file": path, "name": name} | {key: value for key, value in said.items() if value not in (None, [])}


def _read_batch(batch: Mapping[str, Any]) -> RemoteApplication:
    state = str(batch.get("state", ""))
    outcome: Literal["", "succeeded", "failed"] = ""
    if state == "success":
        outcome = "succeeded"
    elif state in ("error", "dead", "killed"):
        outcome = "failed"
    about = {"batch": str(batch["id"])}
    if batch.get("appId"):
        about["application"] = str(batch["appId"])
    if ui := (batch.get("appInfo") or {}).get("sparkUiUrl"):
        about["ui"] = str(ui)
    return RemoteApplication(str(batch["id"]), state, outcome, "", 0, about)
