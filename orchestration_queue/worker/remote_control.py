"""Commands that reach a worker through the server: ping, pause, resume, stop, concurrency."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.operations.worker_control import Command

if TYPE_CHECKING:
    from orchestration_queue.worker.worker import Worker

__all__ = ["RemoteControl"]

log = logging.getLogger("orchestration_queue.worker")

_SOON_S = 0.005


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
            log.info("Worker %s was told: %s%s", worker.id, command.verb, f" ({problem})" if problem else "")
        try:
            await self._register()
            await worker.io.reply(command, self._facts(problem))
        except OrchestrationQueueError as error:
            log.warning("The command %r of a client could not be answered: %s", command.verb, error)
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
                    return "it has a process for each slot; restart it with another concurrency"
                worker.set_concurrency(command.value)
            case "ping" | "stop":
                pass
            case _:
                return f"it runs an older version, which knows no command {command.verb!r}"
        return None

    async def _hand_back(self) -> None:
        """Wait until no job can arrive that the worker had requested before it was paused."""
        while self._worker.may_receive and self._worker.is_paused:  # noqa: ASYNC110  as of the wait that this ends
            await asyncio.sleep(_SOON_S)

    def _facts(self, problem: str | None) -> dict[str, object]:
        worker = self._worker
        return {
            "problem": problem,
            "paused": worker.is_paused,
            "concurrency": worker.concurrency,
            "activeJobs": worker.running,
        }
