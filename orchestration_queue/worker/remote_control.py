"""How clients see and control a worker: its entry in the queue's registry, and the commands that reach it."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration_queue._logging import get_logger
from orchestration_queue._version import __version__
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options.base import MAX_NAME_LENGTH
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.worker_registry import MOST_TASKS, NAME_LENGTH
from orchestration_queue.protocol.operations.worker_signals import Command
from orchestration_queue.worker.interfaces import TaskRegistry

if TYPE_CHECKING:
    from orchestration_queue.worker.worker import Worker

__all__ = ["RemoteControl", "describe_worker", "task_names"]

log = get_logger("orchestration_queue.worker")

_MOST_JOBS = 100
_STATM = Path("/proc/self/statm")
_SOON_S = 0.005


def describe_worker(
    worker: Worker, started_ms: int, leases: Iterable[Lease], tasks: tuple[str, ...], strategies: Iterable[str]
) -> dict[str, object]:
    """Return the entry: the wire's fields first, then those that only this library reads."""
    oldest = sorted(leases, key=lambda lease: lease.taken_ms)[:_MOST_JOBS]
    return {
        "addr": socket.gethostname(),
        "pid": os.getpid(),
        "startedAt": started_ms,
        "activeJobs": worker.running,
        "jobs": [
            [_plain(lease.job_id, MAX_NAME_LENGTH), _plain(lease.record.name), lease.taken_ms] for lease in oldest
        ],
        "tasks": tasks,
        "strategies": [_plain(name) for name in islice(strategies, MOST_TASKS)],
        "concurrency": worker.concurrency,
        "lease": worker.io.defaults.lease_ms,
        "paused": worker.is_paused,
        "memory": _memory_bytes(),
        "version": __version__,
        "codeVersion": worker.options.code_version,
        "reportedAt": worker.io.clock.now_ms(),
    }


def task_names(handler: object) -> tuple[str, ...]:
    """Return the names of a registry's tasks, at most 100; none for a single handler."""
    names = handler.task_names if isinstance(handler, TaskRegistry) else ()
    return tuple(_plain(str(name)) for name in list(names)[:MOST_TASKS])


def _plain(text: str, most: int = NAME_LENGTH) -> str:
    """Return the beginning of a name that any client wrote, as valid JSON text."""
    return text[:most].encode("utf-8", "replace").decode()


def _memory_bytes() -> int:
    """Return the memory that this process uses, or its maximum so far where the system doesn't say."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


class RemoteControl:
    """Carries out clients' commands to one worker, and replies.

    Args:
        worker: The running worker.
        register: Renews its registration, so that its readers see the change.
    """

    def __init__(self, worker: Worker, register: Callable[[], Awaitable[None]]) -> None:
        self._worker = worker
        self._register = register

    async def obey(self, command: Command) -> None:
        """Carry out the command if it is for this worker, then reply."""
        worker = self._worker
        if worker.id not in command.workers:
            return
        problem = await self._do(command)
        if command.verb != "ping":
            log.info(
                "Worker %s carries out the command %s%s", worker.id, command.verb, f" ({problem})" if problem else ""
            )
        try:
            # In this order: a client that reads the registry after the reply must find the change there.
            await self._register()
            await worker.io.reply(command, self._facts(problem))
        except OrchestrationQueueError as error:
            log.warning("The reply to the command %r of a client could not be sent: %s", command.verb, error)
        if command.verb == "stop":
            worker.dismiss()  # after the reply, since an idle worker stops immediately

    async def _do(self, command: Command) -> str | None:
        """Carry out a command; return why it was refused, or None."""
        worker = self._worker
        match command.verb:
            case "pause":
                worker.pause()
                await self._hand_back()
            case "resume":
                worker.resume()
            case "concurrency" if command.value is not None:
                if not worker.can_resize:
                    return "it has a process per slot; restart it with another concurrency"
                worker.set_concurrency(command.value)
            case "ping" | "stop":
                pass
            case _:
                return f"its version has no command {command.verb!r}"
        return None

    async def _hand_back(self) -> None:
        """Wait until no job can arrive that the worker had requested before it was paused."""
        while self._worker.may_receive and self._worker.is_paused:  # noqa: ASYNC110  nothing signals the last reply
            await asyncio.sleep(_SOON_S)

    def _facts(self, problem: str | None) -> dict[str, object]:
        worker = self._worker
        return {
            "problem": problem,
            "paused": worker.is_paused,
            "concurrency": worker.concurrency,
            "activeJobs": worker.running,
        }
