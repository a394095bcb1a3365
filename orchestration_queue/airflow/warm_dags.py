"""DAG files that are imported before their tasks are forked.

Airflow's task process imports its DAG file first of all. Here it finds the DAGs of that file in memory instead, if the
file was imported without asking for what only a running task may ask: variables, connections, XComs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import airflow.dag_processing.dagbag as dagbag
from airflow import settings
from airflow.sdk.execution_time import task_runner

__all__ = ["WarmDags"]

_LEAST_S: Final = 5.0
_TIMES: Final = 3
"""How long an import may take: this many seconds at least, and this many times the import's time in a task."""
_AGAIN_S: Final = 600.0
"""How long after an import that failed or took too long it may be tried again; twice as long after each try."""


class _Refused(Exception):  # noqa: N818  it reports no error of ours
    """A DAG file asked for something that needs a running task."""


class _NoTask:
    """Stands for the connection of a task process to its supervisor, while no task runs."""

    asked = ""

    def send(self, msg: Any) -> Any:
        """Refuse a request."""
        self.asked = self.asked or type(msg).__name__
        raise _Refused(self.asked)

    async def asend(self, msg: Any) -> Any:
        """Refuse a request."""
        return self.send(msg)


class WarmDags:
    """The DAG files of a fork server.

    Attributes:
        paths: The files that were imported here, or could not be.
    """

    def __init__(self) -> None:
        self._bags: dict[str, dagbag.BundleDagBag] = {}
        self.paths: set[str] = set()
        self._pauses: dict[str, tuple[float, float]] = {}
        self._import = dagbag.BundleDagBag

    def is_settled(self, path: str) -> bool:
        """Whether a file must not be imported here now: it is warm, or it can't be, or could not be a while ago."""
        due, _ = self._pauses.get(path, (math.inf, 0.0))
        return path in self.paths and time.monotonic() < due

    def load(self, path: str, bundle_path: str, bundle_name: str, seconds: float = 0.0) -> str:
        """Import a file; return why its tasks have to import it themselves, '' if they need not.

        Meanwhile no task can be forked. So it may take only a few times as long as in the task that has imported it.

        Args:
            path: The file.
            bundle_path: The directory of its bundle.
            bundle_name: The name of its bundle.
            seconds: How long the task needed.
        """
        self.paths.add(path)
        limit_s = max(_LEAST_S, _TIMES * seconds)
        with _no_task() as comms, _limit_imports(limit_s) as is_over:
            bag, reason = self._try(path, bundle_path, bundle_name)
        _, pause_s = self._pauses.pop(path, (0.0, _AGAIN_S))
        if comms.asked:  # it will ask again
            return f"it asks for {comms.asked} while it is imported"
        if reason or is_over():
            self._pauses[path] = time.monotonic() + pause_s, 2 * pause_s
        if is_over():
            return f"it took {seconds:.1f} s in its task, but was not done after {limit_s:.1f} s while no task ran"
        if not reason:
            self._bags[path] = bag
        return reason

    def _try(self, path: str, bundle_path: str, bundle_name: str) -> tuple[Any, str]:
        try:
            bag = self._import(
                dag_folder=path,
                safe_mode=False,
                load_op_links=False,
                bundle_path=bundle_path,  # type: ignore[arg-type]  # as Airflow's task process passes it
                bundle_name=bundle_name,
            )
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"
        errors = list(bag.import_errors.values())
        return bag, errors[0].strip().rpartition("\n")[2] if errors else ""

    def offer(self, report: Callable[..., None]) -> None:
        """Have the task process that is forked next find the DAGs here; report what it imports itself."""

        def find(*args: Any, **options: Any) -> dagbag.BundleDagBag:
            path = os.fspath(options.get("dag_folder", ""))
            if (warm := self._bags.get(path)) is not None:
                return warm
            started = time.monotonic()
            bag = self._import(*args, **options)
            if not bag.import_errors and not self.is_settled(path):
                bundle = {"bundle_path": os.fspath(options["bundle_path"]), "bundle_name": options["bundle_name"]}
                report(path=path, **bundle, seconds=round(time.monotonic() - started, 3))
            return bag

        dagbag.BundleDagBag = find  # type: ignore[assignment,misc]  # Airflow imports the name when a task starts


@contextmanager
def _limit_imports(limit_s: float) -> Iterator[Callable[[], bool]]:
    """Have Airflow end an import after a time, if its own limit is not shorter; yield whether the time is over."""
    usual, started = settings.get_dagbag_import_timeout, time.monotonic()

    def get_limit(dag_file_path: str) -> float:
        allowed = float(usual(dag_file_path))
        return min(allowed, limit_s) if allowed > 0 else limit_s

    settings.get_dagbag_import_timeout = get_limit
    try:
        yield lambda: time.monotonic() - started >= limit_s
    finally:
        settings.get_dagbag_import_timeout = usual


@contextmanager
def _no_task() -> Iterator[_NoTask]:
    """Import as a task process does, which has a connection to its supervisor."""
    comms = _NoTask()
    context = "_AIRFLOW_PROCESS_CONTEXT"
    before = os.environ.get(context)
    os.environ[context] = "client"
    task_runner.SUPERVISOR_COMMS = comms  # type: ignore[assignment]
    try:
        yield comms
    finally:
        del task_runner.SUPERVISOR_COMMS
        if before is None:
            del os.environ[context]
        else:
            os.environ[context] = before
