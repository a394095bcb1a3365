"""A standalone master over HTTP: its submission server, its pages, and its workers' pages with the drivers' logs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

from orchestration_queue.spark.submit.http import MasterRefusedError, MasterUnreachableError, ask, read_json

__all__ = ["ENDED", "DriverStatus", "ListedDriver", "Master", "MasterRefusedError", "MasterUnreachableError"]

ENDED = frozenset({"FINISHED", "FAILED", "KILLED", "ERROR"})
"""The final states of a driver."""

_PIECE_BYTES = 200_000
_PIECE = re.compile(rb"==== Bytes (?P<start>\d+)-(?P<end>\d+) of (?P<all>\d+) of [^\n]*\n")
_SUBMISSIONS = "/v1/submissions"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The status of a driver.

    Attributes:
        state: Spark's name for its state; empty for a driver that the master does not know.
        message: The master's message about an error.
        worker: The id of the worker that runs it; empty before one does.
    """

    state: str
    message: str = ""
    worker: str = ""


@dataclass(frozen=True, slots=True)
class ListedDriver:
    """A driver on the master's page.

    Attributes:
        id: Its id.
        state: Spark's name for its state.
        main_class: The class that it runs.
        since_ms: When it was submitted, by the master's clock.
        worker: The id of the worker that runs it; empty before one does.
    """

    id: str
    state: str
    main_class: str
    since_ms: int
    worker: str


class Master:
    """A standalone master.

    Args:
        rest_url: Its submission server.
        web_url: Its pages.
    """

    def __init__(self, rest_url: str, web_url: str) -> None:
        self.rest_url, self.web_url = rest_url.rstrip("/"), web_url.rstrip("/")
        self._workers: dict[str, str] = {}

    def now_ms(self) -> int:
        """Return the master's time, to the second.

        Raises:
            MasterUnreachableError: It does not answer.
        """
        headers = ask("GET", f"{self.rest_url}{_SUBMISSIONS}/status/none").headers
        try:
            return int(parsedate_to_datetime(headers["Date"]).timestamp() * 1000)
        except (TypeError, ValueError) as error:
            raise MasterUnreachableError(self.rest_url, "it is not a submission server", maybe_heard=False) from error

    def create(self, request: dict[str, Any]) -> str:
        """Submit a driver and return its id.

        Raises:
            MasterUnreachableError: It does not answer.
            MasterRefusedError: It refused the request.
        """
        said = self._submissions("POST", "create", json.dumps(request).encode())
        if not said.get("success") or not said.get("submissionId"):
            raise MasterRefusedError(str(said.get("message") or said))
        return str(said["submissionId"])

    def status(self, driver: str) -> DriverStatus:
        """Return the status of a driver.

        Raises:
            MasterUnreachableError: It does not answer.
        """
        said = self._submissions("GET", f"status/{quote(driver, safe='')}")
        if not said.get("success"):
            return DriverStatus("")
        return DriverStatus(
            str(said.get("driverState", "")), str(said.get("message") or ""), str(said.get("workerId") or "")
        )

    def kill(self, driver: str) -> None:
        """Kill a driver; nothing happens to one that has ended.

        Raises:
            MasterUnreachableError: It does not answer.
        """
        self._submissions("POST", f"kill/{quote(driver, safe='')}", b"")

    def drivers(self) -> list[ListedDriver]:
        """Return all drivers that it remembers.

        Raises:
            MasterUnreachableError: Its page does not answer.
        """
        page = self._page()
        return [
            ListedDriver(
                str(one["id"]),
                str(one["state"]),
                str(one["mainclass"]),
                int(one["starttime"]),
                "" if one.get("worker") in (None, "None") else str(one["worker"]),
            )
            for one in [*page.get("activedrivers", ()), *page.get("completeddrivers", ())]
        ]

    def workers(self) -> dict[str, str]:
        """Return the ids of all workers that it remembers, with the addresses of their pages.

        Raises:
            MasterUnreachableError: Its page does not answer.
        """
        return {str(one["id"]): str(one["webuiaddress"]) for one in self._page().get("workers", ())}

    def read_log(self, worker: str, driver: str, kind: str, start: int) -> tuple[bytes, int]:
        """Read a driver's output starting at a byte; return it with the number of the next byte.

        Args:
            worker: The id of the worker that runs it.
            driver: The driver's id.
            kind: ``stdout`` or ``stderr``.
            start: The number of the first byte.

        Raises:
            MasterUnreachableError: A page does not answer, or the log does not exist.
        """
        if worker not in self._workers:
            self._workers = self.workers()
        if (address := self._workers.get(worker)) is None:
            raise MasterUnreachableError(worker, "the master does not know this worker", maybe_heard=False)
        wanted = {"driverId": driver, "logType": kind, "offset": start, "byteLength": _PIECE_BYTES}
        text = ask("GET", f"{address.rstrip('/')}/log/?{urlencode(wanted)}").body
        found = _PIECE.match(text)
        if found is None or text[found.end() :].startswith(b"Error: invalid log directory"):
            raise MasterUnreachableError(address, "the log does not exist", maybe_heard=False)
        return text[found.end() :][: int(found["end"]) - int(found["start"])], int(found["end"])

    def _page(self) -> dict[str, Any]:
        return read_json(self.web_url, ask("GET", f"{self.web_url}/json/").body)

    def _submissions(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        return read_json(self.rest_url, ask(method, f"{self.rest_url}{_SUBMISSIONS}/{path}", body).body)
