"""What a driver on a machine of the cluster prints, read from its worker's pages."""

from __future__ import annotations

import re
from collections.abc import Callable

from orchestration_queue.spark.failure import is_noise
from orchestration_queue.spark.listener import LOG_MARK
from orchestration_queue.spark.submit.master import Master, MasterUnreachableError
from orchestration_queue.spark.submit.reservation import TAG_PROPERTY

__all__ = ["DriverLog", "carries_tag"]

_MOST_PIECES = 20
_NOISE = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|DEBUG|TRACE) "
    r"|Launch Command: "
    r"|=+$"
    r"|Using Spark's default log4j profile"
    r"|Setting Spark log level to"
)


def carries_tag(master: Master, worker: str, driver: str, tag: str) -> bool | None:
    """Whether a driver is the one of an attempt: its log begins with its command, which has the attempt's tag.

    Returns:
        None when that cannot be told (yet).
    """
    try:
        head, _ = master.read_log(worker, driver, "stderr", 0)
    except MasterUnreachableError:
        return None
    return f"-D{TAG_PROPERTY}={tag}".encode() in head if head else None


class DriverLog:
    """Follows both outputs of one driver.

    Args:
        master: Whose pages lead there.
        driver: The driver's id.
        tell: Receives each line that says something.
        feed: Receives each line of our listener.

    Attributes:
        problem: Why the log could not be read; empty if it could.
    """

    def __init__(self, master: Master, driver: str, tell: Callable[[str], None], feed: Callable[[str], None]) -> None:
        self.problem = ""
        self._master, self._driver = master, driver
        self._tell, self._hear = tell, feed
        self._next = {"stderr": 0, "stdout": 0}
        self._rest = {"stderr": b"", "stdout": b""}

    def read(self, worker: str, *, is_over: bool = False) -> None:
        """Take what is new.

        Args:
            worker: The id of the worker that runs the driver.
            is_over: Whether nothing will follow.
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
            self._hear(text.removeprefix(LOG_MARK))
        elif not _NOISE.match(text) and not is_noise(text):
            self._tell(text)
