"""A standalone cluster over HTTP: its master, its drivers and their logs, and the reservation of a driver."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

from orchestration_queue.spark.failure import is_noise
from orchestration_queue.spark.progress import LOG_MARK, with_listener
from orchestration_queue.spark.submit.http import MasterRefusedError, MasterUnreachableError, ask, read_json
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = [
    "ENDED",
    "MAIN_CLASS",
    "TAG_PROPERTY",
    "DriverLog",
    "DriverStatus",
    "ListedDriver",
    "Master",
    "MasterRefusedError",
    "MasterUnreachableError",
    "Reservation",
    "carries_tag",
    "create_request",
]

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
        # There is no such driver: only the reply's header Date is of interest.
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
                # Until a driver has a worker, the page has the text "None".
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


MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
"""The main class of our drivers: they run on the cluster what would run here in client mode."""

TAG_PROPERTY = "spark.orchestration_queue.submission"
"""The property with an attempt's tag. It is part of the driver's command, with which the driver's log begins."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """An attempt's driver on a cluster, stored in the job's progress.

    Attributes:
        rest_url: The submission server.
        web_url: The master's pages.
        tag: The driver's value of :data:`TAG_PROPERTY`.
        since_ms: A time by the master's clock, before which the driver cannot have been submitted.
        driver: Its id; empty until the master has assigned it.
    """

    rest_url: str
    web_url: str
    tag: str
    since_ms: int
    driver: str = ""

    @classmethod
    def of(cls, progress: object) -> Reservation | None:
        """Read the reservation of an earlier attempt; None without one, or when it was not submitted."""
        spark = progress.get("spark") if isinstance(progress, dict) else None
        kept = spark.get("submission") if isinstance(spark, dict) else None
        if not isinstance(kept, dict):
            return None
        texts = [kept.get(name) for name in ("rest_url", "web_url", "tag", "driver")]
        since_ms = kept.get("since_ms")
        if not all(isinstance(text, str) for text in texts) or not isinstance(since_ms, int):
            return None
        rest_url, web_url, tag, driver = map(str, texts)
        return cls(rest_url, web_url, tag, since_ms, driver)

    @property
    def about(self) -> dict[str, Any]:
        """Its part of a job's progress, under ``spark``."""
        return {"submission": asdict(self)}


def create_request(
    reservation: Reservation, options: SparkSubmit, path: str, words: Sequence[str], properties: dict[str, str]
) -> dict[str, Any]:
    """Build the request to the submission server.

    Args:
        reservation: The attempt's reservation.
        options: How the application runs.
        path: The application, as the cluster's machines find it.
        words: Its arguments.
        properties: Spark's properties.
    """
    properties = _ship_py_files(properties)
    if options.listener_jar:
        properties = with_listener(properties, "stderr", options.listener_jar)
    resource = path.removeprefix("local:")
    python = {"PYSPARK_PYTHON": str(options.python)} if options.python else {}
    java = {"JAVA_HOME": str(options.java_home)} if options.java_home else {}
    kind = ["--class", options.main_class] if options.main_class else []
    user = ["--proxy-user", options.proxy_user] if options.proxy_user else []
    return {
        "action": "CreateSubmissionRequest",
        "clientSparkVersion": "4.0.0",
        "appResource": resource if ":/" in resource else f"file:{quote(resource)}",
        "mainClass": MAIN_CLASS,
        # Without a master among its arguments, it would run in local mode inside the driver.
        "appArgs": ["--master", options.master, "--deploy-mode", "client", *kind, *user, path, *words],
        "sparkProperties": {**properties, TAG_PROPERTY: reservation.tag},
        "environmentVariables": {**python, **java, **options.env},
    }


def _ship_py_files(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties with the Python files among the files that executors fetch.

    In the driver, PySpark imports from the names of ``spark.submit.pyFiles`` that it finds among the fetched files.
    ``spark-submit`` merges the two lists; a request to the submission server passes it by.
    """
    if not (py_files := properties.get("spark.submit.pyFiles")):
        return properties
    names = dict.fromkeys(",".join((properties.get("spark.files", ""), py_files)).split(","))
    return {**properties, "spark.files": ",".join(filter(None, names))}


_MOST_PIECES = 20
_NOISE = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|DEBUG|TRACE) "
    r"|Launch Command: "
    r"|=+$"
    r"|Using Spark's default log4j profile"
    r"|Setting Spark log level to"
)


def carries_tag(master: Master, worker: str, driver: str, tag: str) -> bool | None:
    """Return whether a driver belongs to an attempt: its log begins with its command, which has the attempt's tag.

    Returns:
        None while its log cannot be read.
    """
    try:
        head, _ = master.read_log(worker, driver, "stderr", 0)
    except MasterUnreachableError:
        return None
    return f"-D{TAG_PROPERTY}={tag}".encode() in head if head else None


class DriverLog:
    """Follows standard output and error of one driver.

    Args:
        master: The master, whose pages link to the logs.
        driver: The driver's id.
        log: Called with each line that carries information.
        feed: Called with each line of our listener.

    Attributes:
        problem: Why the log could not be read; empty if it could.
    """

    def __init__(self, master: Master, driver: str, log: Callable[[str], None], feed: Callable[[str], None]) -> None:
        self.problem = ""
        self._master, self._driver = master, driver
        self._log, self._feed = log, feed
        self._next = {"stderr": 0, "stdout": 0}
        self._rest = {"stderr": b"", "stdout": b""}

    def read(self, worker: str, *, is_over: bool = False) -> None:
        """Read new lines.

        Args:
            worker: The id of the worker that runs the driver.
            is_over: Whether the driver has ended, so that an unfinished last line is complete.
        """
        for kind in self._next:
            try:
                self._read(worker, kind)
                self.problem = ""
            except MasterUnreachableError as error:
                self.problem = str(error)
            if is_over and (rest := self._rest.pop(kind, b"")):
                self._take(rest)

    def _read(self, worker: str, kind: str) -> None:
        for _ in range(_MOST_PIECES):
            piece, end = self._master.read_log(worker, self._driver, kind, self._next[kind])
            if not piece:
                return
            self._next[kind] = end
            *lines, self._rest[kind] = (self._rest[kind] + piece).split(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        if text.startswith(LOG_MARK):
            self._feed(text.removeprefix(LOG_MARK))
        elif not _NOISE.match(text) and not is_noise(text):
            self._log(text)
