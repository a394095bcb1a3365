"""Handlers in processes of their own, each job in a working directory of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from orchestration_queue.dialects.qless.commands import lasts
from orchestration_queue.dialects.qless.handlers import QlessNext
from orchestration_queue.dialects.qless.records import QlessJob
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker.sandbox import Sandboxed
from orchestration_queue.worker.sandbox.frames import Frame, pack, receive
from orchestration_queue.worker.sandbox.pool import SandboxPool
from orchestration_queue.worker.sandbox.supervised import ChildProcess

__all__ = ["JOB", "QlessSandboxes", "next_as_json"]

JOB = TypeAdapter(QlessJob)
"""How a job travels to a process."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A job and the directory in which it runs."""

    job: QlessJob
    directory: str


class _Process(ChildProcess):
    """A process that runs handlers, one at a time."""

    jobs = 0
    memory_bytes = 0

    @classmethod
    async def start(cls) -> _Process:
        """Start one."""
        return await cls.launch("orchestration_queue.dialects.qless.sandbox_child", {})

    async def run(self, handler: Sandboxed, _lease: Lease, task: _Task, _timeout_s: float | None) -> Frame:
        """Run a job. Return how it ended.

        Raises:
            SandboxDiedError: The process died, or sent no message.
        """
        self.jobs += 1
        self._output.begin(f"Job {task.job.jid}")
        request = {
            "address": asdict(handler.address),
            "directory": task.directory,
            "job": JOB.dump_python(task.job, mode="json"),
        }
        try:
            self._writer.write(pack(request))
            frame = await receive(self._reader)
            self.memory_bytes = int(frame["memory_bytes"])
        except (asyncio.IncompleteReadError, OSError):
            raise await self.death() from None
        return frame


class QlessSandboxes:
    """A worker's sandbox processes."""

    def __init__(self) -> None:
        self._pool = SandboxPool(_Process.start)

    async def run(self, handler: Sandboxed, job: QlessJob) -> QlessNext | None:
        """Run a job in a new and empty working directory, and remove that when the handler has ended.

        Raises:
            SandboxedError: The handler raised something that has no better type here.
            SandboxDiedError: Its process died.
            asyncio.CancelledError: The job is not this worker's any more; the process was stopped.
        """
        directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="oq-qless-")
        try:
            lease = Lease(JobRecord(job.jid, {}), "")
            returned = await self._pool.run(handler, lease, _Task(job, directory), None)
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))
        return QlessNext(**returned) if isinstance(returned, Mapping) else None

    async def aclose(self) -> None:
        """End all processes."""
        await self._pool.aclose()


def next_as_json(returned: Any) -> dict[str, Any] | None:
    """Return what a handler returned as JSON has it; only a :class:`QlessNext` counts."""
    if not isinstance(returned, QlessNext):
        return None
    return {
        "queue": returned.queue,
        "data": returned.data,
        "delay": lasts(returned.delay, "delay"),
        "depends": list(returned.depends),
    }
